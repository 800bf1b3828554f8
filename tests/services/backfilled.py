"""What the tests of backfills share: ask, look, and let the loops of a worker run."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from temporalio.client import Client

from activity_core.services.backfilling import Asked, Backfill, Backfilling, BackfillView
from tests.checker import broken, strangers
from tests.services.conftest import Bench
from tests.stack import eventually

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
PAST = datetime(2025, 6, 2, tzinfo=UTC)
Json = dict[str, Any]


def backfilling(bench: Bench) -> Backfilling:
    return Backfilling(bench.database, bench.definitions)


async def ask(
    bench: Bench,
    activity: uuid.UUID,
    start: datetime,
    end: datetime,
    *,
    note: str | None = None,
    dry_run: bool = False,
    key: str | None = None,
) -> Backfill:
    return await backfilling(bench).backfill(str(activity), Asked(start, end, note, dry_run), idempotency_key=key)


async def begun(bench: Bench, activity: uuid.UUID, start: datetime, end: datetime) -> uuid.UUID:
    made = await ask(bench, activity, start, end)
    assert made.id is not None
    return made.id


def shown(made: Backfill) -> tuple[int, int, int]:
    """(reopen, add, leave)"""
    return made.counts["reopen"], made.counts["add"], made.counts["leave"]


def hourly(**rules: Any) -> Json:
    """Over, so that no hour that passes during a test is a time of it."""
    return {"type": "cron", "cron": "0 * * * *", "timezone": "UTC", "end_at": "2026-01-01T00:00:00Z", **rules}


# Due on the 29th of February: what was owed before is all there is.
RARE = {"type": "cron", "cron": "0 4 29 2 *", "timezone": "UTC", "misfire_policy": "skip", "misfire_grace_seconds": 1}


async def on_hours(bench: Bench, *, consumer: str | None = None, **rules: Any) -> uuid.UUID:
    """An hourly activity made just now, so that all of the past was never due."""
    tasks = [] if consumer is None else [{"task_type": "note", "consumer": consumer}]
    return await bench.create(trigger=hourly(**rules), tasks=tasks)


async def skipped_minutes(bench: Bench, due: int, **more: Any) -> tuple[uuid.UUID, list[datetime]]:
    """An activity that was minutely, and whose last minutes were skipped as late: (its id, those minutes)."""
    activity, minutes = await bench.every_minute(due=due, grace_seconds=1, **more)
    await bench.settle(activity)
    await bench.replace(activity, trigger=RARE)

    async def all_skipped() -> bool:
        await bench.settle(activity)
        return set(await bench.outcomes(activity)) == {("skipped", "late")}

    await eventually(all_skipped)
    return activity, minutes[:due]


@contextlib.asynccontextmanager
async def polling(bench: Bench) -> AsyncIterator[None]:
    """The worker's loops that look for heads and fire them."""

    async def poll() -> None:
        while True:
            await bench.parts.poller.settle_overdue()
            await bench.parts.poller.fire_heads()
            await asyncio.sleep(0.05)

    loop = asyncio.create_task(poll())
    try:
        yield
    finally:
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loop


async def runs_of(bench: Bench, activity: uuid.UUID) -> Sequence[asyncpg.Record]:
    """In the order in which they started."""
    return await bench.sql(
        "SELECT r.*, e.finished_at FROM activity_runs r LEFT JOIN activity_run_ends e USING (run_id) "
        "WHERE r.activity_id = $1 ORDER BY r.started_at",
        activity,
    )


async def until_ended(bench: Bench, activity: uuid.UUID, count: int, within: float = 30.0) -> None:
    async def all_ended() -> bool:
        return [status for status, _ in await bench.ends(activity)] == ["completed"] * count

    await eventually(all_ended, within=within, what=f"{count} runs have completed")


async def nothing_broken(bench: Bench, client: Client) -> None:
    assert await broken(bench.database.dsn) == {}
    assert await strangers(client, bench.settings.task_queue, bench.database.dsn) == []


async def view(bench: Bench, backfill: uuid.UUID) -> dict[str, int]:
    return dict((await backfilling(bench).get(backfill)).counts)


async def cancelled(bench: Bench, backfill: uuid.UUID) -> BackfillView:
    return await backfilling(bench).cancel(backfill)
