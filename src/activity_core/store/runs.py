"""Runs: an insert-only started fact, an insert-only terminal fact, and between them the counters of the tasks."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, func, select, text
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.dialects.postgresql import insert as pg_insert

from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, activity_run_ends, activity_runs, events, run_context, task_instances


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the gate recorded it, with its end if it has one."""

    run_id: uuid.UUID
    workflow_id: str
    activity_id: uuid.UUID
    slug: str
    occurrence_id: uuid.UUID
    revision: int
    triggered_by: str
    owner_execution_run_id: str
    scheduled_for: datetime | None
    event_uuid: uuid.UUID | None
    event_id: str | None
    window_start: datetime | None
    window_end: datetime | None
    covers: Any
    started_at: datetime
    planned_at: datetime | None
    plan_reason: str | None
    open_tasks: int
    wave: int
    waves: int
    status: str
    result: str | None
    reason: str | None
    finished_at: datetime | None


def _query() -> Select[Any]:
    r, e = activity_runs.c, activity_run_ends.c
    return (
        select(
            *(r.run_id, r.workflow_id, r.activity_id, activities.c.slug, r.occurrence_id, r.revision, r.triggered_by),
            *(r.owner_execution_run_id, r.scheduled_for, r.event_uuid, events.c.event_id, r.window_start, r.window_end),
            *(r.covers, r.started_at, r.planned_at, r.plan_reason, r.open_tasks, r.wave, r.waves),
            *(func.coalesce(e.status, "running"), e.result, e.reason, e.finished_at),
        )
        .join(activities, activities.c.id == r.activity_id)
        .outerjoin(events, events.c.id == r.event_uuid)
        .outerjoin(activity_run_ends, e.run_id == r.run_id)
    )


async def by_id(connection: Connection, run_id: uuid.UUID) -> RunRecord | None:
    """Primary key."""
    row = (await connection.execute(_query().where(activity_runs.c.run_id == run_id))).one_or_none()
    return RunRecord(*row) if row else None


@dataclass(frozen=True, slots=True)
class RunFilter:
    activity_id: uuid.UUID | None = None
    status: str | None = None
    event_uuid: uuid.UUID | None = None
    started_from: datetime | None = None
    started_to: datetime | None = None


async def listed(connection: Connection, where: RunFilter, *, cursor: Cursor | None, limit: int) -> Page[RunRecord]:
    """Newest first; indexes ix_activity_runs_activity_id_started_at_run_id, ix_activity_runs_started_at_run_id."""
    r, e = activity_runs.c, activity_run_ends.c
    query = _query()
    if where.activity_id is not None:
        query = query.where(r.activity_id == where.activity_id)
    if where.event_uuid is not None:
        query = query.where(r.event_uuid == where.event_uuid)
    if where.status is not None:
        query = query.where(r.is_open if where.status == "running" else e.status == where.status)
    if where.started_from is not None:
        query = query.where(r.started_at >= where.started_from)
    if where.started_to is not None:
        query = query.where(r.started_at < where.started_to)
    query = before(query, r.started_at, r.run_id, cursor, limit)
    rows = [RunRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.started_at, str(record.run_id)))


async def task_counts(connection: Connection, run_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, dict[str, int]]:
    """Tasks by state for each run; unique index (run_id, task_type, index)."""
    t = task_instances.c
    query = select(t.run_id, t.state, func.count()).where(t.run_id.in_(run_ids)).group_by(t.run_id, t.state)
    counts: dict[uuid.UUID, dict[str, int]] = {run_id: {} for run_id in run_ids}
    for run_id, state, count in await connection.execute(query):
        counts[run_id][state] = count
    return counts


async def log_run(connection: Connection, values: dict[str, Any]) -> None:
    """Insert the started fact (R34): a repeat leaves the first row's values."""
    await connection.execute(pg_insert(activity_runs).values(**values).on_conflict_do_nothing())


async def owner(connection: Connection, run_id: uuid.UUID) -> str | None:
    """The execution that owns the run."""
    query = select(activity_runs.c.owner_execution_run_id).where(activity_runs.c.run_id == run_id)
    return await connection.scalar(query)


