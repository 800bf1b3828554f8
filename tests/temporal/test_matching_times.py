"""Our times held against Temporal's own, on a real server, over both clock changes of 2026 in twelve zones.

Each expression is compiled as for a real schedule, one schedule each: what Temporal finds in a repeated hour depends on
where it looks from, so expressions can't share one. The schedules are paused and never start anything.

Of the 3,600 pairs of 300 expressions and 12 zones a run takes 360, as a Latin square: each zone sees each form of
minute and of hour once with each form of days, and every expression is seen in some zone. With the environment variable
MATCHING_TIMES_ALL=1 it takes them all (some minutes).

A difference must be explained by one of the rules below. Where Temporal lacks an instant, the poller fires it; where it
has one of its own, its tick finds nothing due. One more is known and left out: over the day that Samoa skipped (30
December 2011) Temporal returns the same instant again and again and never gets past it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import pytest
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
)

from activity_core.domain import zones
from activity_core.domain.calendars import Calendar, CalendarRange, Calendars, compile_times
from activity_core.domain.times import CronRule, Times, cron_times, interval_times, once_times

HOUR = timedelta(hours=1)
AT_ONCE = 16
LIMIT = 1000  # results of one call

MINUTES = ("0", "30", "15", "59", "1", "0,30", "*/15", "*/20", "5-10", "*")
HOURS = ("*", "*/2", "0", "1", "2", "3", "0-3", "1,2", "2-5/2", "0-23")
DAYS = ("* * *", "* * FRI,SUN", "1-31/2 * MON-FRI")  # every day; the days of the changes; either day field is enough
EXPRESSIONS = [f"{m} {h} {d}" for d in DAYS for m in MINUTES for h in HOURS]
ALL = os.environ.get("MATCHING_TIMES_ALL") == "1"


@dataclass(frozen=True)
class Change:
    """A clock change, or an ordinary night where there is none: `size` is 0, positive forward, negative back."""

    zone: str
    at: datetime
    size: timedelta


def changes(zone: str, *years: int) -> list[Change]:
    spans = [s for year in years for s in zones.spans(zones.load(zone), year)]
    return [
        Change(zone, datetime.fromtimestamp(b.start, UTC), timedelta(seconds=b.offset - a.offset))
        for a, b in pairwise(spans)
        if a.offset != b.offset
    ]


def ordinary(zone: str) -> list[Change]:
    return [Change(zone, datetime(2026, month, 25, 1, tzinfo=UTC), timedelta(0)) for month in (3, 10)]


NIGHTS = {
    "America/New_York": changes("America/New_York", 2026),
    "Europe/Berlin": changes("Europe/Berlin", 2026),
    "Europe/London": changes("Europe/London", 2026),
    "Australia/Lord_Howe": changes("Australia/Lord_Howe", 2026),
    # None in 2026: the last two, at midnight.
    "America/Sao_Paulo": ordinary("America/Sao_Paulo") + changes("America/Sao_Paulo", 2018, 2019)[-2:],
    "Asia/Kathmandu": ordinary("Asia/Kathmandu"),
    "Asia/Kolkata": ordinary("Asia/Kolkata"),
    "Africa/Casablanca": changes("Africa/Casablanca", 2026),
    "Africa/Cairo": changes("Africa/Cairo", 2026),
    "Pacific/Apia": ordinary("Pacific/Apia") + changes("Pacific/Apia", 2012),
    "Antarctica/Troll": changes("Antarctica/Troll", 2026),
    "UTC": ordinary("UTC"),
}


def chosen(zone: str) -> list[str]:
    number = list(NIGHTS).index(zone)
    size = len(MINUTES)
    return [
        f"{minute} {hour} {days}"
        for d, days in enumerate(DAYS)
        for m, minute in enumerate(MINUTES)
        for h, hour in enumerate(HOURS)
        if ALL or (m + 3 * h + number + d) % size == 0
    ]


# Temporal's side


def ranges(ours: Iterable[CalendarRange]) -> list[ScheduleRange]:
    return [ScheduleRange(r.start, r.end, r.step) for r in ours]


def calendar(ours: Calendar) -> ScheduleCalendarSpec:
    return ScheduleCalendarSpec(
        second=ranges(ours.second),
        minute=ranges(ours.minute),
        hour=ranges(ours.hour),
        day_of_month=ranges(ours.day_of_month),
        month=ranges(ours.month),
        year=ranges(ours.year),
        day_of_week=ranges(ours.day_of_week),
    )


def spec(compiled: Calendars) -> ScheduleSpec:
    return ScheduleSpec(
        calendars=[calendar(c) for c in compiled.calendars],
        intervals=[
            ScheduleIntervalSpec(timedelta(seconds=i.every_seconds), timedelta(seconds=i.offset_seconds))
            for i in compiled.intervals
        ],
        start_at=compiled.start_at,
        end_at=compiled.end_at,
        time_zone_name=compiled.zone,
    )


Ask = Callable[[datetime, datetime], Awaitable[list[datetime]]]


@asynccontextmanager
async def scheduled(client: Client, times: Times) -> AsyncIterator[Ask]:
    """A paused schedule with these times; what it gives asks for the matching ones in (after, until]."""
    name = f"matching-{uuid4()}"
    action = ScheduleActionStartWorkflow("Nothing", id=name, task_queue=name)
    schedule = Schedule(action=action, spec=spec(compile_times(times)), state=ScheduleState(paused=True))
    handle = await client.create_schedule(name, schedule)

    async def matching(after: datetime, until: datetime) -> list[datetime]:
        found: list[datetime] = []
        while True:
            request = ListScheduleMatchingTimesRequest(namespace=client.namespace, schedule_id=name)
            request.start_time.FromDatetime(found[-1] if found else after)
            request.end_time.FromDatetime(until)
            answer = await client.workflow_service.list_schedule_matching_times(request)
            page = [t.ToDatetime(UTC) for t in answer.start_time]
            assert all(a < b for a, b in pairwise([*found[-1:], *page])), "it does not advance"
            found += page
            if len(page) < LIMIT:
                return found

    try:
        yield matching
    finally:
        await handle.delete()


# Known differences


@dataclass(frozen=True)
class Difference:
    """An instant that only one side has, near a change: `missing` in Temporal's answer, or else `extra` in it."""

    change: Change
    text: str
    instant: datetime
    missing: bool

    @property
    def since(self) -> timedelta:
        return self.instant - self.change.at

    @property
    def elapsed(self) -> bool:
        """The expression follows elapsed time."""
        return self.text.split()[1].startswith("*")

    @property
    def local(self) -> datetime:
        return self.instant.astimezone(zones.load(self.change.zone))

    @property
    def named(self) -> bool:
        """The expression names this hour and minute of the local clock."""
        rule = cron_times(self.text, self.change.zone).rule
        assert isinstance(rule, CronRule)
        return self.local.hour in rule.cron.hours and self.local.minute in rule.cron.minutes

    @property
    def eastern(self) -> bool:
        """The clock is ahead of UTC on one side of the change: Temporal looks for repeats from the wrong end there."""
        zone = zones.load(self.change.zone)
        offsets = [(self.change.at + d).astimezone(zone).utcoffset() for d in (-HOUR, HOUR)]
        return any(o is not None and o > timedelta(0) for o in offsets)

    @property
    def at_midnight(self) -> bool:
        """The gap begins at a local midnight, which so does not exist."""
        before = (self.change.at - timedelta(seconds=1)).astimezone(zones.load(self.change.zone))
        return (before.hour, before.minute) == (23, 59)

    def within(self, start: timedelta, end: timedelta) -> bool:
        """In [start, end) after the change."""
        return start <= self.since < end


