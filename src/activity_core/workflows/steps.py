"""The steps that workflows call, as types without code: the worker holds the implementation with its dependencies.

"Step" is our word for a Temporal activity, because "activity" is the product's noun.
"""

from datetime import timedelta

from temporalio import activity
from temporalio.common import RetryPolicy
from temporalio.workflow import LocalActivityConfig

from activity_core.workflows import contracts as c


class FireSteps:
    @activity.defn(name="settle")
    async def settle(self, given: c.SettleInput) -> c.SettleResult:
        raise NotImplementedError

    @activity.defn(name="catch_up")
    async def catch_up(self, given: c.CatchUpInput) -> c.Done:
        raise NotImplementedError

    @activity.defn(name="adopt")
    async def adopt(self, given: c.AdoptInput) -> c.AdoptResult:
        raise NotImplementedError


class RunSteps:
    @activity.defn(name="begin")
    async def begin(self, given: c.BeginInput) -> c.BeginResult:
        raise NotImplementedError

    @activity.defn(name="resolve")
    async def resolve(self, given: c.ResolveInput) -> c.Done:
        raise NotImplementedError

    @activity.defn(name="advance")
    async def advance(self, given: c.AdvanceInput) -> c.AdvanceResult:
        raise NotImplementedError

    @activity.defn(name="end_run")
    async def end_run(self, given: c.EndRunInput) -> c.Done:
        raise NotImplementedError


class TaskSteps:
    @activity.defn(name="deliver")
    async def deliver(self, given: c.DeliverInput) -> c.Done:
        raise NotImplementedError

    @activity.defn(name="close_task")
    async def close_task(self, given: c.CloseTaskInput) -> c.Done:
        raise NotImplementedError


# Steps inside our database are local: one workflow task instead of a round trip through the server. They are repeated
# until Postgres answers; waits over ten seconds become timers, so that a long outage does not fill the history.
LOCAL = LocalActivityConfig(
    start_to_close_timeout=timedelta(seconds=60),
    local_retry_threshold=timedelta(seconds=10),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200), backoff_coefficient=2, maximum_interval=timedelta(seconds=30)
    ),
)