async def has_open(connection: Connection, activity_id: uuid.UUID) -> bool:
    """Index ix_activity_runs_open."""
    r = activity_runs.c
    query = select(r.run_id).where(r.activity_id == activity_id, r.is_open).limit(1)
    return (await connection.scalar(query)) is not None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What `advance` needs to know of a run, in one read. `status` is None while it is open; `task_states`, how many tasks
    are in each state, is there when nothing holds the last wave any more."""

    run_id: uuid.UUID
    workflow_id: str
    activity_id: uuid.UUID
    occurrence_id: uuid.UUID
    revision: int
    triggered_by: str
    scheduled_for: datetime | None = None
    event_uuid: uuid.UUID | None = None
    window_start: datetime | None = None
    window_end: datetime | None = None
    covers: Any = None
    planned_at: datetime | None = None
    plan_reason: str | None = None
    open_tasks: int = 0
    wave: int = -1
    waves: int = 0
    status: str | None = None
    task_states: dict[str, int] | None = None
    concurrency_key: str | None = None
    group_key: str | None = None


_PROGRESS = text(
    """
    SELECT r.run_id, r.workflow_id, r.activity_id, r.occurrence_id, r.revision, r.triggered_by, r.scheduled_for,
           r.event_uuid, r.window_start, r.window_end, r.covers, r.planned_at, r.plan_reason, r.open_tasks, r.wave,
           r.waves, e.status,
           CASE WHEN r.planned_at IS NOT NULL AND r.open_tasks = 0 AND r.wave + 1 >= r.waves THEN (
             SELECT coalesce(jsonb_object_agg(state, n), '{}')
             FROM (SELECT state, count(*) AS n FROM task_instances WHERE run_id = r.run_id GROUP BY state) counted
           ) END AS task_states,
           r.concurrency_key
    FROM activity_runs r LEFT JOIN activity_run_ends e ON e.run_id = r.run_id
    WHERE r.run_id = :run_id
    """
).columns(task_states=JSONB, covers=JSONB)


async def progress(connection: Connection, run_id: uuid.UUID) -> RunProgress | None:
    row = (await connection.execute(_PROGRESS, {"run_id": run_id})).one_or_none()
    return RunProgress(*row) if row else None


_START_EVENT_RUN = text(
    """
    WITH started AS (
      UPDATE occurrences SET outcome = 'started', run_id = :run_id, reason_code =
          CASE WHEN clock_timestamp() - greatest(due_at, not_before) > make_interval(secs => :late_after_seconds)
               THEN 'late' ELSE 'on_time' END,
        decided_at = clock_timestamp(), reason = 'started '
          || greatest(0.0, round(extract(epoch FROM clock_timestamp() - due_at), 1)) || ' s after it was due'
      WHERE activity_id = :activity_id AND key = :key AND outcome = 'waiting' AND kind = 'event' AND start_after < 'infinity'
        AND (not_before IS NULL OR not_before <= clock_timestamp())
      RETURNING id, revision, triggered_by, event_uuid, decided_at, group_key, concurrency_key
    ), run AS (
      INSERT INTO activity_runs (run_id, workflow_id, activity_id, occurrence_id, revision, triggered_by,
                                 owner_execution_run_id, event_uuid, started_at, concurrency_key)
      SELECT :run_id, :workflow_id, :activity_id, id, revision, triggered_by, :owner, event_uuid, decided_at,
             concurrency_key FROM started
      ON CONFLICT DO NOTHING
    )
    SELECT id, revision, triggered_by, event_uuid, group_key, concurrency_key FROM started
    """
)


async def start_event_run(
    connection: Connection,
    activity_id: uuid.UUID,
    key: str,
    *,
    workflow_id: str,
    run_id: uuid.UUID,
    owner: str,
    late_after_seconds: float,
) -> RunProgress | None:
    """`waiting` → `started` with its run, in one statement; None unless the row waits and nothing holds it.

    Unique key (activity_id, key).
    """
    params = {
        "activity_id": activity_id,
        "key": key,
        "workflow_id": workflow_id,
        "run_id": run_id,
        "owner": owner,
        "late_after_seconds": late_after_seconds,
    }
    row = (await connection.execute(_START_EVENT_RUN, params)).one_or_none()
    if row is None:
        return None
    return RunProgress(
        run_id=run_id,
        workflow_id=workflow_id,
        activity_id=activity_id,
        occurrence_id=row.id,
        revision=row.revision,
        triggered_by=row.triggered_by,
        event_uuid=row.event_uuid,
        group_key=row.group_key,
        concurrency_key=row.concurrency_key,
    )


_NEXT_WAVE = text(
    """
    UPDATE activity_runs r SET wave = r.wave + 1,
      open_tasks = (SELECT count(*) FROM task_instances t WHERE t.run_id = r.run_id AND t.wave = r.wave + 1
                    AND t.state = 'pending')
    WHERE r.run_id = :run_id AND r.wave = :wave AND r.open_tasks = 0 AND r.is_open
    """
)


async def next_wave(connection: Connection, run_id: uuid.UUID, wave: int) -> None:
    """Go on from `wave` when none of its tasks is open; nothing happens if somebody else did."""
    await connection.execute(_NEXT_WAVE, {"run_id": run_id, "wave": wave})


_END = text(
    """
    WITH ended AS (
      UPDATE activity_runs SET is_open = false WHERE run_id = :run_id AND is_open
      RETURNING run_id, activity_id, started_at
    )
    INSERT INTO activity_run_ends (run_id, activity_id, status, result, reason, started_at, finished_at)
    SELECT run_id, activity_id, :status, :result, :reason, started_at,
           greatest(started_at, coalesce(:finished_at, clock_timestamp()))
    FROM ended
    ON CONFLICT (run_id) DO NOTHING
    """
).bindparams(bindparam("finished_at", type_=TIMESTAMP(timezone=True)))


async def end(
    connection: Connection,
    run_id: uuid.UUID,
    *,
    status: str,
    result: str | None,
    reason: str | None,
    finished_at: datetime | None = None,
) -> bool:
    """Insert the terminal fact (R36); False if the run had ended. The caller holds the activity's lock."""
    params = {"run_id": run_id, "status": status, "result": result, "reason": reason, "finished_at": finished_at}
    return (await connection.execute(_END, params)).rowcount == 1


