"""Real servers and real processes for the tests: one Postgres and one Temporal dev server a session, our own processes
as subprocesses with settings of their own, and the one allowed way to wait: for a condition."""

import asyncio
import inspect
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx

from activity_core.dev.child import Child, spawn
from activity_core.dev.ports import LOOPBACK, free_port
from activity_core.dev.postgres import Postgres, create_database
from activity_core.dev.temporal import TemporalDevServer
from activity_core.processes import PARENT_PID_VARIABLE
from activity_core.settings import PREFIX, environment_without_settings

TEMPLATE = "migrated"


async def eventually(check: Callable[[], Any], *, within: float = 20.0, what: str = "") -> Any:
    """The first truthy answer of `check` (plain or async), asked again and again with a small, growing pause.

    An AssertionError in `check` counts as "not yet". Fails after `within` seconds with the last answer or error.
    """
    deadline = time.monotonic() + within
    pause = 0.01
    while True:
        last: object
        try:
            answer = check()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
            last = value
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what or inspect.getsource(check).strip()} (last: {last!r})")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.25)


# Temporal's second implementation of schedules, which new ones are then made of. Two are there: nothing of ours may
# depend on what only one of them does.
CHASM_VARIABLE = "ACTIVITY_CORE_TEST_CHASM"
CHASM_FLAGS = (
    *("--dynamic-config-value", "history.enableCHASMSchedulerCreation=true"),
    *("--dynamic-config-value", "history.chasmSchedulerCreationRolloutPercent=100"),
)


def with_chasm() -> bool:
    """Whether the test session's Temporal servers use the second implementation of schedules."""
    return os.environ.get(CHASM_VARIABLE) == "1"


