"""Cron and event runs from outside: the contract's identities, one run each, and a ledger that agrees with itself."""

import asyncio
from datetime import datetime, timedelta

import httpx
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from tests.checker import broken
from tests.consumer import Answer, consumer
from tests.spine.support import Json, create, ended_runs, event_activity, fetch, items, outcome, send, unique
from tests.stack import RunningService, eventually


async def test_r3_r6_an_event_sent_a_hundred_times_at_once_is_one_run(client: httpx.AsyncClient) -> None:
    activity = await create(client, event_activity("burst.paid"))
    answers = await asyncio.gather(*(send(client, "burst.paid", "burst-1") for _ in range(100)))
    assert sorted(answer.status_code for answer in answers) == [200] * 99 + [202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    (run,) = await ended_runs(client, activity, 1)
    assert run["workflow_id"] == f"activity-{activity['id']}:burst-1"
    assert (run["status"], run["result"], run["event_id"]) == ("completed", "done", "burst-1")
    rows = await items(client, f"/v1/activities/{activity['id']}/occurrences")
    assert [(row["event_id"], row["outcome"]) for row in rows] == [("burst-1", "started")]


async def test_r26_an_event_is_an_occurrence_for_each_activity_whatever_becomes_of_the_others(
    client: httpx.AsyncClient,
) -> None:
    kinds = {
        "started": event_activity("many.paid"),
        "filtered": event_activity("many.paid", filter="event.data.n > 10"),
        "filter_error": event_activity("many.paid", filter="event.data.missing > 10"),
        "disabled": event_activity("many.paid", enabled=False),
    }
    made = {kind: await create(client, document) for kind, document in kinds.items()}
    await create(client, event_activity("many.other"))
    await send(client, "many.paid", "many-1", n=1)
    rows = {kind: await outcome(client, activity, "many-1") for kind, activity in made.items()}
    assert {kind: row["outcome"] for kind, row in rows.items()} == {kind: kind for kind in kinds}
    assert all(row["reason"] and row["reason_code"] for row in rows.values())
    event = (await client.get("/v1/events", params={"event_id": "many-1"})).json()["items"][0]
    detail = (await client.get(f"/v1/events/{event['id']}")).json()
    assert {row["slug"] for row in detail["occurrences"]} == {activity["slug"] for activity in made.values()}


async def test_an_event_for_a_disabled_activity_runs_when_it_is_redelivered_after_enabling(
    client: httpx.AsyncClient,
) -> None:
    """The key is spent by a start only. Source: celery/django-celery-beat issue 79."""
    document = event_activity("sleepy.paid", enabled=False)
    activity = await create(client, document)
    await send(client, "sleepy.paid", "sleepy-1")
    assert (await outcome(client, activity, "sleepy-1"))["outcome"] == "disabled"
    response = await client.put(f"/v1/activities/{activity['slug']}", json={**document, "enabled": True})
    assert response.status_code == 200, response.text
    assert (await send(client, "sleepy.paid", "sleepy-1")).json()["status"] == "duplicate"
    await ended_runs(client, activity, 1)
    row = await outcome(client, activity, "sleepy-1")
    assert (row["outcome"], row["history"][0]["outcome"]) == ("started", "disabled")


async def test_r27_two_sources_may_use_the_same_id(client: httpx.AsyncClient) -> None:
    activity = await create(client, event_activity("source.paid"))
    for source in ("shop", "store"):
        response = await client.post(
            "/v1/events", json={"event_id": "1", "source": source, "type": "source.paid", "data": {"n": 1}}
        )
        assert response.status_code == 202, response.text
    runs = await ended_runs(client, activity, 2)
    assert {run["event_id"] for run in runs} == {"shop:1", "store:1"}


async def test_wildcards_find_their_activities(client: httpx.AsyncClient) -> None:
    one, rest = await create(client, event_activity("wild.*")), await create(client, event_activity("wild.**"))
    for event_type in ("wild.a", "wild.a.b"):
        await send(client, event_type, f"wild-{event_type}")
    assert {run["event_id"] for run in await ended_runs(client, one, 1)} == {"wild-wild.a"}
    assert {run["event_id"] for run in await ended_runs(client, rest, 2)} == {"wild-wild.a", "wild-wild.a.b"}


async def test_r6_manual_runs_are_one_per_idempotency_key(client: httpx.AsyncClient) -> None:
    activity = await create(
        client,
        {
            "slug": unique("manual"),
            "trigger": {"type": "manual"},
            "tasks": [{"task_type": "note", "consumer": "log", "params": {"who": "${ params.who }"}}],
        },
    )
    path = f"/v1/activities/{activity['slug']}/trigger"
    key = {"Idempotency-Key": "deploy 42"}
    answers = await asyncio.gather(
        *(client.post(path, json={"params": {"who": "ann"}}, headers=key) for _ in range(20))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    (run,) = await ended_runs(client, activity, 1)
    assert run["workflow_id"].startswith(f"activity-{activity['id']}:manual:~sha256.")
    other = await client.post(path, json={"params": {"who": "bob"}}, headers=key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_r30_a_reset_workflow_spawns_nothing_again(
    client: httpx.AsyncClient, temporal_client: Client, running_service: RunningService
) -> None:
    activity = await create(client, event_activity("reset.paid"))
    await send(client, "reset.paid", "reset-1")
    (run,) = await ended_runs(client, activity, 1)
    before = await fetch(running_service.database_url, "SELECT * FROM task_instances ORDER BY id")
    reset = await _reset(temporal_client, run["workflow_id"])
    await temporal_client.get_workflow_handle(run["workflow_id"], run_id=reset).result()
    assert await fetch(running_service.database_url, "SELECT * FROM task_instances ORDER BY id") == before
    assert (await client.get(f"/v1/runs/{run['run_id']}")).json() == run


async def test_r30_a_reset_of_an_open_run_goes_on_with_it(client: httpx.AsyncClient, temporal_client: Client) -> None:
    """The reset execution is another one to Temporal, and the same run to us."""
    there = asyncio.Event()
    async with consumer(lambda request, before: Answer(200 if there.is_set() else 503)) as target:
        slug = unique("reset")
        response = await client.post("/v1/consumers", json={"slug": slug, "type": "http", "url": target.url})
        assert response.status_code == 201, response.text
        activity = await create(client, event_activity("reset.open", consumer=slug))
        await send(client, "reset.open", "reset-open-1")
        await eventually(lambda: target.requests, what="the first attempt")
        workflow_id = f"activity-{activity['id']}:reset-open-1"
        handle = temporal_client.get_workflow_handle(workflow_id)

        async def first_step_is_over() -> bool:
            return (await handle.describe()).history_length > 4

        await eventually(first_step_is_over)
        reset = await _reset(temporal_client, workflow_id)
        there.set()
        (run,) = await ended_runs(client, activity, 1)
        assert (run["status"], run["tasks"]["total"], run["tasks"]["completed"]) == ("completed", 1, 1)
        await temporal_client.get_workflow_handle(workflow_id, run_id=reset).result()
        assert len(target.by_key()) == 1


async def _reset(client: Client, workflow_id: str) -> str:
    """Reset to the beginning; Temporal's id of the new execution."""
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            workflow_task_finish_event_id=4,
            reason="test",
            request_id=unique("reset"),
        )
    )
    return answer.run_id


async def test_r2_r5_a_cron_run_has_the_contracts_id_and_its_rows_agree(
    client: httpx.AsyncClient, every_minute: Json, temporal_client: Client, running_service: RunningService
) -> None:
    async def first_run() -> list[Json]:
        return await items(client, f"/v1/activities/{every_minute['id']}/runs", status="completed")

    run = (await eventually(first_run, within=75, what="a run at the next full minute"))[-1]
    nominal = datetime.fromisoformat(run["scheduled_for"])
    assert (nominal.second, nominal.microsecond, nominal.utcoffset()) == (0, 0, timedelta(0))
    assert run["workflow_id"] == f"activity-{every_minute['id']}:{nominal.isoformat()}"
    assert timedelta(0) <= datetime.fromisoformat(run["started_at"]) - nominal < timedelta(seconds=30)
    assert run["window"] == {
        "start": (nominal - timedelta(minutes=1)).isoformat().replace("+00:00", "Z"),
        "end": nominal.isoformat().replace("+00:00", "Z"),
    } or run["window"] == {"start": (nominal - timedelta(minutes=1)).isoformat(), "end": nominal.isoformat()}
    description = await temporal_client.get_workflow_handle(run["workflow_id"]).describe()
    assert description.status is not None and description.status.name == "COMPLETED"
    rows = await fetch(
        running_service.database_url,
        """SELECT o.key, o.outcome, r.workflow_id, e.status, t.id AS task, t.state, s.consumer_reference, d.state AS delivery
           FROM occurrences o JOIN activity_runs r ON r.occurrence_id = o.id JOIN activity_run_ends e ON e.run_id = r.run_id
           JOIN task_instances t ON t.run_id = r.run_id JOIN task_spawn_log s ON s.task_id = t.id
           JOIN ops_runs d ON d.task_id = t.id WHERE r.run_id = $1""",
        run["run_id"],
    )
    task = f"task-{run['run_id']}:beat:0"
    assert [tuple(row) for row in rows] == [
        (nominal.isoformat(), "started", run["workflow_id"], "completed", task, "completed", task, "delivered")
    ]
    why = (await client.get(f"/v1/activities/{every_minute['slug']}/why", params={"at": run["scheduled_for"]})).json()
    assert (why["outcome"], why["run"]["run_id"]) == ("started", run["run_id"])


async def test_r6_r8_a_redelivery_starts_nothing_after_the_run_closed_nor_after_temporal_forgot_it(
    client: httpx.AsyncClient, temporal_client: Client, forgotten: Json
) -> None:
    handle = temporal_client.get_workflow_handle(forgotten["workflow_id"])

    async def gone() -> bool:
        try:
            await handle.describe()
        except RPCError:
            return True
        return False

    await eventually(gone, within=90)
    assert (await send(client, "again.paid", "again-1")).json()["status"] == "duplicate"
    # what comes after it in the same queue has run, so the redelivery was looked at
    assert (await send(client, "again.paid", "again-2")).status_code == 202
    await ended_runs(client, forgotten["activity"], 2)
    with pytest.raises(RPCError):
        await handle.describe()


async def test_the_ledger_agrees_with_itself(running_service: RunningService) -> None:
    assert await broken(running_service.database_url) == {}
