"""A wire between a process of ours and Postgres or Temporal that can be cut: before a statement arrives, or after it was
done and before its answer is back. The second is what a sender can't tell from the first (R25)."""

import asyncio
import contextlib
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

When = Literal["before", "after"]
GZIP = b"\x1f\x8b\x08"
READY_FOR_QUERY = b"Z\x00\x00\x00\x05"


class Wire:
    """`url`: where to connect instead of `url`. `arm` it with a piece of text: whoever sends that next loses the connection,
    and with `refuse` whoever sends it until `relent`."""

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"(.*127\.0\.0\.1):(\d+)(.*)", url)
        assert found is not None
        self._target = int(found[2])
        self._front, self._back = found[1], found[3]
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._armed: tuple[bytes, When] | None = None
        self._refused: bytes | None = None
        self.port = 0
        self.cuts = 0

    @property
    def url(self) -> str:
        return f"{self._front}:{self.port}{self._back}"

    async def connect(self) -> None:
        """Let connections through (again, on the same port)."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def disconnect(self) -> None:
        """Refuse new connections and break those that are there."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    def arm(self, marker: str, when: When) -> None:
        self._armed = (marker.encode(), when)

    def refuse(self, marker: str) -> None:
        self._refused = marker.encode()

    def relent(self) -> None:
        self._refused = None

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, back_writer}
        done = asyncio.Event()  # armed, and its statement is on its way

        async def there() -> None:
            while data := await reader.read(65_536):
                if self._refused is not None and _says(data, self._refused):
                    self.cuts += 1
                    return
                if self._armed is not None and self._armed[0] in data:
                    when, self._armed = self._armed[1], None
                    self.cuts += 1
                    if when == "before":
                        return
                    done.set()
                back_writer.write(data)
                await back_writer.drain()

        async def back() -> None:
            while data := await back_reader.read(65_536):
                if done.is_set():
                    if READY_FOR_QUERY in data:
                        return
                    continue
                writer.write(data)
                await writer.drain()

        halves = [asyncio.create_task(there()), asyncio.create_task(back())]
        await asyncio.wait(halves, return_when=asyncio.FIRST_COMPLETED)
        for half in halves:
            half.cancel()
        await asyncio.gather(*halves, return_exceptions=True)
        for end in (writer, back_writer):
            self._open.discard(end)
            end.transport.abort()


def _says(data: bytes, marker: bytes) -> bool:
    """As it is, or within what Temporal's client compressed."""
    place = -len(GZIP)
    while marker not in data and (place := data.find(GZIP, place + len(GZIP))) >= 0:
        with contextlib.suppress(zlib.error):
            if marker in zlib.decompressobj(wbits=31).decompress(data[place:]):
                return True
    return marker in data


@asynccontextmanager
async def wire(url: str) -> AsyncIterator[Wire]:
    """To a database, by its URL, or to Temporal, by its address."""
    made = Wire(url)
    await made.connect()
    try:
        yield made
    finally:
        await made.disconnect()
