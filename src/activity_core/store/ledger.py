"""The ledger: occurrences, and the trigger state whose row lock every writer of an activity's ledger takes first."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, RowMapping, Select, bindparam, insert, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.dialects.postgresql import insert as pg_insert

from activity_core.domain.planner import Decision, RunSpan, WaitingTime
from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, events, occurrences, trigger_state


@dataclass(frozen=True, slots=True)
class TriggerState:
    """`now` is Postgres's clock, read after the lock was granted: no other clock counts."""

    activity_id: uuid.UUID
    settled_through: datetime
    last_nominal: datetime | None
    revision: int
    deleted: bool
    now: datetime


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


# Written out and never bound: with parameters the generic plan of a prepared statement can't use the partial indexes.
WAITING = text("outcome = 'waiting'")
WAITING_TIME = text("outcome = 'waiting' AND kind = 'time'")

COLUMNS = [occurrences.c[name] for name in OccurrenceRecord.__dataclass_fields__]

_LOCK = text(
    "SELECT activity_id, settled_through, last_nominal FROM trigger_state WHERE activity_id = ANY(:ids) "
    "ORDER BY activity_id FOR UPDATE"
)
_LOCK_DUE = text(
    "SELECT activity_id, settled_through, last_nominal FROM trigger_state WHERE activity_id = :id "
    "AND next_due_at < clock_timestamp() - make_interval(secs => :overdue_seconds) FOR UPDATE SKIP LOCKED"
)
# A statement of its own: in the locking one, clock and revision would be those of before the wait for the lock.
_AFTER_LOCK = text(
    "SELECT id, revision, deleted_at IS NOT NULL, clock_timestamp() FROM activities WHERE id = ANY(:ids)"
)
_NOW = text("SELECT clock_timestamp()")


async def clock(connection: Connection) -> datetime:
    now = await connection.scalar(_NOW)
    assert isinstance(now, datetime)  # noqa: S101 (Postgres answers with nothing else)
    return now


async def lock_all(connection: Connection, activity_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, TriggerState]:
    """Lock the ledgers of these activities, in id order, until the transaction ends."""
    rows = (await connection.execute(_LOCK, {"ids": sorted(set(activity_ids))})).all()
    return await _states(connection, rows)


async def lock(connection: Connection, activity_id: uuid.UUID) -> TriggerState | None:
    return (await lock_all(connection, [activity_id])).get(activity_id)


async def lock_only(connection: Connection, activity_id: uuid.UUID) -> None:
    """The lock alone, for writers that need neither clock nor revision."""
    await connection.execute(_LOCK, {"ids": [activity_id]})


async def lock_if_overdue(
    connection: Connection, activity_id: uuid.UUID, overdue_seconds: float
) -> TriggerState | None:
    """Lock it unless somebody else holds it or it is not overdue any more."""
    params = {"id": activity_id, "overdue_seconds": overdue_seconds}
    rows = (await connection.execute(_LOCK_DUE, params)).all()
    return (await _states(connection, rows)).get(activity_id)


async def _states(connection: Connection, rows: Sequence[Row[Any]]) -> dict[uuid.UUID, TriggerState]:
    if not rows:
        return {}
    locked = {row.activity_id: row for row in rows}
    after = await connection.execute(_AFTER_LOCK, {"ids": list(locked)})
    return {
        activity_id: TriggerState(
            activity_id, locked[activity_id].settled_through, locked[activity_id].last_nominal, revision, deleted, now
        )
        for activity_id, revision, deleted, now in after
    }


_OVERDUE = text(
    "SELECT activity_id FROM trigger_state WHERE next_due_at < clock_timestamp() - make_interval(secs => :overdue_seconds) "
    "ORDER BY next_due_at LIMIT :limit"
)


async def overdue(connection: Connection, overdue_seconds: float, limit: int) -> list[uuid.UUID]:
    """Activities whose next due instant has passed; index ix_trigger_state_next_due_at."""
    rows = await connection.execute(_OVERDUE, {"overdue_seconds": overdue_seconds, "limit": limit})
    return list(rows.scalars())


_SET_STATE = text(
    "UPDATE trigger_state SET settled_through = greatest(settled_through, :settled_through), "
    "last_nominal = coalesce(:last_nominal, last_nominal), next_due_at = :next_due_at WHERE activity_id = :id"
).bindparams(
    bindparam("last_nominal", type_=TIMESTAMP(timezone=True)), bindparam("next_due_at", type_=TIMESTAMP(timezone=True))
)


