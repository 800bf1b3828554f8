"""What would become of a trigger's times: simulated by the planner that the runtime uses, with nothing stored."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from activity_core.domain.documents import TimeTrigger, times_of
from activity_core.domain.simulation import Due, Edit, Outage, Pause, Rules, Simulation, simulate
from activity_core.domain.times import Times
from activity_core.errors import UnavailableError

T = TypeVar("T")
Breathe = Callable[[], None]

MAX_IN_LINE = 4
# A thread that computes lets the event loop wait 5 ms for the interpreter after each system call. Sleeping a moment in
# each millisecond costs a simulation a fifth of its speed and leaves the API over 90 % of its own, instead of 16 %.
COMPUTING_SECONDS, SLEEPING_SECONDS = 0.001, 0.0001
# Instants have microseconds, so that (start - RESOLUTION, end - RESOLUTION] is [start, end), whole seconds or not.
RESOLUTION = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Question:
    """`start` < `end`; `edits` are (at, trigger) with `at` within [start, end)."""

    trigger: TimeTrigger
    start: datetime
    end: datetime
    run_time: timedelta
    outages: tuple[Outage, ...] = ()
    pauses: tuple[Pause, ...] = ()
    edits: tuple[tuple[datetime, TimeTrigger], ...] = ()


class Simulating:
    """Simulates in a thread of its own, one at a time however many ask."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simulating")
        self._in_line = 0

    async def answer(self, question: Question, shown: Callable[[Simulation, Breathe], T]) -> T:
        """`shown` of the simulation, called in the thread too.

        Raises SimulationTooLongError, and UnavailableError when too many wait already.
        """
        if self._in_line >= MAX_IN_LINE:
            raise UnavailableError(f"{self._in_line} simulations are under way or waiting; try again in some seconds")
        self._in_line += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, _answer, question, shown)
        finally:
            self._in_line -= 1


def _answer(question: Question, shown: Callable[[Simulation, Breathe], T]) -> T:
    breathe = _breathing()
    return shown(simulated(question, breathe), breathe)


def simulated(question: Question, breathe: Breathe = lambda: None) -> Simulation:
    """The nominal times in [start, end), and their ledger as it stands when `end` comes. 50,000 times take a second.

    What would be decided or started at `end` or later still waits. The activity is taken to be as old as its trigger's
    times, with no run open at `start`. Jitter is left out: it follows from the activity's id. Raises
    SimulationTooLongError.
    """

    def run_time(_: datetime) -> timedelta:
        breathe()
        return question.run_time

    times = due_times(question.trigger)
    return simulate(
        _due(times, breathe),
        _rules(question.trigger),
        after=question.start - RESOLUTION,
        until=question.end - RESOLUTION,
        run_time=run_time,
        previous=times.previous_before(question.start),
        first_start=times.interval_start,
        outages=question.outages,
        pauses=question.pauses,
        edits=[_edit(at, trigger, breathe) for at, trigger in question.edits],
    )


def due_times(trigger: TimeTrigger) -> Times:
    """The due times of a trigger that has such."""
    times = times_of(trigger)
    assert times is not None  # noqa: S101 (of each kind of TimeTrigger)
    return times


def _edit(at: datetime, trigger: TimeTrigger, breathe: Breathe) -> Edit:
    times = due_times(trigger)
    return Edit(at, _rules(trigger), _due(times, breathe), times.interval_start)


def _rules(trigger: TimeTrigger) -> Rules:
    return Rules(
        trigger.misfire_policy,
        timedelta(seconds=trigger.misfire_grace_seconds),
        trigger.catchup_limit,
        trigger.overlap_policy == "allow_all",
    )


def _due(times: Times, breathe: Breathe) -> Due:
    def due(after: datetime, until: datetime) -> Iterator[datetime]:
        for nominal in times.iterate(after, until):
            breathe()
            yield nominal

    return due


def _breathing() -> Breathe:
    """To be called often; sleeps when it was computed long enough."""
    slept = time.monotonic()

    def breathe() -> None:
        nonlocal slept
        if time.monotonic() - slept > COMPUTING_SECONDS:
            time.sleep(SLEEPING_SECONDS)
            slept = time.monotonic()

    return breathe
