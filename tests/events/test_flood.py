"""Events at full speed through kills -9 of API and router, with Temporal away in the middle: none lost, none twice."""

import asyncio
import base64
import os
import random
import time
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from tests.checker import broken, lost_events, quiescent, strangers
from tests.events.flood import SECRET, SOURCE, TYPE, Log, World, event_id, send_all
from tests.spine.support import create, event_activity, fetch
from tests.stack import Processes, Servers, eventually, settings_for

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.mark.fault
async def test_i1_i2_i3_a_flood_under_kills_loses_nothing_and_runs_nothing_twice(own_servers: Servers) -> None:
    await _flood(own_servers, count=300, away_seconds=4)


@pytest.mark.fault
@pytest.mark.slow
async def test_i1_i2_i3_ten_thousand_events_under_kills_every_two_seconds(own_servers: Servers) -> None:
    await _flood(own_servers, count=10_000, away_seconds=60)


async def _flood(servers: Servers, *, count: int, away_seconds: float) -> None:
    seed = int(os.environ.get("ACTIVITY_CORE_TEST_SEED", "4"))
    chance, log = random.Random(seed), Log()
    url = await servers.migrated_database()
    settings = settings_for(servers, url, ENCRYPTION_KEYS=KEY)
    processes = Processes(settings)
    world = World(servers, processes)
    try:
        await world.start()
        await _declare(world)
        names = [f"flood-{number}" for number in range(count)]
        began, stopped = time.monotonic(), asyncio.Event()
        killing = asyncio.create_task(world.kill_until(stopped, chance))
        sending = asyncio.create_task(send_all(world, names, log, random.Random(seed)))
        await eventually(lambda: len(log.accepted) > count // 2, within=300, what="half of them are accepted")
        await servers.temporal.stop()
        # so long it is away: a span, not a wait for something
        _, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(away_seconds))])
        assert not pending
        await servers.temporal.start(headless=True)
        await sending
        sent = time.monotonic() - began
        stopped.set()
        await killing
        await eventually(lambda: quiescent(url), within=60 + count * 0.1, what="everything has run")
        drained = time.monotonic() - began
        await _check(servers, settings, url, names)
        print(
            f"\nseed {seed}: {count} events in {sent:.1f} s, all run after {drained:.1f} s; answers {dict(log.answers)}; "
            f"unknown {len(log.unknown)}, converged {len(log.converged)}; killed {dict(world.kills)}; "
            f"0 lost, 0 twice (95 %: fewer than {3 / count:.1e} per event)"
        )
        assert log.accepted == set(names) and log.unknown == log.converged
        assert world.kills["api"] and world.kills["router"]
    finally:
        await processes.stop()


async def _declare(world: World) -> None:

    base = f"http://127.0.0.1:{world.apis[0].port}"
    async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
        source: dict[str, Any] = {
            "slug": SOURCE,
            "scheme": "hmac",
            "secrets": [SECRET],
            "signature": {"header": "X-Hub-Signature-256", "prefix": "sha256="},
            "type": {"constant": TYPE},
        }
        answer = await client.put(f"/v1/sources/{SOURCE}", json=source)
        assert answer.status_code == 201, answer.text
        await create(client, event_activity(TYPE))
        # one that looks at each of them and takes none
        await create(client, event_activity(TYPE, filter="event.data.n < 0"))


async def _check(servers: Servers, settings: dict[str, str], url: str, names: list[str]) -> None:
    assert await lost_events(url, [event_id(name) for name in names]) == []
    counted = await fetch(url, "SELECT count(*), count(DISTINCT event_id) FROM events")
    assert tuple(counted[0]) == (len(names), len(names))
    outcomes = await fetch(url, "SELECT outcome, count(*) FROM occurrences GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in outcomes] == [("filtered", len(names)), ("started", len(names))]
    ends = await fetch(url, "SELECT status, count(*) FROM activity_run_ends GROUP BY 1")
    assert [tuple(row) for row in ends] == [("completed", len(names))]
    assert await broken(url) == {}
    client = await Client.connect(servers.temporal.address)
    assert await strangers(client, settings["TASK_QUEUE"], url) == []
    receipts = await fetch(
        url, "SELECT count(DISTINCT event_uuid) FROM receipts WHERE result IN ('accepted', 'duplicate')"
    )
    assert receipts[0][0] == sum(int(name.rpartition("-")[2]) % 2 for name in names)
