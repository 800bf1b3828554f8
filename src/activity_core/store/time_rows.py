"""The ledger's rows of nominal times, written as sets. The caller of every write holds the activity's lock."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from activity_core.domain.planner import BACKFILL_PARALLEL, Decision, PlanAs, RunSpan, WaitingTime
from activity_core.store import event_rows
from activity_core.store.database import Connection
from activity_core.store.tables import occurrences

_KEYS = bindparam("keys", type_=ARRAY(occurrences.c.key.type))
_TIMES = bindparam("times", type_=ARRAY(TIMESTAMP(timezone=True)))
_STARTS = bindparam("starts", type_=ARRAY(TIMESTAMP(timezone=True)))
_DUES = bindparam("dues", type_=ARRAY(TIMESTAMP(timezone=True)))


@dataclass(frozen=True, slots=True)
class NewTime:
    """`interval_start`: the nominal time before it; `due_at`: its nominal time plus its jitter."""

    key: str
    scheduled_for: datetime
    interval_start: datetime | None
    due_at: datetime


_INSERT = text(
    """
    INSERT INTO occurrences (activity_id, kind, key, revision, due_at, scheduled_for, interval_start,
                             triggered_by, outcome, reason_code, reason)
    SELECT :activity_id, 'time', t.key, :revision, t.due, t.nominal, t.interval_start,
           'schedule', 'waiting', :reason_code, :reason
    FROM unnest(:keys, :times, :starts, :dues) AS t(key, nominal, interval_start, due)
    ON CONFLICT (activity_id, key) DO NOTHING
    """
).bindparams(_KEYS, _TIMES, _STARTS, _DUES)


async def insert_times(
    connection: Connection,
    activity_id: uuid.UUID,
    revision: int,
    rows: Sequence[NewTime],
    *,
    reason_code: str,
    reason: str,
) -> None:
    """A waiting row for each; those that exist stay as they are."""
    await connection.execute(
        _INSERT,
        {
            "activity_id": activity_id,
            "revision": revision,
            "reason_code": reason_code,
            "reason": reason,
            "keys": [row.key for row in rows],
            "times": [row.scheduled_for for row in rows],
            "starts": [row.interval_start for row in rows],
            "dues": [row.due_at for row in rows],
        },
    )


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """`issued`: it was asked of the schedule as catch-up. `revision`: in force when it was due."""

    time: WaitingTime
    issued: bool
    revision: int


_WAITING = text(
    """
    SELECT scheduled_for, interval_start, plan_as, due_at, issued, revision FROM (
      SELECT * FROM occurrences
      WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'time' AND plan_as IS DISTINCT FROM 'run'
      UNION ALL
      (SELECT * FROM occurrences WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'time' AND plan_as = 'run'
       ORDER BY scheduled_for LIMIT :backfilled)
    ) waiting ORDER BY scheduled_for
    """
)


async def waiting_times(connection: Connection, activity_id: uuid.UUID) -> list[WaitingRow]:
    """Oldest first; index ix_occurrences_waiting_times. Of backfilled times, which run one after the other, the first."""
    rows = (await connection.execute(_WAITING, {"id": activity_id, "backfilled": BACKFILL_PARALLEL})).all()
    none = timedelta(0)
    return [
        WaitingRow(WaitingTime(nominal, start, plan_as, due - nominal if due != nominal else none), issued, revision)
        for nominal, start, plan_as, due, issued, revision in rows
    ]


_STILL_WAITING = text(
    """
    SELECT o.activity_id, o.scheduled_for FROM unnest(:ids, :times) AS t(activity_id, scheduled_for)
    JOIN occurrences o ON o.activity_id = t.activity_id AND o.scheduled_for = t.scheduled_for
    WHERE o.outcome = 'waiting' AND o.kind = 'time'
    """
).bindparams(_TIMES, bindparam("ids", type_=ARRAY(Uuid)))


async def still_waiting(
    connection: Connection, times: Sequence[tuple[uuid.UUID, datetime]]
) -> set[tuple[uuid.UUID, datetime]]:
    """Of these times of activities, those without an outcome; index ix_occurrences_waiting_times."""
    params = {"ids": [activity_id for activity_id, _ in times], "times": [time for _, time in times]}
    return {(row[0], row[1]) for row in await connection.execute(_STILL_WAITING, params)}


_SPANS = text(
    """
    SELECT started_at, NULL::timestamptz, triggered_by FROM activity_runs
    WHERE activity_id = :id AND is_open AND triggered_by <> 'event'
    UNION ALL
    SELECT r.started_at, e.finished_at, r.triggered_by FROM activity_run_ends e JOIN activity_runs r ON r.run_id = e.run_id
    WHERE e.activity_id = :id AND e.finished_at > :since AND r.triggered_by <> 'event'
    """
)


async def run_spans(connection: Connection, activity_id: uuid.UUID, since: datetime) -> list[RunSpan]:
    """Runs open now or ended after `since`; ix_activity_runs_open, ix_activity_run_ends_activity_id_finished_at.

    Not those of events, which an activity had before its trigger was changed: their ends wake nobody.
    """
    rows = await connection.execute(_SPANS, {"id": activity_id, "since": since})
    return [RunSpan(began, ended, triggered_by == "backfill") for began, ended, triggered_by in rows]


_DECIDE = text(
    "UPDATE occurrences SET outcome = :outcome, reason_code = :reason_code, reason = :reason, decided_at = :now, "
    "merged_into = :merged_into "
    "WHERE activity_id = :activity_id AND kind = 'time' AND outcome = 'waiting' AND scheduled_for = ANY(:times)"
).bindparams(_TIMES, bindparam("merged_into", type_=occurrences.c.merged_into.type))


async def decide_times(
    connection: Connection,
    activity_id: uuid.UUID,
    decision: Decision,
    times: Sequence[datetime],
    now: datetime,
    *,
    merged_into: uuid.UUID | None = None,
) -> None:
    """Give waiting times their outcome, as one set: joined to an unnested list it took minutes for 43,200 rows.

    `merged_into`: the occurrence whose run covers them.
    """
    await connection.execute(
        _DECIDE,
        {
            "activity_id": activity_id,
            "outcome": decision.outcome,
            "reason_code": decision.reason_code,
            "reason": decision.reason,
            "now": now,
            "merged_into": merged_into,
            "times": list(times),
        },
    )


_MARK_ISSUED = text(
    "UPDATE occurrences SET issued = true WHERE activity_id = :activity_id AND kind = 'time' AND outcome = 'waiting' "
    "AND scheduled_for = ANY(:times)"
).bindparams(_TIMES)


async def mark_issued(connection: Connection, activity_id: uuid.UUID, times: Sequence[datetime]) -> None:
    """Their catch-up is asked of the schedule: in the transaction before it is, so that it is asked once."""
    await connection.execute(_MARK_ISSUED, {"activity_id": activity_id, "times": list(times)})


_PLAN_AS = text(
    "UPDATE occurrences SET plan_as = :plan_as WHERE activity_id = :activity_id AND kind = 'time' AND outcome = 'waiting' "
    "AND due_at <= :until AND (plan_as IS NULL OR (:replace AND plan_as <> 'run'))"
)


async def plan_waiting_as(
    connection: Connection, activity_id: uuid.UUID, plan_as: PlanAs, *, until: datetime, replace: bool
) -> None:
    """Let what waits and was due by `until` be decided so, whatever the policy; `replace`: also what was marked before.

    Backfilled times stay what they are.
    """
    params = {"activity_id": activity_id, "plan_as": plan_as, "until": until, "replace": replace}
    await connection.execute(_PLAN_AS, params)


_HOLD = text(
    """
    UPDATE occurrences SET reason_code = :reason_code, reason = :reason,
      start_after = CASE WHEN kind = 'event' THEN 'infinity' ELSE start_after END
    WHERE activity_id = ANY(:ids) AND outcome = 'waiting' AND kind <> 'manual'
    """
)


async def hold(connection: Connection, activity_ids: Sequence[uuid.UUID], *, reason_code: str, reason: str) -> None:
    """Let what waits say that it is held, and keep held events from being started. Requests are not held."""
    params = {"ids": list(activity_ids), "reason_code": reason_code, "reason": reason}
    await connection.execute(_HOLD, params)


_RELEASE_TIMES = text(
    "UPDATE occurrences SET reason_code = 'due', reason = 'due, not decided yet' "
    "WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'time'"
)
_RELEASE_EVENTS = text(
    """
    UPDATE occurrences SET
      reason_code = CASE WHEN concurrency_key IS NULL THEN 'due' ELSE 'concurrency' END,
      reason = CASE WHEN concurrency_key IS NULL THEN 'matched, not started yet'
                    ELSE 'waits until fewer runs of its concurrency key are open' END,
      start_after = CASE WHEN concurrency_key IS NULL
                         THEN greatest(clock_timestamp(), coalesce(not_before, '-infinity')) ELSE 'infinity' END
    WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'event' AND start_after = 'infinity'
    """
)
_SKIP_EVENTS = text(
    "UPDATE occurrences SET outcome = 'skipped', reason = reason || '; it was ended with events: skip', decided_at = :now "
    "WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'event' AND start_after = 'infinity'"
)


async def skip_held_events(connection: Connection, activity_id: uuid.UUID, now: datetime) -> None:
    """What the one who ended the hold said about them."""
    await connection.execute(_SKIP_EVENTS, {"id": activity_id, "now": now})


async def release(connection: Connection, activity_id: uuid.UUID) -> None:
    """Nothing holds what waits any more: times are planned again, events are started."""
    await connection.execute(_RELEASE_TIMES, {"id": activity_id})
    await connection.execute(_RELEASE_EVENTS, {"id": activity_id})
    await event_rows.release_queued(connection, activity_id)


_COUNT_HELD = text(
    "SELECT count(*) FILTER (WHERE kind = 'time'), count(*) FILTER (WHERE kind = 'event') FROM occurrences "
    "WHERE activity_id = :id AND outcome = 'waiting' AND kind <> 'manual'"
)


async def count_waiting(connection: Connection, activity_id: uuid.UUID) -> tuple[int, int]:
    """(times, events) that wait; index ix_occurrences_waiting."""
    row = (await connection.execute(_COUNT_HELD, {"id": activity_id})).one()
    return row[0], row[1]
