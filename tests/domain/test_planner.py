"""The planner of misfires, policy `skip`: every waiting time is decided once, kept, or run."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from activity_core.domain.planner import Plan, RunSpan, WaitingTime, plan_times

MINUTE = timedelta(minutes=1)
START = datetime(2026, 3, 1, 9, tzinfo=UTC)
GRACE = timedelta(seconds=60)


def at(minute: float) -> datetime:
    return START + minute * MINUTE


def waiting(*minutes: int) -> list[WaitingTime]:
    return [WaitingTime(at(minute), at(minute - 1)) for minute in minutes]


def outcomes(plan: Plan) -> dict[datetime, str]:
    return {time: decision.reason_code for time, decision in plan.decisions.items()}


def test_r12_a_time_within_its_grace_runs() -> None:
    assert plan_times(waiting(0), now=at(1), grace=GRACE, runs=[]) == Plan({}, at(0))


def test_r12_late_times_are_skipped_and_the_next_one_runs() -> None:
    plan = plan_times(waiting(0, 1, 2, 3), now=at(3), grace=GRACE, runs=[])
    assert outcomes(plan) == {at(0): "late", at(1): "late"}
    assert plan.head == at(2)


def test_r12_a_time_at_which_a_run_was_open_is_skipped_as_overlap() -> None:
    runs = [RunSpan(at(0), at(1.5))]
    plan = plan_times(waiting(1, 2), now=at(2), grace=GRACE, runs=runs)
    assert outcomes(plan) == {at(1): "overlap"}
    assert plan.head == at(2)


def test_spans_are_half_open() -> None:
    plan = plan_times(waiting(1, 2), now=at(2), grace=GRACE * 10, runs=[RunSpan(at(1), at(2))])
    assert outcomes(plan) == {at(1): "overlap"}


def test_nothing_runs_while_a_run_is_open() -> None:
    plan = plan_times(waiting(0, 1), now=at(1), grace=GRACE * 10, runs=[RunSpan(at(0.5), None)])
    assert outcomes(plan) == {at(1): "overlap"}
    assert plan.head is None


minutes = st.lists(st.integers(0, 50), unique=True, max_size=20).map(sorted)
spans = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda s: RunSpan(at(s[0]), at(s[0] + s[1]))), max_size=4
)


@given(minutes, st.integers(0, 60), st.integers(1, 600), spans, st.booleans())
def test_r22_every_time_is_decided_at_most_once_and_the_head_is_undecided(
    due: list[int], now: int, grace: int, runs: list[RunSpan], is_open: bool
) -> None:
    rows = waiting(*[minute for minute in due if minute <= now])
    all_runs = [*runs, RunSpan(at(now), None)] if is_open else runs
    plan = plan_times(rows, now=at(now), grace=timedelta(seconds=grace), runs=all_runs)
    times = [row.scheduled_for for row in rows]
    assert set(plan.decisions) <= set(times)
    undecided = [time for time in times if time not in plan.decisions]
    if is_open:
        assert plan.head is None
    else:
        assert plan.head == (undecided[0] if undecided else None)
    for time in undecided:
        assert at(now) - time <= timedelta(seconds=grace)


@given(minutes, st.integers(0, 60), st.integers(1, 600), spans)
def test_planning_again_changes_nothing(due: list[int], now: int, grace: int, runs: list[RunSpan]) -> None:
    rows = waiting(*[minute for minute in due if minute <= now])
    span = timedelta(seconds=grace)
    first = plan_times(rows, now=at(now), grace=span, runs=runs)
    left = [row for row in rows if row.scheduled_for not in first.decisions]
    assert plan_times(left, now=at(now), grace=span, runs=runs) == Plan({}, first.head)
