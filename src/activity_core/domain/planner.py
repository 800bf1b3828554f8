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

    `jitter` after its nominal time it is due: lateness and overlap are judged from there. `grace` and `catchup_limit`
    outrank the activity's: those of the revision that the time was due under, where `plan_as` says what that was.
    """

    scheduled_for: datetime
    interval_start: datetime | None
    plan_as: PlanAs | None = None
    jitter: timedelta = timedelta(0)
    grace: timedelta | None = None
    catchup_limit: int | None = None

    @property
    def due(self) -> datetime:
        return self.scheduled_for + self.jitter


@dataclass(frozen=True, slots=True)
class RunSpan:
    """When a run of the activity was open: [began, ended), `ended` None while it is.

    A backfilled one (`backfill`) blocks the next start as any other, but no time is skipped for it.
    """

    began: datetime
    ended: datetime | None
    backfill: bool = False


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

    A time that waits longer than the grace is misfired. `skip` skips it, and any time at which a run was open: at once
    when that has ended, and when it is open still, as soon as the time is misfired, since an end may come to be known late.
    `catchup` drops all but the newest `catchup_limit` (at least 1) and runs the rest one at a time; `compress` runs each
    contiguous block once. Backfilled times (`run`) come after all others. `runs` are all runs, of whatever origin, that
    are open or ended after the oldest waiting time. `allow_all` starts every head without waiting for another's end, so
    overlap skips nothing.
    """
    if paused:
        return Plan()
    waiting = [row for row in waiting if row.due <= now]
    misfired = {row.scheduled_for for row in waiting if now - row.due > (grace if row.grace is None else row.grace)}
    skipping = [row for row in waiting if (row.plan_as or policy) == "skip"]
    decisions = _skipped(skipping, misfired, grace, [] if allow_all else runs)
    caught_up = [row for row in waiting if (row.plan_as or policy) == "catchup" and row.scheduled_for in misfired]
    decisions |= _over_limit(caught_up, catchup_limit)
    open_runs = sum(run.ended is None for run in runs)
    if open_runs and not allow_all:
        return Plan(decisions)
    left = [row for row in waiting if row.scheduled_for not in decisions]
    blocks = _blocks((row for row in left if row.plan_as != "run"), policy, misfired)
    backfilled = _blocks((row for row in left if row.plan_as == "run"), policy, misfired)
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
    rows: list[WaitingTime], misfired: set[datetime], grace: timedelta, runs: Sequence[RunSpan]
) -> dict[datetime, Decision]:
    overlap = Decision("skipped", "overlap", "a run of this activity was still open at this time")
    counted = [run for run in runs if not run.backfill]
    overlapped = _within(rows, [run for run in counted if run.ended is not None])
    overlapped |= misfired & _within(rows, counted)
    found = {}
    for row in rows:
        if row.scheduled_for in overlapped:
            found[row.scheduled_for] = overlap
        elif row.scheduled_for in misfired:
            seconds = (grace if row.grace is None else row.grace) // timedelta(seconds=1)
            found[row.scheduled_for] = Decision("skipped", "late", f"not started within its grace of {seconds} s")
    return found


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
    found = {}
    for newer, row in enumerate(reversed(misfired)):
        limit = catchup_limit if row.catchup_limit is None else row.catchup_limit
        if newer >= limit:
            reason = f"of the misfired times no more than the newest {limit} are caught up"
            found[row.scheduled_for] = Decision("dropped", "over_limit", reason)
    return found


def _blocks(rows: Iterator[WaitingTime], policy: Policy, misfired: set[datetime]) -> Iterator[list[WaitingTime]]:
    """What runs together, oldest first: chains of misfired times to compress; any other time is alone.

    A time that is not the start of the next one's interval ends the chain: something handled lies between, and the
    window of a run may not reach over it.
    """
    block: list[WaitingTime] = []
    chains = False
    for row in rows:
        chained = chains
        chains = (row.plan_as or policy) == "compress" and row.scheduled_for in misfired
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
