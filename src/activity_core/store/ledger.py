"""The ledger: occurrences, as they are read and decided one by one. Times in sets are in `time_rows`."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, RowMapping, Select, bindparam, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, TEXT, TIMESTAMP, UUID
from sqlalchemy.dialects.postgresql import insert as pg_insert

from activity_core.domain.planner import Decision
from activity_core.domain.selectors import Selector
from activity_core.store.activities import matching
from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, events, occurrences


@dataclass(frozen=True, slots=True)
class OccurrenceRecord:
    id: uuid.UUID
    activity_id: uuid.UUID
    kind: str
    key: str
    revision: int
    due_at: datetime
    scheduled_for: datetime | None
    interval_start: datetime | None
    event_uuid: uuid.UUID | None
    params: Any
    triggered_by: str
    outcome: str
    reason_code: str
    reason: str
    run_id: uuid.UUID | None
    created_at: datetime
    decided_at: datetime | None
    history: list[dict[str, Any]]
    start_attempts: int
    plan_as: str | None
    merged_into: uuid.UUID | None
    backfill_id: uuid.UUID | None
    rerun_of: uuid.UUID | None
    group_key: str | None
    not_before: datetime | None
    concurrency_key: str | None


# Written out and never bound: with parameters the generic plan of a prepared statement can't use the partial indexes.
WAITING = text("outcome = 'waiting'")
WAITING_TIME = text("outcome = 'waiting' AND kind = 'time'")

COLUMNS = [occurrences.c[name] for name in OccurrenceRecord.__dataclass_fields__]


async def by_key(connection: Connection, activity_id: uuid.UUID, key: str) -> OccurrenceRecord | None:
    """Unique key (activity_id, key)."""
    query = select(*COLUMNS).where(occurrences.c.activity_id == activity_id, occurrences.c.key == key)
    row = (await connection.execute(query)).one_or_none()
    return OccurrenceRecord(*row) if row else None


_OF_KEYS = select(*COLUMNS).join(
    func.unnest(bindparam("activities", type_=ARRAY(UUID())), bindparam("keys", type_=ARRAY(TEXT())))
    .table_valued("activity_id", "key")
    .render_derived("asked"),
    text("asked.activity_id = occurrences.activity_id AND asked.key = occurrences.key"),
)


async def by_keys(
    connection: Connection, pairs: Sequence[tuple[uuid.UUID, str]]
) -> dict[tuple[uuid.UUID, str], OccurrenceRecord]:
    """Those that are there, by (activity, key), which is unique."""
    params = {"activities": [pair[0] for pair in pairs], "keys": [pair[1] for pair in pairs]}
    records = [OccurrenceRecord(*row) for row in await connection.execute(_OF_KEYS, params)]
    return {(record.activity_id, record.key): record for record in records}


async def by_id(connection: Connection, occurrence_id: uuid.UUID) -> OccurrenceRecord | None:
    row = (await connection.execute(select(*COLUMNS).where(occurrences.c.id == occurrence_id))).one_or_none()
    return OccurrenceRecord(*row) if row else None


async def start(
    connection: Connection, occurrence_id: uuid.UUID, run_id: uuid.UUID, reason_code: str, reason: str, now: datetime
) -> bool:
    """`waiting` → `started`; False if somebody else decided it. The caller is the gate, and holds the lock."""
    result = await connection.execute(
        update(occurrences)
        .where(occurrences.c.id == occurrence_id, WAITING)
        .values(outcome="started", reason_code=reason_code, reason=reason, run_id=run_id, decided_at=now)
    )
    return result.rowcount == 1


async def end_waiting(
    connection: Connection, activity_id: uuid.UUID, decision: Decision, now: datetime, *, only_times: bool = False
) -> None:
    """Give everything that waits for this activity one outcome. The caller holds the lock."""
    o = occurrences.c
    statement = update(occurrences).where(o.activity_id == activity_id, WAITING_TIME if only_times else WAITING)
    await connection.execute(
        statement.values(
            outcome=decision.outcome, reason_code=decision.reason_code, reason=decision.reason, decided_at=now
        )
    )


async def first_request(connection: Connection, activity_id: uuid.UUID) -> uuid.UUID | None:
    """The oldest manual run that has been asked for and not begun; index ix_occurrences_waiting."""
    o = occurrences.c
    query = select(o.id).where(o.activity_id == activity_id, WAITING, text("kind = 'manual'"))
    return await connection.scalar(query.order_by(o.due_at, o.id).limit(1))


async def first_to_wait(connection: Connection, activity_id: uuid.UUID) -> OccurrenceRecord | None:
    """The oldest manual run that waits for those before it; index ix_occurrences_requests."""
    o = occurrences.c
    query = select(*COLUMNS).where(o.activity_id == activity_id, WAITING, text("plan_as = 'wait'"))
    row = (await connection.execute(query.order_by(o.due_at, o.id).limit(1))).one_or_none()
    return OccurrenceRecord(*row) if row else None


@dataclass(frozen=True, slots=True)
class OccurrenceFilter:
    activity_id: uuid.UUID | None = None
    outcome: str | None = None
    reason_code: str | None = None
    kind: str | None = None
    event_uuid: uuid.UUID | None = None
    due_from: datetime | None = None
    due_to: datetime | None = None
    merged_into: uuid.UUID | None = None
    backfill_id: uuid.UUID | None = None
    selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """An occurrence as it is shown."""

    occurrence: OccurrenceRecord
    slug: str
    event_id: str | None


def _listing() -> Select[Any]:
    return (
        select(*COLUMNS, activities.c.slug, events.c.event_id.label("event_id"))
        .join(activities, activities.c.id == occurrences.c.activity_id)
        .outerjoin(events, events.c.id == occurrences.c.event_uuid)
    )


def _ledger_row(row: Row[Any]) -> LedgerRow:
    return LedgerRow(OccurrenceRecord(*tuple(row)[: len(COLUMNS)]), row.slug, row.event_id)


async def listed(
    connection: Connection, where: OccurrenceFilter, *, cursor: Cursor | None, limit: int
) -> Page[LedgerRow]:
    """Newest first; indexes ix_occurrences_activity_id_due_at_id, ix_occurrences_due_at_id."""
    o = occurrences.c
    query = _listing()
    for name in ("activity_id", "outcome", "reason_code", "kind", "event_uuid", "merged_into", "backfill_id"):
        value = getattr(where, name)
        if value is not None:
            query = query.where(o[name] == value)
    if where.due_from is not None:
        query = query.where(o.due_at >= where.due_from)
    if where.due_to is not None:
        query = query.where(o.due_at < where.due_to)
    if where.selector is not None:
        query = query.where(o.activity_id.in_(matching(where.selector)))
    query = before(query, o.due_at, o.id, cursor, limit)
    rows = [_ledger_row(row) for row in await connection.execute(query)]
    return page(rows, limit, lambda item: Cursor(item.occurrence.due_at, str(item.occurrence.id)))


async def shown(connection: Connection, occurrence_id: uuid.UUID) -> LedgerRow | None:
    row = (await connection.execute(_listing().where(occurrences.c.id == occurrence_id))).one_or_none()
    return _ledger_row(row) if row else None


async def last_due(connection: Connection, activity_id: uuid.UUID) -> OccurrenceRecord | None:
    """The newest occurrence; index ix_occurrences_activity_id_due_at_id."""
    o = occurrences.c
    query = select(*COLUMNS).where(o.activity_id == activity_id).order_by(o.due_at.desc(), o.id.desc()).limit(1)
    row = (await connection.execute(query)).one_or_none()
    return OccurrenceRecord(*row) if row else None


async def insert_rows(connection: Connection, rows: Sequence[dict[str, Any]]) -> list[RowMapping]:
    """Insert event or manual rows; those whose (activity_id, key) exists stay as they are. Returns the new ones' ids."""
    statement = (
        pg_insert(occurrences)
        .on_conflict_do_nothing(index_elements=["activity_id", "key"])
        .returning(occurrences.c.id, occurrences.c.activity_id, occurrences.c.key)
    )
    return list((await connection.execute(statement, rows)).mappings())


async def insert_manual(connection: Connection, row: dict[str, Any]) -> None:
    await connection.execute(insert(occurrences).values(**row))


_REDECIDE = text(
    """
    UPDATE occurrences SET
      history = history || jsonb_build_object('outcome', outcome, 'reason_code', reason_code, 'reason', reason,
                                              'decided_at', decided_at),
      outcome = :outcome, reason_code = :reason_code, reason = :reason, revision = :revision,
      decided_at = :decided_at, start_after = :start_after, start_attempts = 0, merged_into = :merged_into,
      group_key = :group_key, group_until = :group_until, not_before = :not_before,
      concurrency_key = :concurrency_key, concurrency_limit = :concurrency_limit
    WHERE id = :id
    """
).bindparams(
    *(
        bindparam(name, type_=TIMESTAMP(timezone=True))
        for name in ("decided_at", "start_after", "group_until", "not_before")
    )
)


async def redecide(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Replace decisions that may be replaced by those of `rows`, keeping the old ones in `history`. The caller holds the
    locks."""
    await connection.execute(_REDECIDE, rows)
