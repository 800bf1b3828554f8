"""The lock that every writer of an activity's ledger takes first, and how far the ledger is computed."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Uuid, bindparam, select, text
from sqlalchemy.dialects.postgresql import TIMESTAMP

from activity_core.store.database import Connection
from activity_core.store.tables import trigger_state


@dataclass(frozen=True, slots=True)
class TriggerState:
    """`now` is Postgres's clock, read after the lock was granted: no other clock counts.

    `held_by`: the pause or freeze that the waiting rows show. `hold_changes_at`: when that may be another one; None: it
    stays so.
    """

    activity_id: uuid.UUID
    settled_through: datetime
    last_nominal: datetime | None
    held_by: uuid.UUID | None
    hold_changes_at: datetime | None
    revision: int
    deleted: bool
    now: datetime


_LOCK = text(
    "SELECT activity_id, settled_through, last_nominal, held_by, hold_changes_at FROM trigger_state "
    "WHERE activity_id = ANY(:ids) ORDER BY activity_id FOR UPDATE"
)
_LOCK_DUE = text(
    "SELECT activity_id, settled_through, last_nominal, held_by, hold_changes_at FROM trigger_state "
    "WHERE activity_id = :id AND next_due_at < clock_timestamp() - make_interval(secs => :overdue_seconds) "
    "FOR UPDATE SKIP LOCKED"
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
        activity_id: _state(locked[activity_id], revision, deleted, now)
        for activity_id, revision, deleted, now in after
    }


def _state(row: Row[Any], revision: int, deleted: bool, now: datetime) -> TriggerState:
    return TriggerState(
        row.activity_id,
        row.settled_through,
        row.last_nominal,
        row.held_by,
        row.hold_changes_at,
        revision,
        deleted,
        now,
    )


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


_SET_HOLD = text(
    "UPDATE trigger_state SET held_by = :held_by, hold_changes_at = :hold_changes_at WHERE activity_id = :id"
).bindparams(bindparam("held_by", type_=Uuid), bindparam("hold_changes_at", type_=TIMESTAMP(timezone=True)))


async def set_hold(
    connection: Connection, activity_id: uuid.UUID, *, held_by: uuid.UUID | None, hold_changes_at: datetime | None
) -> None:
    """Note what holds an activity and until when that is known. The caller holds the lock."""
    params = {"id": activity_id, "held_by": held_by, "hold_changes_at": hold_changes_at}
    await connection.execute(_SET_HOLD, params)


_SET_HELD = text(
    "UPDATE trigger_state SET held_by = :held_by WHERE activity_id = ANY(:ids) AND held_by IS NULL RETURNING activity_id"
)


async def set_held(connection: Connection, activity_ids: Sequence[uuid.UUID], held_by: uuid.UUID) -> list[uuid.UUID]:
    """Note the hold for those that nothing holds yet, and say which these are. The caller holds the locks."""
    rows = await connection.execute(_SET_HELD, {"ids": list(activity_ids), "held_by": held_by})
    return list(rows.scalars())


_LOOK_AT_HOLDS = text(
    "UPDATE trigger_state SET hold_changes_at = least(coalesce(hold_changes_at, :at), :at), "
    "next_due_at = least(coalesce(next_due_at, :at), :at) WHERE activity_id = ANY(:ids)"
).bindparams(bindparam("at", type_=TIMESTAMP(timezone=True)))


async def look_at_holds(connection: Connection, activity_ids: Sequence[uuid.UUID], at: datetime) -> None:
    """Let everybody who locks these ledgers from `at` on look anew at what holds them. The caller holds the locks."""
    await connection.execute(_LOOK_AT_HOLDS, {"ids": list(activity_ids), "at": at})


_HELD_BY = text("SELECT activity_id FROM trigger_state WHERE held_by = :hold_id ORDER BY activity_id")


async def held_by(connection: Connection, hold_id: uuid.UUID) -> list[uuid.UUID]:
    """The activities whose ledger shows this hold. Reads them all: for when a freeze ends."""
    return list((await connection.execute(_HELD_BY, {"hold_id": hold_id})).scalars())


_WAKE = text(
    "UPDATE trigger_state SET next_due_at = least(coalesce(next_due_at, clock_timestamp()), clock_timestamp()) "
    "WHERE activity_id = :id AND EXISTS (SELECT 1 FROM occurrences WHERE activity_id = :id AND kind = 'time' "
    "AND outcome = 'waiting')"
)


async def wake_if_waiting(connection: Connection, activity_id: uuid.UUID) -> None:
    """Let the poller look at once when times wait. The caller holds the lock."""
    await connection.execute(_WAKE, {"id": activity_id})


_WAKE_NOW = text(
    "UPDATE trigger_state SET next_due_at = least(next_due_at, clock_timestamp() - interval '5 s') "
    "WHERE activity_id = :id AND next_due_at IS NOT NULL"
)


async def wake(connection: Connection, activity_id: uuid.UUID) -> None:
    """Let the poller look at once, as if it were overdue: no tick comes for what waits now. The caller holds the lock."""
    await connection.execute(_WAKE_NOW, {"id": activity_id})


async def settled_through(connection: Connection, activity_id: uuid.UUID) -> datetime | None:
    """The instant up to which the ledger of an activity is complete. Takes no lock."""
    return await connection.scalar(
        select(trigger_state.c.settled_through).where(trigger_state.c.activity_id == activity_id)
    )