async def concurrency_key(connection: Connection, run_id: uuid.UUID) -> str | None:
    """Primary key."""
    return await connection.scalar(select(activity_runs.c.concurrency_key).where(activity_runs.c.run_id == run_id))


async def keep_context(connection: Connection, run_id: uuid.UUID, name: str, value: Any) -> None:
    """Record what a context source answered; the first answer stays."""
    await connection.execute(
        pg_insert(run_context).values(run_id=run_id, name=name, value=value).on_conflict_do_nothing()
    )


async def context(connection: Connection, run_id: uuid.UUID) -> dict[str, Any]:
    query = select(run_context.c.name, run_context.c.value).where(run_context.c.run_id == run_id)
    return {row[0]: row[1] for row in await connection.execute(query)}


_AT_WORK = text(
    "SELECT count(*) FROM activity_runs WHERE is_open "
    "AND started_at > clock_timestamp() - make_interval(secs => :younger_seconds)"
)


async def at_work(connection: Connection, younger_seconds: float) -> int:
    """How many young runs are open, of all processes; index ix_activity_runs_open."""
    return int(await connection.scalar(_AT_WORK, {"younger_seconds": younger_seconds}) or 0)


@dataclass(frozen=True, slots=True)
class OpenRun:
    run_id: uuid.UUID
    activity_id: uuid.UUID
    workflow_id: str
    open_tasks: int
    planned: bool
    age_seconds: float


_OPEN = text(
    """
    SELECT run_id, activity_id, workflow_id, open_tasks, planned_at IS NOT NULL,
           extract(epoch FROM clock_timestamp() - started_at)::float8
    FROM activity_runs
    WHERE is_open AND started_at < clock_timestamp() - make_interval(secs => :older_seconds)
      AND (CAST(:after AS uuid) IS NULL OR run_id > :after)
    ORDER BY run_id LIMIT :limit
    """
)


async def open_runs(
    connection: Connection, *, older_seconds: float, after: uuid.UUID | None, limit: int
) -> list[OpenRun]:
    """Runs that have been open for a while, by id; index ix_activity_runs_open."""
    rows = await connection.execute(_OPEN, {"older_seconds": older_seconds, "after": after, "limit": limit})
    return [OpenRun(*row) for row in rows]
