"""What every request passes, as plain ASGI: a request id, an answer for bugs, and bounds for the body.

uvicorn and Starlette bound neither a body's size nor its time.
"""

import asyncio
import itertools
import re
import uuid

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from activity_core.api import problems
from activity_core.errors import ActivityCoreError, BodyTooLargeError, UnsupportedMediaTypeError

BODY_SECONDS = 30.0
# Of a body that is too large so much more is read and thrown away, because many senders read no answer before they
# have sent all of it.
DISCARDED_BYTES = 32 * 1024 * 1024
DISCARDING_SECONDS = 5.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_CLOSE = {"Connection": "close"}
_CROSS_ORIGIN = "pages of other sites may not write here; send no Origin header"

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class RequestGuard:
    """Names the request (`X-Request-Id`, taken over when the sender gave a plain one) and answers bugs with a bare 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._prefix = uuid.uuid4().hex[:12]
        self._count = itertools.count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        header, started = (b"x-request-id", request_id.encode()), False

        async def send_named(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except ClientDisconnect:
            log.info("request.abandoned", request_id=request_id, method=scope["method"], path=scope["path"])
        except Exception:  # the outermost loop: a bug is logged, and answered without internals
            log.exception("request.crashed", request_id=request_id, method=scope["method"], path=scope["path"])
            if not started:
                detail = "this is a bug; its details are in the log under the request id"
                await problems.problem("internal", detail, request_id=request_id)(scope, receive, send_named)

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
                return str(value.decode())
        return f"{self._prefix}-{next(self._count):x}"


class BodyGuard:
    """Refuses bodies that are encoded, too large or too slow, and writes that another site's page makes a browser send."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal, declared = self._look(scope)
        if refusal is None:
            bounded = _BoundedBody(receive, self._max_bytes, self._seconds)
            await self._app(scope, bounded.receive, _closing_when(bounded, send))
            return
        if isinstance(refusal, BodyTooLargeError) and declared <= self._max_bytes + DISCARDED_BYTES:
            await _discard(receive)
        request_id = scope["state"]["request_id"]
        await problems.of_error(refusal, request_id, _CLOSE)(scope, receive, send)

    # What is sent there is signed as it is, so a compressed body is unpacked after its signature was verified; and a
    # refusal leaves a receipt, which is the route's to write.
    _judged_by_route = "/v1/webhooks/"

    def _look(self, scope: Scope) -> tuple[ActivityCoreError | None, int]:
        """What is wrong by the headers alone, and the length that they declare."""
        declared, encoding, origin, host = 0, b"", b"", b""
        for name, value in scope["headers"]:
            if name == b"content-length":
                declared = int(value) if value.isdigit() else 0
            elif name == b"content-encoding":
                encoding = value
            elif name == b"origin":
                origin = value
            elif name == b"host":
                host = value
        if scope["path"].startswith(self._judged_by_route):
            return None, declared
        if _of_another_site(scope["method"], origin, host):
            return problems.CrossOriginError(_CROSS_ORIGIN), declared
        if encoding and encoding.strip().lower() != b"identity":
            return UnsupportedMediaTypeError("Content-Encoding is not supported; send the body as it is"), declared
        if declared > self._max_bytes:
            return _too_large(self._max_bytes), declared
        return None, declared


def refuse_other_sites(request: Request) -> None:
    """For routes that judge requests themselves. Raises CrossOriginError."""
    origin, host = (request.headers.get(name, "").encode("latin-1") for name in ("origin", "host"))
    if _of_another_site(request.method, origin, host):
        raise problems.CrossOriginError(_CROSS_ORIGIN)


def _of_another_site(method: str, origin: bytes, host: bytes) -> bool:
    return bool(origin) and method not in SAFE_METHODS and origin.partition(b"://")[2].lower() != host.lower()


class _BoundedBody:
    """`receive`, counting. `cut`: the body was not read to its end, so the connection can't be used again."""

    def __init__(self, receive: Receive, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._read = 0
        self._done = False
        self.cut = False

    async def receive(self) -> Message:
        if self._done:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._done = self.cut = True
            raise problems.RequestTimeoutError(f"the body did not arrive within {self._seconds:g} s") from None
        if message["type"] != "http.request":
            self._done = True
            return message
        self._read += len(message.get("body", b""))
        self._done = not message.get("more_body", False)
        if self._read > self._max_bytes:
            if not self._done:
                self.cut = True
                await _discard(self._receive)
            self._done = True
            raise _too_large(self._max_bytes)
        return message


def _closing_when(body: _BoundedBody, send: Send) -> Send:
    async def closing(message: Message) -> None:
        if body.cut and message["type"] == "http.response.start":
            MutableHeaders(raw=message["headers"])["connection"] = "close"
        await send(message)

    return closing


async def _discard(receive: Receive) -> None:
    discarded = 0
    try:
        async with asyncio.timeout(DISCARDING_SECONDS):
            while discarded <= DISCARDED_BYTES:
                message = await receive()
                discarded += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"a request body may have {max_bytes} bytes at most")
