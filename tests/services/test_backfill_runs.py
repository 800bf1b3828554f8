"""Backfilled times that run: once each, in order, bounded, on a real Temporal."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from temporalio.client import Client

from activity_core.domain import ids
from activity_core.domain.backfill import BEFORE_CREATION, WHILE_DISABLED
from activity_core.workflows.contracts import RUN_WORKFLOW, RunInput
from tests.checker import broken
from tests.consumer import Answer, Request, consumer
from tests.services.backfilled import (
    MINUTE,
    PAST,
    ask,
    begun,
    cancelled,
    hourly,
    nothing_broken,
    on_hours,
    polling,
    runs_of,
    shown,
    skipped_minutes,
    until_ended,
    view,
)
from tests.services.conftest import Bench, working
from tests.stack import eventually


async def test_r16_backfilled_times_run_once_each_oldest_first_one_at_a_time(
    bench: Bench, temporal_client: Client
) -> None:
    activity, minutes = await skipped_minutes(bench, 4, tasks=[{"task_type": "note", "consumer": "log"}])
    start = minutes[0] - 3 * MINUTE
    async with working(bench), polling(bench):
        backfill = await begun(bench, activity, start, minutes[3])
        await until_ended(bench, activity, 6)
        runs = await runs_of(bench, activity)
        assert [run["scheduled_for"] for run in runs] == [start + n * MINUTE for n in range(6)]
        assert [(run["window_start"], run["window_end"]) for run in runs] == [
            (run["scheduled_for"] - MINUTE, run["scheduled_for"]) for run in runs
        ]
        assert {run["triggered_by"] for run in runs} == {"backfill"}
        assert all(earlier["finished_at"] <= later["started_at"] for earlier, later in pairwise(runs))
        rows = [row for row in await bench.ledger(activity) if row["backfill_id"] == backfill]
        assert [(row["outcome"], row["reason_code"]) for row in rows] == [("started", "backfill")] * 6
        assert await view(bench, backfill) == {"started": 6}

        again = await ask(bench, activity, start, minutes[3])
        assert (again.id, shown(again)) == (None, (0, 0, 6)), "a second backfill of what ran adds nothing"
        assert dict((await cancelled(bench, backfill)).counts) == {"started": 6}
        assert len(await runs_of(bench, activity)) == 6
    await nothing_broken(bench, temporal_client)


async def test_r16_many_backfills_at_once_while_they_run_start_each_time_once(
    bench: Bench, temporal_client: Client
) -> None:
    activity = await on_hours(bench)
    async with working(bench), polling(bench):
        ends = [PAST + timedelta(hours=n) for n in (3, 6, 9, 12)]
        made = await asyncio.gather(*(ask(bench, activity, PAST, end) for end in ends for _ in range(3)))
        assert sum(one.counts["add"] for one in made) == 12
        await until_ended(bench, activity, 12)
        await asyncio.gather(*(ask(bench, activity, PAST, end) for end in ends))
    runs = await runs_of(bench, activity)
    assert [run["scheduled_for"] for run in runs] == sorted({run["scheduled_for"] for run in runs})
    assert len(runs) == 12
    await nothing_broken(bench, temporal_client)


class Door:
    """A consumer takes as many tasks as it was let; others are sent again each second, and their runs stay open."""

    def __init__(self) -> None:
        self.room = 0
        self.taken: set[str] = set()

    def answer(self, request: Request, before: int) -> Answer:
        if request.key not in self.taken and len(self.taken) >= self.room:
            return Answer(503)
        self.taken.add(request.key)
        return Answer()


@contextlib.asynccontextmanager
async def behind_a_door(bench: Bench, hours: int, **rules: Any) -> AsyncIterator[tuple[uuid.UUID, uuid.UUID, Door]]:
    """(activity, backfill, door) of an hourly activity whose runs end as the door lets them; all loops run."""
    door, slug = Door(), f"door-{uuid.uuid4().hex[:8]}"
    async with consumer(door.answer) as target, working(bench), polling(bench):
        await bench.consumers.create({"slug": slug, "type": "http", "url": target.url})
        task = {"task_type": "note", "consumer": slug, "retry": {"backoff_coefficient": 1}}
        activity = await bench.create(trigger=hourly(**rules), tasks=[task])
        backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=hours))
        try:
            yield activity, backfill, door
        finally:
            door.room = 1_000


async def looked(bench: Bench, activity: uuid.UUID) -> None:
    """The poller has settled this activity once more."""
    await bench.sql("UPDATE trigger_state SET next_due_at = '-infinity' WHERE activity_id = $1", activity)

    async def has_looked() -> bool:
        query = "SELECT next_due_at IS DISTINCT FROM '-infinity' FROM trigger_state WHERE activity_id = $1"
        return bool((await bench.sql(query, activity))[0][0])

    await eventually(has_looked)


async def until(bench: Bench, backfill: uuid.UUID, **counts: int) -> None:
    async def reached() -> bool:
        return await view(bench, backfill) == counts

    await eventually(reached, what=f"its times are {counts}")


async def test_with_allow_all_ten_of_them_are_open_and_never_more(bench: Bench, temporal_client: Client) -> None:
    async with behind_a_door(bench, 14, overlap_policy="allow_all") as (activity, backfill, door):
        await until(bench, backfill, started=10, waiting=4)
        assert {run["scheduled_for"] for run in await runs_of(bench, activity)} == {
            PAST + timedelta(hours=n) for n in range(10)
        }
        for _ in range(3):
            await looked(bench, activity)
        assert await view(bench, backfill) == {"started": 10, "waiting": 4}
        door.room = 3
        await until(bench, backfill, started=13, waiting=1)
        await looked(bench, activity)
        assert await view(bench, backfill) == {"started": 13, "waiting": 1}
        door.room = 1_000
        await until_ended(bench, activity, 14)
        runs = await runs_of(bench, activity)
    for run in runs:
        others = [r for r in runs if r["started_at"] <= run["started_at"] < r["finished_at"]]
        assert len(others) <= 10
    await nothing_broken(bench, temporal_client)


async def test_cancelled_in_the_middle_what_runs_finishes_and_nothing_more_starts(
    bench: Bench, temporal_client: Client
) -> None:
    async with behind_a_door(bench, 5) as (activity, backfill, door):
        door.room = 1
        await until(bench, backfill, started=2, waiting=3)
        made = await cancelled(bench, backfill)
        assert dict(made.counts) == {"started": 2, "cancelled": 3}
        assert await bench.ends(activity) == [("completed", None), ("running", None)]
        door.room = 1_000
        await until_ended(bench, activity, 2)
        await looked(bench, activity)
        told = [(row["outcome"], row["reason_code"]) for row in await bench.ledger(activity)]
        assert told == [("started", "backfill")] * 2 + [("skipped", "backfill_cancelled")] * 3

        again = await begun(bench, activity, PAST, PAST + timedelta(hours=5))
        await until_ended(bench, activity, 5)
        assert (await view(bench, again), await view(bench, backfill)) == (
            {"started": 3},
            {"started": 2, "cancelled": 3},
        )
        runs = await runs_of(bench, activity)
        assert [run["scheduled_for"] for run in runs] == [PAST + timedelta(hours=n) for n in range(5)]
    await nothing_broken(bench, temporal_client)


async def test_a_time_whose_revision_was_disabled_runs_by_that_revision(bench: Bench, temporal_client: Client) -> None:
    """Settle asks the revision in force what it owes; the run is the row's own revision's."""
    old = {"task_type": "old", "consumer": "log", "params": {"to": "${ window.end }"}}
    new = {"task_type": "new", "consumer": "log"}
    activity = await bench.create(trigger=hourly(), enabled=False, tasks=[old])
    await bench.replace(activity, enabled=True, tasks=[new])
    await bench.sql(
        "UPDATE activity_revisions SET in_force_from = $2 WHERE activity_id = $1 AND revision = 1",
        *(activity, PAST + timedelta(minutes=90)),
    )
    async with working(bench), polling(bench):
        made = await ask(bench, activity, PAST, PAST + timedelta(hours=4))
        assert [item.reason for item in made.items] == [BEFORE_CREATION] * 2 + [WHILE_DISABLED] * 2
        await until_ended(bench, activity, 4)
    assert {run["revision"] for run in await runs_of(bench, activity)} == {1}
    tasks = await bench.sql("SELECT task_type, params->>'to' FROM task_instances WHERE activity_id = $1", activity)
    assert sorted(tuple(row) for row in tasks) == [
        ("old", (PAST + timedelta(hours=n)).strftime("%Y-%m-%dT%H:%M:%SZ")) for n in range(4)
    ]
    await nothing_broken(bench, temporal_client)


async def test_times_of_a_trigger_that_is_gone_run_to_the_last(bench: Bench, temporal_client: Client) -> None:
    activity = await on_hours(bench, consumer="log")
    await bench.replace(activity, trigger={"type": "manual"})
    async with working(bench), polling(bench):
        backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=3))
        await until_ended(bench, activity, 3)
    assert await view(bench, backfill) == {"started": 3}
    assert {run["revision"] for run in await runs_of(bench, activity)} == {1}
    await nothing_broken(bench, temporal_client)


async def test_a_worker_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    bench: Bench, temporal_client: Client
) -> None:
    activity = await on_hours(bench, consumer="log")
    backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=8))
    for least in (1, 4):
        async with working(bench), polling(bench):

            async def far_enough(least: int = least) -> bool:
                return (await view(bench, backfill)).get("started", 0) >= least

            await eventually(far_enough)
    async with working(bench), polling(bench):
        await until_ended(bench, activity, 8, within=60)
    runs = await runs_of(bench, activity)
    assert [run["scheduled_for"] for run in runs] == [PAST + timedelta(hours=n) for n in range(8)]
    await nothing_broken(bench, temporal_client)


# After this one Temporal has run a workflow ID twice, as `strangers` would say: it is the last of its kind.


async def test_r6_a_time_whose_workflow_was_refused_runs_once_when_it_is_reopened(
    bench: Bench, temporal_client: Client
) -> None:
    """The one exception to REJECT_DUPLICATE. A workflow that ended otherwise before the gate is a run with that end."""
    activity, minutes = await skipped_minutes(bench, 3, tasks=[{"task_type": "note", "consumer": "log"}])

    async def start(minute: datetime) -> Any:
        key = ids.time_key(minute)
        return await temporal_client.start_workflow(
            RUN_WORKFLOW,
            RunInput(str(activity), key),
            id=bench.workflow_id(activity, key),
            task_queue=bench.settings.task_queue,
        )

    await (await start(minutes[1])).terminate("by the test")
    refused = await start(minutes[0])
    async with working(bench), polling(bench):
        await refused.result()
        assert await bench.ends(activity) == []
        backfill = await begun(bench, activity, minutes[0], minutes[2])

        async def both_ended() -> bool:
            return sorted(status for status, _ in await bench.ends(activity)) == ["completed", "terminated"]

        await eventually(both_ended)
        await looked(bench, activity)
        assert await view(bench, backfill) == {"started": 2}
    runs = {run["scheduled_for"]: run for run in await runs_of(bench, activity)}
    assert set(runs) == {minutes[0], minutes[1]}
    description = await temporal_client.get_workflow_handle(
        bench.workflow_id(activity, ids.time_key(minutes[0]))
    ).describe()
    assert runs[minutes[0]]["owner_execution_run_id"] == description.run_id != refused.first_execution_run_id
    assert await bench.states(activity) == ["completed"]
    assert await broken(bench.database.dsn) == {}
