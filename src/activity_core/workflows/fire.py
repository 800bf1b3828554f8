"""One tick of an activity's schedule, or the poller's stand-in for one.

A tick is a hint: settle computes what is due from the ledger, whatever the tick says. The workflow stays open while the
run it started is, so that Temporal's overlap policy sees what ours sees.
"""

import contextlib
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ChildWorkflowError, WorkflowAlreadyStartedError

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
            if settled.head is None or not await self._run_head(given.activity_id, settled.head):
                return c.Done()
        return workflow.continue_as_new(given)

    async def _run_head(self, activity_id: str, head: str) -> bool:
        """Start the head's run and await it. False: another fire owns it, and its end wakes the poller."""
        for reuse in (WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDReusePolicy.ALLOW_DUPLICATE):
            try:
                child = await workflow.start_child_workflow(
                    c.RUN_WORKFLOW,
                    c.RunInput(activity_id, head),
                    id=ids.run_workflow_id(activity_id, head),
                    id_reuse_policy=reuse,
                    parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                    task_timeout=timedelta(seconds=10),
                )
            except WorkflowAlreadyStartedError:
                verdict = await self._adopt(activity_id, head)
                if verdict != "restart":
                    return verdict in ("adopted", "decided")
            else:
                with contextlib.suppress(ChildWorkflowError):  # its end is in the ledger, or will be
                    await child
                return True
        return False

    async def _adopt(self, activity_id: str, head: str) -> str:
        try:
            adopted = await workflow.execute_activity_method(
                FireSteps.adopt,
                c.AdoptInput(activity_id, head),
                start_to_close_timeout=timedelta(seconds=15),
                retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_attempts=3),
            )
        except ActivityError:
            return "unknown"
        return adopted.verdict


def _tick() -> str | None:
    nominal = workflow.info().typed_search_attributes.get(_NOMINAL)
    # the newer scheduler keeps microseconds in the attribute
    return None if nominal is None else ids.format_nominal(nominal.replace(microsecond=0))
