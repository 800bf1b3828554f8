"""LISTEN/NOTIFY as a wake-up and never more: whatever is missed is found by the next poll.

NOTIFY takes a database-wide lock at commit, so it is sent at most once per batch.
"""

import asyncio
from typing import Any

import asyncpg
from sqlalchemy import text

from activity_core.errors import UnavailableError
from activity_core.store.database import Connection, Database

EVENTS = "activity_core_events"
STARTS = "activity_core_starts"
SCHEDULES = "activity_core_schedules"
LISTEN_SECONDS = 10.0


async def notify(connection: Connection, channel: str) -> None:
    """Wake the listeners of the channel when this transaction commits."""
    await connection.execute(text("SELECT pg_notify(:channel, '')"), {"channel": channel})


class Wakeup:
    """Waits for a notification on a channel, or for a time, whichever comes first."""

    def __init__(self, database: Database, *channels: str) -> None:
        self._database = database
        self._channels = channels
        self._event = asyncio.Event()
        # the listener lives as long as this reference: a collected one stops listening without a word
        self._connection: asyncpg.Connection | None = None

    async def wait(self, timeout_seconds: float) -> None:
        """Return at a notification, after the time, or at once for one that came since the last call."""
        await self._ensure_listening()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()

    async def pause(self, seconds: float) -> None:
        """Wait out the time, whatever is heard: for loops whose other side is not there."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close(timeout=2)
            self._connection = None

    async def _ensure_listening(self) -> None:
        if self._connection is not None and not self._connection.is_closed():
            return
        connection: asyncpg.Connection | None = None
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                connection = await self._database.listen_connection()
                for channel in self._channels:
                    await connection.add_listener(channel, self._heard)
            self._connection = connection
        except (UnavailableError, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            if connection is not None:
                connection.terminate()  # half a listener; polling goes on

    def _heard(self, *_: Any) -> None:
        self._event.set()
