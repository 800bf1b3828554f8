"""What every process of ours owes its surroundings: an orderly end on SIGTERM, and no life after its supervisor's."""

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

PARENT_PID_VARIABLE = "ACTIVITY_CORE_PARENT_PID"

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5
_DRAIN_SECONDS = 10.0
DRAIN_SECONDS = 25.0


def watch_parent() -> None:
    """Ends this process when the one named in `ACTIVITY_CORE_PARENT_PID` is gone, however it went; without it, nothing.

    Call it once, from the main thread, before anything that takes long. First SIGTERM (so that the process drains), and
    after ten seconds the end without further ado.
    """
    given = os.environ.get(PARENT_PID_VARIABLE, "")
    if not given.isdigit():
        return
    parent_pid = int(given)
    signal_at_parent_death(signal.SIGTERM)
    # The kernel's signal is Linux only, and is not sent for a parent that died before it was asked for: so look too.
    threading.Thread(target=_end_with, args=(parent_pid,), name="watch-parent", daemon=True).start()


def signal_at_parent_death(number: signal.Signals) -> None:
    """Asks the kernel to send this process `number` when its parent's thread ends. Linux only; elsewhere nothing."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


@contextmanager
def stop_event() -> Iterator[asyncio.Event]:
    """An event that is set by the first SIGINT or SIGTERM; a second one ends the process at once with status 130.

    For use inside a running event loop, in the main thread. The handlers are removed at the end.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _end_with(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_DRAIN_SECONDS)
    os._exit(1)


async def run_until_stopped(*loops: Coroutine[Any, Any, None]) -> None:
    """Runs the loops side by side until SIGINT or SIGTERM, then cancels them. A loop that fails, or ends, ends all.

    Raises what the failed loop raised.
    """
    with stop_event() as stop:
        stopping = asyncio.create_task(stop.wait())
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            for task in tasks:
                task.cancel()
            ending = asyncio.gather(*tasks, return_exceptions=True)
            done, _ = await asyncio.wait([ending], timeout=DRAIN_SECONDS)
            if not done:
                # what can't drain (both servers away, say) must not keep the process: its work is leased, and comes back
                os._exit(1)
            results = ending.result()
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result
