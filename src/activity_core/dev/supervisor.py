"""`activity-core dev`: the whole stack on one machine, with one command, as one process tree.

Either everything runs or nothing does: a child that ends takes the rest down in order, and what a kill -9 left behind
is cleared by the next start.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from activity_core.dev.child import Child, spawn
from activity_core.dev.keys import encryption_key
from activity_core.dev.ports import LOOPBACK, free_port, preferred_port, required_port
from activity_core.dev.postgres import Postgres
from activity_core.dev.state import DataDirectory
from activity_core.dev.temporal import TemporalDevServer
from activity_core.errors import ConfigurationError
from activity_core.processes import PARENT_PID_VARIABLE
from activity_core.settings import PREFIX

SERVICES = ("api", "router", "worker")
DATABASE = "activity_core"
READY_SECONDS = 60.0
_SETTINGS_FILE = "dev.env"

Echo = Callable[[str], None]
CommandFor = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class DevOptions:
    """What `activity-core dev` is told. Ports: 0 is any free one; None the usual one, or a free one if that is taken.

    The API's port has no such way out: it is what people and examples point at, so a taken one is said at once.
    """

    data_dir: Path = Path(".activity-core")
    api_port: int = 8080
    temporal_port: int | None = None
    temporal_ui_port: int | None = None
    # Servers to use in place of our own.
    database_url: str | None = None
    temporal_address: str | None = None
    temporal_namespace: str = "default"


def run_dev(options: DevOptions, *, command_for: CommandFor | None = None, echo: Echo | None = None) -> int:
    """Runs the stack until SIGINT, SIGTERM or SIGHUP, and answers the exit code.

    0 after such an end, 1 (with a message on standard error) if it could not start or a part of it ended, 130 if a
    second signal cut the orderly end short. `command_for` gives the command line of migrate, api, router and worker.
    """
    supervisor = _Supervisor(options, command_for or our_command, echo or _print)
    try:
        return asyncio.run(supervisor.run())
    except ConfigurationError as error:
        sys.stderr.write(f"activity-core dev: {error.detail}\n")
        return 1


def _own_key(home: Path) -> dict[str, str]:
    name = f"{PREFIX}ENCRYPTION_KEYS"
    return {name: os.environ.get(name) or encryption_key(home)}


def our_command(name: str) -> list[str]:
    """The command line of one of our processes, by this very Python."""
    return [sys.executable, "-m", "activity_core", name]


class _Supervisor:
    def __init__(self, options: DevOptions, command_for: CommandFor, echo: Echo) -> None:
        self._options = options
        self._command_for = command_for
        self._echo = echo
        self._began = time.monotonic()
        self._services: list[Child] = []
        self._postgres: Postgres | None = None
        self._temporal: TemporalDevServer | None = None
        self._watches: set[asyncio.Task[int]] = set()
        self._stopping = False

    async def run(self) -> int:
        directory = DataDirectory.hold(self._options.data_dir)
        self._death: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        with _two_signals() as (first, second):
            try:
                for sentence in await asyncio.to_thread(directory.heal):
                    self._echo(f"dev: {sentence}")
                await self._unless_stopped(self._start(directory), first)
            finally:
                forced = await self._stop(second)
                directory.release()
        return 130 if forced else 0

    async def _unless_stopped(self, start: Awaitable[None], stop: asyncio.Event) -> None:
        """Starts everything and stays until `stop` is set. Raises when the start fails or a child ends."""
        starting = asyncio.ensure_future(start)
        stopped = asyncio.create_task(stop.wait())
        try:
            awaited: set[asyncio.Future[Any]] = {starting, stopped, self._death}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await asyncio.wait(awaited - {starting}, return_when=asyncio.FIRST_COMPLETED)
            if self._death.done() and not stopped.done():
                raise self._death.result().failure()
        finally:
            for task in (starting, stopped):
                task.cancel()
            await asyncio.wait({starting, stopped})

    async def _start(self, directory: DataDirectory) -> None:
        options = self._options
        api_port = required_port(options.api_port, flag="--api-port")
        ui_port = self._prepare_servers(directory)
        async with _first_error(), asyncio.TaskGroup() as group:
            if self._postgres is not None:
                group.create_task(self._start_postgres(self._postgres))
            if self._temporal is not None:
                group.create_task(self._start_temporal(self._temporal))
        own = self._own_settings(api_port) | _own_key(options.data_dir)
        environment = os.environ | own | {PARENT_PID_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
        await self._migrate(directory, environment)
        for name in SERVICES:
            self._services.append(await self._spawn(name, directory, environment))
            self._watch(self._services[-1])
        await self._until_ready(api_port)
        settings_file = _write_settings(directory.path, own)
        self._announce(api_port, ui_port, settings_file)

    def _prepare_servers(self, directory: DataDirectory) -> int | None:
        """Picks ports, before anything runs. Answers the port of Temporal's UI if the server is ours."""
        options = self._options
        home = directory.path.resolve()
        ui_port = None
        if options.temporal_address is None:
            port = preferred_port(options.temporal_port, default=7233, flag="--temporal-port")
            ui_port = preferred_port(options.temporal_ui_port, default=8233, flag="--temporal-ui-port")
            self._temporal = TemporalDevServer(
                home, port=port, ui_port=ui_port, namespace=options.temporal_namespace, on_spawn=directory.record
            )
        if options.database_url is None:
            self._postgres = Postgres(home, port=free_port(), on_spawn=directory.record)
        return ui_port

    async def _start_postgres(self, postgres: Postgres) -> None:
        await postgres.start(DATABASE)
        self._watch(postgres.child)

    async def _start_temporal(self, temporal: TemporalDevServer) -> None:
        await temporal.start()
        self._watch(temporal.child)

    def _own_settings(self, api_port: int) -> dict[str, str]:
        options = self._options
        database_url = options.database_url or (self._postgres.url(DATABASE) if self._postgres else "")
        address = options.temporal_address or (self._temporal.address if self._temporal else "")
        return {
            f"{PREFIX}DATABASE_URL": database_url,
            f"{PREFIX}TEMPORAL_ADDRESS": address,
            f"{PREFIX}TEMPORAL_NAMESPACE": options.temporal_namespace,
            f"{PREFIX}API_HOST": LOOPBACK,
            f"{PREFIX}API_PORT": str(api_port),
            f"{PREFIX}LOG_FORMAT": os.environ.get(f"{PREFIX}LOG_FORMAT") or "console",
        }

    async def _migrate(self, directory: DataDirectory, environment: Mapping[str, str]) -> None:
        child = await self._spawn("migrate", directory, environment)
        try:
            if await child.wait() != 0:
                raise child.failure()
        finally:
            await child.stop()

    async def _spawn(self, name: str, directory: DataDirectory, environment: Mapping[str, str]) -> Child:
        return await spawn(
            name,
            self._command_for(name),
            environment=environment,
            on_line=lambda line: self._echo(f"{name:<7} | {line}"),
            on_spawn=directory.record,
        )

    def _watch(self, child: Child) -> None:
        def on_end(_task: asyncio.Task[int]) -> None:
            if not self._stopping and not self._death.done():
                self._death.set_result(child)

        task = asyncio.create_task(child.wait(), name=f"watch-{child.name}")
        task.add_done_callback(on_end)
        self._watches.add(task)

    async def _until_ready(self, api_port: int) -> None:
        """Returns when the API says it is ready; a child that ends meanwhile is seen by whoever waits for this."""
        deadline = time.monotonic() + READY_SECONDS
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    answer = await client.get(f"http://{LOOPBACK}:{api_port}/readyz")
                    if answer.status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise self._services[0].failure(f"is not ready after {READY_SECONDS:.0f} s")

    def _announce(self, api_port: int, ui_port: int | None, settings_file: Path) -> None:
        base = f"http://{LOOPBACK}:{api_port}"
        lines = [("API", f"{base}/v1"), ("API docs", f"{base}/docs"), ("Console", f"{base}/console")]
        if self._temporal is not None:
            lines.append(("Temporal UI", f"http://{LOOPBACK}:{ui_port} (server at {self._temporal.address})"))
        else:
            lines.append(("Temporal", f"{self._options.temporal_address} (yours)"))
        lines.append(("Database", "embedded Postgres" if self._postgres else "yours"))
        lines.append(("Data", f"{self._options.data_dir.resolve()} (kept between starts)"))
        lines.append(("Settings", f"{settings_file} (for other processes and psql)"))
        self._echo("")
        self._echo(f"activity-core is ready, after {time.monotonic() - self._began:.1f} s.")
        for name, value in lines:
            self._echo(f"  {name:<12} {value}")
        self._echo("Stop with Ctrl-C.")
        self._echo("")

    async def _stop(self, force: asyncio.Event) -> bool:
        """Ends what runs: our processes, then Temporal, then Postgres. True if `force` cut it short with kill -9."""
        self._stopping = True
        self._echo("Stopping …")
        (self._options.data_dir / _SETTINGS_FILE).unlink(missing_ok=True)
        orderly = asyncio.create_task(self._stop_in_order())
        forced = asyncio.create_task(force.wait())
        await asyncio.wait({orderly, forced}, return_when=asyncio.FIRST_COMPLETED)
        if orderly.done():
            forced.cancel()
            orderly.result()
            self._echo(f"Stopped; the data is kept in {self._options.data_dir}.")
            return False
        for child in self._children():
            child.kill()
        await orderly
        return True

    async def _stop_in_order(self) -> None:
        await asyncio.gather(*(child.stop() for child in self._services))
        if self._temporal is not None:
            await self._temporal.stop()
        if self._postgres is not None:
            await self._postgres.stop()

    def _children(self) -> list[Child]:
        servers = [server for server in (self._temporal, self._postgres) if server is not None and server.started]
        return [*self._services, *(server.child for server in servers)]


def _write_settings(home: Path, settings: Mapping[str, str]) -> Path:
    """The settings of the running stack, to `source`, in a file for the owner only (the URL has the password)."""
    path = home.resolve() / _SETTINGS_FILE
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())
    return path


@contextlib.contextmanager
def _two_signals() -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events set by the first and the second SIGINT, SIGTERM or SIGHUP."""
    loop = asyncio.get_running_loop()
    first, second = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (second if first.is_set() else first).set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield first, second
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _first_error() -> AsyncIterator[None]:
    """Of several things that failed at once, the first is told."""
    try:
        yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


def _print(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
