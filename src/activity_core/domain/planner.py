"""What becomes of the times that wait: the one place where misfire policies are decided. Pure: no clock, no I/O.

The ledger's settle calls it under the activity's lock and writes what it answers; a simulation calls it with times that
never happened. Of the three policies `skip` is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class WaitingTime:
    scheduled_for: datetime
    interval_start: datetime | None


@dataclass(frozen=True, slots=True)
class RunSpan:
    """When a run of the activity was open: [began, ended), `ended` None while it is."""

    began: datetime
    ended: datetime | None

    def covers(self, instant: datetime) -> bool:
        return self.began <= instant and (self.ended is None or instant < self.ended)


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: str
    reason_code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`decisions`: times that get an outcome now. `head`: the time to run now, None while a run is open."""

    decisions: dict[datetime, Decision] = field(default_factory=dict)
    head: datetime | None = None


def plan_times(waiting: Sequence[WaitingTime], *, now: datetime, grace: timedelta, runs: Sequence[RunSpan]) -> Plan:
    """Decide the waiting times (ascending) of an activity with misfire policy `skip`.

    A time at which a run was open is skipped as `overlap`; one that waits longer than the grace is skipped as `late`;
    of the rest the oldest is the head, unless a run is open.
    """
    overlap = Decision("skipped", "overlap", "a run of this activity was still open at this time")
    late = Decision("skipped", "late", f"not started within its grace of {grace // timedelta(seconds=1)} s")
    decisions: dict[datetime, Decision] = {}
    for time in waiting:
        if any(run.covers(time.scheduled_for) for run in runs):
            decisions[time.scheduled_for] = overlap
        elif now - time.scheduled_for > grace:
            decisions[time.scheduled_for] = late
    if any(run.ended is None for run in runs):
        return Plan(decisions)
    head = next((time.scheduled_for for time in waiting if time.scheduled_for not in decisions), None)
    return Plan(decisions, head)
