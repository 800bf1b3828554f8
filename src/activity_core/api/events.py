"""/v1/events. Accepting is the hot path of the whole service: no dependencies, no response model, bytes in and out."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from activity_core.api import bodies, params, problems, views
from activity_core.api.services import Services, Use
from activity_core.domain.envelopes import (
    MAX_BATCH,
    Envelope,
    read_binary_cloudevent,
    read_cloudevent,
    read_cloudevents,
    read_native,
)
from activity_core.domain.ids import DEFAULT_SOURCE
from activity_core.domain.json_values import JsonValue
from activity_core.errors import (
    ActivityCoreError,
    EventConflictError,
    Fault,
    InvalidInputError,
    MalformedBodyError,
    UnavailableError,
    UnsupportedMediaTypeError,
)
from activity_core.services.accept import Accepted, Cause
from activity_core.services.causes import HEADER as RUN_ID

NATIVE = "application/json"
CLOUDEVENT = "application/cloudevents+json"
RUN_ID_BYTES = RUN_ID.lower().encode()
BATCH = "application/cloudevents-batch+json"

ACCEPTED = {
    "type": "object",
    "title": "AcceptedEvent",
    "required": ["id", "event_id", "status"],
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "event_id": {"type": "string", "description": "Unique here; made when the event came without one"},
        "status": {"enum": ["accepted", "duplicate"]},
        "quarantined": {"const": True, "description": "Kept back: the schema of its type does not allow it"},
    },
}
NATIVE_EVENT = {
    "type": "object",
    "title": "NativeEvent",
    "additionalProperties": False,
    "required": ["type"],
    "properties": {
        "event_id": {"type": ["string", "null"], "maxLength": 1024},
        "type": {"type": "string", "maxLength": 256, "examples": ["order.paid"]},
        "source": {"type": ["string", "null"], "description": "A slug; (source, event_id) is the identity"},
        "subject": {"type": ["string", "null"]},
        "time": {"type": ["string", "null"], "format": "date-time"},
        "data": {"description": "Any JSON"},
    },
}
CLOUD_EVENT = {
    "type": "object",
    "title": "CloudEvent",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1},
        "type": {"type": "string", "minLength": 1},
        "subject": {"type": "string"},
        "time": {"type": "string", "format": "date-time"},
        "data": {"description": "Any JSON"},
    },
}
ACCEPTED_BATCH = {
    "type": "object",
    "title": "AcceptedBatch",
    "required": ["items"],
    "properties": {"items": {"type": "array", "items": ACCEPTED, "description": "In the order of the batch"}},
}
_ANSWER = {"content": {NATIVE: {"schema": {"oneOf": [ACCEPTED, ACCEPTED_BATCH]}}}}
ACCEPT_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            NATIVE: {"schema": NATIVE_EVENT},
            CLOUDEVENT: {"schema": CLOUD_EVENT},
            BATCH: {"schema": {"type": "array", "items": CLOUD_EVENT, "maxItems": MAX_BATCH}},
        },
    },
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The id of an event that comes without one",
        }
    ],
    "responses": {
        "202": {"description": "Committed", **_ANSWER},
        "200": {"description": "It was there already, with this content", **_ANSWER},
    },
}

router = APIRouter(prefix="/v1/events", tags=["events"])
hot = APIRouter(prefix="/v1/events", tags=["events"])


class EventsDoor:
    """Takes POST /v1/events past FastAPI, whose routing and dependencies cost twice of all that an event costs us."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/v1/events" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await accept_event(request)
        except ActivityCoreError as error:
            response = await problems.on_expected(request, error)
        await response(scope, receive, send)


# Registered for the API's description; the door above takes every request.
@hot.post("", status_code=202, response_model=None, openapi_extra=ACCEPT_DOCS)
async def accept_event(request: Request) -> Response:
    """Accept one event, in our envelope or as a CloudEvent (structured or binary), or a batch of them. 2xx: committed.

    Of a batch each event is answered for itself. 409: all but those named are committed, and sent again they are duplicates.
    """
    services: Services = request.app.state.services
    head = _headers(request)
    raw = await request.body()
    value = None if head.cloudevent and not raw else bodies.parse_body(raw)
    if head.media_type == BATCH:
        cause = None if head.run_id is None else await _cause(services, head.run_id)
        return await _accept_batch(services, read_cloudevents(value), cause)
    if head.cloudevent:
        envelope = read_binary_cloudevent(head.cloudevent, value)
    else:
        envelope = read_cloudevent(value) if head.media_type == CLOUDEVENT else _native(value)
    assigned = None if head.key is None or envelope.external_id is not None else params.read_idempotency_key(head.key)
    await _check_source(services, envelope, assigned)
    cause = None if head.run_id is None else await _cause(services, head.run_id)
    accepted = await services.acceptor.accept(envelope, assigned_id=assigned, cause=cause)
    return Response(orjson.dumps(_shown(accepted)), 200 if accepted.duplicate else 202, media_type=NATIVE)


async def _check_source(services: Services, envelope: Envelope, assigned: str | None) -> None:
    """What names a source of signed webhooks, or spells its ids out, must have passed its door: here anybody could take
    one of its ids."""
    if envelope.cloudevents:
        return
    if envelope.source != DEFAULT_SOURCE:
        if await services.sources.known(envelope.source):
            advice = f"is a source of webhooks; send to /v1/webhooks/{envelope.source}, or name another"
            raise InvalidInputError([Fault("/source", f"'{envelope.source}' {advice}")])
        return
    owner = await services.reserved.owner(envelope.external_id or assigned)
    if owner is not None and not await services.acceptor.is_known(envelope, assigned):
        pointer = "/event_id" if envelope.external_id is not None else "/headers/Idempotency-Key"
        advice = f"'{owner}:…' is kept for what comes to /v1/webhooks/{owner}; begin the id in another way"
        raise InvalidInputError([Fault(pointer, advice)])


