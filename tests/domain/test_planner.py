"""The planner of misfires: the rules of each policy one by one, then whole lives under any sequence of happenings."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain.planner import Head, Plan, PlanAs, Policy, RunSpan, WaitingTime, covered_by, plan_times
from tests.domain import planner_life
from tests.domain.planner_life import Life, Rules

MINUTE = timedelta(minutes=1)
POLICIES: tuple[Policy, ...] = ("skip", "catchup", "compress")


def at(minute: float) -> datetime:
    return planner_life.START + minute * MINUTE


def row(minute: int, plan_as: PlanAs | None = None) -> WaitingTime:
    return WaitingTime(at(minute), at(minute - 1), plan_as)


def rows(*minutes: int) -> list[WaitingTime]:
    return [row(minute) for minute in minutes]


def plan(
    waiting: list[WaitingTime],
    policy: Policy,
    now: float,
    *,
    grace: int = 60,
    limit: int = 3,
    runs: list[RunSpan] | None = None,
    paused: bool = False,
    allow_all: bool = False,
) -> Plan:
    return plan_times(
        waiting,
        policy=policy,
        now=at(now),
        grace=timedelta(seconds=grace),
        catchup_limit=limit,
        runs=runs or [],
        paused=paused,
        allow_all=allow_all,
    )


def decided(plan: Plan) -> dict[datetime, tuple[str, str]]:
    return {time: (decision.outcome, decision.reason_code) for time, decision in plan.decisions.items()}


def head(*minutes: int) -> Head:
    return Head(at(minutes[-1]), tuple(at(minute) for minute in minutes), at(minutes[0] - 1))


OVERLAP, LATE, OVER_LIMIT = ("skipped", "overlap"), ("skipped", "late"), ("dropped", "over_limit")
OPEN = RunSpan(at(0.5), None)


@pytest.mark.parametrize("policy", POLICIES)
def test_r11_a_time_within_its_grace_runs_alone(policy: Policy) -> None:
    assert plan(rows(0), policy, 1) == Plan({}, (head(0),))
    assert plan(rows(0, 1), policy, 1) == Plan({}, (head(0),))


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_waits_nothing_is_planned(policy: Policy) -> None:
    assert plan([], policy, 1) == Plan()


def test_r12_late_times_are_skipped_and_the_next_one_runs() -> None:
    planned = plan(rows(0, 1, 2, 3), "skip", 3)
    assert decided(planned) == {at(0): LATE, at(1): LATE}
    assert planned.heads == (head(2),)


def test_r12_a_time_at_which_a_run_was_open_is_skipped_as_overlap() -> None:
    planned = plan(rows(1, 2), "skip", 2, runs=[RunSpan(at(0), at(1.5))])
    assert decided(planned) == {at(1): OVERLAP}
    assert planned.head == at(2)


def test_r12_spans_are_half_open_and_in_any_order() -> None:
    spans = [RunSpan(at(5), at(6)), RunSpan(at(1), at(2)), RunSpan(at(0), at(4)), RunSpan(at(1), at(3))]
    planned = plan(rows(0, 3, 4, 5, 6), "skip", 6, grace=600, runs=spans)
    assert decided(planned) == {at(0): OVERLAP, at(3): OVERLAP, at(5): OVERLAP}


def test_r12_overlap_is_said_of_a_time_that_is_also_late() -> None:
    assert decided(plan(rows(1), "skip", 9, runs=[RunSpan(at(0), at(8))])) == {at(1): OVERLAP}


def test_r14_the_newest_misfired_times_stay_and_the_oldest_of_them_runs() -> None:
    planned = plan(rows(0, 1, 2, 3, 4, 5), "catchup", 5)
    assert decided(planned) == {at(0): OVER_LIMIT}  # 4 and 5 are not misfired: 1, 2 and 3 are the newest three
    assert planned.heads == (head(1),)


def test_r14_times_within_their_grace_do_not_count_for_the_limit() -> None:
    assert plan(rows(0, 1, 2, 3), "catchup", 3, limit=1, grace=180) == Plan({}, (head(0),))


def test_r15_a_contiguous_block_of_misfired_times_runs_once() -> None:
    assert plan(rows(0, 1, 2, 3), "compress", 3) == Plan({}, (head(0, 1),))


def test_r15_a_handled_time_in_between_splits_the_block() -> None:
    waiting = rows(0, 1, 3, 4)
    assert plan(waiting, "compress", 9).heads == (head(0, 1),)
    assert plan(waiting, "compress", 9, allow_all=True).heads == (head(0, 1), head(3, 4))


def test_r15_a_time_that_this_very_plan_decides_splits_the_block() -> None:
    waiting = [row(0), row(1, "skip"), row(2)]
    planned = plan(waiting, "compress", 9, allow_all=True)
    assert decided(planned) == {at(1): LATE}
    assert planned.heads == (head(0), head(2))


def test_r15_the_first_window_of_all_may_have_no_start() -> None:
    assert plan([WaitingTime(at(0), None)], "compress", 9).heads == (Head(at(0), (at(0),), None),)


def test_r15_a_block_has_no_length_cap() -> None:
    assert plan(rows(*range(50_000)), "compress", 60_000).heads == (head(*range(50_000)),)


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_runs_while_a_run_is_open(policy: Policy) -> None:
    planned = plan(rows(0, 1), policy, 1, grace=600, runs=[OPEN])
    assert planned.heads == ()
    assert planned.head is None
    assert decided(planned) == {}


def test_r12_an_open_run_skips_a_time_as_overlap_once_it_is_misfired_for_its_end_may_come_to_be_known_late() -> None:
    assert decided(plan(rows(1), "skip", 2, runs=[OPEN])) == {}
    assert decided(plan(rows(1), "skip", 2.1, runs=[OPEN])) == {at(1): OVERLAP}
    assert plan(rows(1), "skip", 2, runs=[RunSpan(at(0.5), at(0.9))]).head == at(1)


def test_a_backfilled_run_blocks_the_next_start_and_no_time_is_skipped_for_it() -> None:
    assert plan(rows(1), "skip", 1.5, runs=[RunSpan(at(0.5), None, backfill=True)]) == Plan()
    assert plan(rows(1), "skip", 2, runs=[RunSpan(at(0.5), at(1.9), backfill=True)]).head == at(1)


def test_r10_a_time_keeps_the_limit_and_the_grace_that_it_was_due_under() -> None:
    kept = [replace(row(n, "catchup"), catchup_limit=4) for n in range(4)]
    planned = plan([*kept, row(4), row(5)], "catchup", 9, limit=1)
    assert decided(planned) == {at(0): OVER_LIMIT, at(1): OVER_LIMIT, at(4): OVER_LIMIT}
    assert "newest 4" in planned.decisions[at(0)].reason and "newest 1" in planned.decisions[at(4)].reason
    patient = replace(row(1, "skip"), grace=timedelta(minutes=600))
    planned = plan([patient, row(2)], "compress", 9)
    assert (decided(planned), planned.head) == ({}, at(1))


def test_r14_an_open_run_does_not_keep_times_from_being_dropped() -> None:
    planned = plan(rows(1, 2, 3, 4, 5), "catchup", 9, runs=[OPEN])
    assert decided(planned) == {at(1): OVER_LIMIT, at(2): OVER_LIMIT}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pause_holds_everything(policy: Policy) -> None:
    assert plan(rows(1, 2, 3, 4, 5, 6), policy, 9, paused=True, runs=[OPEN], allow_all=True) == Plan()


def test_allow_all_starts_every_head_and_overlap_skips_nothing() -> None:
    assert plan(rows(1, 2), "skip", 2, runs=[OPEN], allow_all=True) == Plan({}, (head(1), head(2)))
    assert plan(rows(1, 2), "catchup", 9, runs=[OPEN], allow_all=True) == Plan({}, (head(1), head(2)))
    assert plan(rows(1, 2, 9), "compress", 9, runs=[OPEN], allow_all=True) == Plan({}, (head(1, 2), head(9)))


def test_allow_all_still_skips_late_times_and_drops_over_the_limit() -> None:
    assert decided(plan(rows(1, 2), "skip", 9, allow_all=True)) == {at(1): LATE, at(2): LATE}
    assert decided(plan(rows(1, 2), "catchup", 9, limit=1, allow_all=True)) == {at(1): OVER_LIMIT}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_backfill_that_runs_knows_no_grace_no_limit_and_no_overlap(policy: Policy) -> None:
    waiting = [row(minute, "run") for minute in range(5)]
    assert plan(waiting, policy, 99, limit=1, runs=[RunSpan(at(0), at(50))]) == Plan({}, (head(0),))
    assert plan(waiting, policy, 99, limit=1, allow_all=True).heads == tuple(head(minute) for minute in range(5))


def test_r10_what_a_row_carries_outranks_the_policy() -> None:
    waiting = [row(0, "catchup"), row(1, "skip"), row(2, "catchup"), row(3, "compress"), row(4), row(5, "run"), row(6)]
    planned = plan(waiting, "compress", 9, limit=1, allow_all=True)
    assert decided(planned) == {at(0): OVER_LIMIT, at(1): LATE}
    assert planned.heads == (head(2), head(3, 4), head(6), head(5))  # what is backfilled comes last


def test_decisions_of_a_group_are_equal_so_that_they_are_written_as_one_set() -> None:
    for policy in ("skip", "catchup"):
        assert len(set(plan(rows(*range(100)), policy, 999).decisions.values())) == (1)


def test_r15_the_gate_accepts_any_member_and_covers_up_to_it() -> None:
    planned = plan(rows(0, 1, 2, 9), "compress", 9)
    assert covered_by(planned, at(0)) == head(0)
    assert covered_by(planned, at(1)) == head(0, 1)
    assert covered_by(planned, at(2)) == head(0, 1, 2)
    assert covered_by(planned, at(9)) is None  # waits for the block before it
    assert covered_by(planned, at(1.5)) is None
    assert covered_by(Plan(), at(0)) is None


def test_backfilled_times_leave_room_when_runs_may_overlap() -> None:
    waiting = [*(row(n, "run") for n in range(20)), row(30)]
    runs = [RunSpan(at(0), None)] * 7
    planned = plan(waiting, "skip", 30, allow_all=True, runs=runs)
    assert planned.heads == (head(30), head(0), head(1), head(2))
    assert plan(waiting, "skip", 30, allow_all=True, runs=runs * 2).heads == (head(30),)
    assert plan(waiting, "skip", 30).heads == (head(30),)


def test_r5_lateness_and_overlap_are_judged_from_the_jittered_instant() -> None:
    late, due, to_come = (replace(row(n), jitter=timedelta(minutes=3)) for n in (0, 4, 8))
    grace = timedelta(minutes=2)
    run = RunSpan(at(2), at(4))
    planned = plan_times([late, due, to_come], policy="skip", now=at(9), grace=grace, catchup_limit=1, runs=[run])
    assert decided(planned) == {at(0): OVERLAP}
    assert [item.scheduled_for for item in planned.heads] == [at(4)]
    ended = RunSpan(at(2), at(3))
    planned = plan_times([late, due, to_come], policy="skip", now=at(9), grace=grace, catchup_limit=1, runs=[ended])
    assert decided(planned) == {at(0): LATE}
    assert plan_times([to_come], policy="skip", now=at(10), grace=grace, catchup_limit=1, runs=[]) == Plan()
    assert plan_times([to_come], policy="skip", now=at(13), grace=grace, catchup_limit=1, runs=[]).head == at(8)


def test_r15_starts_slower_than_the_interval_do_not_starve() -> None:
    life = Life(Rules("compress"))
    life.now = 60
    for _ in range(20):
        life.ask()
        life.now += 150
        assert life.arrive(0)
        life.end_run()
    assert [len(run.covers) for run in life.runs[:6]] == [1, 1, 2, 3, 2, 3]
    life.drain()
    assert planner_life.check(life) == []


# Whole lives. An operation is a delay in seconds and something that happens after it.

Operation = tuple[float, Callable[[Life], object]]


def start_at_once(life: Life) -> None:
    life.ask()
    life.arrive(len(life.asked) - 1)


def end_as_a_time_falls_due(life: Life) -> None:
    life.now += -life.now % life.period
    life.end_run()


def operations(policies: tuple[Policy, ...] = POLICIES) -> st.SearchStrategy[list[Operation]]:
    """Anything that may happen; only one policy given: no edit and no resume names another."""
    chosen = st.sampled_from(policies)
    plan_as: st.SearchStrategy[PlanAs] = st.sampled_from(("run", "compress"))
    happenings: list[st.SearchStrategy[Callable[[Life], object]]] = [
        st.just(start_at_once),
        st.just(start_at_once),
        st.just(Life.ask),
        st.integers(0, 5).map(lambda which: lambda life: life.arrive(which)),
        st.just(Life.end_run),
        st.just(Life.end_run),
        st.just(end_as_a_time_falls_due),
        st.just(Life.settle),
        st.just(Life.pause),
        st.one_of(st.none(), chosen).map(lambda policy: lambda life: life.resume(policy)),
        chosen.map(lambda policy: lambda life: life.edit_policy(policy)),
        st.sampled_from((30, 45, 60, 90)).map(lambda period: lambda life: life.edit_times(period)),
    ]
    if len(policies) > 1:
        reopened = st.tuples(st.integers(0, 9), plan_as)
        happenings.append(reopened.map(lambda reopened: lambda life: life.backfill(reopened[0], reopened[1])))
    delays = st.one_of(st.sampled_from((0, 1, 59.5, 60, 61)), st.integers(0, 500)).map(float)
    return st.lists(st.tuples(delays, st.one_of(happenings)), max_size=30)


rules = st.builds(
    Rules,
    policy=st.sampled_from(POLICIES),
    grace=st.sampled_from((1, 30, 60, 200)),
    limit=st.integers(1, 4),
    allow_all=st.booleans(),
)


def live(rules: Rules, script: list[Operation]) -> Life:
    life = Life(rules)
    for delay, happen in script:
        life.now += delay
        happen(life)
    life.drain()
    return life


@settings(max_examples=400, deadline=None)
@given(rules, operations())
def test_r22_r16_i4_every_due_time_ends_once_in_any_life(rules: Rules, script: list[Operation]) -> None:
    """Also: windows meet and never overlap, no time runs twice, and each outcome is one that its policy gives."""
    assert planner_life.check(live(rules, script)) == []


@settings(max_examples=200, deadline=None)
@given(rules, operations(), st.lists(st.tuples(st.integers(0, 30), st.floats(0, 1)), max_size=12))
def test_settling_more_often_changes_nothing(
    rules: Rules, script: list[Operation], extra: list[tuple[int, float]]
) -> None:
    seldom, often = live(rules, script), Life(rules)
    for index, (delay, happen) in enumerate(script):
        begin = often.now
        for share in sorted(share for place, share in extra if place == index):
            often.now = begin + share * delay
            often.settle()
            often.settle()
        often.now = begin + delay
        happen(often)
    often.drain()
    assert (often.rows, often.runs) == (seldom.rows, seldom.runs)


@settings(max_examples=100, deadline=None)
@given(operations(("skip",)))
def test_r12_skip_runs_nothing_late_and_skips_the_rest(script: list[Operation]) -> None:
    life = live(Rules("skip", grace=30), script)
    assert all(run.began - run.scheduled_for <= timedelta(seconds=30) for run in life.runs)
    assert {row.outcome for row in life.rows.values()} <= {"started", "skipped"}


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 59))
def test_r14_catchup_runs_exactly_the_newest_ones_oldest_first(missed: int, limit: int, into: int) -> None:
    life = Life(Rules("catchup", limit=limit))
    life.now = missed * 60 + 60 + into
    life.drain()
    misfired = [time for time in sorted(life.rows) if time < planner_life.at(missed * 60 + into)]
    kept = misfired[-limit:]
    assert [run.scheduled_for for run in life.runs] == kept + sorted(set(life.rows) - set(misfired))
    assert {time for time, row in life.rows.items() if row.outcome == "dropped"} == set(misfired) - set(kept)


@settings(max_examples=100, deadline=None)
@given(st.booleans(), operations(("compress",)))
def test_r15_compress_covers_every_interval(allow_all: bool, script: list[Operation]) -> None:
    """Whatever happens, the windows are one line from the first time to the last."""
    life = live(Rules("compress", allow_all=allow_all), script)
    ordered = sorted(life.runs, key=lambda run: run.scheduled_for)
    assert [two.window_start for two in ordered[1:]] == [one.scheduled_for for one in ordered[:-1]]
    assert sorted(time for run in ordered for time in run.covers) == sorted(life.rows)
