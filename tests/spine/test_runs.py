"""Runs, tasks and deliveries from outside."""

import asyncio
import json
from typing import Any

import httpx
from temporalio.client import Client

from tests.checker import broken, shared_attempts, unlike_repeats
from tests.consumer import Answer, Request, consumer
from tests.spine.support import Json, create, ended_runs, event_activity, items, send, unique
from tests.stack import RunningService, eventually


async def http_consumer(client: httpx.AsyncClient, url: str) -> str:
    slug = unique("consumer")
    response = await client.post("/v1/consumers", json={"slug": slug, "type": "http", "url": url})
    assert response.status_code == 201, response.text
    return slug


async def tasks_of(client: httpx.AsyncClient, run: Json) -> list[Json]:
    found = await items(client, "/v1/tasks", run_id=run["run_id"])
    return sorted(found, key=lambda task: (task["task_type"], task["index"]))


async def trigger(client: httpx.AsyncClient, activity: Json) -> Json:
    response = await client.post(f"/v1/activities/{activity['slug']}/trigger", json={})
    assert response.status_code == 202, response.text
    (run,) = await ended_runs(client, activity, 1, within=60)
    return run


def manual(**more: Any) -> Json:
    return {"slug": unique("manual"), "trigger": {"type": "manual"}, **more}


async def test_a_rule_that_does_not_hold_ends_the_run_with_no_work_and_its_reason(client: httpx.AsyncClient) -> None:
    rules = [{"id": "never", "when": "params.size() > 5", "reason": "too few"}]
    run = await trigger(
        client, await create(client, manual(rules=rules, tasks=[{"task_type": "a", "consumer": "log"}]))
    )
    assert (run["status"], run["result"], run["reason"]) == ("completed", "no_work", "too few")


async def test_an_error_in_an_expression_fails_the_run_with_its_place(client: httpx.AsyncClient) -> None:
    task = {"task_type": "a", "consumer": "log", "params": {"x": "${ params.nothing }"}}
    run = await trigger(client, await create(client, manual(tasks=[task])))
    assert run["status"] == "failed"
    assert "/tasks/0/params/x" in run["reason"]


async def test_http_context_is_fetched_once_and_fans_out_in_waves(client: httpx.AsyncClient) -> None:
    def script(request: Request, before: int) -> Answer:
        return Answer(body=json.dumps({"orders": [{"id": n} for n in range(45)]}).encode())

    async with consumer(script) as source:
        tasks = [
            {
                "task_type": "ship",
                "for_each": {"in": "context.shop.orders", "max_parallel": 20},
                "when": "item.id != 3",
                "params": {"order": "${ item.id }", "at": "${ index }"},
                "consumer": await http_consumer(client, f"{source.url}/ship"),
            }
        ]
        context = [
            {"name": "shop", "type": "http", "url": f"{source.url}/orders", "query": {"who": "${ activity.slug }"}}
        ]
        activity = await create(client, manual(context=context, tasks=tasks))
        run = await trigger(client, activity)
        assert (run["status"], run["result"]) == ("completed", "done")
        assert (run["tasks"]["total"], run["tasks"]["completed"]) == (44, 44)
        assert [r.path for r in source.requests if r.method == "GET"] == [f"/orders?who={activity['slug']}"]
        assert len(source.by_key()) == 44
    found = await tasks_of(client, run)
    assert [(task["index"], task["params"]["order"]) for task in found][:5] == [(0, 0), (1, 1), (2, 2), (3, 4), (4, 5)]
    assert [task["task_id"] for task in found] == [f"task-{run['run_id']}:ship:{n}" for n in range(44)]


async def test_a_context_that_does_not_answer_fails_the_run_and_says_why(client: httpx.AsyncClient) -> None:
    async with consumer(lambda request, before: Answer(status=404)) as source:
        context = [{"name": "shop", "type": "http", "url": f"{source.url}/orders"}]
        run = await trigger(client, await create(client, manual(context=context, tasks=[{"task_type": "a"}])))
    assert run["status"] == "failed"
    assert "the source answered 404" in run["reason"]


