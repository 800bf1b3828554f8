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
from activity_core.services.http_calls import HttpAnswer, HttpCaller, HttpCallError
from activity_core.services.waiters import RunWaiters
from activity_core.store import consumers, runs, tasks
from activity_core.store.database import Connection, Database
from activity_core.store.tasks import TERMINAL, Delivery, Moved
from activity_core.temporal.client import Temporal

RETRIED_STATUSES = frozenset({408, 409, 425, 429})
MAX_RETRY_AFTER_SECONDS = 3_600
MAX_KEPT_ERROR = 1_000
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

    async def deliver_in_database(self, task_id: str) -> None:
        """`log` and `inbox`: the hand-over and its record are one transaction."""
        async with self._database.begin() as connection:
            delivery = await _delivery(connection, task_id)
            if delivery.consumer == "inbox":
                moved = await tasks.move(connection, task_id, "waiting")
            else:
                moved = await tasks.move(connection, task_id, "completed")
            await tasks.end_delivery(connection, task_id, "delivered")
            woken = await _release(connection, moved)
        if delivery.consumer == "log" and moved is not None:
            # the task's content is what this consumer is for
            log.info("task.logged", task_id=task_id, activity=delivery.slug, params=delivery.params)
        await self._wake(woken, delivery.run_id, repeated=moved is None)

    async def deliver_http(self, task_id: str, attempt: Attempt) -> None:
        """One attempt. Raises RetryDeliveryError or RefusedDeliveryError; returns when the task has ended."""
        async with self._database.begin() as connection:
            delivery = await _delivery(connection, task_id)
            if delivery.state not in TERMINAL:
                consumer = await consumers.by_slug(connection, delivery.consumer)
                await tasks.move(connection, task_id, "delivering")
                body = await tasks.keep_body(connection, delivery.execution_id, _body(delivery))
                await tasks.begin_attempt(
                    connection,
                    attempt.attempt_id,
                    delivery.execution_id,
                    temporal_attempt=attempt.number,
                    worker=attempt.worker,
                )
        if delivery.state in TERMINAL:
            await self._wake(None, delivery.run_id, repeated=True)
            return
        if consumer is None:
            await self._end_attempt(attempt, "refused", error="the consumer does not exist any more")
            raise RefusedDeliveryError(f"the consumer '{delivery.consumer}' does not exist any more")
        url = stored_consumer(consumer.effective).url
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
        retry = answer.status >= 500 or answer.status in RETRIED_STATUSES
        outcome = "failed" if retry else "refused"
        kept = error + ": " + answer.body[:200].decode("utf-8", "replace").replace("\x00", "")
        await self._end_attempt(attempt, outcome, http_status=answer.status, error=kept)
        if retry:
            raise RetryDeliveryError(error, _retry_after(answer))
        raise RefusedDeliveryError(error)

    async def _delivered(self, delivery: Delivery, attempt: Attempt, answer: HttpAnswer) -> None:
        output = _output(answer)
        async with self._database.begin() as connection:
            moved = await tasks.move(connection, delivery.task_id, "completed", output=output)
            late = moved is None
            await tasks.end_attempt(
                connection,
                attempt.attempt_id,
                outcome="delivered",
                late=late,
                http_status=answer.status,
                error="the task had ended already; the effect may have happened" if late else None,
            )
            if moved is not None:
                reference = output.get("reference") if isinstance(output, dict) else None
                await tasks.end_delivery(
                    connection,
                    delivery.task_id,
                    "delivered",
                    http_status=answer.status,
                    reference=reference[:500] if isinstance(reference, str) else None,
                )
            woken = await _release(connection, moved)
        await self._wake(woken, delivery.run_id, repeated=moved is None)

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
        async with self._database.begin() as connection:
            delivery = await _delivery(connection, task_id)
            moved = await tasks.move(connection, task_id, state, reason=reason[:MAX_KEPT_ERROR])
            if moved is not None:
                await tasks.end_delivery(connection, task_id, state, error=reason[:MAX_KEPT_ERROR])
            woken = await _release(connection, moved)
        await self._wake(woken, delivery.run_id, repeated=moved is None)

    async def _wake(self, workflow_id: str | None, run_id: uuid.UUID, *, repeated: bool) -> None:
        """Wake the run when nothing holds it any more. A repeated step wakes again: the first may have died before."""
        if repeated:
            async with self._database.read() as connection:
                run = await runs.progress(connection, run_id)
            if run is None or run.status is not None or run.open_tasks > 0:
                return
            workflow_id = run.workflow_id
        if workflow_id is None or self._waiters.wake(run_id):
            return
        try:
            await self._temporal.signal_settled(workflow_id)
        except UnavailableError:
            if repeated:
                raise  # this step is repeated until the signal is out
            log.warning("run.wake_deferred", run_id=str(run_id))  # reconcile signals runs that nothing holds


async def _delivery(connection: Connection, task_id: str) -> Delivery:
    delivery = await tasks.delivery(connection, task_id)
    if delivery is None:
        raise NotFoundError(f"there is no task '{task_id}'")
    return delivery


async def _release(connection: Connection, moved: Moved | None) -> str | None:
    """Count a task out of those that hold its run; the run's workflow ID when it was the last."""
    if moved is None or not moved.released:
        return None
    still_open, workflow_id = await runs.lower_open_tasks(connection, moved.run_id)
    return workflow_id if still_open <= 0 else None


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
