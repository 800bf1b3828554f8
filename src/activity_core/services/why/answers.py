"""What `why` answers: a sentence, the evidence for it, and what can be done."""

from dataclasses import dataclass, field
from datetime import datetime

from activity_core.services.reads import RunView
from activity_core.store.activities import ActivityRecord
from activity_core.store.tasks import AttemptRecord


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
    """`outcome` is the ledger's, or `not_due`, `not_matched`, `no_such_event` where there is no row.

    `run`: its own, or for a merged time the one that covers it.
    """

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


def path_of(record: ActivityRecord) -> str:
    return f"/v1/activities/{record.id}"


def name_of(record: ActivityRecord) -> str:
    """What commands call it: the slug, while it is this activity's."""
    return record.slug if record.deleted_at is None else str(record.id)
