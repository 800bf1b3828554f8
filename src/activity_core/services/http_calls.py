"""HTTP calls to others, bounded in every way: time in all, bytes, redirects.

httpx's own timeouts do not bound a call (a server that drips a byte a second keeps it for ever), nor what a compressed
answer unpacks to; so there is one deadline over everything, and bytes are counted as they come off the wire.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

MAX_RESPONSE_BYTES = 1024 * 1024
PER_CALLEE = 50
QUEUED_PER_CALLEE = 150
TURN_SECONDS = 30.0


class HttpCallError(Exception):
    """No usable answer: the text says why. `sent`: the request may have reached the other side."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent


class HttpBusyError(HttpCallError):
    """Too much is on its way to this callee already; nothing was sent."""

    def __init__(self, name: str) -> None:
        super().__init__(f"too many calls to '{name}' are under way", sent=False)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool


def worth_retrying(status: int) -> bool:
    """Whether another call may get another answer: 5xx, and what a callee says to come back later for."""
    return status >= 500 or status in (408, 409, 425, 429)


class _Callee:
    def __init__(self) -> None:
        self.users = 0
        self.places = asyncio.Semaphore(PER_CALLEE)


class HttpCaller:
    """One client per process. Redirects are not followed, proxies of the environment not used, answers not unpacked.

    A callee (a consumer, a context source) has only so many calls at a time and so many waiting, so that one that hangs
    does not take the others' connections (I9).
    """

    def __init__(self, *, max_connections: int = 1_000) -> None:
        self._callees: dict[str, _Callee] = {}
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            timeout=httpx.Timeout(None, pool=5.0),
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=50),
            headers={"User-Agent": "activity-core", "Accept-Encoding": "identity"},
        )

    @asynccontextmanager
    async def slot(self, name: str) -> AsyncIterator[None]:
        """A place among the calls to one callee; waits its turn for a while. Raises HttpBusyError."""
        callee = self._callees.setdefault(name, _Callee())
        if callee.users >= PER_CALLEE + QUEUED_PER_CALLEE:
            raise HttpBusyError(name)
        callee.users += 1
        try:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await callee.places.acquire()
            except TimeoutError as error:
                raise HttpBusyError(name) from error
            try:
                yield
            finally:
                callee.places.release()
        finally:
            callee.users -= 1
            if not callee.users:
                self._callees.pop(name, None)

    async def call(
        self,
        method: str,
        url: str,
        *,
        deadline_seconds: float,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        max_bytes: int = MAX_RESPONSE_BYTES,
    ) -> HttpAnswer:
        """The answer, read up to `max_bytes`. Raises HttpCallError."""
        try:
            async with (
                asyncio.timeout(deadline_seconds),
                self._client.stream(method, url, headers=headers, content=content) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > max_bytes:
                        break
                return HttpAnswer(
                    response.status_code, response.headers, bytes(body[:max_bytes]), len(body) > max_bytes
                )
        except TimeoutError as error:
            raise HttpCallError(f"no answer within {deadline_seconds:g} s", sent=True) from error
        except httpx.PoolTimeout as error:
            raise HttpCallError("no free connection", sent=False) from error
        except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError) as error:
            raise HttpCallError(f"can't connect: {error}", sent=False) from error
        except (ValueError, UnicodeError) as error:  # of the URL: what httpx's own checks let through
            raise HttpCallError(f"the URL can't be called: {error}", sent=False) from error
        except httpx.HTTPError as error:
            raise HttpCallError(f"{type(error).__name__}: {error}", sent=True) from error

    async def close(self) -> None:
        await self._client.aclose()
