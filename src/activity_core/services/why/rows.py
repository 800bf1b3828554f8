"""Why, for an occurrence that has a row in the ledger."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from activity_core.domain import sentences as say
from activity_core.domain import zones
from activity_core.domain.documents import TimeTrigger, stored_activity, zone_of
from activity_core.domain.planner import BACKFILL_PARALLEL
from activity_core.services.reads import RunView, find_event
from activity_core.services.why import held
from activity_core.services.why.actions import actions_of
from activity_core.services.why.answers import Answer, Evidence, TaskAttempt
from activity_core.store import activities, backfills, evidence, ledger, runs, tasks, trigger_state
from activity_core.store.activities import ActivityRecord, RevisionRecord
from activity_core.store.backfills import BackfillRecord
from activity_core.store.database import Connection
from activity_core.store.events import EventRecord
from activity_core.store.evidence import OpenRun
from activity_core.store.holds import FreezeRecord, HoldRecord
from activity_core.store.ledger import OccurrenceRecord
from activity_core.store.runs import RunRecord
from activity_core.store.tasks import TaskFilter

MAX_ATTEMPTS = 50
MAX_INBOX = 5
MAX_OPEN_RUNS = 5
# Such rows were decided at once, whatever held the activity.
_NEVER_HELD = frozenset({"filtered", "filter_error", "dead_letter"})


@dataclass(slots=True)
class _Case:
    """A row with all that the store knows about it."""

    record: ActivityRecord
    row: OccurrenceRecord
    now: datetime
    revision: RevisionRecord | None = None
    event: EventRecord | None = None
    run: RunView | None = None
    covering: OccurrenceRecord | None = None
    original: RunRecord | None = None
    backfill: BackfillRecord | None = None
    holds: list[HoldRecord] = field(default_factory=list)
    open_runs: list[OpenRun] = field(default_factory=list)
    request_before: bool = False
    newer: say.NewerFacts | None = None
    attempts: list[TaskAttempt] = field(default_factory=list)
    inbox: list[uuid.UUID] = field(default_factory=list)

    @property
    def added(self) -> bool:
        """It is of a time that was never due: a backfill made the row."""
        return self.row.kind == "time" and self.row.triggered_by == "backfill"

    @property
    def looked_at(self) -> datetime | None:
        """When a worker first looked at a time, if that was long after it was due."""
        if self.row.scheduled_for is None or self.added:
            return None
        late = self.row.created_at - self.row.scheduled_for > say.EXPECTED_WITHIN
        return self.row.created_at if late else None


async def of_row(
    connection: Connection, record: ActivityRecord, row: OccurrenceRecord, event: EventRecord | None = None
) -> Answer:
    now = await trigger_state.clock(connection)
    case = _Case(record, row, now, event=event)
    case.revision = await activities.revision(connection, record.id, row.revision)
    if event is None and row.event_uuid is not None:
        case.event = await find_event(connection, str(row.event_uuid))
    if row.merged_into is not None:
        case.covering = await ledger.by_id(connection, row.merged_into)
    if row.backfill_id is not None:
        case.backfill = await backfills.by_id(connection, row.backfill_id)
    if row.rerun_of is not None:
        case.original = await runs.by_id(connection, row.rerun_of)
    await _look_at_run(connection, case)
    await _look_at_holds(connection, case)
    await _look_at_others(connection, case)
    return Answer(
        outcome=row.outcome,
        reason_code=_reason_code(case),
        sentence=say.of_row(_facts(case)),
        scheduled_for=row.scheduled_for,
        event_id=None if case.event is None else case.event.event_id,
        evidence=_evidence(case),
        run=case.run,
        attempts=case.attempts,
        actions=[
            *(await held.ways_out(connection, record, case.holds) if row.outcome == "waiting" else []),
            *actions_of(record, row, case.event, case.run, case.inbox, case.covering),
        ],
    )


async def _look_at_run(connection: Connection, case: _Case) -> None:
    """The row's run, or the one that covers it, with its tasks."""
    run_id = case.row.run_id if case.covering is None else case.covering.run_id
    run = None if run_id is None else await runs.by_id(connection, run_id)
    if run is None:
        return
    case.run = RunView(run, (await runs.task_counts(connection, [run.run_id]))[run.run_id])
    case.attempts = [TaskAttempt(*pair) for pair in await tasks.run_attempts(connection, run.run_id, MAX_ATTEMPTS)]
    where = TaskFilter(run_id=run.run_id, state="waiting")
    inbox = await tasks.listed(connection, where, cursor=None, limit=MAX_INBOX)
    case.inbox = [task.uuid for task in inbox.items]


