"""R24, R25: 2xx is committed, anything else may be sent again, and an id once given stays."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest

from activity_core.dev.ports import LOOPBACK
from tests.checker import broken, quiescent
from tests.spine.proxy import When, Wire, wire
from tests.spine.support import Json, create, ended_runs, event_activity, fetch, send
from tests.stack import Process, Processes, Servers, eventually, settings_for

pytestmark = pytest.mark.fault


@dataclass
class Cable:
    """A service whose API alone reaches Postgres over a wire that can be cut. Router and worker are not in the way."""

    wire: Wire
    processes: Processes
    api: Process
    client: httpx.AsyncClient
    database_url: str
    activity: Json

    async def stored(self, event_id: str) -> bool:
        return bool(await fetch(self.database_url, "SELECT 1 FROM events WHERE event_id = $1", event_id))

    async def restart_api(self) -> None:
        await self.api.sigkill()
        await self.client.aclose()
        self.api = await self.processes.start("api", DATABASE_URL=self.wire.url, API_PORT=str(self.api.port))
        self.client = _client(self.api)


def _client(api: Process) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{api.port}", trust_env=False, timeout=30)


@pytest.fixture(scope="module")
async def cable(servers: Servers) -> AsyncIterator[Cable]:
    url = await servers.migrated_database()
    processes = Processes(settings_for(servers, url))
    async with wire(url) as cut:
        try:
            api, _, _ = await asyncio.gather(
                processes.start("api", DATABASE_URL=cut.url), processes.start("router"), processes.start("worker")
            )
            client = _client(api)
            made = Cable(cut, processes, api, client, url, await create(client, event_activity("wire.paid")))
            yield made
            await made.client.aclose()
        finally:
            await processes.stop()


async def test_r25_without_postgres_every_answer_is_503_and_what_is_sent_again_is_taken(cable: Cable) -> None:
    await cable.wire.disconnect()
    definition = event_activity("wire.other")
    ref = f"/v1/activities/{cable.activity['slug']}"
    answers = await asyncio.gather(
        *(send(cable.client, "wire.paid", f"away-{n}") for n in range(20)),
        cable.client.post("/v1/activities", json=definition),
        cable.client.put(ref, json=event_activity("wire.paid") | {"slug": cable.activity["slug"]}),
        cable.client.post(f"{ref}/trigger", json={}),
        cable.client.post("/v1/tasks/00000000-0000-4000-8000-000000000000/complete", json={}),
        *(cable.client.get(path) for path in ("/v1/activities", ref, "/v1/runs", "/v1/occurrences", "/v1/tasks")),
        *(cable.client.get(path) for path in ("/v1/events", f"{ref}/why", "/v1/consumers")),
    )
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "unavailable")}
    assert all(answer.headers["retry-after"] for answer in answers)
    assert (await cable.client.get("/healthz")).status_code == 200
    assert (await cable.client.get("/readyz")).status_code == 503
    await cable.wire.connect()

    async def taken() -> set[int]:
        sent = await asyncio.gather(*(send(cable.client, "wire.paid", f"away-{n}") for n in range(20)))
        codes = {answer.status_code for answer in sent}
        return codes if codes <= {200, 202} else set()

    await eventually(taken, what="Postgres is back")
    await create(cable.client, definition)


async def test_r25_i3_a_commit_whose_answer_is_lost_is_503_and_then_a_duplicate(cable: Cable) -> None:
    cable.wire.arm("after-1", "after")
    assert (await send(cable.client, "wire.paid", "after-1")).status_code == 503
    assert await cable.stored("after-1")
    again = await send(cable.client, "wire.paid", "after-1")
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")


async def test_r25_i3_a_statement_that_never_arrived_is_503_and_then_accepted(cable: Cable) -> None:
    cable.wire.arm("before-1", "before")
    assert (await send(cable.client, "wire.paid", "before-1")).status_code == 503
    assert not await cable.stored("before-1")
    again = await send(cable.client, "wire.paid", "before-1")
    assert (again.status_code, again.json()["status"]) == (202, "accepted")


async def test_r25_i3_commands_with_a_key_converge_when_the_commit_is_lost(cable: Cable) -> None:
    """The commit of a transaction is a statement of its own: cut there, on both sides of it."""
    path, key = f"/v1/activities/{cable.activity['slug']}/trigger", {"Idempotency-Key": "lost-trigger"}
    body: Json = {"params": {}}
    moments: tuple[When, When] = ("before", "after")
    for when in moments:
        cable.wire.arm("COMMIT", when)
        cuts = cable.wire.cuts
        answer = await cable.client.post(path, json=body, headers=key)
        assert cable.wire.cuts == cuts + 1
        assert answer.status_code == 503, answer.text
        known = await fetch(cable.database_url, "SELECT 1 FROM occurrences WHERE key = 'manual:lost-trigger'")
        assert len(known) == (when == "after")
    answers = [await cable.client.post(path, json=body, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    cable.wire.arm("COMMIT", "after")
    definition, once = event_activity("wire.twice"), {"Idempotency-Key": "lost-create"}
    assert (await cable.client.post("/v1/activities", json=definition, headers=once)).status_code == 503
    created = await cable.client.post("/v1/activities", json=definition, headers=once)
    assert created.status_code == 201, created.text


async def test_r23_r24_an_id_once_given_survives_the_kill_of_the_api(cable: Cable) -> None:
    event, key = {"type": "wire.paid", "data": {"n": 1}}, {"Idempotency-Key": "order 17 of Ada"}
    given = (await cable.client.post("/v1/events", json=event, headers=key)).json()
    fresh = (await cable.client.post("/v1/events", json=event)).json()
    assert given["status"] == fresh["status"] == "accepted"
    assert given["event_id"] != fresh["event_id"]
    await cable.restart_api()
    again = await cable.client.post("/v1/events", json=event, headers=key)
    assert (again.status_code, again.json()) == (200, {**given, "status": "duplicate"})
    # killed after the commit and before the answer
    lost = {"Idempotency-Key": "order-18"}
    cable.wire.arm("order-18", "after")
    assert (await cable.client.post("/v1/events", json=event, headers=lost)).status_code == 503
    await cable.restart_api()
    again = await cable.client.post("/v1/events", json=event, headers=lost)
    assert (again.status_code, again.json()["event_id"]) == (200, "order-18")
    # what was given to the sender may be sent back as the event's own id
    echoed = await cable.client.post("/v1/events", json={**event, "event_id": fresh["event_id"]})
    assert (echoed.status_code, echoed.json()["id"]) == (200, fresh["id"])


async def test_i1_all_that_was_accepted_ran_once(cable: Cable) -> None:
    runs = await ended_runs(cable.client, cable.activity, 20 + 2 + 1 + 3)
    assert len({run["workflow_id"] for run in runs}) == len(runs)
    await eventually(lambda: quiescent(cable.database_url))
    assert await broken(cable.database_url) == {}
