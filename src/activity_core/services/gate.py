"""The gate: `log_run` is the only way from a waiting row to a run, in one transaction with the settle that allows it.

It is what makes at-most-once hold after Temporal forgot the workflow (R8).
"""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from activity_core.domain import ids
from activity_core.domain.documents import Activity, CronTrigger
from activity_core.services.definitions import Definitions
from activity_core.services.settle import previous_nominal, settle_locked
from activity_core.store import ledger, runs
from activity_core.store.database import Connection, Database
from activity_core.store.ledger import OccurrenceRecord, TriggerState

# A start later than this after an event or request is called late. (A time within its grace is on time.)
LATE_AFTER_SECONDS = 60.0

Verdict = Literal["go", "refused", "later"]


@dataclass(frozen=True, slots=True)
class Passed:
    """`go`: the run is this execution's. `refused`: the row was decided otherwise. `later`: it still waits."""

    verdict: Verdict
    run_id: uuid.UUID
    revision: int = 0


async def log_run(
    connection: Connection, definitions: Definitions, activity_id: uuid.UUID, key: str, execution_run_id: str
) -> Passed:
    """Turn the row into a run if it may run now. A repeat by the same execution answers `go` again. Does not commit.

    Events are usually started by `start_event_run`; what comes here of them is a repeat, or was decided meanwhile.
    """
    workflow_id = ids.run_workflow_id(activity_id, key)
    run_id = ids.run_id(workflow_id)
    state = await ledger.lock(connection, activity_id)
    if state is None:
        return Passed("refused", run_id)
    occurrence = await ledger.by_key(connection, activity_id, key)
    if occurrence is not None and occurrence.outcome == "started":
        run = await runs.owner(connection, run_id)
        return Passed("go" if run == execution_run_id else "refused", run_id, occurrence.revision)
    if occurrence is not None and occurrence.outcome != "waiting":
        return Passed("refused", run_id)
    now = state.now
    if ids.key_kind(key) == "time":
        settled = await settle_locked(connection, definitions, state)
        occurrence, now = await ledger.by_key(connection, activity_id, key), settled.through
        if occurrence is None or occurrence.outcome != "waiting":
            return Passed("refused", run_id)
        if settled.plan.head != occurrence.scheduled_for:
            return Passed("later", run_id)
    if occurrence is None:
        return Passed("refused", run_id)
    activity = await definitions.get(connection, activity_id, occurrence.revision)
    if not await _start(connection, state, occurrence, activity, workflow_id, run_id, execution_run_id, now):
        # an event's row may be started without the ledger's lock: then the one that did owns the run
        owner = await runs.owner(connection, run_id)
        return Passed("go" if owner == execution_run_id else "refused", run_id, occurrence.revision)
    return Passed("go", run_id, occurrence.revision)


async def _start(
    connection: Connection,
    state: TriggerState,
    occurrence: OccurrenceRecord,
    activity: Activity,
    workflow_id: str,
    run_id: uuid.UUID,
    execution_run_id: str,
    now: datetime,
) -> bool:
    waited = max(0.0, (now - occurrence.due_at).total_seconds())
    reason_code = "late" if occurrence.kind != "time" and waited > LATE_AFTER_SECONDS else "on_time"
    reason = f"started {waited:.1f} s after it was due"
    if not await ledger.start(connection, occurrence.id, run_id, reason_code, reason, now):
        return False
    window_start, window_end = occurrence.interval_start, occurrence.scheduled_for
    if occurrence.kind == "manual" and isinstance(activity.trigger, CronTrigger):
        # overlaps with the window of the next nominal time, which is what asking for a run in between means
        window_start, window_end = state.last_nominal or previous_nominal(activity.trigger, now), now
    await runs.log_run(
        connection,
        {
            "run_id": run_id,
            "workflow_id": workflow_id,
            "activity_id": occurrence.activity_id,
            "occurrence_id": occurrence.id,
            "revision": occurrence.revision,
            "triggered_by": occurrence.triggered_by,
            "owner_execution_run_id": execution_run_id,
            "scheduled_for": occurrence.scheduled_for,
            "event_uuid": occurrence.event_uuid,
            "window_start": window_start,
            "window_end": window_end,
            "started_at": now,
        },
    )
    return True


class Gate:
    """The gate for events and requests whose workflow ended before it could pass (see `adopt`)."""

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
            await runs.end(
                connection,
                passed.run_id,
                status=status,
                result=None,
                reason=f"its workflow ended ({status}) before its first step",
                finished_at=finished_at,
            )
            await ledger.wake_if_waiting(connection, activity_id)
            return True
