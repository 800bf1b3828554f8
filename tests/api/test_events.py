"""Accepting events, and reading them back."""

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest

from activity_core.settings import Settings
from tests.api.cable import cable
from tests.api.conftest import Api, application
from tests.api.samples import event_activity, slug
from tests.api.test_documents import pointers

CLOUD = {"Content-Type": "application/cloudevents+json"}


def cloud_event(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": slug("ce"), "source": "/svc/a", "type": "t.x", "data": {"k": 1}, **more}


async def test_r25_accepted_event_is_committed_when_it_is_answered(api: Api) -> None:
    event = {"event_id": slug("e"), "type": "order.paid", "subject": "s", "data": {"a": [1, None]}}
    answer = await api.http.post("/v1/events", json=event)

    assert (answer.status_code, answer.json()["status"]) == (202, "accepted")
    assert answer.json()["event_id"] == event["event_id"]
    rows = await api.sql("SELECT id::text, type, data::text FROM events WHERE event_id = $1", event["event_id"])
    assert [tuple(row) for row in rows] == [(answer.json()["id"], "order.paid", '{"a": [1, null]}')]


async def test_repeat_is_a_duplicate_and_other_content_a_conflict(http: httpx.AsyncClient) -> None:
    event = {"event_id": slug("e"), "type": "order.paid", "data": {"a": 1}}
    first = await http.post("/v1/events", json=event)
    again = await http.post("/v1/events", json=event)
    other = await http.post("/v1/events", json={**event, "data": {"a": 2}})

    assert (again.status_code, again.json()) == (200, {**first.json(), "status": "duplicate"})
    assert (other.status_code, other.json()["code"]) == (409, "event_conflict")


async def test_of_a_hundred_at_once_one_is_accepted(http: httpx.AsyncClient) -> None:
    event = {"event_id": slug("e"), "type": "order.paid"}
    answers = await asyncio.gather(*(http.post("/v1/events", json=event) for _ in range(100)))

    assert sorted(answer.status_code for answer in answers) == [200] * 99 + [202]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_r23_event_without_id_is_given_one_and_told(http: httpx.AsyncClient) -> None:
    first, second = [await http.post("/v1/events", json={"type": "ping"}) for _ in range(2)]

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["event_id"] != second.json()["event_id"]
    assert (await http.get(f"/v1/events/{first.json()['event_id']}")).json()["id"] == first.json()["id"]


async def test_r24_idempotency_key_is_the_id_of_an_event_without_one(http: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": slug("key")}
    first, again = [await http.post("/v1/events", json={"type": "ping"}, headers=headers) for _ in range(2)]
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["event_id"] == again.json()["event_id"] == headers["Idempotency-Key"]

    named = await http.post("/v1/events", json={"event_id": slug("e"), "type": "ping"}, headers=headers)
    assert (named.status_code, named.json()["event_id"] == headers["Idempotency-Key"]) == (202, False)


async def test_r27_same_id_from_two_sources_is_two_events(http: httpx.AsyncClient) -> None:
    number = slug("1")
    answers = [
        await http.post("/v1/events", json={"event_id": number, "type": "t"}),
        await http.post("/v1/events", json={"event_id": number, "type": "t", "source": "shop"}),
        await http.post("/v1/events", json=cloud_event(id=number), headers=CLOUD),
        await http.post("/v1/events", json=cloud_event(id=number, source="/svc/b"), headers=CLOUD),
    ]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["event_id"] for answer in answers}) == 4
    assert answers[1].json()["event_id"] == f"shop:{number}"


@pytest.mark.parametrize("external", ["with space", "a/b?c#d%", "x" * 300, "2026-03-01T09:00:00Z", "manual:1", "ünï"])
async def test_r9_any_id_is_found_again_under_what_was_sent_and_what_is_stored(
    http: httpx.AsyncClient, external: str
) -> None:
    accepted = (await http.post("/v1/events", json={"event_id": external, "type": "t"})).json()

    assert accepted["event_id"].isascii()
    for name in (external, accepted["event_id"]):
        shown = await http.get(f"/v1/events/{quote(name, safe='')}")
        assert (shown.status_code, shown.json()["external_id"]) == (200, external)
        listed = await http.get("/v1/events", params={"event_id": name})
        assert [item["id"] for item in listed.json()["items"]] == [accepted["id"]]


