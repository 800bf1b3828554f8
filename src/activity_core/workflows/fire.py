"""One tick of an activity's schedule, or the poller's stand-in for one.

A tick is a hint: settle computes what is due from the ledger, whatever the tick says. The workflow stays open while the
run it started is, so that Temporal's overlap policy sees what ours sees.
"""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ChildWorkflowError, WorkflowAlreadyStartedError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activity_core.domain import ids
    from activity_core.workflows import contracts as c
    from activity_core.workflows.steps import LOCAL, FireSteps

HEADS_PER_EXECUTION = 50
_NOMINAL = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


@workflow.defn(name=c.FIRE_WORKFLOW)
class FireActivityWorkflow:
    @workflow.run
    async def run(self, given: c.FireInput) -> c.Done:
        tick = _tick()
        for _ in range(HEADS_PER_EXECUTION):
            settled = await workflow.execute_local_activity_method(
                FireSteps.settle, c.SettleInput(given.activity_id, tick), **LOCAL
            )
            if settled.issue and await self._catch_up(given.activity_id, settled.issue):
                return c.Done()  # the fires that come of it run what waits
            if settled.side_by_side:
                await asyncio.gather(*(self._start(given.activity_id, head) for head in settled.side_by_side))
                return c.Done()
            if settled.head is None and settled.wait_seconds is None:
                return c.Done()
            if settled.head is None:
                await asyncio.sleep(settled.wait_seconds or 0)
            elif not await self._run_head(given.activity_id, settled.head) or settled.only_this:
                return c.Done()
        return workflow.continue_as_new(given)

    async def _catch_up(self, activity_id: str, times: list[str]) -> bool:
        """Ask the schedule for the misfired times. False if it can't be asked: then they are run from here."""
        try:
            await workflow.execute_activity_method(
                FireSteps.catch_up,
                c.CatchUpInput(activity_id, times),
                start_to_close_timeout=timedelta(seconds=15),
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_attempts=3),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return False
        return True

    async def _run_head(self, activity_id: str, head: str) -> bool:
        """Start the head's run and await it. False: another fire owns it, and its end wakes the poller."""
        started = await self._start(activity_id, head)
        if isinstance(started, bool):
            return started
        with contextlib.suppress(ChildWorkflowError):  # its end is in the ledger, or will be
            await started
        return True

    async def _start(self, activity_id: str, head: str) -> workflow.ChildWorkflowHandle[Any, Any] | bool:
        """Start the head's run. True: the row was decided meanwhile; False: another fire has started it."""
        for reuse in (WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDReusePolicy.ALLOW_DUPLICATE):
            try:
                started = await workflow.start_child_workflow(
                    c.RUN_WORKFLOW,
                    c.RunInput(activity_id, head),
                    id=ids.run_workflow_id(activity_id, head),
                    id_reuse_policy=reuse,
                    parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                    task_timeout=timedelta(seconds=10),
                )
                started.add_done_callback(_look_at_end)
                return started
            except WorkflowAlreadyStartedError:
                verdict = await self._adopt(activity_id, head)
                if verdict != "restart":
                    return verdict in ("adopted", "decided")
        return False

    async def _adopt(self, activity_id: str, head: str) -> str:
        try:
            adopted = await workflow.execute_activity_method(
                FireSteps.adopt,
                c.AdoptInput(activity_id, head),
                start_to_close_timeout=timedelta(seconds=15),
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_attempts=3),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return "unknown"
        return adopted.verdict


def _look_at_end(run: workflow.ChildWorkflowHandle[Any, Any]) -> None:
    # else the end of a run that did not go well, and that is not awaited here, is logged as an error of ours
    if not run.cancelled():
        run.exception()


def _tick() -> str | None:
    nominal = workflow.info().typed_search_attributes.get(_NOMINAL)
    # the newer scheduler keeps microseconds in the attribute
    return None if nominal is None else ids.format_nominal(nominal.replace(microsecond=0))
