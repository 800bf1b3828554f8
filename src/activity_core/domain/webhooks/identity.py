"""Which event a request is: its id and its type, from headers, query parameters and the body, as a source says.

An origin is a text with holes: `{header:X-Event-Id}`, `{query:type}`, `{/data/id}` (a JSON pointer into the data). After
`|` a value may be changed: `dots` makes `orders/create` into `orders.create`, `tail` takes what is after the last `:` or
`/`. A pointer in a hole can't name a key with `|` or `}`. Users may also write a template with `${ CEL }`.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from activity_core.domain.event_types import EventTypeError, check_type
from activity_core.domain.ids import IdError, check_external_id
from activity_core.domain.json_values import JsonValue
from activity_core.domain.templates import Template, TemplateError, compile_template
from activity_core.domain.webhooks.outcomes import Refused, WebhookRequest, header_bytes
from activity_core.domain.webhooks.schemes import SchemeError, check_header_name

MAX_HOLES = 8
MAX_ORIGIN_LENGTH = 512
IDEMPOTENCY_KEY = "Idempotency-Key"
# Ids and types are stored and shown: no header that holds a secret may get into them.
CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
SCOPE = frozenset({"header", "query", "data"})

_HOLE = re.compile(r"\{([^{}]*)\}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+", re.DOTALL)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_NOT_IN_TYPE = re.compile(r"[^A-Za-z0-9_:/@+.-]+")
_DOTS = re.compile(r"\.{2,}")


_Change = Literal["", "dots", "tail"]
_CHANGES: dict[str, _Change] = {"": "", "dots": "dots", "tail": "tail"}


@dataclass(frozen=True, slots=True)
class _Hole:
    place: Literal["header", "query", "data"]
    name: str
    change: _Change

    def __str__(self) -> str:
        return self.name if self.place == "data" else f"{self.place} {self.name}"


@dataclass(frozen=True, slots=True)
class Origin:
    """A compiled text; without holes a constant. `text` is as it was written."""

    text: str
    parts: tuple[str | _Hole, ...]


@dataclass(frozen=True, slots=True)
class TemplateOrigin:
    """`${ CEL }` over `header` (those that came once, names in lower case, without `hidden`), `query` (likewise) and
    `data`."""

    text: str
    template: Template
    hidden: frozenset[str] = CREDENTIALS


IdFrom = Origin | TemplateOrigin
TypeFrom = Origin | TemplateOrigin


@dataclass(frozen=True, slots=True)
class Identity:
    """`external_id` None: the request has none, and the caller gives it a fresh one (R23)."""

    external_id: str | None
    id_origin: Literal["source", "idempotency_key", "fresh"]
    type: str


def from_template(text: str) -> Origin:
    """Raises SchemeError saying what is wrong."""
    if not text or len(text) > MAX_ORIGIN_LENGTH:
        raise SchemeError(f"write 1 to {MAX_ORIGIN_LENGTH} characters")
    pieces = _HOLE.split(text)
    if any("{" in literal or "}" in literal for literal in pieces[::2]):
        raise SchemeError("a '{' or '}' stands alone; a hole is written '{header:X-Event-Id}' or '{/data/id}'")
    if len(pieces) // 2 > MAX_HOLES:
        raise SchemeError(f"at most {MAX_HOLES} holes")
    parts = [_hole(piece) if index % 2 else piece for index, piece in enumerate(pieces)]
    return Origin(text, tuple(part for part in parts if part))


def from_cel(text: str) -> TemplateOrigin:
    """Raises SchemeError saying what is wrong."""
    if not text or len(text) > MAX_ORIGIN_LENGTH:
        raise SchemeError(f"write 1 to {MAX_ORIGIN_LENGTH} characters")
    try:
        return TemplateOrigin(text, compile_template(text, variables=SCOPE))
    except TemplateError as error:
        raise SchemeError(str(error)) from error


def hiding(origin: IdFrom, header: str) -> IdFrom:
    """The origin, without a further header that holds a secret. Raises SchemeError for one that reads such a header."""
    hidden = CREDENTIALS | {header.lower()}
    if isinstance(origin, TemplateOrigin):
        return replace(origin, hidden=hidden)
    for part in origin.parts:
        if isinstance(part, _Hole) and part.place == "header" and part.name.lower() in hidden:
            raise SchemeError(f"the header {part.name} holds a secret, and what is read here is stored and shown")
    return origin


def from_header(name: str) -> Origin:
    return from_template(f"{{header:{name}}}")


def from_pointer(pointer: str) -> Origin:
    return from_template(f"{{{pointer}}}")


def identify(
    request: WebhookRequest, data: JsonValue, ids: Sequence[IdFrom], types: Sequence[TypeFrom]
) -> Identity | Refused:
    """The first of `ids` that is there, else the Idempotency-Key, else none (R23); the first of `types` that is there."""
    found = _external_id(request, data, ids)
    if isinstance(found, Refused):
        return found
    event_type = _event_type(request, data, types)
    if isinstance(event_type, Refused):
        return event_type
    return Identity(*found, event_type)


def _hole(text: str) -> _Hole:
    place, _, written = text.partition("|")
    change = _CHANGES.get(written)
    if change is None:
        raise SchemeError(f"'{written[:40]}' is unknown; after '|' stands 'dots' or 'tail'")
    if place.startswith("header:"):
        return _Hole("header", check_header_name(place.removeprefix("header:")), change)
    if place.startswith("query:") and place != "query:":
        return _Hole("query", place.removeprefix("query:"), change)
    if not _POINTER.fullmatch(place):
        raise SchemeError(f"'{place[:40]}' is no 'header:Name', 'query:name' or JSON pointer such as '/data/id'")
    return _Hole("data", place, change)


def _external_id(
    request: WebhookRequest, data: JsonValue, ids: Sequence[IdFrom]
) -> tuple[str | None, Literal["source", "idempotency_key", "fresh"]] | Refused:
    for origin in ids:
        found = _fill(origin, request, data, strict=True)
        if isinstance(found, Refused):
            return found
        if found is not None:
            return _checked(found, origin.text) or (found, "source")
    key = _header_text(request, IDEMPOTENCY_KEY)
    if key is None:
        return None, "fresh"
    if isinstance(key, Refused):
        return key
    return _checked(key, IDEMPOTENCY_KEY) or (key, "idempotency_key")


def _checked(external_id: str, where: str) -> Refused | None:
    try:
        check_external_id(external_id)
    except IdError as error:
        return Refused("bad_id", f"{where}: {error}")
    return None


def _event_type(request: WebhookRequest, data: JsonValue, types: Sequence[TypeFrom]) -> str | Refused:
    for origin in types:
        found = _fill(origin, request, data, strict=False)
        if isinstance(found, Refused):
            return found
        if found is not None:
            try:
                return check_type(found)
            except EventTypeError as error:
                return Refused("bad_type", f"{origin.text}: {error}")
    return Refused("missing_type", f"no event type is in {', nor in '.join(origin.text for origin in types) or 'it'}")


def _rendered(origin: TemplateOrigin, request: WebhookRequest, data: JsonValue) -> str | None:
    """None for what is no text: a path that isn't there is as a header that isn't."""
    try:
        value = origin.template.render({**_singles(request, origin.hidden), "data": data})
    except TemplateError:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value)


def _singles(request: WebhookRequest, hidden: frozenset[str]) -> dict[str, dict[str, str]]:
    """Headers and query parameters that came once: of those that came twice nobody can say which is meant. A header that
    is not UTF-8 is left out: with its odd bytes replaced, two ids could look the same."""
    names = Counter(name.lower() for name, _ in request.headers)
    headers = {}
    for name, value in request.headers:
        if names[name.lower()] == 1 and name.lower() not in hidden:
            with contextlib.suppress(UnicodeDecodeError):
                headers[name.lower()] = header_bytes(value).decode().strip(" \t")
    asked = Counter(name for name, _ in request.query)
    return {"header": headers, "query": {name: value for name, value in request.query if asked[name] == 1}}


def _fill(
    origin: Origin | TemplateOrigin, request: WebhookRequest, data: JsonValue, *, strict: bool
) -> str | Refused | None:
    """None when a hole has no value. `strict` is for ids, which are taken exactly or refused. In types, what is no text
    counts as missing, and characters that no type may have become `_`: an event isn't lost for a sender's odd name,
    and the data keeps it as it was."""
    if isinstance(origin, TemplateOrigin):
        rendered = _rendered(origin, request, data)
        return rendered if rendered is None or strict else _as_type(rendered)
    filled = []
    for part in origin.parts:
        if isinstance(part, str):
            filled.append(part)
            continue
        value = _value(part, request, data)
        if isinstance(value, Refused) and (strict or value.reason_code == "doubled_header"):
            return value
        if value is None or isinstance(value, Refused):
            return None
        value = _changed(value, part.change)
        if not strict:
            cleaned = _as_type(value)
            if cleaned is None:
                return None
            value = cleaned
        filled.append(value)
    return "".join(filled)


def _as_type(value: str) -> str | None:
    return _DOTS.sub(".", _NOT_IN_TYPE.sub("_", value)).strip(".") or None


def _value(hole: _Hole, request: WebhookRequest, data: JsonValue) -> str | Refused | None:
    if hole.place == "header":
        return _header_text(request, hole.name)
    if hole.place == "query":
        values = [value for name, value in request.query if name == hole.name]
        return (
            Refused("bad_id", f"the {hole} came {len(values)} times") if len(values) > 1 else next(iter(values), None)
        )
    value = _at(data, hole.name)
    if isinstance(value, bool | float | list | dict):
        return Refused("bad_id", f"{hole} is neither a string nor an integer")
    return None if value is None else str(value)


def _header_text(request: WebhookRequest, name: str) -> str | Refused | None:
    value = request.header(name)
    if value is None or isinstance(value, Refused):
        return value
    try:
        return header_bytes(value).decode()
    except UnicodeDecodeError:
        return Refused("bad_id", f"the header {name} is not UTF-8")


def _at(data: JsonValue, pointer: str) -> JsonValue:
    """What an RFC 6901 pointer points to; None for nothing."""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and _INDEX.fullmatch(key) and int(key) < len(data):
            data = data[int(key)]
        else:
            return None
    return data


def _changed(value: str, change: _Change) -> str:
    if change == "dots":
        return ".".join(step for step in value.split("/") if step)
    return re.split("[:/]", value)[-1] if change == "tail" else value
