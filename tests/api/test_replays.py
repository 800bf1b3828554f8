"""Routing events again, what events are kept back, and what `why` says of the event rules."""

from typing import Any

import pytest

from tests.api.conftest import Api
from tests.api.samples import slug

Json = dict[str, Any]


async def activity(api: Api, event_type: str, trigger: Json | None = None, **more: Any) -> Json:
    document = {"slug": slug("r"), "trigger": {"type": "event", "event_types": [event_type], **(trigger or {})}, **more}
    answer = await api.http.post("/v1/activities", json=document)
    assert answer.status_code == 201, answer.text
    created: Json = answer.json()
    return created


async def send(api: Api, event_type: str, *names: str, **more: Any) -> list[str]:
    ids = []
    for name in names:
        body = {"event_id": f"{event_type}-{name}", "type": event_type, "data": {"n": name}, **more}
        answer = await api.http.post("/v1/events", json=body)
        assert answer.status_code in (200, 202), answer.text
        ids.append(answer.json()["event_id"])
    await api.route()
    return ids


async def outcomes(api: Api, event_id: str) -> dict[str, tuple[str, str]]:
    event = (await api.http.get(f"/v1/events/{event_id}")).json()
    return {row["slug"]: (row["outcome"], row["reason_code"]) for row in event["occurrences"]}


async def why(api: Api, created: Json, event_id: str) -> Json:
    answer = await api.http.get(f"/v1/activities/{created['slug']}/why", params={"event_id": event_id})
    assert answer.status_code == 200, answer.text
    told: Json = answer.json()
    assert told["sentence"].endswith(".") and "None" not in told["sentence"] and ".." not in told["sentence"]
    return told


async def test_replay_of_one_event_gives_it_to_activities_that_came_later(api: Api) -> None:
    event_type = slug("t")
    [event_id] = await send(api, event_type, "1")
    first, other = await activity(api, event_type), await activity(api, event_type)
    tried = await api.http.post(f"/v1/events/{event_id}/replay", json={"dry_run": True})
    assert tried.status_code == 202
    assert tried.json()["events"] == 1
    assert {item["slug"]: item["starts"] for item in tried.json()["by_activity"]} == {
        first["slug"]: 1,
        other["slug"]: 1,
    }
    await api.route()
    assert await outcomes(api, event_id) == {}

    done = await api.http.post(f"/v1/events/{event_id}/replay", json={"activity": first["slug"]})
    assert [item["slug"] for item in done.json()["by_activity"]] == [first["slug"]]
    await api.route()
    assert await outcomes(api, event_id) == {first["slug"]: ("waiting", "due")}
    everyone = await api.http.post(f"/v1/events/{event_id}/replay")  # the body may be left out
    assert {item["slug"]: (item["starts"], item["left"]) for item in everyone.json()["by_activity"]} == {
        first["slug"]: (0, 1),
        other["slug"]: (1, 0),
    }
    await api.route()
    assert await outcomes(api, event_id) == {first["slug"]: ("waiting", "due"), other["slug"]: ("waiting", "due")}


async def test_r22_what_was_kept_back_is_routed_for_all_also_when_one_activity_asks_for_it(api: Api) -> None:
    event_type = slug("t")
    first, other = await activity(api, event_type), await activity(api, event_type)
    declared = {"schema": {"required": ["order"]}, "on_invalid": "quarantine"}
    answer = await api.http.put(f"/v1/events/types/{event_type}", json=declared)
    assert answer.status_code == 201, answer.text
    [event_id] = await send(api, event_type, "1")
    for dry_run in (True, False):
        asked = {"activity": first["slug"], "dry_run": dry_run}
        told = (await api.http.post(f"/v1/events/{event_id}/replay", json=asked)).json()
        assert {item["slug"]: item["starts"] for item in told["by_activity"]} == {first["slug"]: 1, other["slug"]: 1}
    await api.route()
    assert await outcomes(api, event_id) == {first["slug"]: ("waiting", "due"), other["slug"]: ("waiting", "due")}


