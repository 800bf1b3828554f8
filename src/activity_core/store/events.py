"""Accepted events, and the queue of those that have not been routed."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import SMALLINT, Select, bindparam, select, text
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA, TEXT, TIMESTAMP, UUID

from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import events


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event as it is about to be accepted. `data` is JSON text, or None for no data."""

    id: uuid.UUID
    event_id: str
    source: str
    external_id: str
    type: str
    subject: str | None
    time: datetime | None
    data: str | None
    content_hash: bytes
    causation_run_id: uuid.UUID | None = None
    depth: int = 0
    # A dead letter from the start is not routed.
    dead_letter_reason: str | None = None
    quarantine_reason: str | None = None


@dataclass(frozen=True, slots=True)
class KnownEvent:
    """Enough of an accepted event to answer a repeat of it."""

    id: uuid.UUID
    event_id: str
    source: str
    external_id: str
    content_hash: bytes


@dataclass(frozen=True, slots=True)
class EventRecord:
    id: uuid.UUID
    event_id: str
    source: str
    external_id: str
    type: str
    subject: str | None
    time: datetime | None
    data: Any
    accepted_at: datetime
    routed_at: datetime | None
    route_attempts: int
    dead_letter_reason: str | None
    quarantine_reason: str | None
    route_as: str | None
    route_activity_id: uuid.UUID | None
    conflicts: int
    causation_run_id: uuid.UUID | None
    depth: int


COLUMNS = [events.c[name] for name in EventRecord.__dataclass_fields__]

_ACCEPT = text(
    """
    INSERT INTO events (id, event_id, source, external_id, type, subject, "time", data, content_hash, causation_run_id,
                        depth, dead_letter_reason, quarantine_reason, routed_at, route_after)
    SELECT id, event_id, source, external_id, type, subject, "time", data::jsonb, content_hash, causation_run_id,
           depth, dead_letter_reason, quarantine_reason,
           CASE WHEN dead_letter_reason IS NOT NULL THEN clock_timestamp() END,
           CASE WHEN quarantine_reason IS NULL THEN clock_timestamp() ELSE 'infinity' END
    FROM unnest(:ids, :event_ids, :sources, :external_ids, :types, :subjects, :times, :datas, :hashes, :causes, :depths,
                :dead_letters, :quarantined)
      AS t(id, event_id, source, external_id, type, subject, "time", data, content_hash, causation_run_id, depth,
           dead_letter_reason, quarantine_reason)
    ON CONFLICT DO NOTHING
    RETURNING id
    """
).bindparams(
    bindparam("ids", type_=ARRAY(UUID())),
    *(bindparam(name, type_=ARRAY(TEXT())) for name in ("event_ids", "sources", "external_ids", "types")),
    *(bindparam(name, type_=ARRAY(TEXT())) for name in ("subjects", "datas", "dead_letters", "quarantined")),
    bindparam("causes", type_=ARRAY(UUID())),
    bindparam("depths", type_=ARRAY(SMALLINT())),
    bindparam("times", type_=ARRAY(TIMESTAMP(timezone=True))),
    bindparam("hashes", type_=ARRAY(BYTEA())),
)


async def accept(connection: Connection, batch: Sequence[NewEvent]) -> set[uuid.UUID]:
    """Insert a batch; the ids of the rows that are new. Events whose event_id or (source, id) exists are left out.

    Ordered by event_id, so that two batches with the same events in another order can't deadlock.
    """
    rows = sorted(batch, key=lambda item: item.event_id)
    result = await connection.execute(
        _ACCEPT,
        {
            "ids": [row.id for row in rows],
            "event_ids": [row.event_id for row in rows],
            "sources": [row.source for row in rows],
            "external_ids": [row.external_id for row in rows],
            "types": [row.type for row in rows],
            "subjects": [row.subject for row in rows],
            "times": [row.time for row in rows],
            "datas": [row.data for row in rows],
            "hashes": [row.content_hash for row in rows],
            "causes": [row.causation_run_id for row in rows],
            "depths": [row.depth for row in rows],
            "dead_letters": [row.dead_letter_reason for row in rows],
            "quarantined": [row.quarantine_reason for row in rows],
        },
    )
    return set(result.scalars())


async def known(connection: Connection, event_ids: Sequence[str]) -> dict[str, KnownEvent]:
    """By event_id (unique)."""
    e = events.c
    query = select(e.id, e.event_id, e.source, e.external_id, e.content_hash).where(e.event_id.in_(event_ids))
    return {row.event_id: KnownEvent(*row) for row in await connection.execute(query)}


_REOPEN = text(
    """
    UPDATE events SET routed_at = NULL, route_attempts = 0, route_after = clock_timestamp(), dead_letter_reason = NULL,
      route_as = 'redelivery', route_activity_id = NULL
    WHERE id IN (
      SELECT e.id FROM events e
      WHERE e.id = ANY(:ids) AND e.routed_at IS NOT NULL AND e.depth <= :max_depth
        AND (e.dead_letter_reason IS NOT NULL OR EXISTS (
          SELECT 1 FROM occurrences o
          WHERE o.event_uuid = e.id AND o.outcome IN ('disabled', 'filter_error', 'dead_letter')))
      ORDER BY e.id FOR NO KEY UPDATE SKIP LOCKED
    )
    """
).bindparams(bindparam("ids", type_=ARRAY(UUID())))


async def reopen_undecided(connection: Connection, ids: Sequence[uuid.UUID], *, max_depth: int) -> int:
    """Let a redelivery decide again what was not final: disabled, filter_error and dead_letter, but for events deeper than
    `max_depth`, which are a loop. How many reopened."""
    return (await connection.execute(_REOPEN, {"ids": list(ids), "max_depth": max_depth})).rowcount


