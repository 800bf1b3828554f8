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
    from activity_core.workflows import contracts as c
    from activity_core.workflows.steps import LOCAL, RunSteps

RESOLVE_ATTEMPTS = 3
LONGEST_WAIT_SECONDS = 30.0


@workflow.defn(name=c.RUN_WORKFLOW)
class RunActivityWorkflow:
    def __init__(self) -> None:
        self._signals = 0
        self._run_id = ""

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
            self._run_id = begun.run_id
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
        if begun.resolve and await self._advance():
            return
        seen = 0
        while True:
            await workflow.wait_condition(lambda: self._signals > seen)  # noqa: B023 (awaited before `seen` changes)
            seen = self._signals
            if await self._advance():
                return
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(given)

    async def _resolve(self, step: c.ContextStep) -> bool:
        timeout = timedelta(seconds=step.timeout_seconds + 5)
        try:
            await workflow.execute_activity_method(
                RunSteps.resolve,
                c.ResolveInput(self._run_id, step.position),
                start_to_close_timeout=timeout,
                schedule_to_close_timeout=timeout * (RESOLVE_ATTEMPTS + 1),
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=RESOLVE_ATTEMPTS),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            await self._end("failed", f"context: {error.cause or error}")
            return False
        return True

    async def _advance(self) -> bool:
        advanced = await workflow.execute_local_activity_method(RunSteps.advance, c.AdvanceInput(self._run_id), **LOCAL)
        return advanced.ended

    async def _end(self, status: str, reason: str) -> None:
        if self._run_id:
            await workflow.execute_local_activity_method(
                RunSteps.end_run, c.EndRunInput(self._run_id, status, reason), **LOCAL
            )
