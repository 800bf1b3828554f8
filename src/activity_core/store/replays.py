"""Events that are routed again because somebody asks for it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, or_, select, text
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from activity_core.store.database import Connection
from activity_core.store.tables import events


@dataclass(frozen=True, slots=True)
class ReplayFilter:
    event_uuid: uuid.UUID | None = None
    accepted_from: datetime | None = None
    accepted_to: datetime | None = None
    event_type: str | None = None
    source: str | None = None


async def choose(connection: Connection, where: ReplayFilter, limit: int) -> list[uuid.UUID]:
    """The oldest that are routed, or kept back; indexes ix_events_accepted_at_id, ix_events_type_accepted_at_id."""
    e = events.c
    # what waits for the router is left to it
    query = select(e.id).where(or_(e.routed_at.is_not(None), e.quarantine_reason.is_not(None)))
    for column, value in ((e.id, where.event_uuid), (e.type, where.event_type), (e.source, where.source)):
        if value is not None:
            query = query.where(column == value)
    if where.accepted_from is not None:
        query = query.where(e.accepted_at >= where.accepted_from)
    if where.accepted_to is not None:
        query = query.where(e.accepted_at < where.accepted_to)
    query = query.order_by(e.accepted_at, e.id).limit(limit)
    return list((await connection.execute(query)).scalars())


_OUTCOMES = text("SELECT activity_id, event_uuid, outcome FROM occurrences WHERE event_uuid = ANY(:ids)").bindparams(
    bindparam("ids", type_=ARRAY(UUID()))
)


async def outcomes(connection: Connection, ids: Sequence[uuid.UUID]) -> dict[tuple[uuid.UUID, uuid.UUID], str]:
    """What became of these events, by (activity, event); index ix_occurrences_event_uuid."""
    return {(row[0], row[1]): row[2] for row in await connection.execute(_OUTCOMES, {"ids": list(ids)})}


_MARK = text(
    """
    UPDATE events SET routed_at = NULL, route_attempts = 0, route_after = clock_timestamp(), dead_letter_reason = NULL,
      quarantine_reason = NULL, route_as = 'replay',
      route_activity_id = CASE WHEN quarantine_reason IS NULL AND dead_letter_reason IS NULL
                          THEN CAST(:activity_id AS uuid) END
    WHERE id IN (SELECT id FROM events WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE)
    """
).bindparams(bindparam("ids", type_=ARRAY(UUID())))


async def mark(connection: Connection, chosen: Sequence[uuid.UUID], activity_id: uuid.UUID | None) -> None:
    """Give them to the router, for one activity only or for all. What was never routed goes to all: it is kept back no
    longer, and nobody would route it for the others."""
    await connection.execute(_MARK, {"ids": list(chosen), "activity_id": activity_id})
