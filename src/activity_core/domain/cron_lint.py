"""Warnings about valid cron expressions that mean something else than they look.

A warning never refuses anything. It is one or two short sentences that say what the expression does and, where there is
a better way, what to write. Expressions that do what everybody expects have none.
"""

import calendar
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from activity_core.domain import cron_words, zones
from activity_core.domain.cron import Cron
from activity_core.domain.cron_advice import DAYS, FIELDS, MONTHS, Field

_ALL_DATES, _ALL_MONTHS, _ALL_WEEK = tuple(range(1, 32)), tuple(range(1, 13)), tuple(range(7))
_DAY = 86_400
# Day numbers as Quartz counts them, from 1 = Sunday, in the two spellings in which they are usually pasted.
_QUARTZ_WEEK = {"2-6": "1-5", "2,3,4,5,6": "1-5", "1,7": "0,6", "7,1": "0,6"}


def warnings(cron: Cron) -> list[str]:
    """What may surprise in the expression itself, the most surprising first; empty if nothing does."""
    parts = cron.expression.split()
    return [
        *_days_are_alternatives(cron, parts),
        *_days_must_agree(cron, parts),
        *_every_minute(cron, parts),
        *_uneven_steps(cron, parts),
        *_missing_dates(cron, parts),
        *_quartz_days(cron, parts),
    ]


def clock_warnings(cron: Cron, zone: ZoneInfo, after: datetime) -> list[str]:
    """The times of day that the zone's clock skips at its next change forward within two years, if the job has any.

    Only for jobs at fixed local times; one that follows elapsed time loses nothing. Repeats of the clock need no warning:
    the job is due once, at the first occurrence.
    """
    if cron.wildcard_hour:
        return []
    start = int(after.timestamp())
    for year in range(after.astimezone(UTC).year, after.astimezone(UTC).year + 3):
        for span in zones.spans(zone, year):
            if span.start > start and span.offset > span.previous:
                skipped = _skipped(cron, span.start + span.previous, span.start + span.offset)
                return [_clock_sentence(skipped, zone, span.start)] if skipped else []
    return []


def _skipped(cron: Cron, begin: int, end: int) -> list[str]:
    """The times of day in a gap of wall time, `HH:MM`, on whatever date."""
    midnight = begin - begin % _DAY
    walls = [midnight + shift + s for shift in (0, _DAY) for s in cron.seconds_of_day]
    return [f"{w % _DAY // 3600:02}:{w % 3600 // 60:02}" for w in walls if begin <= w < end]


def _clock_sentence(skipped: list[str], zone: ZoneInfo, change: int) -> str:
    then = datetime.fromtimestamp(change, zone)
    times = skipped[0] if len(skipped) == 1 else f"{skipped[0]} to {skipped[-1]}"
    together = "" if len(skipped) == 1 else ", all of them as one time"
    return (
        f"Clocks in {zone.key} go forward on {then:%Y-%m-%d} and skip {times}: "
        f"on such a day it is due at {then:%H:%M}{together}."
    )


def _days_are_alternatives(cron: Cron, parts: list[str]) -> Iterator[str]:
    if not cron.either_day:
        return
    for number, values, size in ((2, cron.days_of_month, 31), (4, cron.days_of_week, 7)):
        if len(values) == size:
            yield (
                f"Either day field is enough, and `{parts[number]}` holds every day: it is due every day. "
                f"Write `*` for {FIELDS[number].name} to let the other field decide."
            )
            return
    dates = cron_words.days(cron.days_of_month, _ALL_MONTHS, _ALL_WEEK, either=False)
    if cron.days_of_month[0] > max(_length(m, leap=True) for m in cron.months):
        yield f"{_months(cron.months)} never {_has(cron.months)} day {cron.days_of_month[0]}: the weekdays alone decide."
        return
    week = cron_words.days(_ALL_DATES, _ALL_MONTHS, cron.days_of_week, either=False)
    yield (
        f"Either day field is enough: it is due {dates}, and also {week} whatever the date. "
        f"For days that are both, write `*` in one field and a rule on `local.day` or `local.weekday`."
    )


def _days_must_agree(cron: Cron, parts: list[str]) -> Iterator[str]:
    if not cron.either_day and len(cron.days_of_month) < 31 and len(cron.days_of_week) < 7:
        star = parts[2] if parts[2].startswith("*") else parts[4]
        days = cron_words.days(cron.days_of_month, _ALL_MONTHS, cron.days_of_week, either=False)
        yield f"Both day fields must match, because `{star}` begins with `*`: it is due {days}."


