"""What the API answers: one model per shape, made from the store's records. Instants are UTC, written `+00:00` (R4)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, Field, PlainSerializer, WithJsonSchema

from activity_core.domain.documents import stored_activity, times_of
from activity_core.services.apply import Applied
from activity_core.services.freezes import Frozen
from activity_core.services.pausing import Status
from activity_core.services.reads import EventView, RunView
from activity_core.services.settle import next_due
from activity_core.services.tasks import TaskDetail
from activity_core.services.triggering import Triggered
from activity_core.store.activities import ActivityRecord, RevisionRecord
from activity_core.store.consumers import ConsumerRecord
from activity_core.store.events import EventRecord
from activity_core.store.ledger import LedgerRow
from activity_core.store.receipts import ReceiptRecord
from activity_core.store.tasks import RANKS, TERMINAL, AttemptRecord, TaskRecord

Json = Any  # a stored JSON value
T = TypeVar("T")


def _utc(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat()


Instant = Annotated[
    datetime,
    PlainSerializer(_utc, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]

Outcome = Literal[
    "waiting",
    "started",
    "skipped",
    "dropped",
    "merged",
    "filtered",
    "filter_error",
    "disabled",
    "rate_limited",
    "concurrency_dropped",
    "deleted",
    "dead_letter",
]
OccurrenceKind = Literal["time", "event", "manual"]
RunStatus = Literal["running", "completed", "failed", "cancelled", "terminated", "timed_out", "lost"]
TaskState = Literal["pending", "delivering", "waiting", "completed", "failed", "cancelled"]


class ListOf(BaseModel, Generic[T]):
    """A page, newest first. `next_cursor` null: it is the last one."""

    items: list[T]
    next_cursor: str | None = None


class Notice(BaseModel):
    code: str
    pointer: str
    message: str


class ActivityState(BaseModel):
    """`enabled` is the definition's; a pause is the operator's, with its note; `freezes` are the ids of those that hold it."""

    enabled: bool
    paused: bool
    note: str | None
    until: Instant | None
    paused_at: Instant | None
    freezes: list[UUID]


class ScheduleState(BaseModel):
    """`sync`: whether Temporal's schedule is what the definition wants; `none` for activities without times."""

    sync: Literal["in_sync", "pending", "error", "none"]
    next: Instant | None
    error: str | None


class ActivityOut(BaseModel):
    """An activity with its revision in force: `spec` as it was sent, `effective` with every default filled in."""

    id: UUID
    slug: str
    revision: int
    state: ActivityState
    spec: dict[str, Json]
    effective: dict[str, Json]
    schedule: ScheduleState
    notices: list[Notice]
    created_at: Instant
    updated_at: Instant


