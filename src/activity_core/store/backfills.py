"""Backfills that users asked for, and the ledger's times that they reopen, add and give back.

The caller of every write holds the activity's lock.
"""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Select, Uuid, bindparam, insert, select, text, update
from sqlalchemy.dialects.postgresql import TIMESTAMP

from activity_core.domain.backfill import REOPENED, LedgerTime
from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, backfills, occurrences

_INSTANTS = ARRAY(TIMESTAMP(timezone=True))
_TIMES = bindparam("times", type_=_INSTANTS)
_STARTS = bindparam("starts", type_=_INSTANTS)
_KEYS = bindparam("keys", type_=ARRAY(occurrences.c.key.type))
_REVISIONS = bindparam("revisions", type_=ARRAY(occurrences.c.revision.type))


@dataclass(frozen=True, slots=True)
class BackfillRecord:
    """Of the times in [from_at, to_at)."""

    id: uuid.UUID
    activity_id: uuid.UUID
    slug: str
    from_at: datetime
    to_at: datetime
    note: str | None
    requested_at: datetime
    cancelled_at: datetime | None


def _query() -> Select[Any]:
    b = backfills.c
    return select(
        *(b.id, b.activity_id, activities.c.slug, b.from_at, b.to_at, b.note, b.requested_at, b.cancelled_at)
    ).join(activities, activities.c.id == b.activity_id)


async def by_id(connection: Connection, backfill_id: uuid.UUID) -> BackfillRecord | None:
    """Primary key."""
    row = (await connection.execute(_query().where(backfills.c.id == backfill_id))).one_or_none()
    return BackfillRecord(*row) if row else None


async def listed(
    connection: Connection, activity_id: uuid.UUID, *, cursor: Cursor | None, limit: int
) -> Page[BackfillRecord]:
    """Newest first; index ix_backfills_activity_id_requested_at_id."""
    b = backfills.c
    query = before(_query().where(b.activity_id == activity_id), b.requested_at, b.id, cursor, limit)
    rows = [BackfillRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.requested_at, str(record.id)))


async def create(
    connection: Connection,
    backfill_id: uuid.UUID,
    *,
    activity_id: uuid.UUID,
    from_at: datetime,
    to_at: datetime,
    note: str | None,
    now: datetime,
) -> None:
    values = {"id": backfill_id, "activity_id": activity_id, "from_at": from_at, "to_at": to_at, "note": note}
    await connection.execute(insert(backfills).values(**values, requested_at=now))


async def mark_cancelled(connection: Connection, backfill_id: uuid.UUID, now: datetime) -> None:
    b = backfills.c
    await connection.execute(
        update(backfills).where(b.id == backfill_id, b.cancelled_at.is_(None)).values(cancelled_at=now)
    )


# A time is due at most an hour, the longest jitter, after its nominal instant: so its bounds are bounds on `due_at`, for
# which there is an index (ix_occurrences_activity_id_due_at_id).
_WITHIN = text(
    """
    SELECT scheduled_for, interval_start, outcome, reason FROM occurrences
    WHERE activity_id = :id AND kind = 'time' AND scheduled_for >= :start AND scheduled_for < :end
      AND due_at >= :start AND due_at < CAST(:end AS timestamptz) + interval '1 hour'
    ORDER BY scheduled_for LIMIT :limit
    """
)


async def times_within(
    connection: Connection, activity_id: uuid.UUID, start: datetime, end: datetime, *, limit: int
) -> list[LedgerTime]:
    """The ledger's times of [start, end), oldest first, of whatever revision and outcome."""
    params = {"id": activity_id, "start": start, "end": end, "limit": limit}
    return [LedgerTime(*row) for row in await connection.execute(_WITHIN, params)]


_BEFORE = text(
    """
    WITH near AS (
      SELECT scheduled_for, due_at FROM occurrences
      WHERE activity_id = :id AND kind = 'time' AND scheduled_for < :start
        AND due_at < CAST(:start AS timestamptz) + interval '1 hour'
      ORDER BY due_at DESC LIMIT 1
    )
    SELECT max(o.scheduled_for) FROM occurrences o, near
    WHERE o.activity_id = :id AND o.kind = 'time' AND o.scheduled_for < :start
      AND o.due_at BETWEEN near.scheduled_for AND near.due_at
    """
)


async def last_before(connection: Connection, activity_id: uuid.UUID, start: datetime) -> datetime | None:
    """The ledger's greatest nominal time below an instant."""
    found = await connection.scalar(_BEFORE, {"id": activity_id, "start": start})
    return found if isinstance(found, datetime) else None


_FOLLOWING = text(
    """
    WITH near AS (
      SELECT scheduled_for, due_at FROM occurrences
      WHERE activity_id = :id AND kind = 'time' AND scheduled_for >= :end AND due_at >= :end
      ORDER BY due_at LIMIT 1
    )
    SELECT o.scheduled_for, o.interval_start, o.outcome, o.reason FROM occurrences o, near
    WHERE o.activity_id = :id AND o.kind = 'time' AND o.scheduled_for >= :end
      AND o.due_at BETWEEN near.due_at AND near.scheduled_for + interval '1 hour'
    ORDER BY o.scheduled_for LIMIT 1
    """
)


async def first_from(connection: Connection, activity_id: uuid.UUID, end: datetime) -> LedgerTime | None:
    """The ledger's first time at or after an instant."""
    row = (await connection.execute(_FOLLOWING, {"id": activity_id, "end": end})).one_or_none()
    return LedgerTime(*row) if row else None


