"""One run of an activity.

`begin` passes the gate and, when no context has to be fetched, does all the rest of a short run: plan, spawn, wait up to
a second, end. So a short run is one workflow task. What takes longer goes on at the signal `settled`.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activity_core.domain import ids
    from activity_core.workflows import contracts as c
    from activity_core.workflows.steps import LOCAL, RunSteps

RESOLVE_TRIES = 3
RESOLVE_PAUSE_SECONDS = 1
LONGEST_WAIT_SECONDS = 15.0


@workflow.defn(name=c.RUN_WORKFLOW)
class RunActivityWorkflow:
    def __init__(self) -> None:
        self._signals = 0
        self._run_id = str(ids.run_id(workflow.info().workflow_id))

    @workflow.signal(name=c.SETTLED_SIGNAL)
    def settled(self) -> None:
        """The tasks that held the run have ended."""
        self._signals += 1

    @workflow.run
    async def run(self, given: c.RunInput) -> c.Done:
        try:
            begun = await self._begin(given)
            if begun.verdict == "go":
                await self._work(given, begun)
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            await self._end("cancelled", "its workflow was cancelled")
            raise
        return c.Done()

    async def _begin(self, given: c.RunInput) -> c.BeginResult:
        """Ask the gate until it has decided. The ID is used up, so this waits and never ends without an answer."""
        wait_seconds = 1.0
        while True:
            owner = workflow.info().first_execution_run_id
            begun = await workflow.execute_local_activity_method(
                RunSteps.begin, c.BeginInput(given.activity_id, given.key, owner), **LOCAL
            )
            if begun.verdict != "later":
                return begun
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(given)
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(wait_seconds * 1.5, LONGEST_WAIT_SECONDS)

    async def _work(self, given: c.RunInput, begun: c.BeginResult) -> None:
        for step in begun.resolve:
            if not await self._resolve(step):
                return
        again, seen = begun.again or bool(begun.resolve), 0
        while True:
            if not again:
                await workflow.wait_condition(lambda: self._signals > seen)  # noqa: B023 (awaited before `seen` changes)
            seen = self._signals
            advanced = await workflow.execute_local_activity_method(
                RunSteps.advance, c.AdvanceInput(self._run_id), **LOCAL
            )
            if advanced.ended:
                return
            again = advanced.again
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(given)

    async def _resolve(self, step: c.ContextStep) -> bool:
        # the step asks the source a few times by itself; it is repeated only when it was ours that failed it
        timeout = timedelta(seconds=(step.timeout_seconds + RESOLVE_PAUSE_SECONDS) * RESOLVE_TRIES + 10)
        try:
            await workflow.execute_activity_method(
                RunSteps.resolve,
                c.ResolveInput(self._run_id, step.position, RESOLVE_TRIES, RESOLVE_PAUSE_SECONDS),
                start_to_close_timeout=timeout,
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            await self._end("failed", f"context: {error.cause or error}")
            return False
        return True

    async def _end(self, status: str, reason: str) -> None:
        await workflow.execute_local_activity_method(
            RunSteps.end_run, c.EndRunInput(self._run_id, status, reason), **LOCAL
        )
