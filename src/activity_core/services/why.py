"""Why an activity did or did not run, from the ledger: for an instant, for an event, or for what was due last.

Every question has an answer: an instant that is no due time says so, with its neighbours.
"""

import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from activity_core.domain import ids, zones
from activity_core.domain import sentences as say
from activity_core.domain.documents import EventTrigger, TimeTrigger, stored_activity, times_of, zone_of
from activity_core.domain.event_types import matching_patterns
from activity_core.errors import NotFoundError
from activity_core.services.activities import find
from activity_core.services.reads import RunView, find_event
from activity_core.services.settle import next_due
from activity_core.store import activities, ledger, runs, tasks, trigger_state
from activity_core.store.activities import ActivityRecord, RevisionRecord
from activity_core.store.database import Connection, Database
from activity_core.store.events import EventRecord
from activity_core.store.ledger import OccurrenceFilter, OccurrenceRecord
from activity_core.store.tasks import AttemptRecord, TaskFilter

MAX_ATTEMPTS = 50
MAX_INBOX = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """`ref`: the API path where it can be read."""

    at: datetime
    what: str
    ref: str


@dataclass(frozen=True, slots=True)
class Action:
    label: str
    command: str


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The due times around the instant that was asked for."""

    previous: datetime | None = None
    next: datetime | None = None


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    task_id: str
    attempt: AttemptRecord


@dataclass(frozen=True, slots=True)
class Answer:
    """`outcome` is the ledger's, or `not_due`, `not_matched`, `no_such_event` where there is no row."""

    outcome: str
    reason_code: str
    sentence: str
    scheduled_for: datetime | None = None
    event_id: str | None = None
    evidence: list[Evidence] = field(default_factory=list)
    run: RunView | None = None
    attempts: list[TaskAttempt] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    neighbours: Neighbours = Neighbours()


class Why:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def at(self, ref: str, instant: datetime) -> Answer:
        """Why it did or did not run for a due time."""
        async with self._database.read() as connection:
            record = await _any(connection, ref)
            neighbours = await _neighbours(connection, record, instant)
            row = None
            if not instant.microsecond:
                row = await ledger.by_key(connection, record.id, ids.time_key(instant))
            if row is not None:
                answer = await _of_row(connection, record, row)
            else:
                answer = await _of_instant(connection, record, instant, neighbours)
        return replace(answer, neighbours=neighbours)

    async def event(self, ref: str, event_id: str) -> Answer:
        """Why it did or did not run for an event."""
        async with self._database.read() as connection:
            record = await _any(connection, ref)
            try:
                event = await find_event(connection, event_id)
            except NotFoundError:
                answer = Answer("no_such_event", "no_such_event", say.no_such_event(event_id), event_id=event_id)
                return replace(answer, actions=[Action("Send it", "POST /v1/events")])
            row = await ledger.by_key(connection, record.id, event.event_id)
            if row is not None:
                return await _of_row(connection, record, row, event)
            return await _of_unmatched(connection, record, event)

    async def last(self, ref: str) -> Answer:
        """Why it did or did not run for what was due last: a time, an event or a request."""
        async with self._database.read() as connection:
            record = await _any(connection, ref)
            row = await ledger.last_due(connection, record.id)
            if row is None:
                return await _of_nothing(connection, record)
            answer = await _of_row(connection, record, row)
            if row.scheduled_for is None:
                return answer
            return replace(answer, neighbours=await _neighbours(connection, record, row.scheduled_for))


async def _any(connection: Connection, ref: str) -> ActivityRecord:
    """A live activity, or a deleted one by its UUID: its ledger stays."""
    if ids.is_uuid(ref):
        record = await activities.by_id(connection, uuid.UUID(ref))
        if record is not None:
            return record
    return await find(connection, ref)


async def _of_row(
    connection: Connection, record: ActivityRecord, row: OccurrenceRecord, event: EventRecord | None = None
) -> Answer:
    revision = await activities.revision(connection, record.id, row.revision)
    if event is None and row.event_uuid is not None:
        event = await find_event(connection, str(row.event_uuid))
    run = await _run(connection, row.run_id)
    attempts, inbox = await _tasks(connection, row.run_id)
    facts = say.RowFacts(
        kind=row.kind,
        outcome=row.outcome,
        reason_code=row.reason_code,
        reason=row.reason,
        due_at=row.due_at,
        zone=_zone(revision),
        event_id=None if event is None else event.event_id,
        run=None if run is None else _run_facts(run, len(inbox)),
        blocked_by_run=row.outcome == "waiting" and await runs.has_open(connection, record.id),
    )
    return Answer(
        outcome=row.outcome,
        reason_code=row.reason_code,
        sentence=say.of_row(facts),
        scheduled_for=row.scheduled_for,
        event_id=facts.event_id,
        evidence=_evidence(row, revision, run, event),
        run=run,
        attempts=attempts,
        actions=_actions(record, row, run, inbox),
    )


