"""POST /v1/simulate with an event says what really happens, and stores nothing."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from activity_core.domain.taskplan import plan_tasks
from activity_core.services.gate import log_run
from activity_core.services.runs import Runs
from activity_core.services.waiters import RunWaiters
from activity_core.store import runs
from tests.api.conftest import Api

Json = dict[str, Any]
TASK = {"task_type": "ship", "consumer": "log", "params": {"order": "${ event.data.order }", "run": "${ run.id }"}}

FOR_EACH = [
    {
        "task_type": "pack",
        "for_each": {"in": "event.data.lines"},
        "when": "event.data.order == 7",
        "params": {"line": "${ item }", "run": "${ run.id }"},
    }
]
CONTEXT = [{"name": "prices", "type": "static", "value": {"7": 12}}]
WITH_CONTEXT = [
    {
        "task_type": "price",
        "params": {"price": "${ context.prices['7'] }", "of": "${ event.merged.first_id }", "run": "${ run.id }"},
    }
]


async def count_rows(api: Api) -> list[int]:
    tables = ("events", "occurrences", "activity_runs", "activities", "task_instances")
    return [(await api.sql(f"SELECT count(*) FROM {table}"))[0][0] for table in tables]


async def simulate(api: Api, body: Json) -> Json:
    answer = await api.http.post("/v1/simulate", json=body)
    assert answer.status_code == 200, answer.text
    tried: Json = answer.json()
    return tried


@pytest.mark.parametrize(
    ("more", "data", "outcome"),
    [
        ({}, {"order": 7}, "waiting"),
        ({"filter": "event.data.order > 10"}, {"order": 7}, "filtered"),
        ({"filter": "event.data.missing > 10"}, {"order": 7}, "filter_error"),
        ({"rate_limit": {"key": "${ event.data.who }", "count": 1, "per_seconds": 60}}, {"order": 7}, "filter_error"),
        ({"debounce": {"key": "k-${ event.data.order }", "seconds": 1}}, {"order": 7}, "waiting"),
        ({"sources": ["shop"]}, {"order": 7}, "filtered"),
        ({"rate_limit": {"key": "${ event.data.order }", "count": 1, "per_seconds": 60}}, {"order": 7}, "waiting"),
        ({"concurrency": {"key": "c-${ event.data.order }", "limit": 1}}, {"order": 7}, "waiting"),
        ({"debounce": {"key": "${ event.data.long }", "seconds": 1}}, {"order": 7, "long": "x" * 300}, "waiting"),
        ({"tasks": WITH_CONTEXT, "context": CONTEXT}, {"order": 7}, "waiting"),
        ({"tasks": FOR_EACH}, {"order": 7, "lines": ["a", "b", "c"]}, "waiting"),
        ({"enabled": False}, {"order": 7}, "disabled"),
    ],
    ids=str,
)
async def test_a_trial_says_what_the_router_and_the_run_make_of_the_event(
    api: Api, more: Json, data: Json, outcome: str
) -> None:
    event_type = f"trial.t{uuid4().hex[:10]}"
    of_the_whole: Json = {name: more[name] for name in ("concurrency", "tasks", "enabled", "context") if name in more}
    of_the_trigger = {name: value for name, value in more.items() if name not in of_the_whole}
    definition: Json = {
        "slug": f"t-{uuid4().hex[:8]}",
        "trigger": {"type": "event", "event_types": [event_type], **of_the_trigger},
        "rules": [{"id": "some", "when": "event.data.order > 0", "reason": "no order"}],
        "tasks": [TASK],
        **of_the_whole,
    }
    made = (await api.http.post("/v1/activities", json=definition)).json()
    event: Json = {"event_id": f"e-{uuid4().hex}", "type": event_type, "data": data}
    before = await count_rows(api)
    tried = await simulate(api, {"activity": made["slug"], "event": event})
    bare = await simulate(api, {"definition": definition, "event": event})
    assert await count_rows(api) == before
    assert (tried["outcome"], bare["outcome"]) == (outcome, outcome)
    assert (tried["made_up_ids"], bare["made_up_ids"]) == (False, True)

    assert (await api.http.post("/v1/events", json=event)).status_code == 202
    await api.route()
    rows = (await api.http.get("/v1/occurrences", params={"activity": made["slug"]})).json()["items"]
    if "sources" in more:
        assert rows == []
        return
    assert (rows[0]["outcome"], rows[0]["reason_code"] in (tried["reason_code"], "debounce")) == (outcome, True)
    if outcome != "waiting":
        return
    keys = await api.sql("SELECT group_key, concurrency_key FROM occurrences WHERE id = $1::uuid", rows[0]["id"])
    assert tuple(keys[0]) == (tried["keys"]["debounce"] or tried["keys"]["rate_limit"], tried["keys"]["concurrency"])
    assert [key is not None for key in tried["keys"].values()] == [
        name in more for name in ("debounce", "rate_limit", "concurrency")
    ]
    await api.sql("UPDATE occurrences SET not_before = NULL WHERE id = $1::uuid", rows[0]["id"])
    async with api.database.begin() as connection:
        passed = await log_run(connection, api.definitions, UUID(made["id"]), event["event_id"], "execution")
        progress = await runs.progress(connection, passed.run_id)
        assert progress is not None and (passed.verdict, progress.workflow_id) == ("go", tried["workflow_id"])
        service = Runs(api.database, api.definitions, None, RunWaiters())  # type: ignore[arg-type]  # starts nothing
        activity, scope = await service.definition_and_scope(connection, progress)
    assert str(passed.run_id) == tried["run_id"]
    planned = plan_tasks(activity, scope).tasks
    assert [(task.task_type, task.index, task.params) for task in planned] == [
        (task["task_type"], task["index"], task["params"]) for task in tried["tasks"]
    ]
    assert tried["tasks"][0]["params"]["run"] == tried["run_id"]
    assert len({task["task_id"] for task in tried["tasks"]}) == len(planned) == len(data.get("lines", [7]))


async def test_rules_errors_and_missing_context_are_told_in_place(api: Api) -> None:
    definition = {
        "slug": "trial",
        "trigger": {"type": "event", "event_types": ["a.b"]},
        "context": [{"name": "stock", "type": "http", "url": "https://example.org/"}],
        "rules": [
            {"id": "there", "when": "context.stock.count > 0", "reason": "none"},
            {"id": "big", "when": "event.data.n > 5", "reason": "small"},
        ],
        "tasks": [{"task_type": "note", "params": {"x": "${ event.data.missing }"}}],
    }
    event = {"type": "a.b", "data": {"n": 9}}
    bare = await simulate(api, {"definition": definition, "event": event})
    assert bare["missing_context"] == ["stock"] and "/rules/0/when" in bare["error"]
    assert [rule["holds"] for rule in bare["rules"]] == [None, None]
    given = await simulate(api, {"definition": definition, "event": event, "context": {"stock": {"count": 1}}})
    assert [rule["holds"] for rule in given["rules"]] == [True, True]
    assert "missing" in given["error"] and given["missing_context"] == []
    small = await simulate(
        api, {"definition": definition, "event": {**event, "data": {"n": 1}}, "context": {"stock": {"count": 1}}}
    )
    assert ([rule["holds"] for rule in small["rules"]], small["tasks"], small["error"]) == ([True, False], [], None)


@pytest.mark.parametrize("on_invalid", ["refuse", "quarantine"])
async def test_what_the_schema_of_its_type_has_against_the_event_is_told(api: Api, on_invalid: str) -> None:
    event_type = f"trial.t{uuid4().hex[:10]}"
    schema = {"properties": {"order": {"type": "integer"}}}
    declared = await api.http.put(f"/v1/events/types/{event_type}", json={"schema": schema, "on_invalid": on_invalid})
    assert declared.status_code == 201
    definition = {"slug": "trial", "trigger": {"type": "event", "event_types": ["trial.*"]}, "tasks": [TASK]}
    right = await simulate(api, {"definition": definition, "event": {"type": event_type, "data": {"order": 1}}})
    assert right["invalid"] is None
    wrong = await simulate(api, {"definition": definition, "event": {"type": event_type, "data": {"order": "1"}}})
    assert (wrong["invalid"]["on_invalid"], wrong["outcome"]) == (on_invalid, "waiting")
    assert [error["pointer"] for error in wrong["invalid"]["errors"]] == ["/event/data/order"]


async def test_faults_of_both_are_told_where_they_are(api: Api) -> None:
    wrong = await api.http.post("/v1/simulate", json={"definition": {"slug": "x"}, "event": {"type": "a"}})
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["pointer"].startswith("/definition/")
    wrong = await api.http.post(
        "/v1/simulate",
        json={"definition": {"slug": "x", "trigger": {"type": "manual"}}, "event": {"tipe": "a"}},
    )
    assert {error["pointer"] for error in wrong.json()["errors"]} == {"/event/tipe", "/event/type"}
    neither = await api.http.post("/v1/simulate", json={"event": {"type": "a"}})
    assert neither.status_code == 422
