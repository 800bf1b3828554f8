"""Ids that belong to the sources of webhooks: `{slug}:{id}` is what a request that passed their door becomes (R27)."""

import time

from activity_core.store import sources
from activity_core.store.database import Database

# How long the door of a process may go by the sources that it knows.
FRESH_SECONDS = 2.0


class ReservedIds:
    """One per API process. All slugs at once, because a part of an id before a colon may be another each time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._slugs: frozenset[str] = frozenset()
        self._until = 0.0

    async def owner(self, external_id: str | None) -> str | None:
        """The source that this id is kept for, when an event without a source asks for it. Raises UnavailableError."""
        prefix, colon, _ = (external_id or "").partition(":")
        if not colon:
            return None
        now = time.monotonic()
        if now >= self._until:
            async with self._database.read() as connection:
                self._slugs = await sources.slugs(connection)
            self._until = now + FRESH_SECONDS
        return prefix if prefix in self._slugs else None
