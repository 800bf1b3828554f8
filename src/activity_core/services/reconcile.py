"""True ends for runs and tasks whose workflow ended without our code (R36): terminated, timed out, forgotten."""

import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from activity_core.errors import UnavailableError
from activity_core.services.deliveries import Deliveries
from activity_core.services.ends import end_run
from activity_core.store import event_rows, metrics, runs, tasks, trigger_state
from activity_core.store.database import Database
from activity_core.store.locks import try_lock
from activity_core.store.notify import STARTS, notify
from activity_core.store.runs import OpenRun
from activity_core.temporal.client import Temporal

# Younger runs are left alone: they are being started, or are about to write their end themselves.
OLDER_SECONDS = 10.0
LOST_AFTER_SECONDS = 60.0
BATCH = 200

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Reconcile:
    def __init__(
        self,
        database: Database,
        temporal: Temporal,
        deliveries: Deliveries,
        cancel_open_tasks: Callable[[uuid.UUID], Awaitable[None]],
    ) -> None:
        self._database = database
        self._cancel_open_tasks = cancel_open_tasks
        self._temporal = temporal
        self._deliveries = deliveries

    async def runs(self) -> None:
        """Look at every run that has been open for a while. Raises UnavailableError without Temporal.

        One process at a time does it; the others leave it to that one.
        """
        async with self._database.session() as connection, try_lock(connection, "reconcile runs") as held:
            if held:
                await self._all_runs()

    async def _all_runs(self) -> None:
        after: uuid.UUID | None = None
        while True:
            async with self._database.read() as connection:
                batch = await runs.open_runs(connection, older_seconds=OLDER_SECONDS, after=after, limit=BATCH)
            for run in batch:
                try:
                    await self._run(run)
                except UnavailableError:
                    raise
                except Exception:  # one run's trouble must not keep the others from their ends (I9)
                    log.exception("run.reconcile_failed", run_id=str(run.run_id))
            if len(batch) < BATCH:
                return
            after = batch[-1].run_id

    async def queues(self) -> None:
        """Let events start whose concurrency key has room: whatever the end of a run failed to wake."""
        async with self._database.read() as connection:
            queueing = await event_rows.queueing(connection)
        for activity_id in queueing:
            async with self._database.begin() as connection:
                await trigger_state.lock_only(connection, activity_id)
                if await event_rows.release_queued(connection, activity_id):
                    await notify(connection, STARTS)

    async def tasks(self) -> None:
        """Close the tasks of ended runs that nothing delivers any more: no run waits for them, so nobody else would see.

        A task whose workflow runs is left to it. Raises UnavailableError without Temporal.
        """
        async with self._database.session() as connection, try_lock(connection, "reconcile tasks") as held:
            if held:
                await self._all_orphans()

    async def _all_orphans(self) -> None:
        after = ""
        while True:
            async with self._database.read() as connection:
                batch = await tasks.orphans(connection, older_seconds=OLDER_SECONDS, after=after, limit=BATCH)
            for task_id, state in batch:
                try:
                    await self._orphan(task_id, state)
                except UnavailableError:
                    raise
                except Exception:  # see _all_runs
                    log.exception("task.reconcile_failed", task_id=task_id)
            if len(batch) < BATCH:
                return
            after = batch[-1][0]

    async def _orphan(self, task_id: str, state: str) -> None:
        execution = await self._temporal.execution(task_id)
        if execution is not None and execution.status != "running":
            await self._close(task_id, execution.status)
        elif execution is None and state == "pending":
            await self._deliveries.close(task_id, "cancelled", "its run ended before it was started")
        elif execution is None:
            reason = "Temporal does not know its workflow any more; the effect may have happened"
            await self._deliveries.close(task_id, "failed", reason)

    async def _close(self, task_id: str, workflow_status: str) -> None:
        state = "cancelled" if workflow_status == "cancelled" else "failed"
        await self._deliveries.close(task_id, state, f"its workflow ended ({workflow_status})")

    async def _run(self, run: OpenRun) -> None:
        execution = await self._temporal.execution(run.workflow_id)
        if execution is None:
            if run.age_seconds > LOST_AFTER_SECONDS:
                await self._end(run, "lost", "Temporal does not know its workflow any more")
        elif execution.status == "running":
            await self._help(run)
        else:
            status = "failed" if execution.status == "completed" else execution.status
            reason = f"its workflow ended ({execution.status}) without writing the run's end"
            await self._end(run, status, reason, execution.closed_at)

    async def _help(self, run: OpenRun) -> None:
        """A run that nothing holds is woken; tasks whose workflow ended without a word are closed."""
        async with self._database.read() as connection:
            quiet = await tasks.quiet_ids(connection, run.run_id, OLDER_SECONDS)
        wake = run.planned and run.open_tasks <= 0
        for task_id in quiet:
            execution = await self._temporal.execution(task_id)
            if execution is None:
                wake = True  # never started: advance starts what is missing
            elif execution.status != "running":
                await self._close(task_id, execution.status)
        if wake:
            await self._temporal.signal_settled(run.workflow_id)

    async def _end(self, run: OpenRun, status: str, reason: str, finished_at: datetime | None = None) -> None:
        async with self._database.begin() as connection:
            if await trigger_state.lock(connection, run.activity_id) is None:
                return
            ended = await end_run(
                connection,
                run.activity_id,
                run.run_id,
                status=status,
                result=None,
                reason=reason,
                finished_at=finished_at,
            )
            if ended:
                await metrics.count(connection, "run_repairs", status)
                log.warning("run.reconciled", run_id=str(run.run_id), status=status)
        if ended and status in ("cancelled", "terminated", "timed_out"):
            await self._cancel_open_tasks(run.run_id)