async def test_i6_r39_r40_every_attempt_has_the_same_key_and_body_and_an_id_of_its_own(
    client: httpx.AsyncClient,
) -> None:
    def script(request: Request, before: int) -> Answer:
        return [
            Answer(drop=True),
            Answer(500),
            Answer(429, headers={"Retry-After": "1"}),
            Answer(body=b'{"reference": "R-7"}'),
        ][before]

    async with consumer(script) as target:
        document = event_activity("retry.paid", consumer=await http_consumer(client, target.url))
        activity = await create(client, document)
        await send(client, "retry.paid", "retry-1", n=5)
        (run,) = await ended_runs(client, activity, 1, within=60)
        assert run["status"] == "completed"
        assert len(target.requests) == 4
        assert unlike_repeats(target) == [] and shared_attempts(target) == []
        body = target.requests[0].json
        assert (body["type"], body["data"], body["task"]["event_id"]) == ("task.note", {"n": 5}, "retry-1")
    (task,) = await tasks_of(client, run)
    detail = (await client.get(f"/v1/tasks/{task['id']}")).json()
    assert [attempt["outcome"] for attempt in detail["attempts"]] == ["unknown", "failed", "failed", "delivered"]
    assert detail["reference"] == "R-7"
    sent = [request.headers["activity-core-attempt-id"] for request in target.requests]
    assert [attempt["activity_attempt_id"] for attempt in detail["attempts"]] == sent


async def test_a_refused_task_fails_at_once_and_its_run_says_how_many(client: httpx.AsyncClient) -> None:
    async with consumer(lambda request, before: Answer(422 if request.json["data"]["n"] == 0 else 200)) as target:
        slug = await http_consumer(client, target.url)
        tasks = [{"task_type": "a", "consumer": slug, "params": {"n": n}} for n in (0, 1)]
        run = await trigger(client, await create(client, manual(tasks=tasks)))
        assert len(target.requests) == 2
    assert (run["status"], run["result"]) == ("failed", "partial")
    assert run["reason"] == "1 of 2 tasks failed or were cancelled"
    refused, taken = await tasks_of(client, run)
    assert (refused["state"], refused["terminal"], taken["state"]) == ("failed", True, "completed")
    assert "422" in refused["reason"]


async def test_a_task_that_is_never_taken_fails_at_its_deadline(client: httpx.AsyncClient) -> None:
    async with consumer(lambda request, before: Answer(503)) as target:
        slug = await http_consumer(client, target.url)
        task = {"task_type": "a", "consumer": slug, "deadline_seconds": 3}
        run = await trigger(client, await create(client, manual(tasks=[task])))
        assert len(target.requests) >= 2
    (failed,) = await tasks_of(client, run)
    assert "deadline of 3 s" in failed["reason"]


async def test_an_inbox_task_waits_for_its_report_and_does_not_hold_the_run(client: httpx.AsyncClient) -> None:
    run = await trigger(client, await create(client, manual(tasks=[{"task_type": "approve"}, {"task_type": "sign"}])))
    assert (run["status"], run["tasks"]["waiting"]) == ("completed", 2)
    approve, sign = await tasks_of(client, run)
    answers = await asyncio.gather(
        *(client.post(f"/v1/tasks/{approve['id']}/complete", json={"output": {"ok": True}}) for _ in range(10))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json()["state"] == "completed"
    other = await client.post(f"/v1/tasks/{approve['id']}/fail", json={"reason": "changed my mind"})
    assert (other.status_code, other.json()["code"]) == (409, "task_not_open")
    failed = await client.post(f"/v1/tasks/{sign['task_id']}/fail", json={"reason": "nobody there"})
    assert (failed.status_code, failed.json()["state"]) == (200, "failed")


async def test_r36_a_cancelled_run_cancels_what_it_has_not_delivered(
    client: httpx.AsyncClient, temporal_client: Client
) -> None:
    async with consumer(lambda request, before: Answer(503)) as target:
        activity = await create(client, event_activity("cancel.paid", consumer=await http_consumer(client, target.url)))
        await send(client, "cancel.paid", "cancel-1")
        await eventually(lambda: target.requests, what="the first attempt")
        await temporal_client.get_workflow_handle(f"activity-{activity['id']}:cancel-1").cancel()
        (run,) = await ended_runs(client, activity, 1, within=60)
        assert run["status"] == "cancelled"

        async def cancelled() -> bool:
            return [task["state"] for task in await tasks_of(client, run)] == ["cancelled"]

        await eventually(cancelled)


async def test_r36_i8_a_run_terminated_behind_our_back_reads_terminated_and_its_task_failed(
    client: httpx.AsyncClient, cut_off: Json
) -> None:
    (run,) = await ended_runs(client, cut_off, 1, within=60)
    assert (run["status"], run["workflow_id"]) == ("terminated", f"activity-{cut_off['id']}:cut-1")

    async def failed() -> bool:
        (task,) = await tasks_of(client, run)
        return bool(task["state"] == "failed" and "terminated" in task["reason"])

    await eventually(failed, within=60)


async def test_the_ledger_agrees_with_itself(running_service: RunningService) -> None:
    assert await broken(running_service.database_url) == {}
