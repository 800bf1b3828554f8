"""Reads of runs, the ledger and events."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activity_core.domain import ids
from activity_core.errors import NotFoundError
from activity_core.services.activities import find
from activity_core.store import events, ledger, receipts, runs
from activity_core.store.database import Connection, Database
from activity_core.store.events import EventRecord
from activity_core.store.ledger import LedgerRow, OccurrenceFilter
from activity_core.store.paging import Cursor, Page
from activity_core.store.receipts import ReceiptRecord
from activity_core.store.runs import RunFilter, RunRecord

_HASHED = re.compile(r"~sha256\.[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RunView:
    run: RunRecord
    task_counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class EventView:
    event: EventRecord
    occurrences: Sequence[LedgerRow]
    receipts: Sequence[ReceiptRecord]


class Reads:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def activity_id(self, ref: str) -> uuid.UUID:
        async with self._database.read() as connection:
            return (await find(connection, ref)).id

    async def run(self, run_id: uuid.UUID) -> RunView:
        async with self._database.read() as connection:
            run = await runs.by_id(connection, run_id)
            if run is None:
                raise NotFoundError(f"there is no run '{run_id}'; a run is recorded when it starts")
            return RunView(run, (await runs.task_counts(connection, [run_id]))[run_id])

    async def runs(self, where: RunFilter, *, cursor: Cursor | None, limit: int) -> Page[RunView]:
        async with self._database.read() as connection:
            found = await runs.listed(connection, where, cursor=cursor, limit=limit)
            counts = await runs.task_counts(connection, [run.run_id for run in found.items])
        return Page([RunView(run, counts[run.run_id]) for run in found.items], found.next_cursor)

    async def occurrences(self, where: OccurrenceFilter, *, cursor: Cursor | None, limit: int) -> Page[LedgerRow]:
        async with self._database.read() as connection:
            return await ledger.listed(connection, where, cursor=cursor, limit=limit)

    async def occurrence(self, occurrence_id: uuid.UUID) -> LedgerRow:
        async with self._database.read() as connection:
            row = await ledger.shown(connection, occurrence_id)
        if row is None:
            raise NotFoundError(f"there is no occurrence '{occurrence_id}'")
        return row

    async def event(self, ref: str) -> EventView:
        """By our UUID of the event, or by its event_id."""
        async with self._database.read() as connection:
            event = await find_event(connection, ref)
            where = OccurrenceFilter(event_uuid=event.id)
            rows = await ledger.listed(connection, where, cursor=None, limit=500)
            kept = await receipts.listed(connection, event_uuid=event.id, cursor=None, limit=100)
        return EventView(event, rows.items, kept.items)

    async def events(
        self,
        *,
        event_type: str | None,
        event_id: str | None,
        status: str | None,
        source: str | None,
        accepted_from: datetime | None,
        accepted_to: datetime | None,
        cursor: Cursor | None,
        limit: int,
    ) -> Page[EventRecord]:
        async with self._database.read() as connection:
            return await events.listed(
                connection,
                event_type=event_type,
                event_id=None if event_id is None else stored_event_id(event_id),
                status=status,
                source=source,
                accepted_from=accepted_from,
                accepted_to=accepted_to,
                cursor=cursor,
                limit=limit,
            )


async def find_event(connection: Connection, ref: str) -> EventRecord:
    """By our UUID, or by event_id as it was sent or as it is stored. Raises NotFoundError."""
    event = None
    if ids.is_uuid(ref):
        event = await events.by_id(connection, uuid.UUID(ref))
    event = event or await events.by_event_id(connection, stored_event_id(ref))
    if event is None:
        raise NotFoundError(f"there is no event '{ref}'")
    return event


def stored_event_id(text: str) -> str:
    """The event_id as it is stored: what the sender wrote, or the hash that stands for it."""
    return text if _HASHED.fullmatch(text) else ids.canonical_key(text)
