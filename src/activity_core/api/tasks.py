"""/v1/tasks."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request

from activity_core.api import bodies, params, views
from activity_core.api.services import Use
from activity_core.errors import Fault, InvalidInputError
from activity_core.store.tasks import TaskFilter

MAX_REASON = 1_000

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])


@router.get("")
async def list_tasks(
    use: Use,
    run_id: UUID | None = None,
    activity: params.ActivityRef = None,
    state: views.TaskState | None = None,
    consumer: str | None = None,
    task_type: str | None = None,
    task_id: Annotated[str | None, Query(description="`task-{run_id}:{task_type}:{index}`")] = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.TaskItem]:
    """Tasks, newest first."""
    activity_id = await params.optional_activity_id(use.reads, activity)
    where = TaskFilter(task_id, run_id, activity_id, state, consumer, task_type)
    page = await use.tasks.listed(where, cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[views.task_item(record) for record in page.items], next_cursor=page.next_cursor)


@router.get("/{ref}")
async def get_task(ref: str, use: Use) -> views.TaskOut:
    """By `id` or `task_id`, with every attempt to hand it over."""
    return views.task(await use.tasks.get(ref))


COMPLETE_BODY = {"type": "object", "additionalProperties": False, "properties": {"output": {"description": "Any JSON"}}}
FAIL_BODY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reason"],
    "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": MAX_REASON}},
}


@router.post("/{ref}/complete", openapi_extra=bodies.json_body(COMPLETE_BODY, required=False))
async def complete_task(
    ref: str, request: Request, use: Use, idempotency_key: params.IdempotencyKey = None
) -> views.TaskItem:
    """Complete a task that waits in the inbox. A repeat with the same output is fine; 409 for another one."""
    params.read_idempotency_key(idempotency_key)
    command = await bodies.read_command(request, "output")
    return views.task_item(await use.tasks.complete(ref, command.get("output")))


@router.post("/{ref}/fail", openapi_extra=bodies.json_body(FAIL_BODY))
async def fail_task(
    ref: str, request: Request, use: Use, idempotency_key: params.IdempotencyKey = None
) -> views.TaskItem:
    """Fail a task that waits in the inbox. A repeat with the same reason is fine; 409 for another one."""
    params.read_idempotency_key(idempotency_key)
    reason = (await bodies.read_command(request, "reason")).get("reason")
    if reason is None:
        raise InvalidInputError([Fault("/reason", "is required", "required")])
    if not isinstance(reason, str) or not 1 <= len(reason) <= MAX_REASON:
        raise InvalidInputError([Fault("/reason", f"write why, in 1 to {MAX_REASON} characters")])
    return views.task_item(await use.tasks.fail(ref, reason))