NONE = timedelta(0)
RULES: dict[str, Callable[[Difference], bool]] = {
    "gap: the time that the clock skips is skipped, not moved to the end of the gap": lambda d: (
        d.missing and d.change.size > NONE and not d.elapsed and d.since == NONE
    ),
    "gap at midnight, west of UTC: the whole day is lost unless the day before matches, too": lambda d: (
        d.missing
        and d.change.size > NONE
        and d.at_midnight
        and not d.eastern
        and d.local.date() == d.change.at.astimezone(zones.load(d.change.zone)).date()
    ),
    "gap of half an hour: ticks at minutes that are not named": lambda d: (
        not d.missing and d.change.size == HOUR / 2 and not d.named and d.within(NONE, d.change.size)
    ),
    "fold: a fixed time comes again in the second pass": lambda d: (
        not d.missing and d.change.size < NONE and not d.elapsed and d.named and d.within(NONE, -d.change.size)
    ),
    "fold east of UTC: the first pass is lost": lambda d: (
        d.missing and d.change.size < NONE and d.eastern and d.within(d.change.size, NONE)
    ),
    "fold east of UTC: the second pass is lost": lambda d: (
        d.missing and d.change.size < NONE and d.eastern and d.elapsed and d.within(NONE, -d.change.size)
    ),
    "fold east of UTC: some of the hour after it is lost": lambda d: (
        d.missing and d.change.size < NONE and d.eastern and d.within(-d.change.size, HOUR - d.change.size)
    ),
    "fold east of UTC: ticks at hours or minutes that are not named": lambda d: (
        not d.missing
        and d.change.size < NONE
        and d.eastern
        and not d.named
        and d.within(d.change.size, HOUR - d.change.size)
    ),
}
# Morocco gave up its summer time in 2026; the server reads the machine's zone data, or its own, which may be older.
ZONE_DATA = "the server's zone data is older than ours"


