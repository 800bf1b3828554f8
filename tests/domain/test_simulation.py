"""What a simulation answers: each policy under each cause with the answer written by hand, known cases, and any life.

The hand-written answers are what the same outages must give on a running service.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain.planner import Policy
from activity_core.domain.simulation import (
    MAX_OCCURRENCES,
    Cause,
    Due,
    Edit,
    Outage,
    Pause,
    Rules,
    Simulation,
    SimulationTooLongError,
    simulate,
)
from tests.domain import planner_life
from tests.domain.planner_life import Life

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
POLICIES: tuple[Policy, ...] = ("skip", "catchup", "compress")
CAUSES: dict[str, Cause] = {"worker_down": "worker_down", "temporal_down": "temporal_down", "overload": "overload"}
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


def every(period: timedelta) -> Due:
    """Times on the period's grid from the epoch on."""

    def due(after: datetime, until: datetime) -> Iterator[datetime]:
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        time = epoch + ((after - epoch) // period + 1) * period
        while time <= until:
            yield time
            time += period

    return due


def clock(text: str) -> datetime:
    """`05:20` is five minutes and twenty seconds past ten."""
    minutes, seconds = text.split(":")
    return TEN + int(minutes) * MINUTE + int(seconds) * SECOND


def taking(seconds: int, **longer: int) -> partial[timedelta]:
    """Runs of that many seconds; `m01=260`: the one of 10:01 takes 260."""

    def run_time(scheduled_for: datetime) -> timedelta:
        return timedelta(seconds=longer.get(f"m{scheduled_for:%M}", seconds))

    return partial(run_time)


minutely = partial(
    simulate, every(MINUTE), after=clock("-1:30"), until=clock("07:30"), previous=clock("-1:00"), run_time=taking(5)
)


def rows(simulation: Simulation) -> list[str]:
    return [
        f"{o.scheduled_for:%M} {o.outcome} {o.reason_code}"
        + (f" into {o.merged_into:%M}" if o.merged_into is not None else "")
        for o in simulation.occurrences
    ]


def runs(simulation: Simulation) -> list[str]:
    """`04 at 05:20 [01, 04) 02 03 04`: the run of 10:04, its start, its window, the times it covers."""
    return [
        f"{run.scheduled_for:%M} at {run.started_at:%M:%S} [{run.window[0]:%M}, {run.window[1]:%M}) "
        + " ".join(f"{time:%M}" for time in run.covers)
        for run in simulation.runs
    ]


# An outage from 10:01:30 to 10:05:20: 02, 03 and 04 are misfired at its end, 05 is 20 seconds late.
BEFORE = ["00 started on_time", "01 started on_time"]
AFTER = ["05 started on_time", "06 started on_time", "07 started on_time"]
BEFORE_RUNS = ["00 at 00:00 [59, 00) 00", "01 at 01:00 [00, 01) 01"]
AFTER_RUNS = ["06 at 06:00 [05, 06) 06", "07 at 07:00 [06, 07) 07"]
OUTAGE: dict[Policy, tuple[list[str], list[str]]] = {
    "skip": (
        [*BEFORE, "02 skipped late", "03 skipped late", "04 skipped late", *AFTER],
        [*BEFORE_RUNS, "05 at 05:20 [04, 05) 05", *AFTER_RUNS],
    ),
    "catchup": (
        [*BEFORE, "02 dropped over_limit", "03 started late", "04 started late", *AFTER],
        [
            *BEFORE_RUNS,
            "03 at 05:20 [02, 03) 03",
            "04 at 05:25 [03, 04) 04",
            "05 at 05:30 [04, 05) 05",
            *AFTER_RUNS,
        ],
    ),
    "compress": (
        [*BEFORE, "02 merged compressed into 04", "03 merged compressed into 04", "04 started late", *AFTER],
        [*BEFORE_RUNS, "04 at 05:20 [01, 04) 02 03 04", "05 at 05:25 [04, 05) 05", *AFTER_RUNS],
    ),
}
# A run from 10:01:00 to 10:05:20 instead: under skip it was open at 05 too.
OVERLAP: dict[Policy, tuple[list[str], list[str]]] = {
    **OUTAGE,
    "skip": (
        [*BEFORE, *(f"0{minute} skipped overlap" for minute in (2, 3, 4, 5)), *AFTER[1:]],
        [*BEFORE_RUNS, *AFTER_RUNS],
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cause", ["worker_down", "temporal_down", "overload", "paused", "overlap"])
def test_r11_what_each_policy_makes_of_each_cause(policy: Policy, cause: str) -> None:
    rules = Rules(policy, grace=MINUTE, catchup_limit=2)
    start, end = clock("01:30"), clock("05:20")
    if cause == "paused":
        simulation = minutely(rules, pauses=[Pause(start, end)])
    elif cause == "overlap":
        simulation = minutely(rules, run_time=taking(5, m01=260))
    else:
        simulation = minutely(rules, outages=[Outage(start, end, CAUSES[cause])])
    assert (rows(simulation), runs(simulation)) == (OVERLAP if cause == "overlap" else OUTAGE)[policy]


@pytest.mark.parametrize("policy", POLICIES)
def test_r14_r15_a_day_of_minutes(policy: Policy) -> None:
    """Down from 10:00:30 to 10:01:30 a day later: 1,440 times are misfired, and the last is within its grace."""
    end = TEN + DAY + 90 * SECOND
    simulation = simulate(
        every(MINUTE),
        Rules(policy, catchup_limit=10),
        after=clock("-1:30"),
        until=end + MINUTE,
        previous=clock("-1:00"),
        run_time=taking(5),
        outages=[Outage(clock("00:30"), end, "worker_down")],
    )
    missed = [TEN + minute * MINUTE for minute in range(1, 1441)]
    outcomes = {o.scheduled_for: (o.outcome, o.reason_code, o.merged_into) for o in simulation.occurrences}
    recovered = [run for run in simulation.runs if run.scheduled_for in set(missed)]
    # ... after the first run, at 10:00, and before those of 10:01 and 10:02 the day after
    assert len(simulation.runs) == len(recovered) + 3
    if policy == "skip":
        assert recovered == []
        assert {outcomes[time] for time in missed} == {("skipped", "late", None)}
    elif policy == "catchup":
        assert [run.scheduled_for for run in recovered] == missed[-10:]
        assert [run.started_at for run in recovered] == [end + n * 5 * SECOND for n in range(10)]
        assert {outcomes[time] for time in missed[:1430]} == {("dropped", "over_limit", None)}
    else:
        assert [(run.scheduled_for, run.covers, run.window) for run in recovered] == [
            (missed[-1], tuple(missed), (TEN, missed[-1]))
        ]
        assert {outcomes[time] for time in missed[:-1]} == {("merged", "compressed", missed[-1])}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", ["02:00:00 for 02:00"]),
        ("catchup", ["01:57:00 for 01:00", "02:00:00 for 02:00"]),
        ("compress", ["01:57:00 for 01:00", "02:00:00 for 02:00"]),
    ],
)
def test_r16_a_second_restart_just_after_a_recovery_adds_nothing(policy: Policy, expected: list[str]) -> None:
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    simulation = simulate(
        every(HOUR),
        Rules(policy),
        after=midnight,
        until=midnight + 2 * HOUR + 30 * MINUTE,
        previous=midnight,
        run_time=taking(20),
        outages=[
            Outage(midnight + 55 * MINUTE, midnight + 117 * MINUTE, "worker_down"),
            Outage(midnight + 118 * MINUTE, midnight + 118 * MINUTE + 10 * SECOND, "worker_down"),
        ],
    )
    assert [f"{run.started_at:%H:%M:%S} for {run.scheduled_for:%H:%M}" for run in simulation.runs] == expected


def test_r12_each_time_is_judged_by_its_own_lateness() -> None:
    short = minutely(Rules("skip"), outages=[Outage(clock("01:30"), clock("02:20"), "worker_down")])
    assert runs(short)[2:4] == ["02 at 02:20 [01, 02) 02", "03 at 03:00 [02, 03) 03"]


def test_r12_resuming_runs_nothing_that_skip_gave_up() -> None:
    friday = datetime(2025, 2, 21, 17, 45, tzinfo=UTC)
    simulation = simulate(
        lambda after, until: [t for t in (friday, friday + 7 * DAY) if after < t <= until],
        Rules("skip"),
        after=friday - DAY,
        until=friday + 8 * DAY,
        run_time=taking(20),
        pauses=[Pause(friday - 3 * HOUR, datetime(2025, 2, 24, 9, tzinfo=UTC))],
    )
    assert [(run.scheduled_for, run.started_at) for run in simulation.runs] == [(friday + 7 * DAY, friday + 7 * DAY)]
    assert simulation.runs[0].window == (friday, friday + 7 * DAY)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_new_cron_never_makes_a_past_time_due(policy: Policy) -> None:
    noon = datetime(2026, 5, 4, 12, tzinfo=UTC)

    def daily(hour: int) -> Due:
        return lambda after, until: (t + hour * HOUR for t in every(DAY)(after - hour * HOUR, until - hour * HOUR))

    simulation = simulate(
        daily(23),
        Rules(policy),
        after=noon - DAY,
        until=noon + DAY,
        run_time=taking(20),
        edits=[Edit(noon, due=daily(5))],
    )
    ran = [datetime(2026, 5, 3, 23, tzinfo=UTC), datetime(2026, 5, 5, 5, tzinfo=UTC)]
    assert [run.scheduled_for for run in simulation.runs] == ran
    assert simulation.runs[0].window[0] is None
    assert simulation.runs[1].window[0] == ran[0]


def test_r10_times_that_wait_at_an_edit_keep_their_policy() -> None:
    edit = Edit(clock("05:00"), rules=Rules("skip"))
    simulation = minutely(Rules("compress"), outages=[Outage(clock("01:30"), clock("06:40"), "overload")], edits=[edit])
    assert rows(simulation)[2:7] == [
        "02 merged compressed into 05",
        "03 merged compressed into 05",
        "04 merged compressed into 05",
        "05 started late",
        "06 started on_time",
    ]
    # an edit of the rules alone is not a new policy: the new limit counts for what waits
    edit = Edit(clock("05:00"), rules=Rules("catchup", catchup_limit=1))
    simulation = minutely(Rules("catchup"), outages=[Outage(clock("01:30"), clock("05:20"), "overload")], edits=[edit])
    assert rows(simulation)[2:5] == ["02 dropped over_limit", "03 dropped over_limit", "04 started late"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("on_misfire", POLICIES)
def test_resume_may_name_another_policy(policy: Policy, on_misfire: Policy) -> None:
    pause = Pause(clock("01:30"), clock("05:20"), on_misfire)
    simulation = minutely(Rules(policy, catchup_limit=2), pauses=[pause])
    assert (rows(simulation), runs(simulation)) == OUTAGE[on_misfire]


def test_the_first_interval_of_all_starts_where_the_trigger_says() -> None:
    def before(first: datetime) -> datetime:
        return first - HOUR

    def never(after: datetime, until: datetime) -> list[datetime]:
        return []

    known = minutely(Rules("skip"), until=clock("01:30"), first_start=before)
    assert runs(known) == ["00 at 00:00 [59, 00) 00", "01 at 01:00 [00, 01) 01"]
    unknown = minutely(Rules("skip"), until=clock("01:30"), previous=None, first_start=before)
    assert [run.window[0] for run in unknown.runs] == [TEN - HOUR, TEN]
    edit = Edit(clock("00:30"), due=every(MINUTE), first_start=before)
    edited = simulate(never, Rules("skip"), after=TEN, until=clock("02:30"), run_time=taking(5), edits=[edit])
    assert [run.window[0] for run in edited.runs] == [clock("01:00") - HOUR, clock("01:00")]


def test_what_waits_at_the_end_says_why() -> None:
    paused = minutely(Rules("skip"), pauses=[Pause(clock("05:30"), clock("09:00"))])
    assert rows(paused)[-2:] == ["06 waiting paused", "07 waiting paused"]
    down = minutely(Rules("skip"), outages=[Outage(clock("05:30"), clock("09:00"), "worker_down")])
    assert rows(down)[-2:] == ["06 skipped late", "07 waiting due"]


def test_allow_all_starts_runs_beside_each_other() -> None:
    simulation = minutely(Rules("skip", allow_all=True), run_time=taking(200))
    assert [run.started_at for run in simulation.runs] == [TEN + n * MINUTE for n in range(8)]
    outage = Outage(clock("01:30"), clock("05:20"), "worker_down")
    simulation = minutely(Rules("catchup", catchup_limit=2, allow_all=True), run_time=taking(200), outages=[outage])
    at_recovery = ["03 at 05:20 [02, 03) 03", "04 at 05:20 [03, 04) 04", "05 at 05:20 [04, 05) 05"]
    assert runs(simulation) == [*BEFORE_RUNS, *at_recovery, *AFTER_RUNS]


def test_a_run_that_would_end_in_an_outage_ends_with_it() -> None:
    run_time = taking(5, m01=60)
    outage = Outage(clock("01:30"), clock("05:20"), "temporal_down")
    simulation = minutely(Rules("skip"), run_time=run_time, outages=[outage])
    assert rows(simulation) == OVERLAP["skip"][0]
    overload = Outage(clock("01:30"), clock("05:20"), "overload")
    assert rows(minutely(Rules("skip"), run_time=run_time, outages=[overload]))[2:6] == [
        "02 skipped late",  # the run ended as 02 was due, and was not open then
        "03 skipped late",
        "04 skipped late",
        "05 started on_time",
    ]


def test_r15_slow_starts_cover_what_they_asked_for_and_leave_the_rest() -> None:
    """Each start takes 150 s to come through: what is asked at 01:00 starts at 03:30, and covers itself alone."""
    overload = Outage(clock("00:30"), clock("09:00"), "overload", start_delay=150 * SECOND)
    simulation = minutely(Rules("compress"), until=clock("12:00"), outages=[overload])
    assert runs(simulation)[:5] == [
        "00 at 00:00 [59, 00) 00",
        "01 at 03:30 [00, 01) 01",
        "02 at 06:05 [01, 02) 02",  # asked at 03:35, when 03 was not yet misfired
        "05 at 08:40 [02, 05) 03 04 05",  # asked at 06:10, when 05 just was
        "07 at 11:15 [05, 07) 06 07",  # asked at 08:45, when 08 was not yet
    ]


def test_overlapping_outages_and_pauses_hold_together() -> None:
    outages = [
        Outage(clock("01:30"), clock("03:30"), "worker_down"),
        Outage(clock("03:00"), clock("04:00"), "overload"),
    ]
    simulation = minutely(
        Rules("catchup", catchup_limit=2), outages=outages, pauses=[Pause(clock("04:00"), clock("05:20"))]
    )
    assert (rows(simulation), runs(simulation)) == OUTAGE["catchup"]


def test_a_range_with_too_many_times_says_to_narrow_it() -> None:
    held = [Pause(clock("-1:00"), TEN + 60 * DAY)]
    with pytest.raises(SimulationTooLongError, match="more than 50,000 times are due; narrow the range"):
        minutely(Rules("skip"), until=TEN + MAX_OCCURRENCES * MINUTE, pauses=held)
    simulation = minutely(Rules("skip"), until=TEN + (MAX_OCCURRENCES - 1) * MINUTE, pauses=held)
    assert len(simulation.occurrences) == MAX_OCCURRENCES


def test_a_range_that_is_too_much_work_says_so_too() -> None:
    with pytest.raises(SimulationTooLongError, match="narrow the range"):
        minutely(Rules("catchup", catchup_limit=1000), until=TEN + 30 * DAY, run_time=taking(70))


def test_spans_and_edits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="not after it"):
        minutely(Rules("skip"), outages=[Outage(clock("02:00"), clock("02:00"), "overload")])
    with pytest.raises(ValueError, match="not after it"):
        minutely(Rules("skip"), pauses=[Pause(clock("02:00"), clock("01:00"))])
    with pytest.raises(ValueError, match="not within the range"):
        minutely(Rules("skip"), edits=[Edit(clock("08:00"))])


# Any life, gone through second by second with a settle in each, against the simulation that jumps.

LENGTH = 600
policies = st.sampled_from(POLICIES)
spans = st.tuples(st.integers(0, LENGTH - 20), st.integers(1, 300)).map(lambda span: (span[0], span[0] + span[1]))
outages = st.lists(
    st.tuples(spans, st.sampled_from(list(CAUSES.values()))).map(
        lambda o: Outage(planner_life.at(o[0][0]), planner_life.at(o[0][1]), o[1])
    ),
    max_size=2,
)
pauses = st.lists(
    st.tuples(spans, st.one_of(st.none(), policies)).map(
        lambda p: Pause(planner_life.at(p[0][0]), planner_life.at(p[0][1]), p[1])
    ),
    max_size=1,
)
edits = st.lists(st.tuples(st.integers(1, LENGTH), st.one_of(policies, st.sampled_from((30, 60, 90)))), max_size=2)


def second_by_second(
    rules: planner_life.Rules,
    run_seconds: int,
    outages: list[Outage],
    pauses: list[Pause],
    edits: list[tuple[int, Policy | int]],
) -> Life:
    life = Life(rules)
    ends: list[int] = []
    for second in range(LENGTH + 1):
        life.now, now = second, planner_life.at(second)
        causes = {o.cause for o in outages if o.start <= now < o.end}
        stopped = bool(causes - {"overload"})
        while ends and ends[0] <= second and not stopped:
            ends.pop(0)
            life.end_run()
        for pause in pauses:
            if pause.end == now:
                life.resume(pause.on_misfire)
        for _, change in sorted(((s, c) for s, c in edits if s == second), key=lambda edit: edit[0]):
            life.edit_times(change) if isinstance(change, int) else life.edit_policy(change)
        for pause in pauses:
            if pause.start == now:
                life.pause()
        if "worker_down" not in causes:
            life.settle()
        while not causes and life.settle().heads:
            life.ask()
            life.arrive(0)
            ends.append(second + run_seconds)
    life.settle()
    return life


@settings(max_examples=80, deadline=None)
@given(
    st.builds(
        planner_life.Rules, policy=policies, grace=st.sampled_from((30, 60)), limit=st.integers(1, 4),
        allow_all=st.booleans(),
    ),
    st.sampled_from((1, 5, 59, 60, 61, 130, 300)),
    outages,
    pauses,
    edits,
)  # fmt: skip
def test_the_simulation_lives_as_the_ledger_does(
    rules: planner_life.Rules,
    run_seconds: int,
    outages: list[Outage],
    pauses: list[Pause],
    edits: list[tuple[int, Policy | int]],
) -> None:
    life = second_by_second(rules, run_seconds, outages, pauses, edits)
    simulated_edits, now = [], Rules(rules.policy, timedelta(seconds=rules.grace), rules.limit, rules.allow_all)
    for second, change in sorted(edits, key=lambda edit: edit[0]):
        if isinstance(change, int):
            simulated_edits.append(Edit(planner_life.at(second), due=every(timedelta(seconds=change))))
        else:
            now = Rules(change, now.grace, now.catchup_limit, now.allow_all)
            simulated_edits.append(Edit(planner_life.at(second), rules=now))
    simulation = simulate(
        every(MINUTE),
        Rules(rules.policy, timedelta(seconds=rules.grace), rules.limit, rules.allow_all),
        after=planner_life.START,
        until=planner_life.at(LENGTH),
        previous=planner_life.START - MINUTE,
        run_time=taking(run_seconds),
        outages=outages,
        pauses=pauses,
        edits=simulated_edits,
    )
    assert [(o.scheduled_for, o.outcome, o.merged_into) for o in simulation.occurrences] == [
        (time, row.outcome, row.into) for time, row in sorted(life.rows.items())
    ]
    assert [(r.scheduled_for, r.started_at, r.window[0], r.covers) for r in simulation.runs] == [
        (run.scheduled_for, run.began, run.window_start, run.covers) for run in life.runs
    ]
