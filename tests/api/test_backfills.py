"""Backfills over HTTP: what is answered, and what is refused with which pointer."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.api.conftest import Api
from tests.api.samples import slug

PAST = datetime(2025, 6, 2, tzinfo=UTC)
Json = dict[str, Any]


def at(hour: float) -> str:
    return (PAST + timedelta(hours=hour)).isoformat()


async def activity(http: httpx.AsyncClient, **more: Any) -> str:
    """The slug of an hourly activity that was just made."""
    name = slug("backfill")
    trigger = {"type": "cron", "cron": "0 * * * *", "timezone": "UTC", "end_at": "2026-01-01T00:00:00Z"}
    answer = await http.post("/v1/activities", json={"slug": name, "trigger": trigger, **more})
    assert answer.status_code == 201, answer.text
    return name


async def ask(http: httpx.AsyncClient, ref: str, body: Any, **headers: str) -> httpx.Response:
    return await http.post(f"/v1/activities/{ref}/backfill", json=body, headers=headers)


async def begun(http: httpx.AsyncClient, ref: str, start: float, end: float, **more: Any) -> Json:
    answer = await ask(http, ref, {"from": at(start), "to": at(end), **more})
    assert answer.status_code == 202, answer.text
    found: Json = answer.json()
    return found


async def test_a_plan_and_then_the_backfill(http: httpx.AsyncClient) -> None:
    name = await activity(http)
    body = {"from": "2025-06-02T02:00:00+02:00", "to": at(2), "note": "the first morning"}
    dry = await ask(http, name, {**body, "dry_run": True})
    assert dry.status_code == 200
    plan = dry.json()
    assert plan["items"][0] == {
        "scheduled_for": "2025-06-02T00:00:00+00:00",
        "action": "add",
        "outcome": None,
        "reason": "the activity had not been created yet",
        "window": {"start": "2025-06-01T23:00:00+00:00", "end": "2025-06-02T00:00:00+00:00"},
        "overlaps": None,
    }
    assert (plan["id"], plan["dry_run"], plan["counts"]) == (None, True, {"reopen": 0, "add": 2, "leave": 0})
    assert (plan["from"], plan["to"], plan["slug"], plan["notices"]) == (at(0), at(2), name, [])
    assert (await http.get(f"/v1/activities/{name}/backfills")).json() == {"items": [], "next_cursor": None}

    answer = await ask(http, name, body)
    assert answer.status_code == 202
    made = answer.json()
    assert made == {**plan, "id": made["id"], "dry_run": False} and made["id"] is not None
    found = (await http.get(f"/v1/backfills/{made['id']}")).json()
    assert {name: found[name] for name in ("id", "activity_id", "from", "to", "note", "cancelled_at", "slug")} == {
        **{name: made[name] for name in ("id", "activity_id", "from", "to", "slug")},
        "note": "the first morning",
        "cancelled_at": None,
    }
    assert found["counts"] == {"waiting": 2, "started": 0, "cancelled": 0, "total": 2}
    assert found["requested_at"].endswith("+00:00")
    rows = (await http.get(f"/v1/activities/{name}/occurrences?backfill_id={made['id']}")).json()["items"]
    assert [(row["scheduled_for"], row["outcome"], row["triggered_by"]) for row in rows] == [
        (at(1), "waiting", "backfill"),
        (at(0), "waiting", "backfill"),
    ]


async def test_asked_for_again_nothing_is_left_to_run(http: httpx.AsyncClient) -> None:
    name = await activity(http)
    await begun(http, name, 0, 3)
    again = await begun(http, name, 0, 3)
    assert (again["id"], again["counts"]) == (None, {"reopen": 0, "add": 0, "leave": 3})
    assert {(item["action"], item["outcome"]) for item in again["items"]} == {("leave", "waiting")}
    nothing = await begun(http, name, 0.25, 0.5)
    assert (nothing["id"], nothing["items"], sum(nothing["counts"].values())) == (None, [], 0)


async def test_cancel_and_cancel_again(http: httpx.AsyncClient) -> None:
    name = await activity(http)
    made = await begun(http, name, 0, 3)
    first = await http.post(f"/v1/backfills/{made['id']}/cancel", json={})
    assert first.status_code == 200
    assert first.json()["counts"] == {"waiting": 0, "started": 0, "cancelled": 3, "total": 3}
    assert first.json()["cancelled_at"] is not None
    again = await http.post(f"/v1/backfills/{made['id']}/cancel")
    assert (again.status_code, again.json()) == (200, first.json())
    assert (await http.get(f"/v1/backfills/{made['id']}")).json() == first.json()
    (row, *_) = (await http.get(f"/v1/activities/{name}/occurrences")).json()["items"]
    assert (row["outcome"], row["reason_code"]) == ("skipped", "backfill_cancelled")
    assert [decision["outcome"] for decision in row["history"]] == ["waiting"]
    later = await begun(http, name, 0, 2)
    assert later["counts"] == {"reopen": 2, "add": 0, "leave": 0}
    assert {item["outcome"] for item in later["items"]} == {"skipped"}
    assert (await http.get(f"/v1/backfills/{made['id']}")).json() == first.json()


async def test_backfills_are_listed_newest_first_in_pages_also_of_a_deleted_activity(http: httpx.AsyncClient) -> None:
    name = await activity(http)
    made = [await begun(http, name, hour, hour + 1) for hour in range(3)]
    ids = [one["id"] for one in reversed(made)]
    page = (await http.get(f"/v1/activities/{name}/backfills?limit=2")).json()
    rest = (await http.get(f"/v1/activities/{name}/backfills?limit=2&cursor={page['next_cursor']}")).json()
    assert [[item["id"] for item in part["items"]] for part in (page, rest)] == [ids[:2], ids[2:]]
    assert rest["next_cursor"] is None
    activity_id = made[0]["activity_id"]
    assert (await http.delete(f"/v1/activities/{name}")).status_code == 204
    gone = await ask(http, activity_id, {"from": at(0), "to": at(1)})
    assert (gone.status_code, gone.json()["code"]) == (410, "gone")
    listed = (await http.get(f"/v1/activities/{activity_id}/backfills")).json()["items"]
    assert [item["counts"] for item in listed] == [
        {"waiting": 0, "started": 0, "cancelled": 0, "deleted": 1, "total": 1}
    ] * 3
    ended = await http.post(f"/v1/backfills/{ids[0]}/cancel")
    assert (ended.status_code, ended.json()["counts"]["deleted"]) == (200, 1)


async def test_the_same_idempotency_key_gives_the_same_answer(http: httpx.AsyncClient) -> None:
    name, key = await activity(http), uuid.uuid4().hex
    body = {"from": at(0), "to": at(3)}
    first = await ask(http, name, body, **{"Idempotency-Key": key})
    again = await ask(http, name, body, **{"Idempotency-Key": key})
    assert (first.status_code, first.json()) == (again.status_code, again.json()) and first.json()["id"] is not None
    other = await ask(http, name, {**body, "note": "other"}, **{"Idempotency-Key": key})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    fault = await ask(http, name, body, **{"Idempotency-Key": "a\x01"})
    assert (fault.status_code, fault.json()["errors"][0]["pointer"]) == (422, "/headers/Idempotency-Key")


async def test_while_it_is_paused_a_notice_says_that_the_times_wait(http: httpx.AsyncClient) -> None:
    name = await activity(http)
    await http.post(f"/v1/activities/{name}/pause", json={"note": "moving house"})
    dry = (await ask(http, name, {"from": at(0), "to": at(1), "dry_run": True})).json()
    made = await begun(http, name, 0, 1)
    for answer in (dry, made):
        (notice,) = answer["notices"]
        assert notice["code"] == "held" and "moving house" in notice["message"]
    (row,) = (await http.get(f"/v1/activities/{name}/occurrences")).json()["items"]
    assert (row["outcome"], row["reason_code"]) == ("waiting", "paused")


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/from", "/to"]),
        ([], [""]),
        ({"from": at(0)}, ["/to"]),
        ({"from": "2025-06-02T00:00:00", "to": at(1)}, ["/from"]),
        ({"from": at(0), "to": 3}, ["/to"]),
        ({"from": at(0), "to": at(1), "dry_run": "yes"}, ["/dry_run"]),
        ({"from": at(0), "to": at(1), "note": "x" * 501}, ["/note"]),
        ({"from": at(0), "to": at(1), "dryrun": True}, ["/dryrun"]),
        ({"from": at(0), "to": at(1), "start": at(0)}, ["/start"]),
        ({"from": at(1), "to": at(1)}, ["/to"]),
        ({"from": at(1), "to": at(0)}, ["/to"]),
        ({"from": at(0), "to": "2999-01-01T00:00:00Z"}, ["/to"]),
        ({"from": "1900-01-01T00:00:00Z", "to": at(0)}, ["/to"]),
    ],
)
async def test_what_is_wrong_is_refused_with_its_pointer(
    http: httpx.AsyncClient, body: Any, pointers: list[str]
) -> None:
    answer = await ask(http, await activity(http), body)
    assert answer.status_code == 422, answer.text
    assert [fault["pointer"] for fault in answer.json()["errors"]] == pointers, answer.text


async def test_a_disabled_or_unknown_activity_and_an_unknown_backfill(http: httpx.AsyncClient) -> None:
    body = {"from": at(0), "to": at(1), "dry_run": True}
    off = await ask(http, await activity(http, enabled=False), body)
    assert (off.status_code, off.json()["code"]) == (409, "disabled")
    nobody = uuid.uuid4()
    for answer in (
        await ask(http, "nobody-has-this-slug", body),
        await http.get("/v1/activities/nobody-has-this-slug/backfills"),
        await http.get(f"/v1/backfills/{nobody}"),
        await http.post(f"/v1/backfills/{nobody}/cancel"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await http.get("/v1/backfills/no-uuid")).status_code in (404, 422)


async def test_no_more_than_500_items_are_shown_and_all_are_counted(api: Api) -> None:
    name = await activity(api.http)
    made = await begun(api.http, name, 0, 700, dry_run=False)
    assert made["counts"] == {"reopen": 0, "add": 700, "leave": 0}
    assert len(made["items"]) == 500
    assert (made["items"][0]["scheduled_for"], made["items"][-1]["scheduled_for"]) == (at(0), at(499))
    (count,) = await api.sql("SELECT count(*) FROM occurrences WHERE backfill_id = $1::text::uuid", made["id"])
    assert count[0] == 700