# What is pushed names the backfill that it belonged to: that one's counts must not change by a later one.
_REOPEN = text(
    """
    UPDATE occurrences SET
      history = history || (
        jsonb_build_object('outcome', outcome, 'reason_code', reason_code, 'reason', reason, 'decided_at', decided_at)
        || CASE WHEN backfill_id IS NULL THEN '{}' ELSE jsonb_build_object('backfill_id', backfill_id) END),
      outcome = 'waiting', reason_code = :reason_code, reason = :reason, plan_as = 'run', issued = false,
      decided_at = NULL, backfill_id = :backfill_id
    WHERE activity_id = :activity_id AND kind = 'time' AND outcome = ANY(:reopened) AND scheduled_for = ANY(:times)
    """
).bindparams(
    _TIMES,
    bindparam("reopened", sorted(REOPENED), type_=ARRAY(occurrences.c.outcome.type)),
    bindparam("backfill_id", type_=Uuid),
)


async def reopen(
    connection: Connection,
    activity_id: uuid.UUID,
    backfill_id: uuid.UUID,
    times: Sequence[datetime],
    *,
    reason_code: str,
    reason: str,
) -> None:
    """Let them wait for a run whatever the policy is, as one set; the decision that they had goes into their history."""
    params = {"activity_id": activity_id, "backfill_id": backfill_id, "times": list(times)}
    await connection.execute(_REOPEN, {**params, "reason_code": reason_code, "reason": reason})


@dataclass(frozen=True, slots=True)
class AddedTime:
    """A time that was never due, and the revision that it is run by."""

    key: str
    scheduled_for: datetime
    interval_start: datetime | None
    revision: int


_ADD = text(
    """
    INSERT INTO occurrences (activity_id, kind, key, revision, due_at, scheduled_for, interval_start, triggered_by,
                             outcome, reason_code, reason, plan_as, backfill_id)
    SELECT :activity_id, 'time', t.key, t.revision, t.nominal, t.nominal, t.interval_start, 'backfill',
           'waiting', :reason_code, :reason, 'run', :backfill_id
    FROM unnest(:keys, :times, :starts, :revisions) AS t(key, nominal, interval_start, revision)
    ON CONFLICT (activity_id, key) DO NOTHING
    """
).bindparams(_KEYS, _TIMES, _STARTS, _REVISIONS, bindparam("backfill_id", type_=Uuid))


async def add(
    connection: Connection,
    activity_id: uuid.UUID,
    backfill_id: uuid.UUID,
    times: Sequence[AddedTime],
    *,
    reason_code: str,
    reason: str,
) -> None:
    """A waiting row for each; those that exist stay as they are."""
    await connection.execute(
        _ADD,
        {
            "activity_id": activity_id,
            "backfill_id": backfill_id,
            "reason_code": reason_code,
            "reason": reason,
            "keys": [time.key for time in times],
            "times": [time.scheduled_for for time in times],
            "starts": [time.interval_start for time in times],
            "revisions": [time.revision for time in times],
        },
    )


# The last decision in its history is the one it was reopened from; an added row has none.
_GIVE_BACK = text(
    """
    UPDATE occurrences SET
      outcome = coalesce(history -> -1 ->> 'outcome', 'skipped'),
      reason_code = coalesce(history -> -1 ->> 'reason_code', 'backfill_cancelled'),
      reason = coalesce(history -> -1 ->> 'reason', 'it was never due, and the backfill that added it was cancelled'),
      history = history || jsonb_build_object('outcome', outcome, 'reason_code', reason_code, 'reason', reason,
                                              'decided_at', NULL),
      decided_at = :now
    WHERE backfill_id = :id AND outcome = 'waiting'
    """
)


async def give_back(connection: Connection, backfill_id: uuid.UUID, now: datetime) -> None:
    """What waits for this backfill is decided as it was before; what it added is skipped. ix_occurrences_backfill_id."""
    await connection.execute(_GIVE_BACK, {"id": backfill_id, "now": now})


# What a later backfill has taken over counts here as it was decided when it did. Rows given back by the cancellation
# are told by its very instant.
_COUNTS = text(
    """
    WITH mine AS (SELECT id, activity_id, from_at, to_at, requested_at, cancelled_at FROM backfills WHERE id = ANY(:ids))
    SELECT id, CASE WHEN decided_at = cancelled_at AND outcome <> 'started' THEN 'cancelled' ELSE outcome END, count(*)
    FROM (
      SELECT m.id, m.cancelled_at, o.outcome, o.decided_at
      FROM mine m JOIN occurrences o ON o.backfill_id = m.id
      UNION ALL
      SELECT m.id, m.cancelled_at, h.entry ->> 'outcome', (h.entry ->> 'decided_at')::timestamptz
      FROM mine m
      JOIN backfills later ON later.activity_id = m.activity_id AND later.id <> m.id
        AND later.requested_at >= m.requested_at AND later.from_at < m.to_at AND later.to_at > m.from_at
      JOIN occurrences o ON o.backfill_id = later.id
      CROSS JOIN jsonb_array_elements(o.history) AS h(entry)
      WHERE h.entry ->> 'backfill_id' = m.id::text
    ) times
    GROUP BY 1, 2
    """
).bindparams(bindparam("ids", type_=ARRAY(Uuid)))


async def counts(connection: Connection, backfill_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, dict[str, int]]:
    """How many times of each have which outcome, or were given back when it was `cancelled`."""
    found: dict[uuid.UUID, dict[str, int]] = defaultdict(dict)
    for backfill_id, outcome, count in await connection.execute(_COUNTS, {"ids": list(backfill_ids)}):
        found[backfill_id][outcome] = count
    return found
