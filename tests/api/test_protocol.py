"""Slow senders of headers, on a real socket."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from activity_core.api import protocol
from activity_core.api.main import listening_socket
from tests.stack import eventually

DEADLINE = 0.3


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", DEADLINE)
    config = uvicorn.Config(hello, http=protocol.DeadlineProtocol, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    with listening_socket("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server._serve(sockets=[listener]))
        await eventually(lambda: server.started)
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


async def test_a_head_that_drips_is_cut_with_a_408(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n")

    async def drip() -> None:
        while True:
            writer.write(b"a: b\r\n")
            await asyncio.sleep(DEADLINE / 10)  # the drip itself

    dripping = asyncio.create_task(drip())
    answer = await asyncio.wait_for(reader.read(), 10)
    dripping.cancel()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert DEADLINE * 0.9 <= time.monotonic() - began < DEADLINE * 10
    writer.close()


async def test_a_connection_that_says_nothing_is_cut(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_kept_connection_may_rest_and_each_head_has_its_own_deadline(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(DEADLINE * 1.5)  # longer than a head may take
    writer.write(b"GET / HTTP/1.1\r\n")
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 408 ")
    writer.close()