def activity(record: ActivityRecord, status: Status, notices: list[Notice], now: datetime) -> ActivityOut:
    definition = stored_activity(record.effective)
    has_times = times_of(definition.trigger) is not None
    pause = status.pause
    return ActivityOut(
        id=record.id,
        slug=record.slug,
        revision=record.revision,
        state=ActivityState(
            enabled=definition.enabled,
            paused=pause is not None,
            note=None if pause is None else pause.note,
            until=None if pause is None else pause.until,
            paused_at=None if pause is None else pause.from_at,
            freezes=[freeze.id for freeze in status.freezes],
        ),
        spec=record.spec,
        effective=record.effective,
        schedule=ScheduleState(
            sync=_sync(record, has_times=has_times, enabled=definition.enabled),
            next=next_due(definition, now),
            error=record.sync_error if has_times else None,
        ),
        notices=notices,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def _sync(record: ActivityRecord, *, has_times: bool, enabled: bool) -> Literal["in_sync", "pending", "error", "none"]:
    if not has_times:
        return "none"
    if record.observed_generation < record.generation:
        return "error" if record.sync_error else "pending"
    return "in_sync" if enabled else "none"


class RevisionOut(BaseModel):
    revision: int
    spec: dict[str, Json]
    effective: dict[str, Json]
    in_force_from: Instant
    in_force_until: Instant | None


def revision(record: RevisionRecord) -> RevisionOut:
    return RevisionOut.model_validate(record, from_attributes=True)


class NextTime(BaseModel):
    """`local`: the same instant in the trigger's zone. `due_at`: when it starts, its jitter later."""

    scheduled_for: Instant
    local: str
    due_at: Instant


class NextTimes(BaseModel):
    """`items` is empty for triggers without times and for disabled activities; `description` says when it runs.

    Of a paused activity they wait until it is resumed; `freezes`: those that hold it, paused or not.
    """

    description: str
    timezone: str | None
    enabled: bool
    paused: bool
    freezes: list[UUID]
    items: list[NextTime]


class TriggeredOut(BaseModel):
    run_id: UUID
    workflow_id: str
    activity_id: UUID
    occurrence_id: UUID


def triggered(value: Triggered) -> TriggeredOut:
    return TriggeredOut.model_validate(value, from_attributes=True)


class ResumedOut(BaseModel):
    """`times` and `events`: how many waited. They are decided now, unless a freeze still holds the activity."""

    activity: ActivityOut
    times: int
    events: int


class FreezeOut(BaseModel):
    """`active`: it holds now. `matches`: how many activities its selector matches at the moment."""

    id: UUID
    selector: str
    note: str | None
    start: Annotated[Instant, Field(serialization_alias="from")]
    until: Instant | None
    ended_at: Instant | None
    active: bool
    on_misfire: Literal["policy", "skip", "catchup", "compress"]
    events: Literal["run", "skip"]
    created_at: Instant
    matches: int


def freeze(frozen: Frozen) -> FreezeOut:
    record = frozen.freeze
    named = {name: getattr(record, name) for name in ("id", "selector", "note", "until", "ended_at", "created_at")}
    return FreezeOut.model_validate(
        {
            **named,
            "start": record.from_at,
            "events": record.events,
            "on_misfire": record.on_misfire or "policy",
            "active": frozen.active,
            "matches": frozen.matches,
        }
    )


class ConsumerOut(BaseModel):
    id: UUID
    slug: str
    revision: int
    type: str
    spec: dict[str, Json]
    effective: dict[str, Json]
    created_at: Instant
    updated_at: Instant


def consumer(record: ConsumerRecord) -> ConsumerOut:
    return ConsumerOut(
        id=record.id,
        slug=record.slug,
        revision=record.revision,
        type=record.effective["type"],
        spec=record.spec,
        effective=record.effective,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


class AppliedDocument(BaseModel):
    kind: str
    slug: str
    change: Literal["created", "replaced", "unchanged"]
    revision: int
    notices: list[Notice]


class AppliedOut(BaseModel):
    """What became of each document, in the order they were sent; with `dry_run` what would become of it."""

    dry_run: bool
    documents: list[AppliedDocument]


def applied(value: Applied, notices: list[Notice]) -> AppliedDocument:
    names = ("kind", "slug", "change", "revision")
    return AppliedDocument(**{name: getattr(value, name) for name in names}, notices=notices)


class Window(BaseModel):
    """Half-open: [start, end)."""

    start: Instant | None
    end: Instant


class Covers(BaseModel):
    first: str
    last: str
    count: int


class RunOut(BaseModel):
    """`tasks` counts them by state, with their `total`."""

    run_id: UUID
    workflow_id: str
    activity_id: UUID
    slug: str
    revision: int
    occurrence_id: UUID
    triggered_by: str
    scheduled_for: Instant | None
    event_id: str | None
    window: Window | None
    covers: Covers | None
    status: RunStatus
    result: Literal["done", "no_work", "partial"] | None
    reason: str | None
    started_at: Instant
    finished_at: Instant | None
    tasks: dict[str, int]


def run(view: RunView) -> RunOut:
    record = view.run
    counts = {state: view.task_counts.get(state, 0) for state in RANKS}
    window = None if record.window_end is None else Window(start=record.window_start, end=record.window_end)
    names = RunOut.model_fields.keys() - {"window", "tasks"}
    return RunOut(
        **{name: getattr(record, name) for name in names},
        window=window,
        tasks={"total": sum(counts.values()), **counts},
    )


class Decision(BaseModel):
    outcome: str
    reason_code: str
    reason: str
    decided_at: str | None


class OccurrenceOut(BaseModel):
    """One row of the ledger. `history`: earlier decisions, oldest first.

    `merged_into`: the occurrence whose run covers it. `rerun_of`: the run that is run again.
    """

    id: UUID
    activity_id: UUID
    slug: str
    kind: OccurrenceKind
    scheduled_for: Instant | None
    event_id: str | None
    due_at: Instant
    revision: int
    triggered_by: str
    outcome: Outcome
    reason_code: str
    reason: str
    run_id: UUID | None
    merged_into: UUID | None
    backfill_id: UUID | None
    rerun_of: UUID | None
    decided_at: Instant | None
    history: list[Decision]


def occurrence(row: LedgerRow) -> OccurrenceOut:
    names = OccurrenceOut.model_fields.keys() - {"slug", "event_id"}
    values = {name: getattr(row.occurrence, name) for name in names}
    return OccurrenceOut(**values, slug=row.slug, event_id=row.event_id)


ReceiptResult = Literal["accepted", "duplicate", "rejected", "handshake"]
EventStatus = Literal["accepted", "routed", "dead_letter", "quarantined"]


class EventItem(BaseModel):
    """`external_id` is the id as the sender wrote it, `event_id` the one that is unique here. `conflicts`: how often that
    came again with other content. `causation_run_id`: the run that made it; `depth`: how many such steps lie behind it."""

    id: UUID
    event_id: str
    source: str
    external_id: str
    type: str
    subject: str | None
    time: Instant | None
    status: EventStatus
    accepted_at: Instant
    routed_at: Instant | None
    dead_letter_reason: str | None
    quarantine_reason: str | None
    conflicts: int
    causation_run_id: UUID | None
    depth: int


class ReceiptOut(BaseModel):
    """One webhook request. `secret_id`: which of the source's secrets it was signed with. `conflict`: its id was there
    with other content. Of a rejected request no body is kept, and nothing of it is shown."""

    id: UUID
    received_at: Instant
    result: ReceiptResult
    reason_code: str | None
    reason: str | None
    status: int
    conflict: bool
    event_uuid: UUID | None
    external_id: str | None
    event_type: str | None
    secret_id: UUID | None
    size_bytes: int
    content_type: str | None
    user_agent: str | None
    request_id: str


def receipt(record: ReceiptRecord) -> ReceiptOut:
    names = ReceiptOut.model_fields.keys() - {"received_at"}
    return ReceiptOut(received_at=record.received_at, **{name: getattr(record.receipt, name) for name in names})


class EventOut(EventItem):
    data: Json
    occurrences: list[OccurrenceOut]
    receipts: list[ReceiptOut]


def event_item(record: EventRecord) -> EventItem:
    return EventItem(**_event(record))


def event(view: EventView) -> EventOut:
    occurrences = [occurrence(row) for row in view.occurrences]
    receipts = [receipt(record) for record in view.receipts]
    return EventOut(**_event(view.event), data=view.event.data, occurrences=occurrences, receipts=receipts)


def _event(record: EventRecord) -> dict[str, Any]:
    status = "dead_letter" if record.dead_letter_reason else "routed"
    if record.routed_at is None:
        status = "quarantined" if record.quarantine_reason else "accepted"
    names = EventItem.model_fields.keys() - {"status"}
    return {"status": status, **{name: getattr(record, name) for name in names}}


class TaskItem(BaseModel):
    """`id` addresses it in URLs; `task_id` is its name towards consumers and Temporal. `reference`: the consumer's own."""

    id: UUID
    task_id: str
    run_id: UUID
    activity_id: UUID
    slug: str
    task_type: str
    index: int
    consumer: str
    state: TaskState
    terminal: bool
    reason: str | None
    params: Json
    output: Json
    reference: str | None
    created_at: Instant
    updated_at: Instant
    ended_at: Instant | None


class Attempt(BaseModel):
    """One try to hand a task over. Several that were started are normal: the key makes them one effect (R42)."""

    activity_attempt_id: UUID
    activity_execution_id: UUID
    number: int
    worker: str
    started_at: Instant
    ended_at: Instant | None
    outcome: str | None
    late: bool
    http_status: int | None
    error: str | None


class TaskOut(TaskItem):
    attempts: list[Attempt]


def task_item(record: TaskRecord) -> TaskItem:
    return TaskItem(**_task(record))


def task(detail: TaskDetail) -> TaskOut:
    return TaskOut(**_task(detail.task), attempts=[attempt(record) for record in detail.attempts])


def attempt(record: AttemptRecord) -> Attempt:
    names = Attempt.model_fields.keys() - {"number"}
    return Attempt(number=record.temporal_attempt, **{name: getattr(record, name) for name in names})


def _task(record: TaskRecord) -> dict[str, Any]:
    renamed: Mapping[str, Any] = {
        "id": record.uuid,
        "task_id": record.id,
        "terminal": record.state in TERMINAL,
        "reference": record.external_reference,
    }
    names = TaskItem.model_fields.keys() - renamed.keys()
    return {**renamed, **{name: getattr(record, name) for name in names}}
