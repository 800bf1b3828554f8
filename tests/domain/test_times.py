"""One abstraction over cron, interval and once: bounds, edges of the calendar, cost, words; and the compiled form."""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain import cron
from activity_core.domain.calendars import (
    Calendar,
    CalendarRange,
    Calendars,
    Interval,
    compile_calendars,
    compile_times,
)
from activity_core.domain.times import (
    MAX_EVERY_SECONDS,
    Times,
    TimesError,
    cron_times,
    interval_times,
    jitter_delay,
    once_times,
)

from .cron_reference import PHASES

SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
relaxed = settings(max_examples=200, deadline=None, derandomize=True, phases=PHASES)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


NOON = at("2026-03-01T12:00:00Z")

seconds = st.integers(1_000, 4_000_000_000)
instants = seconds.map(lambda s: datetime.fromtimestamp(s, UTC))
near = st.integers(-200_000_000, 200_000_000).map(lambda us: timedelta(microseconds=us))


@st.composite
def some_times(draw: st.DrawFn) -> tuple[Times, Callable[[datetime], bool], datetime]:
    """Times of any kind, what tells by itself whether an instant is due, and an instant where it is worth looking."""
    middle = draw(instants)
    bounds = sorted(middle + draw(near) for _ in range(2))
    start, end = (draw(st.none() | st.just(b.replace(microsecond=0))) for b in bounds)
    kind = draw(st.sampled_from(["cron", "interval", "once"]))
    if kind == "once":
        moment = middle if middle.year >= 2000 else middle + timedelta(days=30 * 365 + 8)
        return once_times(moment), lambda t: t == moment, moment
    if kind == "interval":
        every, anchor = draw(st.integers(1, 90)), draw(st.none() | instants)
        phase = int(anchor.timestamp()) % every if anchor else 0
        times = interval_times(every, anchor, start, end)
        rule: Callable[[datetime], bool] = lambda t: int(t.timestamp()) % every == phase  # noqa: E731
    else:
        step = draw(st.sampled_from([1, 2, 3]))
        times = cron_times(f"*/{step} * * * *", "UTC", start, end)
        rule = lambda t: t.second == 0 and t.minute % step == 0  # noqa: E731
    return times, lambda t: rule(t) and (start is None or start <= t) and (end is None or t <= end), middle


@relaxed
@given(case=some_times(), cuts=st.lists(near, min_size=1, max_size=4))
def test_every_question_has_the_answer_of_looking_at_each_second(
    case: tuple[Times, Callable[[datetime], bool], datetime], cuts: list[timedelta]
) -> None:
    times, is_due, middle = case
    first = middle - timedelta(seconds=200)
    after, until = first - SECOND, first + timedelta(seconds=400)
    due = [t for t in (first + n * SECOND for n in range(401)) if is_due(t)]
    assert times.between(after, until) == due == list(times.iterate(after, until))
    edges = sorted([after, *(middle + c for c in cuts), until])
    assert [t for a, b in pairwise(edges) for t in times.between(a, b)] == due
    for edge in {*edges[1:-1], *due[:2], *due[-2:]}:
        later, earlier = [t for t in due if t > edge], [t for t in due if t < edge]
        upcoming, latest = times.next_after(edge), times.previous_before(edge)
        assert upcoming == later[0] if later else upcoming is None or upcoming > until
        assert latest == earlier[-1] if earlier else latest is None or latest <= after
        assert times.previous_at_or_before(edge) == (edge if edge in due else latest)
        assert times.is_due(edge) == (edge in due)


# Bounds


@pytest.mark.parametrize("times", [cron_times("0 * * * *", "UTC"), interval_times(3600)])
def test_bounds_are_inclusive_and_cut_without_moving(times: Times) -> None:
    def bounded(start: datetime, end: datetime) -> list[datetime]:
        return Times(times.rule, start, end).between(NOON - timedelta(days=1), NOON + timedelta(days=1))

    hour = timedelta(hours=1)
    assert bounded(NOON, NOON + hour) == [NOON, NOON + hour]
    assert bounded(NOON, NOON) == [NOON]
    assert bounded(NOON + SECOND, NOON + 2 * hour - SECOND) == [NOON + hour]
    assert bounded(NOON + SECOND, NOON + hour - SECOND) == []


def test_what_is_first_and_last_of_all() -> None:
    plain, hour = interval_times(3600), timedelta(hours=1)
    bounded = interval_times(3600, None, NOON - SECOND, NOON + 90 * timedelta(minutes=1))
    assert (plain.first(), plain.last()) == (at("1970-01-01T00:00:00Z"), None)
    assert (bounded.first(), bounded.last()) == (NOON, NOON + hour)
    assert (once_times(NOON).first(), once_times(NOON).last()) == (NOON, NOON)
    never = cron_times("0 9 * * *", "UTC", NOON, NOON + hour)
    assert never.first() is never.last() is never.next_after(NOON - hour) is never.previous_before(NOON + hour) is None


