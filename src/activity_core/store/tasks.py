"""Tasks, the intent to hand each to its consumer (`task_spawn_log`), deliveries (`ops_runs`) and their attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, Select, Text, Uuid, bindparam, select, text
from sqlalchemy.dialects.postgresql import JSONB

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
    """What a change of state did. `open_tasks`, `run_workflow_id`: of the run, when the task held it and does no more."""

    run_id: UUID
    forwards: bool
    params: Any
    open_tasks: int | None
    run_workflow_id: str | None


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


_RECORD_PLAN = text(
    """
    WITH planned AS (
      UPDATE activity_runs SET planned_at = clock_timestamp(), plan_reason = :reason, wave = 0, waves = :waves,
        open_tasks = :open_tasks
      WHERE run_id = :run_id AND planned_at IS NULL AND is_open
      RETURNING run_id, activity_id, planned_at
    ), tasks AS (
      SELECT t.*, planned.run_id, planned.activity_id
      FROM planned, jsonb_to_recordset(:rows) AS t(id text, uuid uuid, execution_id uuid, task_type text, index int,
        wave int, consumer text, delivery jsonb, params jsonb, detached bool)
    ), instances AS (
      INSERT INTO task_instances (id, uuid, run_id, activity_id, task_type, index, wave, consumer, delivery, params,
                                  detached, state, state_rank)
      SELECT id, uuid, run_id, activity_id, task_type, index, wave, consumer, delivery, params, detached, 'pending', 0
      FROM tasks
      ON CONFLICT (id) DO UPDATE SET updated_at = task_instances.updated_at
    ), spawn AS (
      INSERT INTO task_spawn_log (consumer_reference, task_id, run_id, consumer)
      SELECT id, id, run_id, consumer FROM tasks
      ON CONFLICT DO NOTHING
    ), deliveries AS (
      INSERT INTO ops_runs (activity_execution_id, idempotency_key, task_id, run_id, consumer, state)
      SELECT execution_id, execution_id::text, id, run_id, consumer, 'intended' FROM tasks
      ON CONFLICT DO NOTHING
    )
    SELECT planned_at FROM planned
    """
).bindparams(bindparam("rows", type_=JSONB), bindparam("reason", type_=Text()))


async def record_plan(
    connection: Connection, run_id: UUID, *, reason: str | None, waves: int, open_tasks: int, tasks: Sequence[NewTask]
) -> datetime | None:
    """Record the plan with the intents to spawn it, in one statement, once (R31, R35): when; None if it was before, or the
    run has ended."""
    rows = [{name: _plain(getattr(task, name)) for name in NewTask.__dataclass_fields__} for task in tasks]
    params = {"run_id": run_id, "reason": reason, "waves": waves, "open_tasks": open_tasks, "rows": rows}
    return (await connection.execute(_RECORD_PLAN, params)).scalar_one_or_none()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


@dataclass(frozen=True, slots=True)
class Startable:
    id: str
    consumer: str
    delivery: dict[str, Any]


async def startable(connection: Connection, run_id: UUID, wave: int) -> list[Startable]:
    """Tasks of a wave that are not handed over; unique index led by run_id. One that is being delivered has a workflow, or
    had one that Temporal forgot: to start it again is harmless in the first case and needed in the second."""
    t = task_instances.c
    query = (
        select(t.id, t.consumer, t.delivery)
        .where(t.run_id == run_id, t.wave == wave, t.state.in_(("pending", "delivering")))
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


_ORPHANS = text(
    """
    SELECT t.id, t.state FROM task_instances t JOIN activity_runs r ON r.run_id = t.run_id
    WHERE t.ended_at IS NULL AND t.state IN ('pending', 'delivering') AND NOT r.is_open
      AND t.updated_at < clock_timestamp() - make_interval(secs => :older_seconds) AND t.id > :after
    ORDER BY t.id LIMIT :limit
    """
)


async def orphans(connection: Connection, *, older_seconds: float, after: str, limit: int) -> list[tuple[str, str]]:
    """(id, state), by id, of tasks that are not handed over and whose run has ended; index ix_task_instances_open."""
    params = {"older_seconds": older_seconds, "after": after, "limit": limit}
    return [(row.id, row.state) for row in await connection.execute(_ORPHANS, params)]


_MOVE = text(
    """
    WITH before AS (
      SELECT id, run_id, state_rank, detached, params, CASE WHEN detached THEN :handed_over ELSE :ended END AS held_below
      FROM task_instances WHERE id = :id FOR UPDATE
    ), moved AS (
      UPDATE task_instances t SET state = :state, state_rank = :rank, reason = coalesce(:reason, t.reason),
        output = coalesce(:output, t.output), updated_at = clock_timestamp(),
        ended_at = CASE WHEN :rank >= :ended THEN clock_timestamp() END
      FROM before WHERE t.id = before.id AND before.state_rank < :rank
      RETURNING t.run_id, before.state_rank < before.held_below AND before.held_below <= :rank AS released
    ), spawned AS (
      UPDATE task_spawn_log SET spawned_at = coalesce(spawned_at, clock_timestamp()),
        external_reference = coalesce(external_reference, :reference)
      WHERE task_id = (SELECT :id FROM moved)
    ), delivered AS (
      UPDATE ops_runs SET state = :delivery, http_status = :http_status, error = :error,
        delivered_at = CASE WHEN :delivery = 'delivered' THEN clock_timestamp() END
      WHERE task_id = (SELECT :id FROM moved) AND state IN ('intended', 'delivering')
    ), attempt AS (
      UPDATE ops_attempts SET ended_at = clock_timestamp(), outcome = :delivery, http_status = :http_status,
        late = NOT EXISTS (SELECT 1 FROM moved),
        error = CASE WHEN EXISTS (SELECT 1 FROM moved) THEN :error ELSE :late_error END
      WHERE activity_attempt_id = :attempt_id AND ended_at IS NULL
    ), lowered AS (
      UPDATE activity_runs SET open_tasks = open_tasks - 1
      WHERE run_id = (SELECT run_id FROM moved WHERE released)
      RETURNING open_tasks, workflow_id
    )
    SELECT before.run_id, EXISTS (SELECT 1 FROM moved), before.params, lowered.open_tasks, lowered.workflow_id
    FROM before LEFT JOIN lowered ON true
    """
).bindparams(
    bindparam("output", type_=JSONB(none_as_null=True)),
    bindparam("attempt_id", type_=Uuid()),
    *(
        bindparam(name, type_=Text())
        for name in ("id", "state", "reason", "reference", "delivery", "error", "late_error")
    ),
    *(bindparam(name, type_=Integer()) for name in ("rank", "http_status", "handed_over", "ended")),
)
LATE = "the task had ended already; the effect may have happened"


async def move(
    connection: Connection,
    task_id: str,
    state: str,
    *,
    delivery: str,
    reason: str | None = None,
    output: Any = None,
    reference: str | None = None,
    http_status: int | None = None,
    error: str | None = None,
    attempt_id: UUID | None = None,
) -> Moved | None:
    """Move a task forwards with all that goes with it, in one statement; None if there is no such task.

    `delivery` (`delivered`, `failed`, `cancelled`) ends its delivery, once; the consumer's own reference is set once. A
    state that is no step forwards changes nothing (I11), and its attempt is recorded as late (R41). A task that held its
    run and does no more is counted out of `open_tasks`; a detached one holds it only until it was handed over.
    """
    row = (
        await connection.execute(
            _MOVE,
            {
                "id": task_id,
                "state": state,
                "rank": RANKS[state],
                "handed_over": RANKS["waiting"],
                "ended": RANKS["completed"],
                "delivery": delivery,
                "reason": reason,
                "output": output,
                "reference": reference,
                "http_status": http_status,
                "error": error,
                "late_error": LATE,
                "attempt_id": attempt_id,
            },
        )
    ).one_or_none()
    return None if row is None else Moved(*row)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A task with all that a delivery of it needs."""

    task_id: str
    run_id: UUID
    activity_id: UUID
    slug: str
    task_type: str
    consumer: str
    params: Any
    settings: dict[str, Any]
    state: str
    execution_id: UUID
    idempotency_key: str
    scheduled_for: datetime | None
    window_start: datetime | None
    window_end: datetime | None
    event_id: str | None
    created_at: datetime
    # The consumer's document as it is now; None when it is gone.
    consumer_document: dict[str, Any] | None


