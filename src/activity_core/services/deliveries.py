"""Hand a task to its consumer, and write down each attempt and the end.

Repeating any of this is safe: the key and the bytes of a delivery are kept with its intent, a state only moves forwards,
and a task that has ended is not delivered again.
"""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson
import structlog

from activity_core.domain.documents import stored_consumer
from activity_core.domain.json_values import JsonError, JsonValue, canonical_json, parse_json
from activity_core.errors import NotFoundError, UnavailableError
from activity_core.services.http_calls import HttpAnswer, HttpBusyError, HttpCaller, HttpCallError, worth_retrying
from activity_core.services.waiters import RunWaiters
from activity_core.store import runs, tasks
from activity_core.store.database import Database
from activity_core.store.tasks import TERMINAL, Delivery, Moved
from activity_core.temporal.client import Temporal

MAX_RETRY_AFTER_SECONDS = 3_600
MAX_KEPT_ERROR = 1_000
BUSY_SECONDS = 5.0
MAX_OUTPUT_BYTES = 64 * 1024

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class RetryDeliveryError(Exception):
    """This attempt failed and another may succeed. `after_seconds`: what the consumer asked for."""

    def __init__(self, detail: str, after_seconds: float | None = None) -> None:
        super().__init__(detail)
        self.after_seconds = after_seconds


class RefusedDeliveryError(Exception):
    """The consumer refused for good."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try: Temporal's task token makes its id, so no two tries share one (R39)."""

    attempt_id: uuid.UUID
    number: int
    worker: str