_CONFLICT = text("UPDATE events SET conflicts = conflicts + 1 WHERE id = :id")


async def count_conflict(connection: Connection, event_uuid: uuid.UUID) -> None:
    """Its id came again with other content."""
    await connection.execute(_CONFLICT, {"id": event_uuid})


_DEPTH = text(
    "SELECT coalesce(e.depth, 0) FROM activity_runs r LEFT JOIN events e ON e.id = r.event_uuid WHERE r.run_id = :run_id"
)


async def depth_behind(connection: Connection, run_id: uuid.UUID) -> int | None:
    """How many events in a row, each made by a run of the one before, lie behind a run; None for an unknown run."""
    depth: int | None = await connection.scalar(_DEPTH, {"run_id": run_id})
    return depth


def _query() -> Select[Any]:
    return select(*COLUMNS)


async def by_id(connection: Connection, event_uuid: uuid.UUID) -> EventRecord | None:
    row = (await connection.execute(_query().where(events.c.id == event_uuid))).one_or_none()
    return EventRecord(*row) if row else None


async def by_ids(connection: Connection, ids: Sequence[uuid.UUID]) -> list[EventRecord]:
    """Primary key."""
    return [EventRecord(*row) for row in await connection.execute(_query().where(events.c.id.in_(ids)))]


async def by_event_id(connection: Connection, event_id: str) -> EventRecord | None:
    row = (await connection.execute(_query().where(events.c.event_id == event_id))).one_or_none()
    return EventRecord(*row) if row else None


# Written out, for the partial indexes ix_events_dead_letters, ix_events_quarantined and ix_events_unrouted.
_STATUSES = {
    "dead_letter": text("dead_letter_reason IS NOT NULL"),
    "quarantined": text("routed_at IS NULL AND quarantine_reason IS NOT NULL"),
    "accepted": text("routed_at IS NULL AND quarantine_reason IS NULL"),
    "routed": text("routed_at IS NOT NULL AND dead_letter_reason IS NULL"),
}


async def listed(
    connection: Connection,
    *,
    event_type: str | None,
    event_id: str | None,
    status: str | None = None,
    source: str | None = None,
    accepted_from: datetime | None,
    accepted_to: datetime | None,
    cursor: Cursor | None,
    limit: int,
) -> Page[EventRecord]:
    """Newest first; index ix_events_accepted_at_id, or that of what is asked for."""
    e = events.c
    query = _query()
    if event_type is not None:
        query = query.where(e.type == event_type)
    if event_id is not None:
        query = query.where(e.event_id == event_id)
    if status is not None:
        query = query.where(_STATUSES[status])
    if source is not None:
        query = query.where(e.source == source)
    if accepted_from is not None:
        query = query.where(e.accepted_at >= accepted_from)
    if accepted_to is not None:
        query = query.where(e.accepted_at < accepted_to)
    query = before(query, e.accepted_at, e.id, cursor, limit)
    rows = [EventRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.accepted_at, str(record.id)))


async def claim_unrouted(connection: Connection, limit: int) -> list[EventRecord]:
    """Lock events to route, oldest first, until the transaction ends; index ix_events_unrouted.

    The lock is the lease: a router that dies lets go of it, and another one takes the events.
    """
    query = (
        _query()
        .where(events.c.routed_at.is_(None), events.c.route_after <= text("clock_timestamp()"))
        .order_by(events.c.route_after)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
    )
    return [EventRecord(*row) for row in await connection.execute(query)]


async def unrouted_ids(connection: Connection, limit: int) -> list[uuid.UUID]:
    """Events to route, oldest first, without a lock; index ix_events_unrouted."""
    query = (
        select(events.c.id)
        .where(events.c.routed_at.is_(None), events.c.route_after <= text("clock_timestamp()"))
        .order_by(events.c.route_after)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())


async def claim_one(connection: Connection, event_uuid: uuid.UUID) -> EventRecord | None:
    """Lock one unrouted event; None if it is routed or in somebody else's hands."""
    query = (
        _query()
        .where(events.c.id == event_uuid, events.c.routed_at.is_(None))
        .with_for_update(skip_locked=True, key_share=True)
    )
    row = (await connection.execute(query)).one_or_none()
    return EventRecord(*row) if row else None


_ROUTED = text(
    "UPDATE events SET routed_at = clock_timestamp(), route_as = NULL, route_activity_id = NULL WHERE id = ANY(:ids)"
).bindparams(bindparam("ids", type_=ARRAY(UUID())))


async def mark_routed(connection: Connection, ids: Sequence[uuid.UUID]) -> None:
    await connection.execute(_ROUTED, {"ids": list(ids)})


_FAILED = text(
    """
    UPDATE events SET route_attempts = route_attempts + 1,
      route_after = clock_timestamp() + make_interval(secs => least(300, power(2, route_attempts))),
      routed_at = CASE WHEN route_attempts + 1 >= :max_attempts THEN clock_timestamp() END,
      dead_letter_reason = CASE WHEN route_attempts + 1 >= :max_attempts THEN :reason END
    WHERE id = :id AND routed_at IS NULL
    """
).bindparams(bindparam("reason", type_=TEXT()))


async def mark_route_failed(connection: Connection, event_uuid: uuid.UUID, reason: str, max_attempts: int) -> None:
    """Try again later; a dead letter after `max_attempts`, so that a poison event can't stall others (I9)."""
    await connection.execute(_FAILED, {"id": event_uuid, "reason": reason, "max_attempts": max_attempts})