_DELIVERY = text(
    """
    SELECT t.id, t.run_id, t.activity_id, a.slug, t.task_type, t.consumer, t.params, t.delivery, t.state,
           o.activity_execution_id, o.idempotency_key, r.scheduled_for, r.window_start, r.window_end, e.event_id,
           t.created_at, c.effective
    FROM task_instances t
    LEFT JOIN consumers c ON c.slug = t.consumer AND c.deleted_at IS NULL
    JOIN ops_runs o ON o.task_id = t.id
    JOIN activity_runs r ON r.run_id = t.run_id
    JOIN activities a ON a.id = t.activity_id
    LEFT JOIN events e ON e.id = r.event_uuid
    WHERE t.id = :id
    """
).columns(params=JSONB, delivery=JSONB, effective=JSONB)


async def delivery(connection: Connection, task_id: str) -> Delivery | None:
    """Primary key of task_instances, ix_ops_runs_task_id."""
    row = (await connection.execute(_DELIVERY, {"id": task_id})).one_or_none()
    return Delivery(*row) if row else None


_BEGIN_ATTEMPT = text(
    """
    WITH task AS (
      UPDATE task_instances SET state = 'delivering', state_rank = 1, updated_at = clock_timestamp()
      WHERE id = :task_id AND state_rank <= 1
      RETURNING id
    ), attempt AS (
      INSERT INTO ops_attempts (activity_attempt_id, activity_execution_id, temporal_attempt, worker)
      VALUES (:attempt_id, :execution_id, :temporal_attempt, :worker)
      ON CONFLICT DO NOTHING
    )
    UPDATE ops_runs SET body = coalesce(body, :body),
      state = CASE WHEN state = 'intended' THEN 'delivering' ELSE state END
    -- after the task, as `move` takes them
    WHERE activity_execution_id = :execution_id AND (SELECT count(*) FROM task) >= 0 RETURNING body
    """
)


