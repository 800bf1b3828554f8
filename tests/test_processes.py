"""What every process of ours owes its surroundings."""

import os
import signal
import sys

import pytest

from activity_core.dev.child import Child, spawn
from activity_core.processes import PARENT_PID_VARIABLE
from tests.stack import eventually

WATCHING = """
import signal, sys
from activity_core.processes import watch_parent
watch_parent()
print("watching", flush=True)
signal.pause()
"""

STOPPING = """
import asyncio, sys
from activity_core.processes import run_until_stopped
async def forever():
    print("runs", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("drains", flush=True)
        if "stuck" in sys.argv:
            await asyncio.Event().wait()
async def fails():
    await asyncio.sleep(0.01)
    raise LookupError("a bug")
asyncio.run(run_until_stopped(forever(), *([fails()] if "fails" in sys.argv else [])))
"""


async def _run(code: str, *arguments: str, **environment: str) -> tuple[Child, list[str]]:
    lines: list[str] = []
    paths = os.pathsep.join(path for path in sys.path if path)
    child = await spawn(
        "child",
        [sys.executable, "-c", code, *arguments],
        environment={"PYTHONPATH": paths} | environment,
        on_line=lines.append,
    )
    return child, lines


async def test_a_process_whose_parent_is_gone_already_ends_by_itself() -> None:
    somebody_else = str(os.getppid())
    child, _ = await _run(WATCHING, **{PARENT_PID_VARIABLE: somebody_else})
    assert await child.wait() == -signal.SIGTERM


@pytest.mark.parametrize("parent", [None, "", "nonsense"])
async def test_without_a_parent_to_watch_it_lives(parent: str | None) -> None:
    child, lines = await _run(WATCHING, **({} if parent is None else {PARENT_PID_VARIABLE: parent}))
    try:
        await eventually(lambda: lines == ["watching"])
    finally:
        await child.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_i13_a_signal_drains(number: signal.Signals) -> None:
    child, lines = await _run(STOPPING)
    await eventually(lambda: lines == ["runs"])
    child.process.send_signal(number)
    assert await child.wait() == 0
    assert lines == ["runs", "drains"]


async def test_a_second_signal_does_not_wait_for_the_drain() -> None:
    child, lines = await _run(STOPPING, "stuck")
    await eventually(lambda: lines == ["runs"])
    child.process.send_signal(signal.SIGTERM)
    await eventually(lambda: lines == ["runs", "drains"])
    child.process.send_signal(signal.SIGTERM)
    assert await child.wait() == 130


async def test_a_loop_that_fails_ends_the_process_with_its_error() -> None:
    child, lines = await _run(STOPPING, "fails")
    assert await child.wait() == 1
    assert "drains" in lines
    assert lines[-1] == "LookupError: a bug"
