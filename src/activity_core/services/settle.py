"""Settle: bring the ledger of one activity up to now. With the gate the only place where time rows are decided.

Nobody owns a waiting row: every settle plans all of them again, so a crash anywhere is healed by the next one.
"""

import uuid
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from activity_core.domain import cron, ids
from activity_core.domain.documents import Activity, CronTrigger
from activity_core.domain.planner import Decision, Plan, plan_times
from activity_core.services.definitions import Definitions
from activity_core.store import ledger
from activity_core.store.database import Connection, Database
from activity_core.store.ledger import TriggerState

# A tick further ahead of Postgres's clock than this is not believed: a backfill of the future must not settle it.
TICK_AHEAD = timedelta(seconds=5)
LOOK_AGAIN = timedelta(seconds=1)


# Times per transaction: what a year's outage of a minutely activity leaves must not be one statement.
MAX_TIMES = 10_000


@dataclass(frozen=True, slots=True)
class Settled:
    """`through`: the instant up to which the ledger is complete. `behind`: there is more to settle before now."""

    through: datetime
    plan: Plan
    behind: bool = False


async def settle_locked(
    connection: Connection, definitions: Definitions, state: TriggerState, tick: datetime | None = None
) -> Settled:
    """Settle under the lock that `state` stands for. Writes, does not commit."""
    activity = await definitions.get(connection, state.activity_id, state.revision)
    now = max(state.now, state.settled_through)
    if tick is not None and now < tick <= state.now + TICK_AHEAD:
        now = tick
    if state.deleted or not activity.enabled or not isinstance(activity.trigger, CronTrigger):
        await ledger.set_state(connection, state.activity_id, settled_through=now, last_nominal=None, next_due_at=None)
        return Settled(now, Plan())
    nominals = _due(activity.trigger, state.settled_through, now)
    behind = len(nominals) > MAX_TIMES
    if behind:
        nominals = nominals[:MAX_TIMES]
    through = nominals[-1] if behind else now
    await _insert(connection, state, activity.trigger, nominals)
    plan, waits, is_open = await _plan(connection, state.activity_id, activity.trigger, now)
    next_due_at = through if behind else next_nominal(activity.trigger, now)
    if waits and not is_open:
        look_again = now + LOOK_AGAIN
        next_due_at = look_again if next_due_at is None else min(next_due_at, look_again)
    await ledger.set_state(
        connection,
        state.activity_id,
        settled_through=through,
        last_nominal=nominals[-1] if nominals else None,
        next_due_at=next_due_at,
    )
    # a head is what would run now, so it is known only when all that is due is
    return Settled(through, Plan(plan.decisions) if behind else plan, behind)


async def settle_fully(connection: Connection, definitions: Definitions, state: TriggerState) -> Settled:
    """Settle up to now however much there is: an edit must not make a time due that the old rules own."""
    settled = await settle_locked(connection, definitions, state)
    while settled.behind:
        state = replace(state, settled_through=settled.through, last_nominal=settled.through)
        settled = await settle_locked(connection, definitions, state)
    return settled


def _due(trigger: CronTrigger, after: datetime, until: datetime) -> list[datetime]:
    """The nominal times in (after, until], one more than a transaction takes at most."""
    compiled, zone = cron.parse_cron(trigger.cron), cron.check_zone(trigger.timezone)
    return list(islice(cron.iterate(compiled, zone, after, until), MAX_TIMES + 1))


async def _insert(connection: Connection, state: TriggerState, trigger: CronTrigger, nominals: list[datetime]) -> None:
    """A waiting row for each nominal time, with the start of its interval: the nominal time before it."""
    if not nominals:
        return
    before = state.last_nominal or previous_nominal(trigger, nominals[0] - timedelta(seconds=1))
    starts: list[datetime | None] = [before, *nominals[:-1]]
    rows = [(ids.time_key(nominal), nominal, start) for nominal, start in zip(nominals, starts, strict=True)]
    await ledger.insert_times(connection, state.activity_id, state.revision, rows)


async def _plan(
    connection: Connection, activity_id: uuid.UUID, trigger: CronTrigger, now: datetime
) -> tuple[Plan, bool, bool]:
    """Plan all waiting rows and write the outcomes: (plan, whether rows still wait, whether a run is open)."""
    waiting = await ledger.waiting_times(connection, activity_id)
    if not waiting:
        return Plan(), False, False
    runs = await ledger.run_spans(connection, activity_id, waiting[0].scheduled_for)
    grace = timedelta(seconds=trigger.misfire_grace_seconds)
    # the limit is of no effect: documents do not take `catchup` yet
    plan = plan_times(waiting, policy=trigger.misfire_policy, now=now, grace=grace, catchup_limit=10, runs=runs)
    groups: dict[Decision, list[datetime]] = defaultdict(list)
    for scheduled_for, decision in plan.decisions.items():
        groups[decision].append(scheduled_for)
    for decision, times in groups.items():
        await ledger.decide_times(connection, activity_id, decision, times, now)
    return plan, len(waiting) > len(plan.decisions), any(run.ended is None for run in runs)


def next_nominal(trigger: object, after: datetime) -> datetime | None:
    """The next nominal time strictly after an instant; None for triggers without times."""
    if not isinstance(trigger, CronTrigger):
        return None
    return cron.next_after(cron.parse_cron(trigger.cron), cron.check_zone(trigger.timezone), after)


def previous_nominal(trigger: CronTrigger, at: datetime) -> datetime | None:
    """The last nominal time at or before an instant; None when there was none."""
    return cron.previous_at_or_before(cron.parse_cron(trigger.cron), cron.check_zone(trigger.timezone), at)


def first_due(activity: Activity, now: datetime) -> datetime | None:
    """When a definition that comes into force now first owes something."""
    return next_nominal(activity.trigger, now) if activity.enabled else None


class Settler:
    """Settle as the fire workflow and the poller call it: one transaction each."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def settle(self, activity_id: uuid.UUID, tick: datetime | None) -> datetime | None:
        """Settle and return the head: the time to run now, None when there is none."""
        async with self._database.begin() as connection:
            state = await ledger.lock(connection, activity_id)
            if state is None:
                return None
            settled = await settle_locked(connection, self._definitions, state, tick)
        return await self.settle(activity_id, tick) if settled.behind else settled.plan.head

    async def settle_overdue(self, activity_id: uuid.UUID, overdue_seconds: float) -> datetime | None:
        """The poller's settle: only if nobody else is at it."""
        async with self._database.begin() as connection:
            state = await ledger.lock_if_overdue(connection, activity_id, overdue_seconds)
            if state is None:
                return None
            return (await settle_locked(connection, self._definitions, state)).plan.head