def test_the_interval_before_the_very_first_time_reaches_before_the_bound() -> None:
    daily = cron_times("0 9 * * *", "Europe/Berlin", at("2026-03-30T00:00:00Z"))
    first = daily.first()
    assert first == at("2026-03-30T07:00:00Z")
    assert daily.previous_before(first) is None
    assert daily.interval_start(first) == at("2026-03-29T07:00:00Z")
    assert once_times(NOON).interval_start(NOON) is None


@pytest.mark.parametrize(
    ("make", "field", "message"),
    [
        (lambda t: cron_times("0 9 * * *", "UTC", t), "start_at", "fraction"),
        (lambda t: cron_times("0 9 * * *", "UTC", None, t), "end_at", "fraction"),
        (lambda t: interval_times(60, t), "anchor", "fraction"),
        (lambda t: interval_times(60, None, t), "start_at", "fraction"),
        (once_times, "at", "fraction"),
    ],
)
def test_r4_a_fraction_of_a_second_or_no_offset_is_refused_and_the_field_named(
    make: Callable[[datetime], Times], field: str, message: str
) -> None:
    for instant, reason in [(NOON + TICK, message), (NOON.replace(tzinfo=None), "no offset")]:
        with pytest.raises(TimesError, match=reason) as caught:
            make(instant)
        assert caught.value.field == field
    assert make(NOON) == make(NOON.astimezone(timezone(timedelta(hours=5, minutes=45))))


@pytest.mark.parametrize(
    ("make", "field", "message"),
    [
        (lambda: interval_times(0), "every_seconds", "0 is out of range; an interval is from 1 to 31,536,000 seconds"),
        (lambda: interval_times(MAX_EVERY_SECONDS + 1), "every_seconds", "31,536,001 is out of range"),
        (lambda: interval_times(60, None, NOON, NOON - SECOND), "end_at", "2026-03-01 11:59:59 UTC is before start_at"),
        (lambda: interval_times(60, at("1969-12-31T23:59:59Z")), "anchor", "not in the years 1970 to 9900"),
        (lambda: once_times(at("1999-12-31T23:59:59Z")), "at", "not in the years 2000 to 2100"),
        (lambda: once_times(at("2101-01-01T00:00:00Z")), "at", "not in the years 2000 to 2100"),
    ],
)
def test_what_is_out_of_range_is_refused(make: Callable[[], Times], field: str, message: str) -> None:
    with pytest.raises(TimesError, match=message) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(("text", "zone"), [("0 0 12 * * ?", "UTC"), ("0 9 * * *", "Europe/Berln")])
def test_an_expression_or_a_zone_that_cannot_be_read_is_a_cron_error(text: str, zone: str) -> None:
    with pytest.raises(cron.CronError):
        cron_times(text, zone)


# Intervals


@pytest.mark.parametrize(
    ("every", "anchor", "expected"),
    [
        (900, None, ["12:15:00", "12:30:00"]),
        (86_400, "2030-07-01T09:30:00Z", ["2026-03-02 09:30", "2026-03-03 09:30"]),
        (90, "2026-03-01T12:00:17Z", ["12:00:17", "12:01:47"]),
        (7, "1970-01-01T00:00:00Z", ["12:00:07", "12:00:14"]),
    ],
)
def test_an_interval_lies_on_its_anchor_whether_that_is_past_or_to_come(
    every: int, anchor: str | None, expected: list[str]
) -> None:
    times = interval_times(every, at(anchor) if anchor else None)
    found = list(islice(times.iterate(NOON, at("9900-01-01T00:00:00Z")), 2))
    form = "%Y-%m-%d %H:%M" if every >= 86_400 else "%H:%M:%S"
    assert [t.strftime(form) for t in found] == expected


def test_an_interval_never_drifts_and_knows_no_clock_change() -> None:
    times = interval_times(86_400, at("2026-03-01T09:00:00+01:00"))
    year = times.between(NOON, NOON + timedelta(days=365))
    assert len(year) == 365
    assert {(t.hour, t.minute, t.second) for t in year} == {(8, 0, 0)}


# Bounded work


