"""The causes of a misfire, made on a running service, each on the three policies side by side; and what came of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

import asyncpg
from temporalio.client import Client, WorkflowExecution

from activity_core.domain.planner import Policy
from tests.checker import broken, quiescent, strangers
from tests.consumer import Answer, Request, consumer
from tests.misfires.support import (
    POLICIES,
    QUICK,
    SLOW,
    Ledger,
    Pace,
    create_each,
    disable,
    instant,
    now,
    reached,
    read_ledger,
)
from tests.spine.support import Json, items
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service

# Counted from the time of the last runs before an outage: the third of them is the last that is misfired when it ends,
# the fourth is not yet, the fifth is due after it.
MISSED, AFTER = (1, 2, 3), 5
# Every run of the cause `overlap` is held for this long.
HELD = timedelta(seconds=27)
HELD_LAST = 7
ATTEMPTS = 3


@dataclass
class Stage:
    """A service, and the three activities on it."""

    servers: Servers
    service: RunningService
    pace: Pace
    activities: dict[Policy, Json]


@dataclass
class Observed:
    """What an outage left. `ledgers` are of the times in [first, last]; `fires` those of the activity of policy catchup."""

    cause: str
    start: datetime
    first: datetime
    last: datetime
    stage: Stage
    ledgers: dict[Policy, Ledger] = field(default_factory=dict)
    fires: list[WorkflowExecution] = field(default_factory=list)
    broken: dict[str, list[str]] = field(default_factory=dict)
    strangers: list[str] = field(default_factory=list)

    def due(self, number: int) -> datetime:
        return self.first + number * self.stage.pace.period

    def resumed(self, policy: Policy) -> datetime:
        """When the activity's first run after the outage started: the ledger's own clock says which times were late."""
        started = self.ledgers[policy].started
        return min(started[time] for time in started if time > self.first)


@asynccontextmanager
async def worker_down(stage: Stage) -> AsyncIterator[None]:
    await stage.service.worker.sigkill()
    yield
    stage.service.worker = await stage.service.processes.start("worker")


@asynccontextmanager
async def temporal_down(stage: Stage) -> AsyncIterator[None]:
    stage.servers.temporal.child.kill()
    await stage.servers.temporal.stop()
    yield
    await stage.servers.temporal.start(headless=True)


@asynccontextmanager
async def overload(stage: Stage) -> AsyncIterator[None]:
    """Everything is up and ticks come, but no step that decides gets through: the ledger's locks are not to be had."""
    connection = await asyncpg.connect(stage.service.database_url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM trigger_state FOR UPDATE")
            yield
    finally:
        await connection.close()


@asynccontextmanager
async def paused(stage: Stage) -> AsyncIterator[None]:
    for command in ("pause", "resume"):
        for activity in stage.activities.values():
            response = await stage.service.client.post(f"/v1/activities/{activity['id']}/{command}", json={})
            assert response.status_code == 200, response.text
        if command == "pause":
            yield


@dataclass(frozen=True)
class Way:
    """`lead`: how long it takes from the end that we make of the outage until something starts."""

    outage: Callable[[Stage], AbstractAsyncContextManager[None]]
    lead: timedelta
    pace: Pace = QUICK


WAYS = {
    "worker_down": Way(worker_down, timedelta(seconds=1)),
    "temporal_down": Way(temporal_down, timedelta(seconds=1.5), SLOW),
    "overload": Way(overload, timedelta(0)),
    "paused": Way(paused, timedelta(0)),
}


@asynccontextmanager
async def observed(servers: Servers, cause: str) -> AsyncIterator[Observed]:
    """Make the outage on a service of its own, and see what came of it. The API is up while it is asked about."""
    service = await start_service(settings_for(servers, await servers.migrated_database()))
    try:
        script = Busy()
        async with consumer(script) as busy:
            target = {"slug": "busy", "type": "http", "url": busy.url}
            assert (await service.client.post("/v1/consumers", json=target)).status_code == 201
            slug = "busy" if cause == "overlap" else "log"
            pace = WAYS[cause].pace if cause in WAYS else QUICK
            stage = Stage(servers, service, pace, await create_each(service.client, pace, consumer=slug))
            found = await (_overlap(stage) if cause == "overlap" else _outage(stage, cause))
            script.busy = False
            await _tidy(found)
        yield found
    finally:
        await stop_service(service)


class Busy:
    """A consumer that takes a task when it comes again, which is to be HELD later; at once when it is not busy any more."""

    def __init__(self) -> None:
        self.busy = True

    def __call__(self, _: Request, before: int) -> Answer:
        if before or not self.busy:
            return Answer()
        return Answer(503, headers={"Retry-After": str(int(HELD.total_seconds()))})


async def _outage(stage: Stage, cause: str) -> Observed:
    """An outage that ended at the instant that was meant. Servers and processes take their time to come back, and when it
    was so long that other times are misfired, what came of it would be as right, and no answer to the question."""
    for _ in range(ATTEMPTS):
        found = await _one_outage(stage, cause)
        edge = found.due(MISSED[-1]) + stage.pace.grace
        started = [pair for ledger in found.ledgers.values() for pair in ledger.started.items()]
        recovered = sorted(start for time, start in started if found.first < time < found.last)
        print(
            f"{cause}: all started {(recovered[0] - edge).total_seconds():.1f} to "
            f"{(recovered[-1] - edge).total_seconds():.1f} s after the third time was misfired"
        )
        if edge < recovered[0] and recovered[-1] < edge + stage.pace.period:
            return found
    raise AssertionError(f"none of {ATTEMPTS} outages ended at the instant that was meant")


async def _one_outage(stage: Stage, cause: str) -> Observed:
    """From a second or two after a time's runs on, until the third time after it is misfired and the fourth is not."""
    client, way = stage.service.client, WAYS[cause]
    first = await _last_runs(stage)
    found = Observed(cause, now(), first, first + AFTER * stage.pace.period, stage)
    async with way.outage(stage):
        await reached(found.due(MISSED[-1]) + stage.pace.grace + timedelta(seconds=0.8) - way.lead)

    async def all_done() -> bool:
        for policy in POLICIES:
            found.ledgers[policy] = await read_ledger(client, stage.activities[policy], first, found.last)
            rows = found.ledgers[policy].rows
            assert len(rows) == AFTER + 1 and all(row.outcome != "waiting" for row in rows), rows
        return True

    await eventually(all_done, within=60, what="the outage is over and the time after it is handled")
    return found


async def _last_runs(stage: Stage) -> datetime:
    """A nominal time that all three activities have run for, once these runs have ended and well before the next time."""

    async def ended() -> datetime | None:
        times: set[datetime] = set()
        for activity in stage.activities.values():
            runs = await items(stage.service.client, f"/v1/activities/{activity['id']}/runs")
            assert runs and all(run["status"] == "completed" for run in runs)
            times.add(max(instant(run["scheduled_for"]) for run in runs))
        assert len(times) == 1, times
        last = times.pop()
        return last if now() < last + stage.pace.period / 2 else None

    return cast(datetime, await eventually(ended, within=40, what="all three have run"))


async def _overlap(stage: Stage) -> Observed:
    """Runs that are open for much longer than the period and the grace: their consumer asks to be called again later."""
    client = stage.service.client

    async def first_run() -> datetime | None:
        seen = [await items(client, f"/v1/activities/{a['id']}/runs") for a in stage.activities.values()]
        assert all(seen), seen
        times = {instant(run["scheduled_for"]) for runs in seen for run in runs}
        assert len(times) == 1, times
        return times.pop()

    first: datetime = await eventually(first_run, within=40, what="all three run for the same time")
    found = Observed("overlap", first, first, first + HELD_LAST * stage.pace.period, stage)
    await reached(first + 2 * HELD)

    async def second_runs() -> bool:
        for policy in POLICIES:
            found.ledgers[policy] = await read_ledger(client, stage.activities[policy], first, found.last)
        runs = [len(found.ledgers[policy].runs) for policy in POLICIES]
        assert runs == [2, 3, 3], runs
        return True

    await eventually(second_runs, within=6, what="the third runs of catchup and compress")
    return found


async def _tidy(found: Observed) -> None:
    """Let no further time be due, let what is under way end, and look at the whole."""
    service, stage = found.stage.service, found.stage
    for activity in stage.activities.values():
        await disable(service.client, activity)

    await eventually(lambda: quiescent(service.database_url), within=60, what="all is decided and has ended")
    client = await Client.connect(service.temporal_address)
    found.broken = await broken(service.database_url)
    found.strangers = await strangers(client, service.settings["TASK_QUEUE"], service.database_url)
    fires = f"fire-{stage.activities['catchup']['id']}"
    listed = client.list_workflows(
        f"TaskQueue = '{service.settings['TASK_QUEUE']}' AND WorkflowType = 'FireActivityWorkflow'"
    )
    found.fires = [execution async for execution in listed if execution.id.startswith(fires)]
