"""A real server on a real socket: what no request may do, and an orderly end."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from activity_core.api.events import EventsDoor
from activity_core.api.main import listening_socket
from activity_core.api.middleware import BodyGuard, RequestGuard
from activity_core.dev.child import spawn
from activity_core.errors import ConfigurationError
from activity_core.settings import PREFIX, Settings, environment_without_settings
from tests.stack import Process, Processes, eventually

LIMIT = 1024 * 1024
# An application that is asked for nothing before the body is there.
SERVICES = SimpleNamespace(state=SimpleNamespace(services=None))


@dataclass
class Served:
    process: Process
    port: int

    async def exchange(self, *parts: bytes) -> tuple[int, dict[str, object]]:
        """Send raw bytes; (status, body) of what is answered first."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(int(length.partition(b":")[2]))
            return int(head.split()[1]), json.loads(body)
        finally:
            writer.close()
            await writer.wait_closed()


@pytest.fixture(scope="module")
async def processes(api_settings: Settings) -> AsyncIterator[Processes]:
    url, address = api_settings.asyncpg_url, api_settings.temporal_address
    made = Processes({"DATABASE_URL": url, "TEMPORAL_ADDRESS": address, "LOG_FORMAT": "json"})
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture(scope="module")
async def served(processes: Processes) -> Served:
    process = await processes.start("api")
    return Served(process, process.port)


def head(*lines: bytes, path: bytes = b"/v1/events") -> bytes:
    return (
        b"\r\n".join([b"POST " + path + b" HTTP/1.1", b"host: x", b"content-type: application/json", *lines])
        + b"\r\n\r\n"
    )


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", None])
@pytest.mark.parametrize("size", [LIMIT + 1, 2_200_000, 26_214_400])
async def test_d14_a_body_over_the_limit_is_a_413_whatever_it_is(
    served: Served, content_type: str | None, size: int
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, size, 65_536):
            yield b"x" * min(65_536, size - start)

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as http:
        for content in (b"x" * size, chunks()):
            for path in ("/v1/events", "/v1/activities"):
                if path == "/v1/activities" and not isinstance(content, bytes):
                    continue
                answer = await http.post(path, content=content, headers=headers)
                expected = 413 if isinstance(content, bytes) or "form" not in str(content_type) else 415
                assert (answer.status_code, answer.json()["status"]) == (expected, expected)
        assert (await http.post("/v1/events", json={"type": "t", "data": "x" * 200_000})).status_code == 202


async def test_a_length_that_is_too_small_cuts_the_body(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(head(b"content-length: 5") + b'{"type": "t"}')
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    await writer.wait_closed()


async def test_a_length_far_beyond_the_limit_is_refused_unread(served: Served) -> None:
    status, body = await served.exchange(head(b"content-length: 99999999999"), b"{}")
    assert (status, body["code"]) == (413, "body_too_large")


async def test_server_tells_nothing_of_itself(served: Served) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as http:
        answer = await http.get("/healthz")
        assert "server" not in answer.headers
        ready = (await http.get("/readyz")).json()
        assert ready == {"status": "ready", "postgres": "ok", "database_schema": "at_head", "temporal": "ok"}


async def test_a_body_that_does_not_come_is_a_408() -> None:
    never = asyncio.Event()
    messages: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await never.wait()
        raise AssertionError("nothing comes")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the door takes it")

    app = RequestGuard(BodyGuard(EventsDoor(nothing), max_bytes=100, seconds=0.02))
    path = "/v1/events"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": [], "app": SERVICES}
    await app(scope, receive, send)
    assert (sent[0]["status"], json.loads(sent[1]["body"])["code"]) == (408, "request_timeout")
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_port_0_is_a_free_one_that_is_told_and_sigterm_answers_what_has_come(
    processes: Processes, api_settings: Settings
) -> None:
    settings = {**processes.settings, "API_PORT": "0"}
    environment = environment_without_settings() | {f"{PREFIX}{name}": value for name, value in settings.items()}
    lines: list[str] = []
    child = await spawn(
        "api", [sys.executable, "-m", "activity_core", "api"], environment=environment, on_line=lines.append
    )
    process = Process("api", child, lines)

    def told() -> int | None:
        said = [json.loads(line) for line in lines if "api.listening" in line]
        return int(said[0]["port"]) if said else None

    try:
        port = await eventually(told, what="the API tells its port")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head(b"content-length: 13") + b'{"type":')
        await writer.drain()
        ending = asyncio.create_task(process.sigterm())
        await eventually(lambda: "api.draining" in process.text, what="it drains")
        writer.write(b' "t"}')
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert answer.startswith(b"HTTP/1.1 202")
        assert await ending == 0
    finally:
        await process.sigkill()


def test_a_taken_port_is_a_configuration_error() -> None:
    with (
        listening_socket("127.0.0.1", 0) as taken,
        pytest.raises(ConfigurationError, match="ACTIVITY_CORE_API_PORT"),
        listening_socket("127.0.0.1", taken.getsockname()[1]),
    ):
        raise AssertionError("two sockets on one port")
