"""A model life of one activity's ledger for the planner's tests: settle, gate, ends, pauses, edits, backfills.

It knows of the planner only `plan_times` and `covered_by`. What the ledger must look like is judged by `check`, which
reads the journal and calls neither.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from activity_core.domain.planner import (
    MERGED,
    Plan,
    PlanAs,
    Policy,
    RunSpan,
    WaitingTime,
    covered_by,
    plan_times,
)

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
PERIOD = 60
FINAL = ("started", "merged", "skipped", "dropped")


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@dataclass
class Row:
    interval_start: datetime
    outcome: str = "waiting"
    reason_code: str = ""
    plan_as: PlanAs | None = None
    into: datetime | None = None


@dataclass
class Run:
    scheduled_for: datetime
    began: datetime
    covers: tuple[datetime, ...]
    window_start: datetime | None
    decided_as: str
    ended: datetime | None = None


@dataclass(frozen=True)
class Change:
    """One entry of the journal: a row went from one outcome to another."""

    at: datetime
    time: datetime
    old: str
    new: str
    reason_code: str
    decided_as: str


@dataclass(frozen=True)
class Rules:
    policy: Policy = "compress"
    grace: int = 60
    limit: int = 3
    allow_all: bool = False


@dataclass
class Life:
    rules: Rules
    period: int = PERIOD
    now: float = 0.0
    paused: bool = False
    rows: dict[datetime, Row] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    journal: list[Change] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    due: set[datetime] = field(default_factory=set)
    asked: list[datetime] = field(default_factory=list)
    _watermark: float = 0.0
    _previous: datetime = START - timedelta(seconds=PERIOD)

    def settle(self) -> Plan:
        second = (self._watermark // self.period + 1) * self.period
        while second <= self.now:
            self.due.add(at(second))
            self.rows[at(second)] = Row(self._previous)
            self._previous = at(second)
            second += self.period
        self._watermark = self.now
        waiting = [
            WaitingTime(time, self.rows[time].interval_start, self.rows[time].plan_as) for time in self.waiting()
        ]
        plan = plan_times(
            waiting,
            policy=self.rules.policy,
            now=at(self.now),
            grace=timedelta(seconds=self.rules.grace),
            catchup_limit=self.rules.limit,
            runs=[RunSpan(run.began, run.ended, run.decided_as == "run") for run in self.runs],
            paused=self.paused,
            allow_all=self.rules.allow_all,
        )
        self._check_catchup(plan)
        for time, decision in plan.decisions.items():
            self._write(time, decision.outcome, decision.reason_code)
        self._check_plan(plan)
        return plan

    def waiting(self) -> list[datetime]:
        return sorted(time for time, row in self.rows.items() if row.outcome == "waiting")

    def decided_as(self, time: datetime) -> str:
        return self.rows[time].plan_as or self.rules.policy

    def misfired(self, time: datetime) -> bool:
        return (at(self.now) - time).total_seconds() > self.rules.grace

    def ask(self) -> None:
        """What a fire does: settle, and start the heads, which reach the gate when they do."""
        self.asked += [head.scheduled_for for head in self.settle().heads if head.scheduled_for not in self.asked]

    def arrive(self, which: int) -> bool:
        """One of the starts on the way is at the gate. False: it has to come again."""
        if not self.asked:
            return False
        time = self.asked[which % len(self.asked)]
        plan = self.settle()
        cover = covered_by(plan, time) if self.rows[time].outcome == "waiting" else None
        if cover is None:
            if self.rows[time].outcome != "waiting":
                self.asked.remove(time)
            return False
        self.asked.remove(time)
        if self.paused or (self.is_open() and not self.rules.allow_all):
            self.faults.append(f"{time} may start while paused or a run is open")
        oldest = min(self.waiting(), key=lambda waiting: (self.decided_as(waiting) == "run", waiting))
        if not self.rules.allow_all and oldest != cover.members[0]:
            self.faults.append(f"{time} may start before {oldest}")
        run = Run(time, at(self.now), cover.members, cover.window_start, self.decided_as(time))
        for member in cover.members[:-1]:
            if not self.misfired(member):
                self.faults.append(f"{member} is merged without being misfired")
            self._write(member, MERGED.outcome, MERGED.reason_code)
            self.rows[member].into = time
        self._write(time, "started", "")
        self.runs.append(run)
        return True

    def is_open(self) -> bool:
        return any(run.ended is None for run in self.runs)

    def end_run(self) -> None:
        for run in self.runs:
            if run.ended is None:
                run.ended = at(self.now)
                return

    def pause(self) -> None:
        self.settle()
        self.paused = True

    def resume(self, on_misfire: Policy | None) -> None:
        self.settle()
        if on_misfire is not None and self.paused:
            for time in self.waiting():
                self.rows[time].plan_as = on_misfire
        self.paused = False
        self.settle()

    def edit_policy(self, policy: Policy) -> None:
        self.settle()
        for time in self.waiting():
            self.rows[time].plan_as = self.rows[time].plan_as or self.rules.policy
        self.rules = replace(self.rules, policy=policy)

    def edit_times(self, period: int) -> None:
        self.settle()
        self.period = period

    def backfill(self, which: int, plan_as: PlanAs) -> None:
        self.settle()
        handled = sorted(time for time, row in self.rows.items() if row.outcome in ("skipped", "dropped"))
        for time in handled[which % len(handled) :][:4] if handled else []:
            self._write(time, "waiting", "")
            self.rows[time].plan_as = plan_as

    def drain(self) -> None:
        """Let everything that waits come to its end. A planner that stalls leaves a fault."""
        self.resume(None)
        for _ in range(len(self.rows) * 3 + 10):
            while self.is_open():
                self.end_run()
            self.ask()
            if not self.waiting():
                return
            if not any(self.arrive(self.asked.index(time)) for time in list(self.asked)):
                break
            self.now += 1
        self.faults.append(f"stalled with {self.waiting()}")

    def _write(self, time: datetime, outcome: str, reason_code: str) -> None:
        row = self.rows[time]
        self.journal.append(Change(at(self.now), time, row.outcome, outcome, reason_code, self.decided_as(time)))
        row.outcome, row.reason_code = outcome, reason_code

    def _check_catchup(self, plan: Plan) -> None:
        if self.paused:
            return
        misfired = [t for t in self.waiting() if self.decided_as(t) == "catchup" and self.misfired(t)]
        dropped = sorted(time for time, decision in plan.decisions.items() if decision.outcome == "dropped")
        if dropped != sorted(misfired, reverse=True)[self.rules.limit :][::-1]:
            self.faults.append(f"dropped {dropped} of {misfired}")

    def _check_plan(self, plan: Plan) -> None:
        if self.paused and (plan.decisions or plan.heads):
            self.faults.append("something is decided while paused")
        if not self.rules.allow_all and len(plan.heads) > (0 if self.is_open() else 1):
            self.faults.append(f"{len(plan.heads)} heads")
        members = [member for head in plan.heads for member in head.members]
        in_turn = sorted(self.waiting(), key=lambda time: (self.decided_as(time) == "run", time))
        if plan.heads and members != in_turn[: len(members)]:
            self.faults.append(f"heads {members}, but {in_turn} wait")
        others = [time for time in in_turn if self.decided_as(time) != "run"]
        if not self.paused and self.rules.allow_all and members[: len(others)] != others:
            self.faults.append(f"heads {members}, but {others} may run")
        if self.waiting() and not self.paused and not plan.heads and not self.is_open():
            self.faults.append("times wait, nothing blocks them, and there is no head")


def check(life: Life) -> list[str]:
    """What is wrong with a drained life, in words; empty if nothing is."""
    faults = list(life.faults)
    if set(life.rows) != life.due:
        faults.append("rows and due times differ")
    faults += [f"{time} still waits" for time, row in life.rows.items() if row.outcome not in FINAL]
    faults += _journal_faults(life) + _run_faults(life) + _window_faults(life) + _decision_faults(life)
    return faults


def _journal_faults(life: Life) -> list[str]:
    allowed = {("waiting", outcome) for outcome in FINAL} | {("skipped", "waiting"), ("dropped", "waiting")}
    faults = [f"{c.time} went from {c.old} to {c.new}" for c in life.journal if (c.old, c.new) not in allowed]
    by_policy = {"skipped": "skip", "dropped": "catchup", "merged": "compress"}
    return faults + [
        f"{c.time} was {c.new} under {c.decided_as}"
        for c in life.journal
        if c.new in by_policy and c.decided_as != by_policy[c.new]
    ]


def _run_faults(life: Life) -> list[str]:
    faults = []
    times = [run.scheduled_for for run in life.runs]
    if len(times) != len(set(times)):
        faults.append("a time ran twice")
    for run in life.runs:
        lateness = (run.began - run.scheduled_for).total_seconds()
        if run.decided_as == "skip" and lateness > life.rules.grace:
            faults.append(f"{run.scheduled_for} ran {lateness} s late under skip")
        counted = [other for other in life.runs if other is not run and other.decided_as != "run"]
        others = [other for other in counted if other.began <= run.scheduled_for]
        open_then = [other for other in others if other.ended is None or other.ended > run.scheduled_for]
        if run.decided_as == "skip" and not life.rules.allow_all and open_then:
            faults.append(f"{run.scheduled_for} ran under skip though a run was open")
    if not life.rules.allow_all:
        faults += [
            f"{one.scheduled_for} and {two.scheduled_for} were open at once"
            for one, two in zip(life.runs, life.runs[1:], strict=False)
            if one.ended is None or one.ended > two.began
        ]
    return faults


def _window_faults(life: Life) -> list[str]:
    """Every interval of a time that ran or was merged lies in exactly one window; of any other, in none."""
    faults = []
    covered = dict.fromkeys(life.rows, 0)
    for run in life.runs:
        for time in life.rows:
            if run.window_start is not None and run.window_start < time <= run.scheduled_for:
                covered[time] += 1
        if any(life.rows[time].into != run.scheduled_for for time in run.covers[:-1]):
            faults.append(f"{run.scheduled_for} covers what was not merged into it")
    for time, row in life.rows.items():
        if covered[time] != (1 if row.outcome in ("started", "merged") else 0):
            faults.append(f"{time} ({row.outcome}) is in {covered[time]} windows")
    return faults


def _decision_faults(life: Life) -> list[str]:
    faults = []
    for change in life.journal:
        # open at that time: [began, ended), and one that ends at this very instant was still open when it was decided
        open_then = [
            run
            for run in life.runs
            if run.decided_as != "run"
            and run.began <= change.time
            and (run.ended is None or run.ended > change.time or run.ended >= change.at)
        ]
        overlapped = bool(open_then) and not life.rules.allow_all
        lateness = (change.at - change.time).total_seconds()
        if change.reason_code == "overlap" and not overlapped:
            faults.append(f"{change.time} is an overlap of nothing")
        if change.reason_code == "late" and (overlapped or lateness <= life.rules.grace):
            faults.append(f"{change.time} is late by {lateness} s, overlapped {overlapped}")
        if change.reason_code == "over_limit" and lateness <= life.rules.grace:
            faults.append(f"{change.time} was dropped without being misfired")
    return faults
