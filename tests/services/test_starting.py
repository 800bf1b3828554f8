"""Starts: leases, "already started", and the one path on which a workflow ID is used twice."""

import asyncio
import uuid

import pytest
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy

from activity_core.dev.ports import LOOPBACK, free_port
from activity_core.errors import UnavailableError
from activity_core.store import starts
from activity_core.workflows.contracts import RUN_WORKFLOW, RunInput
from tests.checker import broken, strangers
from tests.consumer import Answer, consumer
from tests.services.conftest import Bench, bench_on, working
from tests.stack import eventually


async def until_ended(bench: Bench, activity: uuid.UUID, count: int) -> None:
    async def all_ended() -> bool:
        return [status for status, _ in await bench.ends(activity)] == ["completed"] * count

    await eventually(all_ended, what=f"{count} runs have completed")


async def test_r6_starters_at_once_start_each_row_once(bench: Bench, temporal_client: Client) -> None:
    activity = await bench.on_event("start.many")
    await bench.occur("start.many", *(f"many-{n}" for n in range(60)))
    async with working(bench), bench_on(bench.settings) as other:
        claimed = await asyncio.gather(*(one.parts.starting.start_batch() for one in (bench, other) * 2))
        assert sum(claimed) == 60
        await until_ended(bench, activity, 60)
    assert await strangers(temporal_client, bench.settings.task_queue, bench.settings.asyncpg_url) == []


async def test_r6_already_started_is_success_and_the_lease_brings_the_row_back(
    bench: Bench, temporal_client: Client
) -> None:
    """The start came through, and the answer did not."""
    activity = await bench.on_event("start.lost")
    await bench.occur("start.lost", "lost-1")
    workflow_id = bench.workflow_id(activity, "lost-1")
    await bench.parts.temporal.start_run(workflow_id, RunInput(str(activity), "lost-1"))
    assert await bench.parts.starting.start_batch() == 1
    assert await bench.parts.starting.start_batch() == 0, "it is leased"
    assert await bench.outcomes(activity) == [("waiting", "due")]
    async with working(bench):
        await until_ended(bench, activity, 1)
    # a row that is decided is claimed by nobody
    await bench.sql("UPDATE occurrences SET start_after = now() - interval '1 h' WHERE activity_id = $1", activity)
    assert await bench.parts.starting.start_batch() == 0


async def test_r28_without_temporal_nothing_is_claimed(bench: Bench) -> None:
    activity = await bench.on_event("start.down")
    await bench.occur("start.down", "down-1")
    nowhere = bench.settings.model_copy(update={"temporal_address": f"{LOOPBACK}:{free_port()}"})
    async with bench_on(nowhere) as cut_off:
        with pytest.raises(UnavailableError):
            await cut_off.parts.starting.start_batch()
    assert await bench.sql("SELECT start_attempts FROM occurrences WHERE activity_id = $1", activity) == [(0,)]
    async with working(bench):
        assert await bench.parts.starting.start_batch() == 1
        await until_ended(bench, activity, 1)


async def test_a_lease_keeps_others_away_until_it_is_over(bench: Bench) -> None:
    activity = await bench.on_event("start.lease")
    await bench.occur("start.lease", "lease-1")

    async def claim(seconds: float) -> list[int]:
        async with bench.database.begin() as connection:
            claims = await starts.claim(connection, limit=500, lease_seconds=seconds)
        return [one.start_attempts for one in claims if one.activity_id == activity]

    assert await claim(1.0) == [1]
    assert await claim(60.0) == []
    assert await eventually(lambda: claim(60.0), what="the lease of a claimant that died is over") == [2]


