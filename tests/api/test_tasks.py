"""Runs and tasks as they are read, and tasks of the inbox that are completed or failed."""

import asyncio
import uuid
from typing import Any

import pytest

from activity_core.domain import ids
from activity_core.services.gate import log_run
from activity_core.store import tasks
from activity_core.store.tasks import NewTask
from tests.api.conftest import Api
from tests.api.samples import manual_activity

DELIVERY: dict[str, Any] = {"attempt_timeout_seconds": 30, "deadline_seconds": None, "retry": {}}


class Spawned:
    """A run that the gate let pass, with tasks in the inbox: what a worker would have made of a trigger."""

    def __init__(self, api: Api, started: dict[str, Any]) -> None:
        self.api = api
        self.run_id = uuid.UUID(started["run_id"])
        self.activity_id = uuid.UUID(started["activity_id"])
        self.key = started["workflow_id"].partition(":")[2]

    async def begin(self, count: int) -> list[str]:
        names = [ids.task_id(self.run_id, "ask", index) for index in range(count)]
        async with self.api.database.begin() as connection:
            passed = await log_run(connection, self.api.definitions, self.activity_id, self.key, "execution")
            assert passed.verdict == "go"
            new = [self._task(name, index) for index, name in enumerate(names)]
            await tasks.record_plan(connection, self.run_id, reason=None, waves=1, open_tasks=count, tasks=new)
            for name in names:
                await tasks.move(connection, name, "waiting", delivery="delivered")
        return names

    def _task(self, name: str, index: int) -> NewTask:
        return NewTask(
            id=name,
            uuid=uuid.uuid5(ids.NAMESPACE, name),
            execution_id=ids.activity_execution_id(name, "deliver"),
            task_type="ask",
            index=index,
            wave=0,
            consumer="inbox",
            delivery=DELIVERY,
            params={"question": index},
            detached=True,
        )


@pytest.fixture
async def spawned(api: Api) -> Spawned:
    document = manual_activity()
    await api.http.post("/v1/activities", json=document)
    started = await api.http.post(f"/v1/activities/{document['slug']}/trigger")
    return Spawned(api, started.json())


async def test_run_is_shown_with_its_counts(spawned: Spawned) -> None:
    await spawned.begin(2)
    http = spawned.api.http
    run = (await http.get(f"/v1/runs/{spawned.run_id}")).json()

    assert run["workflow_id"] == f"activity-{spawned.activity_id}:{spawned.key}"
    assert (run["status"], run["triggered_by"], run["scheduled_for"]) == ("running", "manual", None)
    assert (run["tasks"]["total"], run["tasks"]["waiting"], run["tasks"]["completed"]) == (2, 2, 0)
    assert (await http.get(f"/v1/runs?activity={spawned.activity_id}")).json()["items"] == [run]
    assert (await http.get(f"/v1/activities/{spawned.activity_id}/runs?status=completed")).json()["items"] == []


async def test_task_is_found_by_both_its_names_and_by_filters(spawned: Spawned) -> None:
    name, other = await spawned.begin(2)
    http = spawned.api.http
    task = (await http.get(f"/v1/tasks/{name}")).json()

    assert (task["task_id"], task["state"], task["terminal"], task["attempts"]) == (name, "waiting", False, [])
    assert (await http.get(f"/v1/tasks/{task['id']}")).json() == task
    for query in (f"task_id={name}", f"run_id={spawned.run_id}&task_type=ask&limit=500", f"activity={task['slug']}"):
        items = (await http.get(f"/v1/tasks?{query}&consumer=inbox&state=waiting")).json()["items"]
        expected = {name} if query.startswith("task_id") else {name, other}
        assert {item["task_id"] for item in items} == expected
    assert (await http.get(f"/v1/tasks?task_id={name}&state=failed")).json()["items"] == []


async def test_task_is_completed_once_and_a_repeat_is_fine(spawned: Spawned) -> None:
    (name,) = await spawned.begin(1)
    http, path = spawned.api.http, f"/v1/tasks/{name}/complete"
    answers = await asyncio.gather(*(http.post(path, json={"output": {"ok": True}}) for _ in range(5)))

    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json()["output"] == {"ok": True}
    assert (answers[0].json()["state"], answers[0].json()["terminal"]) == ("completed", True)
    for late, body in ((path, {"output": {"ok": False}}), (f"/v1/tasks/{name}/fail", {"reason": "no"})):
        answer = await http.post(late, json=body, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["code"]) == (409, "task_not_open")


async def test_task_is_failed_with_a_reason(spawned: Spawned) -> None:
    (name,) = await spawned.begin(1)
    http, path = spawned.api.http, f"/v1/tasks/{name}/fail"
    for body, pointer in (
        ({}, "/reason"),
        ({"reason": ""}, "/reason"),
        ({"reason": 7}, "/reason"),
        ({"why": "x"}, "/why"),
    ):
        answer = await http.post(path, json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    answer = await http.post(path, json={"reason": "nobody is there"})
    assert (answer.status_code, answer.json()["state"], answer.json()["reason"]) == (200, "failed", "nobody is there")


async def test_why_shows_the_run_its_attempts_and_what_waits_in_the_inbox(spawned: Spawned) -> None:
    (name,) = await spawned.begin(1)
    execution, attempt = ids.activity_execution_id(name, "deliver"), uuid.uuid4()
    async with spawned.api.database.begin() as connection:
        await tasks.begin_attempt(
            connection, attempt, task_id=name, execution_id=execution, temporal_attempt=1, worker="w", body=b"{}"
        )
    answer = (await spawned.api.http.get(f"/v1/activities/{spawned.activity_id}/why")).json()

    assert (answer["outcome"], answer["run"]["run_id"]) == ("started", str(spawned.run_id))
    assert answer["sentence"].endswith("and is running. 1 of its tasks waits in the inbox.")
    assert [(item["task_id"], item["activity_attempt_id"]) for item in answer["attempts"]] == [(name, str(attempt))]
    command = answer["actions"][0]["command"]
    assert command.startswith("activity-core tasks complete ")
    completed = await spawned.api.http.post(f"/v1/tasks/{command.split()[-1]}/complete", json={})
    assert completed.status_code == 200