async def _run(connection: Connection, run_id: uuid.UUID | None) -> RunView | None:
    run = None if run_id is None else await runs.by_id(connection, run_id)
    if run is None:
        return None
    return RunView(run, (await runs.task_counts(connection, [run.run_id]))[run.run_id])


async def _tasks(connection: Connection, run_id: uuid.UUID | None) -> tuple[list[TaskAttempt], list[uuid.UUID]]:
    """(attempts of the run's tasks, the first few of its tasks that wait in the inbox)."""
    if run_id is None:
        return [], []
    attempts = await tasks.run_attempts(connection, run_id, MAX_ATTEMPTS)
    where = TaskFilter(run_id=run_id, state="waiting")
    inbox = await tasks.listed(connection, where, cursor=None, limit=MAX_INBOX)
    return [TaskAttempt(*pair) for pair in attempts], [task.uuid for task in inbox.items]


def _run_facts(view: RunView, inbox: int) -> say.RunFacts:
    run = view.run
    waiting = max(inbox, view.task_counts.get("waiting", 0))
    return say.RunFacts(run.status, run.result, run.reason, run.started_at, run.finished_at, waiting)


def _zone(revision: RevisionRecord | None) -> ZoneInfo | None:
    trigger = None if revision is None else stored_activity(revision.effective).trigger
    return zones.load(zone_of(trigger)) if isinstance(trigger, TimeTrigger) else None


def _evidence(
    row: OccurrenceRecord, revision: RevisionRecord | None, run: RunView | None, event: EventRecord | None
) -> list[Evidence]:
    here = f"/v1/occurrences/{row.id}"
    found = []
    if revision is not None:
        where = f"/v1/activities/{row.activity_id}/revisions"
        found.append(Evidence(revision.in_force_from, f"revision {revision.revision} came into force", where))
    if event is not None:
        found.append(
            Evidence(event.accepted_at, f"the event was accepted (type {event.type})", f"/v1/events/{event.id}")
        )
    else:
        what = "it was due" if row.kind == "time" else "it was asked for"
        found.append(Evidence(row.due_at, what, here))
    for earlier in row.history:
        if earlier.get("decided_at"):
            decided = datetime.fromisoformat(earlier["decided_at"])
            found.append(Evidence(decided, f"decided: {earlier['outcome']} ({earlier['reason']})", here))
    if row.decided_at is not None:
        found.append(Evidence(row.decided_at, f"decided: {row.outcome} ({row.reason})", here))
    if run is not None:
        where = f"/v1/runs/{run.run.run_id}"
        found.append(Evidence(run.run.started_at, "the run started", where))
        if run.run.finished_at is not None:
            found.append(Evidence(run.run.finished_at, f"the run ended: {run.run.status}", where))
    return sorted(found, key=lambda item: item.at)


def _actions(
    record: ActivityRecord, row: OccurrenceRecord, run: RunView | None, inbox: list[uuid.UUID]
) -> list[Action]:
    complete = "Complete a task that waits in the inbox (--output JSON keeps what came of it)"
    actions = [Action(complete, f"activity-core tasks complete {task}") for task in inbox]
    if run is not None and run.run.status not in ("running", "completed"):
        actions.append(Action("See its tasks", f"activity-core tasks --run {run.run.run_id}"))
    if record.deleted_at is not None:
        return actions
    if row.outcome in ("filter_error", "disabled"):
        actions.append(Action("Mend the definition", "activity-core apply -f FILE"))
        actions.append(Action("Send the event again: it is decided again", "POST /v1/events"))
    elif row.outcome in ("skipped", "dropped") or (run is not None and run.run.status not in ("running", "completed")):
        actions.append(Action("Run it now", f"activity-core trigger {record.slug}"))
    return actions


