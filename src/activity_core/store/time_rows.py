"""The ledger's rows of nominal times, written as sets. The caller of every write holds the activity's lock."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from activity_core.domain.planner import BACKFILL_PARALLEL, Decision, PlanAs, RunSpan, WaitingTime
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
class Waiting:
    """What waits, oldest first, and which of it was asked of the schedule as catch-up."""

    times: list[WaitingTime]
    issued: frozenset[datetime]


_WAITING = text(
    """
    SELECT scheduled_for, interval_start, plan_as, due_at, issued FROM (
      SELECT * FROM occurrences
      WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'time' AND plan_as IS DISTINCT FROM 'run'
      UNION ALL
      (SELECT * FROM occurrences WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'time' AND plan_as = 'run'
       ORDER BY scheduled_for LIMIT :backfilled)
    ) waiting ORDER BY scheduled_for
    """
)


async def waiting_times(connection: Connection, activity_id: uuid.UUID) -> Waiting:
    """Oldest first; index ix_occurrences_waiting_times. Of backfilled times, which run one after the other, the first."""
    rows = (await connection.execute(_WAITING, {"id": activity_id, "backfilled": BACKFILL_PARALLEL})).all()
    none = timedelta(0)
    times = [
        WaitingTime(nominal, start, plan_as, due - nominal if due != nominal else none)
        for nominal, start, plan_as, due, _ in rows
    ]
    return Waiting(times, frozenset(row.scheduled_for for row in rows if row.issued))


_SPANS = text(
    """
    SELECT started_at, NULL::timestamptz FROM activity_runs WHERE activity_id = :id AND is_open
    UNION ALL
    SELECT started_at, finished_at FROM activity_run_ends WHERE activity_id = :id AND finished_at > :since
    """
)


async def run_spans(connection: Connection, activity_id: uuid.UUID, since: datetime) -> list[RunSpan]:
    """Runs open now or ended after `since`; ix_activity_runs_open, ix_activity_run_ends_activity_id_finished_at."""
    rows = await connection.execute(_SPANS, {"id": activity_id, "since": since})
    return [RunSpan(began, ended) for began, ended in rows]


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
    "UPDATE occurrences SET reason_code = 'due', reason = 'matched, not started yet', start_after = clock_timestamp() "
    "WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'event' AND start_after = 'infinity'"
)
_SKIP_EVENTS = text(
    "UPDATE occurrences SET outcome = 'skipped', reason = reason || '; it was ended with events: skip', decided_at = :now "
    "WHERE activity_id = :id AND outcome = 'waiting' AND kind = 'event' AND start_after = 'infinity'"
)


async def release(connection: Connection, activity_id: uuid.UUID, *, events: str, now: datetime) -> None:
    """Nothing holds what waits any more: times are planned again; events are started (`run`) or skipped (`skip`)."""
    await connection.execute(_RELEASE_TIMES, {"id": activity_id})
    if events == "skip":
        await connection.execute(_SKIP_EVENTS, {"id": activity_id, "now": now})
    else:
        await connection.execute(_RELEASE_EVENTS, {"id": activity_id})


_COUNT_HELD = text(
    "SELECT count(*) FILTER (WHERE kind = 'time'), count(*) FILTER (WHERE kind = 'event') FROM occurrences "
    "WHERE activity_id = :id AND outcome = 'waiting' AND kind <> 'manual'"
)


async def count_waiting(connection: Connection, activity_id: uuid.UUID) -> tuple[int, int]:
    """(times, events) that wait; index ix_occurrences_waiting."""
    row = (await connection.execute(_COUNT_HELD, {"id": activity_id})).one()
    return row[0], row[1]
