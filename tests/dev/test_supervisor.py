"""`activity-core dev` from outside: everything runs or nothing does, whatever ends it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from activity_core.dev.child import spawn
from activity_core.dev.ports import free_port
from activity_core.dev.postgres import Postgres
from activity_core.dev.temporal import TemporalDevServer
from tests.dev.conftest import DevRun, Start, nothing_left, processes_of
from tests.stack import Servers, eventually

pytestmark = pytest.mark.fault

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux only")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


@pytest.fixture
async def given(servers: Servers) -> dict[str, str]:
    """The environment that names servers to use: for tests that are not about our own."""
    return {
        "ACTIVITY_CORE_DATABASE_URL": await servers.empty_database(),
        "ACTIVITY_CORE_TEMPORAL_ADDRESS": servers.temporal.address,
    }


async def _ready(start: Start, environment: dict[str, str] | None = None, **behaviours: str) -> DevRun:
    run = await start(environment=environment, **behaviours)
    await run.until_ready()
    await eventually(lambda: run.text.count("stand-in serves") == 3)
    return run


def _log(data_dir: Path, server: str) -> str:
    return (data_dir / "logs" / f"{server}.log").read_text()


async def _mark(run: DevRun) -> None:
    await run.execute("CREATE TABLE mark AS SELECT 'kept' AS word")


async def test_a_signal_ends_everything_in_order_and_the_state_survives(start: Start, data_dir: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        run = await _ready(start)
        await run.execute("CREATE TABLE IF NOT EXISTS mark (id serial)")
        await run.execute("INSERT INTO mark DEFAULT VALUES")
        assert await run.stop(number) == 0
        assert not processes_of(data_dir)
        assert run.text.count("stand-in ended in order") == 3
        assert "left by an earlier start" not in run.text

    assert _log(data_dir, "postgres").count("database system is shut down\n") == 3
    assert "automatic recovery" not in _log(data_dir, "postgres")
    last = await _ready(start)
    assert await last.execute("SELECT count(*) FROM mark") == "3"


async def test_files_with_data_or_secrets_are_for_the_owner_only(start: Start, data_dir: Path) -> None:
    run = await _ready(start)
    for name in (
        "postgres.password",
        "encryption-key",
        "dev.env",
        "temporal.db",
        "logs/postgres.log",
        "logs/temporal.log",
    ):
        assert (data_dir / name).stat().st_mode & 0o077 == 0, name
    assert run.settings()["DATABASE_URL"] not in run.text
    assert await run.stop() == 0
    assert not (data_dir / "dev.env").exists()


@ON_LINUX
async def test_kill_of_the_supervisor_takes_the_tree_with_it(start: Start, data_dir: Path) -> None:
    run = await _ready(start)
    await _mark(run)
    os.kill(run.child.pid, signal.SIGKILL)
    await run.ended()
    await nothing_left(data_dir)
    again = await _ready(start)
    assert await again.execute("SELECT word FROM mark") == "kept"


async def test_kill_of_the_whole_tree_is_healed_by_the_next_start(start: Start, data_dir: Path) -> None:
    run = await _ready(start)
    await _mark(run)
    os.kill(run.child.pid, signal.SIGKILL)
    for process in processes_of(data_dir):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may just have ended with its parent
            process.kill()
    await run.ended()
    assert (data_dir / "postgres" / "postmaster.pid").exists()
    again = await _ready(start)
    assert await again.execute("SELECT word FROM mark") == "kept"
    assert await again.stop() == 0


async def test_servers_left_running_are_stopped_even_without_a_list_of_them(start: Start, data_dir: Path) -> None:
    run = await _ready(start)
    await _mark(run)
    assert await run.stop() == 0
    (data_dir / "processes.json").write_text('[{"name": "api", "pi')
    postgres = Postgres(data_dir, port=free_port())
    temporal = TemporalDevServer(data_dir, port=free_port(), ui_port=0)
    await asyncio.gather(postgres.start("activity_core"), temporal.start(headless=True))

    again = await _ready(start)

    assert "stopped postgres" in again.text
    assert "stopped temporal" in again.text
    assert (await postgres.child.wait(), await temporal.child.wait()) == (0, 0)
    assert await again.execute("SELECT word FROM mark") == "kept"


async def test_only_processes_known_for_ours_are_stopped(start: Start, data_dir: Path) -> None:
    idle = [sys.executable, "-c", "import signal; signal.pause()"]
    orphan, stranger = [
        await spawn(name, idle, environment=os.environ, on_line=print) for name in ("orphan", "stranger")
    ]
    started = psutil.Process(orphan.pid).create_time()
    listed = [
        {"name": "worker", "pid": orphan.pid, "started": started},
        # The same id, but not the process that was listed under it.
        {"name": "api", "pid": stranger.pid, "started": started - 3600},
    ]
    data_dir.mkdir()
    (data_dir / "processes.json").write_text(json.dumps(listed))
    try:
        run = await _ready(start)
        assert await orphan.wait() == -signal.SIGTERM
        assert not stranger.ended
        assert f"stopped worker (process {orphan.pid})" in run.text
    finally:
        await orphan.stop()
        await stranger.stop()


async def test_a_stale_pid_file_that_names_a_stranger_is_removed(start: Start, data_dir: Path) -> None:
    run = await _ready(start)
    assert await run.stop() == 0
    (data_dir / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{data_dir}/postgres\n")
    again = await _ready(start)
    assert "removed a stale postmaster.pid" in again.text


async def test_killed_while_making_the_cluster_it_starts_again_from_nothing(start: Start, data_dir: Path) -> None:
    (data_dir / "initdb" / "cluster").mkdir(parents=True)
    (data_dir / "initdb" / "cluster" / "PG_VERSION").write_text("18\n")
    run = await _ready(start)
    assert await run.execute("SELECT 1") == "1"
    assert not (data_dir / "initdb").exists()


async def test_a_taken_api_port_is_said_and_nothing_runs(start: Start, data_dir: Path, taken_port: int) -> None:
    run = await start(api_port=taken_port)
    assert await run.ended() == 1
    assert f"port {taken_port} on 127.0.0.1 is taken" in run.text
    assert "--api-port" in run.text
    assert not processes_of(data_dir)
    assert not (data_dir / "postgres").exists()


async def test_a_taken_temporal_port_that_was_asked_for_is_said(start: Start, data_dir: Path, taken_port: int) -> None:
    run = await start(environment={"STAND_IN_TEMPORAL_PORT": str(taken_port)})
    assert await run.ended() == 1
    assert "--temporal-port" in run.text
    assert not processes_of(data_dir)


async def test_a_second_start_names_the_first(start: Start, given: dict[str, str]) -> None:
    first = await _ready(start, given)
    second = await start()
    assert await second.ended() == 1
    assert f"process {first.child.pid}" in second.text
    assert "--data-dir" in second.text
    assert await first.execute("SELECT 1") == "1"


@pytest.mark.parametrize("name", ["migrate", "worker"])
async def test_a_child_that_fails_at_the_start_ends_everything(
    start: Start, data_dir: Path, given: dict[str, str], name: str
) -> None:
    run = await start(environment=given, **{name: "fail"})
    assert await run.ended() == 1
    assert f"activity-core dev: {name} ended with exit code 3. Its last lines:\n    stand-in can't go on" in run.text
    assert not processes_of(data_dir)


async def test_a_child_that_ends_later_ends_everything(start: Start, data_dir: Path, given: dict[str, str]) -> None:
    run = await _ready(start, given, worker="fail-later")
    (data_dir / "fail").touch()
    assert await run.ended() == 1
    assert "worker ended with exit code 4. Its last lines:" in run.text
    assert "\n    stand-in gives up" in run.text
    assert not processes_of(data_dir)


@pytest.mark.parametrize("name", ["postgres", "temporal", "router"])
async def test_a_killed_part_ends_everything(start: Start, data_dir: Path, name: str) -> None:
    run = await _ready(start)
    run.process(name).kill()
    assert await run.ended() == 1
    assert f"activity-core dev: {name} was ended by SIGKILL" in run.text
    await nothing_left(data_dir)


async def test_a_second_signal_cuts_the_end_short(start: Start, data_dir: Path, given: dict[str, str]) -> None:
    run = await _ready(start, given, worker="deaf")
    run.child.process.send_signal(signal.SIGINT)
    await eventually(lambda: run.text.count("stand-in ended in order") == 2)
    assert await run.stop() == 130
    await nothing_left(data_dir)


async def test_a_signal_during_the_start_leaves_nothing(start: Start, data_dir: Path) -> None:
    run = await start()
    await eventually(lambda: (data_dir / "processes.json").exists())
    assert await run.stop(signal.SIGTERM) == 0
    assert not processes_of(data_dir)
    again = await _ready(start)
    assert await again.stop() == 0


async def test_given_servers_are_used_and_none_is_started(
    start: Start, data_dir: Path, servers: Servers, given: dict[str, str]
) -> None:
    run = await _ready(start, given)
    assert not (data_dir / "postgres").exists()
    assert not (data_dir / "temporal.db").exists()
    assert run.settings()["TEMPORAL_ADDRESS"] == servers.temporal.address
    assert await run.stop() == 0
    assert not servers.temporal.child.ended
    assert not servers.postgres.child.ended
