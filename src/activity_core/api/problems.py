"""Every error of the API as an RFC 9457 problem: one table from stable codes to statuses, one encoder that can't fail."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from activity_core.errors import ActivityCoreError, Fault, InvalidInputError

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = "1"
MAX_SHOWN = 1_000
TRY_AGAIN = frozenset({"unavailable", "request_timeout", "overloaded"})

# code → (status, title). Every leaf of errors.py is here; a test holds the two together.
STATUSES: Mapping[str, tuple[int, str]] = {
    "invalid_input": (422, "The input can't be taken"),
    "malformed_body": (400, "The body can't be read"),
    "unsupported_media_type": (415, "The body has an unsupported type"),
    "body_too_large": (413, "The body is too large"),
    "request_timeout": (408, "The body took too long"),
    "cross_origin": (403, "The request comes from another site"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "The method is not allowed here"),
    "gone": (410, "Deleted"),
    "slug_taken": (409, "The slug is taken"),
    "in_use": (409, "It is in use"),
    "event_conflict": (409, "The event id was used for other content"),
    "idempotency_key_reused": (422, "The Idempotency-Key was used for another request"),
    "run_open": (409, "A run is open"),
    "disabled": (409, "The activity is disabled"),
    "task_not_open": (409, "The task's state does not allow it"),
    "revision_mismatch": (412, "Another revision is in force"),
    "overloaded": (429, "Too many requests"),
    "not_authentic": (401, "The request is not authentic"),
    "unavailable": (503, "Not available at the moment"),
    "configuration": (500, "The service is not set up correctly"),
    "error": (500, "The request failed"),
    "internal": (500, "Something went wrong on our side"),
}

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class RequestTimeoutError(ActivityCoreError):
    """The body did not arrive in time."""

    code = "request_timeout"


class CrossOriginError(ActivityCoreError):
    """A page of another site has its reader's browser send this."""

    code = "cross_origin"


class ProblemFault(BaseModel):
    """One thing that is wrong. `pointer` is a JSON pointer into the body, or `/query/…`, `/path/…`, `/headers/…`."""

    pointer: str
    message: str
    code: str


class Problem(BaseModel):
    """RFC 9457. `code` is stable; `title` and `detail` are for people and may change."""

    type: str = Field(examples=["urn:activity-core:problem:not_found"])
    title: str
    status: int
    detail: str
    code: str
    errors: list[ProblemFault]
    instance: str = Field(description="Names this request: urn:activity-core:request:{X-Request-Id}")


def problem(
    code: str, detail: str, *, request_id: str, faults: Iterable[Fault] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """The response for a code of the table."""
    status, title = STATUSES.get(code, STATUSES["internal"])
    body = {
        "type": f"urn:activity-core:problem:{code}",
        "title": title,
        "status": status,
        "detail": _text(detail),
        "code": code,
        "errors": [{"pointer": _text(f.pointer), "message": _text(f.message), "code": f.code} for f in faults],
        "instance": f"urn:activity-core:request:{request_id}",
    }
    more = {"Retry-After": RETRY_AFTER_SECONDS} if code in TRY_AGAIN else {}
    return Response(orjson.dumps(body), status, {**more, **(headers or {})}, MEDIA_TYPE)


def of_error(error: ActivityCoreError, request_id: str, headers: Mapping[str, str] | None = None) -> Response:
    return problem(error.code, error.detail, request_id=request_id, faults=error.faults, headers=headers)


def request_id_of(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", "-"))


def install(app: FastAPI) -> None:
    """Answer expected errors, validation errors and unknown routes as problems. Bugs are answered by `RequestGuard`."""
    app.add_exception_handler(ActivityCoreError, on_expected)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)


async def on_expected(request: Request, error: Exception) -> Response:
    """The problem of an expected error; those that are ours to mend are logged."""
    assert isinstance(error, ActivityCoreError)  # noqa: S101 (registered for nothing else)
    if STATUSES.get(error.code, (500, ""))[0] >= 500:
        log.warning("request.failed", request_id=request_id_of(request), code=error.code, error=error.detail)
    return of_error(error, request_id_of(request))


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for nothing else)
    return of_error(InvalidInputError([_fault(detail) for detail in error.errors()]), request_id_of(request))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for nothing else)
    request_id, where = request_id_of(request), f"{request.method} {request.url.path}"
    if error.status_code == 404:
        return problem("not_found", f"there is no {where}; /docs lists what there is", request_id=request_id)
    if error.status_code == 405:
        allowed = dict(error.headers or {})
        detail = f"{where} is not possible; allowed: {allowed.get('Allow', 'see /docs')}"
        return problem("method_not_allowed", detail, request_id=request_id, headers=allowed)
    return problem("error", str(error.detail), request_id=request_id)


def _fault(detail: Mapping[str, Any]) -> Fault:
    # neither `input` nor `ctx` is shown: the first may be anything, the second may hold an exception object
    place: Sequence[Any] = detail.get("loc", ())
    kind = str(place[0]) if place else ""
    kind = "headers" if kind == "header" else kind
    steps = [kind, *place[1:]] if kind != "body" else place[1:]
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    code = "required" if detail.get("type") == "missing" else "invalid"
    message = str(detail.get("msg", "is wrong")).removeprefix("Value error, ")
    return Fault(pointer, "is required" if code == "required" else message, code)


def _text(text: str) -> str:
    """Text that can be encoded whatever it was made from, and of bounded length."""
    shown = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return shown.encode("utf-8", "replace").decode()
