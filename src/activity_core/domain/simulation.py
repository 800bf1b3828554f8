"""What an activity's times would become: a life of its ledger with outages, pauses and edits, planned by `planner`.

Pure. The life goes from instant to instant at which something may change, and at each of them does what settle, the
gate and the end of a run do. It settles only where something could start: how often a ledger is settled while nothing
can start changes nothing in it, so that workers down and Temporal down come to the same.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from activity_core.domain.planner import MERGED, Head, Plan, Policy, RunSpan, WaitingTime, covered_by, plan_times

MAX_OCCURRENCES = 50_000
# Rows and runs looked at by the planner, all settles together: a second or two of one core.
MAX_PLANNED_ROWS = 3_000_000

Cause = Literal["worker_down", "temporal_down", "overload"]
# The nominal times in (after, until], ascending. May be lazy.
Due = Callable[[datetime, datetime], Iterable[datetime]]
# Where the interval of the first nominal time of all begins: no time of the ledger is before it.
FirstStart = Callable[[datetime], datetime | None]
# How long the run of a nominal time takes.
RunTime = Callable[[datetime], timedelta]


class SimulationTooLongError(ValueError):
    """The range holds more than can be simulated at once; the message says to narrow it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; narrow the range from `from` to `to`")


@dataclass(frozen=True, slots=True)
class Rules:
    policy: Policy
    grace: timedelta = timedelta(seconds=60)
    catchup_limit: int = 10
    allow_all: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """[start, end). Nothing starts, and runs that would end in it end with it.

    In an overload runs end as always. With a `start_delay` starts do get through in it, that much later.
    """

    start: datetime
    end: datetime
    cause: Cause
    start_delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """[start, end). `on_misfire` is what resume says about the times that waited; None: their policy."""

    start: datetime
    end: datetime
    on_misfire: Policy | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """A new revision at an instant; what is None stays. Times up to and including `at` are due by the old one."""

    at: datetime
    rules: Rules | None = None
    due: Due | None = None
    first_start: FirstStart | None = None


@dataclass(frozen=True, slots=True)
class SimulatedOccurrence:
    scheduled_for: datetime
    outcome: str
    reason_code: str
    merged_into: datetime | None = None


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """`window`: [start, end), start None if no nominal time is known before. `covers`: its times, ascending."""

    scheduled_for: datetime
    started_at: datetime
    window: tuple[datetime | None, datetime]
    covers: tuple[datetime, ...]


@dataclass(frozen=True, slots=True)
class Simulation:
    """Occurrences by nominal time, runs by start."""

    occurrences: tuple[SimulatedOccurrence, ...]
    runs: tuple[SimulatedRun, ...]


def _unknown(_first: datetime) -> None:
    return None


def simulate(
    due: Due,
    rules: Rules,
    *,
    after: datetime,
    until: datetime,
    run_time: RunTime,
    previous: datetime | None = None,
    first_start: FirstStart = _unknown,
    outages: Sequence[Outage] = (),
    pauses: Sequence[Pause] = (),
    edits: Sequence[Edit] = (),
) -> Simulation:
    """The ledger and the runs of the nominal times in (after, until], as they stand at `until`.

    `previous` is the last nominal time at or before `after`: the first interval starts there, or where `first_start`
    says if there is none. What still waits at `until` says so; an outage that lasts beyond it is taken to be settled
    through it, as the next settle would. Raises ValueError for spans that end before they start and edits outside the
    range, SimulationTooLongError for more than 50,000 times.
    """
    for start, end in [*((o.start, o.end) for o in outages), *((p.start, p.end) for p in pauses)]:
        if end <= start:
            raise ValueError(f"the span that starts at {start.isoformat()} ends at {end.isoformat()}, not after it")
    for edit in edits:
        if not after < edit.at <= until:
            raise ValueError(f"the edit at {edit.at.isoformat()} is not within the range")
    return _Life(due, rules, after, until, run_time, previous, first_start, outages, pauses, edits).live()


