"""What a data directory remembers of the processes that serve it, and what is done about those a kill left behind.

One supervisor per directory, held by a lock that the kernel frees when its process ends, however it ends. The list of
started processes is a hint: it may be torn, stale, or name a process id that somebody else has by now. So nobody is
stopped who is not known for ours by start time and command line, and servers are also found by what they work on.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from activity_core.dev.child import POSTGRES_STOP, StopBy
from activity_core.dev.postgres import cluster_directory
from activity_core.dev.temporal import database_file
from activity_core.errors import ConfigurationError

_ORPHAN_STOP: StopBy = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
# The boot time that start times are counted from moves a little when the machine's clock is set.
_START_TIME_TOLERANCE_SECONDS = 2.0


class DataDirectory:
    """A data directory held by this process. Make one with `hold`, and `release` it at the end."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._list_file = path / "processes.json"
        self._listed: list[dict[str, Any]] = []

    @classmethod
    def hold(cls, path: Path) -> "DataDirectory":
        """Makes the directory if need be and locks it. Raises `ConfigurationError` when another process holds it."""
        try:
            # Root's is passable, because Postgres runs as somebody else in it; secrets in it are files of mode 0600.
            path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"can't use the data directory {path}: {error.strerror}. Give another with --data-dir."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise ConfigurationError(
                f"{path} is in use by another `activity-core dev` (process {holder}). "
                "Stop that one, or give this one another --data-dir."
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return cls(path, lock)

    def release(self) -> None:
        """Forgets the processes, which have ended, and frees the lock."""
        self._list_file.unlink(missing_ok=True)
        os.close(self._lock)

    def record(self, name: str, pid: int) -> None:
        """Writes down that `name` runs as `pid`, before anything can go wrong with it."""
        try:
            started = psutil.Process(pid).create_time()
        except psutil.NoSuchProcess:
            return
        self._listed.append({"name": name, "pid": pid, "started": started})
        draft = self._list_file.with_suffix(".new")
        draft.write_text(json.dumps(self._listed))
        draft.replace(self._list_file)

    def heal(self) -> list[str]:
        """Stops what an earlier supervisor left running here, and clears what would keep a server from starting.

        Call it with the lock held, before anything is started. Returns what was found, one sentence each.
        """
        listed = list(self._orphans_listed())
        found = [f"stopped {name} (process {process.pid}), left by an earlier start" for name, process in listed]
        _stop([process for name, process in listed if name != "postgres"], _ORPHAN_STOP)
        _stop([process for name, process in listed if name == "postgres"], POSTGRES_STOP)
        for process in list(_working_on(self.path)):
            found.append(f"stopped temporal (process {process.pid}), left by an earlier start")
            _stop([process], _ORPHAN_STOP)
        found += self._heal_postgres()
        self._list_file.unlink(missing_ok=True)
        return found

    def _orphans_listed(self) -> Iterable[tuple[str, psutil.Process]]:
        try:
            listed = json.loads(self._list_file.read_text())
            entries = [(str(entry["name"]), int(entry["pid"]), float(entry["started"])) for entry in listed]
        except (OSError, ValueError, KeyError, TypeError):
            return
        for name, pid, started in entries:
            try:
                process = psutil.Process(pid)
                same = abs(process.create_time() - started) <= _START_TIME_TOLERANCE_SECONDS
                if same and _is_alive(process):
                    yield name, process
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue

    def _heal_postgres(self) -> list[str]:
        cluster = cluster_directory(self.path)
        found = []
        processes = list(_postgres_processes(cluster))
        if processes:
            found.append(f"stopped postgres ({len(processes)} processes), left by an earlier start")
            _stop([process for process in processes if _is_postmaster(process)], POSTGRES_STOP)
            # Those of a postmaster that was killed see its end by themselves, as soon as their query is done.
            _stop(list(_postgres_processes(cluster)), ((signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)))
        pid_file = cluster / "postmaster.pid"
        if pid_file.exists() and _names_a_living_process(pid_file):
            # Nobody works on the cluster, so the id is somebody else's by now: Postgres would refuse to start.
            # Otherwise the file stays: by it Postgres finds and frees the shared memory of the killed one.
            pid_file.unlink()
            found.append("removed a stale postmaster.pid")
        return found


def _working_on(home: Path) -> Iterable[psutil.Process]:
    wanted = ["--db-filename", str(database_file(home))]
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if "start-dev" in line and any(line[i : i + 2] == wanted for i in range(len(line))):
            yield process


def _postgres_processes(cluster: Path) -> Iterable[psutil.Process]:
    for process in psutil.process_iter():
        try:
            # Every process of a server, whatever its title says, works in its cluster's directory.
            if process.name() == "postgres" and process.cwd() == str(cluster):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def _names_a_living_process(pid_file: Path) -> bool:
    first = pid_file.read_text(errors="replace").partition("\n")[0].strip()
    return not first.isdigit() or psutil.pid_exists(int(first))


def _is_postmaster(process: psutil.Process) -> bool:
    try:
        return "-D" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _is_alive(process: psutil.Process) -> bool:
    """A zombie is not: in a container nobody may ever collect it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _stop(processes: list[psutil.Process], stop_by: StopBy) -> None:
    alive = processes
    for number, seconds in stop_by:
        for process in alive:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
            except psutil.AccessDenied as error:
                raise ConfigurationError(
                    f"process {process.pid} was left by an earlier start and belongs to another user: end it first"
                ) from error
        deadline = time.monotonic() + seconds
        while alive := [process for process in alive if _is_alive(process)]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
