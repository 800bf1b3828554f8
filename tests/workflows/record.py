"""Records one history of each way through our workflows, for `test_replay.py` to replay on every later version.

    python -m tests.workflows.record FOLDER     (FOLDER: tests/workflows/histories/{schema revision of the release})

Run it on the code that is released, and commit what it writes. It takes two minutes.
"""

import asyncio
import re
import socket
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import httpx
from temporalio.client import Client

from tests.consumer import Answer, consumer
from tests.spine.support import Json, create, ended_runs, event_activity, items, send, unique
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service, temporary_home


class Recorder:
    def __init__(self, client: httpx.AsyncClient, temporal: Client, folder: Path) -> None:
        self.client = client
        self._temporal = temporal
        self._folder = folder

    async def keep(self, name: str, workflow_id: str) -> None:
        history = await self._temporal.get_workflow_handle(workflow_id).fetch_history()
        # which machine it was is nobody's business
        text = re.sub(r'"identity": *"[^"]*"', '"identity": "recorder"', history.to_json())
        (self._folder / f"{name}.json").write_text(text.replace(f"@{socket.gethostname()}-", "@recorder-"))
        print(name, workflow_id, len(history.events), "events")

    async def tasks_of(self, run: Json) -> list[Json]:
        return await items(self.client, "/v1/tasks", run_id=run["run_id"])


async def short_event_run(record: Recorder) -> None:
    activity = await create(record.client, event_activity("short.paid"))
    await send(record.client, "short.paid", "short-1")
    (run,) = await ended_runs(record.client, activity, 1)
    await record.keep("run_short", run["workflow_id"])
    (task,) = await record.tasks_of(run)
    await record.keep("task_log", task["task_id"])


async def failing_delivery(record: Recorder) -> None:
    """A run that waits for the signal, and a task that is tried three times."""
    async with consumer(lambda request, before: Answer() if before > 1 else Answer(503)) as target:
        slug = unique("target")
        await record.client.post("/v1/consumers", json={"slug": slug, "type": "http", "url": target.url})
        activity = await create(record.client, event_activity("tried.paid", consumer=slug))
        await send(record.client, "tried.paid", "tried-1")
        (run,) = await ended_runs(record.client, activity, 1)
    await record.keep("run_signalled", run["workflow_id"])
    (task,) = await record.tasks_of(run)
    await record.keep("task_http", task["task_id"])


async def run_with_context(record: Recorder) -> None:
    async with consumer(lambda request, before: Answer(body=b'{"items": [1, 2, 3]}')) as target:
        task = {"task_type": "note", "consumer": "log", "for_each": {"in": "context.shop.items", "max_parallel": 2}}
        activity = await create(
            record.client,
            {
                "slug": unique("context"),
                "trigger": {"type": "event", "event_types": ["context.paid"]},
                "context": [{"name": "shop", "type": "http", "url": target.url}],
                "tasks": [task],
            },
        )
        await send(record.client, "context.paid", "context-1")
        (run,) = await ended_runs(record.client, activity, 1)
    await record.keep("run_context_and_waves", run["workflow_id"])


async def cron_times(record: Recorder) -> None:
    """A fire by a tick, and its run."""
    trigger = {"type": "cron", "cron": "* * * * *", "timezone": "UTC", "misfire_policy": "skip"}
    tasks = [{"task_type": "note", "consumer": "log"}]
    activity = await create(record.client, {"slug": unique("minutely"), "trigger": trigger, "tasks": tasks})
    (run,) = await ended_runs(record.client, activity, 1, within=90)
    await record.keep("run_of_a_time", run["workflow_id"])
    nominal = datetime.fromisoformat(run["scheduled_for"])
    await record.keep("fire_by_a_tick", f"fire-{activity['id']}-{nominal:%Y-%m-%dT%H:%M:%SZ}")


