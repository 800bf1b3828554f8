"""Why an activity did or did not run, from the ledger: for an instant, for an event, or for what was due last.

Every question has an answer: an instant that is no due time says so, with its neighbours.
"""

import uuid
from dataclasses import replace
from datetime import datetime

from activity_core.domain import ids
from activity_core.errors import NotFoundError
from activity_core.services.activities import find
from activity_core.services.reads import find_event
from activity_core.services.why.answers import Action, Answer
from activity_core.services.why.events import of_unknown, of_unmatched
from activity_core.services.why.instants import neighbours_of, of_instant, of_nothing
from activity_core.services.why.rows import of_row
from activity_core.store import activities, ledger
from activity_core.store.activities import ActivityRecord
from activity_core.store.database import Connection, Database

__all__ = ["Action", "Answer", "Why"]


class Why:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def at(self, ref: str, instant: datetime) -> Answer:
        """Why it did or did not run for a due time."""
        async with self._database.read() as connection:
            record = await _any(connection, ref)
            neighbours = await neighbours_of(connection, record, instant)
            row = None
            if not instant.microsecond:
                row = await ledger.by_key(connection, record.id, ids.time_key(instant))
            if row is not None:
                answer = await of_row(connection, record, row)
            else:
                answer = await of_instant(connection, record, instant, neighbours)
        return replace(answer, neighbours=neighbours)

    async def event(self, ref: str, event_id: str) -> Answer:
        """Why it did or did not run for an event."""
        async with self._database.read() as connection:
            record = await _any(connection, ref)
            try:
                event = await find_event(connection, event_id)
            except NotFoundError:
                return of_unknown(event_id)
            row = await ledger.by_key(connection, record.id, event.event_id)
            if row is not None:
                return await of_row(connection, record, row, event)
            return await of_unmatched(connection, record, event)

    async def last(self, ref: str) -> Answer:
        """Why it did or did not run for what was due last: a time, an event or a request."""
        async with self._database.read() as connection:
            record = await _any(connection, ref)
            row = await ledger.last_due(connection, record.id)
            if row is None:
                return await of_nothing(connection, record)
            answer = await of_row(connection, record, row)
            if row.scheduled_for is None:
                return answer
            return replace(answer, neighbours=await neighbours_of(connection, record, row.scheduled_for))


async def _any(connection: Connection, ref: str) -> ActivityRecord:
    """A live activity, or a deleted one by its UUID: its ledger stays."""
    if ids.is_uuid(ref):
        record = await activities.by_id(connection, uuid.UUID(ref))
        if record is not None:
            return record
    return await find(connection, ref)
