"""Cron expressions in one dialect, ours, and the instants at which they are due in a time zone.

Five fields with the semantics of Vixie cron: names, ranges, steps, lists, `7` for Sunday; day-of-month and day-of-week
are alternatives when both are restricted, and both must hold when either begins with `*`. Also `@hourly`, `@daily`,
`@weekly`, `@monthly`, `@yearly`. Anything else is refused with the text to write instead.

Where clocks change, a job whose hour field begins with `*` follows elapsed time: it is due at every real minute that
matches. Any other job is due once for each local time it names: at the first instant after the gap if the clock skips
that time (times skipped together are due once together), and at its first occurrence if the clock repeats it.

All functions are pure. Instants go in with any offset and come out in UTC, whole seconds, strictly ascending.
"""

import calendar
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from activity_core.domain import cron_advice, cron_words, zones
from activity_core.domain.cron_advice import FIELDS, Advice, Field
from activity_core.domain.zones import Span

_Ints = tuple[int, ...]

MAX_LENGTH = 512
"""Characters in an expression; every value of every field written out takes 390."""

_HORIZON_YEARS = 48  # the longest gap of any expression is 40: a 29 February on a Sunday, over a year 2100 without one
_DAY = 86_400
_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_ITEM = re.compile(r"(\*|(\d{1,2}|[A-Z]{3})(?:-(\d{1,2}|[A-Z]{3}))?)(?:/(\d+))?", re.IGNORECASE)
_SUNDAY_AGAIN = 7
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CronError(ValueError):
    """The text can't be taken. `str()` says why and what to write instead; `instead` is that text alone, or None.

    `field` names the faulty field (`minute` … `day-of-week`), None if the fault is in the text as a whole.
    """

    def __init__(self, reason: str, *, field: str | None = None, instead: str | None = None) -> None:
        super().__init__(f"{reason}; write `{instead}`" if instead else reason)
        self.field = field
        self.instead = instead


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression: the values of each field, ascending and never empty; day-of-week 0 is Sunday.

    Two texts with the same meaning are equal. `expression` is the five fields as written, macros expanded.
    """

    expression: str = field(compare=False)
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days_of_month: tuple[int, ...]
    months: tuple[int, ...]
    days_of_week: tuple[int, ...]
    either_day: bool
    """One of the two day fields is enough (both are restricted); otherwise a day must match both."""
    wildcard_hour: bool
    """The hour field begins with `*`: due by elapsed time, not once for each local time."""
    seconds_of_day: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Every hour and minute as seconds after local midnight, ascending."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds_of_day", _seconds_of_day(self.hours, self.minutes))


@lru_cache(maxsize=512)
def _seconds_of_day(hours: tuple[int, ...], minutes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(h * 3600 + m * 60 for h in hours for m in minutes)


# Reading


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> Cron:
    """Read an expression; CronError if it is not in the dialect or can never match."""
    if len(text) > MAX_LENGTH:
        raise CronError(f"cron has {len(text)} characters; at most {MAX_LENGTH} are read")
    body = text.strip(" \t\r\n")
    advice = cron_advice.for_text(body)
    if advice:
        raise CronError(f"cron {advice.reason}", instead=_valid(advice.instead))
    parts = cron_advice.MACROS.get(body, body).split()
    minutes, hours, days, months, weekdays = _read_fields(parts)
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    if not either and days[0] > max(_LONGEST[m - 1] for m in months):
        advice = cron_advice.for_impossible_date(days, months, parts)
        raise CronError(f"day-of-month {advice.reason}", field="day-of-month", instead=_valid(advice.instead))
    return Cron(" ".join(parts), minutes, hours, days, months, weekdays, either, parts[1].startswith("*"))


def _valid(proposal: str | None) -> str | None:
    """The proposal if it can be read, else what its own refusal proposes: nobody is told to write another fault."""
    if not proposal:
        return None
    try:
        parse_cron(proposal)
    except CronError as error:
        return error.instead
    return proposal


def _read_fields(parts: list[str]) -> list[tuple[int, ...]]:
    read = [_read_field(f, part) for f, part in zip(FIELDS, parts, strict=True)]
    values = [r for r in read if not isinstance(r, Advice)]
    if len(values) == len(FIELDS):
        return values
    mended = [r.instead if isinstance(r, Advice) else part for r, part in zip(read, parts, strict=True)]
    whole = " ".join(m or "" for m in mended) if all(mended) else None
    name, advice = next((f.name, r) for f, r in zip(FIELDS, read, strict=True) if isinstance(r, Advice))
    raise CronError(f"{name}: {advice.reason}", field=name, instead=_valid(whole))


def _read_field(spec: Field, text: str) -> tuple[int, ...] | Advice:
    items = text.split(",")
    read = [_read_item(spec, item) for item in items]
    refused = [r for r in read if isinstance(r, Advice)]
    if not refused:
        return tuple(sorted({v for r in read for v in r if isinstance(v, int)}))
    mended = [r.instead if isinstance(r, Advice) else item for r, item in zip(read, items, strict=True)]
    kept = [m for m in mended if m]
    return Advice(refused[0].reason, ",".join(kept) if None not in mended and kept else None)


def _read_item(spec: Field, item: str) -> list[int] | Advice:
    match = _ITEM.fullmatch(item)
    if not match:
        return cron_advice.for_item(spec, item)
    star, low_text, high_text, step_text = match[1] == "*", match[2], match[3], match[4]
    low = spec.low if star else _value(spec, low_text)
    high = spec.high if star else _value(spec, high_text or low_text)
    if low is None or high is None:
        return cron_advice.for_item(spec, item)
    step = int(step_text or 1)
    if step == 0:
        return Advice(f"`{item}` has a step of 0", item.removesuffix(f"/{step_text}") if star or high_text else None)
    if step > spec.high - spec.low:
        return Advice(f"the step of `{item}` is longer than the field, which leaves {low} alone", str(low))
    if step_text and not star and not high_text:
        return Advice(f"`{item}` has a step without a range", f"{low_text}-{spec.high}/{step}")
    if low > high:
        return _wrapped(spec, low_text, high_text, step_text)
    return [v % _SUNDAY_AGAIN if spec.name == "day-of-week" else v for v in range(low, high + 1, step)]


def _value(spec: Field, text: str) -> int | None:
    if not text.isdigit():
        return spec.names.index(text.upper()) + spec.low if text.upper() in spec.names else None
    number = int(text)
    high = _SUNDAY_AGAIN if spec.name == "day-of-week" else spec.high
    return number if spec.low <= number <= high else None


def _wrapped(spec: Field, low_text: str, high_text: str, step_text: str | None) -> Advice:
    low, high = _value(spec, low_text) or 0, _value(spec, high_text) or 0
    if low > spec.high:  # 7-2: the Sunday at the end of the week is meant as the one at its start
        step = f"/{step_text}" if step_text else ""
        return Advice(f"`{low_text}-{high_text}` ends before it starts", f"0-{high_text}{step}")
    size = spec.high - spec.low + 1
    values = [(v - spec.low) % size + spec.low for v in range(low, high + size + 1, int(step_text or 1))]
    return cron_advice.for_wrapped(spec, low_text, high_text, values, stepped=bool(step_text))


def describe(cron: Cron) -> str:
    """The expression in plain English, one clause, no full stop: `at 09:00 on Monday to Friday`."""
    times = cron_words.times(cron.minutes, cron.hours)
    days = cron_words.days(cron.days_of_month, cron.months, cron.days_of_week, either=cron.either_day)
    return f"{times} {days or 'every day'}" if days or ":" in times else times


@lru_cache(maxsize=1024)
def check_zone(name: str) -> ZoneInfo:
    """The zone of an IANA name, case-sensitive; CronError with the nearest names for anything else."""
    reason = zones.refusal(name)
    if reason:
        raise CronError(reason, field="timezone")
    return zones.load(name)


# Times


def next_after(cron: Cron, zone: ZoneInfo, instant: datetime) -> datetime | None:
    """The first due time strictly after an instant; None only where the calendar ends (`zones.LAST_YEAR`)."""
    low = max(_epoch_second(instant) + 1, 0)
    first_year = (_EPOCH + low * _SECOND).year
    for year in range(first_year, min(first_year + _HORIZON_YEARS, zones.LAST_YEAR) + 1):
        for span in _spans(cron, zone, year):
            fire = _first(cron, span, max(low, span.start)) if span.end > low else None
            if fire is not None:
                return _EPOCH + fire * _SECOND
    return None


def previous_before(cron: Cron, zone: ZoneInfo, instant: datetime) -> datetime | None:
    """The last due time strictly before an instant; None if there is none since 1970."""
    return _previous(cron, zone, -((_EPOCH - instant) // _SECOND) - 1)


def previous_at_or_before(cron: Cron, zone: ZoneInfo, instant: datetime) -> datetime | None:
    """The last due time not after an instant; None if there is none since 1970."""
    return _previous(cron, zone, _epoch_second(instant))


def iterate(cron: Cron, zone: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Due times in (after, until], ascending, made a day at a time: stop reading and no more are made."""
    low, high = max(_epoch_second(after) + 1, 0), min(_epoch_second(until), zones.year_start(zones.LAST_YEAR + 1) - 1)
    if low > high:
        return
    for year in range((_EPOCH + low * _SECOND).year, (_EPOCH + high * _SECOND).year + 1):
        for span in _spans(cron, zone, year):
            if span.end > low and span.start <= high:
                for batch in _all(cron, span, max(low, span.start), high):
                    yield from [datetime.fromtimestamp(fire, UTC) for fire in batch]


