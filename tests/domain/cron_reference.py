"""A second reading of cron for the tests: expressions made from known values, and a walk over every minute.

It shares nothing with the code under test: values come from the generator and not from a parser, and due times from
looking at one minute after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from hypothesis import Phase
from hypothesis import strategies as st

MINUTE = timedelta(minutes=1)
PHASES = [Phase.explicit, Phase.generate, Phase.shrink]  # not explain, which traces every line
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

CLOCK_CHANGES = [
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("Europe/London", "2026-03-29"),
    ("Europe/London", "2026-10-25"),
    ("Australia/Lord_Howe", "2026-04-05"),  # half an hour back
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Sao_Paulo", "2018-11-04"),  # a day that begins at 01:00
    ("America/Sao_Paulo", "2019-02-17"),  # midnight back to 23:00 of the day before
    ("Asia/Kathmandu", "1986-01-01"),  # a quarter of an hour forward
    ("Asia/Kolkata", "2026-06-01"),  # none
    ("Africa/Casablanca", "2026-02-15"),  # back for Ramadan
    ("Africa/Casablanca", "2026-03-22"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2026-10-30"),
    ("Pacific/Apia", "2011-12-30"),  # a day that never was
    ("Pacific/Apia", "2012-04-01"),
    ("Antarctica/Troll", "2026-03-29"),  # two hours
    ("Antarctica/Troll", "2026-10-25"),
    ("America/St_Johns", "2006-10-29"),  # 00:01 back to 23:01: the older day comes again after the newer began
    ("UTC", "2026-12-31"),
]


@dataclass(frozen=True)
class Written:
    """An expression and what it is known to mean."""

    parts: tuple[str, ...]
    values: tuple[frozenset[int], ...]

    @property
    def text(self) -> str:
        return " ".join(self.parts)

    @property
    def wildcard(self) -> bool:
        return self.parts[1].startswith("*")

    @property
    def either(self) -> bool:
        return not (self.parts[2].startswith("*") or self.parts[4].startswith("*"))

    @property
    def possible(self) -> bool:
        longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
        return self.either or any(d <= longest.get(m, 31) for d in self.values[2] for m in self.values[3])

    def matches(self, local: datetime) -> bool:
        minutes, hours, dates, months, weekdays = self.values
        if local.minute not in minutes or local.hour not in hours or local.month not in months:
            return False
        by_date, by_weekday = local.day in dates, local.isoweekday() % 7 in weekdays
        return by_date or by_weekday if self.either else by_date and by_weekday


@st.composite
def _items(draw: st.DrawFn, low: int, high: int, names: tuple[str, ...]) -> tuple[str, frozenset[int]]:
    kind = draw(st.sampled_from(["value", "value", "range", "stepped range", "star", "stepped star"]))
    if kind == "star":
        return "*", frozenset(range(low, high + 1))
    if kind == "stepped star":
        step = draw(st.integers(1, min(high - low, 12)))
        return f"*/{step}", frozenset(range(low, high + 1, step))
    first = draw(st.integers(low, high))

    def word(value: int) -> str:
        return draw(st.sampled_from([names[value - low], names[value - low].lower()])) if names else str(value)

    if kind == "value" or first == high:
        return draw(st.sampled_from([str(first), word(first)])), frozenset([first])
    last = draw(st.integers(first + 1, high))
    step = draw(st.integers(1, min(high - low, 12))) if kind == "stepped range" else 1
    suffix = f"/{step}" if kind == "stepped range" else ""
    return f"{word(first)}-{word(last)}{suffix}", frozenset(range(first, last + 1, step))


@st.composite
def _fields(draw: st.DrawFn, low: int, high: int, names: tuple[str, ...] = ()) -> tuple[str, frozenset[int]]:
    if draw(st.booleans()):
        return draw(_items(low, high, names))
    items = draw(st.lists(_items(low, high, names), min_size=1, max_size=3))
    return ",".join(text for text, _ in items), frozenset().union(*(values for _, values in items))


@st.composite
def _weekdays(draw: st.DrawFn) -> tuple[str, frozenset[int]]:
    sevens = {"7": {0}, "5-7": {0, 5, 6}, "1-7": set(range(7)), "0-7": set(range(7)), "3-7/2": {0, 3, 5}, "1,7": {0, 1}}
    if draw(st.integers(0, 5)) == 0:
        text = draw(st.sampled_from(sorted(sevens)))
        return text, frozenset(sevens[text])
    return draw(_fields(0, 6, DAYS))


def _often(
    plain: st.SearchStrategy[tuple[str, frozenset[int]]], low: int, high: int
) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A bare `*` half of the time: with five restricted fields next to nothing is due near a clock change."""
    return st.just(("*", frozenset(range(low, high + 1)))) | plain


@st.composite
def expressions(draw: st.DrawFn) -> Written:
    fields = [
        draw(_fields(0, 59)),
        draw(_fields(0, 23)),
        draw(_often(_fields(1, 31), 1, 31)),
        draw(_often(_fields(1, 12, MONTHS), 1, 12)),
        draw(_often(_weekdays(), 0, 6)),
    ]
    return Written(tuple(text for text, _ in fields), tuple(values for _, values in fields))


def window(day: str, before: int = 2, after: int = 2) -> tuple[datetime, datetime]:
    change = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return change - timedelta(days=before), change + timedelta(days=after)


@lru_cache(maxsize=64)
def _clock(zone: ZoneInfo, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    count = (end - start) // MINUTE
    instants = [start + n * MINUTE for n in range(count + 1)]
    return [(i, i.astimezone(zone).replace(tzinfo=None)) for i in instants]


def due_minute_by_minute(written: Written, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """Due times in (start, end]: each minute is looked at once, from two days before, so that repeats are known."""
    found = []
    for instant, skipped, local, again in _walk(zone, start - timedelta(days=2), end):
        if written.wildcard:
            due = written.matches(local)
        else:
            due = any(written.matches(s) for s in skipped) or (not again and written.matches(local))
        if due and instant > start:
            found.append(instant)
    return found


def _walk(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[tuple[datetime, list[datetime], datetime, bool]]:
    """Instant, local minutes that the clock skipped just before it, its local minute, whether the clock showed that before."""
    latest = None
    for instant, local in _clock(zone, start, end):
        skipped: list[datetime] = []
        if latest is not None and local - latest > MINUTE:
            skipped = [latest + n * MINUTE for n in range(1, (local - latest) // MINUTE)]
        yield instant, skipped, local, latest is not None and local <= latest
        latest = local if latest is None else max(latest, local)
