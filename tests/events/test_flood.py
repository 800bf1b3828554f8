"""Events at full speed through kills -9 of API and router, with Temporal away in the middle: none lost, none twice."""

import asyncio
import base64
import os
import random
import time
from typing import Any

import asyncpg
import httpx
import pytest
from temporalio.client import Client

from activity_core.dev.ports import LOOPBACK
from tests.checker import (
    broken,
    effects_unlike_tasks,
    lost_events,
    quiescent,
    shared_attempts,
    strangers,
    unlike_repeats,
)
from tests.consumer import Consumer, consumer
from tests.events.flood import (
    SECRET,
    SOURCE,
    TYPE,
    Attempt,
    Log,
    Outcome,
    Sending,
    World,
    accepted_twice,
    refused,
    send_all,
    unconverged,
)
from tests.spine.support import create, event_activity, fetch
from tests.stack import Processes, Servers, eventually, settings_for
from tests.watch import steps_seen, watch

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.mark.fault
async def test_i1_i2_i3_a_flood_under_kills_loses_nothing_and_runs_nothing_twice(own_servers: Servers) -> None:
    # slowly, so that the kills fall into it
    await _flood(own_servers, count=300, away_seconds=4, pause_seconds=0.5)


@pytest.mark.fault
@pytest.mark.slow
async def test_i1_i2_i3_ten_thousand_events_under_kills_every_two_seconds(own_servers: Servers) -> None:
    await _flood(own_servers, count=10_000, away_seconds=60, pause_seconds=0)


async def _flood(servers: Servers, *, count: int, away_seconds: float, pause_seconds: float) -> None:
    seed = int(os.environ.get("ACTIVITY_CORE_TEST_SEED", "4"))
    log, sendings = Log(), [Sending(number) for number in range(count)]
    url = await servers.migrated_database()
    settings = settings_for(servers, url, ENCRYPTION_KEYS=KEY)
    processes = Processes(settings)
    world = World(processes)
    connection = await asyncpg.connect(url)
    try:
        async with consumer() as target:
            await watch(connection)
            await world.start()
            await _declare(world, target)
            began, stopped = time.monotonic(), asyncio.Event()
            killing = asyncio.create_task(world.kill_until(stopped))
            flood = send_all(world.ports, sendings, log, random.Random(seed), pause_seconds=pause_seconds)
            sending = asyncio.create_task(flood)
            await eventually(lambda: len(log.accepted) > count // 2, within=900, what="half of them are accepted")
            await servers.temporal.stop()
            # so long it is away: a span, not a wait for something
            await asyncio.wait([asyncio.create_task(asyncio.sleep(away_seconds))])
            await servers.temporal.start(headless=True)
            await sending
            sent = time.monotonic() - began
            stopped.set()
            await killing
            await eventually(lambda: quiescent(url), within=60 + count * 0.2, what="everything has run")
            drained = time.monotonic() - began
            print(f"\nseed {seed}: {count} events, {log.counts['ok']} answered as new, {_figures(log, world)}")
            print(f"sent in {sent:.1f} s, all run after {drained:.1f} s")
            _check_log(log, sendings)
            assert await steps_seen(connection) == []
            await _check(url, sendings, log, target)
            temporal = await Client.connect(servers.temporal.address)
            assert await strangers(temporal, settings["TASK_QUEUE"], url) == []
            assert world.kills["api"] and world.kills["router"]
            print(f"0 lost, 0 twice: with 95 % fewer than {3 / count:.1e} per event")
    finally:
        await connection.close()
        await processes.stop()


def _figures(log: Log, world: World) -> str:
    unknown = log.with_outcome("unknown")
    return (
        f"{log.counts['duplicate']} as duplicates, {log.counts['unknown']} attempts unknown ({len(unknown)} events, "
        f"{len(unknown & log.accepted)} converged), {log.counts['failed']} not sent; killed {dict(world.kills)}"
    )


async def _declare(world: World, target: Consumer) -> None:
    async with httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{world.ports[0]}", trust_env=False) as client:
        source: dict[str, Any] = {
            "slug": SOURCE,
            "scheme": "hmac",
            "secrets": [SECRET],
            "signature": {"header": "X-Hub-Signature-256", "prefix": "sha256="},
            "type": {"constant": TYPE},
        }
        answer = await client.put(f"/v1/sources/{SOURCE}", json=source)
        assert answer.status_code == 201, answer.text
        answer = await client.post("/v1/consumers", json={"slug": "target", "type": "http", "url": target.url})
        assert answer.status_code == 201, answer.text
        await create(client, event_activity(TYPE, consumer="target"))
        # one that looks at each of them and takes none
        await create(client, event_activity(TYPE, filter="event.data.n < 0"))


def _check_log(log: Log, sendings: list[Sending]) -> None:
    assert log.accepted == set(sendings)
    assert unconverged(log) == set() and accepted_twice(log) == set() and refused(log) == []
    assert log.counts["duplicate"] >= len(sendings) // 10


async def _check(url: str, sendings: list[Sending], log: Log, target: Consumer) -> None:
    assert await lost_events(url, [sending.event_id for sending in log.accepted]) == []
    counted = await fetch(url, "SELECT count(*), count(DISTINCT event_id) FROM events")
    assert tuple(counted[0]) == (len(sendings), len(sendings))
    outcomes = await fetch(url, "SELECT outcome, count(*) FROM occurrences GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in outcomes] == [("filtered", len(sendings)), ("started", len(sendings))]
    ends = await fetch(url, "SELECT status, count(*) FROM activity_run_ends GROUP BY 1")
    assert [tuple(row) for row in ends] == [("completed", len(sendings))]
    assert await broken(url) == {}
    assert await effects_unlike_tasks(target, url) == []
    assert unlike_repeats(target) == [] and shared_attempts(target) == []
    assert sorted(requests[0].json["data"]["n"] for requests in target.by_key().values()) == list(range(len(sendings)))
    # I14: each answer has its receipt, and what has a receipt was sent
    webhooks = [attempt for attempt in log.attempts if attempt.sending.is_webhook]
    answered = sum(attempt.outcome in ("ok", "duplicate") for attempt in webhooks)
    sent = answered + sum(attempt.outcome == "unknown" for attempt in webhooks)
    (receipts,) = await fetch(url, "SELECT count(*), count(*) FILTER (WHERE result = 'rejected') FROM receipts")
    assert answered <= receipts[0] <= sent and receipts[1] == 0


def _log(*outcomes: Outcome) -> Log:
    statuses = {"ok": 202, "duplicate": 200, "unknown": 0, "failed": 401}
    return Log([Attempt(Sending(1), 1, outcome, statuses[outcome]) for outcome in outcomes])


def test_i3_an_unknown_outcome_that_does_not_converge_is_seen() -> None:
    assert unconverged(_log("unknown", "unknown", "duplicate")) == set()
    assert unconverged(_log("unknown", "failed")) == {Sending(1)}


def test_i2_an_event_that_is_new_twice_is_seen() -> None:
    assert accepted_twice(_log("unknown", "ok", "duplicate")) == set()
    assert accepted_twice(_log("ok", "unknown", "ok")) == {Sending(1)}


def test_a_refusal_of_a_sound_event_is_seen() -> None:
    log = _log("failed", "ok")
    assert refused(log) == log.attempts[:1]
