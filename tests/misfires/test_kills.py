"""The worker killed (-9), or stalled, at random moments while it recovers from an outage, again and again."""

import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from temporalio.client import Client

from tests.checker import broken, effects_unlike_tasks, quiescent, shared_attempts, strangers, unlike_repeats
from tests.consumer import Consumer, consumer
from tests.misfires.behind import behind
from tests.misfires.support import Ledger, Row, block, instant, now, reached, read_ledger
from tests.spine.support import Json, items
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service

pytestmark = pytest.mark.fault
HOUR = timedelta(hours=1)
# Of a time each hour the newest is misfired, and the next is far away.
NEWEST_AGE = timedelta(minutes=5)
COUNT = 150
RULES: list[dict[str, Any]] = [
    {"misfire_policy": "skip"},
    {"misfire_policy": "compress"},
    {"misfire_policy": "catchup", "catchup_limit": 10},
    {"misfire_policy": "catchup", "catchup_limit": 20, "overlap_policy": "allow_all"},
]


@dataclass
class Owed:
    """An activity, how its misfired times are to be handled, and these times."""

    rules: dict[str, Any]
    activity: Json
    due: list[datetime]


@pytest.fixture
async def service(servers: Servers) -> AsyncIterator[RunningService]:
    running = await start_service(settings_for(servers, await servers.migrated_database()))
    try:
        yield running
    finally:
        await stop_service(running)


async def _kill(service: RunningService) -> None:
    await service.worker.sigkill()
    service.worker = await service.processes.start("worker")


async def _stall(service: RunningService) -> None:
    """The worker gets no processor for longer than its tasks may take, and goes on when another has taken them over."""
    stalled = service.worker.child.pid
    os.kill(stalled, signal.SIGSTOP)
    try:
        service.worker = await service.processes.start("worker")
        await reached(now() + timedelta(seconds=12))
    finally:
        os.kill(stalled, signal.SIGCONT)


@pytest.mark.parametrize(
    ("blow", "times"),
    [
        pytest.param(_kill, 2, id="two kills"),
        pytest.param(_kill, 10, marks=pytest.mark.slow, id="ten kills"),
        pytest.param(_stall, 3, marks=pytest.mark.slow, id="three stalls"),
    ],
)
async def test_i2_i4_kill_9_in_a_recovery_leaves_a_complete_ledger_and_nothing_runs_twice(
    service: RunningService, servers: Servers, blow: Callable[[RunningService], Awaitable[None]], times: int
) -> None:
    seed = int(os.environ.get("ACTIVITY_CORE_TEST_SEED", "20"))
    chance = random.Random(seed)
    owed: list[Owed] = []
    async with consumer() as target:
        response = await service.client.post("/v1/consumers", json={"slug": "t", "type": "http", "url": target.url})
        assert response.status_code == 201, response.text
        moments = []
        for number in range(times):
            owed += await _outage(service)
            moments.append(await _moment(target, chance, by_progress=number % 2 == 0))
            await blow(service)
        print(f"seed {seed}; struck after {', '.join(moments)}")
        began = now()
        await eventually(lambda: quiescent(service.database_url), within=120, what="all is decided and has ended")
        print(f"whole {(now() - began).total_seconds():.1f} s after the last blow; {len(target.requests)} requests")
        for one in owed:
            await _check(service, one)
        assert await broken(service.database_url) == {}
        client = await Client.connect(servers.temporal.address)
        assert await strangers(client, service.settings["TASK_QUEUE"], service.database_url) == []
        assert await effects_unlike_tasks(target, service.database_url) == []
        assert unlike_repeats(target) == [] and shared_attempts(target) == []
        assert len(target.by_key()) == times * (1 + 10 + 20)


async def _outage(service: RunningService) -> list[Owed]:
    """An activity of each kind, behind by some hundred times all together."""
    return [
        Owed(
            rules,
            *await behind(
                service.client,
                service.database_url,
                COUNT,
                every=HOUR,
                newest_age=NEWEST_AGE,
                consumer="t",
                **rules,
            ),
        )
        for rules in RULES
    ]


async def _moment(target: Consumer, chance: random.Random, *, by_progress: bool) -> str:
    """Returns at a random moment: after some deliveries more, or after some time, whatever was done in it."""
    if by_progress:
        before, more = len(target.requests), chance.randrange(1, 25)
        await eventually(lambda: len(target.requests) >= before + more, within=60, what=f"{more} deliveries")
        return f"{more} deliveries"
    seconds = chance.uniform(0.2, 3.0)
    await reached(now() + timedelta(seconds=seconds))
    return f"{seconds:.2f} s"


async def _check(service: RunningService, owed: Owed) -> None:
    ledger = await read_ledger(service.client, owed.activity, owed.due[0], owed.due[-1])
    policy, limit = owed.rules["misfire_policy"], owed.rules.get("catchup_limit", 0)
    if policy == "skip":
        assert ledger.rows == [Row(due, "skipped", "late") for due in owed.due]
    elif policy == "compress":
        merged = [Row(due, "merged", "compressed", owed.due[-1]) for due in owed.due[:-1]]
        assert ledger.rows == [*merged, Row(owed.due[-1], "started", "late")]
        assert ledger.runs == [block(owed.due, HOUR)]
    else:
        dropped = [Row(due, "dropped", "over_limit") for due in owed.due[:-limit]]
        assert ledger.rows == [*dropped, *(Row(due, "started", "late") for due in owed.due[-limit:])]
        assert ledger.runs == [block([due], HOUR) for due in owed.due[-limit:]]
        if "overlap_policy" not in owed.rules:
            await _one_at_a_time(service, owed, ledger)


async def _one_at_a_time(service: RunningService, owed: Owed, ledger: Ledger) -> None:
    runs = await items(service.client, f"/v1/activities/{owed.activity['id']}/runs")
    spans = sorted((instant(run["started_at"]), instant(run["finished_at"]), run["scheduled_for"]) for run in runs)
    assert [instant(span[2]) for span in spans] == sorted(ledger.started), "oldest first"
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "one at a time"
