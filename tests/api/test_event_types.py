"""/v1/events/types, and events that the schema of their type does not allow."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event

from activity_core.services.event_types import FRESH_SECONDS, EventSchemas
from tests.api.conftest import Api
from tests.api.webhooks import BY_NAME, document, post, receipts, signed, source

Json = dict[str, Any]
SCHEMA = {
    "type": "object",
    "required": ["order"],
    "properties": {"order": {"type": "integer"}, "note": {"type": "string", "maxLength": 5}},
}


def kind() -> str:
    return f"types.t{uuid4().hex[:10]}"


async def declare(api: Api, event_type: str, **more: Any) -> Json:
    answer = await api.http.put(f"/v1/events/types/{event_type}", json={"schema": SCHEMA, **more})
    assert answer.status_code in (200, 201), answer.text
    made: Json = answer.json()
    return made


async def test_a_type_is_declared_read_replaced_and_removed(api: Api) -> None:
    event_type = kind()
    path = f"/v1/events/types/{event_type}"
    assert (await api.http.get(path)).status_code == 404
    created = await api.http.put(path, json={"description": "An order", "schema": SCHEMA, "example": {"order": 1}})
    assert (created.status_code, created.headers["ETag"]) == (201, '"1"')
    same = await api.http.put(path, json={"description": "An order", "schema": SCHEMA, "example": {"order": 1}})
    assert (same.status_code, same.json()["revision"]) == (200, 1)
    stale = await api.http.put(path, json={}, headers={"If-Match": '"7"'})
    assert stale.status_code == 412
    bare = (await api.http.put(path, json={}, headers={"If-Match": '"1"'})).json()
    assert (bare["revision"], bare["schema"], bare["on_invalid"]) == (2, None, "refuse")
    assert (await api.http.delete(path)).status_code == 204
    assert (await api.http.delete(path)).status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"schema": {"type": "objekt"}}, "/schema/type"),
        ({"schema": {"properties": {"a": {"$ref": "https://example.org/x"}}}}, "/schema/properties/a/$ref"),
        ({"schema": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "/schema/$schema"),
        ({"schema": {"pattern": "(a)\\1"}}, "/schema/pattern"),
        ({"schema": {"enum": ["a" * 70_000]}}, "/schema"),
        ({"schema": SCHEMA, "example": {"order": "x"}}, "/example/order"),
        ({"schema": True}, "/schema"),
        ({"schema": {"allOf": [{"$ref": "#"}]}}, "/schema/allOf/0"),
        ({"on_invalid": "drop"}, "/on_invalid"),
        ({"shema": {}}, "/shema"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_can_not_be_declared_is_told_where_it_is(api: Api, body: Json, pointer: str) -> None:
    answer = await api.http.put(f"/v1/events/types/{kind()}", json=body)
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_a_name_that_is_no_type_is_refused(api: Api) -> None:
    answer = await api.http.put("/v1/events/types/a..b", json={})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/path/type")


async def test_an_event_that_the_schema_does_not_allow_is_refused_at_every_door(api: Api) -> None:
    event_type, wrong = kind(), {"order": "one", "note": "too long"}
    await declare(api, event_type)
    native = await api.http.post("/v1/events", json={"type": event_type, "data": wrong})
    assert native.status_code == 422
    assert {error["pointer"] for error in native.json()["errors"]} == {"/data/order", "/data/note"}
    assert "too long" not in native.text
    cloud = {"specversion": "1.0", "id": "1", "source": "/s", "type": event_type}
    structured = await api.http.post(
        "/v1/events", json={**cloud, "data": wrong}, headers={"Content-Type": "application/cloudevents+json"}
    )
    binary = await api.http.post("/v1/events", json=wrong, headers={f"ce-{name}": text for name, text in cloud.items()})
    batch = await api.http.post(
        "/v1/events",
        json=[{**cloud, "data": {"order": 1}}, {**cloud, "id": "2", "data": wrong}],
        headers={"Content-Type": "application/cloudevents-batch+json"},
    )
    assert [answer.status_code for answer in (structured, binary, batch)] == [422] * 3
    assert {error["pointer"] for error in batch.json()["errors"]} == {"/1/data/order", "/1/data/note"}
    sender, name = BY_NAME["bearer"], f"typed-{uuid4().hex[:8]}"
    await source(api, document(sender, name, type={"constant": event_type}))
    hook = await post(api, name, signed(sender), b'{"order": "x"}')
    assert hook.status_code == 422
    assert [(r["result"], r["reason_code"]) for r in await receipts(api, name)] == [("rejected", "schema_invalid")]
    assert (await api.http.post("/v1/events", json={"type": event_type, "data": {"order": 1}})).status_code == 202


async def test_a_quarantined_event_is_kept_back_and_runs_when_it_is_replayed(api: Api) -> None:
    event_type = kind()
    await declare(api, event_type, on_invalid="quarantine")
    made = await api.http.post(
        "/v1/activities",
        json={"slug": f"q-{uuid4().hex[:8]}", "trigger": {"type": "event", "event_types": [event_type]}},
    )
    accepted = await api.http.post("/v1/events", json={"event_id": event_type, "type": event_type, "data": 5})
    assert (accepted.status_code, accepted.json()["quarantined"]) == (202, True)
    await api.route()
    path = f"/v1/events/{accepted.json()['id']}"
    shown = (await api.http.get(path)).json()
    assert (shown["status"], shown["occurrences"]) == ("quarantined", [])
    listed = (await api.http.get("/v1/events", params={"status": "quarantined", "type": event_type})).json()["items"]
    assert [item["event_id"] for item in listed] == [event_type]
    why = (await api.http.get(f"/v1/activities/{made.json()['slug']}/why", params={"event_id": event_type})).json()
    assert (why["outcome"], "quarantined" in why["sentence"]) == ("quarantined", True)
    replayed = await api.http.post(f"{path}/replay", json={})
    assert (replayed.status_code, replayed.json()["events"]) == (202, 1)
    await api.route()
    shown = (await api.http.get(path)).json()
    assert (shown["status"], [row["outcome"] for row in shown["occurrences"]]) == ("routed", ["waiting"])


async def test_an_event_that_is_quarantined_is_so_at_every_door(api: Api) -> None:
    event_type = kind()
    await declare(api, event_type, on_invalid="quarantine")
    cloud = {"specversion": "1.0", "source": f"/{event_type}", "type": event_type}
    structured = await api.http.post(
        "/v1/events",
        json={**cloud, "id": "1", "data": {}},
        headers={"Content-Type": "application/cloudevents+json"},
    )
    binary = await api.http.post(
        "/v1/events", json={}, headers={f"ce-{name}": text for name, text in {**cloud, "id": "2"}.items()}
    )
    batch = await api.http.post(
        "/v1/events",
        json=[{**cloud, "id": "3", "data": {"order": 1}}, {**cloud, "id": "4", "data": {}}],
        headers={"Content-Type": "application/cloudevents-batch+json"},
    )
    sender, name = BY_NAME["bearer"], f"typed-{uuid4().hex[:8]}"
    await source(api, document(sender, name, type={"constant": event_type}))
    hook = await post(api, name, signed(sender), b"{}")
    assert [answer.status_code for answer in (structured, binary, batch, hook)] == [202] * 4
    items = [structured.json(), binary.json(), *batch.json()["items"], hook.json()]
    assert [(item["status"], item.get("quarantined")) for item in items] == [
        ("accepted", None if place == 2 else True) for place in range(5)
    ]
    await api.route()
    listed = (await api.http.get("/v1/events", params={"type": event_type})).json()["items"]
    assert sorted(item["status"] for item in listed) == ["quarantined"] * 4 + ["routed"]
    assert {item["quarantine_reason"] for item in listed if item["status"] == "quarantined"} == {
        'its data is not what the schema of its type allows: /data: "order" is a required property'
    }


async def test_r24_what_was_accepted_before_its_type_had_a_schema_is_a_duplicate_still(api: Api) -> None:
    event_type = kind()
    sent = {"event_id": event_type, "type": event_type, "data": {"order": "one"}}
    assert (await api.http.post("/v1/events", json=sent)).status_code == 202
    await declare(api, event_type)
    again = await api.http.post("/v1/events", json=sent)
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    other = await api.http.post("/v1/events", json={**sent, "event_id": f"{event_type}-2"})
    assert other.status_code == 422
    assert (await api.http.post("/v1/events", json={**sent, "data": {"order": "two"}})).status_code == 409


async def test_all_who_arrive_when_the_schemas_are_old_wait_for_one_reading_of_them(api: Api) -> None:
    event_type = kind()
    await declare(api, event_type)
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "FROM event_types" in statement:
            statements.append(statement)

    schemas = EventSchemas(api.database)
    event.listen(api.database.engine.sync_engine, "before_cursor_execute", count)
    try:
        verdicts = await asyncio.gather(*(schemas.check(event_type, {"order": "x"}) for _ in range(50)))
        assert all(verdict is not None and not verdict.quarantine for verdict in verdicts)
        assert len(statements) == 2  # which there are; those that are new
        await api.http.put(f"/v1/events/types/{event_type}", json={"schema": SCHEMA, "on_invalid": "quarantine"})
        statements.clear()
        same = [await schemas.check(event_type, {"order": "x"}) for _ in range(50)]
        assert statements == [] and {verdict is not None and verdict.quarantine for verdict in same} == {False}
        assert schemas._read_at is not None
        schemas._read_at -= FRESH_SECONDS
        verdicts = await asyncio.gather(*(schemas.check(event_type, {"order": "x"}) for _ in range(50)))
        assert all(verdict is not None and verdict.quarantine for verdict in verdicts)
        schemas._read_at -= FRESH_SECONDS
        statements.clear()
        assert await schemas.check(event_type, {"order": 1}) is None
        assert len(statements) == 1
        await api.http.delete(f"/v1/events/types/{event_type}")
        schemas._read_at -= FRESH_SECONDS
        assert await schemas.check(event_type, {"order": "x"}) is None
    finally:
        event.remove(api.database.engine.sync_engine, "before_cursor_execute", count)


async def test_types_that_were_seen_and_declared_are_listed_with_counts(api: Api) -> None:
    prefix = f"listed{uuid4().hex[:8]}"
    await declare(api, f"{prefix}.declared")
    for name in ("seen", "seen", "other"):
        await api.http.post("/v1/events", json={"type": f"{prefix}.{name}"})
    first = (await api.http.get("/v1/events/types", params={"prefix": prefix, "limit": "2"})).json()
    rest = (
        await api.http.get("/v1/events/types", params={"prefix": prefix, "limit": "2", "cursor": first["next_cursor"]})
    ).json()
    assert rest["next_cursor"] is None
    assert [(i["type"], i["count_24h"], i["has_schema"]) for i in [*first["items"], *rest["items"]]] == [
        (f"{prefix}.declared", 0, True),
        (f"{prefix}.other", 1, False),
        (f"{prefix}.seen", 2, False),
    ]
