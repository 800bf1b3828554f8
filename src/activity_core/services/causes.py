"""Which run made an event, as its sender says: the guard against loops."""

import uuid

from activity_core.domain import ids
from activity_core.services.accept import Cause
from activity_core.store import events
from activity_core.store.database import Database

HEADER = "Activity-Core-Run-Id"


class Causes:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, run_id: str) -> Cause | None:
        """The cause that a consumer names by echoing the header of its task; None for a run that is unknown."""
        if not ids.is_uuid(run_id):
            return None
        async with self._database.read() as connection:
            depth = await events.depth_behind(connection, uuid.UUID(run_id))
        return None if depth is None else Cause(uuid.UUID(run_id), depth + 1)
