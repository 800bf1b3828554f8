"""Tasks, the intent to hand each to its consumer (`task_spawn_log`), deliveries (`ops_runs`) and their attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as pg_insert

from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, ops_attempts, ops_runs, task_instances, task_spawn_log

RANKS = {"pending": 0, "delivering": 1, "waiting": 2, "completed": 3, "failed": 3, "cancelled": 3}
TERMINAL = frozenset(state for state, rank in RANKS.items() if rank == 3)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    id: str
    uuid: UUID
    run_id: UUID
    activity_id: UUID
    slug: str
    task_type: str
    index: int
    wave: int
    consumer: str
    delivery: dict[str, Any]
    params: Any
    detached: bool
    state: str
    reason: str | None
    output: Any
    external_reference: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewTask:
    id: str
    uuid: UUID
    execution_id: UUID
    task_type: str
    index: int
    wave: int
    consumer: str
    delivery: dict[str, Any]
    params: Any
    detached: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """What a change of state did. `released`: this change took the task out of those that hold the run."""

    run_id: UUID
    released: bool


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    activity_attempt_id: UUID
    activity_execution_id: UUID
    temporal_attempt: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    late: bool
    http_status: int | None
    error: str | None


def _query() -> Select[Any]:
    t = task_instances.c
    return (
        select(
            *(t.id, t.uuid, t.run_id, t.activity_id, activities.c.slug, t.task_type, t.index, t.wave, t.consumer),
            *(t.delivery, t.params, t.detached, t.state, t.reason, t.output, task_spawn_log.c.external_reference),
            *(t.created_at, t.updated_at, t.ended_at),
        )
        .join(activities, activities.c.id == t.activity_id)
        .join(task_spawn_log, task_spawn_log.c.task_id == t.id)
    )


async def by_id(connection: Connection, task_id: str) -> TaskRecord | None:
    row = (await connection.execute(_query().where(task_instances.c.id == task_id))).one_or_none()
    return TaskRecord(*row) if row else None


async def by_uuid(connection: Connection, task_uuid: UUID) -> TaskRecord | None:
    row = (await connection.execute(_query().where(task_instances.c.uuid == task_uuid))).one_or_none()
    return TaskRecord(*row) if row else None


@dataclass(frozen=True, slots=True)
class TaskFilter:
    id: str | None = None
    run_id: UUID | None = None
    activity_id: UUID | None = None
    state: str | None = None
    consumer: str | None = None
    task_type: str | None = None


async def listed(connection: Connection, where: TaskFilter, *, cursor: Cursor | None, limit: int) -> Page[TaskRecord]:
    """Newest first; index ix_task_instances_created_at_id, or the unique index led by run_id."""
    query = _query()
    for name in TaskFilter.__dataclass_fields__:
        value = getattr(where, name)
        if value is not None:
            query = query.where(task_instances.c[name] == value)
    query = before(query, task_instances.c.created_at, task_instances.c.id, cursor, limit)
    rows = [TaskRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.created_at, record.id))


_INTENT = text(
    """
    WITH tasks AS (
      SELECT * FROM jsonb_to_recordset(:rows) AS t(id text, uuid uuid, execution_id uuid, task_type text, index int,
        wave int, consumer text, delivery jsonb, params jsonb, detached bool)
    ), instances AS (
      INSERT INTO task_instances (id, uuid, run_id, activity_id, task_type, index, wave, consumer, delivery, params,
                                  detached, state, state_rank)
      SELECT id, uuid, :run_id, :activity_id, task_type, index, wave, consumer, delivery, params, detached, 'pending', 0
      FROM tasks
      ON CONFLICT (id) DO UPDATE SET updated_at = task_instances.updated_at
    ), spawn AS (
      INSERT INTO task_spawn_log (consumer_reference, task_id, run_id, consumer)
      SELECT id, id, :run_id, consumer FROM tasks
      ON CONFLICT DO NOTHING
    )
    INSERT INTO ops_runs (activity_execution_id, idempotency_key, task_id, run_id, consumer, state)
    SELECT execution_id, execution_id::text, id, :run_id, consumer, 'intended' FROM tasks
    ON CONFLICT DO NOTHING
    """
).bindparams(bindparam("rows", type_=JSONB))


async def record_intents(connection: Connection, run_id: UUID, activity_id: UUID, tasks: Sequence[NewTask]) -> None:
    """Write the recorded plan and the intent to spawn it, in one statement (R31, R35). A repeat changes nothing."""
    rows = [{name: _plain(getattr(task, name)) for name in NewTask.__dataclass_fields__} for task in tasks]
    await connection.execute(_INTENT, {"rows": rows, "run_id": run_id, "activity_id": activity_id})


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


@dataclass(frozen=True, slots=True)
class Startable:
    id: str
    consumer: str
    delivery: dict[str, Any]


async def startable(connection: Connection, run_id: UUID, wave: int) -> list[Startable]:
    """Tasks of a wave that have not been seen to start; unique index led by run_id."""
    t = task_instances.c
    query = (
        select(t.id, t.consumer, t.delivery)
        .where(t.run_id == run_id, t.wave == wave, t.state == "pending")
        .order_by(t.task_type, t.index)
    )
    return [Startable(*row) for row in await connection.execute(query)]


async def open_ids(connection: Connection, run_id: UUID) -> list[str]:
    """Tasks of a run that have not ended."""
    t = task_instances.c
    query = select(t.id).where(t.run_id == run_id, t.ended_at.is_(None))
    return list((await connection.execute(query)).scalars())


_QUIET = text(
    """
    SELECT t.id FROM task_instances t JOIN activity_runs r ON r.run_id = t.run_id
    WHERE t.run_id = :run_id AND t.wave <= r.wave AND t.state IN ('pending', 'delivering')
      AND t.updated_at < clock_timestamp() - make_interval(secs => :older_seconds)
    """
)


async def quiet_ids(connection: Connection, run_id: UUID, older_seconds: float) -> list[str]:
    """Tasks of the waves spawned so far that have not moved for a while and are not handed over."""
    rows = await connection.execute(_QUIET, {"run_id": run_id, "older_seconds": older_seconds})
    return list(rows.scalars())


async def states(connection: Connection, run_id: UUID) -> dict[str, int]:
    """How many tasks of a run are in each state."""
    t = task_instances.c
    query = select(t.state, func.count()).where(t.run_id == run_id).group_by(t.state)
    return {row[0]: row[1] for row in await connection.execute(query)}


_MOVE = text(
    """
    UPDATE task_instances t SET state = :state, state_rank = :rank, reason = coalesce(:reason, t.reason),
      output = coalesce(:output, t.output), updated_at = clock_timestamp(),
      ended_at = CASE WHEN :terminal THEN clock_timestamp() END
    FROM (SELECT id, state_rank FROM task_instances WHERE id = :id FOR UPDATE) before
    WHERE t.id = before.id AND before.state_rank < :rank
    RETURNING t.run_id, t.detached, before.state_rank
    """
).bindparams(bindparam("output", type_=JSONB(none_as_null=True)))


async def move(
    connection: Connection, task_id: str, state: str, *, reason: str | None = None, output: Any = None
) -> Moved | None:
    """Set a task's state if that goes forwards; None if the task was as far already, or is unknown (I11)."""
    rank = RANKS[state]
    params = {"id": task_id, "state": state, "rank": rank, "reason": reason, "output": output}
    row = (await connection.execute(_MOVE, {**params, "terminal": state in TERMINAL})).one_or_none()
    if row is None:
        return None
    # a detached task holds its run only until it was handed over
    threshold = RANKS["waiting"] if row.detached else RANKS["completed"]
    return Moved(row.run_id, released=row.state_rank < threshold <= rank)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A task with all that a delivery of it needs."""

    task_id: str
    task_uuid: UUID
    run_id: UUID
    activity_id: UUID
    slug: str
    task_type: str
    index: int
    consumer: str
    params: Any
    settings: dict[str, Any]
    state: str
    execution_id: UUID
    idempotency_key: str
    body: bytes | None
    scheduled_for: datetime | None
    window_start: datetime | None
    window_end: datetime | None
    event_id: str | None
    created_at: datetime


_DELIVERY = text(
    """
    SELECT t.id, t.uuid, t.run_id, t.activity_id, a.slug, t.task_type, t.index, t.consumer, t.params, t.delivery, t.state,
           o.activity_execution_id, o.idempotency_key, o.body, r.scheduled_for, r.window_start, r.window_end, e.event_id,
           t.created_at
    FROM task_instances t
    JOIN ops_runs o ON o.task_id = t.id
    JOIN activity_runs r ON r.run_id = t.run_id
    JOIN activities a ON a.id = t.activity_id
    LEFT JOIN events e ON e.id = r.event_uuid
    WHERE t.id = :id
    """
).columns(params=JSONB, delivery=JSONB)


async def delivery(connection: Connection, task_id: str) -> Delivery | None:
    """Primary key of task_instances, ix_ops_runs_task_id."""
    row = (await connection.execute(_DELIVERY, {"id": task_id})).one_or_none()
    return Delivery(*row) if row else None


_DELIVERED = text(
    """
    WITH spawned AS (
      UPDATE task_spawn_log SET spawned_at = coalesce(spawned_at, clock_timestamp()),
        external_reference = coalesce(external_reference, :reference)
      WHERE task_id = :task_id
    )
    UPDATE ops_runs SET state = :state, delivered_at = CASE WHEN :delivered THEN clock_timestamp() END,
      http_status = :http_status, error = :error
    WHERE task_id = :task_id AND state NOT IN ('delivered', 'failed', 'cancelled')
    """
)


async def end_delivery(
    connection: Connection,
    task_id: str,
    state: str,
    *,
    http_status: int | None = None,
    error: str | None = None,
    reference: str | None = None,
) -> None:
    """`delivered`, `failed` or `cancelled`, once. The consumer's own reference is set once."""
    await connection.execute(
        _DELIVERED,
        {
            "task_id": task_id,
            "state": state,
            "delivered": state == "delivered",
            "http_status": http_status,
            "error": error,
            "reference": reference,
        },
    )


