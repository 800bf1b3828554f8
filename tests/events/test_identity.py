"""The same event many times at once over two API processes; the same id from two sources; one of two starts that fails."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest
from temporalio.client import Client

from activity_core.dev.ports import LOOPBACK
from tests.checker import broken
from tests.domain.webhooks.support import hex_mac
from tests.spine.proxy import wire
from tests.spine.support import Json, create, ended_runs, event_activity, items, unique
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service

KEY = base64.b64encode(bytes(range(32))).decode()
SECRET = "a secret of two"


@pytest.fixture(scope="module")
async def service(servers: Servers) -> AsyncIterator[RunningService]:
    url = await servers.migrated_database()
    running = await start_service(settings_for(servers, url, ENCRYPTION_KEYS=KEY))
    try:
        yield running
    finally:
        await stop_service(running)


@pytest.fixture(scope="module")
async def doors(service: RunningService) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients of two API processes."""
    second = await service.processes.start("api")
    async with httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{second.port}", trust_env=False, timeout=30) as other:
        yield [service.client, other]


async def make_source(client: httpx.AsyncClient, event_type: str) -> str:
    slug = unique("hub")
    document: Json = {"slug": slug, "scheme": "github", "secrets": [SECRET], "type": {"constant": event_type}}
    answer = await client.put(f"/v1/sources/{slug}", json=document)
    assert answer.status_code == 201, answer.text
    return slug


async def deliver(client: httpx.AsyncClient, slug: str, delivery: str) -> httpx.Response:
    body = json.dumps({"n": 1}).encode()
    headers = {
        "X-Hub-Signature-256": f"sha256={hex_mac(SECRET, body)}",
        "X-GitHub-Delivery": delivery,
        "Content-Type": "application/json",
    }
    return await client.post(f"/v1/webhooks/{slug}", content=body, headers=headers)


@pytest.mark.parametrize("door", ["native", "webhook"])
async def test_r6_i2_a_hundred_identical_deliveries_over_two_processes_are_one_event_and_one_run(
    service: RunningService, doors: list[httpx.AsyncClient], door: str
) -> None:
    event_type = f"same.t{uuid4().hex[:8]}"
    activity = await create(service.client, event_activity(event_type))
    slug = await make_source(service.client, event_type)

    async def once(number: int) -> httpx.Response:
        client = doors[number % 2]
        if door == "webhook":
            return await deliver(client, slug, "d-1")
        event = {"event_id": event_type, "type": event_type, "data": {"n": 1}}
        return await client.post("/v1/events", json=event)

    answers = await asyncio.gather(*(once(number) for number in range(100)))
    assert sorted(answer.status_code for answer in answers) == [200] * 99 + [202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    await ended_runs(service.client, activity, 1)
    if door == "webhook":
        kept = await items(service.client, f"/v1/sources/{slug}/requests")
        assert sorted(receipt["result"] for receipt in kept) == ["accepted"] + ["duplicate"] * 99


async def test_r27_two_sources_that_send_the_same_id_are_two_events_and_two_runs(service: RunningService) -> None:
    event_type = f"one.t{uuid4().hex[:8]}"
    activity = await create(service.client, event_activity(event_type))
    sources = [await make_source(service.client, event_type) for _ in range(2)]
    answers = [await deliver(service.client, slug, "1") for slug in sources]
    assert [answer.status_code for answer in answers] == [202, 202]
    runs = await ended_runs(service.client, activity, 2)
    assert {run["event_id"] for run in runs} == {f"{slug}:1" for slug in sources}


@pytest.mark.fault
async def test_r26_when_temporal_refuses_the_second_of_two_starts_both_run_once_in_the_end(servers: Servers) -> None:
    """Whoever tries to start the second's run loses the connection, again and again, until that is over."""
    url = await servers.migrated_database()
    event_type = f"two.t{uuid4().hex[:8]}"
    async with wire(servers.temporal.address) as to_temporal:
        running = await start_service(settings_for(servers, url) | {"TEMPORAL_ADDRESS": to_temporal.url})
        try:
            first, second = [await create(running.client, event_activity(event_type)) for _ in range(2)]
            to_temporal.refuse(f"activity-{second['id']}:{event_type}")
            event = {"event_id": event_type, "type": event_type, "data": {"n": 1}}
            assert (await running.client.post("/v1/events", json=event)).status_code == 202
            await ended_runs(running.client, first, 1, within=60)
            await eventually(lambda: to_temporal.cuts >= 2, within=60, what="the second start was refused twice")
            (row,) = await items(running.client, "/v1/occurrences", activity=second["id"])
            assert row["outcome"] == "waiting"
            to_temporal.relent()
            (run,) = await ended_runs(running.client, second, 1, within=90)
            assert (run["event_id"], run["status"]) == (event_type, "completed")
            await ended_runs(running.client, first, 1)
            assert await broken(url) == {}
        finally:
            await stop_service(running)


@pytest.mark.fault
async def test_r26_a_start_whose_workflow_was_terminated_before_it_began_is_a_run_to_be_run_again(
    service: RunningService, temporal_client: Client
) -> None:
    """The second activity's workflow ID is taken by a workflow that ended without a run, as after a botched repair."""
    event_type = f"two.t{uuid4().hex[:8]}"
    first = await create(service.client, event_activity(event_type))
    second = await create(service.client, event_activity(event_type))
    handle = await temporal_client.start_workflow(
        "RunActivityWorkflow", id=f"activity-{second['id']}:{event_type}", task_queue="nobody-works-here"
    )
    event = {"event_id": event_type, "type": event_type, "data": {"n": 1}}
    assert (await service.client.post("/v1/events", json=event)).status_code == 202
    await ended_runs(service.client, first, 1)
    rows = await items(service.client, "/v1/occurrences", activity=second["id"])
    assert [row["outcome"] for row in rows] == ["waiting"]
    await handle.terminate("for the test")
    (run,) = await ended_runs(service.client, second, 1, within=60)
    assert (run["event_id"], run["status"]) == (event_type, "terminated")
    rerun = await service.client.post(f"/v1/runs/{run['run_id']}/rerun", json={})
    assert rerun.status_code == 202, rerun.text
    await ended_runs(service.client, second, 2)

    async def whole() -> bool:
        return await broken(service.database_url) == {}

    await eventually(whole)