class Deliveries:
    def __init__(self, database: Database, temporal: Temporal, waiters: RunWaiters, http: HttpCaller) -> None:
        self._database = database
        self._temporal = temporal
        self._waiters = waiters
        self._http = http

    async def deliver_to_log(self, task_id: str) -> None:
        """The hand-over is the log line. A repeated step writes it again: at least once, as with every consumer (R37)."""
        moved = await self._move(task_id, "completed")
        # the task's content is what this consumer is for
        log.info("task.logged", task_id=task_id, params=moved.params)

    async def deliver_to_inbox(self, task_id: str) -> None:
        """The hand-over is that the task waits for its report."""
        await self._move(task_id, "waiting")

    async def _move(self, task_id: str, state: str) -> Moved:
        async with self._database.session() as connection:
            moved = await tasks.move(connection, task_id, state, delivery="delivered")
        if moved is None:
            raise NotFoundError(f"there is no task '{task_id}'")
        await self._wake(moved)
        return moved

    async def deliver_http(self, task_id: str, attempt: Attempt) -> None:
        """One attempt. Raises RetryDeliveryError or RefusedDeliveryError; returns when the task has ended."""
        async with self._database.session() as connection:
            delivery = await tasks.delivery(connection, task_id)
        if delivery is None:
            raise NotFoundError(f"there is no task '{task_id}'")
        if delivery.state in TERMINAL:
            await self._wake_again(delivery.run_id)
            return
        if delivery.consumer_document is None:
            raise RefusedDeliveryError(f"the consumer '{delivery.consumer}' does not exist any more")
        url = stored_consumer(delivery.consumer_document).url
        try:
            async with self._http.slot(delivery.consumer):
                await self._attempt(url, delivery, attempt)
        except HttpBusyError as error:
            raise RetryDeliveryError(str(error), BUSY_SECONDS) from error

    async def _attempt(self, url: str, delivery: Delivery, attempt: Attempt) -> None:
        async with self._database.session() as connection:
            body = await tasks.begin_attempt(
                connection,
                attempt.attempt_id,
                task_id=delivery.task_id,
                execution_id=delivery.execution_id,
                temporal_attempt=attempt.number,
                worker=attempt.worker,
                body=_body(delivery),
            )
        answer = await self._send(url, body, delivery, attempt)
        await self._judge(delivery, attempt, answer)

    async def _send(self, url: str, body: bytes, delivery: Delivery, attempt: Attempt) -> HttpAnswer:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": delivery.idempotency_key,
            "Activity-Core-Attempt-Id": str(attempt.attempt_id),
            "Activity-Core-Task-Id": delivery.task_id,
            "Activity-Core-Run-Id": str(delivery.run_id),
        }
        try:
            return await self._http.call(
                "POST",
                url,
                headers=headers,
                content=body,
                deadline_seconds=delivery.settings["attempt_timeout_seconds"],
                max_bytes=MAX_OUTPUT_BYTES,
            )
        except HttpCallError as error:
            outcome = "unknown" if error.sent else "not_sent"
            await self._end_attempt(attempt, outcome, error=str(error))
            raise RetryDeliveryError(str(error)) from error

    async def _judge(self, delivery: Delivery, attempt: Attempt, answer: HttpAnswer) -> None:
        if 200 <= answer.status < 300:
            await self._delivered(delivery, attempt, answer)
            return
        error = f"the consumer answered {answer.status}"
        retry = worth_retrying(answer.status)
        outcome = "failed" if retry else "refused"
        kept = error + ": " + answer.body[:200].decode("utf-8", "replace").replace("\x00", "")
        await self._end_attempt(attempt, outcome, http_status=answer.status, error=kept)
        if retry:
            raise RetryDeliveryError(error, _retry_after(answer))
        raise RefusedDeliveryError(error)

    async def _delivered(self, delivery: Delivery, attempt: Attempt, answer: HttpAnswer) -> None:
        output = _output(answer)
        reference = output.get("reference") if isinstance(output, dict) else None
        async with self._database.session() as connection:
            moved = await tasks.move(
                connection,
                delivery.task_id,
                "completed",
                delivery="delivered",
                output=output,
                reference=reference[:500] if isinstance(reference, str) else None,
                http_status=answer.status,
                attempt_id=attempt.attempt_id,
            )
        if moved is not None:
            await self._wake(moved)

    async def _end_attempt(
        self, attempt: Attempt, outcome: str, *, http_status: int | None = None, error: str | None = None
    ) -> None:
        async with self._database.begin() as connection:
            await tasks.end_attempt(
                connection,
                attempt.attempt_id,
                outcome=outcome,
                http_status=http_status,
                error=None if error is None else error[:MAX_KEPT_ERROR],
            )

    async def close(self, task_id: str, state: str, reason: str) -> None:
        """End a task that was not delivered: `failed` or `cancelled`. One that has ended stays as it is."""
        reason = reason[:MAX_KEPT_ERROR]
        async with self._database.session() as connection:
            moved = await tasks.move(connection, task_id, state, delivery=state, reason=reason, error=reason)
        if moved is not None:
            await self._wake(moved)

    async def _wake(self, moved: Moved) -> None:
        """Wake the run when this change left nothing that holds it."""
        if not moved.forwards:
            await self._wake_again(moved.run_id)
        elif moved.open_tasks is not None and moved.open_tasks <= 0 and moved.run_workflow_id is not None:
            try:
                await self._signal(moved.run_id, moved.run_workflow_id)
            except UnavailableError:
                # the change is committed: reconcile wakes runs that nothing holds
                log.warning("run.wake_deferred", run_id=str(moved.run_id))

    async def _wake_again(self, run_id: uuid.UUID) -> None:
        """A step that is repeated wakes its run again: the first may have died between its commit and the signal."""
        async with self._database.read() as connection:
            run = await runs.progress(connection, run_id)
        if run is not None and run.status is None and run.open_tasks <= 0:
            await self._signal(run_id, run.workflow_id)

    async def _signal(self, run_id: uuid.UUID, workflow_id: str) -> None:
        if not self._waiters.wake(run_id):
            await self._temporal.signal_settled(workflow_id)


def _body(delivery: Delivery) -> bytes:
    """The bytes of every attempt (I6): nothing in them depends on when or how often they are sent."""
    task: dict[str, Any] = {
        "id": delivery.task_id,
        "run_id": str(delivery.run_id),
        "activity": delivery.slug,
        "activity_id": str(delivery.activity_id),
        "scheduled_for": delivery.scheduled_for,
        "window": None if delivery.window_end is None else {"start": delivery.window_start, "end": delivery.window_end},
        "event_id": delivery.event_id,
    }
    body = {
        "type": f"task.{delivery.task_type}",
        "timestamp": delivery.created_at,
        "data": delivery.params,
        "task": task,
    }
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def _output(answer: HttpAnswer) -> JsonValue:
    """The JSON object that a consumer answered with, if it is one and small enough to keep."""
    if answer.truncated or not answer.body.startswith(b"{"):
        return None
    try:
        value = parse_json(answer.body)
    except JsonError:
        return None
    return value if len(canonical_json(value)) <= MAX_OUTPUT_BYTES else None


def _retry_after(answer: HttpAnswer) -> float | None:
    text = answer.headers.get("retry-after")
    if text is None:
        return None
    try:
        seconds = float(text) if text.isdigit() else (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)
