"""Our times held against Temporal's own, on a real server, over both clock changes of 2026 in twelve zones.

Each expression is compiled as for a real schedule, one schedule each: what Temporal finds in a repeated hour depends on
where it looks from, so expressions can't share one. The schedules are paused and never start anything.

Of the 3,600 pairs of 300 expressions and 12 zones a run takes 360, as a Latin square: each zone sees each form of
minute and of hour once with each form of days, and every expression is seen in some zone. With the environment variable
MATCHING_TIMES_ALL=1 it takes them all (some minutes).

A difference must be explained by one of the rules below. Where Temporal lacks an instant, the poller fires it; where it
has one of its own, its tick finds nothing due. One more is known and can't be listed: over the day that Samoa left out
(30 December 2011) Temporal returns the same instant again and again and never gets past it.
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


async def test_dump(temporal_client: Client) -> None:
    import pickle, time
    at_once = asyncio.Semaphore(AT_ONCE)
    out = []
    async def one(zone: str, text: str) -> None:
        async with at_once:
            times = cron_times(text, zone)
            async with scheduled(temporal_client, times) as matching:
                for change in NIGHTS[zone]:
                    start, end = change.at - 30 * HOUR, change.at + 36 * HOUR
                    ours = set(times.between(start, end)); theirs = set(await matching(start, end))
                    for t in ours - theirs: out.append((zone, int(change.at.timestamp()), text, int(t.timestamp()), "missing"))
                    for t in theirs - ours: out.append((zone, int(change.at.timestamp()), text, int(t.timestamp()), "extra"))
    t0 = time.monotonic()
    await asyncio.gather(*[one(z, t) for z in NIGHTS for t in chosen(z)])
    print("took", time.monotonic() - t0, sum(len(chosen(z)) for z in NIGHTS))
    pickle.dump(out, open("/tmp/h3/out.pkl", "wb"))
