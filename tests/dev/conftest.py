"""The real supervisor over stand-ins for our four commands, with its real Postgres and Temporal, as a process."""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import psutil
import pytest

from activity_core.dev.child import Child, spawn
from activity_core.settings import PREFIX, environment_without_settings
from tests.stack import eventually, temporary_home

SUPERVISE = Path(__file__).with_name("supervise.py")


@dataclass
class DevRun:
    """One run of the supervisor on `data_dir`."""

    data_dir: Path
    child: Child
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def until_ready(self) -> None:
        def ready() -> bool:
            if self.child.ended:
                raise RuntimeError(f"ended before it was ready:\n{self.text}")
            return "Stop with Ctrl-C." in self.lines

        await eventually(ready, within=30, what="the stack is ready")

    async def ended(self) -> int:
        """Its exit code, once it ended; it has 30 seconds."""
        return await asyncio.wait_for(self.child.wait(), 30)

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.child.process.send_signal(number)
        return await self.ended()

    def process(self, name: str) -> psutil.Process:
        """The process of the tree called `name`: a stand-in's name, `postgres` (its head) or `temporal`."""
        return next(process for process in processes_of(self.data_dir) if _is_called(process, name))

    def settings(self) -> dict[str, str]:
        """What the running stack wrote to dev.env."""
        assignments = shlex.split((self.data_dir / "dev.env").read_text())
        return dict(assignment.removeprefix(PREFIX).split("=", 1) for assignment in assignments)

    async def execute(self, statement: str) -> str | None:
        """Runs a statement in the stack's database; the first value of its first row."""
        connection = await asyncpg.connect(self.settings()["DATABASE_URL"])
        try:
            value = await connection.fetchval(statement)
        finally:
            await connection.close()
        return None if value is None else str(value)


Start = Callable[..., Awaitable[DevRun]]


def processes_of(data_dir: Path) -> list[psutil.Process]:
    """Every living process that works on `data_dir`, but the supervisor."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if process.status() == psutil.STATUS_ZOMBIE or str(SUPERVISE) in line or "dev" in line:
                continue
            # Ours say nothing of it on their command line, but carry it in their environment.
            given = (*line, process.cwd(), process.environ().get("DATA_DIR_OF_TEST", ""))
            if any(part.startswith(str(data_dir)) for part in given):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


async def nothing_left(data_dir: Path) -> None:
    await eventually(lambda: not processes_of(data_dir), what=f"no process works on {data_dir}")


def _is_called(process: psutil.Process, name: str) -> bool:
    try:
        line = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    if name in ("postgres", "temporal"):
        return bool(line) and Path(line[0]).name == name and len(line) > 3
    return line[2:3] == [name]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with temporary_home() as home:
        yield Path(home).resolve() / "a data dir"


def _stand_in_command(data_dir: Path, api_port: int, behaviours: dict[str, str]) -> list[str]:
    pairs = [f"{name}={behaviour}" for name, behaviour in behaviours.items()]
    return [sys.executable, str(SUPERVISE), str(data_dir), str(api_port), *pairs]


def _real_command(data_dir: Path, api_port: int) -> list[str]:
    ports = ["--api-port", str(api_port), "--temporal-port", "0", "--temporal-ui-port", "0"]
    return [sys.executable, "-m", "activity_core", "dev", "--data-dir", str(data_dir), *ports]


@pytest.fixture
async def start(data_dir: Path) -> AsyncIterator[Start]:
    """Starts the supervisor on `data_dir`: `start(worker=…)` gives a stand-in a behaviour, `start(real=True)` is
    `activity-core dev` as it stands."""
    runs: list[DevRun] = []

    async def _start(
        *, api_port: int = 0, environment: dict[str, str] | None = None, real: bool = False, **behaviours: str
    ) -> DevRun:
        lines: list[str] = []
        child = await spawn(
            "supervisor",
            _real_command(data_dir, api_port) if real else _stand_in_command(data_dir, api_port, behaviours),
            environment=environment_without_settings()
            | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "DATA_DIR_OF_TEST": str(data_dir)}
            | (environment or {}),
            on_line=lines.append,
        )
        runs.append(DevRun(data_dir, child, lines))
        return runs[-1]

    yield _start
    for run in runs:
        await run.child.stop()
    for process in processes_of(data_dir):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may just have ended with its parent
            process.kill()
