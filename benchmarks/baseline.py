"""What we measure ourselves against: a hand-written Temporal workflow of the same shape, and a bare FastAPI POST.

The workflow does what ours does, with empty steps and no database: one local step that starts a task workflow through the
worker's own client, eagerly, and waits for its local step.
"""

import asyncio
import sys
import time
import uuid
from datetime import timedelta

from fastapi import FastAPI
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

STARTERS = 50
SECOND = timedelta(seconds=1)


class Event(BaseModel):
    event_id: str
    type: str
    data: dict[str, object]


def bare_api() -> FastAPI:
    """A POST that parses its body with pydantic and answers: nothing is stored."""
    app = FastAPI()

    @app.post("/v1/events", status_code=202)
    async def accept(event: Event) -> dict[str, str]:
        return {"event_id": event.event_id, "status": "accepted"}

    return app


@workflow.defn(name="BaselineTask")
class BaselineTask:
    @workflow.run
    async def run(self, run_id: str) -> None:
        await workflow.execute_local_activity("deliver", run_id, start_to_close_timeout=60 * SECOND)


@workflow.defn(name="BaselineRun")
class BaselineRun:
    @workflow.run
    async def run(self, run_id: str) -> None:
        await workflow.execute_local_activity("begin", run_id, start_to_close_timeout=60 * SECOND)


class Steps:
    def __init__(self, client: Client, task_queue: str, count: int) -> None:
        self._client = client
        self._task_queue = task_queue
        self._delivered: dict[str, asyncio.Event] = {}
        self._left = count
        self.done = asyncio.Event()

    @activity.defn(name="begin")
    async def begin(self, run_id: str) -> None:
        delivered = self._delivered[run_id] = asyncio.Event()
        await self.start(BaselineTask, run_id, f"task-{run_id}")
        await delivered.wait()
        del self._delivered[run_id]
        self._left -= 1
        if not self._left:
            self.done.set()

    @activity.defn(name="deliver")
    async def deliver(self, run_id: str) -> None:
        self._delivered[run_id].set()

    async def start(self, kind: type, run_id: str, workflow_id: str) -> None:
        await self._client.start_workflow(
            kind.run,  # type: ignore[attr-defined]  # either of the two above
            run_id,
            id=workflow_id,
            task_queue=self._task_queue,
            task_timeout=5 * SECOND,
            request_eager_start=True,
        )


async def runs(address: str, count: int) -> float:
    """Seconds for `count` runs, from the first start to the last end."""
    client = await Client.connect(address)
    task_queue = f"baseline-{uuid.uuid4()}"
    steps = Steps(client, task_queue, count)
    slots = asyncio.Semaphore(STARTERS)

    async def one(run_id: str) -> None:
        async with slots:
            await steps.start(BaselineRun, run_id, f"run-{run_id}")

    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[BaselineRun, BaselineTask],
        activities=[steps.begin, steps.deliver],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_workflow_tasks=1_000,
        max_concurrent_local_activities=1_000,
    ):
        began = time.monotonic()
        await asyncio.gather(*(one(str(uuid.uuid4())) for _ in range(count)))
        await steps.done.wait()
        return time.monotonic() - began


if __name__ == "__main__":
    print(asyncio.run(runs(sys.argv[1], int(sys.argv[2]))))
