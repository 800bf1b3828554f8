"""A minutely activity after a day's outage: what each policy makes of 1,440 times."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from activity_core.domain.planner import Policy
from activity_core.services.definitions import Definitions
from activity_core.services.settle import Settler
from activity_core.store.database import Database
from tests.checker import broken
from tests.misfires.behind import behind
from tests.misfires.support import POLICIES, Ledger, Row, alone, block, instant, read_ledger
from tests.spine.support import Json, items
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service

COUNT, LIMIT = 1_440, 10
MINUTE = timedelta(minutes=1)
# The newest of the missed times is misfired for five seconds, and the time after it will be only in 55.
NEWEST_AGE = timedelta(seconds=65)


@dataclass
class Day:
    """`due`: the 1,440 times that were missed. `ends`: when each of its runs ended."""

    due: list[datetime]
    ledger: Ledger
    ends: dict[datetime, datetime]


@pytest.fixture(scope="module")
async def service(servers: Servers) -> AsyncIterator[RunningService]:
    """With the worker stopped."""
    running = await start_service(settings_for(servers, await servers.migrated_database()))
    try:
        await running.worker.sigterm()
        yield running
    finally:
        await stop_service(running)


async def _missed(service: RunningService, policy: Policy) -> tuple[Json, list[datetime]]:
    """An activity to which 1,440 misfired minutes are owed, and one that is within its grace."""
    activity, due = await behind(
        service.client,
        service.database_url,
        COUNT + 1,
        every=MINUTE,
        newest_age=NEWEST_AGE - MINUTE,
        misfire_policy=policy,
        catchup_limit=LIMIT,
    )
    return activity, due[:-1]


@pytest.fixture(scope="module")
async def days(service: RunningService) -> dict[Policy, Day]:
    """The worker comes back to three days, one of each policy, and does what is to be done."""
    database = Database(service.database_url, pool_size=1, application_name="test")
    try:
        for policy in POLICIES:
            activity, _ = await _missed(service, policy)
            began = time.perf_counter()
            assert await Settler(database, Definitions()).settle(UUID(activity["id"])) is not None
            took = time.perf_counter() - began
            print(f"{policy}: settled {COUNT} times in {took * 1000:.0f} ms")
            assert took < 10
    finally:
        await database.close()
    missed = {policy: await _missed(service, policy) for policy in POLICIES}
    await service.processes.start("worker")
    return {policy: await _recovered(service, *missed[policy]) for policy in POLICIES}


async def _recovered(service: RunningService, activity: Json, due: list[datetime]) -> Day:
    async def recovered() -> Ledger:
        ledger = await read_ledger(service.client, activity, due[0], due[-1])
        left = [row for row in ledger.rows if row.outcome == "waiting"]
        assert len(ledger.rows) == COUNT and not left, (len(ledger.rows), left[:3])
        return ledger

    ledger: Ledger = await eventually(recovered, within=50, what="all is decided")
    runs = await items(service.client, f"/v1/activities/{activity['id']}/runs")
    ends = {instant(run["scheduled_for"]): instant(run["finished_at"]) for run in runs if run["finished_at"]}
    return Day(due, ledger, ends)


async def test_r12_skip_runs_nothing(days: dict[Policy, Day]) -> None:
    day = days["skip"]
    assert day.ledger.runs == []
    assert day.ledger.rows == [Row(due, "skipped", "late") for due in day.due]


async def test_r14_catchup_runs_the_newest_ten_oldest_first_one_at_a_time(days: dict[Policy, Day]) -> None:
    day = days["catchup"]
    assert day.ledger.rows == [
        *(Row(due, "dropped", "over_limit") for due in day.due[:-LIMIT]),
        *(Row(due, "started", "late") for due in day.due[-LIMIT:]),
    ]
    assert Counter(row.outcome for row in day.ledger.rows) == {"dropped": 1_430, "started": 10}
    assert day.ledger.runs == [alone(due, MINUTE) for due in day.due[-LIMIT:]]
    for before, after in zip(day.due[-LIMIT:-1], day.due[-LIMIT + 1 :], strict=True):
        assert day.ends[before] <= day.ledger.started[after]


async def test_r15_compress_runs_once_for_all(days: dict[Policy, Day]) -> None:
    day = days["compress"]
    assert day.ledger.runs == [block(day.due, MINUTE)]
    assert day.ledger.runs[0].covers[2] == COUNT
    assert day.ledger.rows == [
        *(Row(due, "merged", "compressed", day.due[-1]) for due in day.due[:-1]),
        Row(day.due[-1], "started", "late"),
    ]


async def test_i4_nothing_is_broken_after_it(days: dict[Policy, Day], service: RunningService) -> None:
    assert len(days) == len(POLICIES)
    assert await broken(service.database_url) == {}