@pytest.mark.parametrize("external", ["", "a\nb", "x" * 1025, 7])
async def test_r9_unusable_id_is_refused(http: httpx.AsyncClient, external: Any) -> None:
    answer = await http.post("/v1/events", json={"event_id": external, "type": "t"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/event_id")


@pytest.mark.parametrize(
    "content_type", ["application/cloudevents+json", "Application/CloudEvents+JSON; charset=utf-8"]
)
async def test_structured_cloudevent_is_accepted(http: httpx.AsyncClient, content_type: str) -> None:
    event = cloud_event()
    answer = await http.post("/v1/events", json=event, headers={"Content-Type": content_type})

    assert (answer.status_code, answer.json()["event_id"].endswith(event["id"])) == (202, True)
    shown = (await http.get(f"/v1/events/{answer.json()['id']}")).json()
    assert (shown["source"], shown["data"]) == ("/svc/a", {"k": 1})


async def test_binary_cloudevent_is_the_same_event_as_the_structured_one(http: httpx.AsyncClient) -> None:
    event = {**cloud_event(), "source": '/shop/Euro € "x"', "subject": "ä b", "data": {"k": [1]}}
    headers = {
        "ce-specversion": "1.0",
        "ce-id": str(event["id"]),
        "ce-type": str(event["type"]),
        "ce-source": "/shop/Euro%20%E2%82%AC%20%22x%22",
        "ce-subject": '"%C3%A4\\ b"',
        "Content-Type": "application/json",
    }
    if "time" in event:
        headers["ce-time"] = str(event["time"])
    first = await http.post("/v1/events", content=orjson.dumps(event["data"]), headers=headers)
    assert first.status_code == 202, first.text
    again = await http.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
    assert (again.status_code, again.json()["event_id"]) == (200, first.json()["event_id"]), again.text
    bare = {**headers, "ce-id": "no-data"}
    del bare["Content-Type"]
    empty = await http.post("/v1/events", content=b"", headers=bare)
    assert empty.status_code == 202
    assert (await http.get(f"/v1/events/{empty.json()['id']}")).json()["data"] is None
    doubled = await http.post("/v1/events", content=b"1", headers=[*headers.items(), ("ce-id", "other")])
    assert pointers(doubled) == {"/headers/ce-id"}


async def test_case_c06_an_event_that_is_twice_in_a_batch_is_one_event(http: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    one, two = cloud_event(), cloud_event()
    answer = await http.post("/v1/events", content=orjson.dumps([one, two, one]), headers=headers)
    items = answer.json()["items"]
    assert (answer.status_code, [item["status"] for item in items]) == (202, ["accepted", "accepted", "duplicate"])
    assert items[0]["event_id"] == items[2]["event_id"] != items[1]["event_id"]
    again = await http.post("/v1/events", content=orjson.dumps([one, two]), headers=headers)
    assert (again.status_code, {item["status"] for item in again.json()["items"]}) == (200, {"duplicate"})
    assert (await http.post("/v1/events", content=b"[]", headers=headers)).json() == {"items": []}


async def test_a_batch_with_a_fault_is_not_stored_and_one_with_a_conflict_says_which(http: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    good, wrong = cloud_event(), {**cloud_event(), "source": 7}
    refused = await http.post("/v1/events", content=orjson.dumps([good, wrong, 1]), headers=headers)
    assert (refused.status_code, pointers(refused)) == (422, {"/1/source", "/2"})
    other = cloud_event()
    answer = await http.post("/v1/events", content=orjson.dumps([good, other]), headers=headers)
    assert [item["status"] for item in answer.json()["items"]] == ["accepted"] * 2
    changed = {**good, "data": "changed"}
    third = cloud_event()
    conflict = await http.post("/v1/events", content=orjson.dumps([changed, third]), headers=headers)
    assert (conflict.status_code, conflict.json()["code"], "/0" in conflict.json()["detail"]) == (
        409,
        "event_conflict",
        True,
    )
    again = await http.post("/v1/events", content=orjson.dumps([third]), headers=headers)
    assert again.status_code == 200, "it was committed"
    many = await http.post("/v1/events", content=orjson.dumps([good] * 501), headers=headers)
    assert (many.status_code, "500 at most" in many.text) == (422, True)


@pytest.mark.parametrize("content_type", [None, "application/json", "APPLICATION/JSON; charset=utf-8"])
async def test_native_envelope_needs_no_content_type(http: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    assert (await http.post("/v1/events", content=b'{"type": "t"}', headers=headers)).status_code == 202


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        ({"Content-Type": "text/plain"}, 415, "text/plain"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "application/json"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "Content-Encoding"),
        ({"ce-specversion": "1.0", "ce-type": "t", "ce-source": "/s"}, 422, "/headers/ce-id"),
        ({"ce-specversion": "1.0", "ce-type": "t", "ce-source": "/s", "ce-id": ""}, 422, "/headers/ce-id"),
        ({"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "Content-Type": "text/plain"}, 415, "text/plain"),
        ({"ce-id": "1", "Content-Type": "application/cloudevents+json"}, 400, "not both"),
        ({"ce-id": "%ff", "ce-specversion": "1.0", "ce-type": "t", "ce-source": "/s"}, 422, "percent-encoded"),
        ({"Content-Type": "application/cloudevents-batch+json"}, 422, "JSON array"),
    ],
)
async def test_what_can_not_be_read_is_refused_with_what_to_send(
    api: Api, headers: dict[str, str], status: int, says: str
) -> None:
    before = await api.sql("SELECT count(*) FROM events")
    answer = await api.http.post("/v1/events", content=b'{"type": "t"}', headers=headers)

    assert (answer.status_code, says in answer.json()["detail"]) == (status, True), answer.text
    assert await api.sql("SELECT count(*) FROM events") == before


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"type": "t", "data": "\\ud800"}', "/data"),
        (b'{"type": "t", "data": "\\u0000"}', "/data"),
        (b'{"type": "t", "data": 1e999}', "/data"),
        (b'{"type": "t", "a": 1, "a": 2}', "/a"),
        (b'{"type": "t", "time": "2026-03-01T09:00:00"}', "/time"),
        (b'{"type": "t", "evnt_id": "x"}', "/evnt_id"),
        (b'{"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}', "/specversion"),
        (b'{"type": ""}', "/type"),
        (b"[]", ""),
    ],
)
async def test_unusable_event_is_refused_with_a_pointer(http: httpx.AsyncClient, body: bytes, pointer: str) -> None:
    answer = await http.post("/v1/events", content=body)
    assert answer.status_code == 422, answer.text
    assert pointer in {fault["pointer"] for fault in answer.json()["errors"]}


async def test_too_large_data_is_refused_and_its_neighbour_accepted(http: httpx.AsyncClient) -> None:
    large = {"type": "t", "data": "x" * (256 * 1024)}
    refused, accepted = await asyncio.gather(
        http.post("/v1/events", json=large), http.post("/v1/events", json={"type": "t", "data": "x" * 250_000})
    )
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/data")
    assert accepted.status_code == 202


async def test_parameters_are_refused_where_there_are_none(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/events?type=t", json={"type": "t"})).status_code == 422


async def test_r26_event_shows_its_occurrence_in_each_matching_activity(api: Api) -> None:
    family = slug("fam")
    matching = [event_activity(f"{family}.*"), event_activity(f"{family}.paid", filter="event.data.n > 1")]
    for document in (*matching, event_activity(f"{family}.other")):
        assert (await api.http.post("/v1/activities", json=document)).status_code == 201
    accepted = await api.http.post("/v1/events", json={"type": f"{family}.paid", "data": {"n": 1}})
    waiting = (await api.http.get(f"/v1/events/{accepted.json()['id']}")).json()
    assert (waiting["status"], waiting["occurrences"]) == ("accepted", [])

    await api.route()
    routed = (await api.http.get(f"/v1/events/{accepted.json()['id']}")).json()
    assert routed["status"] == "routed"
    assert {(o["slug"], o["outcome"], o["reason_code"]) for o in routed["occurrences"]} == {
        (matching[0]["slug"], "waiting", "due"),
        (matching[1]["slug"], "filtered", "filter_false"),
    }


async def test_r25_unreachable_database_is_a_503_and_the_same_id_may_be_sent_again(api_settings: Settings) -> None:
    event = {"event_id": slug("e"), "type": "t"}
    async with cable(api_settings.asyncpg_url) as line, application(line.through(api_settings)) as api:
        assert (await api.http.post("/v1/events", json={"type": "t"})).status_code == 202
        await line.cut()
        answer = await api.http.post("/v1/events", json=event)
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert (await api.http.get("/v1/activities")).status_code == 503
        ready = await api.http.get("/readyz")
        assert (ready.status_code, ready.json()["postgres"]) == (503, "unreachable")
        assert (await api.http.get("/healthz")).status_code == 200

        await line.mend()
        assert (await api.http.post("/v1/events", json=event)).status_code in (200, 202)
        assert (await api.http.get("/readyz")).json()["database_schema"] == "at_head"
