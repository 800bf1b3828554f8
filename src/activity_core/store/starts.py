"""The queue of starts: waiting event and manual rows, leased to a process at a time."""

import uuid
from dataclasses import dataclass

from sqlalchemy import text

from activity_core.store.database import Connection


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
      SELECT id FROM occurrences w
      WHERE outcome = 'waiting' AND kind <> 'time' AND start_after <= clock_timestamp()
        -- a request that waits for its turn takes no place until it has come
        AND (plan_as IS DISTINCT FROM 'wait' OR NOT (
          EXISTS (SELECT 1 FROM activity_runs r WHERE r.activity_id = w.activity_id AND r.is_open)
          OR EXISTS (SELECT 1 FROM occurrences b WHERE b.activity_id = w.activity_id AND b.outcome = 'waiting'
                     AND b.plan_as = 'wait' AND (b.due_at, b.id) < (w.due_at, w.id))))
      ORDER BY start_after LIMIT :limit FOR UPDATE SKIP LOCKED
    ) claimed
    WHERE o.id = claimed.id
    RETURNING o.id, o.activity_id, o.key, o.start_attempts
    """
)


async def claim(connection: Connection, *, limit: int, lease_seconds: float) -> list[StartClaim]:
    """Lease waiting rows, oldest first; index ix_occurrences_waiting_starts. Expired leases come back by themselves."""
    rows = await connection.execute(_CLAIM_STARTS, {"limit": limit, "lease_seconds": lease_seconds})
    return [StartClaim(*row) for row in rows]


_RELEASE = text(
    "UPDATE occurrences SET start_after = clock_timestamp() + make_interval(secs => :delay_seconds) "
    "WHERE id = :id AND outcome = 'waiting' AND start_after < 'infinity'"
)


async def release(connection: Connection, occurrence_id: uuid.UUID, delay_seconds: float) -> None:
    """Give a claim back, to be claimed again after the delay."""
    await connection.execute(_RELEASE, {"id": occurrence_id, "delay_seconds": delay_seconds})
