"""Ledger rows of events as groups: debounced ones, rate-limited ones, and those that wait until a run of their key ends."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import TIMESTAMP

from activity_core.store.database import Connection


@dataclass(frozen=True, slots=True)
class HeadRow:
    """The row that stands for a group."""

    id: uuid.UUID
    due_at: datetime
    event_uuid: uuid.UUID
    waiting: bool
    until: datetime | None


_HEAD = (
    "SELECT id, due_at, event_uuid, outcome = 'waiting', group_until FROM occurrences WHERE activity_id = :activity_id "
)
_WAITING_HEAD = text(
    _HEAD + "AND group_key = :key AND group_key IS NOT NULL AND outcome = 'waiting' "
    "ORDER BY due_at DESC, event_uuid DESC LIMIT 1"
)
_NEWEST_HEAD = text(
    _HEAD + "AND group_key = :key AND group_key IS NOT NULL AND outcome IN ('waiting', 'started') "
    "ORDER BY not_before DESC LIMIT 1"
)


async def waiting_head(connection: Connection, activity_id: uuid.UUID, key: str) -> HeadRow | None:
    """Of a group that runs as its last event; index ix_occurrences_group_waiting."""
    row = (await connection.execute(_WAITING_HEAD, {"activity_id": activity_id, "key": key})).one_or_none()
    return HeadRow(*row) if row else None


async def newest_head(connection: Connection, activity_id: uuid.UUID, key: str) -> HeadRow | None:
    """Of a group that runs as its first event; index ix_occurrences_group."""
    row = (await connection.execute(_NEWEST_HEAD, {"activity_id": activity_id, "key": key})).one_or_none()
    return HeadRow(*row) if row else None


_NTH_SLOT = text(
    "SELECT not_before FROM occurrences WHERE activity_id = :activity_id AND group_key = :key AND group_key IS NOT NULL "
    "AND outcome IN ('waiting', 'started') AND not_before IS NOT NULL ORDER BY not_before DESC OFFSET :count - 1 LIMIT 1"
)


async def nth_slot(connection: Connection, activity_id: uuid.UUID, key: str, count: int) -> datetime | None:
    """When the `count`-th newest admitted event of the key might start; index ix_occurrences_group."""
    params = {"activity_id": activity_id, "key": key, "count": count}
    slot: datetime | None = await connection.scalar(_NTH_SLOT, params)
    return slot


_MERGE = text(
    "UPDATE occurrences SET outcome = 'merged', reason_code = 'debounced', decided_at = :now, merged_into = :into, "
    "reason = 'a later event of its debounce key came before it started' WHERE id = :id AND outcome = 'waiting'"
)


async def merge(connection: Connection, occurrence_id: uuid.UUID, into: uuid.UUID, now: datetime) -> bool:
    """False when it has started meanwhile, which takes no lock but the row's."""
    return (await connection.execute(_MERGE, {"id": occurrence_id, "into": into, "now": now})).rowcount == 1


_UNTIL = text("UPDATE occurrences SET group_until = :until WHERE id = :id").bindparams(
    bindparam("until", type_=TIMESTAMP(timezone=True))
)


async def extend(connection: Connection, occurrence_id: uuid.UUID, until: datetime) -> None:
    """Others are merged into it until then."""
    await connection.execute(_UNTIL, {"id": occurrence_id, "until": until})


_POINT = text(
    """
    WITH RECURSIVE chain AS (
      SELECT id FROM occurrences WHERE merged_into = :id
      UNION SELECT o.id FROM occurrences o JOIN chain c ON o.merged_into = c.id
    )
    UPDATE occurrences SET merged_into = :id WHERE id IN (SELECT id FROM chain) AND merged_into <> :id
    """
)


async def point_merged(connection: Connection, occurrence_id: uuid.UUID) -> None:
    """Let all that was merged, one into the next, name the row that runs for them; index ix_occurrences_merged_into."""
    await connection.execute(_POINT, {"id": occurrence_id})


@dataclass(frozen=True, slots=True)
class Merged:
    """How many events a run stands for beside its own, and the id of the first."""

    count: int
    first_id: str | None


