"""One child process: started in a session of its own, its output kept, its end seen, stopped by escalating signals."""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from activity_core.dev import launch
from activity_core.errors import ConfigurationError

TAIL_LINES = 20
_LAUNCHER = Path(launch.__file__)
_LINE_BYTES = 1024 * 1024
# A log that a start finds longer than this is put aside, as the one old one that is kept.
_LOG_BYTES = 20 * 1024 * 1024

StopBy = tuple[tuple[signal.Signals, float], ...]

# Each signal with the seconds that it is given.
GENTLE: StopBy = ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0))
# Postgres: fast shutdown, immediate shutdown, and only then the signal that makes it recover at the next start.
POSTGRES_STOP: StopBy = ((signal.SIGINT, 20.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))

OnSpawn = Callable[[str, int], None]


def ignore_spawn(_name: str, _pid: int) -> None:
    """For callers that keep no record of what they started."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of the machine to run a program as."""

    uid: int
    gid: int


class ChildFailedError(ConfigurationError):
    """A child ended, or did not become ready; `detail` has its name, exit code and last log lines."""


class Child:
    """A running (or ended) child process. Make one with `spawn` or `spawn_server`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, stop_by: StopBy) -> None:
        self.name = name
        self.process = process
        self._stop_by = stop_by
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._log: tuple[Path, int] | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None

    def tail(self) -> list[str]:
        """Its last log lines, oldest first."""
        if self._log is None:
            return list(self._tail)
        path, offset = self._log
        with path.open("rb") as log:
            log.seek(max(offset, log.seek(0, os.SEEK_END) - 64 * 1024))
            return log.read().decode(errors="replace").splitlines()[-TAIL_LINES:]

    def failure(self, what: str = "") -> ChildFailedError:
        """The error to raise when it ended unasked, or (`what` says it) did not do what it should."""
        lines = "".join(f"\n    {line}" for line in self.tail()) or " (it wrote nothing)"
        return ChildFailedError(f"{self.name} {what or describe_exit(self.process.returncode)}. Its last lines:{lines}")

    async def wait(self) -> int:
        """Its exit code, once it has ended and all that it wrote has been read."""
        code = await self.process.wait()
        if self._reader is not None:
            # A grandchild may hold the pipe open: what it writes is not waited for.
            await asyncio.wait([self._reader], timeout=1)
            self._reader.cancel()
        return code

    async def stop(self) -> None:
        """Ends it, by its signals in turn. Returns when it is gone; safe to repeat."""
        for number, seconds in self._stop_by:
            if self.ended:
                break
            self._send(number)
            try:
                await asyncio.wait_for(self.process.wait(), seconds)
            except TimeoutError:
                continue
        await self.wait()

    def kill(self) -> None:
        """kill -9, without waiting."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if not self.ended:
            try:
                self.process.send_signal(number)
            except ProcessLookupError:
                return

    def keep_tail_of(self, path: Path, offset: int) -> None:
        """Its output goes to the file `path`, from `offset` on."""
        self._log = (path, offset)

    def relay(self, stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
        """Hands each line that it writes to `on_line`, and keeps the last ones."""
        self._reader = asyncio.create_task(self._read(stream, on_line), name=f"read-{self.name}")

    async def _read(self, stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
        while True:
            try:
                raw = await stream.readline()
            except ValueError:
                # A line over the limit: asyncio has dropped it.
                continue
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip("\r\n")
            self._tail.append(line)
            on_line(line)


async def spawn(
    name: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    on_spawn: OnSpawn = ignore_spawn,
) -> Child:
    """Starts a process of ours; each line of its output goes to `on_line`."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # Else the terminal's Ctrl-C would reach it beside our own orderly stop.
        start_new_session=True,
        limit=_LINE_BYTES,
    )
    on_spawn(name, process.pid)
    child = Child(name, process, GENTLE)
    if process.stdout is None:
        raise AssertionError("asked for a pipe")
    child.relay(process.stdout, on_line)
    return child


async def spawn_server(
    name: str,
    command: Sequence[str],
    *,
    log: Path,
    reach: Path,
    user: User | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
    stop_by: StopBy = GENTLE,
    on_spawn: OnSpawn = ignore_spawn,
) -> Child:
    """Starts a server of others as `user` (None: as ours), which works in the directory `reach`.

    It writes to the file `log`, so that it never blocks on, or dies of, a pipe that nobody reads; and on Linux it gets
    `death_signal` when this process dies.
    """
    uid, gid = (user.uid, user.gid) if user else (-1, -1)
    with _open_log(log) as output:
        offset = output.tell()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(_LAUNCHER),
            *(str(number) for number in (os.getpid(), int(death_signal), uid, gid)),
            str(reach),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    on_spawn(name, process.pid)
    child = Child(name, process, stop_by)
    child.keep_tail_of(log, offset)
    return child


def _open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    log = path.open("ab")
    os.fchmod(log.fileno(), 0o600)
    return log


def describe_exit(code: int | None) -> str:
    """An exit code in words; negative is a signal, as in `subprocess`."""
    if code is None:
        return "is still running"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
