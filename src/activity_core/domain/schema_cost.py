"""How much work a JSON Schema can make, before it is compiled.

A validator goes wherever the references lead, so 30 lines of schema can ask for 2^30 evaluations, or for a stack deeper
than the process has. Here a schema is a graph of its parts: some say more of the same value, some go into the value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from activity_core.domain.cel.regex_size import UnreadableRegexError, regex_size
from activity_core.domain.json_values import MAX_DEPTH, canonical_json, pointer_step

MAX_PATTERN_BYTES = 1_000
MAX_REGEX_SIZE = 20_000  # over all patterns, as `regex_size` counts: 70 ms to compile
# References after one another on the same value; 1,500 of them in 62 levels of data ended the process (stack).
MAX_CHAIN = 100
_ENOUGH = 10**12  # where counting ends

_SAME_MANY = ("allOf", "anyOf", "oneOf")
_SAME_ONE = ("not", "if")
_SAME_BY_NAME = ("dependentSchemas", "dependencies")
_INTO_ONE = (
    "additionalProperties",
    "items",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_APART = ("$defs", "definitions")
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
# Measured on chains of schemas that each have one of _UNEVALUATED: a level more took 2.3 to 3.6 times as long.
_UNEVALUATED_FACTOR = 4
_LONG = ("enum", "const", "required", "dependentRequired", "not")
_BYTES_PER_UNIT, _REGEX_SIZE_PER_UNIT = 1024, 32
_MULTIPLE_OF = 10  # exact arithmetic: a microsecond


class SchemaError(ValueError):
    """`pointer`: where in the schema."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer}: {message}" if pointer else message)
        self.pointer = pointer
        self.message = message


@dataclass(slots=True)
class _Part:
    """`same`: parts that are about the same value; `either`: one of these two at most. `named`: about one member each, so
    that a member meets one of them; `into`: about any member."""

    weight: int = 1
    unevaluated: bool = False
    same: list[str] = field(default_factory=list)
    either: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    into: list[str] = field(default_factory=list)


def costs(schema: Mapping[str, Any]) -> list[int]:
    """For data of 0, 1, … 64 levels: how many evaluations (of about 50 ns) a value in it can cost, with all that is
    said of what it lies in.

    Raises SchemaError for references that lead nowhere or in a circle, and for patterns or chains that are too long.
    """
    parts = _parts(schema)
    order = _in_order(parts)
    local: dict[str, int] = {}
    for pointer in order:  # the parts that one refers to come before it
        part = parts[pointer]
        factor = _UNEVALUATED_FACTOR if part.unevaluated else 1
        below = sum(local[p] for p in part.same) + max((local[p] for p in part.either), default=0)
        local[pointer] = min(part.weight + factor * below, _ENOUGH)
    found, before = [local[""]], local
    for _ in range(MAX_DEPTH):
        inside: dict[str, int] = {}
        for pointer in order:
            part = parts[pointer]
            there = max((before[p] for p in part.named), default=0) + sum(before[p] for p in part.into)
            here = sum(inside[p] for p in part.same) + max((inside[p] for p in part.either), default=0)
            inside[pointer] = min(there + here, _ENOUGH)
        now = {pointer: min(local[pointer] + inside[pointer], _ENOUGH) for pointer in order}
        found.append(now[""])
        if now == before:
            break
        before = now
    return found + [found[-1]] * (MAX_DEPTH + 1 - len(found))


def _parts(schema: Mapping[str, Any]) -> dict[str, _Part]:
    """Every part of the schema by its pointer, also those that nothing refers to."""
    anchors = dict(_anchors(schema, ""))
    parts: dict[str, _Part] = {}
    waiting, patterns = [""], 0
    while waiting:
        pointer = waiting.pop()
        if pointer in parts:
            continue
        part = parts[pointer] = _Part()
        value = _at(schema, pointer)
        if not isinstance(value, dict):
            continue
        if "$id" in value and pointer:
            raise SchemaError(
                f"{pointer}/$id", "leave it out; a schema is one document, with '#/$defs/…' for its parts"
            )
        patterns += _weigh(part, value, pointer)
        if patterns > MAX_REGEX_SIZE:
            raise SchemaError(
                pointer, "the patterns of the schema are too large; use minLength and maxLength for lengths"
            )
        waiting += _connect(part, value, pointer)
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(value.get(keyword), str):
                target = _target(schema, anchors, value[keyword], f"{pointer}/{keyword}")
                part.same.append(target)
                waiting.append(target)
    return parts