async def set_state(
    connection: Connection,
    activity_id: uuid.UUID,
    *,
    settled_through: datetime,
    last_nominal: datetime | None,
    next_due_at: datetime | None,
) -> None:
    """Move the watermark on. The caller holds the lock."""
    await connection.execute(
        _SET_STATE,
        {
            "id": activity_id,
            "settled_through": settled_through,
            "last_nominal": last_nominal,
            "next_due_at": next_due_at,
        },
    )


_WAKE = text(
    "UPDATE trigger_state SET next_due_at = least(coalesce(next_due_at, clock_timestamp()), clock_timestamp()) "
    "WHERE activity_id = :id AND EXISTS (SELECT 1 FROM occurrences WHERE activity_id = :id AND kind = 'time' "
    "AND outcome = 'waiting')"
)


async def wake_if_waiting(connection: Connection, activity_id: uuid.UUID) -> None:
    """Let the poller look at once when times wait. The caller holds the lock."""
    await connection.execute(_WAKE, {"id": activity_id})


_INSERT_TIMES = text(
    """
    INSERT INTO occurrences (activity_id, kind, key, revision, due_at, scheduled_for, interval_start,
                             triggered_by, outcome, reason_code, reason)
    SELECT :activity_id, 'time', t.key, :revision, t.nominal, t.nominal, t.interval_start,
           'schedule', 'waiting', 'due', 'due, not decided yet'
    FROM unnest(:keys, :nominals, :starts) AS t(key, nominal, interval_start)
    ON CONFLICT (activity_id, key) DO NOTHING
    """
).bindparams(
    bindparam("keys", type_=ARRAY(occurrences.c.key.type)),
    bindparam("nominals", type_=ARRAY(TIMESTAMP(timezone=True))),
    bindparam("starts", type_=ARRAY(TIMESTAMP(timezone=True))),
)


async def insert_times(
    connection: Connection,
    activity_id: uuid.UUID,
    revision: int,
    rows: Sequence[tuple[str, datetime, datetime | None]],
) -> None:
    """A waiting row per (key, nominal, interval_start); those that exist stay as they are."""
    await connection.execute(
        _INSERT_TIMES,
        {
            "activity_id": activity_id,
            "revision": revision,
            "keys": [row[0] for row in rows],
            "nominals": [row[1] for row in rows],
            "starts": [row[2] for row in rows],
        },
    )


async def waiting_times(connection: Connection, activity_id: uuid.UUID) -> list[WaitingTime]:
    """Oldest first; index ix_occurrences_waiting_times."""
    o = occurrences.c
    query = (
        select(o.scheduled_for, o.interval_start)
        .where(o.activity_id == activity_id, WAITING_TIME)
        .order_by(o.scheduled_for)
    )
    return [WaitingTime(row.scheduled_for, row.interval_start) for row in await connection.execute(query)]


_SPANS = text(
    """
    SELECT started_at, NULL::timestamptz FROM activity_runs WHERE activity_id = :id AND is_open
    UNION ALL
    SELECT started_at, finished_at FROM activity_run_ends WHERE activity_id = :id AND finished_at > :since
    """
)


async def run_spans(connection: Connection, activity_id: uuid.UUID, since: datetime) -> list[RunSpan]:
    """Runs open now or ended after `since`; ix_activity_runs_open, ix_activity_run_ends_activity_id_finished_at."""
    rows = await connection.execute(_SPANS, {"id": activity_id, "since": since})
    return [RunSpan(began, ended) for began, ended in rows]


_DECIDE_TIMES = text(
    "UPDATE occurrences SET outcome = :outcome, reason_code = :reason_code, reason = :reason, decided_at = :now "
    "WHERE activity_id = :activity_id AND kind = 'time' AND outcome = 'waiting' AND scheduled_for = ANY(:times)"
).bindparams(bindparam("times", type_=ARRAY(TIMESTAMP(timezone=True))))


async def decide_times(
    connection: Connection, activity_id: uuid.UUID, decision: Decision, times: list[datetime], now: datetime
) -> None:
    """Give waiting times their outcome, as one set: joined to an unnested list it took minutes for 43,200 rows."""
    await connection.execute(
        _DECIDE_TIMES,
        {
            "activity_id": activity_id,
            "outcome": decision.outcome,
            "reason_code": decision.reason_code,
            "reason": decision.reason,
            "now": now,
            "times": times,
        },
    )


