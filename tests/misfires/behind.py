"""Ledgers that are behind by as many times as a test likes: what a long outage leaves, without waiting for one."""

from datetime import datetime, timedelta
from typing import Any

import asyncpg
import httpx

from tests.misfires.support import now
from tests.spine.support import Json, create, unique

GRACE = timedelta(seconds=60)


async def behind(
    client: httpx.AsyncClient,
    database_url: str,
    count: int,
    *,
    every: timedelta,
    newest_age: timedelta,
    consumer: str = "log",
    **trigger: Any,
) -> tuple[Json, list[datetime]]:
    """An activity to which `count` times are owed: (the activity, these times). The newest was due `newest_age` ago."""
    newest = now().replace(microsecond=0) - newest_age
    document = {
        "slug": unique("behind"),
        "trigger": {
            "type": "interval",
            "every_seconds": int(every.total_seconds()),
            "anchor": newest.isoformat(),
            "misfire_grace_seconds": int(GRACE.total_seconds()),
            **trigger,
        },
        "tasks": [{"task_type": "note", "consumer": consumer, "params": {"at": "${ scheduled_for }"}}],
    }
    activity = await create(client, document)
    due = [newest - n * every for n in reversed(range(count))]
    connection = await asyncpg.connect(database_url)
    try:
        # as it stood when the last settle before the outage had written it
        await connection.execute(
            "UPDATE trigger_state SET settled_through = $2, next_due_at = $3 WHERE activity_id = $1",
            activity["id"],
            due[0] - timedelta(seconds=1),
            due[0],
        )
    finally:
        await connection.close()
    return activity, due
