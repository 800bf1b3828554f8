"""A scripted HTTP consumer: the network edge, where tests may pretend. It logs every request before it answers."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """`drop`: close the connection instead of answering, after the request was read."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False


Script = Callable[[Request, int], Answer]
"""From a request and how often its key came before, to the answer."""


class Consumer:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[Request] = []
        self.port = 0
        self._seen: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def by_key(self) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = {}
        for request in self.requests:
            if "idempotency-key" in request.headers:
                found.setdefault(request.key, []).append(request)
        return found

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                key = request.headers.get("idempotency-key", request.path)
                self._seen[key] += 1
                self.requests.append(request)
                answer = self._script(request, self._seen[key] - 1)
                if answer.drop:
                    break
                head = {"Content-Length": str(len(answer.body)), "Content-Type": "application/json", **answer.headers}
                lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in head.items())]
                writer.write("\r\n".join([*lines, "", ""]).encode() + answer.body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (raw := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = raw.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


@asynccontextmanager
async def consumer(script: Script = lambda request, before: Answer()) -> AsyncIterator[Consumer]:
    """A consumer on a free loopback port."""
    running = Consumer(script)
    server = await asyncio.start_server(running.handle, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        server.close_clients() if hasattr(server, "close_clients") else None