async def _look_at_holds(connection: Connection, case: _Case) -> None:
    """What holds the row if it waits, else what held it before it was decided. Requests are not held."""
    row = case.row
    if row.kind == "manual":
        return
    if row.outcome == "waiting":
        case.holds = await held.holding(connection, case.record, case.now)
    elif row.outcome not in _NEVER_HELD and row.decided_at is not None:
        since = row.due_at
        if case.backfill is not None and row.reason_code == "backfill":
            since = case.backfill.requested_at
        case.holds = await held.held_between(connection, case.record, since, row.decided_at)


async def _look_at_others(connection: Connection, case: _Case) -> None:
    """What stands before a row that waits, or stood before one that was decided without a run."""
    row = case.row
    if row.outcome == "waiting" and row.due_at <= case.now:
        found = await evidence.runs_open_at(connection, row.activity_id, case.now, limit=BACKFILL_PARALLEL)
        case.open_runs = found if _blocked(case, len(found)) else []
        if row.kind == "manual" and row.plan_as == "wait":
            first = await ledger.first_to_wait(connection, row.activity_id)
            case.request_before = first is not None and first.id != row.id
    elif row.reason_code == "overlap":
        found = await evidence.runs_open_at(connection, row.activity_id, row.due_at, limit=MAX_OPEN_RUNS)
        case.open_runs = found
    elif row.kind == "time" and row.reason_code == "late" and row.outcome == "started" and case.run is not None:
        began, own = case.run.run.started_at, case.run.run.run_id
        case.open_runs = await evidence.runs_open_between(
            connection, row.activity_id, row.due_at, began, beside=own, limit=MAX_OPEN_RUNS
        )
    elif row.reason_code == "over_limit" and row.decided_at is not None:
        missed_before = row.decided_at - _grace(case)
        caught_up = await evidence.caught_up(connection, row.activity_id, row.due_at, missed_before)
        case.newer = say.NewerFacts(caught_up.started, caught_up.waiting)


def _grace(case: _Case) -> timedelta:
    trigger = stored_activity(case.record.effective).trigger
    return timedelta(seconds=trigger.misfire_grace_seconds if isinstance(trigger, TimeTrigger) else 0)


def _blocked(case: _Case, open_runs: int) -> bool:
    """Whether so many open runs keep the row from starting."""
    row = case.row
    if row.kind == "manual":
        return row.plan_as == "wait"
    trigger = stored_activity(case.record.effective).trigger
    if isinstance(trigger, TimeTrigger) and trigger.overlap_policy == "allow_all":
        return row.plan_as == "run" and open_runs >= BACKFILL_PARALLEL
    return row.kind == "time"


def _reason_code(case: _Case) -> str:
    """The ledger's; of a waiting row what is true now, which its row may show a little later."""
    if case.row.outcome != "waiting":
        return case.row.reason_code
    if case.holds:
        return "frozen" if isinstance(case.holds[0], FreezeRecord) else "paused"
    if case.row.kind == "manual" and (case.open_runs or case.request_before):
        return "overlap"
    return case.row.reason_code if case.row.reason_code in say.BY_RULE else "due"


def _facts(case: _Case) -> say.RowFacts:
    row = case.row
    run = None if case.run is None else case.run.run
    backfilled = row.reason_code == "backfill" or (row.outcome == "waiting" and row.plan_as == "run")
    return say.RowFacts(
        kind=row.kind,
        outcome=row.outcome,
        reason_code=row.reason_code,
        reason=row.reason,
        due_at=row.due_at,
        zone=_zone(case.revision),
        event_id=None if case.event is None else case.event.event_id,
        run=None if case.run is None else _run_facts(case.run, len(case.inbox)),
        scheduled_for=row.scheduled_for,
        holds=[held.facts(hold, case.now) for hold in case.holds],
        open_runs=[say.OpenRunFacts(str(run.run_id), run.started_at) for run in case.open_runs],
        request_before=case.request_before,
        looked_at=case.looked_at,
        now=case.now,
        covers=None if run is None else _covers(run.covers),
        merged_into=None if case.covering is None else case.covering.scheduled_for,
        merged_event=None if case.covering is None or case.covering.kind != "event" else case.covering.key,
        merged_outcome=None if case.covering is None else case.covering.outcome,
        not_before=case.row.not_before,
        newer=case.newer,
        backfill=_backfill_facts(case.backfill) if backfilled else None,
        rerun_of=None if row.rerun_of is None else str(row.rerun_of),
    )


