"""uvicorn's HTTP protocol with a deadline for the head of a request, which it has none for: a connection that sends a
byte now and then would be held for ever."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class DeadlineProtocol(HttpToolsProtocol):
    """From the connection, or the first byte of a later request, to the end of its headers: ten seconds."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # of uvicorn's own signature
        super().connection_made(transport)
        self._arm()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arm()

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        # that of the connection goes on for its first request
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        transport = self.transport
        if transport is not None and not transport.is_closing():
            transport.write(_TOO_SLOW)
            transport.close()
