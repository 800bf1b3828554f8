"""A run from the gate to its end: plan once, spawn wave by wave, end when nothing holds it.

Only this module and reconcile write a run's end. Every function may be repeated, and by two processes at once.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog

from activity_core.domain import ids
from activity_core.domain.documents import Activity, EventTrigger, HttpContext, StaticContext
from activity_core.domain.taskplan import PlanError, PlannedTask, plan_tasks, run_scope
from activity_core.services.definitions import Definitions
from activity_core.services.ends import end_run
from activity_core.services.gate import LATE_AFTER_SECONDS, Passed, log_run
from activity_core.services.waiters import RunWaiters
from activity_core.store import event_rows, events, ledger, runs, tasks, trigger_state
from activity_core.store.database import Connection, Database
from activity_core.store.runs import RunProgress
from activity_core.store.tasks import NewTask, Startable
from activity_core.temporal.client import Temporal
from activity_core.workflows import contracts as c

WAIT_SECONDS = 1.0
# A step that goes from wave to wave stops after this and is called again: its time is bounded, a run's is not.
ADVANCE_SECONDS = 20.0
CONCURRENT_STARTS = 50
TERMINAL_FAILURES = ("failed", "cancelled")
MAX_REASON = 1_000

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Runs:
    def __init__(self, database: Database, definitions: Definitions, temporal: Temporal, waiters: RunWaiters) -> None:
        self._database = database
        self._definitions = definitions
        self._temporal = temporal
        self._waiters = waiters
        self._starts = asyncio.Semaphore(CONCURRENT_STARTS)

    async def begin(self, activity_id: uuid.UUID, key: str, execution_run_id: str) -> c.BeginResult:
        """Pass the gate; when no context is to be fetched, go on to `advance` in the same step."""
        run, passed = await self._pass_gate(activity_id, key, execution_run_id)
        if passed.verdict != "go":
            return c.BeginResult(passed.verdict, str(passed.run_id))
        resolve = await self._unresolved(activity_id, passed)
        log.debug("run.started", run_id=str(passed.run_id), activity_id=str(activity_id), key=key)
        if resolve:
            return c.BeginResult("go", str(passed.run_id), resolve)
        advanced = await self.advance(passed.run_id, run)
        return c.BeginResult("ended" if advanced.ended else "go", str(passed.run_id), again=advanced.again)

    async def _pass_gate(
        self, activity_id: uuid.UUID, key: str, execution_run_id: str
    ) -> tuple[RunProgress | None, Passed]:
        if ids.key_kind(key) == "event":
            # an event's row is decided alone, by no planner, so its own row lock is enough
            workflow_id = ids.run_workflow_id(activity_id, key)
            run_id = ids.run_id(workflow_id)
            async with self._database.session() as connection:
                run = await runs.start_event_run(
                    connection,
                    activity_id,
                    key,
                    workflow_id=workflow_id,
                    run_id=run_id,
                    owner=execution_run_id,
                    late_after_seconds=LATE_AFTER_SECONDS,
                )
                if run is not None and run.group_key is not None:
                    await event_rows.point_merged(connection, run.occurrence_id)
            if run is not None:
                return run, Passed("go", run_id, run.revision)
        async with self._database.begin() as connection:
            return None, await log_run(connection, self._definitions, activity_id, key, execution_run_id)

    async def _unresolved(self, activity_id: uuid.UUID, passed: Passed) -> list[c.ContextStep]:
        """The context that this run has still to fetch."""
        known = self._definitions.known(activity_id, passed.revision)
        if known is not None and not any(isinstance(source, HttpContext) for source in known.context):
            return []
        async with self._database.read() as connection:
            activity = await self._definitions.get(connection, activity_id, passed.revision)
            run = await runs.progress(connection, passed.run_id)
            if run is None or run.status is not None or run.planned_at is not None:
                return []
            fetched = await runs.context(connection, passed.run_id)
        return [
            c.ContextStep(position, source.timeout_seconds)
            for position, source in enumerate(activity.context)
            if isinstance(source, HttpContext) and source.name not in fetched
        ]

    async def advance(self, run_id: uuid.UUID, run: RunProgress | None = None) -> c.AdvanceResult:
        """Plan, spawn, wait a moment, go on with the next wave, end; a long way of waves in several calls.

        `run`: the run as the gate has just made it, to save a read.
        """
        startable: Sequence[Startable] | None = None
        until = asyncio.get_running_loop().time() + ADVANCE_SECONDS
        if run is None:
            async with self._database.read() as connection:
                run = await runs.progress(connection, run_id)
        while run is not None and run.status is None:
            if run.planned_at is None:
                run, startable = await self._plan(run)
            elif run.open_tasks > 0:
                run = await self._spawn_and_wait(run, startable)
                startable = None
                if run is not None and run.status is None and run.open_tasks > 0:
                    return c.AdvanceResult(ended=False)
            elif run.wave + 1 < run.waves:
                if asyncio.get_running_loop().time() > until:
                    return c.AdvanceResult(ended=False, again=True)
                run = await self._next_wave(run)
            else:
                await self._end_by_tasks(run)
                return c.AdvanceResult(ended=True)
        return c.AdvanceResult(ended=True)

    async def _spawn_and_wait(self, run: RunProgress, startable: Sequence[Startable] | None) -> RunProgress | None:
        """Start what has not started of the wave, and wait for it up to a second."""
        if startable is None:
            async with self._database.read() as connection:
                startable = await tasks.startable(connection, run.run_id, run.wave)
        with self._waiters.waiting(run.run_id) as settled:
            await asyncio.gather(*(self._start(task) for task in startable))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await settled.wait()
        # only after this process is no waiter any more: who lowers the count from here on sends a signal
        async with self._database.read() as connection:
            return await runs.progress(connection, run.run_id)

    async def _start(self, task: Startable) -> None:
        async with self._starts:
            await self._temporal.start_task(task_input(task))

    async def _next_wave(self, run: RunProgress) -> RunProgress | None:
        async with self._database.begin() as connection:
            await runs.next_wave(connection, run.run_id, run.wave)
            return await runs.progress(connection, run.run_id)

    async def _plan(self, run: RunProgress) -> tuple[RunProgress | None, Sequence[Startable] | None]:
        """Evaluate the definition and record the plan with the intents to spawn, in one transaction."""
        async with self._database.read() as connection:
            activity, scope = await self.definition_and_scope(connection, run)
        try:
            if any(task.for_each for task in activity.tasks):
                # thousands of items take seconds, which the other runs of this process must not wait for
                plan = await asyncio.to_thread(plan_tasks, activity, scope)
            else:
                plan = plan_tasks(activity, scope)
        except PlanError as error:
            await self.end(run.run_id, "failed", str(error))
            return None, None
        new = [_new_task(run.run_id, task) for task in plan.tasks]
        first_wave = [Startable(task.id, task.consumer, task.delivery) for task in new if task.wave == 0]
        async with self._database.session() as connection:
            recorded = await tasks.record_plan(
                connection,
                run.run_id,
                reason=plan.reason,
                waves=plan.waves,
                open_tasks=len(first_wave),
                tasks=new,
            )
            if recorded is None:  # another attempt of this step was faster: its plan is the plan
                return await runs.progress(connection, run.run_id), None
        planned = replace(
            run,
            planned_at=recorded,
            plan_reason=plan.reason,
            wave=0,
            waves=plan.waves,
            open_tasks=len(first_wave),
            task_states={},
        )
        return planned, first_wave

    async def definition_and_scope(self, connection: Connection, run: RunProgress) -> tuple[Activity, dict[str, Any]]:
        """The definition of a run and what its expressions see, with the context fetched so far."""
        activity = await self._definitions.get(connection, run.activity_id, run.revision)
        event, params = None, None
        if run.event_uuid is not None:
            record = await events.by_id(connection, run.event_uuid)
            event = None if record is None else event_scope(record)
            if event is not None and isinstance(activity.trigger, EventTrigger) and activity.trigger.debounce:
                merged = await event_rows.merged(connection, run.occurrence_id)
                event["merged"] = {"count": merged.count, "first_id": merged.first_id or event["id"]}
        if run.triggered_by in ("manual", "rerun"):
            occurrence = await ledger.by_id(connection, run.occurrence_id)
            params = None if occurrence is None else occurrence.params
        scope = run_scope(
            activity,
            activity_id=str(run.activity_id),
            run_id=str(run.run_id),
            # a manual run of an activity with times has no nominal time: its expressions see the end of its window
            scheduled_for=run.scheduled_for or run.window_end,
            window=None if run.window_end is None else (run.window_start, run.window_end),
            covers=run.covers,
            event=event,
            params=params,
        )
        resolved = await runs.context(connection, run.run_id) if activity.context else {}
        for source in activity.context:
            scope["context"][source.name] = (
                source.value if isinstance(source, StaticContext) else resolved.get(source.name)
            )
        return activity, scope

    async def _end_by_tasks(self, run: RunProgress) -> None:
        status, result, reason = run_end(run.task_states or {}, run.plan_reason)
        if run.triggered_by == "event" and run.concurrency_key is None:
            async with self._database.session() as connection:
                ended = await runs.end(connection, run.run_id, status=status, result=result, reason=reason)
        else:
            async with self._database.begin() as connection:
                await trigger_state.lock_only(connection, run.activity_id)
                ended = await end_run(
                    connection, run.activity_id, run.run_id, status=status, result=result, reason=reason
                )
        if ended:
            log.info("run.ended", run_id=str(run.run_id), status=status, result=result)

    async def end(self, run_id: uuid.UUID, status: str, reason: str) -> None:
        """Write an end that does not come from the tasks: a failed plan or context, a cancellation."""
        async with self._database.begin() as connection:
            run = await runs.progress(connection, run_id)
            if run is None:
                return
            await trigger_state.lock_only(connection, run.activity_id)
            if not await end_run(
                connection, run.activity_id, run_id, status=status, result=None, reason=reason[:MAX_REASON]
            ):
                return
        log.info("run.ended", run_id=str(run_id), status=status)

    async def cancel_open_tasks(self, run_id: uuid.UUID) -> None:
        """Cancel what a cancelled run has not delivered: workflows that run are asked, the others are closed here."""
        async with self._database.read() as connection:
            open_ids = await tasks.open_ids(connection, run_id)
        for task_id in open_ids:
            if not await self._temporal.cancel(task_id):
                reason = "its run was cancelled"
                async with self._database.session() as connection:
                    await tasks.move(connection, task_id, "cancelled", delivery="cancelled", reason=reason)


def event_scope(record: events.EventRecord) -> dict[str, Any]:
    """What expressions see of an event."""
    return {
        "id": record.event_id,
        "type": record.type,
        "source": record.source,
        "subject": record.subject,
        "time": record.time or record.accepted_at,
        "data": record.data,
        "merged": {"count": 0, "first_id": record.event_id},
    }


def run_end(counts: dict[str, int], plan_reason: str | None) -> tuple[str, str | None, str | None]:
    """(status, result, reason) of a run whose tasks hold it no more.

    `failed` when any task failed, with result `partial` when others went well: what must be looked at must be seen.
    """
    if not counts:
        return "completed", "no_work", plan_reason
    bad = sum(counts.get(state, 0) for state in TERMINAL_FAILURES)
    if not bad:
        return "completed", "done", None
    total = sum(counts.values())
    return "failed", "partial" if bad < total else None, f"{bad} of {total} tasks failed or were cancelled"


def task_input(task: Startable) -> c.TaskInput:
    retry = task.delivery["retry"]
    return c.TaskInput(
        task_id=task.id,
        consumer=task.consumer,
        attempt_timeout_seconds=task.delivery["attempt_timeout_seconds"],
        deadline_seconds=task.delivery["deadline_seconds"],
        maximum_attempts=retry["maximum_attempts"],
        initial_interval_seconds=retry["initial_interval_seconds"],
        backoff_coefficient=retry["backoff_coefficient"],
        maximum_interval_seconds=retry["maximum_interval_seconds"],
    )


def _new_task(run_id: uuid.UUID, task: PlannedTask) -> NewTask:
    task_id = ids.task_id(run_id, task.task_type, task.index)
    return NewTask(
        id=task_id,
        uuid=uuid.uuid5(ids.NAMESPACE, task_id),
        execution_id=ids.activity_execution_id(task_id, "deliver"),
        task_type=task.task_type,
        index=task.index,
        wave=task.wave,
        consumer=task.consumer,
        delivery={
            "attempt_timeout_seconds": task.attempt_timeout_seconds,
            "deadline_seconds": task.deadline_seconds,
            "retry": task.retry,
        },
        params=task.params,
        detached=task.detached,
    )
