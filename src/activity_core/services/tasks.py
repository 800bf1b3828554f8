"""Read tasks, and complete or fail those that were handed to the inbox."""

import uuid
from dataclasses import dataclass
from typing import Any

from activity_core.domain import ids
from activity_core.errors import NotFoundError, TaskNotOpenError
from activity_core.store import tasks
from activity_core.store.database import Connection, Database
from activity_core.store.paging import Cursor, Page
from activity_core.store.tasks import AttemptRecord, TaskFilter, TaskRecord


@dataclass(frozen=True, slots=True)
class TaskDetail:
    task: TaskRecord
    attempts: list[AttemptRecord]


class Tasks:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, ref: str) -> TaskDetail:
        """By our UUID of the task, or by its task id."""
        async with self._database.read() as connection:
            task = await _find(connection, ref)
            return TaskDetail(task, await tasks.attempts(connection, task.id))

    async def listed(self, where: TaskFilter, *, cursor: Cursor | None, limit: int) -> Page[TaskRecord]:
        async with self._database.read() as connection:
            return await tasks.listed(connection, where, cursor=cursor, limit=limit)

    async def complete(self, ref: str, output: Any) -> TaskRecord:
        """Complete a task that waits in the inbox. Repeating it with the same output is fine. Raises TaskNotOpenError."""
        return await self._close(ref, "completed", None, output)

    async def fail(self, ref: str, reason: str) -> TaskRecord:
        """Fail a task that waits in the inbox. Repeating it with the same reason is fine. Raises TaskNotOpenError."""
        return await self._close(ref, "failed", reason, None)

    async def _close(self, ref: str, state: str, reason: str | None, output: Any) -> TaskRecord:
        async with self._database.begin() as connection:
            task = await _find(connection, ref)
            if task.state == "waiting":
                await tasks.move(connection, task.id, state, delivery="delivered", reason=reason, output=output)
                task = await _find(connection, ref)
            if (task.state, task.reason, task.output) == (state, reason, output):
                return task
            raise TaskNotOpenError(
                f"task '{task.id}' is {task.state}; only a task that waits in the inbox can be completed or failed"
            )


async def _find(connection: Connection, ref: str) -> TaskRecord:
    if ids.is_uuid(ref):
        task = await tasks.by_uuid(connection, uuid.UUID(ref))
    else:
        try:
            ids.parse_task_id(ref)
        except ids.IdError as error:
            raise NotFoundError(str(error)) from error
        task = await tasks.by_id(connection, ref)
    if task is None:
        raise NotFoundError(f"there is no task '{ref}'")
    return task
