"""/v1/webhooks/{source}: what others send, in their own form and signed in their own way."""

from typing import Any
from urllib.parse import parse_qsl

import orjson
from fastapi import APIRouter, Request, Response

from activity_core.api import problems
from activity_core.api.middleware import refuse_other_sites
from activity_core.api.services import Services
from activity_core.domain.webhooks.handshakes import Reply, cloudevents_validation
from activity_core.domain.webhooks.outcomes import Refused, WebhookRequest
from activity_core.errors import (
    ActivityCoreError,
    BodyTooLargeError,
    Fault,
    InvalidInputError,
    NotAuthenticError,
    UnsupportedMediaTypeError,
)
from activity_core.services.causes import HEADER as RUN_ID
from activity_core.services.receiving import Received

MAX_QUERY_FIELDS = 100

_ACCEPTED = {
    "type": "object",
    "title": "ReceivedWebhook",
    "required": ["id", "event_id", "status", "conflict"],
    "properties": {
        "id": {"type": "string", "format": "uuid"},
        "event_id": {"type": "string"},
        "status": {"enum": ["accepted", "duplicate"]},
        "quarantined": {"const": True, "description": "Kept back: the schema of its type does not allow it"},
        "conflict": {"type": "boolean", "description": "The id was there with other content, which stands"},
    },
}
_CHALLENGE = {
    "type": "object",
    "title": "SlackChallenge",
    "required": ["challenge"],
    "properties": {"challenge": {"type": "string"}},
    "additionalProperties": False,
}
_DOCS: dict[str, Any] = {
    "requestBody": {"required": False, "content": {"*/*": {"schema": {}}}},
    "responses": {
        "202": {"description": "Committed", "content": {"application/json": {"schema": _ACCEPTED}}},
        "200": {
            "description": "It was there already, or this was a handshake",
            "content": {"application/json": {"schema": {"oneOf": [_ACCEPTED, _CHALLENGE]}}},
        },
    },
}

router = APIRouter(prefix="/v1/webhooks", tags=["events"])
consent = APIRouter(tags=["events"])


@router.post("/{source}", status_code=202, response_model=None, openapi_extra=_DOCS)
async def receive_webhook(source: str, request: Request) -> Response:
    """Verify, answer handshakes, accept. 401: not signed as the source says. 2xx: committed; 503: send it again."""
    services: Services = request.app.state.services
    live = await services.receiving.source(source)
    request_id = problems.request_id_of(request)
    try:
        refuse_other_sites(request)
        sent = _as_sent(request, await request.body())
    except ActivityCoreError as error:
        unread = WebhookRequest(request.method, _headers(request), b"")
        status = problems.STATUSES[error.code][0]
        await services.receiving.refuse(live, unread, request_id=request_id, error=error, status=status)
        raise
    return _response(
        await services.receiving.receive(live, sent, request_id=request_id, run_id=request.headers.get(RUN_ID))
    )


@router.options("/{source}", response_class=Response)
async def validate_webhook(source: str, request: Request) -> Response:
    """CloudEvents abuse protection: a sender asks whether its events are welcome here."""
    services: Services = request.app.state.services
    live = await services.receiving.source(source)
    return _response(services.receiving.options(live, _as_sent(request, b"")))


@consent.options("/v1/events", response_class=Response)
async def validate_events(request: Request) -> Response:
    """CloudEvents abuse protection for POST /v1/events: any sender's events are welcome."""
    return _response(cloudevents_validation(_as_sent(request, b"")))


def _as_sent(request: Request, body: bytes) -> WebhookRequest:
    query = request.scope["query_string"].decode("latin-1")
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as error:
        fault = Fault("/query", f"write {MAX_QUERY_FIELDS} parameters at most", "malformed_query")
        raise InvalidInputError([fault]) from error
    return WebhookRequest(request.method, _headers(request), body, tuple(fields))


def _headers(request: Request) -> tuple[tuple[str, str], ...]:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"])


def _response(answer: Received | Reply | Refused) -> Response:
    """Raises for a refusal: its family is the problem's code, its reason_code that of the fault."""
    if isinstance(answer, Reply):
        return Response(answer.body, answer.status, dict(answer.headers), answer.media_type)
    if isinstance(answer, Refused):
        raise _problem(answer)
    accepted = answer.accepted
    shown = {
        "id": str(accepted.id),
        "event_id": accepted.event_id,
        "status": "duplicate" if accepted.duplicate else "accepted",
        "conflict": answer.conflict,
        **({"quarantined": True} if accepted.quarantined else {}),
    }
    return Response(orjson.dumps(shown), 200 if accepted.duplicate else 202, media_type="application/json")


def _problem(refused: Refused) -> Exception:
    fault = Fault("", refused.message, refused.reason_code)
    match refused.family:
        case "not_authentic":
            return NotAuthenticError(refused.message, [fault])
        case "unsupported":
            return UnsupportedMediaTypeError(refused.message, [fault])
        case "too_large":
            return BodyTooLargeError(refused.message, [fault])
    return InvalidInputError([fault])