async def _of_instant(connection: Connection, record: ActivityRecord, at: datetime, neighbours: Neighbours) -> Answer:
    """For an instant that has no row."""
    now = await trigger_state.clock(connection)
    slug = record.slug
    if at < record.created_at:
        return _not_due("before_creation", say.before_creation(slug, at, record.created_at), record, at)
    if record.deleted_at is not None and at >= record.deleted_at:
        return _not_due("after_deletion", say.after_deletion(slug, at, record.deleted_at), record, at)
    revision = await activities.revision_at(connection, record.id, at)
    number = record.revision if revision is None else revision.revision
    definition = stored_activity(record.effective if revision is None else revision.effective)
    trigger = definition.trigger
    times = times_of(trigger)
    if times is None:
        return _not_due("no_times", say.no_times(slug, trigger.type), record, at)
    if not definition.enabled:
        return _not_due("was_disabled", say.was_disabled(slug, at, number), record, at)
    if not times.is_due(at):
        sentence = say.no_due_time(slug, at, neighbours.previous, neighbours.next)
        return _not_due("no_due_time", sentence, record, at)
    if at > now:
        return _not_due("future", say.still_to_come(slug, at, now), record, at)
    through = await trigger_state.settled_through(connection, record.id)
    sentence = say.not_settled(slug, at, through, now)
    evidence = [] if through is None else [Evidence(through, "the ledger is complete up to here", _path(record))]
    return Answer("waiting", "not_settled", sentence, scheduled_for=at, evidence=evidence)


def _not_due(reason_code: str, sentence: str, record: ActivityRecord, at: datetime | None) -> Answer:
    evidence = [Evidence(record.created_at, "it was created", _path(record))]
    if record.deleted_at is not None:
        evidence.append(Evidence(record.deleted_at, "it was deleted", _path(record)))
    return Answer("not_due", reason_code, sentence, scheduled_for=at, evidence=evidence)


def _path(record: ActivityRecord) -> str:
    return f"/v1/activities/{record.id}"


async def _of_nothing(connection: Connection, record: ActivityRecord) -> Answer:
    """For an activity whose ledger is empty."""
    now = await trigger_state.clock(connection)
    definition = stored_activity(record.effective)
    following = None if record.deleted_at is not None else next_due(definition, now)
    enabled = definition.enabled and record.deleted_at is None
    sentence = say.nothing_yet(record.slug, record.created_at, definition.trigger.type, following, enabled=enabled)
    answer = _not_due("nothing_due_yet", sentence, record, None)
    actions = [Action("Run it now", f"activity-core trigger {record.slug}")] if enabled else []
    return replace(answer, actions=actions, neighbours=Neighbours(next=following))


async def _of_unmatched(connection: Connection, record: ActivityRecord, event: EventRecord) -> Answer:
    """For an event that has no row in this activity's ledger."""
    slug, name, accepted = record.slug, event.event_id, event.accepted_at
    outcome, code, actions = "not_matched", "type_unmatched", []
    revision = await activities.revision_at(connection, record.id, accepted)
    definition = None if revision is None else stored_activity(revision.effective)
    if event.dead_letter_reason is not None:
        outcome, code, sentence = "dead_letter", "dead_letter", say.event_dead_letter(name, event.dead_letter_reason)
        actions = [Action("Send the event again: it is decided again", "POST /v1/events")]
    elif accepted < record.created_at:
        code, sentence = "before_creation", say.event_before_creation(slug, name, accepted, record.created_at)
    elif definition is None:
        code, sentence = "after_deletion", say.event_after_deletion(slug, name, accepted)
    elif not isinstance(definition.trigger, EventTrigger):
        code, sentence = "no_event_trigger", say.event_other_trigger(slug, name, definition.trigger.type)
    elif set(definition.trigger.event_types) & set(matching_patterns(event.type)):
        outcome, code, sentence = "waiting", "not_routed", say.event_not_routed(name, accepted)
    else:
        sentence = say.event_unmatched(slug, name, event.type, definition.trigger.event_types)
    evidence = [
        Evidence(accepted, f"the event was accepted (type {event.type})", f"/v1/events/{event.id}"),
        Evidence(record.created_at, "the activity was created", _path(record)),
    ]
    evidence.sort(key=lambda item: item.at)
    return Answer(outcome, code, sentence, event_id=name, evidence=evidence, actions=actions)


async def _neighbours(connection: Connection, record: ActivityRecord, at: datetime) -> Neighbours:
    """The due time before, from the ledger, and the one after, by the definition in force there."""
    where = OccurrenceFilter(activity_id=record.id, kind="time", due_to=at)
    earlier = await ledger.listed(connection, where, cursor=None, limit=1)
    previous = earlier.items[0].occurrence.scheduled_for if earlier.items else None
    return Neighbours(previous, await _next(connection, record, at))


async def _next(connection: Connection, record: ActivityRecord, at: datetime) -> datetime | None:
    start = max(at, record.created_at)
    revision = await activities.revision_at(connection, record.id, start)
    if revision is not None:
        following = next_due(stored_activity(revision.effective), start)
        until = revision.in_force_until
        if until is None or (following is not None and following <= until):
            return following
        start = until
    if record.deleted_at is not None:
        return None
    return next_due(stored_activity(record.effective), start)
