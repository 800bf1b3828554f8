"""Calendars match the same local minutes as the expression they come from."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from activity_core.domain.calendars import Calendar, CalendarRange, compile_calendars
from activity_core.domain.cron import parse_cron

from .cron_reference import PHASES, Written, expressions

ANY_MINUTE = (CalendarRange(0, 59),)
ANY_HOUR = (CalendarRange(0, 23),)
ANY_DATE = (CalendarRange(1, 31),)
ANY_MONTH = (CalendarRange(1, 12),)
ANY_WEEKDAY = (CalendarRange(0, 6),)


def only(value: int) -> tuple[CalendarRange, ...]:
    return (CalendarRange(value, value),)


def calendars(text: str) -> tuple[Calendar, ...]:
    return compile_calendars(parse_cron(text), "Europe/Berlin").calendars


def holds(ranges: tuple[CalendarRange, ...], value: int) -> bool:
    return any(r.start <= value <= r.end and (value - r.start) % r.step == 0 for r in ranges)


def matches(calendar: Calendar, local: datetime) -> bool:
    return (
        holds(calendar.minute, local.minute)
        and holds(calendar.hour, local.hour)
        and holds(calendar.day_of_month, local.day)
        and holds(calendar.month, local.month)
        and holds(calendar.day_of_week, local.isoweekday() % 7)
    )


def test_every_field_is_spelt_out() -> None:
    assert calendars("* * * * *") == (Calendar(ANY_MINUTE, ANY_HOUR, ANY_DATE, ANY_MONTH, ANY_WEEKDAY),)
    assert calendars("*/15 9-17 * 2 MON-FRI") == (
        Calendar((CalendarRange(0, 45, 15),), (CalendarRange(9, 17),), ANY_DATE, only(2), (CalendarRange(1, 5),)),
    )


def test_the_zone_goes_along() -> None:
    assert compile_calendars(parse_cron("0 9 * * *"), "Asia/Tokyo").zone == "Asia/Tokyo"


def test_either_day_field_is_two_calendars() -> None:
    # Handed on as text, `0 0 13 * 5` would mean Friday the 13th.
    assert calendars("0 0 13 * 5") == (
        Calendar(only(0), only(0), only(13), ANY_MONTH, ANY_WEEKDAY),
        Calendar(only(0), only(0), ANY_DATE, ANY_MONTH, only(5)),
    )
    assert len(calendars("0 0 */2 * 1")) == 1


def test_the_whole_week_keeps_its_sunday() -> None:
    # Handed on as text, `1-7` would lose it.
    assert calendars("0 0 * * 1-7") == (Calendar(only(0), only(0), ANY_DATE, ANY_MONTH, ANY_WEEKDAY),)


@pytest.mark.parametrize(
    ("minutes", "ranges"),
    [
        ("0,15,30,45", (CalendarRange(0, 45, 15),)),
        ("0,1,2,10,20,30", (CalendarRange(0, 2), CalendarRange(10, 30, 10))),
        ("5", (CalendarRange(5, 5),)),
        ("5,6", (CalendarRange(5, 6),)),
        ("5,9", (CalendarRange(5, 5), CalendarRange(9, 9))),
        ("0,7,8,9", (CalendarRange(0, 0), CalendarRange(7, 9))),
    ],
)
def test_values_become_few_ranges(minutes: str, ranges: tuple[CalendarRange, ...]) -> None:
    assert calendars(f"{minutes} * * * *")[0].minute == ranges


@settings(max_examples=150, deadline=None, derandomize=True, phases=PHASES)
@given(
    written=expressions(), days=st.integers(0, 50_000), minutes=st.lists(st.integers(0, 1_439), min_size=5, max_size=20)
)
def test_calendars_match_the_local_minutes_of_the_expression(written: Written, days: int, minutes: list[int]) -> None:
    assume(written.possible)
    compiled = calendars(written.text)
    # A week from any day on: so that each weekday is looked at, at some minutes and at those of the expression.
    likely = sorted(written.values[1])[0] * 60 + sorted(written.values[0])[0]
    for day in range(days, days + 7):
        for minute in [*minutes, likely]:
            local = datetime(1970, 1, 1) + timedelta(days=day, minutes=minute)  # noqa: DTZ001 - wall time
            assert any(matches(c, local) for c in compiled) == written.matches(local), local


@settings(max_examples=100, deadline=None, derandomize=True, phases=PHASES)
@given(written=expressions())
def test_ranges_are_ascending_and_end_on_a_value(written: Written) -> None:
    assume(written.possible)
    for calendar in calendars(written.text):
        fields = (calendar.minute, calendar.hour, calendar.day_of_month, calendar.month, calendar.day_of_week)
        for ranges in fields:
            assert ranges
            assert all(r.step >= 1 and (r.end - r.start) % r.step == 0 for r in ranges)
            assert all(a.end < b.start for a, b in pairwise(ranges))
