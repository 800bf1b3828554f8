"""The nominal times of a trigger: a cron expression in a zone, an interval, or one instant; with optional bounds.

An interval is due at `anchor + k * every_seconds` for every whole k, negative ones too: the anchor says where the grid
lies and not when it begins (that is `start_at`), so it never drifts and an edit of the anchor's date alone changes
nothing. Without an anchor the grid lies on the Unix epoch: 900 seconds means each quarter of a UTC hour, 86,400 means
midnight UTC. Seconds are real ones: clock changes do not touch an interval.

Bounds are inclusive at both ends: nothing is due before `start_at` or after `end_at`, and a time that falls on one of
them is due. They cut the times that the rule has; they never move one.

All functions are pure. Instants go in with any offset, whole or not; out come UTC, whole seconds, strictly ascending.
Only the years 1970 to `zones.LAST_YEAR` are looked at.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise

from activity_core.domain import cron, zones

MAX_EVERY_SECONDS = 31_536_000
"""A year of 365 days."""
FIRST_ONCE_YEAR, LAST_ONCE_YEAR = 2000, 2100
"""Years of a single instant: those that a scheduler's calendar can name."""

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = 0, zones.year_start(zones.LAST_YEAR + 1) - 1
_DAY = 86_400
# A gap is asked for without an instant: the clock changes that count are those of years in which a trigger may be due.
_YEARS_OF_CHANGES = range(2025, 2041)
_DATES, _MONTHS, _WEEK = tuple(range(1, 32)), tuple(range(1, 13)), tuple(range(7))
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class TimesError(ValueError):
    """A setting can't be taken; `str()` says why, `field` names it as the document does (`start_at`, `anchor`, …)."""

    def __init__(self, reason: str, *, field: str) -> None:
        super().__init__(reason)
        self.field = field


# Rules speak in epoch seconds. They know nothing of bounds: what they find may lie beyond those, and Times looks.


@dataclass(frozen=True, slots=True)
class CronRule:
    """Local times of an expression in the zone with that IANA name."""

    cron: cron.Cron
    zone: str

    def first_from(self, low: int) -> int | None:
        return _second(cron.next_after(self.cron, zones.load(self.zone), _instant(low - 1)))

    def last_to(self, high: int) -> int | None:
        return _second(cron.previous_at_or_before(self.cron, zones.load(self.zone), _instant(high)))

    def all_of(self, low: int, high: int) -> Iterator[datetime]:
        return cron.iterate(self.cron, zones.load(self.zone), _instant(low - 1), _instant(high))

    def smallest_gap(self) -> int:
        """As if every day matched: never more than the true gap, for it looks no further than the times of day."""
        daily = replace(self.cron, days_of_month=_DATES, months=_MONTHS, days_of_week=_WEEK)
        times = daily.seconds_of_day
        gaps = (later - earlier for earlier, later in pairwise((*times, times[0] + _DAY)))
        return min(chain(gaps, _gaps_at_changes(CronRule(daily, self.zone))))

    def describe(self) -> str:
        return f"{cron.describe(self.cron)}, {self.zone} time"


@dataclass(frozen=True, slots=True)
class IntervalRule:
    """Every epoch second `s` with `s % every_seconds == phase_seconds`."""

    every_seconds: int
    phase_seconds: int

    def first_from(self, low: int) -> int:
        return low + (self.phase_seconds - low) % self.every_seconds

    def last_to(self, high: int) -> int:
        return high - (high - self.phase_seconds) % self.every_seconds

    def all_of(self, low: int, high: int) -> Iterator[datetime]:
        for second in range(self.first_from(low), high + 1, self.every_seconds):
            yield datetime.fromtimestamp(second, UTC)

    def smallest_gap(self) -> int:
        return self.every_seconds

    def describe(self) -> str:
        size, unit = next(u for u in _UNITS if self.every_seconds % u[0] == 0)
        count = self.every_seconds // size
        every = f"every {unit}" if count == 1 else f"every {count:,} {unit}s"
        first = _instant(self.phase_seconds)
        if 86_400 % self.every_seconds:
            return f"{every}, counted from {_said(first)}"
        if self.every_seconds == 1:
            return every
        clock = f"{first:%H:%M:%S}" if first.second else f"{first:%H:%M}"
        return f"{every} {'at' if unit == 'day' else 'from'} {clock} UTC"


