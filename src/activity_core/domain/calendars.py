"""A cron expression as structured calendars, the form in which it is given to a scheduler that reads text differently.

A calendar matches a local minute if each of its five fields does; a list of calendars matches if one of them does. What
a scheduler then makes of gaps and repeats of the local clock is its own affair: its ticks are hints.
"""

from dataclasses import dataclass

from activity_core.domain.cron import Cron


@dataclass(frozen=True, slots=True)
class CalendarRange:
    """`start`, `start + step`, … up to and including `end`, which is one of them."""

    start: int
    end: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Calendar:
    """Ranges of each field, ascending, never empty. Second is 0, the year is free; day-of-week is 0 (Sunday) to 6."""

    minute: tuple[CalendarRange, ...]
    hour: tuple[CalendarRange, ...]
    day_of_month: tuple[CalendarRange, ...]
    month: tuple[CalendarRange, ...]
    day_of_week: tuple[CalendarRange, ...]


@dataclass(frozen=True, slots=True)
class Calendars:
    """What a schedule is made of: one calendar, or two if either day field is enough, in one zone (IANA name)."""

    zone: str
    calendars: tuple[Calendar, ...]


_ANY_DATE = (CalendarRange(1, 31),)
_ANY_WEEKDAY = (CalendarRange(0, 6),)


def compile_calendars(cron: Cron, zone: str) -> Calendars:
    """The same local minutes as the expression's, in a form that does not depend on anyone's reading of cron text."""
    dates, weekdays = _ranges(cron.days_of_month), _ranges(cron.days_of_week)
    pairs = [(dates, _ANY_WEEKDAY), (_ANY_DATE, weekdays)] if cron.either_day else [(dates, weekdays)]
    minute, hour, month = _ranges(cron.minutes), _ranges(cron.hours), _ranges(cron.months)
    return Calendars(zone, tuple(Calendar(minute, hour, date, month, weekday) for date, weekday in pairs))


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