def _run_facts(view: RunView, inbox: int) -> say.RunFacts:
    run = view.run
    waiting = max(inbox, view.task_counts.get("waiting", 0))
    return say.RunFacts(run.status, run.result, run.reason, run.started_at, run.finished_at, waiting)


def _covers(covers: Mapping[str, Any] | None) -> say.CoversFacts | None:
    return None if covers is None else say.CoversFacts(covers["first"], covers["last"], covers["count"])


def _backfill_facts(backfill: BackfillRecord | None) -> say.BackfillFacts | None:
    return None if backfill is None else say.BackfillFacts(backfill.requested_at, backfill.note)


def _zone(revision: RevisionRecord | None) -> ZoneInfo | None:
    trigger = None if revision is None else stored_activity(revision.effective).trigger
    return zones.load(zone_of(trigger)) if isinstance(trigger, TimeTrigger) else None


def _evidence(case: _Case) -> list[Evidence]:
    row, here = case.row, f"/v1/occurrences/{case.row.id}"
    found = []
    if case.revision is not None:
        where = f"/v1/activities/{row.activity_id}/revisions"
        what = f"revision {case.revision.revision} came into force"
        found.append(Evidence(case.revision.in_force_from, what, where))
    found += _occasion(case, here)
    if case.looked_at is not None:
        # the look that decides it at once begins before its row is written
        looked = case.looked_at if row.decided_at is None else min(case.looked_at, row.decided_at)
        found.append(Evidence(looked, "a worker looked at it for the first time", here))
    found += held.evidence(case.record, case.holds, case.now)
    found += _of_backfill(case.backfill)
    for run in case.open_runs:
        found += _of_run(run.run_id, run.started_at, run.finished_at, None, "another run of the activity")
    for earlier in row.history:
        if earlier.get("decided_at"):
            decided = datetime.fromisoformat(earlier["decided_at"])
            found.append(Evidence(decided, f"decided: {earlier['outcome']} ({earlier['reason']})", here))
    if row.decided_at is not None:
        found.append(Evidence(row.decided_at, f"decided: {row.outcome} ({row.reason})", here))
    if case.covering is not None:
        ref = f"/v1/occurrences/{case.covering.id}"
        when = case.covering.decided_at or case.covering.due_at
        what = "event" if case.covering.kind == "event" else "time"
        found.append(Evidence(when, f"the {what} that covers it: {case.covering.outcome}", ref))
    if case.run is not None:
        ended = case.run.run
        found += _of_run(ended.run_id, ended.started_at, ended.finished_at, ended.status, "the run")
    return sorted(found, key=lambda item: item.at)


def _occasion(case: _Case, here: str) -> list[Evidence]:
    """What the row is of."""
    row = case.row
    found = []
    if case.event is not None:
        accepted = f"the event was accepted (type {case.event.type})"
        found.append(Evidence(case.event.accepted_at, accepted, f"/v1/events/{case.event.id}"))
    if case.original is not None:
        original = case.original
        found += _of_run(
            original.run_id, original.started_at, original.finished_at, original.status, "the run to repeat"
        )
    if row.kind == "time":
        if row.scheduled_for is not None and row.scheduled_for != row.due_at:
            found.append(Evidence(row.scheduled_for, "its nominal time; its jitter comes on top", here))
        what = "its time, at which nothing was owed" if case.added else "it was due"
        found.append(Evidence(row.due_at, what if row.due_at <= case.now else "it is due", here))
    elif row.kind == "manual":
        found.append(Evidence(row.due_at, "it was asked for", here))
    return found


def _of_backfill(backfill: BackfillRecord | None) -> list[Evidence]:
    if backfill is None:
        return []
    ref = f"/v1/backfills/{backfill.id}"
    span = f"{say.instant(backfill.from_at)} to {say.instant(backfill.to_at)}"
    note = f" ({backfill.note})" if backfill.note else ""
    found = [Evidence(backfill.requested_at, f"somebody asked for a backfill of {span}{note}", ref)]
    if backfill.cancelled_at is not None:
        found.append(Evidence(backfill.cancelled_at, "the backfill was cancelled", ref))
    return found


def _of_run(
    run_id: uuid.UUID, started_at: datetime, finished_at: datetime | None, status: str | None, what: str
) -> list[Evidence]:
    ref = f"/v1/runs/{run_id}"
    found = [Evidence(started_at, f"{what} started", ref)]
    if finished_at is not None:
        found.append(Evidence(finished_at, f"{what} ended" + (f": {status}" if status else ""), ref))
    return found