async def begin_attempt(
    connection: Connection,
    attempt_id: UUID,
    *,
    task_id: str,
    execution_id: UUID,
    temporal_attempt: int,
    worker: str,
    body: bytes,
) -> bytes:
    """Write down that an attempt begins; the bytes to send (I6): the first ones ever built for this delivery."""
    kept = await connection.scalar(
        _BEGIN_ATTEMPT,
        {
            "attempt_id": attempt_id,
            "task_id": task_id,
            "execution_id": execution_id,
            "temporal_attempt": temporal_attempt,
            "worker": worker,
            "body": body,
        },
    )
    assert isinstance(kept, bytes)  # noqa: S101 (the row was written with the intent)
    return kept


_END_ATTEMPT = text(
    """
    UPDATE ops_attempts a SET ended_at = clock_timestamp(), outcome = :outcome, http_status = :http_status,
      error = :error, late = EXISTS (
        SELECT 1 FROM ops_runs o JOIN task_instances t ON t.id = o.task_id
        WHERE o.activity_execution_id = a.activity_execution_id AND t.ended_at IS NOT NULL
      )
    WHERE activity_attempt_id = :attempt_id AND ended_at IS NULL
    """
)


async def end_attempt(
    connection: Connection,
    attempt_id: UUID,
    *,
    outcome: str,
    http_status: int | None = None,
    error: str | None = None,
) -> None:
    """The one terminal outcome of an attempt, late if its task had ended (R41)."""
    params = {"attempt_id": attempt_id, "outcome": outcome, "http_status": http_status, "error": error}
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
