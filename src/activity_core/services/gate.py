"""The gate: `log_run` is the only way from a waiting row to a run, in one transaction with the settle that allows it.

It is what makes at-most-once hold after Temporal forgot the workflow (R8).
"""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from activity_core.domain import ids
from activity_core.domain.documents import Activity, TimeTrigger, times_of
from activity_core.domain.planner import MERGED, Head, covered_by
from activity_core.services.definitions import Definitions
from activity_core.services.ends import end_run
from activity_core.services.settle import settle_locked
from activity_core.store import event_rows, ledger, runs, time_rows, trigger_state
from activity_core.store.database import Connection, Database
from activity_core.store.ledger import OccurrenceRecord
from activity_core.store.trigger_state import TriggerState

# A start later than this after an event or request is called late. (A time within its grace is on time.)
LATE_AFTER_SECONDS = 60.0
HELD_REASONS = frozenset({"paused", "frozen", "concurrency"})

Verdict = Literal["go", "refused", "later"]


@dataclass(frozen=True, slots=True)
class Passed:
    """`go`: the run is this execution's. `refused`: the row was decided otherwise. `later`: it still waits."""

    verdict: Verdict
    run_id: uuid.UUID
    revision: int = 0


@dataclass(frozen=True, slots=True)
class _Start:
    """What becomes of a row that may run now: why, what it covers, and of when its run tells."""

    now: datetime
    reason_code: str
    window_start: datetime | None = None
    window_end: datetime | None = None
    covers: dict[str, Any] | None = None
    merged: tuple[datetime, ...] = ()


async def log_run(
    connection: Connection, definitions: Definitions, activity_id: uuid.UUID, key: str, execution_run_id: str
) -> Passed:
    """Turn the row into a run if it may run now. A repeat by the same execution answers `go` again. Does not commit.

    Events are usually started by `start_event_run`; what comes here of them is a repeat, is held, or was decided meanwhile.
    """
    run_id = ids.run_id(ids.run_workflow_id(activity_id, key))
    state = await trigger_state.lock(connection, activity_id)
    if state is None:
        return Passed("refused", run_id)
    occurrence = await ledger.by_key(connection, activity_id, key)
    if occurrence is not None and occurrence.outcome == "started":
        return await _owned(connection, occurrence, run_id, execution_run_id)
    if occurrence is not None and occurrence.outcome != "waiting":
        return Passed("refused", run_id)
    if ids.key_kind(key) == "time":
        start = await _time_start(connection, definitions, state, key)
        occurrence = await ledger.by_key(connection, activity_id, key)
        if occurrence is None or occurrence.outcome != "waiting":
            return Passed("refused", run_id)
    elif occurrence is None:
        return Passed("refused", run_id)
    elif occurrence.kind == "manual":
        start = await _request_start(connection, definitions, state, occurrence)
    else:
        start = None if _is_held(occurrence, state.now) else _plain_start(state, occurrence)
    if start is None:
        return Passed("later", run_id)
    if not await _start(connection, occurrence, start, run_id, execution_run_id):
        # an event's row may be started without the ledger's lock: then the one that did owns the run
        return await _owned(connection, occurrence, run_id, execution_run_id)
    return Passed("go", run_id, occurrence.revision)


def _is_held(occurrence: OccurrenceRecord, now: datetime) -> bool:
    """A workflow may ask for a row that was let go once and is held again."""
    early = occurrence.not_before is not None and occurrence.not_before > now
    return early or occurrence.reason_code in HELD_REASONS


async def _owned(
    connection: Connection, occurrence: OccurrenceRecord, run_id: uuid.UUID, execution_run_id: str
) -> Passed:
    owner = await runs.owner(connection, run_id)
    return Passed("go" if owner == execution_run_id else "refused", run_id, occurrence.revision)


async def _time_start(connection: Connection, definitions: Definitions, state: TriggerState, key: str) -> _Start | None:
    """How a time may start; None while it may not. Settles, so that the row is decided if that is due."""
    settled = await settle_locked(connection, definitions, state)
    occurrence = await ledger.by_key(connection, state.activity_id, key)
    if occurrence is None or occurrence.scheduled_for is None:
        return None
    head = covered_by(settled.planned.plan, occurrence.scheduled_for)
    if head is None:
        return None
    return _Start(
        settled.through,
        _time_reason(settled.activity, occurrence, settled.through),
        head.window_start,
        head.scheduled_for,
        _covers(head),
        head.members[:-1],
    )