def _every_minute(cron: Cron, parts: list[str]) -> Iterator[str]:
    """`* 9 * * *`, meant as once at nine. A range of hours is meant as it stands."""
    scattered = all(b - a > 1 for a, b in zip(cron.hours, cron.hours[1:], strict=False))
    if len(cron.minutes) == 60 and scattered:
        once = " ".join(["0", *parts[1:]])
        hours = f"hour {cron.hours[0]}" if len(cron.hours) == 1 else "each of its hours"
        yield f"It is due at every minute of {hours}. For once in the hour write `{once}`."


def _uneven_steps(cron: Cron, parts: list[str]) -> Iterator[str]:
    """Steps that do not go up in what is above them, where one round is followed at once by the next."""
    follows = {
        "minute": _neighbours(cron.hours, 24),
        "hour": len(cron.days_of_month) > 1 and _neighbours(cron.days_of_week, 7),
        "day-of-month": len(cron.days_of_week) == 7,
        "month": True,
        "day-of-week": len(cron.days_of_month) == 31,
    }
    for spec, part in zip(FIELDS, parts, strict=True):
        step = _whole_step(spec, part)
        if step and follows[spec.name] and (spec.name == "day-of-month" or (spec.high - spec.low + 1) % step):
            yield _uneven_sentence(spec, part, step, parts)


def _neighbours(values: tuple[int, ...], size: int) -> bool:
    return any((value + 1) % size in values for value in values)


def _whole_step(spec: Field, part: str) -> int:
    """The step if the part is one that runs through the whole field, else 0."""
    base, _, step = part.partition("/")
    whole = base == "*" or base == f"{spec.low}-{spec.high}"
    return int(step) if whole and step.isdigit() and int(step) > 1 else 0


def _uneven_sentence(spec: Field, part: str, step: int, parts: list[str]) -> str:
    last = spec.low + (spec.high - spec.low) // step * step
    if spec.name == "minute":
        seconds = step * 60 if parts[1:] == ["*"] * 4 else None
        return f"`{part}` starts again each hour: {60 - last} minutes after minute {last}." + _interval(seconds)
    if spec.name == "hour":
        seconds = step * 3600 if parts[2:] == ["*"] * 3 and parts[0].isdigit() else None
        return f"`{part}` starts again each day: {_count(24 - last, 'hour')} after hour {last}." + _interval(seconds)
    if spec.name == "month":
        return f"`{part}` starts again each year: {_count(13 - last, 'month')} after {MONTHS[last - 1]}."
    if spec.name == "day-of-week":
        return f"`{part}` starts again each week: {_count(7 - last, 'day')} after {DAYS[last]}."
    gap = min(length - (1 + (length - 1) // step * step) + 1 for length in (28, 29, 30, 31))
    return f"`{part}` starts again on the 1st of each month, which may be {_count(gap, 'day')} after the time before."


def _interval(seconds: int | None) -> str:
    return f" For even spacing use a trigger of type `interval` with `every_seconds: {seconds}`." if seconds else ""


def _missing_dates(cron: Cron, parts: list[str]) -> Iterator[str]:
    """Single late days and ranges of them; a range that begins earlier is meant to run to the month's end."""
    if cron.either_day:
        return
    late = sorted(day for item in parts[2].split(",") for day in _late_days(item))
    if not late:
        return
    if cron.months == (2,):
        yield "29 February comes only in leap years: every four years, and not in 2100."
        return
    day = late[0]
    short = tuple(m for m in cron.months if _length(m, leap=False) < day)
    if not short:
        return
    if day == _length(2, leap=True):
        fault = f"February has day {day} in leap years only: in others it is left out"
    else:
        fault = f"{_months(short)} {_has(short)} no day {day}: it is left out there"
    yield f"{fault}. For the last day of each month write `28-31` and a rule on `local.last_day`."


def _length(month: int, *, leap: bool) -> int:
    return calendar.monthrange(2028 if leap else 2027, month)[1]


def _has(months: tuple[int, ...]) -> str:
    return "has" if len(months) == 1 else "have"


def _late_days(item: str) -> list[int]:
    low, _, _ = item.partition("/")[0].partition("-")
    return [int(low)] if low.isdigit() and int(low) > _length(2, leap=False) else []


def _months(months: tuple[int, ...]) -> str:
    names = [MONTHS[m - 1] for m in months]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _quartz_days(cron: Cron, parts: list[str]) -> Iterator[str]:
    other = _QUARTZ_WEEK.get(parts[4])
    if other:
        days = cron_words.days(_ALL_DATES, _ALL_MONTHS, cron.days_of_week, either=False)
        meant = "Monday to Friday" if other == "1-5" else "Saturday and Sunday"
        yield f"`{parts[4]}` means {days.removeprefix('on ')}, as 0 is Sunday here. For {meant} write `{other}`."


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
