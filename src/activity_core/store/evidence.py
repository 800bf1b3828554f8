"""Reads that only `why` makes: what else was about when an occurrence was due or decided."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from activity_core.store.database import Connection


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that was open at an instant. `finished_at` None: it is open."""

    run_id: uuid.UUID
    started_at: datetime
    finished_at: datetime | None


# Of the ended ones only the newest that had begun: one that ran through a thousand others is not looked for.
_OPEN_AT = text(
    """
    SELECT run_id, started_at, finished_at FROM (
      SELECT run_id, started_at, NULL::timestamptz AS finished_at FROM activity_runs
      WHERE activity_id = :id AND is_open AND started_at <= :at
      UNION ALL
      SELECT begun.run_id, begun.started_at, e.finished_at FROM (
        SELECT run_id, started_at FROM activity_runs WHERE activity_id = :id AND started_at <= :at
        ORDER BY started_at DESC, run_id DESC LIMIT 1000
      ) begun JOIN activity_run_ends e USING (run_id) WHERE e.finished_at > :at
    ) found ORDER BY started_at, run_id LIMIT :limit
    """
)


async def runs_open_at(connection: Connection, activity_id: uuid.UUID, at: datetime, *, limit: int) -> list[OpenRun]:
    """Runs that were open at an instant, oldest first; ix_activity_runs_activity_id_started_at_run_id."""
    rows = await connection.execute(_OPEN_AT, {"id": activity_id, "at": at, "limit": limit})
    return [OpenRun(*row) for row in rows]


_OPEN_BETWEEN = text(
    """
    SELECT r.run_id, r.started_at, e.finished_at FROM activity_runs r LEFT JOIN activity_run_ends e USING (run_id)
    WHERE r.activity_id = :id AND r.started_at < :until AND r.run_id <> :beside
      AND (e.finished_at IS NULL OR e.finished_at > :since)
    ORDER BY r.started_at DESC, r.run_id DESC LIMIT :limit
    """
)


async def runs_open_between(
    connection: Connection, activity_id: uuid.UUID, since: datetime, until: datetime, *, beside: uuid.UUID, limit: int
) -> list[OpenRun]:
    """Other runs that were open at some instant of [since, until), oldest first; the newest of them.
    ix_activity_runs_activity_id_started_at_run_id."""
    params = {"id": activity_id, "since": since, "until": until, "beside": beside, "limit": limit}
    return [OpenRun(*row) for row in await connection.execute(_OPEN_BETWEEN, params)][::-1]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """How many of the missed times of an outage were started, and how many are still to be."""

    started: int
    waiting: int


_CAUGHT_UP = text(
    """
    SELECT count(*) FILTER (WHERE outcome = 'started' AND reason_code = 'late'),
           count(*) FILTER (WHERE outcome = 'waiting')
    FROM occurrences
    WHERE activity_id = :id AND kind = 'time' AND due_at > :after AND due_at < :missed_before
    """
)


async def caught_up(
    connection: Connection, activity_id: uuid.UUID, after: datetime, missed_before: datetime
) -> CaughtUp:
    """Of the times that were due in between; index ix_occurrences_activity_id_due_at_id."""
    params = {"id": activity_id, "after": after, "missed_before": missed_before}
    row = (await connection.execute(_CAUGHT_UP, params)).one()
    return CaughtUp(row[0], row[1])
