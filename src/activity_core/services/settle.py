"""Settle: bring the ledger of one activity up to now. With the gate the only place where time rows are decided.

Nobody owns a waiting row: every settle plans all of them again, so a crash anywhere is healed by the next one.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from activity_core.domain import ids
from activity_core.domain.documents import Activity, TimeTrigger, times_of
from activity_core.domain.times import Times, jitter_delay
from activity_core.services import holds
from activity_core.services.definitions import Definitions
from activity_core.services.holds import Hold
from activity_core.services.planning import Planned, plan_waiting
from activity_core.store import time_rows, trigger_state
from activity_core.store.database import Connection, Database
from activity_core.store.time_rows import NewTime
from activity_core.store.trigger_state import TriggerState

# A tick further ahead of Postgres's clock than this is not believed: a backfill of the future must not settle it.
TICK_AHEAD = timedelta(seconds=5)
# Times per transaction: what a year's outage of a minutely activity leaves must not be one statement.
MAX_TIMES = 10_000
DUE = ("due", "due, not decided yet")


@dataclass(frozen=True, slots=True)
class Settled:
    """`through`: the instant up to which the ledger is complete. `behind`: there is more to settle before now."""

    through: datetime
    activity: Activity
    planned: Planned
    behind: bool = False

    @property
    def head(self) -> datetime | None:
        """The time to run first; None when nothing may start."""
        return self.planned.plan.head


async def settle_locked(
    connection: Connection,
    definitions: Definitions,
    state: TriggerState,
    tick: datetime | None = None,
    *,
    issue: bool = False,
) -> Settled:
    """Settle under the lock that `state` stands for. Writes, does not commit.

    `issue`: the caller asks the schedule for the catch-up of what is returned as such.
    """
    activity = await definitions.get(connection, state.activity_id, state.revision)
    now = _now(state, tick)
    held = await holds.look(connection, state, activity, now)
    times = times_of(activity.trigger) if activity.enabled and not state.deleted else None
    nominals = [] if times is None else _nominals(times, state.settled_through, now)
    behind = len(nominals) > MAX_TIMES
    if behind:
        nominals = nominals[:MAX_TIMES]
    if times is not None:
        await _insert(connection, state, activity, times, nominals, held.hold)
    planned = Planned()
    if not behind:
        await holds.show(connection, state, held, now)
    # while times that were due under a hold are still missing, its end must wait for them
    if held.hold is None and not (behind and (state.held_by is not None or held.ended)):
        planned = await plan_waiting(connection, definitions, state, activity, now, issue=issue and not behind)
    through = nominals[-1] if behind else now
    candidates = [
        through if behind else times.next_after(now) if times is not None else None,
        held.changes_at,
        planned.due_next,
        planned.look_again,
    ]
    await trigger_state.set_state(
        connection,
        state.activity_id,
        settled_through=through,
        last_nominal=nominals[-1] if nominals else None,
        next_due_at=min((instant for instant in candidates if instant is not None), default=None),
    )
    # a head is what would run now, so it is known only when all that is due is
    return Settled(through, activity, Planned() if behind else planned, behind)


def _now(state: TriggerState, tick: datetime | None) -> datetime:
    """Postgres's clock, which never goes back, or the tick that is a little ahead of it."""
    now = max(state.now, state.settled_through)
    return tick if tick is not None and now < tick <= state.now + TICK_AHEAD else now


async def settle_fully(connection: Connection, definitions: Definitions, state: TriggerState) -> Settled:
    """Settle up to now however much there is: an edit must not make a time due that the old rules own."""
    settled = await settle_locked(connection, definitions, state)
    while settled.behind:
        state = replace(state, settled_through=settled.through, last_nominal=settled.through)
        settled = await settle_locked(connection, definitions, state)
    return settled


def _nominals(times: Times, after: datetime, until: datetime) -> list[datetime]:
    """The nominal times in (after, until], one more than a transaction takes at most."""
    return list(islice(times.iterate(after, until), MAX_TIMES + 1))


async def _insert(
    connection: Connection,
    state: TriggerState,
    activity: Activity,
    times: Times,
    nominals: Sequence[datetime],
    hold: Hold | None,
) -> None:
    """A waiting row for each nominal time, with the start of its interval: the nominal time before it."""
    if not nominals:
        return
    starts = [state.last_nominal or times.interval_start(nominals[0]), *nominals[:-1]]
    rows = [new_time(state.activity_id, activity, *pair) for pair in zip(nominals, starts, strict=True)]
    reason_code, reason = DUE if hold is None else (hold.reason_code, hold.reason)
    await time_rows.insert_times(
        connection, state.activity_id, state.revision, rows, reason_code=reason_code, reason=reason
    )


def new_time(
    activity_id: uuid.UUID, activity: Activity, scheduled_for: datetime, interval_start: datetime | None
) -> NewTime:
    """The row of a nominal time: due its jitter later."""
    key, due = ids.time_key(scheduled_for), scheduled_for
    if isinstance(activity.trigger, TimeTrigger) and activity.trigger.jitter_seconds:
        due += jitter_delay(ids.run_workflow_id(activity_id, key), activity.trigger.jitter_seconds)
    return NewTime(key, scheduled_for, interval_start, due)


def next_due(activity: Activity, after: datetime) -> datetime | None:
    """The next nominal time that an activity with this definition owes after an instant; None if it owes none."""
    times = times_of(activity.trigger) if activity.enabled else None
    return None if times is None else times.next_after(after)


class Settler:
    """Settle as the fire workflow and the poller call it: one transaction each."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def settle(
        self, activity_id: uuid.UUID, tick: datetime | None = None, *, issue: bool = False
    ) -> Settled | None:
        """Settle up to now, in as many transactions as it takes; None for an activity that is unknown."""
        while True:
            async with self._database.begin() as connection:
                state = await trigger_state.lock(connection, activity_id)
                if state is None:
                    return None
                settled = await settle_locked(connection, self._definitions, state, tick, issue=issue)
            if not settled.behind:
                return settled

    async def settle_overdue(self, activity_id: uuid.UUID, overdue_seconds: float) -> datetime | None:
        """The poller's settle: only if nobody else is at it. Returns the head, if there is one."""
        async with self._database.begin() as connection:
            state = await trigger_state.lock_if_overdue(connection, activity_id, overdue_seconds)
            if state is None:
                return None
            return (await settle_locked(connection, self._definitions, state)).head