async def by_key(connection: Connection, activity_id: uuid.UUID, key: str) -> OccurrenceRecord | None:
    """Unique key (activity_id, key)."""
    query = select(*COLUMNS).where(occurrences.c.activity_id == activity_id, occurrences.c.key == key)
    row = (await connection.execute(query)).one_or_none()
    return OccurrenceRecord(*row) if row else None


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


async def manual_waits(connection: Connection, activity_id: uuid.UUID) -> bool:
    """Whether a manual run has been asked for and not begun; index ix_occurrences_waiting."""
    o = occurrences.c
    query = select(o.id).where(o.activity_id == activity_id, WAITING, text("kind = 'manual'")).limit(1)
    return (await connection.scalar(query)) is not None


@dataclass(frozen=True, slots=True)
class OccurrenceFilter:
    activity_id: uuid.UUID | None = None
    outcome: str | None = None
    reason_code: str | None = None
    kind: str | None = None
    event_uuid: uuid.UUID | None = None
    due_from: datetime | None = None
    due_to: datetime | None = None


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
    for name in ("activity_id", "outcome", "reason_code", "kind", "event_uuid"):
        value = getattr(where, name)
        if value is not None:
            query = query.where(o[name] == value)
    if where.due_from is not None:
        query = query.where(o.due_at >= where.due_from)
    if where.due_to is not None:
        query = query.where(o.due_at < where.due_to)
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
      decided_at = :decided_at, start_after = clock_timestamp(), start_attempts = 0
    WHERE id = :id
    """
).bindparams(bindparam("decided_at", type_=TIMESTAMP(timezone=True)))


async def redecide(
    connection: Connection, occurrence_id: uuid.UUID, decision: Decision, revision: int, decided_at: datetime | None
) -> None:
    """Replace a decision that may be replaced, keeping the old one in `history`. The caller holds the lock."""
    await connection.execute(
        _REDECIDE,
        {
            "id": occurrence_id,
            "outcome": decision.outcome,
            "reason_code": decision.reason_code,
            "reason": decision.reason,
            "revision": revision,
            "decided_at": decided_at,
        },
    )


@dataclass(frozen=True, slots=True)
class StartClaim:
    """A waiting event or manual row, leased to this process until `start_after`."""

    id: uuid.UUID
    activity_id: uuid.UUID
    key: str
    start_attempts: int


_CLAIM_STARTS = text(
    """
    UPDATE occurrences o SET start_after = clock_timestamp() + make_interval(secs => :lease_seconds),
                             start_attempts = o.start_attempts + 1
    FROM (
      SELECT id FROM occurrences
      WHERE outcome = 'waiting' AND kind <> 'time' AND start_after <= clock_timestamp()
      ORDER BY start_after LIMIT :limit FOR UPDATE SKIP LOCKED
    ) claimed
    WHERE o.id = claimed.id
    RETURNING o.id, o.activity_id, o.key, o.start_attempts
    """
)


async def claim_starts(connection: Connection, *, limit: int, lease_seconds: float) -> list[StartClaim]:
    """Lease waiting rows, oldest first; index ix_occurrences_waiting_starts. Expired leases come back by themselves."""
    rows = await connection.execute(_CLAIM_STARTS, {"limit": limit, "lease_seconds": lease_seconds})
    return [StartClaim(*row) for row in rows]


_RELEASE = text(
    "UPDATE occurrences SET start_after = clock_timestamp() + make_interval(secs => :delay_seconds) "
    "WHERE id = :id AND outcome = 'waiting'"
)


async def release_start(connection: Connection, occurrence_id: uuid.UUID, delay_seconds: float) -> None:
    """Give a claim back, to be claimed again after the delay."""
    await connection.execute(_RELEASE, {"id": occurrence_id, "delay_seconds": delay_seconds})


async def settled_through(connection: Connection, activity_id: uuid.UUID) -> datetime | None:
    """The instant up to which the ledger of an activity is complete. Takes no lock."""
    return await connection.scalar(
        select(trigger_state.c.settled_through).where(trigger_state.c.activity_id == activity_id)
    )