_KEEP_BODY = text(
    "UPDATE ops_runs SET body = coalesce(body, :body), state = CASE WHEN state = 'intended' THEN 'delivering' ELSE state END "
    "WHERE activity_execution_id = :execution_id RETURNING body"
)


async def keep_body(connection: Connection, execution_id: UUID, body: bytes) -> bytes:
    """The bytes that every attempt sends (I6): the first ones ever built."""
    kept = await connection.scalar(_KEEP_BODY, {"execution_id": execution_id, "body": body})
    assert isinstance(kept, bytes)  # noqa: S101 (the row was written with the intent)
    return kept


async def begin_attempt(
    connection: Connection, attempt_id: UUID, execution_id: UUID, *, temporal_attempt: int, worker: str
) -> None:
    await connection.execute(
        pg_insert(ops_attempts)
        .values(
            activity_attempt_id=attempt_id,
            activity_execution_id=execution_id,
            temporal_attempt=temporal_attempt,
            worker=worker,
        )
        .on_conflict_do_nothing()
    )


_END_ATTEMPT = text(
    """
    UPDATE ops_attempts SET ended_at = clock_timestamp(), outcome = :outcome, late = :late, http_status = :http_status,
      error = :error
    WHERE activity_attempt_id = :attempt_id AND ended_at IS NULL
    """
)


