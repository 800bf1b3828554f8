"""Asking again until something has happened."""

import time
from collections.abc import Iterator

POLL_SECONDS = (0.05, 1.0)


def polls(timeout: int | None) -> Iterator[None]:
    """Yields when it is time to look, at once and then less and less often; ends when `timeout` seconds have passed."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, longest = POLL_SECONDS
    while True:
        yield
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(pause)
        pause = min(pause * 1.5, longest)