def _weigh(part: _Part, value: Mapping[str, Any], pointer: str) -> int:
    """Sets the weight of a part; the size of its patterns."""
    size = 0
    patterns = [("/pattern", value["pattern"])] if isinstance(value.get("pattern"), str) else []
    if isinstance(value.get("patternProperties"), dict):
        patterns += [(pointer_step("/patternProperties", text), text) for text in value["patternProperties"]]
    for place, text in patterns:
        if len(text.encode()) > MAX_PATTERN_BYTES:
            raise SchemaError(pointer + place, f"a pattern may have {MAX_PATTERN_BYTES} bytes at most")
        try:
            size += regex_size(text)
        except UnreadableRegexError as error:
            raise SchemaError(pointer + place, str(error)) from error
    length = len(canonical_json({keyword: value[keyword] for keyword in _LONG if keyword in value}))
    part.weight = 1 + length // _BYTES_PER_UNIT + size // _REGEX_SIZE_PER_UNIT
    part.weight += _MULTIPLE_OF if "multipleOf" in value else 0
    part.unevaluated = any(keyword in value for keyword in _UNEVALUATED)
    return size


def _connect(part: _Part, value: Mapping[str, Any], pointer: str) -> list[str]:
    """Fills the edges of a part, references apart; the pointers of all parts inside it."""
    part.same += _listed(value, pointer, _SAME_MANY) + _single(value, pointer, _SAME_ONE)
    part.same += _by_name(value, pointer, _SAME_BY_NAME)
    part.either += _single(value, pointer, ("then", "else"))
    part.named += _by_name(value, pointer, ("properties",)) + _listed(value, pointer, ("prefixItems",))
    part.into += _by_name(value, pointer, ("patternProperties",)) + _single(value, pointer, _INTO_ONE)
    return [*part.same, *part.either, *part.named, *part.into, *_by_name(value, pointer, _APART)]


def _single(value: Mapping[str, Any], pointer: str, keywords: tuple[str, ...]) -> list[str]:
    return [f"{pointer}/{keyword}" for keyword in keywords if isinstance(value.get(keyword), dict | bool)]


def _listed(value: Mapping[str, Any], pointer: str, keywords: tuple[str, ...]) -> list[str]:
    return [
        f"{pointer}/{keyword}/{place}"
        for keyword in keywords
        if isinstance(value.get(keyword), list)
        for place in range(len(value[keyword]))
    ]


def _by_name(value: Mapping[str, Any], pointer: str, keywords: tuple[str, ...]) -> list[str]:
    return [
        pointer_step(f"{pointer}/{keyword}", name)
        for keyword in keywords
        if isinstance(value.get(keyword), dict)
        for name, item in value[keyword].items()
        if isinstance(item, dict | bool)
    ]


def _anchors(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("$anchor", "$dynamicAnchor") and isinstance(item, str):
                yield item, pointer
            yield from _anchors(item, pointer_step(pointer, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _anchors(item, f"{pointer}/{place}")


def _target(schema: Mapping[str, Any], anchors: Mapping[str, str], reference: str, place: str) -> str:
    if not reference.startswith("#"):
        raise SchemaError(place, "refers elsewhere; a schema stands alone, with '#/$defs/…' for its parts")
    fragment = unquote(reference[1:])
    if fragment in anchors:
        return anchors[fragment]
    if fragment and not fragment.startswith("/"):
        raise SchemaError(place, f"there is no anchor '{fragment[:100]}' in this schema")
    if not isinstance(_at(schema, fragment), dict | bool):
        raise SchemaError(place, f"there is no schema at '{reference[:200]}'")
    return fragment


def _at(schema: Any, pointer: str) -> Any:
    """None where nothing is."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, dict):
            schema = schema.get(name)
        elif isinstance(schema, list) and name.isdecimal() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return None
    return schema


def _in_order(parts: Mapping[str, _Part]) -> list[str]:
    """The parts, each after those that are about the same value as it is. Raises SchemaError for circles and long chains."""
    done: dict[str, int] = {}  # how many follow one another from here; in this order
    for first in parts:
        path = [] if first in done else [(first, iter(_same(parts[first])))]
        while path:  # no recursion: a chain may be longer than Python's stack
            pointer, rest = path[-1]
            following = next(rest, None)
            if following is None:
                done[pointer] = 1 + max((done[p] for p in _same(parts[pointer])), default=0)
                path.pop()
                if done[pointer] > MAX_CHAIN:
                    raise _too_long(pointer)
            elif following not in done:
                if any(following == open_one for open_one, _ in path):
                    raise SchemaError(pointer, "refers to itself without going into the data")
                if len(path) > MAX_CHAIN:
                    raise _too_long(pointer)
                path.append((following, iter(_same(parts[following]))))
    return list(done)


def _too_long(pointer: str) -> SchemaError:
    return SchemaError(pointer, f"more than {MAX_CHAIN} references follow one another")


def _same(part: _Part) -> list[str]:
    return [*part.same, *part.either]
