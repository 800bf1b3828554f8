"""Due times, held against a walk over every minute and against two other implementations."""

import zoneinfo
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from activity_core.domain import zones
from activity_core.domain.cron import (
    Cron,
    CronError,
    between,
    check_zone,
    next_after,
    parse_cron,
    previous_at_or_before,
    previous_before,
)

from .cron_reference import CLOCK_CHANGES, PHASES, Written, due_minute_by_minute, expressions, window

HOUR = timedelta(hours=1)
# Changes that cronsim gets wrong for a job that follows elapsed time: it goes on by whole hours where the clock does not
# (and at St John's, where the day changes twice, for ever), or reads a midnight that never was as the first hour.
CRONSIM_ERRS = {
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Asia/Kathmandu", "1986-01-01"),
    ("America/St_Johns", "2006-10-29"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("Africa/Cairo", "2026-04-24"),
    ("Pacific/Apia", "2011-12-30"),
}
# Without a deadline: the machine may be busy, and what is bounded has a test of its own.
relaxed = settings(max_examples=120, deadline=None, derandomize=True, phases=PHASES)
changes = st.sampled_from(CLOCK_CHANGES)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def local_times(cron: str, zone: str, day: str) -> list[str]:
    """Due times on the UTC days around a local date, those of that date only, as local clock and offset."""
    tz, (start, end) = check_zone(zone), window(day)
    found = [t.astimezone(tz) for t in between(parse_cron(cron), tz, start, end)]
    return [t.strftime("%H:%M%z") for t in found if t.date().isoformat() == day]


@relaxed
@given(written=expressions(), change=changes)
def test_due_times_are_those_of_a_walk_over_every_minute(written: Written, change: tuple[str, str]) -> None:
    assume(written.possible)
    zone, (start, end) = check_zone(change[0]), window(change[1])
    assert between(parse_cron(written.text), zone, start, end) == due_minute_by_minute(written, zone, start, end)


@relaxed
@given(written=expressions(), change=changes, cuts=st.lists(st.integers(0, 4 * 86_400_000_000), max_size=4))
def test_next_previous_and_between_agree_wherever_the_window_is_cut(
    written: Written, change: tuple[str, str], cuts: list[int]
) -> None:
    assume(written.possible)
    cron, zone, (start, end) = parse_cron(written.text), check_zone(change[0]), window(change[1])
    due = between(cron, zone, start, end)
    assert all(a < b for a, b in pairwise(due))
    edges = sorted([start, *(start + timedelta(microseconds=c) for c in cuts), end])
    assert [t for a, b in pairwise(edges) for t in between(cron, zone, a, b)] == due
    for edge in {*edges[1:], *due[:3], *due[-3:]}:
        later, earlier = [t for t in due if t > edge], [t for t in due if t < edge]
        upcoming = next_after(cron, zone, edge)
        assert upcoming == later[0] if later else upcoming is None or upcoming > end
        latest = previous_before(cron, zone, edge)
        assert latest == earlier[-1] if earlier else latest is None or latest <= start
        assert previous_at_or_before(cron, zone, edge) == (edge if edge in due else latest)


@relaxed
@given(written=expressions(), change=changes)
def test_a_chain_of_next_is_between_and_a_chain_of_previous_is_its_reverse(
    written: Written, change: tuple[str, str]
) -> None:
    assume(written.possible)
    cron, zone, (start, end) = parse_cron(written.text), check_zone(change[0]), window(change[1])
    due = between(cron, zone, start, end)
    forward: list[datetime] = []
    instant = next_after(cron, zone, start)
    while instant and instant <= end and len(forward) < 100:
        forward.append(instant)
        instant = next_after(cron, zone, instant)
    assert forward == due[:100]
    back: list[datetime] = []
    instant = previous_at_or_before(cron, zone, end)
    while instant and instant > start and len(back) < 100:
        back.append(instant)
        instant = previous_before(cron, zone, instant)
    assert back == due[::-1][:100]


@relaxed
@given(written=expressions(), change=changes)
def test_due_times_are_those_of_cronsim(written: Written, change: tuple[str, str]) -> None:
    assume(written.possible)
    minute = written.parts[0]
    # Known difference: for cronsim a `*` in the minute field, too, makes a job follow elapsed time.
    assume(written.wildcard or not minute.startswith("*"))
    assume(not written.wildcard or change not in CRONSIM_ERRS)
    zone, (start, end) = check_zone(change[0]), window(change[1], before=1, after=1)
    theirs = []
    for local in CronSim(written.text, start.astimezone(zone)):
        if local.astimezone(UTC) > end:
            break
        theirs.append(local.astimezone(UTC))
    # Known difference: cronsim repeats an instant, or goes back, when a gap moves several times of a fixed job.
    assert between(parse_cron(written.text), zone, start, end) == sorted(set(theirs))


@relaxed
@given(written=expressions(), day=st.integers(0, 40_000))
def test_due_times_in_utc_are_those_of_croniter(written: Written, day: int) -> None:
    assume(written.possible)
    # Known differences: croniter takes `*/2 * 1` as either day, Vixie as both; and `1-31`, which is every day, as a `*`.
    every_day = len(written.values[2]) == 31 or len(written.values[4]) == 7
    assume(not every_day if written.either else "*" in (written.parts[2], written.parts[4]))
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    ours = next_after(parse_cron(written.text), check_zone("UTC"), start)
    assert ours == croniter(written.text, start, max_years_between_matches=48).get_next(datetime)


@relaxed
@given(written=expressions())
def test_an_expression_of_the_dialect_is_refused_only_if_its_dates_never_come(written: Written) -> None:
    if written.possible:
        cron = parse_cron(written.text)
        read = (cron.minutes, cron.hours, cron.days_of_month, cron.months, cron.days_of_week)
        assert read == tuple(tuple(sorted(v)) for v in written.values)
        assert (cron.either_day, cron.wildcard_hour) == (written.either, written.wildcard)
        assert next_after(cron, check_zone("UTC"), at("2026-01-01T00:00Z"))
    else:
        with pytest.raises(CronError, match="can never match"):
            parse_cron(written.text)


@relaxed
@given(text=st.text(max_size=40) | st.text(alphabet="0123456789*/-,?LW# @JANMONh", max_size=30))
def test_any_text_is_read_or_refused_and_what_a_refusal_proposes_is_read(text: str) -> None:
    try:
        assert isinstance(parse_cron(text), Cron)
    except CronError as error:
        assert str(error).encode()  # no lone surrogate comes back
        assert error.instead is None or isinstance(parse_cron(error.instead), Cron)


# Both clock changes, by hand. `first` and `second` are what the clock shows: the offset tells a repeat apart.

GAPS = [
    ("America/New_York", "2026-03-08", "30 2 * * *", ["03:00-0400"]),
    ("Europe/Berlin", "2026-03-29", "30 2 * * *", ["03:00+0200"]),
    ("Europe/Berlin", "2026-03-29", "0,15,30 2,3 * * *", ["03:00+0200", "03:15+0200", "03:30+0200"]),
    ("Europe/Berlin", "2026-03-29", "*/20 2 * * *", ["03:00+0200"]),
    ("Europe/London", "2026-03-29", "30 1 * * *", ["02:00+0100"]),
    ("Australia/Lord_Howe", "2026-10-04", "15 2 * * *", ["02:30+1100"]),
    ("America/Sao_Paulo", "2018-11-04", "0 0 * * *", ["01:00-0200"]),
    ("Asia/Kathmandu", "1986-01-01", "10 0 * * *", ["00:15+0545"]),
    ("Asia/Kolkata", "2026-03-29", "30 2 * * *", ["02:30+0530"]),
    ("Africa/Casablanca", "2026-03-22", "30 2 * * *", ["03:00+0100"]),
    ("Africa/Cairo", "2026-04-24", "30 0 * * *", ["01:00+0300"]),
    ("Pacific/Apia", "2011-12-30", "0 9 * * *", []),
    ("Pacific/Apia", "2011-12-31", "0 9 * * *", ["00:00+1400", "09:00+1400"]),  # that of the 30th, then its own
    ("Antarctica/Troll", "2026-03-29", "30 2 * * *", ["03:00+0200"]),
    ("UTC", "2026-03-29", "30 2 * * *", ["02:30+0000"]),
    ("Europe/Berlin", "2026-03-29", "30 */2 * * *", [f"{h:02}:30+0200" for h in range(4, 24, 2)]),
]
FOLDS = [
    ("America/New_York", "2026-11-01", "30 1 * * *", ["01:30-0400"]),
    ("Europe/Berlin", "2026-10-25", "30 2 * * *", ["02:30+0200"]),
    ("Europe/Berlin", "2026-10-25", "30 1 * * *", ["01:30+0200"]),
    ("Europe/London", "2026-10-25", "30 0,1 * * *", ["00:30+0100", "01:30+0100"]),
    ("Europe/London", "2026-10-25", "*/30 1 * * *", ["01:00+0100", "01:30+0100"]),
    ("Australia/Lord_Howe", "2026-04-05", "45 1 * * *", ["01:45+1100"]),
    ("Australia/Lord_Howe", "2026-04-05", "45 1-2 * * *", ["01:45+1100", "02:45+1030"]),
    ("America/Sao_Paulo", "2019-02-16", "30 23 * * *", ["23:30-0200"]),
    ("Africa/Casablanca", "2026-02-15", "30 2 * * *", ["02:30+0100"]),
    ("Africa/Cairo", "2026-10-29", "30 23 * * *", ["23:30+0300"]),
    ("Pacific/Apia", "2012-04-01", "30 3 * * *", ["03:30+1400"]),
    ("Antarctica/Troll", "2026-10-25", "30 1,2 * * *", ["01:30+0200", "02:30+0200"]),
    ("America/St_Johns", "2006-10-28", "30 23 * * *", ["23:30-0230"]),
    ("Europe/Berlin", "2026-10-25", "30 */2 * * *", ["00:30+0200", "02:30+0200", "02:30+0100"]),
    ("Australia/Lord_Howe", "2026-04-05", "45 * * * *", ["00:45+1100", "01:45+1100", "01:45+1030"]),
]


@pytest.mark.parametrize(("zone", "day", "cron", "expected"), GAPS)
def test_a_fixed_job_in_the_gap_is_due_once_at_the_first_instant_after_it(
    zone: str, day: str, cron: str, expected: list[str]
) -> None:
    hour = cron.split()[1]
    found = local_times(cron, zone, day)
    assert ([t for t in found if t >= "04"] if hour == "*/2" else found) == expected


@pytest.mark.parametrize(("zone", "day", "cron", "expected"), FOLDS)
def test_a_fixed_job_in_the_fold_is_due_once_at_the_first_occurrence(
    zone: str, day: str, cron: str, expected: list[str]
) -> None:
    assert local_times(cron, zone, day)[: len(expected)] == expected


@pytest.mark.parametrize(("zone", "day"), CLOCK_CHANGES)
def test_an_hourly_job_is_due_at_every_real_hour(zone: str, day: str) -> None:
    start, end = window(day)
    due = between(parse_cron("0 * * * *"), check_zone(zone), start, end)
    whole_hours = zone not in ("Australia/Lord_Howe", "Asia/Kathmandu")
    steps = {b - a for a, b in pairwise(due)}
    assert steps == {HOUR} if whole_hours else steps >= {HOUR} and len(steps) == 2
    assert all(t.astimezone(check_zone(zone)).minute == 0 for t in due)


@pytest.mark.parametrize(("zone", "day"), CLOCK_CHANGES)
def test_a_daily_job_is_due_once_for_each_local_day(zone: str, day: str) -> None:
    start, end = window(day, before=4, after=4)
    tz, middle = check_zone(zone), date.fromisoformat(day)
    shown = {(start + n * HOUR).astimezone(tz).date() for n in range(8 * 24)}
    whole_days = {d for d in shown if abs((d - middle).days) <= 2}
    for hour in range(24):
        due = between(parse_cron(f"30 {hour} * * *"), tz, start, end)
        days = [d for d in (t.astimezone(tz).date() for t in due) if d in whole_days]
        if (zone, day) == ("Pacific/Apia", "2011-12-30"):  # no such day: its time moves to the start of the next
            days.remove(date(2011, 12, 31))
            assert len(whole_days) == 4
        assert days == sorted(whole_days), hour


def test_known_difference_cronsim_takes_a_star_in_the_minute_for_elapsed_time() -> None:
    night = at("2026-10-25T00:00+02:00")
    zone = check_zone("Europe/Berlin")
    theirs = [next(CronSim("*/30 2 * * *", t)) for t in (night, at("2026-10-25T00:45Z").astimezone(zone))]
    ours = between(parse_cron("*/30 2 * * *"), zone, night, night + 5 * HOUR)
    assert ours == [at("2026-10-25T00:00Z"), at("2026-10-25T00:30Z")]
    assert theirs[1].astimezone(UTC) == at("2026-10-25T01:00Z")
    assert theirs[1].astimezone(UTC) not in ours


# Zones


@pytest.mark.parametrize(
    ("name", "year"),
    sorted({(zone, int(day[:4])) for zone, day in CLOCK_CHANGES} | {("America/Boa_Vista", 2000), ("Asia/Gaza", 2040)}),
)
def test_spans_tell_the_offset_at_every_quarter_of_an_hour(name: str, year: int) -> None:
    zone = check_zone(name)
    found = zones.spans(zone, year)
    assert (found[0].start, found[-1].end) == (zones.year_start(year), zones.year_start(year + 1))
    assert all(a.end == b.start and a.offset == b.previous != b.offset for a, b in pairwise(found))
    for span in found:
        seconds = [*range(span.start, span.end, 900), span.end - 1]
        assert {_offset(zone, s) for s in seconds} == {span.offset}
        assert _offset(zone, span.start - 1) == span.previous


def test_zone_data_is_that_of_the_package_and_not_of_the_machine(tmp_path: Path) -> None:
    stale = tmp_path / "Europe" / "Berlin"
    stale.parent.mkdir()
    stale.write_bytes(files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes())
    zoneinfo.reset_tzpath(to=[tmp_path])
    ZoneInfo.clear_cache(only_keys=["Europe/Berlin"])
    try:
        machine, ours = ZoneInfo.no_cache("Europe/Berlin"), zones.load.__wrapped__("Europe/Berlin")
    finally:
        zoneinfo.reset_tzpath()
        ZoneInfo.clear_cache(only_keys=["Europe/Berlin"])
    assert (_offset(machine, 0), _offset(ours, 0)) == (9 * 3600, 3600)


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
