"""R36: every run reaches its true end, once, also when none of our code saw it."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activity_core.domain import ids
from activity_core.store import runs, trigger_state
from tests.services.conftest import Bench
from tests.stack import eventually


@workflow.defn(name="Ends")
class Ends:
    """Ends as it is told: what our run workflow would look like from outside."""

    @workflow.run
    async def run(self, how: str) -> None:
        if how == "failed":
            raise _Failed("by the test")
        if how != "completed":
            await asyncio.Event().wait()


class _Failed(Exception):
    pass


@pytest.fixture(scope="module", autouse=True)
async def ending(temporal_client: Client, bench: Bench) -> AsyncIterator[None]:
    queue = f"{bench.settings.task_queue}-ends"
    async with Worker(
        temporal_client,
        task_queue=queue,
        workflows=[Ends],
        workflow_runner=UnsandboxedWorkflowRunner(),
        workflow_failure_exception_types=[_Failed],
    ):
        yield


async def occupy(client: Client, bench: Bench, workflow_id: str, how: str) -> WorkflowHandle[object, object]:
    """A workflow under one of our IDs that ends as `how` says."""
    handle = await client.start_workflow(
        "Ends",
        how,
        id=workflow_id,
        task_queue=f"{bench.settings.task_queue}-ends",
        execution_timeout=timedelta(seconds=1) if how == "timed_out" else None,
    )
    if how == "terminated":
        await handle.terminate("by the test")
    if how == "cancelled":
        await handle.cancel()

    async def ended() -> bool:
        description = await handle.describe()
        return description.status is not None and description.status.name != "RUNNING"

    if how != "running":
        await eventually(ended)
    return handle


async def open_run(bench: Bench, name: str, consumer: str = "inbox") -> uuid.UUID:
    """An activity with one run that passed the gate and went no further, old enough for reconcile."""
    activity = await bench.on_event(f"ends.{name}", consumer)
    await bench.occur(f"ends.{name}", name)
    assert (await bench.gate(activity, name, "x")).verdict == "go"
    await bench.age(activity)
    return activity


HOW = ("terminated", "cancelled", "timed_out", "failed", "completed", "running", "lost")


async def test_r36_reconcile_writes_the_end_that_temporal_knows(bench: Bench, temporal_client: Client) -> None:
    made = {how: await open_run(bench, how) for how in HOW}
    young = await open_run(bench, "young")
    await bench.sql("UPDATE activity_runs SET started_at = now() WHERE activity_id = $1", young)
    handles = await asyncio.gather(
        *(occupy(temporal_client, bench, bench.workflow_id(made[how], how), how) for how in HOW if how != "lost")
    )
    await bench.parts.reconcile.runs()
    ends = {how: (await bench.ends(activity))[0] for how, activity in made.items()}
    # one that "completed" without an end in the ledger did not complete anything
    expected = {how: how for how in HOW} | {"completed": "failed"}
    assert {how: status for how, (status, _) in ends.items()} == expected
    assert all(reason for status, reason in ends.values() if status != "running")
    assert await bench.ends(young) == [("running", None)]
    closed = await handles[0].describe()
    ((finished,),) = await bench.sql(
        "SELECT finished_at FROM activity_run_ends WHERE activity_id = $1", made["terminated"]
    )
    assert finished == closed.close_time, "the end is Temporal's, not when it was noticed"
    await handles[-1].terminate()


@pytest.mark.parametrize("first", ["completed", "failed", "cancelled", "terminated", "timed_out", "lost"])
async def test_r36_a_late_or_repeated_end_changes_nothing(bench: Bench, first: str) -> None:
    activity = await open_run(bench, f"late-{first}")
    run_id = ids.run_id(bench.workflow_id(activity, f"late-{first}"))

    async def end(status: str) -> bool:
        async with bench.database.begin() as connection:
            await trigger_state.lock_only(connection, activity)
            return await runs.end(connection, run_id, status=status, result=None, reason=status)

    assert await end(first)
    before = await bench.sql("SELECT * FROM activity_run_ends WHERE run_id = $1", run_id)
    others = await asyncio.gather(*(end(status) for status in ("completed", "failed", "terminated", first)))
    assert others == [False] * 4
    await bench.parts.runs.end(run_id, "cancelled", "late")
    assert await bench.parts.runs.advance(run_id), "it has ended, so there is nothing to do"
    await bench.parts.reconcile.runs()
    assert await bench.sql("SELECT * FROM activity_run_ends WHERE run_id = $1", run_id) == before
    assert await bench.states(activity) == [], "and nothing is spawned any more"


async def test_r36_of_ends_at_once_one_is_written(bench: Bench) -> None:
    activity = await open_run(bench, "race")
    run_id = ids.run_id(bench.workflow_id(activity, "race"))
    await asyncio.gather(*(bench.parts.runs.end(run_id, status, status) for status in ("failed", "cancelled") * 5))
    ((status, reason),) = await bench.ends(activity)
    assert status == reason


async def test_r34_a_repeated_log_run_leaves_the_first_rows_values(bench: Bench) -> None:
    activity = await open_run(bench, "repeat")
    before = await bench.sql("SELECT * FROM activity_runs WHERE activity_id = $1", activity)
    for column in ("run_id", "workflow_id", "occurrence_id"):
        values = {
            **{name: before[0][name] for name in ("run_id", "workflow_id", "occurrence_id", "activity_id")},
            "revision": 99,
            "triggered_by": "other",
            "owner_execution_run_id": "other",
        }
        # the same run by any of its unique names
        values |= {"run_id": before[0]["run_id"] if column == "run_id" else uuid.uuid4()}
        async with bench.database.begin() as connection:
            await runs.log_run(connection, values)
    assert await bench.sql("SELECT * FROM activity_runs WHERE activity_id = $1", activity) == before


async def test_r36_a_run_whose_workflow_ended_before_the_gate_is_recorded_with_that_end(
    bench: Bench, temporal_client: Client
) -> None:
    activity = await bench.on_event("early.paid")
    how = ("terminated", "cancelled", "timed_out", "failed")
    await bench.occur("early.paid", *(f"early-{name}" for name in (*how, "running")))
    for name in (*how, "running"):
        await occupy(temporal_client, bench, bench.workflow_id(activity, f"early-{name}"), name)
    names = (*how, "running", "never-started")
    verdicts = {name: await bench.parts.starting.adopt(activity, f"early-{name}") for name in names}
    assert verdicts == dict.fromkeys(how, "adopted") | {"running": "running", "never-started": "unknown"}
    rows = await bench.sql(
        "SELECT o.key, o.outcome, e.status FROM occurrences o LEFT JOIN activity_run_ends e USING (run_id) "
        "WHERE o.activity_id = $1 ORDER BY o.key",
        activity,
    )
    expected = [(f"early-{name}", "started", name) for name in how] + [("early-running", "waiting", None)]
    assert [tuple(row) for row in rows] == sorted(expected)
    assert await bench.parts.starting.adopt(activity, "early-terminated") == "decided"


async def test_i8_a_repeated_advance_starts_the_tasks_that_temporal_forgot_and_no_other(
    bench: Bench, temporal_client: Client
) -> None:
    """A task's row may say that it is being delivered when no workflow does so: its run must not wait for ever."""
    for state in ("pending", "delivering"):
        activity = await open_run(bench, f"forgot-{state}", consumer="log")
        run_id = ids.run_id(bench.workflow_id(activity, f"forgot-{state}"))
        await bench.parts.runs._plan(await _progress(bench, run_id))
        task = temporal_client.get_workflow_handle(ids.task_id(run_id, "note", 0))
        rank = ("pending", "delivering").index(state)
        await bench.sql("UPDATE task_instances SET state = $2, state_rank = $3 WHERE id = $1", task.id, state, rank)
        assert not (await bench.parts.runs.advance(run_id)).ended, "there is no worker to deliver it"
        first = (await task.describe()).run_id
        assert not (await bench.parts.runs.advance(run_id)).ended
        assert (await task.describe()).run_id == first
        # R30: neither is one that has run before our eyes
        await task.terminate()
        assert not (await bench.parts.runs.advance(run_id)).ended
        assert (await task.describe()).run_id == first