class Servers:
    """One embedded Postgres and one Temporal dev server on free ports, in `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.postgres = Postgres(home, port=free_port())
        flags = CHASM_FLAGS if with_chasm() else ()
        self.temporal = TemporalDevServer(home, port=free_port(), ui_port=0, flags=flags)
        self._template_lock = asyncio.Lock()
        self._has_template = False

    async def start(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.postgres.start("postgres"))
            group.create_task(self.temporal.start(headless=True))

    async def stop(self) -> None:
        if self.temporal.started:
            # Its own end waits ten seconds for the clients of a test session to hang up.
            self.temporal.child.kill()
        await asyncio.gather(self.temporal.stop(), self.postgres.stop())

    async def empty_database(self) -> str:
        """The URL of a fresh database without any table."""
        return await self._make_database(None)

    async def migrated_database(self) -> str:
        """The URL of a fresh database at the newest revision: a copy of one that `activity-core migrate` made."""
        async with self._template_lock:
            if not self._has_template:
                await self._make_template()
                self._has_template = True
        return await self._make_database(TEMPLATE)

    async def _make_template(self) -> None:
        connection = await asyncpg.connect(self.postgres.url("postgres"))
        try:
            await create_database(connection, TEMPLATE)
        finally:
            await connection.close()
        settings = {"DATABASE_URL": self.postgres.url(TEMPLATE), "TEMPORAL_ADDRESS": self.temporal.address}
        await Processes(settings).run("migrate")

    async def _make_database(self, template: str | None) -> str:
        name = f"t_{uuid4().hex[:12]}"
        connection = await asyncpg.connect(self.postgres.url("postgres"))
        try:
            copied = f' TEMPLATE "{template}"' if template else ""
            await connection.execute(f'CREATE DATABASE "{name}"{copied}')
        finally:
            await connection.close()
        return self.postgres.url(name)


@dataclass
class Process:
    """A process of ours, with all that it wrote."""

    name: str
    child: Child
    lines: list[str]
    port: int = 0

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def sigterm(self) -> int:
        """Asks it to end; its exit code. kill -9 after fifteen seconds."""
        await self.child.stop()
        return await self.child.wait()

    async def sigkill(self) -> int:
        self.child.kill()
        return await self.child.wait()


@dataclass
class Processes:
    """Starts `python -m activity_core …` with `settings` (names without prefix) in an otherwise clean environment."""

    settings: Mapping[str, str]
    running: list[Process] = field(default_factory=list)

    async def start(self, name: str, *arguments: str, **more: str) -> Process:
        """Starts it; an `api` on a free port (unless API_PORT is given), and only ready ones are returned."""
        settings = {**self.settings, **more}
        if name == "api":
            settings.setdefault("API_PORT", str(free_port()))
        process = await self._spawn([sys.executable, "-m", "activity_core", name, *arguments], name, settings)
        if name == "api":
            process.port = int(settings["API_PORT"])
            await self.until_ready(process)
        return process

    async def run(self, name: str, *arguments: str, code: int = 0, **more: str) -> Process:
        """Runs a command to its end, which must be exit code `code`."""
        command = [sys.executable, "-m", "activity_core", name, *arguments]
        process = await self._spawn(command, name, {**self.settings, **more})
        ended_with = await process.child.wait()
        assert ended_with == code, f"{name} ended with {ended_with}:\n{process.text}"
        return process

    async def until_ready(self, process: Process, *, within: float = 30.0) -> None:
        """Returns when the API in `process` answers /readyz with 200."""
        async with httpx.AsyncClient(trust_env=False) as client:

            async def ready() -> bool:
                if process.child.ended:
                    raise RuntimeError(f"{process.name} ended:\n{process.text}")
                try:
                    return (await client.get(f"http://{LOOPBACK}:{process.port}/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(ready, within=within, what=f"{process.name} is ready; it wrote:\n{process.text}")

    async def stop(self) -> None:
        """Ends, in order, all that still run."""
        await asyncio.gather(*(process.child.stop() for process in self.running))
        self.running.clear()

    async def _spawn(self, command: list[str], name: str, settings: Mapping[str, str]) -> Process:
        environment = environment_without_settings() | {f"{PREFIX}{key}": value for key, value in settings.items()}
        environment[PARENT_PID_VARIABLE] = str(os.getpid())
        lines: list[str] = []
        child = await spawn(name, command, environment=environment, on_line=lines.append)
        process = Process(name, child, lines)
        self.running.append(process)
        return process


@dataclass
class RunningService:
    """API, router and worker, up on a database and a task queue of their own. `client` talks to the API."""

    client: httpx.AsyncClient
    processes: Processes
    api: Process
    router: Process
    worker: Process
    settings: Mapping[str, str]

    @property
    def database_url(self) -> str:
        return self.settings["DATABASE_URL"]

    @property
    def temporal_address(self) -> str:
        return self.settings["TEMPORAL_ADDRESS"]


async def start_service(settings: Mapping[str, str]) -> RunningService:
    """API, router and worker with `settings`, which name a migrated database. `stop_service` ends them."""
    processes = Processes(settings)
    try:
        router, worker, api = await asyncio.gather(*(processes.start(name) for name in ("router", "worker", "api")))
    except BaseException:
        await processes.stop()
        raise
    client = httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{api.port}", trust_env=False, timeout=30)
    return RunningService(client, processes, api, router, worker, settings)


async def stop_service(service: RunningService) -> None:
    await service.client.aclose()
    await service.processes.stop()


def temporary_home() -> "tempfile.TemporaryDirectory[str]":
    """A directory for servers, outside pytest's own, whose path grows too long and too private for some of them."""
    return tempfile.TemporaryDirectory(prefix="activity-core-test-", ignore_cleanup_errors=True)


def settings_for(servers: Servers, database_url: str, **more: Any) -> dict[str, str]:
    """Settings of a service on `servers` with a task queue of its own."""
    return {
        "DATABASE_URL": database_url,
        "TEMPORAL_ADDRESS": servers.temporal.address,
        "TASK_QUEUE": f"test-{uuid4().hex[:12]}",
        "LOG_FORMAT": "json",
    } | {name: str(value) for name, value in more.items()}
