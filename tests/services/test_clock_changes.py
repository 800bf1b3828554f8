"""Both clock changes of 2026 in each zone: what is foretold is what the ledger says and what ran.

The changes can't be waited for. So each activity is made now, and the days around a change, which were never due, are
backfilled: from the ledger on it is the runtime's own way, with real runs. Which instants are right is told by the zone
data alone, minute by minute, and not by the code under test.
"""

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from activity_core.domain import zones
from activity_core.domain.times import cron_times
from activity_core.services.backfilling import Asked, Backfilling
from tests.services.backfilled import polling
from tests.services.conftest import Bench, working
from tests.stack import eventually

ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Pacific/Apia",
    "Antarctica/Troll",
    "UTC",
)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True)
class Change:
    """At `at` the clock of `zone` jumps from `before` to `after` (local, without an offset). Equal: it does not."""

    zone: str
    at: datetime
    before: datetime
    after: datetime

    @property
    def local(self) -> datetime:
        """In the middle of what is left out, or of what comes twice."""
        return min(self.before, self.after) + abs(self.after - self.before) / 2


def changes_of(zone: str) -> list[Change]:
    """Those of 2026, to the minute, by looking at every one of its minutes where a day's offset differs."""
    info, found = zones.load(zone), []
    midnights = [datetime(2026, 1, 1, tzinfo=UTC) + n * DAY for n in range(366)]
    for day in midnights[:-1]:
        if day.astimezone(info).utcoffset() == (day + DAY).astimezone(info).utcoffset():
            continue
        for minute in (day + timedelta(minutes=n) for n in range(1, 1441)):
            last, first = (minute - timedelta(minutes=1)).astimezone(info), minute.astimezone(info)
            if last.utcoffset() != first.utcoffset():
                before = last.replace(tzinfo=None) + timedelta(minutes=1)
                found.append(Change(zone, minute, before, first.replace(tzinfo=None)))
    return found


def changes() -> list[Change]:
    """All of each zone, which are two; zones whose clock does not change have Berlin's instants."""
    berlin = changes_of("Europe/Berlin")
    found = []
    for zone in ZONES:
        own = changes_of(zone)
        for like in () if own else berlin:
            local = like.at.astimezone(zones.load(zone)).replace(tzinfo=None)
            own.append(Change(zone, like.at, local, local))
        found += own
    return found


CHANGES = changes()
FORWARD = [change for change in CHANGES if change.after > change.before]
BACK = [change for change in CHANGES if change.after < change.before]
AROUND = 6 * HOUR


@dataclass(frozen=True, eq=False)
class Job:
    """A cron expression in the zone of a change, the range that is backfilled, and the instants that are right."""

    name: str
    change: Change
    cron: str
    start: datetime
    end: datetime
    expected: list[datetime]


def matching(zone: str, start: datetime, end: datetime, *local: str) -> list[datetime]:
    """The minutes of [start, end) that a clock on the wall of this zone shows so, each `local` being `%d %H:%M` or less."""
    info = zones.load(zone)
    minutes = (start + timedelta(minutes=n) for n in range(int((end - start) / timedelta(minutes=1))))
    return [m for m in minutes if any(f"{m.astimezone(info):%Y-%m-%d %H:%M}".endswith(text) for text in local)]


def fixed_job(change: Change) -> Job:
    """Daily at a local time that is left out or comes twice on the day of the change: over that day and its neighbours."""
    start, end = change.at - timedelta(hours=50), change.at + timedelta(hours=50)
    days = [(change.local + n * DAY) for n in (-1, 0, 1)]
    # once per local day: the first instant that the clock shows it, and in the gap the first one after it
    first = [matching(change.zone, start, end, f"{day:%Y-%m-%d %H:%M}")[:1] or [change.at] for day in days]
    expected = [instant for found in first for instant in found]
    cron = f"{change.local.minute} {change.local.hour} * * *"
    return Job("fixed", change, cron, expected[0], expected[-1] + HOUR, expected)


def hourly_job(change: Change) -> Job:
    start, end = change.at - AROUND, change.at + AROUND
    return Job("hourly", change, "0 * * * *", start, end, matching(change.zone, start, end, ":00"))