async def end_attempt(
    connection: Connection,
    attempt_id: UUID,
    *,
    outcome: str,
    late: bool = False,
    http_status: int | None = None,
    error: str | None = None,
) -> None:
    """The one terminal outcome of an attempt (R41)."""
    params = {"attempt_id": attempt_id, "outcome": outcome, "late": late, "http_status": http_status, "error": error}
    await connection.execute(_END_ATTEMPT, params)


async def attempts(connection: Connection, task_id: str) -> list[AttemptRecord]:
    """Oldest first; ix_ops_runs_task_id, ix_ops_attempts_activity_execution_id_started_at."""
    query = (
        select(ops_attempts)
        .join(ops_runs, ops_runs.c.activity_execution_id == ops_attempts.c.activity_execution_id)
        .where(ops_runs.c.task_id == task_id)
        .order_by(ops_attempts.c.started_at)
    )
    return [AttemptRecord(*row) for row in await connection.execute(query)]


async def run_attempts(connection: Connection, run_id: UUID, limit: int) -> list[tuple[str, AttemptRecord]]:
    """(task id, attempt) over all tasks of a run, newest first; ix_ops_runs_run_id."""
    query = (
        select(*ops_attempts.c, ops_runs.c.task_id.label("of_task"))
        .join(ops_runs, ops_runs.c.activity_execution_id == ops_attempts.c.activity_execution_id)
        .where(ops_runs.c.run_id == run_id)
        .order_by(ops_attempts.c.started_at.desc())
        .limit(limit)
    )
    return [(row[-1], AttemptRecord(*row[:-1])) for row in await connection.execute(query)]
