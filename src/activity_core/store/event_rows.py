"""Ledger rows of events as groups: debounced ones, rate-limited ones, and those that wait until a run of their key ends."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, INTEGER, TEXT, TIMESTAMP, UUID

from activity_core.domain.event_rules import waits_for_room
from activity_core.store.database import Connection

# (activity, key) pairs as two arrays: what a batch of events asks of their groups is asked at once.
_PAIRS = "unnest(CAST(:activities AS uuid[]), CAST(:keys AS text[]))"
_ARRAYS = (bindparam("activities", type_=ARRAY(UUID())), bindparam("keys", type_=ARRAY(TEXT())))

Pair = tuple[uuid.UUID, str]


def _columns(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {"activities": [pair[0] for pair in pairs], "keys": [pair[1] for pair in pairs]}


@dataclass(frozen=True, slots=True)
class HeadRow:
    """The row that stands for a debounced group. `place`: the concurrency key of which it takes a place, if it does."""

    activity_id: uuid.UUID
    key: str
    id: uuid.UUID
    due_at: datetime
    event_uuid: uuid.UUID
    waiting: bool
    until: datetime | None
    place: str | None


_HEAD = """
    SELECT g.activity_id, g.key, h.id, h.due_at, h.event_uuid, h.outcome = 'waiting', h.group_until,
           CASE WHEN h.outcome = 'waiting' AND h.start_after < 'infinity' THEN h.concurrency_key END
"""
_WAITING_HEADS = text(
    f"""
    {_HEAD} FROM {_PAIRS} AS g(activity_id, key)
    CROSS JOIN LATERAL (
      SELECT * FROM occurrences o WHERE o.activity_id = g.activity_id AND o.group_key = g.key
        AND o.group_key IS NOT NULL AND o.outcome = 'waiting'
      ORDER BY o.due_at DESC, o.event_uuid DESC LIMIT 1 FOR NO KEY UPDATE
    ) h
    """  # noqa: S608 (no values in it)
).bindparams(*_ARRAYS)
_NEWEST_HEADS = text(
    f"""
    {_HEAD} FROM unnest(CAST(:activities AS uuid[]), CAST(:keys AS text[]), CAST(:latest AS timestamptz[]))
      AS g(activity_id, key, latest)
    CROSS JOIN LATERAL (
      SELECT * FROM occurrences o WHERE o.activity_id = g.activity_id AND o.group_key = g.key
        AND o.group_key IS NOT NULL AND o.outcome IN ('waiting', 'started') AND o.not_before <= g.latest
      ORDER BY o.not_before DESC LIMIT 1
    ) h
    """  # noqa: S608 (no values in it)
).bindparams(*_ARRAYS, bindparam("latest", type_=ARRAY(TIMESTAMP(timezone=True))))


async def waiting_heads(connection: Connection, pairs: Sequence[Pair]) -> list[HeadRow]:
    """Of groups that run as their last event; index ix_occurrences_group_waiting.

    Their rows are locked: they don't start, which takes no lock but the row's, before what becomes of them is written.
    """
    return [HeadRow(*row) for row in await connection.execute(_WAITING_HEADS, _columns(pairs))]


async def newest_heads(connection: Connection, wanted: Sequence[tuple[Pair, datetime]]) -> list[HeadRow]:
    """Of groups that run as their first event, each the newest that came until an instant; index ix_occurrences_group."""
    params = {**_columns([pair for pair, _ in wanted]), "latest": [latest for _, latest in wanted]}
    return [HeadRow(*row) for row in await connection.execute(_NEWEST_HEADS, params)]


_SLOTS = text(
    """
    SELECT g.activity_id, g.key, ARRAY(
      SELECT o.not_before FROM occurrences o WHERE o.activity_id = g.activity_id AND o.group_key = g.key
        AND o.group_key IS NOT NULL AND o.outcome IN ('waiting', 'started') AND o.not_before IS NOT NULL
      ORDER BY o.not_before DESC OFFSET g.skipped LIMIT g.wanted)
    FROM unnest(CAST(:activities AS uuid[]), CAST(:keys AS text[]), CAST(:skipped AS int[]), CAST(:wanted AS int[]))
      AS g(activity_id, key, skipped, wanted)
    """
).bindparams(*_ARRAYS, bindparam("skipped", type_=ARRAY(INTEGER())), bindparam("wanted", type_=ARRAY(INTEGER())))


async def slots(
    connection: Connection, wanted: Sequence[tuple[Pair, tuple[int, int]]]
) -> dict[Pair, list[datetime | None]]:
    """When the newest admitted events of these keys might start, newest first: (how many not, how many), filled up with
    None; index ix_occurrences_group."""
    params = {
        **_columns([pair for pair, _ in wanted]),
        "skipped": [skipped for _, (skipped, _) in wanted],
        "wanted": [count for _, (_, count) in wanted],
    }
    found = {(row[0], row[1]): list(row[2]) for row in await connection.execute(_SLOTS, params)}
    return {pair: found[pair] + [None] * (count - len(found[pair])) for pair, (_, count) in wanted}


_MERGE = text(
    """
    UPDATE occurrences o SET outcome = 'merged', reason_code = 'debounced', reason = :reason,
      decided_at = clock_timestamp(), merged_into = m.into_id
    FROM unnest(CAST(:ids AS uuid[]), CAST(:intos AS uuid[])) AS m(id, into_id) WHERE o.id = m.id
    """
).bindparams(bindparam("ids", type_=ARRAY(UUID())), bindparam("intos", type_=ARRAY(UUID())))


async def merge(connection: Connection, absorbed: Mapping[uuid.UUID, uuid.UUID], reason: str) -> None:
    """Into which row each is merged. The caller has them locked as `waiting_heads` does."""
    await connection.execute(_MERGE, {"ids": list(absorbed), "intos": list(absorbed.values()), "reason": reason})


_EXTEND = text(
    """
    UPDATE occurrences o SET group_until = m.until
    FROM unnest(CAST(:ids AS uuid[]), CAST(:untils AS timestamptz[])) AS m(id, until) WHERE o.id = m.id
    """
).bindparams(bindparam("ids", type_=ARRAY(UUID())), bindparam("untils", type_=ARRAY(TIMESTAMP(timezone=True))))


async def extend(connection: Connection, extended: Mapping[uuid.UUID, datetime]) -> None:
    """Others are merged into these until then."""
    await connection.execute(_EXTEND, {"ids": list(extended), "untils": list(extended.values())})


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


_TAKEN_OF = text(
    f"""
    SELECT g.activity_id, g.key, {_TAKEN.replace(":activity_id", "g.activity_id").replace(":key", "g.key")}
    FROM {_PAIRS} AS g(activity_id, key)
    """  # noqa: S608 (no values in it)
).bindparams(*_ARRAYS)


async def taken(connection: Connection, pairs: Sequence[Pair]) -> dict[Pair, int]:
    """How many runs of the keys are open or about to start; indexes ix_activity_runs_concurrency,
    ix_occurrences_concurrency. The caller holds the ledgers' locks."""
    return {(row[0], row[1]): int(row[2]) for row in await connection.execute(_TAKEN_OF, _columns(pairs))}


