"""Edits, pauses, freezes, requests and reruns from outside, on times that come every other second."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
from temporalio.client import Client

from tests.checker import broken
from tests.consumer import Answer, Request, consumer
from tests.spine.support import Json, create, ended_runs, items, unique
from tests.stack import RunningService, eventually

QUICK: Json = {"type": "interval", "every_seconds": 2, "misfire_policy": "compress", "misfire_grace_seconds": 10}
LOG: list[Json] = [{"task_type": "note", "consumer": "log"}]


def quick(**more: Any) -> Json:
    return {"slug": unique("quick"), "trigger": QUICK, "tasks": LOG, **more}


async def put(client: httpx.AsyncClient, document: Json, **headers: str) -> httpx.Response:
    return await client.put(f"/v1/activities/{document['slug']}", json=document, headers=headers)


async def rows_of(client: httpx.AsyncClient, activity: Json, **where: Any) -> list[Json]:
    """Oldest first."""
    return list(reversed(await items(client, f"/v1/activities/{activity['id']}/occurrences", **where)))


async def started(client: httpx.AsyncClient, activity: Json, count: int) -> list[Json]:
    """The started rows, once there are so many."""

    async def enough() -> list[Json] | None:
        rows = await rows_of(client, activity, outcome="started")
        return rows if len(rows) >= count else None

    return list(await eventually(enough, what=f"{count} starts of {activity['slug']}"))


async def done_with(client: httpx.AsyncClient, activity: Json) -> None:
    """So that what the other tests look at stays small."""
    await put(client, {**activity["spec"], "enabled": False})


async def test_case_e03_after_edits_each_time_runs_once_and_by_the_last_revision(
    client: httpx.AsyncClient, running_service: RunningService
) -> None:
    """n8n-io/n8n issues 30607 and 23046."""
    document = quick()
    activity = await create(client, document)
    await started(client, activity, 1)
    for n in range(5):
        document = {**document, "name": f"edit {n}"}
        assert (await put(client, document)).status_code == 200
    for enabled in (False, True):
        assert (await put(client, {**document, "enabled": enabled})).status_code == 200
    edited = datetime.now(UTC)

    async def three() -> list[Json] | None:
        rows = await rows_of(client, activity, outcome="started", **{"from": edited.isoformat()})
        return rows if len(rows) >= 3 else None

    rows = await eventually(three, what="three times after the edits")
    assert {row["revision"] for row in rows} == {8}
    times = [datetime.fromisoformat(row["scheduled_for"]) for row in rows]
    assert {after - before for before, after in pairwise(times)} == {timedelta(seconds=2)}
    runs = await items(client, f"/v1/activities/{activity['id']}/runs")
    assert len({run["scheduled_for"] for run in runs}) == len(runs)
    await done_with(client, activity)
    assert await broken(running_service.database_url) == {}


async def test_case_e06_what_is_gone_from_temporal_can_still_be_read_and_deleted(
    client: httpx.AsyncClient, temporal_client: Client
) -> None:
    """scaleapi/scale-agentex pull request 335."""
    activity = await create(client, quick(trigger={**QUICK, "every_seconds": 3600}))
    path = f"/v1/activities/{activity['id']}"

    async def synced() -> bool:
        return bool((await client.get(path)).json()["schedule"]["sync"] == "in_sync")

    await eventually(synced, what="the schedule is there")
    await temporal_client.get_schedule_handle(f"activity-{activity['id']}").delete()
    statuses = [(await client.get(path)).status_code]
    statuses += [(await client.delete(path)).status_code for _ in range(2)]
    assert statuses == [200, 204, 410]
    listed = await items(client, "/v1/activities")
    assert activity["id"] not in {item["id"] for item in listed}


async def test_case_e09_of_edits_at_once_one_is_taken_and_the_others_are_told(client: httpx.AsyncClient) -> None:
    """temporalio/sdk-python pull request 1823."""
    document = quick(trigger={"type": "cron", "cron": "0 9 * * *", "timezone": "UTC"})
    activity = await create(client, document)
    changes: list[Json] = [
        {"trigger": {**document["trigger"], "cron": "0 7 * * *"}},
        {"trigger": {**document["trigger"], "timezone": "Asia/Tokyo"}},
        {"enabled": False},
    ]
    for _ in range(20):
        read = await client.get(f"/v1/activities/{activity['id']}")
        now, etag = read.json()["spec"], read.headers["etag"]
        answers = await asyncio.gather(
            *(put(client, {**now, **change, "description": unique("d")}, **{"If-Match": etag}) for change in changes)
        )
        assert sorted(answer.status_code for answer in answers) == [200, 412, 412]
        taken = next(answer.json() for answer in answers if answer.status_code == 200)
        assert (await client.get(f"/v1/activities/{activity['id']}")).json()["spec"] == taken["spec"]

    async def settled() -> bool:
        state = (await client.get(f"/v1/activities/{activity['id']}")).json()["schedule"]
        return state["sync"] in ("in_sync", "none")

    await eventually(settled, what="the schedule follows")


async def test_a_pause_holds_times_and_resume_runs_them_as_one(
    client: httpx.AsyncClient, running_service: RunningService
) -> None:
    activity = await create(client, quick(trigger={**QUICK, "misfire_grace_seconds": 1}))
    await started(client, activity, 1)
    path = f"/v1/activities/{activity['slug']}"
    paused = (await client.post(f"{path}/pause", json={"note": "moving"})).json()
    assert (paused["state"]["paused"], paused["state"]["note"]) == (True, "moving")
    assert (await client.get(f"{path}/next")).json()["paused"]

    async def held() -> list[Json] | None:
        rows = await rows_of(client, activity, reason_code="paused")
        return rows if len(rows) >= 4 else None

    waiting = await eventually(held, what="four times wait")
    assert {row["outcome"] for row in waiting} == {"waiting"}
    assert (await client.post(f"{path}/trigger")).status_code == 202, "a request runs while paused"
    await ended_runs_of_requests(client, activity, 1)
    resumed = (await client.post(f"{path}/resume")).json()
    assert resumed["times"] >= 4 and resumed["events"] == 0
    assert not resumed["activity"]["state"]["paused"]

    async def covered() -> Json | None:
        runs = await items(client, f"{path}/runs")
        return next((run for run in runs if run["covers"] and run["covers"]["count"] >= 3), None)

    run = await eventually(covered, what="one run for what waited")
    merged = await rows_of(client, activity, merged_into=run["occurrence_id"])
    assert len(merged) == run["covers"]["count"] - 1
    assert (run["window"]["end"], run["covers"]["last"]) == (run["scheduled_for"], run["scheduled_for"])
    assert (await client.post(f"{path}/resume")).json()["times"] == 0, "it is not paused any more"
    await done_with(client, activity)
    assert await broken(running_service.database_url) == {}


async def ended_runs_of_requests(client: httpx.AsyncClient, activity: Json, count: int) -> list[Json]:
    async def ended() -> list[Json] | None:
        runs = await items(client, f"/v1/activities/{activity['id']}/runs")
        asked = [run for run in runs if run["triggered_by"] in ("manual", "rerun") and run["status"] != "running"]
        return asked if len(asked) >= count else None

    return list(await eventually(ended, what=f"{count} requests of {activity['slug']} have run"))


async def test_a_freeze_holds_what_its_selector_matches_until_it_is_ended(client: httpx.AsyncClient) -> None:
    team = unique("team")
    frozen, free = [await create(client, quick(labels={"team": name})) for name in (team, "other")]
    created = await client.post("/v1/freezes", json={"selector": f"team={team}", "note": "audit"})
    freeze = created.json()
    assert (created.status_code, freeze["active"], freeze["matches"], freeze["selector"]) == (
        201,
        True,
        1,
        f"team={team}",
    )
    assert created.headers["location"] == f"/v1/freezes/{freeze['id']}"
    before = len(await rows_of(client, frozen, outcome="started"))
    await started(client, free, 2)

    async def held() -> bool:
        return bool(await rows_of(client, frozen, reason_code="frozen"))

    await eventually(held, what="a time waits")
    assert len(await rows_of(client, frozen, outcome="started")) <= before + 1, "one may just have started"
    state = (await client.get(f"/v1/activities/{frozen['slug']}")).json()["state"]
    assert (state["paused"], state["freezes"]) == (False, [freeze["id"]])
    assert freeze["id"] in {item["id"] for item in await items(client, "/v1/freezes")}
    ended = (await client.delete(f"/v1/freezes/{freeze['id']}")).json()
    assert not ended["active"] and ended["ended_at"]
    assert (await client.get(f"/v1/freezes/{freeze['id']}")).json() == ended
    await started(client, frozen, before + 2)
    for activity in (frozen, free):
        await done_with(client, activity)
    assert (await client.get("/v1/freezes/8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11")).status_code == 404
    refused = await client.post("/v1/freezes", json={"selector": "", "until": "yesterday", "event": "run"})
    assert {fault["pointer"] for fault in refused.json()["errors"]} == {"/until", "/event"}


async def test_selectors_find_activities_and_their_occurrences(client: httpx.AsyncClient) -> None:
    team = unique("team")
    made = [
        await create(client, {"slug": unique("m"), "trigger": {"type": "manual"}, "labels": labels})
        for labels in ({"team": team}, {"team": team, "env": "dev"}, {"team": "other"})
    ]
    for activity in made:
        await client.post(f"/v1/activities/{activity['id']}/trigger")
    for selector, expected in (
        (f"team={team}", made[:2]),
        (f"team={team},env!=dev", made[:1]),
        (f"team={team},env", made[1:2]),
        (f"team={team},!env", made[:1]),
    ):
        listed = await items(client, "/v1/activities", selector=selector)
        assert {item["id"] for item in listed} == {activity["id"] for activity in expected}, selector
        rows = await items(client, "/v1/occurrences", selector=selector)
        assert {row["activity_id"] for row in rows} == {activity["id"] for activity in expected}, selector
    refused = await client.get("/v1/activities", params={"selector": "team in (a)"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/query/selector")


async def test_a_request_waits_for_the_open_run_and_a_run_is_run_again(client: httpx.AsyncClient) -> None:
    taken: set[str] = set()

    def script(request: Request, before: int) -> Answer:
        """Nothing is taken before the test says so."""
        run_id = request.headers["activity-core-run-id"]
        return Answer() if run_id in taken else Answer(503, headers={"Retry-After": "1"})

    async with consumer(script) as target:
        slug = unique("target")
        await client.post("/v1/consumers", json={"slug": slug, "type": "http", "url": target.url})
        task = {"task_type": "sign", "consumer": slug, "params": {"end": "${ window.end }"}}
        trigger = {"type": "interval", "every_seconds": 86_400}
        activity = await create(client, {"slug": unique("asked"), "trigger": trigger, "tasks": [task]})
        path = f"/v1/activities/{activity['id']}"
        first = (await client.post(f"{path}/trigger")).json()

        async def is_open(run_id: str) -> bool:
            return (await client.get(f"/v1/runs/{run_id}")).status_code == 200

        await eventually(lambda: is_open(first["run_id"]), what="the first run is open")
        assert (await client.post(f"{path}/trigger")).json()["code"] == "run_open"
        second = (await client.post(f"{path}/trigger", json={"on_overlap": "wait"})).json()
        why = (await client.get(f"/v1/occurrences/{second['occurrence_id']}")).json()
        assert (why["outcome"], await is_open(second["run_id"])) == ("waiting", False)
        taken |= {first["run_id"], second["run_id"]}
        await ended_runs(client, activity, 2, within=60)
        original = (await client.get(f"/v1/runs/{second['run_id']}")).json()
        asked = await client.post(f"/v1/runs/{second['run_id']}/rerun", json={"revision": "original"})
        assert asked.status_code == 202
        taken.add(asked.json()["run_id"])
        await ended_runs(client, activity, 3)
        rerun = (await client.get(f"/v1/runs/{asked.json()['run_id']}")).json()
        assert (rerun["triggered_by"], rerun["window"]) == ("rerun", original["window"])
        row = (await client.get(f"/v1/occurrences/{rerun['occurrence_id']}")).json()
        assert row["rerun_of"] == second["run_id"]
        ends = {request.key: request.json["data"]["end"] for request in target.requests}
        assert len(ends) == 3, "a rerun's tasks have keys of their own"
        assert len(set(ends.values())) == 2, "and the window of the original"
    assert (await client.post("/v1/runs/8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11/rerun")).status_code == 404


async def test_r5_a_single_instant_and_a_jittered_interval(client: httpx.AsyncClient) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    once = await create(
        client, {"slug": unique("once"), "trigger": {"type": "once", "at": at.isoformat()}, "tasks": LOG}
    )
    jittered = await create(client, quick(trigger={**QUICK, "every_seconds": 4, "jitter_seconds": 3}))
    (run,) = await ended_runs(client, once, 1)
    assert run["scheduled_for"] == at.isoformat()
    assert run["window"] == {"start": None, "end": at.isoformat()}
    await started(client, jittered, 3)
    for run in await items(client, f"/v1/activities/{jittered['id']}/runs"):
        row = (await client.get(f"/v1/occurrences/{run['occurrence_id']}")).json()
        nominal, due, began = [
            datetime.fromisoformat(text) for text in (row["scheduled_for"], row["due_at"], run["started_at"])
        ]
        assert nominal.timestamp() % 4 == 0
        assert timedelta(0) <= due - nominal <= timedelta(seconds=3)
        assert timedelta(0) <= began - due < timedelta(seconds=3), "it neither starts early nor waits for the poller"
    await done_with(client, jittered)