async def intervals(record: Recorder) -> None:
    """A fire that sleeps until its time is due, and one that starts runs side by side."""
    tasks = [{"task_type": "note", "consumer": "log"}]
    for name, more in (
        ("fire_jittered", {"jitter_seconds": 4}),
        ("fire_side_by_side", {"misfire_policy": "catchup", "overlap_policy": "allow_all"}),
    ):
        trigger = {"type": "interval", "every_seconds": 5, **more}
        answer = await record.client.post(
            "/v1/activities", json={"slug": unique("interval"), "trigger": trigger, "tasks": tasks}
        )
        if answer.status_code != 201:
            print(name, "is not available in this version")
            continue
        activity = answer.json()

        async def ran(activity: Json = activity) -> list[Json] | None:
            runs = await items(record.client, f"/v1/activities/{activity['id']}/runs")
            return runs if len(runs) > 2 and runs[-2]["status"] != "running" else None

        run = (await eventually(ran, within=40, what="some runs"))[-2]
        nominal = datetime.fromisoformat(run["scheduled_for"])
        await record.keep(name, f"fire-{activity['id']}-{nominal:%Y-%m-%dT%H:%M:%SZ}")
        await record.client.put(f"/v1/activities/{activity['slug']}", json={**activity["spec"], "enabled": False})


async def catch_up(record: Recorder) -> None:
    """A fire that asks the schedule for what a pause left."""
    trigger = {"type": "interval", "every_seconds": 4, "misfire_policy": "catchup", "misfire_grace_seconds": 1}
    document = {"slug": unique("caught"), "trigger": trigger, "tasks": [{"task_type": "note", "consumer": "log"}]}
    answer = await record.client.post("/v1/activities", json=document)
    if answer.status_code != 201:
        print("fire_catch_up is not available in this version")
        return
    activity = answer.json()
    path = f"/v1/activities/{activity['id']}"
    await record.client.post(f"{path}/pause")

    async def waiting() -> list[Json] | None:
        rows = await items(record.client, f"{path}/occurrences", reason_code="paused")
        return rows if len(rows) >= 4 else None

    rows = await eventually(waiting, within=40, what="times wait")
    await record.client.post(f"{path}/resume")

    async def caught() -> bool:
        late = await items(record.client, f"{path}/occurrences", reason_code="late")
        return len([row for row in late if row["outcome"] == "started"]) >= len(rows) - 1

    await eventually(caught, within=40, what="they are caught up")
    ids = [
        execution.id
        async for execution in record._temporal.list_workflows("WorkflowType = 'FireActivityWorkflow'")
        if execution.id.startswith(f"fire-{activity['id']}")
    ]
    for workflow_id in ids:
        history = await record._temporal.get_workflow_handle(workflow_id).fetch_history()
        if "catch_up" in history.to_json():
            await record.keep("fire_catch_up", workflow_id)
            break


async def cancelled_run(record: Recorder) -> None:
    async with consumer(lambda request, before: Answer(503)) as target:
        slug = unique("never")
        await record.client.post("/v1/consumers", json={"slug": slug, "type": "http", "url": target.url})
        activity = await create(record.client, event_activity("cancelled.paid", consumer=slug))
        await send(record.client, "cancelled.paid", "cancelled-1")
        workflow_id = f"activity-{activity['id']}:cancelled-1"

        async def is_open() -> bool:
            return bool(target.requests)

        await eventually(is_open, what="the first attempt")
        await record._temporal.get_workflow_handle(workflow_id).cancel()
        await ended_runs(record.client, activity, 1)
    await record.keep("run_cancelled", workflow_id)


WAYS: list[Callable[[Recorder], Awaitable[None]]] = [
    *(short_event_run, failing_delivery, run_with_context, cancelled_run, intervals, catch_up, cron_times),
]


async def record_all(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with temporary_home() as home:
        servers = Servers(Path(home))
        await servers.start()
        service: RunningService | None = None
        try:
            settings = settings_for(servers, await servers.migrated_database())
            service = await start_service(settings)
            temporal = await Client.connect(servers.temporal.address)
            for way in WAYS:
                await way(Recorder(service.client, temporal, folder))
        finally:
            if service is not None:
                await stop_service(service)
            await servers.stop()


if __name__ == "__main__":
    asyncio.run(record_all(Path(sys.argv[1])))
