"""Due times as structured calendars and intervals, the form in which they are given to a scheduler.

Never as text, which a scheduler reads differently. A calendar matches a local second if each of its fields does; a list
of calendars and intervals matches if one of them does. What a scheduler then makes of gaps and repeats of the local
clock is its own affair: its ticks are hints.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from activity_core.domain.cron import Cron
from activity_core.domain.times import CronRule, IntervalRule, Times


@dataclass(frozen=True, slots=True)
class CalendarRange:
    """`start`, `start + step`, … up to and including `end`, which is one of them."""

    start: int
    end: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Calendar:
    """Ranges of each field, ascending; day-of-week is 0 (Sunday) to 6. None is empty but `year`: then it is free."""

    minute: tuple[CalendarRange, ...]
    hour: tuple[CalendarRange, ...]
    day_of_month: tuple[CalendarRange, ...]
    month: tuple[CalendarRange, ...]
    day_of_week: tuple[CalendarRange, ...]
    second: tuple[CalendarRange, ...] = (CalendarRange(0, 0),)
    year: tuple[CalendarRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Interval:
    """Every epoch second `s` with `s % every_seconds == offset_seconds`; the zone plays no part."""

    every_seconds: int
    offset_seconds: int


@dataclass(frozen=True, slots=True)
class Calendars:
    """What a schedule is made of, in one zone (IANA name). Bounds are UTC and inclusive, None where it is open.

    An expression is one calendar, or two if either day field is enough; an interval is one interval; a single instant
    is one calendar with a year, in UTC.
    """

    zone: str
    calendars: tuple[Calendar, ...]
    intervals: tuple[Interval, ...] = ()
    start_at: datetime | None = None
    end_at: datetime | None = None

    def fingerprint(self) -> str:
        """64 hex digits that are the same for equal structures, in every process and release, and differ for others.

        What is the same to a scheduler is the same here, however it was written: `*/30` and `0,30`.
        """
        plain = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), default=datetime.isoformat)
        return hashlib.sha256(plain.encode()).hexdigest()


_ANY_DATE = (CalendarRange(1, 31),)
_ANY_WEEKDAY = (CalendarRange(0, 6),)


def compile_calendars(cron: Cron, zone: str) -> Calendars:
    """The same local minutes as the expression's, in a form that does not depend on anyone's reading of cron text."""
    dates, weekdays = _ranges(cron.days_of_month), _ranges(cron.days_of_week)
    pairs = [(dates, _ANY_WEEKDAY), (_ANY_DATE, weekdays)] if cron.either_day else [(dates, weekdays)]
    minute, hour, month = _ranges(cron.minutes), _ranges(cron.hours), _ranges(cron.months)
    return Calendars(zone, tuple(Calendar(minute, hour, date, month, weekday) for date, weekday in pairs))


def compile_times(times: Times) -> Calendars:
    """Any due times, with their bounds."""
    rule = times.rule
    if isinstance(rule, CronRule):
        compiled = compile_calendars(rule.cron, rule.zone)
        return Calendars(rule.zone, compiled.calendars, (), times.start_at, times.end_at)
    if isinstance(rule, IntervalRule):
        interval = Interval(rule.every_seconds, rule.phase_seconds)
        return Calendars("UTC", (), (interval,), times.start_at, times.end_at)
    return Calendars("UTC", (_instant(datetime.fromtimestamp(rule.at, UTC)),), (), times.start_at, times.end_at)


def _instant(at: datetime) -> Calendar:
    return Calendar(
        minute=_ranges((at.minute,)),
        hour=_ranges((at.hour,)),
        day_of_month=_ranges((at.day,)),
        month=_ranges((at.month,)),
        day_of_week=_ANY_WEEKDAY,
        second=_ranges((at.second,)),
        year=_ranges((at.year,)),
    )


def _ranges(values: tuple[int, ...]) -> tuple[CalendarRange, ...]:
    """Few ranges for ascending values: from the left, each takes as many as are evenly spaced."""
    found = []
    at = 0
    while at < len(values):
        stop = _evenly_spaced(values, at)
        step = values[at + 1] - values[at] if stop - at > 1 else 1
        found.append(CalendarRange(values[at], values[stop - 1], step))
        at = stop
    return tuple(found)


def _evenly_spaced(values: tuple[int, ...], at: int) -> int:
    """End of the longest evenly spaced run from `at`; two values that are not neighbours are no run yet."""
    stop = at + 1
    while stop < len(values) and values[stop] - values[stop - 1] == values[at + 1] - values[at]:
        stop += 1
    return at + 1 if stop - at == 2 and values[at + 1] - values[at] > 1 else stop