_MERGED = text(
    """
    WITH RECURSIVE chain AS (
      SELECT id, due_at, key FROM occurrences WHERE merged_into = :id
      UNION SELECT o.id, o.due_at, o.key FROM occurrences o JOIN chain c ON o.merged_into = c.id
    )
    SELECT (SELECT count(*) FROM chain), (SELECT key FROM chain ORDER BY due_at, id LIMIT 1)
    """
)


async def merged(connection: Connection, occurrence_id: uuid.UUID) -> Merged:
    return Merged(*(await connection.execute(_MERGED, {"id": occurrence_id})).one())


_TAKEN = """
    (SELECT count(*) FROM activity_runs r
     WHERE r.activity_id = :activity_id AND r.concurrency_key = :key AND r.concurrency_key IS NOT NULL AND r.is_open)
    + (SELECT count(*) FROM occurrences w
       WHERE w.activity_id = :activity_id AND w.concurrency_key = :key AND w.concurrency_key IS NOT NULL
         AND w.outcome = 'waiting' AND w.start_after < 'infinity')
"""


async def taken(connection: Connection, activity_id: uuid.UUID, key: str) -> int:
    """How many runs of the key are open or about to start; indexes ix_activity_runs_concurrency,
    ix_occurrences_concurrency. The caller holds the ledger's lock."""
    return int(await connection.scalar(text(f"SELECT {_TAKEN}"), {"activity_id": activity_id, "key": key}) or 0)


_QUEUED = """
    FROM occurrences q WHERE q.activity_id = :activity_id AND q.concurrency_key = :key AND q.concurrency_key IS NOT NULL
      AND q.outcome = 'waiting' AND q.reason_code = 'concurrency' ORDER BY q.due_at, q.id
"""
_RELEASE_NEXT = text(
    f"""
    UPDATE occurrences SET reason_code = 'due', reason = 'its turn has come, not started yet',
      start_after = greatest(clock_timestamp(), coalesce(not_before, '-infinity'))
    WHERE id IN (SELECT q.id {_QUEUED} LIMIT greatest(0, coalesce((SELECT q.concurrency_limit {_QUEUED} LIMIT 1), 0)
                                                         - ({_TAKEN})))
    """  # noqa: S608 (no values in it)
)


async def release_next(connection: Connection, activity_id: uuid.UUID, key: str) -> int:
    """Let as many of the key start as there is room for, oldest first; how many. The caller holds the ledger's lock."""
    return (await connection.execute(_RELEASE_NEXT, {"activity_id": activity_id, "key": key})).rowcount


_QUEUED_KEYS = text(
    "SELECT DISTINCT activity_id, concurrency_key FROM occurrences WHERE concurrency_key IS NOT NULL "
    "AND outcome = 'waiting' AND reason_code = 'concurrency' AND (CAST(:activity_id AS uuid) IS NULL "
    "OR activity_id = :activity_id) ORDER BY 1, 2"
)


async def queued_keys(connection: Connection, activity_id: uuid.UUID | None = None) -> list[tuple[uuid.UUID, str]]:
    """(activity, key) of all that wait for a run to end; index ix_occurrences_concurrency."""
    rows = await connection.execute(_QUEUED_KEYS, {"activity_id": activity_id})
    return [(row[0], row[1]) for row in rows]


async def release_queued(connection: Connection, activity_id: uuid.UUID) -> int:
    """`release_next` for every key of the activity."""
    released = 0
    for _, key in await queued_keys(connection, activity_id):
        released += await release_next(connection, activity_id, key)
    return released


_RELIMIT = text(
    "UPDATE occurrences SET concurrency_limit = :limit WHERE activity_id = :activity_id AND concurrency_key IS NOT NULL "
    "AND outcome = 'waiting' AND concurrency_limit IS DISTINCT FROM :limit"
)


async def relimit(connection: Connection, activity_id: uuid.UUID, limit: int) -> None:
    """What waits follows the limit that is in force."""
    await connection.execute(_RELIMIT, {"activity_id": activity_id, "limit": limit})
