"""Activities, consumers and apply: what is stored, what is refused, and how both are answered."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.conftest import Api
from tests.api.samples import cron_activity, event_activity, manual_activity, slug


async def created(http: httpx.AsyncClient, document: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post("/v1/activities", json=document)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    return body


def pointers(answer: httpx.Response) -> set[str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return {fault["pointer"] for fault in answer.json()["errors"]}


FREE: dict[str, object] = {
    "enabled": True,
    "paused": False,
    "note": None,
    "until": None,
    "paused_at": None,
    "freezes": [],
}


async def test_created_activity_is_answered_with_location_etag_and_defaults(http: httpx.AsyncClient) -> None:
    document = cron_activity()
    answer = await http.post("/v1/activities", json=document)

    body = answer.json()
    assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
    assert answer.headers["location"] == f"/v1/activities/{body['id']}"
    assert (body["slug"], body["revision"], body["state"]) == (document["slug"], 1, FREE)
    assert body["spec"] == {**document, "api_version": "activity-core/v1", "kind": "Activity"}
    assert body["effective"]["trigger"]["misfire_grace_seconds"] == 60
    assert body["schedule"]["sync"] == "pending"
    assert body["schedule"]["next"].endswith("T09:00:00+00:00")
    for ref in (body["id"], document["slug"]):
        again = await http.get(f"/v1/activities/{ref}")
        assert (again.json(), again.headers["etag"]) == (body, '"1"')


async def test_r19_dedupe_key_strategy_is_accepted_with_a_notice_and_not_missed(http: httpx.AsyncClient) -> None:
    legacy = await created(http, cron_activity(dedupe_key_strategy="skip"))
    plain = await created(http, cron_activity())

    assert legacy["spec"]["dedupe_key_strategy"] == "skip"
    assert [notice["pointer"] for notice in legacy["notices"]] == ["/dedupe_key_strategy"]
    assert plain["notices"] == []


async def test_put_creates_then_replaces_then_changes_nothing(http: httpx.AsyncClient) -> None:
    document = cron_activity()
    path = f"/v1/activities/{document['slug']}"
    renamed = {**document, "name": "Renamed"}

    first, second, third = [await http.put(path, json=d) for d in (document, renamed, renamed)]

    assert [answer.status_code for answer in (first, second, third)] == [201, 200, 200]
    assert [answer.headers["etag"] for answer in (first, second, third)] == ['"1"', '"2"', '"2"']
    revisions = (await http.get(f"{path}/revisions")).json()["items"]
    assert [(r["revision"], r["in_force_until"] is None) for r in revisions] == [(2, True), (1, False)]
    assert revisions[0]["in_force_from"] == revisions[1]["in_force_until"]


@pytest.mark.parametrize(
    ("if_match", "status"),
    [
        ('"1"', 200),
        ('"2"', 412),
        ('"abc"', 412),
        ('"01"', 412),
        ("1", 422),
        ("*", 422),
        ('W/"1"', 422),
        ('"1", "2"', 422),
    ],
)
async def test_if_match_guards_a_put(http: httpx.AsyncClient, if_match: str, status: int) -> None:
    document = cron_activity()
    await created(http, document)
    path = f"/v1/activities/{document['slug']}"

    answer = await http.put(path, json={**document, "name": "x"}, headers={"If-Match": if_match})

    assert answer.status_code == status, answer.text
    assert (await http.get(path)).json()["revision"] == (2 if status == 200 else 1)


async def test_if_match_of_an_old_revision_guards_a_delete(http: httpx.AsyncClient) -> None:
    activity = await created(http, cron_activity())
    path = f"/v1/activities/{activity['id']}"

    assert (await http.delete(path, headers={"If-Match": '"2"'})).status_code == 412
    assert (await http.delete(path, headers={"If-Match": '"1"'})).status_code == 204
    assert (await http.get(path)).status_code == 410
    assert (await http.delete(path)).status_code == 410
    assert (await http.get(f"/v1/activities/{activity['slug']}")).status_code == 404


async def test_deleted_activitys_ledger_stays_and_its_slug_may_be_used_again(http: httpx.AsyncClient) -> None:
    document = cron_activity()
    first = await created(http, document)
    await http.post(f"/v1/activities/{first['id']}/trigger")
    await http.delete(f"/v1/activities/{first['id']}")
    second = await created(http, document)

    assert second["id"] != first["id"]
    rows = (await http.get(f"/v1/activities/{first['id']}/occurrences")).json()["items"]
    assert [(row["kind"], row["outcome"]) for row in rows] == [("manual", "deleted")]
    assert (await http.get(f"/v1/activities/{second['id']}/occurrences")).json()["items"] == []


async def test_same_idempotency_key_creates_one_activity(http: httpx.AsyncClient) -> None:
    document, headers = cron_activity(), {"Idempotency-Key": slug("key")}
    answers = await asyncio.gather(*(http.post("/v1/activities", json=document, headers=headers) for _ in range(8)))

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = await http.post("/v1/activities", json=cron_activity(), headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    without = await http.post("/v1/activities", json=document)
    assert (without.status_code, without.json()["code"]) == (409, "slug_taken")


async def test_every_fault_is_named_at_once_and_nothing_is_stored(api: Api) -> None:
    document = {
        "slug": slug("bad"),
        "trigger": {"type": "cron", "cron": "61 * * * *", "timezone": "Mars/Base", "misfire_policy": "again"},
        "rules": [{"id": "r", "when": "window.nope(", "reason": "x"}],
        "tasks": [{"task_type": "note", "consumer": "nobody", "parms": {}}],
    }
    answer = await api.http.post("/v1/activities", json=document)

    assert answer.status_code == 422
    assert pointers(answer) == {
        *("/trigger/cron", "/trigger/timezone", "/trigger/misfire_policy"),
        *("/rules/0/when", "/tasks/0/consumer", "/tasks/0/parms"),
    }
    assert (await api.http.get(f"/v1/activities/{document['slug']}")).status_code == 404
    assert await api.sql("SELECT 1 FROM activities WHERE slug = $1", document["slug"]) == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"slug": "x"}',
        b"[]",
        b"null",
        b'"text"',
        b'{"slug": "x", "trigger": {"type": "cron", "cron": "*/0 * * * *", "timezone": "UTC"}}',
        '{"slug": "x", "trigger": {"type": "cron", "cron": "０ ９ * * *", "timezone": "UTC"}}'.encode(),
        b'{"slug": "x", "trigger": {"type": "cron", "cron": "", "timezone": null, "misfire_policy": "Skip"}}',
        b'{"slug": 7, "trigger": [], "tasks": {}, "labels": [1], "enabled": "yes"}',
        b'{"slug": "x", "trigger": {"type": "manual"}, "name": "\\ud800"}',
        b'{"slug": "x", "slug": "y", "trigger": {"type": "manual"}}',
        b'{"slug": "x", "trigger": {"type": "manual"}, "a~/b": 1e999}',
    ],
)
async def test_any_wrong_document_is_a_422_with_pointers(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/v1/activities", content=body)

    assert answer.status_code == 422, answer.text
    assert pointers(answer)


@pytest.mark.parametrize("body", [b"\x80\x81\x82\xff\x00PNG", b"", b"{", b'{"x": NaN}', b"\xef\xbb\xbf{}"])
async def test_bytes_that_are_no_json_are_a_400(
    http: httpx.AsyncClient, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/v1/activities", "/v1/events", "/v1/apply", "/v1/consumers"):
        answer = await http.post(path, content=body, headers={"Content-Type": "application/json"})
        if path == "/v1/apply" and not body:
            continue
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body"), path
    assert "PNG" not in caplog.text


async def test_form_encoded_document_is_refused_with_advice(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/activities", data={"slug": "x"})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "application/json" in answer.json()["detail"]


async def test_apply_takes_all_or_nothing_with_references_within(http: httpx.AsyncClient) -> None:
    consumer = {"kind": "Consumer", "slug": slug("mailer"), "type": "http", "url": "http://mail.test/"}
    task = {"task_type": "send", "consumer": consumer["slug"]}
    activity = {"kind": "Activity", **manual_activity(tasks=[task])}
    wrong = {"kind": "Activity", "slug": slug("wrong"), "trigger": {"type": "never"}}

    refused = await http.post("/v1/apply", json={"documents": [activity, wrong, consumer]})
    assert (refused.status_code, pointers(refused)) == (422, {"/documents/1/trigger/type"})
    assert (await http.get(f"/v1/consumers/{consumer['slug']}")).status_code == 404

    for dry_run, change in ((True, "created"), (False, "created"), (False, "unchanged")):
        answer = await http.post("/v1/apply", json={"documents": [activity, consumer], "dry_run": dry_run})
        assert answer.json() == {
            "dry_run": dry_run,
            "documents": [
                {"kind": "Activity", "slug": activity["slug"], "change": change, "revision": 1, "notices": []},
                {"kind": "Consumer", "slug": consumer["slug"], "change": change, "revision": 1, "notices": []},
            ],
        }
        assert (await http.get(f"/v1/consumers/{consumer['slug']}")).status_code == (404 if dry_run else 200)

    in_use = await http.delete(f"/v1/consumers/{consumer['slug']}")
    assert (in_use.status_code, in_use.json()["code"]) == (409, "in_use")


async def test_apply_tells_of_what_is_taken_all_the_same(http: httpx.AsyncClient) -> None:
    trigger = {"type": "cron", "cron": "0 9 25-31 * MON-FRI", "timezone": "UTC"}
    document = {"kind": "Activity", **cron_activity(trigger=trigger)}
    answer = await http.post("/v1/apply", json={"documents": [document], "dry_run": True})
    told = answer.json()["documents"][0]["notices"]
    assert [(notice["code"], notice["pointer"]) for notice in told] == [("cron_warning", "/trigger/cron")]


async def test_apply_refuses_what_comes_later_and_what_is_unknown(http: httpx.AsyncClient) -> None:
    later = await http.post("/v1/apply", json={"set": "a", "prune": True, "dry_run": "yes"})
    assert pointers(later) == {"/set", "/prune", "/dry_run", "/documents"}
    unknown = await http.post("/v1/apply", json={"documents": [], "dryrun": True})
    assert "did you mean 'dry_run'" in unknown.json()["errors"][0]["message"]


async def test_consumers_are_created_replaced_and_deleted(http: httpx.AsyncClient) -> None:
    document, headers = {"slug": slug("c"), "type": "http", "url": "http://c.test/"}, {"Idempotency-Key": slug("key")}
    first, again = [await http.post("/v1/consumers", json=document, headers=headers) for _ in range(2)]
    assert [(a.status_code, a.headers["etag"]) for a in (first, again)] == [(201, '"1"')] * 2
    assert first.json() == again.json()
    path = first.headers["location"]
    changed = {**document, "url": "http://d.test/"}
    assert (await http.put(path, json=changed, headers={"If-Match": '"7"'})).status_code == 412
    assert (await http.put(path, json=changed, headers={"If-Match": '"1"'})).headers["etag"] == '"2"'
    assert (await http.delete(path, headers={"If-Match": '"1"'})).status_code == 412
    assert (await http.delete(path, headers={"If-Match": '"2"'})).status_code == 204
    assert (await http.get(path)).status_code == 404


async def test_next_times_are_in_utc_and_in_the_triggers_zone(http: httpx.AsyncClient) -> None:
    trigger = {"type": "cron", "cron": "30 9 * * MON", "timezone": "Asia/Tokyo", "misfire_policy": "skip"}
    activity = await created(http, cron_activity(trigger=trigger))
    body = (await http.get(f"/v1/activities/{activity['id']}/next?count=3")).json()

    assert body["description"] == "at 09:30 on Monday, Asia/Tokyo time"
    assert [item["scheduled_for"][11:] for item in body["items"]] == ["00:30:00+00:00"] * 3
    assert [item["local"][11:] for item in body["items"]] == ["09:30:00+09:00"] * 3
    assert body["items"][0]["scheduled_for"] == activity["schedule"]["next"]

    disabled = await created(http, cron_activity(enabled=False))
    assert (await http.get(f"/v1/activities/{disabled['id']}/next")).json()["items"] == []
    event = await created(http, event_activity("a.*", "b"))
    described = (await http.get(f"/v1/activities/{event['id']}/next")).json()
    assert (described["items"], described["description"]) == ([], "for each event of type a.*, b")


async def test_trigger_gives_one_run_for_a_key_and_refuses_what_it_does_not_know(http: httpx.AsyncClient) -> None:
    activity = await created(http, manual_activity())
    path, headers = f"/v1/activities/{activity['slug']}/trigger", {"Idempotency-Key": "k 1"}

    first, again = [await http.post(path, json={"params": {"a": 1}}, headers=headers) for _ in range(2)]
    assert (first.status_code, first.json()) == (202, again.json())
    assert first.json()["workflow_id"].startswith(f"activity-{activity['id']}:manual:~sha256.")
    other = await http.post(path, json={"params": {"a": 2}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")

    for body, pointer in (
        ({"on_overlap": "maybe"}, "/on_overlap"),
        ({"params": [1]}, "/params"),
        ({"parms": {}}, "/parms"),
        ([], ""),
    ):
        assert pointers(await http.post(path, json=body)) == {pointer}
    refused = await http.post(path, json={"on_overlap": "refuse"})
    assert (refused.status_code, refused.json()["code"]) == (409, "run_open")
    assert (await http.post(path)).status_code == 202


async def test_disabled_activity_is_not_triggered(http: httpx.AsyncClient) -> None:
    activity = await created(http, manual_activity(enabled=False))
    answer = await http.post(f"/v1/activities/{activity['id']}/trigger")
    assert (answer.status_code, answer.json()["code"]) == (409, "disabled")