@dataclass(frozen=True, slots=True)
class OnceRule:
    """One epoch second."""

    at: int

    def first_from(self, low: int) -> int | None:
        return self.at if low <= self.at else None

    def last_to(self, high: int) -> int | None:
        return self.at if self.at <= high else None

    def all_of(self, low: int, high: int) -> Iterator[datetime]:
        if low <= self.at <= high:
            yield _instant(self.at)

    def smallest_gap(self) -> None:
        return None

    def describe(self) -> str:
        return f"once at {_said(_instant(self.at))}"


Rule = CronRule | IntervalRule | OnceRule


@dataclass(frozen=True, slots=True)
class Times:
    """The due times of one trigger. Equal if they are due at the same times by the same rule. Bounds inclusive, UTC."""

    rule: Rule
    start_at: datetime | None = None
    end_at: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        """The first due time strictly after an instant; None if there is none any more."""
        low, high = self._limits(_floor(instant) + 1, _LAST)
        found = self.rule.first_from(low) if low <= high else None
        return _instant(found) if found is not None and found <= high else None

    def previous_before(self, instant: datetime) -> datetime | None:
        """The last due time strictly before an instant; None if there is none."""
        return self._last_to(-((_EPOCH - instant) // _SECOND) - 1)

    def previous_at_or_before(self, instant: datetime) -> datetime | None:
        """The last due time not after an instant; None if there is none."""
        return self._last_to(_floor(instant))

    def iterate(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Due times in (after, until], ascending and made as they are read."""
        low, high = self._limits(_floor(after) + 1, _floor(until))
        return self.rule.all_of(low, high) if low <= high else iter(())

    def between(self, after: datetime, until: datetime) -> list[datetime]:
        """Due times in (after, until], ascending."""
        return list(self.iterate(after, until))

    def is_due(self, instant: datetime) -> bool:
        """Whether this very instant is a due time."""
        return self.previous_at_or_before(instant) == instant

    def first(self) -> datetime | None:
        """The first due time of all; None if the bounds leave none: such a trigger never runs."""
        return self.next_after(_instant(_FIRST - 1))

    def last(self) -> datetime | None:
        """The last due time of all; None if there is none, or no end."""
        if self.end_at is None and not isinstance(self.rule, OnceRule):
            return None
        return self._last_to(_LAST)

    def smallest_gap(self) -> int | None:
        """Seconds: no two times of the rule are closer, bounds aside; None if there is only one.

        Of a cron rule a lower bound: days that do not match are taken to match. Clock changes of 2025 to 2040 count.
        """
        return self.rule.smallest_gap()

    def interval_start(self, nominal: datetime) -> datetime | None:
        """The time of the rule before this one, bounds aside: where the window of a very first run begins."""
        return self.unbounded().previous_before(nominal)

    def unbounded(self) -> "Times":
        """The same rule without bounds."""
        return replace(self, start_at=None, end_at=None)

    def describe(self) -> str:
        """The times in plain English, one clause, no full stop."""
        bounds = [f"from {_said(self.start_at)}"] if self.start_at else []
        bounds += [f"until {_said(self.end_at)}"] if self.end_at else []
        return ", ".join([self.rule.describe(), " ".join(bounds)] if bounds else [self.rule.describe()])

    def _last_to(self, high: int) -> datetime | None:
        low, high = self._limits(_FIRST, high)
        found = self.rule.last_to(high) if low <= high else None
        return _instant(found) if found is not None and found >= low else None

    def _limits(self, low: int, high: int) -> tuple[int, int]:
        """[low, high] within the bounds and within what can be enumerated; empty if low > high."""
        low = max(low, _FIRST if self.start_at is None else _floor(self.start_at))
        return low, min(high, _LAST if self.end_at is None else _floor(self.end_at))


def cron_times(text: str, zone: str, start_at: datetime | None = None, end_at: datetime | None = None) -> Times:
    """The times of an expression in an IANA zone; CronError if either can't be read, TimesError for the bounds."""
    parsed = cron.parse_cron(text)
    cron.check_zone(zone)
    return _bounded(CronRule(parsed, zone), start_at, end_at)


def interval_times(
    every_seconds: int,
    anchor: datetime | None = None,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> Times:
    """The times `anchor + k * every_seconds`; the anchor is the Unix epoch if left out. TimesError."""
    if not 1 <= every_seconds <= MAX_EVERY_SECONDS:
        limits = f"from 1 to {MAX_EVERY_SECONDS:,} seconds (365 days)"
        raise TimesError(f"{every_seconds:,} is out of range; an interval is {limits}", field="every_seconds")
    phase = 0 if anchor is None else _floor(_checked(anchor, "anchor")) % every_seconds
    return _bounded(IntervalRule(every_seconds, phase), start_at, end_at)


def once_times(at: datetime) -> Times:
    """One time. TimesError; whether it is past already only the caller can know."""
    instant = _checked(at, "at")
    if not FIRST_ONCE_YEAR <= instant.year <= LAST_ONCE_YEAR:
        raise TimesError(f"{_said(instant)} is not in the years {FIRST_ONCE_YEAR} to {LAST_ONCE_YEAR}", field="at")
    return Times(OnceRule(_floor(instant)))


def jitter_delay(key: str, jitter_seconds: int) -> timedelta:
    """How long after its nominal time the occurrence with this key starts: in [0, jitter_seconds], to the microsecond.

    The same for the same key for ever and even over many keys. It delays a start and is never part of a nominal time.
    `key` must name the activity too (its run's workflow ID does), or all activities of one instant move together.
    """
    if jitter_seconds < 0:
        raise TimesError(f"{jitter_seconds} is negative", field="jitter_seconds")
    drawn = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")
    return timedelta(microseconds=drawn % (jitter_seconds * 1_000_000 + 1))


def _gaps_at_changes(rule: CronRule) -> Iterator[int]:
    """The gaps that a clock change cuts or ends: the only ones that are no difference of times of day."""
    changes = (
        span.start
        for year in _YEARS_OF_CHANGES
        for span in zones.spans(zones.load(rule.zone), year)
        if span.offset != span.previous
    )
    for change in changes:
        before, at = rule.last_to(change - 1), rule.first_from(change)
        after = None if at is None else rule.first_from(at + 1)
        found = [second for second in (before, at, after) if second is not None]
        yield from (later - earlier for earlier, later in pairwise(found))


def _bounded(rule: Rule, start_at: datetime | None, end_at: datetime | None) -> Times:
    start = None if start_at is None else _checked(start_at, "start_at")
    end = None if end_at is None else _checked(end_at, "end_at")
    if start and end and end < start:
        raise TimesError(f"{_said(end)} is before start_at, {_said(start)}", field="end_at")
    return Times(rule, start, end)


def _checked(instant: datetime, name: str) -> datetime:
    """The instant in UTC, if it has an offset and whole seconds and can be enumerated."""
    if instant.utcoffset() is None:
        raise TimesError(f"{instant.isoformat()} has no offset; write it with `Z` or such as `+01:00`", field=name)
    second = _floor(instant)
    if instant != _EPOCH + second * _SECOND:
        raise TimesError(f"{instant.isoformat()} has a fraction of a second; times are whole seconds", field=name)
    if not _FIRST <= second <= _LAST:
        years = f"{zones.FIRST_YEAR} to {zones.LAST_YEAR}"
        raise TimesError(f"{instant.isoformat()} is not in the years {years}", field=name)
    return _instant(second)


def _floor(instant: datetime) -> int:
    return (instant - _EPOCH) // _SECOND


def _instant(second: int) -> datetime:
    return _EPOCH + second * _SECOND


def _second(instant: datetime | None) -> int | None:
    return None if instant is None else _floor(instant)


def _said(instant: datetime) -> str:
    seconds = ":%S" if instant.second else ""
    return instant.strftime(f"%Y-%m-%d %H:%M{seconds} UTC")
