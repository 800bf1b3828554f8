"""Two thousand activities that are due in the same minute: more than Temporal's schedules start in one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import httpx
import pytest
from temporalio.client import Client

from tests.checker import broken, quiescent, strangers
from tests.misfires.support import POLICIES, now, reached
from tests.spine.support import Json, create, fetch, unique
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service

pytestmark = pytest.mark.slow
COUNT = 2_000
# Enough to create them and their schedules.
AHEAD = timedelta(seconds=150)
BOUND_SECONDS = 480


@pytest.fixture(scope="module")
async def service(own_servers: Servers) -> AsyncIterator[RunningService]:
    running = await start_service(settings_for(own_servers, await own_servers.migrated_database()))
    try:
        yield running
    finally:
        await stop_service(running)


async def _create(client: httpx.AsyncClient, count: int, document: Json) -> None:
    turns = asyncio.Semaphore(20)

    async def one(number: int) -> None:
        trigger = {**document["trigger"], "misfire_policy": POLICIES[number % len(POLICIES)]}
        async with turns:
            await create(client, {**document, "slug": unique("many"), "trigger": trigger})

    await asyncio.gather(*(one(number) for number in range(count)))


async def test_i4_two_thousand_activities_due_in_the_same_minute_all_run_once(service: RunningService) -> None:
    url = service.database_url
    at = (now() + AHEAD).replace(microsecond=0)
    trigger = {"type": "interval", "every_seconds": 86_400, "anchor": at.isoformat(), "misfire_grace_seconds": 600}
    began = now()
    await _create(service.client, COUNT, {"trigger": trigger, "tasks": [{"task_type": "note", "consumer": "log"}]})
    created = now()

    async def in_sync() -> bool:
        (row,) = await fetch(url, "SELECT count(*) FROM activities WHERE observed_generation < generation")
        return bool(row[0] == 0)

    await eventually(
        in_sync, within=(at - created).total_seconds(), what="all schedules are written before they are due"
    )
    print(
        f"created {COUNT} in {(created - began).total_seconds():.0f} s, schedules {(now() - began).total_seconds():.0f} s"
    )
    await reached(at)
    complete, started = [
        await _seconds_until(url, at, f"SELECT count(*) FROM occurrences WHERE {which}")
        for which in ("true", "outcome = 'started'")
    ]
    await eventually(lambda: quiescent(url), within=60, what="all runs have ended")
    (late,) = await fetch(
        url,
        "SELECT percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM r.started_at - $1)) FROM "
        "activity_runs r",
        at,
    )
    p50, p99, longest = late[0]
    print(
        f"after the instant: ledger complete {complete:.1f} s, all started {started:.1f} s, all ended {_since(at):.1f} s"
    )
    print(f"started late by p50 {p50:.1f} s, p99 {p99:.1f} s, at most {longest:.1f} s")
    rows = await fetch(url, "SELECT outcome, reason_code, count(*) FROM occurrences GROUP BY 1, 2")
    assert [tuple(row) for row in rows] == [("started", "on_time", COUNT)]
    assert await broken(url) == {}
    client = await Client.connect(service.temporal_address)
    fires = f"WorkflowType = 'FireActivityWorkflow' AND TaskQueue = '{service.settings['TASK_QUEUE']}'"
    print(f"fires: {(await client.count_workflows(fires)).count}")
    assert await strangers(client, service.settings["TASK_QUEUE"], url) == []


async def _seconds_until(url: str, at: datetime, count: str) -> float:
    async def all_of_them() -> bool:
        (row,) = await fetch(url, count)
        return bool(row[0] == COUNT)

    await eventually(all_of_them, within=BOUND_SECONDS, what=count)
    return _since(at)


def _since(at: datetime) -> float:
    return (now() - at).total_seconds()
