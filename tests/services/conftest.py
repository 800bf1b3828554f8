"""The services in this process, on a real Postgres and a real Temporal; no worker unless a test starts one."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
import pytest

from activity_core.domain import ids
from activity_core.domain.envelopes import read_native
from activity_core.services.accept import Accepted, Acceptor
from activity_core.services.activities import Activities
from activity_core.services.consumers import Consumers
from activity_core.services.definitions import Definitions
from activity_core.services.event_types import EventSchemas
from activity_core.services.gate import Passed, log_run
from activity_core.services.http_calls import HttpCaller
from activity_core.services.routing import Routing
from activity_core.services.triggering import Triggering
from activity_core.settings import Settings
from activity_core.store.database import Database
from activity_core.worker import main as worker
from tests.stack import Servers, settings_for

Json = dict[str, Any]


@dataclass
class Bench:
    """What API, router and worker are made of, wired as they wire it, and what tests ask of the ledger."""

    settings: Settings
    database: Database
    parts: worker.Parts
    definitions: Definitions
    activities: Activities
    consumers: Consumers
    acceptor: Acceptor
    routing: Routing
    triggering: Triggering

    async def create(self, **document: Any) -> uuid.UUID:
        given = {"slug": f"a-{uuid.uuid4().hex[:12]}", **document}
        return (await self.activities.create(given, idempotency_key=None)).record.id

    async def replace(self, activity_id: uuid.UUID, **change: Any) -> None:
        record = await self.activities.get(str(activity_id))
        await self.activities.put(str(activity_id), {**record.spec, **change}, if_match=None)

    async def on_event(self, event_type: str, consumer: str = "log", **more: Any) -> uuid.UUID:
        """An activity with one task for each event of a type."""
        task = {"task_type": "note", "consumer": consumer}
        return await self.create(trigger={"type": "event", "event_types": [event_type]}, tasks=[task], **more)

    async def every_minute(
        self, *, due: int, grace_seconds: int = 60, rules: Json | None = None, **more: Any
    ) -> tuple[uuid.UUID, list[datetime]]:
        """A cron activity to which the last `due` full minutes are owed: (its id, these minutes).

        `rules`: more of its trigger; the misfire policy is skip unless they name another.
        """
        trigger = {
            "type": "cron",
            "cron": "* * * * *",
            "timezone": "UTC",
            "misfire_policy": "skip",
            "misfire_grace_seconds": grace_seconds,
            **(rules or {}),
        }
        activity_id = await self.create(trigger=trigger, **more)
        minutes = await self.sql(
            "UPDATE trigger_state SET settled_through = date_trunc('minute', now()) - make_interval(mins => $2, secs => 1) "
            "WHERE activity_id = $1 RETURNING ARRAY(SELECT date_trunc('minute', now()) - make_interval(mins => n) "
            "FROM generate_series($2, 0, -1) n)",
            activity_id,
            due - 1,
        )
        return activity_id, minutes[0][0]

    async def send(self, event_type: str, event_id: str, **data: Any) -> Accepted:
        return await self.acceptor.accept(read_native({"event_id": event_id, "type": event_type, "data": data}))

    async def occur(self, event_type: str, *event_ids: str) -> None:
        """Accept the events and route them."""
        for event_id in event_ids:
            await self.send(event_type, event_id)
        await self.routing.route_batch()

    async def settle(self, activity_id: uuid.UUID, tick: datetime | None = None) -> datetime | None:
        """Settle, and what would run now."""
        settled = await self.parts.settler.settle(activity_id, tick)
        return None if settled is None else settled.head

    async def gate(self, activity_id: uuid.UUID, key: str, execution: str) -> Passed:
        async with self.database.begin() as connection:
            return await log_run(connection, self.definitions, activity_id, key, execution)

    async def sql(self, statement: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        connection = await asyncpg.connect(self.database.dsn)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    async def outcomes(self, activity_id: uuid.UUID) -> list[tuple[str, str]]:
        """(outcome, reason_code) of the activity's rows, oldest due first."""
        query = "SELECT outcome, reason_code FROM occurrences WHERE activity_id = $1 ORDER BY due_at, key"
        return [tuple(row) for row in await self.sql(query, activity_id)]

    async def ledger(self, activity_id: uuid.UUID) -> list[asyncpg.Record]:
        """The rows of its times, oldest first."""
        return list(
            await self.sql(
                "SELECT * FROM occurrences WHERE activity_id = $1 AND kind = 'time' ORDER BY scheduled_for", activity_id
            )
        )

    async def run(self, run_id: uuid.UUID) -> asyncpg.Record:
        return (await self.sql("SELECT * FROM activity_runs WHERE run_id = $1", run_id))[0]

    async def ends(self, activity_id: uuid.UUID) -> list[tuple[str, str | None]]:
        """(status, reason) of the activity's runs; 'running' while it is open."""
        query = (
            "SELECT coalesce(e.status, 'running'), e.reason FROM activity_runs r "
            "LEFT JOIN activity_run_ends e USING (run_id) WHERE r.activity_id = $1 ORDER BY r.started_at"
        )
        return [tuple(row) for row in await self.sql(query, activity_id)]

    async def states(self, activity_id: uuid.UUID) -> list[str]:
        query = "SELECT state FROM task_instances WHERE activity_id = $1 ORDER BY id"
        return [row[0] for row in await self.sql(query, activity_id)]

    async def age(self, activity_id: uuid.UUID, seconds: int = 120) -> None:
        """Make what the activity's runs and tasks did look older: reconcile leaves young ones alone."""
        for table, column in (("activity_runs", "started_at"), ("task_instances", "updated_at")):
            await self.sql(
                f"UPDATE {table} SET {column} = {column} - make_interval(secs => $2) WHERE activity_id = $1",
                activity_id,
                seconds,
            )

    def workflow_id(self, activity_id: uuid.UUID, key: str) -> str:
        return ids.run_workflow_id(activity_id, key)


@contextlib.asynccontextmanager
async def bench_on(settings: Settings) -> AsyncIterator[Bench]:
    database = Database(settings.asyncpg_url, pool_size=10, application_name="test")
    parts = await worker.build(settings, database, HttpCaller(), HttpCaller())
    definitions = Definitions()
    acceptor = Acceptor(database, EventSchemas(database), max_data_bytes=settings.max_event_data_bytes)
    accepting = asyncio.create_task(acceptor.run())
    try:
        yield Bench(
            settings,
            database,
            parts,
            definitions,
            Activities(database, definitions),
            Consumers(database),
            acceptor,
            Routing(database, definitions),
            Triggering(database, definitions),
        )
    finally:
        accepting.cancel()
        await parts.http.close()
        await database.close()


@contextlib.asynccontextmanager
async def working(bench: Bench) -> AsyncIterator[None]:
    """A Temporal worker on the bench's parts, and nothing of the worker's other loops."""
    running = asyncio.create_task(worker._steps(bench.parts))
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.fixture(scope="module")
async def bench(servers: Servers) -> AsyncIterator[Bench]:
    given = settings_for(servers, await servers.migrated_database())
    settings = Settings.model_validate({name.lower(): value for name, value in given.items()})
    async with bench_on(settings) as made:
        yield made