def explained(difference: Difference) -> str | None:
    change = difference.change
    if (
        change.zone == "Africa/Casablanca"
        and change.at >= datetime(2026, 9, 1, tzinfo=UTC)
        and difference.since >= NONE
    ):
        return ZONE_DATA
    return next((name for name, rule in RULES.items() if rule(difference)), None)


async def differences(client: Client, zone: str, text: str) -> tuple[int, list[Difference]]:
    """How many instants we have from 30 hours before each change to 36 after it, and which of them are in dispute."""
    times, count, found = cron_times(text, zone), 0, []
    async with scheduled(client, times) as matching:
        for change in NIGHTS[zone]:
            start, end = change.at - 30 * HOUR, change.at + 36 * HOUR
            ours, theirs = set(times.between(start, end)), set(await matching(start, end))
            count += len(ours)
            found += [Difference(change, text, t, missing=t in ours) for t in ours ^ theirs]
    return count, found


async def test_every_difference_from_temporals_own_times_is_a_known_one(temporal_client: Client) -> None:
    pairs = [(zone, text) for zone in NIGHTS for text in chosen(zone)]
    assert len({text for _, text in pairs}) == len(EXPRESSIONS) == 300
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(zone: str, text: str) -> tuple[int, list[Difference]]:
        async with at_once:
            return await differences(temporal_client, zone, text)

    answers = await asyncio.gather(*(one(*pair) for pair in pairs))
    found = [d for _, several in answers for d in several]
    reasons = Counter((explained(d), "missing" if d.missing else "extra") for d in found)
    print(f"\n{len(pairs)} schedules, {sum(n for n, _ in answers):,} due times, {len(found):,} differences")
    for (reason, kind), count in sorted(reasons.items(), key=str):
        print(f"  {count:6,} {kind}: {reason}")
    assert [d for d in found if explained(d) is None] == []
    assert {reason for reason, _ in reasons} - {ZONE_DATA} == set(RULES), (
        "a rule that explains nothing is to be removed"
    )


# Intervals, single instants and bounds: no differences.

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("times", "before", "after"),
    [
        pytest.param(interval_times(1), 10 * SECOND, 10 * SECOND, id="every second"),
        pytest.param(interval_times(7), HOUR, HOUR, id="every 7 s, over more than one page"),
        pytest.param(interval_times(90, NOON + 17 * SECOND), HOUR, HOUR, id="every 90 s from an anchor"),
        pytest.param(interval_times(25_200), 40 * HOUR, 40 * HOUR, id="every 7 h from the epoch"),
        pytest.param(interval_times(86_400, datetime(2030, 1, 1, 9, 30, tzinfo=UTC)), 48 * HOUR, 48 * HOUR, id="daily"),
        pytest.param(interval_times(31_536_000, NOON), 400 * 24 * HOUR, 400 * 24 * HOUR, id="every year of 365 days"),
        pytest.param(interval_times(60, NOON, NOON, NOON + HOUR), HOUR, 2 * HOUR, id="interval, bounds on its times"),
        pytest.param(
            interval_times(60, NOON, NOON + SECOND, NOON + 61 * SECOND), HOUR, HOUR, id="bounds off its times"
        ),
        pytest.param(
            cron_times("0 * * * *", "UTC", NOON - HOUR, NOON + HOUR), 9 * HOUR, 9 * HOUR, id="cron, on its times"
        ),
        pytest.param(
            cron_times("0 9 * * *", "UTC", NOON, NOON + HOUR), 48 * HOUR, 48 * HOUR, id="bounds that leave none"
        ),
        pytest.param(once_times(NOON + 7 * SECOND), HOUR, HOUR, id="once"),
        pytest.param(once_times(datetime(2100, 12, 31, 23, 59, 59, tzinfo=UTC)), HOUR, 75 * 366 * 24 * HOUR, id="2100"),
    ],
)
async def test_other_times_and_bounds_are_temporals(
    temporal_client: Client, times: Times, before: timedelta, after: timedelta
) -> None:
    async with scheduled(temporal_client, times) as matching:
        for start, end in [(NOON - before, NOON + after), (NOON - before, NOON), (NOON, NOON + after)]:
            assert await matching(start, end) == times.between(start, end)