async def test_i8_open_tasks_of_an_ended_run_are_closed_when_nothing_delivers_them(
    bench: Bench, temporal_client: Client
) -> None:
    states = ("terminated", "unknown", "running", "waiting")
    made = {}
    for name in states:
        made[name] = await open_run(bench, f"orphan-{name}", consumer="inbox" if name == "waiting" else "log")
        run_id = ids.run_id(bench.workflow_id(made[name], f"orphan-{name}"))
        await bench.parts.runs._plan(await _progress(bench, run_id))
        task_id = ids.task_id(run_id, "note", 0)
        if name == "waiting":
            await bench.parts.deliveries.deliver_to_inbox(task_id)
        elif name != "unknown":
            await occupy(temporal_client, bench, task_id, name)
        await bench.parts.runs.end(run_id, "terminated", "for the test")
        await bench.age(made[name])
    await bench.parts.reconcile.tasks()
    assert {name: await bench.states(activity) for name, activity in made.items()} == {
        "terminated": ["failed"],
        "unknown": ["cancelled"],
        "running": ["pending"],
        "waiting": ["waiting"],
    }


async def _progress(bench: Bench, run_id: uuid.UUID) -> runs.RunProgress:
    async with bench.database.read() as connection:
        progress = await runs.progress(connection, run_id)
    assert progress is not None
    return progress


async def test_r36_a_run_that_ended_before_it_was_planned_spawns_nothing(bench: Bench) -> None:
    """The step that plans may have read the run just before it was ended from outside."""
    activity = await open_run(bench, "too-late", consumer="log")
    before = await _progress(bench, ids.run_id(bench.workflow_id(activity, "too-late")))
    await bench.parts.runs.end(before.run_id, "terminated", "for the test")
    await bench.parts.runs.advance(before.run_id, before)
    assert await bench.states(activity) == []
    assert await bench.ends(activity) == [("terminated", "for the test")]