async def _cause(services: Services, run_id: str) -> Cause:
    cause = await services.causes.of(run_id)
    if cause is None:
        message = "names no run; echo the header that came with the task, or leave it out"
        raise InvalidInputError([Fault(f"/headers/{RUN_ID}", message)])
    return cause


async def _accept_batch(services: Services, batch: list[Envelope], cause: Cause | None) -> Response:
    answers = await asyncio.gather(
        *(services.acceptor.accept(envelope, cause=cause) for envelope in batch), return_exceptions=True
    )
    unexpected = [a for a in answers if isinstance(a, BaseException) and not isinstance(a, ActivityCoreError)]
    if unexpected:
        raise unexpected[0]
    refused = [(f"/{place}", a) for place, a in enumerate(answers) if isinstance(a, ActivityCoreError)]
    if refused:
        raise _of_batch(refused)
    items = [_shown(answer) for answer in answers if isinstance(answer, Accepted)]
    status = 202 if any(item["status"] == "accepted" for item in items) else 200
    return Response(orjson.dumps({"items": items}), status, media_type=NATIVE)


def _of_batch(refused: list[tuple[str, ActivityCoreError]]) -> ActivityCoreError:
    """One error for a batch: that the outcome of some is unknown outweighs what is wrong with others."""
    for _, error in refused:
        if isinstance(error, UnavailableError):
            return error
    if all(isinstance(error, EventConflictError) for _, error in refused):
        named = "; ".join(f"{pointer}: {error.detail}" for pointer, error in refused)
        return EventConflictError(f"{named}. The other events of the batch are committed")
    faults = [
        replace(fault, pointer=pointer + fault.pointer)
        for pointer, error in refused
        for fault in (error.faults if isinstance(error, InvalidInputError) else [Fault("", error.detail, error.code)])
    ]
    return InvalidInputError(faults)


def _shown(accepted: Accepted) -> dict[str, str | bool]:
    status = "duplicate" if accepted.duplicate else "accepted"
    shown: dict[str, str | bool] = {"id": str(accepted.id), "event_id": accepted.event_id, "status": status}
    return {**shown, "quarantined": True} if accepted.quarantined else shown


class _Head(NamedTuple):
    """`cloudevent`: the attributes of a CloudEvent in binary mode, by name; empty for the other modes."""

    media_type: str
    key: str | None
    run_id: str | None
    cloudevent: dict[str, str]


def _headers(request: Request) -> _Head:
    """Raises for what would be read wrongly."""
    declared, key, run_id = NATIVE, None, None
    attributes: dict[str, str] = {}
    if request.scope["query_string"]:
        raise InvalidInputError([Fault("/query", "there are no parameters here", "unknown_parameter")])
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            declared = NATIVE if value == b"application/json" else bodies.media_type(value.decode("latin-1"))
        elif name == b"idempotency-key":
            key = value.decode("latin-1")
        elif name == RUN_ID_BYTES:
            run_id = value.decode("latin-1")
        elif name.startswith(b"ce-"):
            attribute = name[3:].decode("latin-1")
            if attribute in attributes:
                raise InvalidInputError([Fault(f"/headers/ce-{attribute}", "is there twice")])
            attributes[attribute] = value.decode("latin-1")
    if attributes:
        if declared not in (NATIVE, "") and not (declared.startswith("application/") and declared.endswith("+json")):
            raise UnsupportedMediaTypeError(f"data of type '{declared[:100]}' is not available; send JSON")
        if declared in (CLOUDEVENT, BATCH):
            raise MalformedBodyError(f"send either ce-* headers or {declared}, not both")
    elif declared not in (NATIVE, CLOUDEVENT, BATCH, ""):
        raise UnsupportedMediaTypeError(
            f"'{declared[:100]}' is not available; send {NATIVE}, {CLOUDEVENT}, {BATCH}, or ce-* headers with JSON"
        )
    return _Head(declared, key, run_id, attributes)


def _native(value: JsonValue) -> Envelope:
    try:
        return read_native(value)
    except InvalidInputError as error:
        if isinstance(value, dict) and "specversion" in value:
            advice = f"this looks like a CloudEvent; send it with Content-Type: {CLOUDEVENT}"
            raise InvalidInputError([Fault("/specversion", advice, "unknown_field")]) from error
        raise


@router.get("")
async def list_events(
    use: Use,
    type_: Annotated[str | None, Query(alias="type")] = None,
    event_id: str | None = None,
    status: views.EventStatus | None = None,
    source: str | None = None,
    start: params.From = None,
    end: params.To = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.EventItem]:
    """Accepted events, newest first; `from` and `to` are about when they were accepted."""
    params.check_range(start, end)
    page = await use.reads.events(
        event_type=type_,
        event_id=event_id,
        status=status,
        source=source,
        accepted_from=start,
        accepted_to=end,
        cursor=params.read_cursor(cursor),
        limit=limit,
    )
    return views.ListOf(items=[views.event_item(record) for record in page.items], next_cursor=page.next_cursor)


@router.get("/{ref:path}")
async def get_event(ref: str, use: Use) -> views.EventOut:
    """By `id` or by event_id (an event_id may hold `/`), with its occurrences."""
    return views.event(await use.reads.event(ref))