async def test_r8_a_workflow_that_runs_again_under_a_spent_id_is_refused(bench: Bench, temporal_client: Client) -> None:
    """What a redelivery would be if Temporal had forgotten the first: the ledger still knows."""
    activity = await bench.on_event("start.spent")
    await bench.occur("start.spent", "spent-1")
    async with working(bench):
        await bench.parts.starting.start_batch()
        await until_ended(bench, activity, 1)
        tables = ("occurrences", "activity_runs", "task_instances", "activity_run_ends")
        query = " UNION ALL ".join(f"SELECT to_jsonb(t)::text FROM {t} t WHERE activity_id = $1" for t in tables)
        before = await bench.sql(query, activity)
        again = await temporal_client.start_workflow(
            RUN_WORKFLOW,
            RunInput(str(activity), "spent-1"),
            id=bench.workflow_id(activity, "spent-1"),
            task_queue=bench.settings.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
        await again.result()
    assert await bench.sql(query, activity) == before


async def test_r6_a_row_reopened_after_its_workflow_was_refused_runs_once(
    bench: Bench, temporal_client: Client
) -> None:
    """The one exception: disabled between the start and the gate, enabled and redelivered after its workflow closed."""
    activity = await bench.on_event("start.reopen")
    await bench.occur("start.reopen", "reopen-1")
    workflow_id = bench.workflow_id(activity, "reopen-1")
    await bench.parts.temporal.start_run(workflow_id, RunInput(str(activity), "reopen-1"))
    await bench.replace(activity, enabled=False)
    assert await bench.outcomes(activity) == [("disabled", "disabled")]
    async with working(bench):
        await temporal_client.get_workflow_handle(workflow_id).result()
        assert await bench.ends(activity) == []
        await bench.replace(activity, enabled=True)
        assert (await bench.send("start.reopen", "reopen-1")).duplicate
        await bench.routing.route_batch()
        assert await bench.outcomes(activity) == [("waiting", "due")]
        await asyncio.gather(*(bench.parts.starting.start_batch() for _ in range(3)))
        await until_ended(bench, activity, 1)
    assert await bench.outcomes(activity) == [("started", "on_time")]
    assert await bench.parts.starting.adopt(activity, "reopen-1") == "decided"


async def test_r26_what_holds_one_occurrence_up_holds_no_other(bench: Bench) -> None:
    """One event for four activities, of which one can't be started for a while: the rest run, and then the one."""
    made = [await bench.on_event("start.four") for _ in range(4)]
    await bench.occur("start.four", "four-1")
    async with working(bench):
        async with bench.database.begin() as connection:
            await connection.exec_driver_sql(
                f"SELECT 1 FROM occurrences WHERE activity_id = '{made[1]}' FOR UPDATE",
            )
            assert await bench.parts.starting.start_batch() == 3
            for activity in (made[0], *made[2:]):
                await until_ended(bench, activity, 1)
            assert await bench.ends(made[1]) == []
        assert await bench.parts.starting.start_batch() == 1
        await until_ended(bench, made[1], 1)
    for activity in made:
        assert await bench.outcomes(activity) == [("started", "on_time")]


async def test_a_time_is_fired_run_and_ended(bench: Bench, temporal_client: Client) -> None:
    """R2: a fire started by hand runs what is due, and nothing when nothing is."""
    activity, (minute,) = await bench.every_minute(due=1, tasks=[{"task_type": "a", "consumer": "log"}])
    idle = await bench.create(
        trigger={"type": "cron", "cron": "0 4 29 2 *", "timezone": "UTC", "misfire_policy": "skip"}
    )
    async with working(bench):
        for one in (activity, idle):
            await bench.parts.temporal.start_fire(f"fire-{one}-2026-11-30T17:40:12Z", str(one))
            await temporal_client.get_workflow_handle(f"fire-{one}-2026-11-30T17:40:12Z").result()
    assert (await bench.ends(activity))[0] == ("completed", None)
    ((run_id,),) = await bench.sql(
        "SELECT workflow_id FROM activity_runs WHERE activity_id = $1 ORDER BY started_at LIMIT 1", activity
    )
    assert run_id == f"activity-{activity}:{minute.isoformat()}"
    assert await bench.outcomes(idle) == [] and await bench.ends(idle) == []


async def test_r36_a_time_whose_workflow_was_terminated_before_the_gate_is_adopted_by_the_next_fire(
    bench: Bench, temporal_client: Client
) -> None:
    activity, (minute,) = await bench.every_minute(due=1)
    workflow_id = bench.workflow_id(activity, minute.isoformat())
    await bench.parts.temporal.start_run(workflow_id, RunInput(str(activity), minute.isoformat()))
    await temporal_client.get_workflow_handle(workflow_id).terminate("by the test")
    async with working(bench):
        await bench.parts.temporal.start_fire(f"fire-{activity}", str(activity))
        await temporal_client.get_workflow_handle(f"fire-{activity}").result()
    assert (await bench.ends(activity))[0][0] == "terminated"


async def test_r6_r36_an_event_whose_workflow_ended_before_the_gate_is_not_started_again(
    bench: Bench, temporal_client: Client
) -> None:
    """Its ID is spent: the end is recorded as that of its one run."""
    activity = await bench.on_event("start.early")
    await bench.occur("start.early", "early-1")
    workflow_id = bench.workflow_id(activity, "early-1")
    await bench.parts.temporal.start_run(workflow_id, RunInput(str(activity), "early-1"))
    handle = temporal_client.get_workflow_handle(workflow_id)
    await handle.terminate("by the test")
    first = (await handle.describe()).run_id
    assert await bench.parts.starting.start_batch() == 1
    assert [status for status, _ in await bench.ends(activity)] == ["terminated"]
    assert (await handle.describe()).run_id == first


async def test_i8_a_run_that_waited_longer_than_its_step_is_woken_by_its_last_task(bench: Bench) -> None:
    async with consumer(lambda request, before: Answer(500 if before == 0 else 200)) as target, working(bench):
        await bench.consumers.create({"slug": "slow", "type": "http", "url": target.url})
        activity = await bench.on_event("start.slow", consumer="slow")
        await bench.occur("start.slow", "slow-1")
        await bench.parts.starting.start_batch()
        await until_ended(bench, activity, 1)
        assert len(target.requests) == 2


async def test_the_ledger_agrees_with_itself(bench: Bench) -> None:
    assert await broken(bench.settings.asyncpg_url) == {}


async def test_i9_a_flood_waits_in_postgres_while_runs_are_at_work(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Young open runs count against the limit; old ones wait for slow consumers, and hold up nobody."""
    at_work = await bench.on_event("flood.first")
    await bench.occur("flood.first", "flood-1")
    await bench.sql("UPDATE activity_runs SET started_at = now() - interval '1 h' WHERE is_open")
    assert (await bench.gate(at_work, "flood-1", "mine")).verdict == "go"
    await bench.on_event("flood.next")
    await bench.occur("flood.next", "flood-2")
    monkeypatch.setattr(bench.parts.in_flight, "_limit", 1)
    assert await bench.parts.starting.start_batch() == 0
    await bench.age(at_work)
    assert await bench.parts.starting.start_batch() == 1
