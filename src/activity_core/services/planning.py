"""Plan the times that wait for an activity, and write the outcomes that come of it: the second half of a settle."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from activity_core.domain.documents import Activity, TimeTrigger
from activity_core.domain.planner import Decision, Plan, WaitingTime, plan_times
from activity_core.services.definitions import Definitions
from activity_core.store import ledger, time_rows
from activity_core.store.database import Connection
from activity_core.store.time_rows import WaitingRow
from activity_core.store.trigger_state import TriggerState

# Of one backfill call to the schedule: with more than a thousand the server loses some silently.
MAX_ISSUED = 500
# Runs that one fire starts side by side.
MAX_HEADS = 100
LOOK_AGAIN_SOON = timedelta(seconds=1)
LOOK_AGAIN_LATE = timedelta(seconds=10)
# Where the trigger has no times any more, those that wait are backfilled ones, which follow no policy.
NO_TIMES = TimeTrigger()


@dataclass(frozen=True, slots=True)
class Planned:
    """`look_again`: when to look again at what waits and may run. `due_next`: when the next of the times is due, or misfired,
    whose nominal time has come. `issue`: times whose catch-up is to be asked of the schedule. `issued`: how many that was
    asked for wait."""

    plan: Plan = field(default_factory=Plan)
    look_again: datetime | None = None
    due_next: datetime | None = None
    issue: tuple[datetime, ...] = ()
    issued: int = 0


async def plan_waiting(
    connection: Connection,
    definitions: Definitions,
    state: TriggerState,
    activity: Activity,
    now: datetime,
    *,
    issue: bool,
) -> Planned:
    """Plan all waiting rows. The caller holds the lock. `issue`: the caller asks the schedule for what is returned as such."""
    rows = await time_rows.waiting_times(connection, state.activity_id)
    if not rows:
        return Planned()
    trigger = activity.trigger if isinstance(activity.trigger, TimeTrigger) else NO_TIMES
    times = [await _with_own_rules(connection, definitions, state, row) for row in rows]
    # overlap is nothing to a backfilled time, however old: it needs none of the runs that have ended since
    since = next((time.scheduled_for for time in times if time.plan_as != "run"), now)
    runs = await time_rows.run_spans(connection, state.activity_id, since)
    allow_all = trigger.overlap_policy == "allow_all"
    plan = plan_times(
        times,
        policy=trigger.misfire_policy,
        now=now,
        grace=timedelta(seconds=trigger.misfire_grace_seconds),
        catchup_limit=trigger.catchup_limit,
        runs=runs,
        allow_all=allow_all,
    )
    await _write(connection, state.activity_id, plan, now)
    if plan.heads and not allow_all and await _goes_before(connection, state.activity_id, plan.heads[0].scheduled_for):
        plan = Plan(plan.decisions)
    left = [row for row in rows if row.time.scheduled_for not in plan.decisions]
    to_issue = _to_issue(left, trigger, now) if issue and plan.heads else []
    if to_issue:
        await time_rows.mark_issued(connection, state.activity_id, to_issue)
    blocked = not allow_all and any(run.ended is None for run in runs)
    return Planned(
        plan,
        look_again=None if blocked else _look_again([row.time for row in left], now),
        due_next=_due_next([row.time for row in left], timedelta(seconds=trigger.misfire_grace_seconds), now),
        # a fire that starts runs side by side starts many
        issue=tuple(to_issue[:: MAX_HEADS if allow_all else 1]),
        issued=sum(row.issued for row in left),
    )


def _look_again(waiting: Sequence[WaitingTime], now: datetime) -> datetime | None:
    """Soon for what has just fallen due, and later the longer it has waited: in a flood thousands wait for their turn, and
    looking at each of them every second would take the time in which they could run."""
    since = max((time.due for time in waiting if time.due <= now), default=None)
    return None if since is None else now + min(max((now - since) / 4, LOOK_AGAIN_SOON), LOOK_AGAIN_LATE)


def _due_next(waiting: Sequence[WaitingTime], grace: timedelta, now: datetime) -> datetime | None:
    instants = (instant for time in waiting for instant in (time.due, time.due + (time.grace or grace)))
    return min((instant for instant in instants if instant > now), default=None)


async def _with_own_rules(
    connection: Connection, definitions: Definitions, state: TriggerState, row: WaitingRow
) -> WaitingTime:
    """A time that is decided as something else than the policy says keeps the rules of the revision it was due under."""
    time = row.time
    if time.plan_as in (None, "run") or row.revision == state.revision:
        return time
    trigger = (await definitions.get(connection, state.activity_id, row.revision)).trigger
    if not isinstance(trigger, TimeTrigger):
        return time
    grace = timedelta(seconds=trigger.misfire_grace_seconds)
    return replace(time, grace=grace, catchup_limit=trigger.catchup_limit)


async def _write(connection: Connection, activity_id: uuid.UUID, plan: Plan, now: datetime) -> None:
    groups: dict[Decision, list[datetime]] = defaultdict(list)
    for scheduled_for, decision in plan.decisions.items():
        groups[decision].append(scheduled_for)
    for decision, times in groups.items():
        await time_rows.decide_times(connection, activity_id, decision, times, now)


async def _goes_before(connection: Connection, activity_id: uuid.UUID, head: datetime) -> bool:
    """Whether somebody's request waits for its turn since before the head was due: runs may follow one another for ever."""
    first = await ledger.first_to_wait(connection, activity_id)
    return first is not None and first.due_at < head


def _to_issue(left: Sequence[WaitingRow], trigger: TimeTrigger, now: datetime) -> list[datetime]:
    """The misfired times to catch up. None while one that was asked for waits: of calls close together some are lost."""
    grace = timedelta(seconds=trigger.misfire_grace_seconds)
    caught_up = [
        row
        for row in left
        if (row.time.plan_as or trigger.misfire_policy) == "catchup" and now - row.time.due > (row.time.grace or grace)
    ]
    if any(row.issued for row in caught_up):
        return []
    return [row.time.scheduled_for for row in caught_up[:MAX_ISSUED]]
