"""Why, for an instant that has no row in the ledger, and the due times around one."""

from dataclasses import replace
from datetime import datetime, timedelta

from activity_core.domain import sentences as say
from activity_core.domain.documents import (
    Activity,
    CronTrigger,
    IntervalTrigger,
    TimeTrigger,
    stored_activity,
    times_of,
)
from activity_core.services.settle import next_due
from activity_core.services.why import held
from activity_core.services.why.actions import ENABLE, backfill, trigger
from activity_core.services.why.answers import Answer, Evidence, Neighbours, path_of
from activity_core.store import activities, backfills, trigger_state
from activity_core.store.activities import ActivityRecord
from activity_core.store.database import Connection
from activity_core.store.holds import HoldRecord

# A revision's times are those of (in_force_from, in_force_until]: what falls on an edit is the old one's.
_BEFORE = timedelta(microseconds=1)
MAX_REVISIONS = 100


async def of_instant(connection: Connection, record: ActivityRecord, at: datetime, neighbours: Neighbours) -> Answer:
    slug, now = record.slug, await trigger_state.clock(connection)
    revision = await activities.revision_at(connection, record.id, at - _BEFORE)
    if record.deleted_at is not None and at > record.deleted_at:
        return _not_due("after_deletion", say.after_deletion(slug, at, record.deleted_at), record, at)
    if at <= record.created_at or revision is None:
        first = await activities.revision(connection, record.id, 1)
        answer = _not_due("before_creation", say.before_creation(slug, at, record.created_at), record, at)
        return answer if first is None else _with_backfill(answer, record, stored_activity(first.effective), at)
    definition = stored_activity(revision.effective)
    times = times_of(definition.trigger)
    if times is None:
        return _not_due("no_times", say.no_times(slug, definition.trigger.type), record, at)
    if not definition.enabled and at > now:
        return replace(_not_due("disabled", say.is_disabled(slug, at), record, at), actions=[ENABLE])
    if not definition.enabled:
        answer = _not_due("was_disabled", say.was_disabled(slug, at, revision.revision), record, at)
        return _with_backfill(answer, record, definition, at)
    if not times.is_due(at):
        return _no_due_time(record, definition, at, neighbours)
    return await _owed(connection, record, at, now)


async def of_nothing(connection: Connection, record: ActivityRecord) -> Answer:
    """For an activity whose ledger is empty."""
    now = await trigger_state.clock(connection)
    definition = stored_activity(record.effective)
    enabled = definition.enabled and record.deleted_at is None
    following = next_due(definition, now) if enabled else None
    holding = await held.holding(connection, record, now) if enabled else []
    sentence = say.nothing_yet(
        record.slug,
        record.created_at,
        definition.trigger.type,
        following,
        enabled=enabled,
        holds=[held.facts(hold, now) for hold in holding],
    )
    answer = _with_holds(_not_due("nothing_due_yet", sentence, record, None), record, holding, now)
    actions = [*await held.ways_out(connection, record, holding), trigger(record)] if enabled else []
    return replace(answer, actions=actions, neighbours=Neighbours(next=following))


async def neighbours_of(connection: Connection, record: ActivityRecord, at: datetime) -> Neighbours:
    """The due time before, from the ledger, and the one after, by the definitions in force from there on."""
    return Neighbours(await backfills.last_before(connection, record.id, at), await _next(connection, record, at))


async def _next(connection: Connection, record: ActivityRecord, at: datetime) -> datetime | None:
    after = max(at, record.created_at)
    for _ in range(MAX_REVISIONS):
        revision = await activities.revision_at(connection, record.id, after)
        if revision is None:
            return None
        following, until = next_due(stored_activity(revision.effective), after), revision.in_force_until
        if until is None or (following is not None and following <= until):
            return following
        after = until
    return None if record.deleted_at is not None else next_due(stored_activity(record.effective), after)


def _no_due_time(record: ActivityRecord, definition: Activity, at: datetime, neighbours: Neighbours) -> Answer:
    slug, around = record.slug, (neighbours.previous, neighbours.next)
    trigger = definition.trigger
    if isinstance(trigger, CronTrigger | IntervalTrigger):
        if trigger.start_at is not None and at < trigger.start_at:
            sentence = say.outside_bounds(slug, at, "start_at", trigger.start_at, *around)
            return _not_due("before_start", sentence, record, at)
        if trigger.end_at is not None and at > trigger.end_at:
            sentence = say.outside_bounds(slug, at, "end_at", trigger.end_at, *around)
            return _not_due("after_end", sentence, record, at)
    sentence = say.no_due_time(slug, at, *around)
    if isinstance(trigger, TimeTrigger) and neighbours.previous is not None:
        jitter = timedelta(seconds=trigger.jitter_seconds)
        if jitter and at - neighbours.previous <= jitter:
            sentence += say.between_times_by_jitter(trigger.jitter_seconds)
    return _not_due("no_due_time", sentence, record, at)


async def _owed(connection: Connection, record: ActivityRecord, at: datetime, now: datetime) -> Answer:
    """For a due time that has no row yet."""
    through = await trigger_state.settled_through(connection, record.id)
    if at <= now and through is not None and at <= through:
        answer = _not_due("no_row", say.passed_over(record.slug, at), record, at)
        enabled = record.deleted_at is None and stored_activity(record.effective).enabled
        return replace(answer, actions=[trigger(record)] if enabled else [])
    holding = await held.holding_at(connection, record, at, now)
    facts = [held.facts(hold, now) for hold in holding]
    if at > now:
        answer = _not_due("future", say.still_to_come(record.slug, at, now, facts), record, at)
    else:
        evidence = [] if through is None else [Evidence(through, "the ledger is complete up to here", path_of(record))]
        sentence = say.not_settled(record.slug, at, through, now, facts)
        answer = Answer("waiting", "not_settled", sentence, scheduled_for=at, evidence=evidence)
    begun = [hold for hold in holding if hold.from_at <= now]
    answer = replace(answer, actions=await held.ways_out(connection, record, begun))
    return _with_holds(answer, record, holding, now)


def _with_holds(answer: Answer, record: ActivityRecord, holding: list[HoldRecord], now: datetime) -> Answer:
    found = [*answer.evidence, *held.evidence(record, holding, now)]
    return replace(answer, evidence=sorted(found, key=lambda item: item.at))


def _with_backfill(answer: Answer, record: ActivityRecord, definition: Activity, at: datetime) -> Answer:
    """How to run a time that was never owed, if it is one."""
    times = times_of(definition.trigger)
    if record.deleted_at is not None or times is None or not times.is_due(at):
        return answer
    enabled = stored_activity(record.effective).enabled
    return replace(answer, actions=[*([] if enabled else [ENABLE]), backfill(record, at)])


def _not_due(reason_code: str, sentence: str, record: ActivityRecord, at: datetime | None) -> Answer:
    evidence = [Evidence(record.created_at, "it was created", path_of(record))]
    if record.deleted_at is not None:
        evidence.append(Evidence(record.deleted_at, "it was deleted", path_of(record)))
    return Answer("not_due", reason_code, sentence, scheduled_for=at, evidence=evidence)