@pytest.mark.parametrize(
    "times", [cron_times("* * * * *", "Europe/Berlin"), interval_times(60), interval_times(60, None, NOON)]
)
def test_a_year_of_minutes_is_a_matter_of_a_second_and_an_endless_window_is_read_lazily(times: Times) -> None:
    started = time.process_time()
    assert len(times.between(NOON, NOON + timedelta(days=365))) == 525_600
    assert len(list(islice(times.iterate(NOON, at("9999-12-31T23:59:59Z")), 100))) == 100
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    "times",
    [
        cron_times("0 0 29 2 */6", "Africa/Cairo"),
        cron_times("0 9 29 2 *", "UTC", NOON, NOON + timedelta(days=30)),
        interval_times(MAX_EVERY_SECONDS),
        interval_times(1),
        once_times(NOON),
    ],
)
def test_one_search_is_cheap_and_the_edges_of_the_calendar_are_no_error(times: Times) -> None:
    earliest, latest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert times.next_after(latest) is None
    assert times.previous_before(earliest) is None
    assert times.next_after(earliest) == times.first()
    assert times.between(latest, earliest) == times.between(NOON, NOON) == []
    started = time.process_time()
    for minute in range(200):
        times.next_after(NOON + timedelta(minutes=minute))
        times.previous_before(NOON + timedelta(minutes=minute))
    assert (time.process_time() - started) / 400 < 0.002


def test_r4_instants_come_out_in_utc_with_whole_seconds() -> None:
    asked = datetime(2026, 3, 1, 9, 59, 59, 999_999, tzinfo=timezone(timedelta(hours=1)))
    for times in (cron_times("0 9 * * *", "UTC"), interval_times(3600), once_times(at("2026-03-01T10:00:00+01:00"))):
        due = times.next_after(asked)
        assert due is not None
        assert (due.isoformat(), due.tzinfo) == ("2026-03-01T09:00:00+00:00", UTC)
        assert all(t.tzinfo is UTC for t in times.between(NOON - timedelta(days=1), NOON))


@pytest.mark.parametrize("times", [cron_times("0 9 * * *", "UTC", NOON), interval_times(60), once_times(NOON)])
def test_a_naive_instant_is_an_error(times: Times) -> None:
    for ask in (times.next_after, times.previous_before, times.previous_at_or_before, times.is_due):
        with pytest.raises(TypeError):
            ask(NOON.replace(tzinfo=None))


# Jitter


def test_r5_jitter_is_fixed_by_the_key_and_spread_over_keys() -> None:
    keys = [
        f"activity-550e8400-e29b-41d4-a716-446655440000:2026-03-01T09:{m:02}:{s:02}+00:00"
        for m in range(60)
        for s in range(60)
    ]
    delays = [jitter_delay(key, 600) for key in keys]
    assert delays == [jitter_delay(key, 600) for key in keys]
    assert all(timedelta(0) <= d <= timedelta(seconds=600) for d in delays)
    buckets = [sum(b <= d.total_seconds() < b + 60 for d in delays) for b in range(0, 600, 60)]
    assert min(buckets) > 250  # 360 expected
    assert {jitter_delay(key, 0) for key in keys} == {timedelta(0)}
    with pytest.raises(TimesError, match="negative"):
        jitter_delay("key", -1)


def test_r5_jitter_is_the_same_in_every_release() -> None:
    # A changed delay would start a waiting time earlier or later than was announced.
    assert jitter_delay("activity-1:2026-03-01T09:00:00+00:00", 60) == timedelta(microseconds=43_704_044)


# Words


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (cron_times("0 9 * * MON-FRI", "Europe/Berlin"), "at 09:00 on Monday to Friday, Europe/Berlin time"),
        (
            cron_times("*/15 * * * *", "UTC", NOON, at("2026-12-31T22:59:59Z")),
            "every 15 minutes, UTC time, from 2026-03-01 12:00 UTC until 2026-12-31 22:59:59 UTC",
        ),
        (interval_times(1), "every second"),
        (interval_times(60), "every minute from 00:00 UTC"),
        (interval_times(900, at("2026-03-01T12:05:30Z")), "every 15 minutes from 00:05:30 UTC"),
        (interval_times(86_400, at("2026-03-01T09:30:00Z")), "every day at 09:30 UTC"),
        (interval_times(25_200), "every 7 hours, counted from 1970-01-01 00:00 UTC"),
        (
            interval_times(604_800, None, None, NOON),
            "every 7 days, counted from 1970-01-01 00:00 UTC, until 2026-03-01 12:00 UTC",
        ),
        (interval_times(86_401), "every 86,401 seconds, counted from 1970-01-01 00:00 UTC"),
        (once_times(NOON + SECOND), "once at 2026-03-01 12:00:01 UTC"),
    ],
)
def test_description(times: Times, words: str) -> None:
    assert times.describe() == words


