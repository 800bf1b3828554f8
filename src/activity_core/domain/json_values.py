"""JSON as the system takes and stores it: one strict reader, one canonical writer, one type.

What is refused, and why: Postgres `text` and `jsonb` take neither `\\u0000` nor a lone surrogate; expressions know
64-bit integers only; a number beyond a double, or a repeated key, would change its meaning on the way; a bounded depth
makes recursion over a value safe.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import orjson
from typing_extensions import TypeAliasType

# A named alias, because pydantic can't build a schema for a plain recursive one (RecursionError).
JsonValue = TypeAliasType("JsonValue", "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None")

JsonErrorCode = Literal["malformed", "unstorable_character", "number_out_of_range", "too_deep", "duplicate_key"]

MAX_DEPTH = 64
MAX_INT = 2**63 - 1

# Escapes that need a closer look: NUL, surrogates, and the colon, whose escaped form would upset `_all_keys_kept`.
_SUSPICIOUS_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F]|003[aA])")
_DIGITS_ONLY = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_NINETEEN_DIGITS = b"0" * 19
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class JsonError(ValueError):
    """`pointer` is an RFC 6901 pointer to what is wrong ("" for the whole text); `message` says it to the sender."""

    def __init__(self, code: JsonErrorCode, message: str, pointer: str = "") -> None:
        super().__init__(f"{pointer}: {message}" if pointer else message)
        self.code: JsonErrorCode = code
        self.message = message
        self.pointer = pointer


def parse_json(raw: bytes) -> JsonValue:
    """Read one JSON text: UTF-8 without BOM, depth ≤ 64, integers within ±(2^63-1), finite doubles, each key once per
    object, no `\\u0000` and no lone surrogate in any key or string. Raises JsonError naming one fault.

    orjson checks the grammar, the encoding, surrogates and infinite numbers by itself; it takes `\\u0000`, keeps the
    last of repeated keys, turns integers from 2^64 into floats and goes 1,024 deep. Whatever might be one of those, or
    is refused, is read a second time by `_parse_exactly`, which decides alone.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _parse_exactly(raw)
    if (
        _SUSPICIOUS_ESCAPE.search(raw)
        or _NINETEEN_DIGITS in raw.translate(_DIGITS_ONLY)
        or not _all_keys_kept(raw, value)
        or (raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and deeper_than(value, MAX_DEPTH))
    ):
        return _parse_exactly(raw)
    return value  # type: ignore[no-any-return]  # orjson.loads is typed Any


def canonical_json(value: JsonValue) -> bytes:
    """The one UTF-8 text of a value: keys sorted by code point, no spaces. Content hashes are made of it, so its form
    never changes. `1` and `1.0` differ. Raises JsonError for what is not JSON (NaN, dates, lone surrogates, integers
    beyond 64 bits)."""
    try:
        text = orjson.dumps(value, option=_CANONICAL)
    except TypeError as error:
        raise next(faults_of(value), JsonError("malformed", f"is not JSON: {error}")) from None
    if b"null" in text and orjson.loads(text) != value:  # orjson writes NaN and infinities as null
        for fault in faults_of(value):
            if fault.code == "number_out_of_range" and fault.message == _NOT_FINITE:
                raise fault
    return text


_CANONICAL = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_NOT_FINITE = "is not a finite number"


