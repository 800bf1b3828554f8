"""A line to Postgres that can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import SecretStr

from activity_core.settings import Settings


@dataclass
class Cable:
    """Listens on `port` and passes everything on to Postgres, until it is cut."""

    host: str
    to_port: int
    port: int = 0
    server: asyncio.Server | None = None
    ends: set[asyncio.StreamWriter] = field(default_factory=set)

    def through(self, settings: Settings) -> Settings:
        url = settings.asyncpg_url.replace(f":{self.to_port}/", f":{self.port}/")
        return settings.model_copy(update={"database_url": SecretStr(url)})

    async def mend(self) -> None:
        self.server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        assert self.server is not None
        self.server.close()
        for end in list(self.ends):
            end.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self.host, self.to_port)
        self.ends |= {writer, back}
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        self.ends -= {writer, back}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()


@contextlib.asynccontextmanager
async def cable(url: str) -> AsyncIterator[Cable]:
    parts = urlsplit(url)
    line = Cable(parts.hostname or "127.0.0.1", parts.port or 5432)
    await line.mend()
    try:
        yield line
    finally:
        await line.cut()