def _time_reason(activity: Activity, occurrence: OccurrenceRecord, now: datetime) -> str:
    if occurrence.plan_as == "run":
        return "backfill"
    trigger = activity.trigger
    grace = trigger.misfire_grace_seconds if isinstance(trigger, TimeTrigger) else 0
    return "late" if now - occurrence.due_at > timedelta(seconds=grace) else "on_time"


def _covers(head: Head) -> dict[str, Any]:
    first, last = head.members[0], head.members[-1]
    return {"first": ids.format_nominal(first), "last": ids.format_nominal(last), "count": len(head.members)}


async def _request_start(
    connection: Connection, definitions: Definitions, state: TriggerState, occurrence: OccurrenceRecord
) -> _Start | None:
    """How a manual request may start; None while it waits for the runs and requests before it."""
    if occurrence.plan_as == "wait":
        first = await ledger.first_to_wait(connection, state.activity_id)
        if await runs.has_open(connection, state.activity_id) or (first is not None and first.id != occurrence.id):
            return None
    start = _plain_start(state, occurrence)
    if occurrence.rerun_of is not None:
        original = await runs.by_id(connection, occurrence.rerun_of)
        if original is not None:
            return replace(
                start,
                window_start=original.window_start,
                window_end=original.window_end,
                covers=original.covers,
            )
    activity = await definitions.get(connection, state.activity_id, occurrence.revision)
    times = times_of(activity.trigger)
    if times is None:
        return start
    # overlaps with the window of the next nominal time, which is what asking for a run in between means
    previous = state.last_nominal or times.previous_at_or_before(state.now)
    return replace(start, window_start=previous, window_end=state.now)


def _plain_start(state: TriggerState, occurrence: OccurrenceRecord) -> _Start:
    # what its debounce or rate limit had it wait for is no delay
    waited = (state.now - max(occurrence.due_at, occurrence.not_before or occurrence.due_at)).total_seconds()
    return _Start(state.now, "late" if waited > LATE_AFTER_SECONDS else "on_time")


async def _start(
    connection: Connection,
    occurrence: OccurrenceRecord,
    start: _Start,
    run_id: uuid.UUID,
    execution_run_id: str,
) -> bool:
    waited = max(0.0, (start.now - occurrence.due_at).total_seconds())
    reason = f"started {waited:.1f} s after it was due"
    if start.merged:
        reason += f", for {len(start.merged) + 1} times since {ids.format_nominal(start.merged[0])}"
    if not await ledger.start(connection, occurrence.id, run_id, start.reason_code, reason, start.now):
        return False
    if occurrence.group_key is not None:
        await event_rows.point_merged(connection, occurrence.id)
    if start.merged:
        await time_rows.decide_times(
            connection, occurrence.activity_id, MERGED, start.merged, start.now, merged_into=occurrence.id
        )
    await runs.log_run(
        connection,
        {
            "run_id": run_id,
            "workflow_id": ids.run_workflow_id(occurrence.activity_id, occurrence.key),
            "activity_id": occurrence.activity_id,
            "occurrence_id": occurrence.id,
            "revision": occurrence.revision,
            "triggered_by": "backfill" if occurrence.plan_as == "run" else occurrence.triggered_by,
            "owner_execution_run_id": execution_run_id,
            "scheduled_for": occurrence.scheduled_for,
            "event_uuid": occurrence.event_uuid,
            "window_start": start.window_start,
            "window_end": start.window_end,
            "covers": start.covers,
            "started_at": start.now,
            "concurrency_key": occurrence.concurrency_key,
        },
    )
    return True


class Gate:
    """The gate for those whose workflow ended before it could pass (see `adopt`)."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def record_ended(
        self,
        activity_id: uuid.UUID,
        key: str,
        *,
        execution_run_id: str,
        status: str,
        finished_at: datetime | None,
    ) -> bool:
        """Record a run whose workflow ended before `log_run`, with that end. False if the row may not run."""
        async with self._database.begin() as connection:
            passed = await log_run(connection, self._definitions, activity_id, key, execution_run_id)
            if passed.verdict != "go":
                return False
            await end_run(
                connection,
                activity_id,
                passed.run_id,
                status=status,
                result=None,
                reason=f"its workflow ended ({status}) before its first step",
                finished_at=finished_at,
            )
            return True