def pointer_step(pointer: str, key: str | int) -> str:
    """`pointer` extended by one key or index, escaped as RFC 6901 wants it."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def faults_of(value: object) -> Iterator[JsonError]:
    """All that keeps a Python value from being a `JsonValue` as `parse_json` would give it, in document order."""
    return _faults(value, "", 0)


def _faults(value: object, pointer: str, depth: int) -> Iterator[JsonError]:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if found := _UNSTORABLE.search(value):
            yield _unstorable(found.group(), pointer)
    elif isinstance(value, int):
        if abs(value) > MAX_INT:
            yield JsonError("number_out_of_range", "is beyond ±(2^63-1); send it as a string", pointer)
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield JsonError("number_out_of_range", _NOT_FINITE, pointer)
    elif isinstance(value, list | dict):
        if depth >= MAX_DEPTH:
            yield _too_deep(pointer)
            return
        yield from _faults_inside(value, pointer, depth + 1)
    else:
        yield JsonError("malformed", f"is a Python {type(value).__name__}, not JSON", pointer)


def _faults_inside(container: list[Any] | dict[Any, Any], pointer: str, depth: int) -> Iterator[JsonError]:
    if isinstance(container, list):
        for index, item in enumerate(container):
            yield from _faults(item, f"{pointer}/{index}", depth)
        return
    for key, item in container.items():
        if not isinstance(key, str):
            yield JsonError("malformed", f"has a key that is a Python {type(key).__name__}, not a string", pointer)
        elif found := _UNSTORABLE.search(key):
            yield _unstorable(found.group(), pointer, "a key holds")
        else:
            yield from _faults(item, pointer_step(pointer, key), depth)


def _unstorable(character: str, pointer: str, subject: str = "holds") -> JsonError:
    name = "the character U+0000" if character == "\x00" else f"half a surrogate pair (U+{ord(character):04X})"
    return JsonError("unstorable_character", f"{subject} {name}, which can't be stored", pointer)


def _too_deep(pointer: str) -> JsonError:
    return JsonError("too_deep", f"is nested deeper than {MAX_DEPTH} levels", pointer)


def _all_keys_kept(raw: bytes, value: object) -> bool:
    """Whether no key was repeated, given that no colon is escaped. Each lost key takes at least its own colon along,
    and strings that are kept keep theirs, so equal counts mean that nothing was lost."""
    return raw.count(b":") == orjson.dumps(value).count(b":")


def deeper_than(value: object, limit: int) -> bool:
    """Whether lists and objects are nested more than `limit` deep; `[]` is one deep. Without recursion."""
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, list | dict)
        ]
    return bool(level)


class _Repeated(dict[str, Any]):
    """An object in which `key` came more than once."""

    key: str


class _OutOfRange(NamedTuple):
    digits: str


def _parse_exactly(raw: bytes) -> JsonValue:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise JsonError("malformed", "starts with a byte order mark; send plain UTF-8")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise JsonError("malformed", f"is not UTF-8 (byte {error.start})") from None
    if not text.strip():
        raise JsonError("malformed", "is empty")
    try:
        value: JsonValue = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise JsonError("malformed", f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except _NotANumber as error:
        raise JsonError("malformed", f"is not JSON: {error} is not a JSON number") from None
    except RecursionError:
        raise _too_deep("") from None
    if deeper_than(value, MAX_DEPTH):
        raise _too_deep("")
    for fault in _exact_faults(value, ""):
        raise fault
    return value


class _NotANumber(ValueError):
    pass


def _constant(name: str) -> Any:
    raise _NotANumber(name)


def _integer(digits: str) -> Any:
    # int() refuses more than 4,300 digits, so the length is looked at first
    if len(digits) > 20 or abs(number := int(digits)) > MAX_INT:
        return _OutOfRange(digits)
    return number


def _double(digits: str) -> Any:
    number = float(digits)
    return number if math.isfinite(number) else _OutOfRange(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    kept = dict(pairs)
    if len(kept) == len(pairs):
        return kept
    repeated = _Repeated(kept)
    seen: set[str] = set()
    repeated.key = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return repeated


_DECODER = json.JSONDecoder(
    parse_constant=_constant, parse_int=_integer, parse_float=_double, object_pairs_hook=_object
)


_FINE = frozenset({int, float, bool, type(None)})


def _exact_faults(value: object, pointer: str) -> Iterator[JsonError]:
    """Depth is bounded before this is called. The loops skip what can't be wrong: a generator for each number made a
    hostile megabyte cost 0.28 s."""
    if isinstance(value, _OutOfRange):
        shown = value.digits if len(value.digits) <= 40 else f"{value.digits[:37]}..."
        yield JsonError("number_out_of_range", f"{shown} is beyond a 64-bit number; send it as a string", pointer)
    elif isinstance(value, str):
        yield from _faults(value, pointer, 0)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item and item.__class__ not in _FINE:
                yield from _exact_faults(item, f"{pointer}/{index}")
    elif isinstance(value, dict):
        if isinstance(value, _Repeated):
            yield JsonError("duplicate_key", "is there twice", pointer_step(pointer, value.key))
        for key, item in value.items():
            if found := _UNSTORABLE.search(key):
                yield _unstorable(found.group(), pointer, "a key holds")
            elif item and item.__class__ not in _FINE:
                yield from _exact_faults(item, pointer_step(pointer, key))