# Compiled


def only(value: int) -> tuple[CalendarRange, ...]:
    return (CalendarRange(value, value),)


def test_a_cron_is_compiled_with_its_bounds() -> None:
    plain = compile_calendars(cron.parse_cron("0 0 13 * 5"), "Asia/Tokyo")
    compiled = compile_times(cron_times("0 0 13 * 5", "Asia/Tokyo", NOON, NOON + SECOND))
    assert compiled == Calendars("Asia/Tokyo", plain.calendars, (), NOON, NOON + SECOND)
    assert compile_times(cron_times("0 0 13 * 5", "Asia/Tokyo")) == plain


def test_an_interval_is_compiled_to_its_phase_and_an_instant_to_a_calendar_with_a_year() -> None:
    assert compile_times(interval_times(3600, at("2026-03-01T09:10:05Z"))) == Calendars(
        "UTC", (), (Interval(3600, 605),)
    )
    instant = Calendar(
        minute=only(30),
        hour=only(9),
        day_of_month=only(1),
        month=only(3),
        day_of_week=(CalendarRange(0, 6),),
        second=only(7),
        year=only(2026),
    )
    assert compile_times(once_times(at("2026-03-01T10:30:07+01:00"))) == Calendars("UTC", (instant,))


DIFFERENT = [
    cron_times("0 9 * * *", "UTC"),
    cron_times("0 9 * * *", "Etc/UTC"),
    cron_times("1 9 * * *", "UTC"),
    cron_times("0 9 * * *", "UTC", NOON),
    cron_times("0 9 * * *", "UTC", None, NOON),
    interval_times(60),
    interval_times(60, NOON + SECOND),
    interval_times(61),
    once_times(NOON),
    once_times(NOON + SECOND),
    once_times(NOON.replace(year=2027)),
]
KNOWN = "1a7b0e0777237c1c9527026963169c9975a525d9c8eb3676fb16e83d44681f45"
FINGERPRINT = "print(compile_times(cron_times('*/30 9 1 * 5', 'Europe/Berlin')).fingerprint())"


def test_fingerprints_differ_where_schedules_do_and_nowhere_else() -> None:
    assert len({compile_times(t).fingerprint() for t in DIFFERENT}) == len(DIFFERENT)
    same = [
        cron_times(t, "UTC", s)
        for t, s in [("*/30 9 * * 1-5", NOON), ("0,30 9 * * MON-FRI", at("2026-03-01T13:00+01:00"))]
    ]
    assert len({compile_times(t).fingerprint() for t in same}) == 1
    assert compile_times(interval_times(60, NOON)).fingerprint() == compile_times(interval_times(60)).fingerprint()


def test_a_fingerprint_is_the_same_in_every_process_and_release() -> None:
    # It is kept on schedules: another value for the same structure would rewrite all of them.
    imports = (
        "from activity_core.domain.calendars import compile_times; from activity_core.domain.times import cron_times; "
    )
    printed = subprocess.run([sys.executable, "-c", imports + FINGERPRINT], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == KNOWN
    assert compile_times(cron_times("*/30 9 1 * 5", "Europe/Berlin")).fingerprint() == KNOWN


# Cases from other schedulers


def test_case_e10_times_whose_end_has_passed_are_valid_and_a_later_end_brings_them_back() -> None:
    # typescript.temporal.io, ScheduleSpec: a schedule without future times is deleted by the server
    now = at("2026-05-04T12:00:00Z")
    ended = cron_times("0 9 * * *", "UTC", None, now - timedelta(days=1))
    assert (ended.next_after(now), ended.last()) == (None, at("2026-05-03T09:00:00Z"))
    ending = cron_times("* * * * *", "UTC", None, now + timedelta(minutes=1))
    assert ending.between(now, now + timedelta(days=1)) == [now + timedelta(minutes=1)]
    extended = cron_times("0 9 * * *", "UTC", None, at("2027-05-04T12:00:00Z"))
    assert extended.next_after(now) == at("2026-05-05T09:00:00Z")
    assert compile_times(ended).fingerprint() != compile_times(extended).fingerprint()


def test_case_b04_a_bound_in_the_future_makes_no_past_time_due() -> None:
    # kubernetes/kubernetes#63371, kubernetes/kubernetes#130838, kubernetes/kubernetes#65457
    edited = at("2026-05-04T12:00:00Z")
    times = cron_times("0 5 * * *", "UTC", edited)
    assert times.previous_at_or_before(edited) is None
    assert times.next_after(at("2026-01-01T00:00:00Z")) == at("2026-05-05T05:00:00Z") == times.next_after(edited)
