"""What `why` answers."""

from pydantic import BaseModel

from activity_core.api.views import Attempt, Instant, RunOut, attempt, run
from activity_core.services.why import Action, Answer


class EvidenceOut(BaseModel):
    at: Instant
    what: str
    ref: str


class ActionOut(BaseModel):
    label: str
    command: str


class NeighboursOut(BaseModel):
    previous: Instant | None
    next: Instant | None


class TaskAttemptOut(Attempt):
    task_id: str


class WhyOut(BaseModel):
    """`outcome` is the ledger's, or `not_due`, `not_matched`, `no_such_event` where the ledger has no row."""

    scheduled_for: Instant | None
    event_id: str | None
    outcome: str
    reason_code: str
    sentence: str
    evidence: list[EvidenceOut]
    run: RunOut | None
    attempts: list[TaskAttemptOut]
    actions: list[ActionOut]
    neighbours: NeighboursOut


def why_out(answer: Answer) -> WhyOut:
    return WhyOut(
        scheduled_for=answer.scheduled_for,
        event_id=answer.event_id,
        outcome=answer.outcome,
        reason_code=answer.reason_code,
        sentence=answer.sentence,
        evidence=[EvidenceOut(at=item.at, what=item.what, ref=item.ref) for item in answer.evidence],
        run=None if answer.run is None else run(answer.run),
        attempts=[
            TaskAttemptOut(task_id=item.task_id, **attempt(item.attempt).model_dump()) for item in answer.attempts
        ],
        actions=[_action(action) for action in answer.actions],
        neighbours=NeighboursOut(previous=answer.neighbours.previous, next=answer.neighbours.next),
    )


def _action(action: Action) -> ActionOut:
    return ActionOut(label=action.label, command=action.command)