def between(cron: Cron, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """Due times in (after, until], ascending. A year of minutes is 525,600 of them, in well under a second."""
    return list(iterate(cron, zone, after, until))


def _epoch_second(instant: datetime) -> int:
    return (instant - _EPOCH) // _SECOND


def _previous(cron: Cron, zone: ZoneInfo, high: int) -> datetime | None:
    high = min(high, zones.year_start(zones.LAST_YEAR + 1) - 1)
    if high < 0:
        return None
    last_year = (_EPOCH + high * _SECOND).year
    for year in range(last_year, max(last_year - _HORIZON_YEARS, zones.FIRST_YEAR) - 1, -1):
        for span in reversed(_spans(cron, zone, year)):
            fire = _last(cron, span, high) if span.start <= high else None
            if fire is not None:
                return _EPOCH + fire * _SECOND
    return None


def _spans(cron: Cron, zone: ZoneInfo, year: int) -> tuple[Span, ...]:
    # Finding a zone's changes costs a year of probes once: not for years in which a sparse expression has no day.
    near = [(year, m) for m in cron.months]
    near += [(y, m) for y, m in ((year - 1, 12), (year + 1, 1)) if m in cron.months]
    return zones.spans(zone, year) if any(_days_of(cron, y, m) for y, m in near) else ()


# Within a span the local clock runs evenly: `wall` is local time in seconds, second + offset. A span that starts with a
# repeat (offset < previous) begins for a fixed job only where the repeat ends; one that starts with a gap is due at its
# very start if the gap swallowed a time.


def _walls(cron: Cron, span: Span) -> tuple[int, int]:
    """The wall times [from, to) of a span that count for this expression."""
    offset = span.offset if cron.wildcard_hour else max(span.offset, span.previous)
    return span.start + offset, span.end + span.offset


def _swallowed(cron: Cron, span: Span) -> bool:
    if cron.wildcard_hour or span.offset <= span.previous:
        return False
    return _wall_first(cron, span.start + span.previous, span.start + span.offset) is not None


def _first(cron: Cron, span: Span, low: int) -> int | None:
    if low == span.start and _swallowed(cron, span):
        return span.start
    begin, end = _walls(cron, span)
    wall = _wall_first(cron, max(begin, low + span.offset), end)
    return None if wall is None else wall - span.offset


def _last(cron: Cron, span: Span, high: int) -> int | None:
    begin, end = _walls(cron, span)
    wall = _wall_last(cron, begin, min(end, high + span.offset + 1))
    if wall is not None:
        return wall - span.offset
    return span.start if _swallowed(cron, span) else None


def _all(cron: Cron, span: Span, low: int, high: int) -> Iterator[list[int]]:
    begin, end = _walls(cron, span)
    begin, end = max(begin, low + span.offset), min(end, high + span.offset + 1)
    if low == span.start and _swallowed(cron, span):
        yield [span.start]
        begin = max(begin, span.start + span.offset + 1)  # the same instant may also be due by itself
    if begin >= end:
        return
    times = cron.seconds_of_day
    for day in _days(cron, begin // _DAY, (end - 1) // _DAY):
        midnight = day * _DAY
        start, stop = bisect_left(times, begin - midnight), bisect_left(times, end - midnight)
        shift = midnight - span.offset
        yield [shift + t for t in times[start:stop]]


def _wall_first(cron: Cron, begin: int, end: int) -> int | None:
    times = cron.seconds_of_day
    for day in _days(cron, begin // _DAY, (end - 1) // _DAY):
        index = bisect_left(times, begin - day * _DAY)
        if index < len(times):
            wall = day * _DAY + times[index]
            return wall if wall < end else None
    return None


def _wall_last(cron: Cron, begin: int, end: int) -> int | None:
    times = cron.seconds_of_day
    for day in _days_back(cron, begin // _DAY, (end - 1) // _DAY):
        index = bisect_right(times, end - 1 - day * _DAY)
        if index:
            wall = day * _DAY + times[index - 1]
            return wall if wall >= begin else None
    return None


def _days(cron: Cron, first: int, last: int) -> Iterator[int]:
    """Matching local days in [first, last], as days since 1970, ascending."""
    start, stop = _date(first), _date(last)
    for month in range(start.year * 12 + start.month - 1, stop.year * 12 + stop.month):
        for day in _days_of(cron, month // 12, month % 12 + 1):
            if first <= day <= last:
                yield day


def _days_back(cron: Cron, first: int, last: int) -> Iterator[int]:
    start, stop = _date(first), _date(last)
    for month in range(stop.year * 12 + stop.month - 1, start.year * 12 + start.month - 2, -1):
        for day in reversed(_days_of(cron, month // 12, month % 12 + 1)):
            if first <= day <= last:
                yield day


def _days_of(cron: Cron, year: int, month: int) -> tuple[int, ...]:
    if month not in cron.months:
        return ()
    return _days_in_month(cron.days_of_month, cron.days_of_week, cron.either_day, year, month)


@lru_cache(maxsize=4096)
def _days_in_month(dates: _Ints, weekdays: _Ints, either: bool, year: int, month: int) -> _Ints:
    first_weekday, length = calendar.monthrange(year, month)  # 0 = Monday here, 0 = Sunday in cron
    before = date(year, month, 1).toordinal() - _EPOCH_ORDINAL - 1
    found = []
    for day in range(1, length + 1):
        by_date, by_weekday = day in dates, (first_weekday + day) % 7 in weekdays
        if (by_date or by_weekday) if either else (by_date and by_weekday):
            found.append(before + day)
    return tuple(found)


def _date(day: int) -> date:
    return date.fromordinal(day + _EPOCH_ORDINAL)
