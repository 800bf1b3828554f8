"""What the tests of the spine share: definitions, and reading what became of them."""

from typing import Any
from uuid import uuid4

import asyncpg
import httpx

from tests.stack import eventually

Json = dict[str, Any]


def unique(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


def event_activity(event_type: str, *, consumer: str = "log", **more: Any) -> Json:
    """An activity with one task for each event of a type."""
    trigger: Json = {"type": "event", "event_types": [event_type]}
    if "filter" in more:
        trigger["filter"] = more.pop("filter")
    task = {"task_type": "note", "consumer": consumer, "params": {"n": "${ event.data.n }"}}
    return {"slug": unique("events"), "trigger": trigger, "tasks": [task], **more}


async def create(client: httpx.AsyncClient, document: Json) -> Json:
    response = await client.post("/v1/activities", json=document)
    assert response.status_code == 201, response.text
    created: Json = response.json()
    return created


async def send(client: httpx.AsyncClient, event_type: str, event_id: str, n: int = 0) -> httpx.Response:
    return await client.post("/v1/events", json={"event_id": event_id, "type": event_type, "data": {"n": n}})


async def items(client: httpx.AsyncClient, path: str, **params: Any) -> list[Json]:
    """Every item of a list, page by page."""
    found: list[Json] = []
    cursor: str | None = None
    while True:
        response = await client.get(path, params={**params, "limit": 500, **({"cursor": cursor} if cursor else {})})
        assert response.status_code == 200, response.text
        page = response.json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def ended_runs(client: httpx.AsyncClient, activity: Json, count: int, *, within: float = 30) -> list[Json]:
    """The activity's runs, once there are `count` and all have ended."""

    async def all_ended() -> list[Json]:
        runs = await items(client, f"/v1/activities/{activity['id']}/runs")
        assert len(runs) == count, [run["workflow_id"] for run in runs]
        assert all(run["status"] != "running" for run in runs), runs
        return runs

    return list(await eventually(all_ended, within=within, what=f"{count} runs of {activity['slug']} have ended"))


async def outcome(client: httpx.AsyncClient, activity: Json, event_id: str) -> Json:
    """The ledger row of an event, once it is decided."""

    async def decided() -> Json | None:
        rows = await items(client, f"/v1/activities/{activity['id']}/occurrences")
        return next((row for row in rows if row["event_id"] == event_id and row["outcome"] != "waiting"), None)

    row: Json = await eventually(decided, what=f"{event_id} is decided")
    return row


async def fetch(database_url: str, query: str, *arguments: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(database_url)
    try:
        return list(await connection.fetch(query, *arguments))
    finally:
        await connection.close()