async def test_replay_of_a_range_is_by_type_source_and_half_open(api: Api) -> None:
    event_type = slug("t")
    ids = await send(api, event_type, "1", "2", "3", source="shop")
    ids += await send(api, event_type, "4", source="office")
    await send(api, slug("t"), "5", source="shop")
    events = [(await api.http.get(f"/v1/events/{event_id}")).json() for event_id in ids]
    start, end = events[0]["accepted_at"], events[2]["accepted_at"]

    async def count(**more: Any) -> int:
        body = {"from": start, "to": end, "type": event_type, "dry_run": True, **more}
        answer = await api.http.post("/v1/events/replay", json=body)
        assert answer.status_code == 202, answer.text
        return int(answer.json()["events"])

    assert await count() == 2
    assert await count(limit=1) == 1
    assert await count(to="2999-01-01T00:00:00Z") == 4
    assert await count(to="2999-01-01T00:00:00Z", source="office") == 1


@pytest.mark.parametrize(
    ("path", "body", "status", "pointer"),
    [
        ("replay", {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, 422, "/to"),
        ("replay", {"from": "2026-01-01T00:00:00", "to": "2026-02-01T00:00:00Z"}, 422, "/from"),
        ("replay", {"to": "2026-01-01T00:00:00Z"}, 422, "/from"),
        ("replay", {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z", "limit": 10_001}, 422, "/limit"),
        ("never-sent/replay", {}, 404, None),
    ],
)
async def test_replays_that_can_not_be(api: Api, path: str, body: Json, status: int, pointer: str | None) -> None:
    answer = await api.http.post(f"/v1/events/{path}", json=body)
    assert answer.status_code == status, answer.text
    if pointer is not None:
        assert pointer in [error["pointer"] for error in answer.json()["errors"]]


async def test_an_unknown_activity_is_not_found(api: Api) -> None:
    [event_id] = await send(api, slug("t"), "1")
    answer = await api.http.post(f"/v1/events/{event_id}/replay", json={"activity": "nobody"})
    assert answer.status_code == 404


async def test_a_dead_letter_is_listed_counted_and_routed_by_a_replay(api: Api) -> None:
    event_type = slug("t")
    created = await activity(api, event_type)
    answer = await api.http.post("/v1/events", json={"event_id": f"{event_type}-1", "type": event_type})
    event_id = answer.json()["event_id"]
    for reason in ("loop: 17 events in a row", "KeyError: 'x'"):
        await api.sql(
            "UPDATE events SET routed_at = now(), dead_letter_reason = $2 WHERE event_id = $1", event_id, reason
        )
        listed = (await api.http.get("/v1/events", params={"status": "dead_letter", "type": event_type})).json()
        assert [item["event_id"] for item in listed["items"]] == [event_id]
        assert (listed["items"][0]["status"], listed["items"][0]["dead_letter_reason"]) == ("dead_letter", reason)
        again = f"POST /v1/events/{listed['items'][0]['id']}/replay"
        if reason.startswith("loop"):
            assert (await why(api, created, event_id))["actions"][0]["command"] == again
        assert "activity_core_events_dead_letters 1\n" in (await api.http.get("/metrics")).text
        assert (await api.http.post(again.removeprefix("POST "))).status_code == 202
        await api.route()
        routed = (await api.http.get("/v1/events", params={"status": "routed", "type": event_type})).json()
        assert [item["event_id"] for item in routed["items"]] == [event_id]
    assert [outcome for outcome, _ in (await outcomes(api, event_id)).values()] == ["waiting"]


async def test_r22_why_tells_of_each_rule(api: Api) -> None:
    event_type = slug("t")
    trailing = await activity(api, event_type, {"debounce": {"seconds": 60}})
    leading = await activity(api, event_type, {"debounce": {"seconds": 60, "edge": "leading"}})
    dropping = await activity(api, event_type, {"rate_limit": {"count": 1, "per_seconds": 60}})
    queueing = await activity(api, event_type, {"rate_limit": {"count": 1, "per_seconds": 60, "on_exceed": "queue"}})
    one = await activity(api, event_type, concurrency={"key": "k"})
    two = await activity(api, event_type, concurrency={"limit": 1, "on_limit": "drop"})
    keyless = await activity(api, event_type, {"debounce": {"seconds": 60, "key": "${ event.data.who }"}})
    elsewhere = await activity(api, event_type, {"sources": ["shop-*"]})
    first, second = await send(api, event_type, "1", "2")

    expected = {
        (trailing["slug"], first): ("merged", "debounced", f"event '{second}' stands for both"),
        (trailing["slug"], second): ("waiting", "debounce", "unless another comes"),
        (leading["slug"], second): ("merged", "debounced", f"event '{first}' stands for both"),
        (dropping["slug"], second): ("rate_limited", "rate_limited", "more than 1 in 60 s"),
        (queueing["slug"], second): ("waiting", "rate_limit", "waits for its turn"),
        (one["slug"], second): ("waiting", "concurrency", "no other run of its concurrency key"),
        (two["slug"], second): ("concurrency_dropped", "concurrency", "a run of its concurrency key was open"),
        (keyless["slug"], first): ("filter_error", "key_error", "who"),
        (elsewhere["slug"], first): ("not_matched", "source_unmatched", "'shop-*' alone"),
    }
    for (name, event_id), (outcome, code, part) in expected.items():
        told = await why(api, {"slug": name}, event_id)
        assert (told["outcome"], told["reason_code"]) == (outcome, code), told
        assert part in told["sentence"], told["sentence"]
    covered = await why(api, trailing, first)
    assert covered["actions"][0]["command"] == f"activity-core why {trailing['slug']} --event-id {second}"
    metrics = (await api.http.get("/metrics")).text
    for code in ("debounce", "rate_limit", "concurrency"):
        assert f'activity_core_occurrences_waiting{{kind="event",reason_code="{code}"}}' in metrics


@pytest.mark.parametrize(
    ("change", "pointer", "part"),
    [
        ({"debounce": {"seconds": 5}, "rate_limit": {"count": 1, "per_seconds": 1}}, "/trigger/rate_limit", "debounce"),
        ({"debounce": {"key": "a"}}, "/trigger/debounce/seconds", ""),
        ({"debounce": {"seconds": 5, "edge": "both"}}, "/trigger/debounce/edge", "trailing"),
        ({"debounce": {"seconds": 5, "key": "${ window.start }"}}, "/trigger/debounce/key", "window"),
        ({"debounce": {"seconds": 5, "key": "${ 1 + }"}}, "/trigger/debounce/key", ""),
        ({"rate_limit": {"count": 0, "per_seconds": 1}}, "/trigger/rate_limit/count", ""),
        ({"rate_limit": {"count": 1, "per_second": 1}}, "/trigger/rate_limit/per_second", "per_seconds"),
        ({"sources": [""]}, "/trigger/sources/0", ""),
    ],
)
async def test_rules_that_can_not_be_are_refused_with_what_to_write(
    api: Api, change: Json, pointer: str, part: str
) -> None:
    document = {"slug": slug("r"), "trigger": {"type": "event", "event_types": ["t"], **change}}
    answer = await api.http.post("/v1/activities", json=document)
    assert answer.status_code == 422
    found = {error["pointer"]: error["message"] for error in answer.json()["errors"]}
    assert pointer in found and part in found[pointer], found


async def test_concurrency_is_for_event_triggers(api: Api) -> None:
    document = {"slug": slug("r"), "trigger": {"type": "manual"}, "concurrency": {"limit": 1}}
    answer = await api.http.post("/v1/activities", json=document)
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, ["/concurrency"])