_QUEUED = """
    o.activity_id = :activity_id AND o.concurrency_key IS NOT NULL AND o.outcome = 'waiting' AND o.reason_code = 'concurrency'
"""
_RELEASE = f"""
    UPDATE occurrences SET reason_code = 'due', reason = 'its turn has come, not started yet',
      start_after = greatest(clock_timestamp(), coalesce(not_before, '-infinity'))
    WHERE id IN (
      SELECT turn.id FROM keys
      CROSS JOIN LATERAL (
        SELECT o.concurrency_limit - ({_TAKEN.replace(":key", "keys.key")}) AS free
        FROM occurrences o WHERE {_QUEUED} AND o.concurrency_key = keys.key ORDER BY o.due_at, o.id LIMIT 1
      ) room
      CROSS JOIN LATERAL (
        SELECT o.id FROM occurrences o WHERE {_QUEUED} AND o.concurrency_key = keys.key
        ORDER BY o.due_at, o.id LIMIT greatest(0, room.free)
      ) turn)
"""  # noqa: S608 (no values in it)
_RELEASE_KEY = text(f"WITH keys AS (SELECT CAST(:key AS text) AS key) {_RELEASE}")
_RELEASE_ALL = text(
    f"WITH keys AS (SELECT DISTINCT o.concurrency_key AS key FROM occurrences o WHERE {_QUEUED}) {_RELEASE}"  # noqa: S608
)


async def release_queued(connection: Connection, activity_id: uuid.UUID, key: str | None = None) -> int:
    """Let as many of a key, or of each key, start as there is room for, oldest first; how many. The caller holds the
    ledger's lock; index ix_occurrences_concurrency."""
    if key is None:
        return (await connection.execute(_RELEASE_ALL, {"activity_id": activity_id})).rowcount
    return (await connection.execute(_RELEASE_KEY, {"activity_id": activity_id, "key": key})).rowcount


_QUEUEING = text(
    "SELECT DISTINCT activity_id FROM occurrences WHERE concurrency_key IS NOT NULL AND outcome = 'waiting' "
    "AND reason_code = 'concurrency' ORDER BY 1"
)


async def queueing(connection: Connection) -> list[uuid.UUID]:
    """Activities of which events wait for a run to end; index ix_occurrences_concurrency."""
    return list((await connection.execute(_QUEUEING)).scalars())


_RELIMIT = text(
    "UPDATE occurrences SET concurrency_limit = :limit WHERE activity_id = :activity_id AND concurrency_key IS NOT NULL "
    "AND outcome = 'waiting' AND concurrency_limit IS DISTINCT FROM :limit"
)
_DEMOTE = text(
    """
    UPDATE occurrences SET reason_code = 'concurrency', start_after = 'infinity', reason = :reason
    WHERE outcome = 'waiting' AND id IN (
      SELECT w.id FROM (
        SELECT o.id, o.concurrency_key AS key, row_number() OVER (PARTITION BY o.concurrency_key ORDER BY o.due_at, o.id) AS n
        FROM occurrences o WHERE o.activity_id = :activity_id AND o.concurrency_key IS NOT NULL AND o.outcome = 'waiting'
          AND o.start_after < 'infinity') w
      WHERE w.n > :limit - (SELECT count(*) FROM activity_runs r WHERE r.activity_id = :activity_id
                            AND r.concurrency_key = w.key AND r.concurrency_key IS NOT NULL AND r.is_open))
    """
).bindparams(bindparam("limit", type_=INTEGER()))
NO_LIMIT = 2**31 - 1


async def relimit(connection: Connection, activity_id: uuid.UUID, limit: int | None) -> None:
    """What waits follows the limit that is in force, None for none: with a lower one the last ones wait again, with a
    higher one the first ones start. The caller holds the ledger's lock."""
    params = {"activity_id": activity_id, "limit": NO_LIMIT if limit is None else limit}
    await connection.execute(_RELIMIT, params)
    if limit is not None:
        await connection.execute(_DEMOTE, {**params, "reason": waits_for_room(limit)})
    await release_queued(connection, activity_id)
