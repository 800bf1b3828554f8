"""The steps, with their dependencies: thin, because what they do lives in the services."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activity_core.domain import ids
from activity_core.domain.documents import TimeTrigger
from activity_core.errors import UnavailableError
from activity_core.services.context import ContextError, ContextResolver
from activity_core.services.deliveries import Attempt, Deliveries, RefusedDeliveryError, RetryDeliveryError
from activity_core.services.planning import MAX_HEADS
from activity_core.services.runs import Runs
from activity_core.services.settle import Settled, Settler
from activity_core.services.starting import InFlight, Starting
from activity_core.temporal.schedules import Schedules
from activity_core.workflows import contracts as c
from activity_core.workflows.steps import FireSteps, RunSteps, TaskSteps

INTERNAL_ATTEMPTS = 20
HEARTBEAT_SECONDS = 5.0
# A consumer's failure is our everyday: it is in ops_attempts, and needs no traceback in the log.
EXPECTED = ApplicationErrorCategory.BENIGN

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@asynccontextmanager
async def heartbeats() -> AsyncIterator[None]:
    """Tells Temporal that this attempt lives, as long as the block lasts; a cancellation comes back the same way."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()


class FireStepsImpl(FireSteps):
    def __init__(self, settler: Settler, starting: Starting, schedules: Schedules) -> None:
        self._settler = settler
        self._starting = starting
        self._schedules = schedules

    @activity.defn(name="settle")
    async def settle(self, given: c.SettleInput) -> c.SettleResult:
        tick = None if given.tick is None else ids.parse_nominal(given.tick)
        settled = await self._settler.settle(uuid.UUID(given.activity_id), tick, issue=True)
        if settled is None:
            return c.SettleResult(None)
        return _settle_result(settled, scheduled=tick is not None)

    @activity.defn(name="catch_up")
    async def catch_up(self, given: c.CatchUpInput) -> c.Done:
        times = [ids.parse_nominal(time) for time in given.times]
        if not await self._schedules.backfill(uuid.UUID(given.activity_id), times):
            raise ApplicationError(
                "the activity has no schedule", type="no_schedule", non_retryable=True, category=EXPECTED
            )
        return c.Done()

    @activity.defn(name="adopt")
    async def adopt(self, given: c.AdoptInput) -> c.AdoptResult:
        return c.AdoptResult(await self._starting.adopt(uuid.UUID(given.activity_id), given.key))


def _settle_result(settled: Settled, *, scheduled: bool) -> c.SettleResult:
    """`scheduled`: by a fire of the schedule. Of those that catch-up asked for, each runs one."""
    planned, trigger = settled.planned, settled.activity.trigger
    heads = [ids.format_nominal(head.scheduled_for) for head in planned.plan.heads[:MAX_HEADS]]
    issue = [ids.format_nominal(time) for time in planned.issue]
    if isinstance(trigger, TimeTrigger) and trigger.overlap_policy == "allow_all":
        result = c.SettleResult(None, heads, issue)
    else:
        result = c.SettleResult(next(iter(heads), None), [], issue, only_this=scheduled and planned.issued > 1)
    if heads or planned.due_next is None:
        return result
    return replace(result, wait_seconds=max(0.0, (planned.due_next - settled.through).total_seconds()))


class RunStepsImpl(RunSteps):
    def __init__(self, runs: Runs, resolver: ContextResolver, in_flight: InFlight) -> None:
        self._runs = runs
        self._resolver = resolver
        self._in_flight = in_flight

    @activity.defn(name="begin")
    async def begin(self, given: c.BeginInput) -> c.BeginResult:
        activity_id = uuid.UUID(given.activity_id)
        try:
            return await self._runs.begin(activity_id, given.key, given.execution_run_id)
        except Exception as error:  # noqa: BLE001 (as in begin's twin below)
            run_id = ids.run_id(ids.run_workflow_id(activity_id, given.key))
            await self._give_up(run_id, error)
            return c.BeginResult("ended", str(run_id))
        finally:
            self._in_flight.done(ids.run_workflow_id(activity_id, given.key))

    async def _give_up(self, run_id: uuid.UUID, error: Exception) -> None:
        """A step that fails for anything but Postgres or Temporal being away is a bug of ours: after enough attempts the
        run ends with it, because it would stay open for ever, and hold up its activity's times. Re-raises before."""
        if isinstance(error, UnavailableError) or activity.info().attempt < INTERNAL_ATTEMPTS:
            raise error
        log.exception("run.given_up", run_id=str(run_id))
        await self._runs.end(run_id, "failed", f"internal error: {type(error).__name__}")

    @activity.defn(name="resolve")
    async def resolve(self, given: c.ResolveInput) -> c.Done:
        try:
            await self._resolver.resolve(
                uuid.UUID(given.run_id), given.position, tries=given.tries, pause_seconds=given.pause_seconds
            )
        except ContextError as error:
            raise ApplicationError(str(error), type="context_error", non_retryable=True, category=EXPECTED) from error
        return c.Done()

    @activity.defn(name="advance")
    async def advance(self, given: c.AdvanceInput) -> c.AdvanceResult:
        run_id = uuid.UUID(given.run_id)
        try:
            return await self._runs.advance(run_id)
        except Exception as error:  # noqa: BLE001 (raised again by _give_up until it is time to give up)
            await self._give_up(run_id, error)
            return c.AdvanceResult(ended=True)

    @activity.defn(name="end_run")
    async def end_run(self, given: c.EndRunInput) -> c.Done:
        run_id = uuid.UUID(given.run_id)
        await self._runs.end(run_id, given.status, given.reason)
        if given.status == "cancelled":
            await self._runs.cancel_open_tasks(run_id)
        return c.Done()


class TaskStepsImpl(TaskSteps):
    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._worker = f"{socket.gethostname()}:{uuid.uuid4().hex[:8]}"

    @activity.defn(name="deliver")
    async def deliver(self, given: c.DeliverInput) -> c.Done:
        info = activity.info()
        if given.consumer == "log":
            await self._deliveries.deliver_to_log(given.task_id)
            return c.Done()
        if given.consumer == "inbox":
            await self._deliveries.deliver_to_inbox(given.task_id)
            return c.Done()
        execution_id = ids.activity_execution_id(given.task_id, "deliver")
        attempt_id = ids.activity_attempt_id(execution_id, info.task_token)
        try:
            async with heartbeats():
                await self._deliveries.deliver_http(given.task_id, Attempt(attempt_id, info.attempt, self._worker))
        except RetryDeliveryError as error:
            delay = None if error.after_seconds is None else timedelta(seconds=error.after_seconds)
            raise ApplicationError(
                str(error), type="delivery_failed", next_retry_delay=delay, category=EXPECTED
            ) from error
        except RefusedDeliveryError as error:
            raise ApplicationError(
                str(error), type="delivery_refused", non_retryable=True, category=EXPECTED
            ) from error
        return c.Done()

    @activity.defn(name="close_task")
    async def close_task(self, given: c.CloseTaskInput) -> c.Done:
        await self._deliveries.close(given.task_id, given.state, given.reason)
        return c.Done()