class _Life:
    def __init__(
        self,
        due: Due,
        rules: Rules,
        after: datetime,
        until: datetime,
        run_time: RunTime,
        previous: datetime | None,
        first_start: FirstStart,
        outages: Sequence[Outage],
        pauses: Sequence[Pause],
        edits: Sequence[Edit],
    ) -> None:
        self._rules, self._after, self._until, self._run_time = rules, after, until, run_time
        self._previous, self._first_start = previous, first_start
        self._upcoming: Iterator[datetime] = iter(())
        self._following: datetime | None = None
        self._take_times(due, after)
        self._changes = sorted(self._all_changes(outages, pauses, edits), key=lambda change: change[:2])
        self._stops = sorted((o.start, o.end) for o in outages if o.cause != "overload")
        self._delays: list[timedelta] = []
        self._blocked = 0
        self._paused = 0
        # The ledger: what waits (ascending, as times only ever come in at the end) and what is decided.
        self._waiting: dict[datetime, WaitingTime] = {}
        self._due_under: dict[datetime, Rules] = {}
        self._decided: dict[datetime, SimulatedOccurrence] = {}
        self._runs: list[SimulatedRun] = []
        self._open: list[tuple[datetime, datetime]] = []  # heap of (end, began)
        self._closed: list[RunSpan] = []  # those that a waiting time may have fallen into
        self._asked: dict[datetime, datetime] = {}  # time that asks to start: when it comes to the gate
        self._planned_rows = 0

    def live(self) -> Simulation:
        now: datetime | None = self._after
        while now is not None and now <= self._until:
            self._end_runs(now)
            while self._changes and self._changes[0][0] <= now:
                self._changes.pop(0)[2](now)
            while self._start_something(now):
                self._end_runs(now)
            now = self._next_instant(now)
        self._settle(self._until)
        waits = "paused" if self._paused else "due"
        for time in self._waiting:
            self._decided[time] = SimulatedOccurrence(time, "waiting", waits)
        return Simulation(tuple(self._decided[time] for time in sorted(self._decided)), tuple(self._runs))

    def _next_instant(self, now: datetime) -> datetime | None:
        instants = [arrives for arrives in self._asked.values() if arrives > now]
        if self._changes:
            instants.append(self._changes[0][0])
        if self._open:
            instants.append(self._open[0][0])
        if self._following is not None and self._may_start():
            instants.append(self._following)
        return min(instants, default=None)

    # The ledger

    def _settle(self, now: datetime) -> Plan:
        while self._following is not None and self._following <= now:
            if len(self._decided) + len(self._waiting) >= MAX_OCCURRENCES:
                raise SimulationTooLongError(f"more than {MAX_OCCURRENCES:,} times are due")
            start = self._previous if self._previous is not None else self._first_start(self._following)
            self._waiting[self._following] = WaitingTime(self._following, start)
            self._due_under[self._following] = self._rules
            self._previous, self._following = self._following, next(self._upcoming, None)
        if not self._waiting:
            self._closed.clear()
            return Plan()
        oldest = next(iter(self._waiting))
        self._closed = [span for span in self._closed if span.ended is not None and span.ended > oldest]
        runs = [] if self._rules.allow_all else [*self._closed, *(RunSpan(began, None) for _, began in self._open)]
        self._planned_rows += len(self._waiting) + len(runs)
        if self._planned_rows > MAX_PLANNED_ROWS:
            raise SimulationTooLongError("too many times wait for too long")
        plan = plan_times(
            list(self._waiting.values()),
            policy=self._rules.policy,
            now=now,
            grace=self._rules.grace,
            catchup_limit=self._rules.catchup_limit,
            runs=runs,
            paused=self._paused > 0,
            allow_all=self._rules.allow_all,
        )
        for time, decision in plan.decisions.items():
            self._decide(time, decision.outcome, decision.reason_code)
        return plan

    def _decide(self, time: datetime, outcome: str, reason_code: str, merged_into: datetime | None = None) -> None:
        del self._waiting[time]
        self._asked.pop(time, None)
        self._decided[time] = SimulatedOccurrence(time, outcome, reason_code, merged_into)

    def _plan_waiting_as(self, policy: Policy, *, outranked: bool) -> None:
        """Mark what waits, `outranked` by the marks that are there already, or in their place."""
        for time, row in self._waiting.items():
            if row.plan_as is None or not outranked:
                rules = self._due_under[time]
                self._waiting[time] = replace(row, plan_as=policy, grace=rules.grace, catchup_limit=rules.catchup_limit)

    # Starts and ends

    def _may_start(self) -> bool:
        return not self._blocked and not self._paused and (self._rules.allow_all or not self._open)

    def _start_something(self, now: datetime) -> bool:
        """Let one run start, or ask to; True if there may be more to start at this instant."""
        if not self._may_start():
            return False
        plan = self._settle(now)
        for time in sorted(time for time, arrives in self._asked.items() if arrives <= now):
            head = covered_by(plan, time)
            if head is not None:
                self._start(head, now)
                return True
        if not self._rules.allow_all and any(arrives > now for arrives in self._asked.values()):
            return False
        if self._delays:
            fresh = [head.scheduled_for for head in plan.heads if head.scheduled_for not in self._asked]
            self._asked |= dict.fromkeys(fresh, now + max(self._delays))
        elif plan.heads:
            self._start(plan.heads[0], now)
            return True
        return False

    def _start(self, head: Head, now: datetime) -> None:
        for time in head.members[:-1]:
            self._decide(time, MERGED.outcome, MERGED.reason_code, head.scheduled_for)
        late = now - head.scheduled_for > self._rules.grace
        self._decide(head.scheduled_for, "started", "late" if late else "on_time")
        self._runs.append(SimulatedRun(head.scheduled_for, now, (head.window_start, head.scheduled_for), head.members))
        heapq.heappush(self._open, (self._end_of(now + self._run_time(head.scheduled_for)), now))

    def _end_of(self, end: datetime) -> datetime:
        """When a run ends that would end then: no end is written while a stop lasts."""
        for start, stop_end in self._stops:
            if start <= end < stop_end:
                end = stop_end
        return end

    def _end_runs(self, now: datetime) -> None:
        while self._open and self._open[0][0] <= now:
            end, began = heapq.heappop(self._open)
            self._closed.append(RunSpan(began, end))

    # Changes from outside

    def _take_times(self, due: Due, after: datetime) -> None:
        self._upcoming = iter(due(after, self._until))
        self._following = next(self._upcoming, None)

    def _all_changes(
        self, outages: Sequence[Outage], pauses: Sequence[Pause], edits: Sequence[Edit]
    ) -> Iterator[tuple[datetime, int, Callable[[datetime], None]]]:
        """(instant, rank, change): at one instant first what ends, then edits, then what begins."""
        for outage in outages:
            yield outage.end, 0, partial(self._end_outage, outage)
            yield outage.start, 2, partial(self._begin_outage, outage)
        for pause in pauses:
            yield pause.end, 0, partial(self._resume, pause)
            yield pause.start, 2, self._pause
        for edit in edits:
            yield edit.at, 1, partial(self._edit, edit)

    def _begin_outage(self, outage: Outage, now: datetime) -> None:
        if outage.cause == "overload" and outage.start_delay is not None:
            self._delays.append(outage.start_delay)
        else:
            self._blocked += 1

    def _end_outage(self, outage: Outage, now: datetime) -> None:
        if outage.cause == "overload" and outage.start_delay is not None:
            self._delays.remove(outage.start_delay)
        else:
            self._blocked -= 1

    def _pause(self, now: datetime) -> None:
        self._settle(now)
        self._paused += 1

    def _resume(self, pause: Pause, now: datetime) -> None:
        self._settle(now)
        if pause.on_misfire is not None:
            self._plan_waiting_as(pause.on_misfire, outranked=False)
        self._paused -= 1

    def _edit(self, edit: Edit, now: datetime) -> None:
        self._settle(now)
        if edit.rules is not None:
            if edit.rules.policy != self._rules.policy:
                self._plan_waiting_as(self._rules.policy, outranked=True)
            self._rules = edit.rules
        if edit.first_start is not None:
            self._first_start = edit.first_start
        if edit.due is not None:
            self._take_times(edit.due, now)
