"""One task: deliver it to its consumer until it is taken, refused for good, or out of time."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activity_core.workflows import contracts as c
    from activity_core.workflows.steps import LOCAL, TaskSteps

# The attempt ends itself at its own timeout, after it may have waited for its turn; Temporal's is the last resort.
SLACK_SECONDS = 40
# An attempt says every few seconds that it lives, so that a lost worker is noticed long before a long attempt's end.
HEARTBEAT_TIMEOUT = timedelta(seconds=20)
CANCELLED = "its workflow was cancelled"


@workflow.defn(name=c.TASK_WORKFLOW)
class TaskWorkflow:
    @workflow.run
    async def run(self, given: c.TaskInput) -> c.Done:
        try:
            if given.consumer in c.IN_DATABASE_CONSUMERS:
                return await workflow.execute_local_activity_method(
                    TaskSteps.deliver, c.DeliverInput(given.task_id, given.consumer), **LOCAL
                )
            return await self._deliver(given)
        except ActivityError as error:
            if not is_cancelled_exception(error):
                reason = _reason(error, given)
                await self._close(given.task_id, "failed", reason)
                raise ApplicationError(reason, type="task_failed", non_retryable=True) from error
            await self._close(given.task_id, "cancelled", CANCELLED)
            raise
        except asyncio.CancelledError:  # of a wait between two tries of a local step
            await self._close(given.task_id, "cancelled", CANCELLED)
            raise

    async def _deliver(self, given: c.TaskInput) -> c.Done:
        deadline = None if given.deadline_seconds is None else timedelta(seconds=given.deadline_seconds)
        return await workflow.execute_activity_method(
            TaskSteps.deliver,
            c.DeliverInput(given.task_id, given.consumer),
            start_to_close_timeout=timedelta(seconds=given.attempt_timeout_seconds + SLACK_SECONDS),
            schedule_to_close_timeout=deadline,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=given.initial_interval_seconds),
                backoff_coefficient=given.backoff_coefficient,
                maximum_interval=timedelta(seconds=given.maximum_interval_seconds),
                maximum_attempts=given.maximum_attempts or 0,
            ),
        )

    async def _close(self, task_id: str, state: str, reason: str) -> None:
        await workflow.execute_local_activity_method(
            TaskSteps.close_task, c.CloseTaskInput(task_id, state, reason), **LOCAL
        )


def _reason(error: ActivityError, given: c.TaskInput) -> str:
    cause = error.cause
    timed_out = isinstance(cause, TimeoutError)
    if timed_out or error.retry_state == RetryState.TIMEOUT:
        # Temporal ends early when the next attempt would come too late; then the cause is the last attempt's
        last = cause.cause if isinstance(cause, TimeoutError) else cause
        return f"not delivered within its deadline of {given.deadline_seconds} s" + (f"; last: {last}" if last else "")
    return str(cause or error)
