"""What routes take from the URL and the headers."""

import difflib
import re
import uuid
from datetime import datetime
from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query as QueryField
from fastapi.routing import APIRoute
from pydantic import BeforeValidator, WithJsonSchema

from activity_core.domain import ids, instants
from activity_core.domain.selectors import Selector, SelectorError, parse_selector
from activity_core.errors import Fault, GoneError, InvalidInputError, NotFoundError, RevisionMismatchError
from activity_core.services.reads import Reads
from activity_core.store.paging import Cursor, decode_cursor

_PLUS_AS_SPACE = re.compile(r"(\S+[T ]\S+) (\d{2}(?::?\d{2})?)")


def read_instant(text: Any) -> datetime:
    """An ISO 8601 instant with an offset, as UTC; a `+` that arrived as a space is understood. Raises ValueError."""
    if isinstance(text, str) and (mangled := _PLUS_AS_SPACE.fullmatch(text)):
        text = f"{mangled[1]}+{mangled[2]}"
    return instants.read_instant(text)


Instant = Annotated[datetime, BeforeValidator(read_instant), WithJsonSchema({"type": "string", "format": "date-time"})]
From = Annotated[Instant | None, Query(alias="from", description="Instant with an offset, inclusive")]
To = Annotated[Instant | None, Query(alias="to", description="Instant with an offset, exclusive")]
Limit = Annotated[int, Query(ge=1, le=500, description="How many items a page has at most")]
CursorText = Annotated[str | None, Query(alias="cursor", description="`next_cursor` of the page before, unchanged")]
ActivityRef = Annotated[str | None, Query(description="UUID or slug of an activity")]
IfMatch = Annotated[str | None, Header(alias="If-Match", description='The ETag that was read, for example `"3"`')]
IdempotencyKey = Annotated[
    str | None, Header(alias="Idempotency-Key", description="Makes a repeat of this request harmless")
]

SelectorText = Annotated[
    str | None, Query(alias="selector", description="Labels, for example `team=ops,env!=dev,tier,!legacy`")
]
MergedInto = Annotated[uuid.UUID | None, Query(description="The occurrence whose run covers them")]
BackfillId = Annotated[uuid.UUID | None, Query(description="The backfill that asked for them")]

DEFAULT_LIMIT = 50


def read_cursor(text: str | None) -> Cursor | None:
    return None if text is None else decode_cursor(text)


def read_selector(text: str | None) -> Selector | None:
    """Raises InvalidInputError for a text that is no selector."""
    try:
        return None if text is None else parse_selector(text)
    except SelectorError as error:
        raise InvalidInputError([Fault("/query/selector", str(error))]) from error


def check_range(start: datetime | None, end: datetime | None) -> None:
    if start is not None and end is not None and start > end:
        raise InvalidInputError([Fault("/query/to", "is before 'from'")])


async def check_url(request: Request) -> None:
    """Refuses parameters that the route does not have, and repeated ones: a typo in a filter must not list everything."""
    if "\x00" in request.scope["path"]:
        raise NotFoundError("no name holds the character U+0000")
    items = request.query_params.multi_items()
    if not items:
        return
    given = [name for name, _ in items]
    route = request.scope.get("route")
    fields = get_flat_params(route.dependant) if isinstance(route, APIRoute) else []
    known = sorted(field.alias for field in fields if isinstance(field.field_info, QueryField))
    faults = [_unknown(name, known) for name in dict.fromkeys(given) if name not in known]
    faults += [Fault(f"/query/{_step(name)}", "holds the character U+0000") for name, value in items if "\x00" in value]
    faults += [Fault(f"/query/{_step(n)}", "is there twice") for n in known if given.count(n) > 1]
    if faults:
        raise InvalidInputError(faults)


def _unknown(name: str, known: list[str]) -> Fault:
    listed = f"known are: {', '.join(known)}" if known else "there are none here"
    near = difflib.get_close_matches(name, known, n=1)
    message = f"unknown parameter; did you mean '{near[0]}'? ({listed})" if near else f"unknown parameter; {listed}"
    return Fault(f"/query/{_step(name)}", message, "unknown_parameter")


def _step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def read_if_match(value: str | None) -> int | None:
    """The revision that `If-Match` names. A strong ETag that is none of ours can't match: RevisionMismatchError."""
    if value is None:
        return None
    advice = 'write the ETag of the document as it was given, for example "3" with its quotes'
    if value.strip() == "*":
        raise _header_fault("If-Match", f"'*' is not supported; {advice}")
    if value.lstrip().startswith("W/"):
        raise _header_fault("If-Match", f"a weak ETag can't guard a write; {advice}")
    if not (tag := re.fullmatch(r'\s*"([^",]*)"\s*', value)):
        raise _header_fault("If-Match", f"this is no single ETag; {advice}")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", tag[1], re.ASCII):
        raise RevisionMismatchError(f'no revision of this document has the ETag "{tag[1]}"; read it again')
    return int(tag[1])


def refuse_if_none_match(request: Request) -> None:
    if "if-none-match" in request.headers:
        raise _header_fault("If-None-Match", "is not supported on writes; POST creates, and If-Match guards a PUT")


def read_idempotency_key(value: str | None) -> str | None:
    """The key, checked like an event id: 1 to 1,024 bytes without control characters."""
    if value is None:
        return None
    try:
        return ids.check_external_id(value)
    except ids.IdError as error:
        raise _header_fault("Idempotency-Key", str(error)) from error


def _header_fault(name: str, message: str) -> InvalidInputError:
    return InvalidInputError([Fault(f"/headers/{name}", message)])


async def activity_id_of(reads: Reads, ref: str) -> uuid.UUID:
    """The id behind a UUID or slug; also of a deleted activity named by UUID, because its ledger stays."""
    try:
        return await reads.activity_id(ref)
    except GoneError:
        return uuid.UUID(ref)


async def optional_activity_id(reads: Reads, ref: str | None) -> uuid.UUID | None:
    return None if ref is None else await activity_id_of(reads, ref)
