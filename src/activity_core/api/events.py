"""/v1/events. Accepting is the hot path of the whole service: no dependencies, no response model, bytes in and out."""

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from activity_core.api import bodies, params, problems, views
from activity_core.api.services import Services, Use
from activity_core.domain.envelopes import Envelope, read_cloudevent, read_native
from activity_core.domain.json_values import JsonValue
from activity_core.errors import (
    ActivityCoreError,
    Fault,
    InvalidInputError,
    MalformedBodyError,
    UnsupportedMediaTypeError,
)

NATIVE = "application/json"
CLOUDEVENT = "application/cloudevents+json"

ACCEPTED = {
    "type": "object",
    "title": "AcceptedEvent",
    "required": ["id", "event_id", "status"],
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "event_id": {"type": "string", "description": "Unique here; made when the event came without one"},
        "status": {"enum": ["accepted", "duplicate"]},
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
_ANSWER = {"content": {NATIVE: {"schema": ACCEPTED}}}
ACCEPT_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {NATIVE: {"schema": NATIVE_EVENT}, CLOUDEVENT: {"schema": CLOUD_EVENT}},
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
    """Accept one event, in our envelope or as a CloudEvent (structured mode). 2xx: it is committed."""
    services: Services = request.app.state.services
    declared, key = _headers(request)
    value = bodies.parse_body(await request.body())
    envelope = read_cloudevent(value) if declared == CLOUDEVENT else _native(value)
    assigned = None if key is None or envelope.external_id is not None else params.read_idempotency_key(key)
    accepted = await services.acceptor.accept(envelope, assigned_id=assigned)
    status = "duplicate" if accepted.duplicate else "accepted"
    body = orjson.dumps({"id": str(accepted.id), "event_id": accepted.event_id, "status": status})
    return Response(body, 200 if accepted.duplicate else 202, media_type=NATIVE)


def _headers(request: Request) -> tuple[str, str | None]:
    """(media type, Idempotency-Key). Raises for what would be read wrongly."""
    declared, key = NATIVE, None
    if request.scope["query_string"]:
        raise InvalidInputError([Fault("/query", "there are no parameters here", "unknown_parameter")])
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            declared = NATIVE if value == b"application/json" else bodies.media_type(value.decode("latin-1"))
        elif name == b"idempotency-key":
            key = value.decode("latin-1")
        elif name.startswith(b"ce-"):
            raise MalformedBodyError(_binary_mode(request))
    if declared not in (NATIVE, CLOUDEVENT, ""):
        batch = (
            "CloudEvents batches are"
            if declared.startswith("application/cloudevents-batch")
            else f"'{declared[:100]}' is"
        )
        raise UnsupportedMediaTypeError(f"{batch} not available; send one event as {NATIVE} or {CLOUDEVENT}")
    return declared, key


def _binary_mode(request: Request) -> str:
    given = request.headers
    missing = [name for name in ("ce-id", "ce-source", "ce-type", "ce-specversion") if not given.get(name)]
    also = f" (and {', '.join(missing)} is missing or empty)" if missing else ""
    return f"CloudEvents in binary mode (ce-* headers) are not available{also}; send the event as {CLOUDEVENT}"


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
