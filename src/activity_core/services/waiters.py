"""The in-process short cut between the last task of a run and the step that waits for it."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager


class RunWaiters:
    """Steps of this process that wait for the tasks of their runs. A missed wake costs a signal, never correctness: the
    waiting step reads the database again after it stopped waiting."""

    def __init__(self) -> None:
        self._events: dict[uuid.UUID, asyncio.Event] = {}

    @contextmanager
    def waiting(self, run_id: uuid.UUID) -> Iterator[asyncio.Event]:
        event = self._events.setdefault(run_id, asyncio.Event())
        try:
            yield event
        finally:
            self._events.pop(run_id, None)

    def wake(self, run_id: uuid.UUID) -> bool:
        """True if a step of this process waits for the run, and now looks again."""
        event = self._events.get(run_id)
        if event is None:
            return False
        event.set()
        return True
