"""Settle: bring the ledger of one activity up to now. With the gate the only place where time rows are decided.

Nobody owns a waiting row: every settle plans all of them again, so a crash anywhere is healed by the next one.
"""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from activity_core.domain import ids
from activity_core.domain.documents import Activity, TimeTrigger, times_of
from activity_core.domain.planner import Decision, Plan, WaitingTime, plan_times
from activity_core.domain.times import Times, jitter_delay
from activity_core.services import holds
from activity_core.services.definitions import Definitions
from activity_core.services.holds import Hold
from activity_core.store import time_rows, trigger_state
from activity_core.store.database import Connection, Database
from activity_core.store.time_rows import NewTime
from activity_core.store.trigger_state import TriggerState

# A tick further ahead of Postgres's clock than this is not believed: a backfill of the future must not settle it.
TICK_AHEAD = timedelta(seconds=5)
LOOK_AGAIN = timedelta(seconds=1)
# Times per transaction: what a year's outage of a minutely activity leaves must not be one statement.
MAX_TIMES = 10_000
# Of one backfill call to the schedule: with more than a thousand the server loses some silently.
MAX_ISSUED = 500
# Runs that one fire starts side by side.
MAX_HEADS = 100
DUE = ("due", "due, not decided yet")


@dataclass(frozen=True, slots=True)
class Settled:
    """`through`: the instant up to which the ledger is complete. `behind`: there is more to settle before now.

    `issue`: misfired times whose catch-up is to be asked of the schedule. `due_next`: when the next of the times that
    are not due yet, though their nominal time has come, is.
    """

    through: datetime
    activity: Activity
    plan: Plan
    behind: bool = False
    issue: tuple[datetime, ...] = ()
    due_next: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: Plan
    look_again: bool = False
    due_next: datetime | None = None
    issue: tuple[datetime, ...] = ()


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
    now = max(state.now, state.settled_through)
    if tick is not None and now < tick <= state.now + TICK_AHEAD:
        now = tick
    held = await holds.look(connection, state, activity, now)
    times = times_of(activity.trigger) if activity.enabled and not state.deleted else None
    nominals = [] if times is None else _nominals(times, state.settled_through, now)
    behind = len(nominals) > MAX_TIMES
    if behind:
        nominals = nominals[:MAX_TIMES]
    through = nominals[-1] if behind else now
    if times is not None:
        await _insert(connection, state, activity, times, nominals, held.hold)
    # while times that were due under a hold are still missing, its end must wait for them
    held_still = held.hold is not None or (behind and state.held_by is not None)
    if not behind:
        await holds.show(connection, state, held, now)
    planned = _Planned(Plan())
    if not held_still:
        # where the trigger has no times, those that wait are backfilled ones, which follow no policy
        trigger = activity.trigger if isinstance(activity.trigger, TimeTrigger) else TimeTrigger()
        planned = await _plan(connection, state.activity_id, trigger, now, issue=issue and not behind)
    candidates = [held.changes_at, planned.due_next, now + LOOK_AGAIN if planned.look_again else None]
    candidates.append(through if behind else times.next_after(now) if times is not None else None)
    await trigger_state.set_state(
        connection,
        state.activity_id,
        settled_through=through,
        last_nominal=nominals[-1] if nominals else None,
        next_due_at=min((instant for instant in candidates if instant is not None), default=None),
    )
    # a head is what would run now, so it is known only when all that is due is
    plan = Plan(planned.plan.decisions) if behind else planned.plan
    return Settled(through, activity, plan, behind, planned.issue, planned.due_next)


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


async def _plan(
    connection: Connection, activity_id: uuid.UUID, trigger: TimeTrigger, now: datetime, *, issue: bool
) -> _Planned:
    """Plan all waiting rows and write the outcomes."""
    waiting = await time_rows.waiting_times(connection, activity_id)
    if not waiting.times:
        return _Planned(Plan())
    # overlap is nothing to a backfilled time, however old: it needs none of the runs that have ended since
    since = next((row.scheduled_for for row in waiting.times if row.plan_as != "run"), now)
    runs = await time_rows.run_spans(connection, activity_id, since)
    allow_all = trigger.overlap_policy == "allow_all"
    plan = plan_times(
        waiting.times,
        policy=trigger.misfire_policy,
        now=now,
        grace=timedelta(seconds=trigger.misfire_grace_seconds),
        catchup_limit=trigger.catchup_limit,
        runs=runs,
        allow_all=allow_all,
    )
    groups: dict[Decision, list[datetime]] = defaultdict(list)
    for scheduled_for, decision in plan.decisions.items():
        groups[decision].append(scheduled_for)
    for decision, times in groups.items():
        await time_rows.decide_times(connection, activity_id, decision, times, now)
    left = [row for row in waiting.times if row.scheduled_for not in plan.decisions]
    issued = _to_issue(left, trigger, waiting.issued, now) if issue and plan.heads else ()
    if issued:
        await time_rows.mark_issued(connection, activity_id, issued)
    blocked = not allow_all and any(run.ended is None for run in runs)
    return _Planned(
        plan,
        look_again=not blocked and any(row.due <= now for row in left),
        due_next=min((row.due for row in left if row.due > now), default=None),
        issue=issued,
    )


def _to_issue(
    left: Sequence[WaitingTime], trigger: TimeTrigger, issued: frozenset[datetime], now: datetime
) -> tuple[datetime, ...]:
    """The misfired times to catch up. None while one that was asked for waits: of calls close together some are lost."""
    cutoff = now - timedelta(seconds=trigger.misfire_grace_seconds)
    caught_up = [
        row.scheduled_for for row in left if (row.plan_as or trigger.misfire_policy) == "catchup" and row.due < cutoff
    ]
    return () if issued.intersection(caught_up) else tuple(caught_up[:MAX_ISSUED])


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
            return (await settle_locked(connection, self._definitions, state)).plan.head