JOBS = [job(change) for change in CHANGES for job in (fixed_job, hourly_job)]


def test_the_zone_data_has_the_changes_that_these_tests_are_about() -> None:
    assert set(ZONES) == {change.zone for change in CHANGES} and len(CHANGES) >= 2 * len(ZONES)
    # Casablanca's are those of Ramadan, which newer data may know otherwise
    changing = {
        "America/New_York",
        "Europe/Berlin",
        "Europe/London",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Antarctica/Troll",
    }
    for way in (FORWARD, BACK):
        counted = Counter(change.zone for change in way if change.zone != "Africa/Casablanca")
        assert counted == dict.fromkeys(changing, 1)
    assert {abs(change.after - change.before) for change in (*FORWARD, *BACK)} == {HOUR, 2 * HOUR, HOUR / 2}
    for change in CHANGES:
        shown = matching(change.zone, change.at - DAY, change.at + DAY, f"{change.local:%Y-%m-%d %H:%M}")
        assert len(shown) == (0 if change in FORWARD else 2 if change in BACK else 1), "left out, twice, or neither"
    assert all(len(job.expected) == 3 for job in JOBS if job.name == "fixed")
    for job in JOBS:
        if job.name == "hourly" and job.change.zone != "Australia/Lord_Howe":
            assert {later - earlier for earlier, later in pairwise(job.expected)} == {HOUR}, "every real hour"


@pytest.fixture(scope="module")
async def ran(bench: Bench) -> dict[Job, uuid.UUID]:
    """Every job, backfilled, and run by one worker to the last time."""
    backfilling, made = Backfilling(bench.database, bench.definitions), {}

    async def ask(job: Job) -> int:
        trigger = {"type": "cron", "cron": job.cron, "timezone": job.change.zone}
        made[job] = await bench.create(trigger=trigger)
        begun = await backfilling.backfill(str(made[job]), Asked(job.start, job.end), idempotency_key=None)
        return begun.counts["add"]

    added = sum(await asyncio.gather(*(ask(job) for job in JOBS)))
    assert added == sum(len(job.expected) for job in JOBS)

    async def all_ended() -> bool:
        query = (
            "SELECT count(*) FROM activity_runs JOIN activity_run_ends e USING (run_id) "
            "WHERE triggered_by = 'backfill' AND e.status = 'completed' AND e.activity_id = ANY($1)"
        )
        return int((await bench.sql(query, list(made.values())))[0][0]) >= added

    async with working(bench), polling(bench):
        await eventually(all_ended, within=120, what=f"{added} runs have completed")
    return made


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.change.zone}-{job.change.at:%m-%d}-{job.name}")
async def test_r4_what_is_foretold_is_what_the_ledger_says_and_what_ran(
    bench: Bench, ran: dict[Job, uuid.UUID], job: Job
) -> None:
    times = cron_times(job.cron, job.change.zone)
    assert times.between(job.start - timedelta(seconds=1), job.end - timedelta(seconds=1)) == job.expected
    rows = await bench.ledger(ran[job])
    backfilled = [row for row in rows if row["triggered_by"] == "backfill"]
    assert [row["scheduled_for"] for row in backfilled] == job.expected
    assert {(row["outcome"], row["reason_code"]) for row in backfilled} == {("started", "backfill")}
    runs = await bench.sql(
        "SELECT scheduled_for, window_start, window_end FROM activity_runs WHERE activity_id = $1 AND "
        "triggered_by = 'backfill' ORDER BY started_at",
        ran[job],
    )
    assert [run["scheduled_for"] for run in runs] == job.expected
    assert [run["window_end"] for run in runs] == job.expected
    assert [run["window_start"] for run in runs][1:] == job.expected[:-1], (
        "no instant is seen twice, and none by nobody"
    )
    if job.name == "fixed":
        info = zones.load(job.change.zone)
        days = [instant.astimezone(info).date() for instant in job.expected]
        assert days == [job.change.local.date() + n * DAY for n in (-1, 0, 1)], "once per local day"
