"""What becomes of the times that wait: the one place where misfire policies are decided. Pure: no clock, no I/O.

The ledger's settle calls it under the activity's lock and writes what it answers, the gate asks it what a start may
cover, and a simulation calls it with times that never happened.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Literal

Policy = Literal["skip", "catchup", "compress"]
# What a waiting row may be decided as, whatever the activity's policy is by now. `run` (a backfill that a user asked
# for) knows no grace and no limit.
PlanAs = Literal["skip", "catchup", "compress", "run"]

_FOREVER = datetime.max.replace(tzinfo=UTC)


# With `allow_all`, how many runs may be open for a backfilled time to start.
BACKFILL_PARALLEL = 10


@dataclass(frozen=True, slots=True)
class WaitingTime:
    """A time without an outcome. `interval_start`: the nominal time before it; `plan_as` outranks the policy.

    `jitter` after its nominal time it is due: lateness and overlap are judged from there.
    """

    scheduled_for: datetime
    interval_start: datetime | None
    plan_as: PlanAs | None = None
    jitter: timedelta = timedelta(0)

    @property
    def due(self) -> datetime:
        return self.scheduled_for + self.jitter


@dataclass(frozen=True, slots=True)
class RunSpan:
    """When a run of the activity was open: [began, ended), `ended` None while it is."""

    began: datetime
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Equal for all times of a group, so that a group is written as one set: nothing of a single time is in it."""

    outcome: str
    reason_code: str
    reason: str


# Written by the gate with the start of the run that covers them, never before: that run may not come to be.
MERGED = Decision("merged", "compressed", "covered by the run of a later time of the same misfired block")


@dataclass(frozen=True, slots=True)
class Head:
    """A run that may start. `members`: the times it covers, ascending, the last is `scheduled_for`.

    Its window is [window_start, scheduled_for); `window_start` is None when there is no nominal time before (`once`).
    """

    scheduled_for: datetime
    members: tuple[datetime, ...]
    window_start: datetime | None


@dataclass(frozen=True, slots=True)
class Plan:
    """`decisions`: times that get an outcome now. `heads`: what may start now, oldest first.

    At most one head, and none while a run is open, unless runs may overlap.
    """

    decisions: dict[datetime, Decision] = field(default_factory=dict)
    heads: tuple[Head, ...] = ()

    @property
    def head(self) -> datetime | None:
        """The time to run first; None when nothing may start."""
        return self.heads[0].scheduled_for if self.heads else None


def plan_times(
    waiting: Sequence[WaitingTime],
    *,
    policy: Policy,
    now: datetime,
    grace: timedelta,
    catchup_limit: int,
    runs: Sequence[RunSpan],
    paused: bool = False,
    allow_all: bool = False,
) -> Plan:
    """Decide all waiting times of an activity: ascending, nominal times not after `now`. Those not due yet are left.

    A time that waits longer than the grace is misfired. `skip` skips it, and any time at which a run was open;
    `catchup` drops all but the newest `catchup_limit` (at least 1) and runs the rest one at a time; `compress` runs each
    contiguous block once. Backfilled times (`run`) come after all others. `runs` are all runs, of whatever origin, that
    are open or ended after the oldest waiting time. `allow_all` starts every head without waiting for another's end, so
    overlap skips nothing.
    """
    if paused:
        return Plan()
    waiting = [row for row in waiting if row.due <= now]
    cutoff = now - grace
    decisions = _skipped([row for row in waiting if (row.plan_as or policy) == "skip"], cutoff, grace, runs, allow_all)
    caught_up = [row for row in waiting if (row.plan_as or policy) == "catchup" and row.due < cutoff]
    decisions |= _over_limit(caught_up, catchup_limit)
    open_runs = sum(run.ended is None for run in runs)
    if open_runs and not allow_all:
        return Plan(decisions)
    left = [row for row in waiting if row.scheduled_for not in decisions]
    blocks = _blocks((row for row in left if row.plan_as != "run"), policy, cutoff)
    backfilled = _blocks((row for row in left if row.plan_as == "run"), policy, cutoff)
    if allow_all:
        parallel = max(0, BACKFILL_PARALLEL - open_runs)
        return Plan(decisions, tuple(_head(block) for block in chain(blocks, islice(backfilled, parallel))))
    return Plan(decisions, tuple(_head(block) for block in islice(chain(blocks, backfilled), 1)))


def covered_by(plan: Plan, scheduled_for: datetime) -> Head | None:
    """What a run of `scheduled_for` that asks to start now covers; None if it may not start now.

    Any member of a block may start and covers up to itself. Were it the newest alone, a start slower than the interval
    would find itself merged away, and so would the next.
    """
    for head in plan.heads:
        place = bisect_left(head.members, scheduled_for)
        if place < len(head.members) and head.members[place] == scheduled_for:
            return Head(scheduled_for, head.members[: place + 1], head.window_start)
    return None


def _skipped(
    rows: list[WaitingTime], cutoff: datetime, grace: timedelta, runs: Sequence[RunSpan], allow_all: bool
) -> dict[datetime, Decision]:
    overlap = Decision("skipped", "overlap", "a run of this activity was still open at this time")
    late = Decision("skipped", "late", f"not started within its grace of {grace // timedelta(seconds=1)} s")
    overlapped = set() if allow_all else _within(rows, runs)
    return {
        row.scheduled_for: overlap if row.scheduled_for in overlapped else late
        for row in rows
        if row.scheduled_for in overlapped or row.due < cutoff
    }


def _within(rows: list[WaitingTime], runs: Sequence[RunSpan]) -> set[datetime]:
    """The times at which a run was open. One pass over both: an outage leaves thousands of either."""
    spans = sorted((run.began, run.ended or _FOREVER) for run in runs)
    found: set[datetime] = set()
    following, open_until = 0, datetime.min.replace(tzinfo=UTC)
    for row in sorted(rows, key=lambda row: row.due):
        while following < len(spans) and spans[following][0] <= row.due:
            open_until = max(open_until, spans[following][1])
            following += 1
        if row.due < open_until:
            found.add(row.scheduled_for)
    return found


def _over_limit(misfired: list[WaitingTime], catchup_limit: int) -> dict[datetime, Decision]:
    dropped = Decision(
        "dropped", "over_limit", f"of the misfired times no more than the newest {catchup_limit} are caught up"
    )
    return {row.scheduled_for: dropped for row in misfired[: max(0, len(misfired) - catchup_limit)]}


def _blocks(rows: Iterator[WaitingTime], policy: Policy, cutoff: datetime) -> Iterator[list[WaitingTime]]:
    """What runs together, oldest first: chains of misfired times to compress; any other time is alone.

    A time that is not the start of the next one's interval ends the chain: something handled lies between, and the
    window of a run may not reach over it.
    """
    block: list[WaitingTime] = []
    chains = False
    for row in rows:
        chained = chains
        chains = (row.plan_as or policy) == "compress" and row.due < cutoff
        if block and chained and chains and row.interval_start == block[-1].scheduled_for:
            block.append(row)
            continue
        if block:
            yield block
        block = [row]
    if block:
        yield block


def _head(block: list[WaitingTime]) -> Head:
    return Head(block[-1].scheduled_for, tuple(row.scheduled_for for row in block), block[0].interval_start)
