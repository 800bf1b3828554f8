"""The part of POST /v1/simulate that tries an event on a definition."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from activity_core.api import bodies
from activity_core.api.services import Services
from activity_core.api.views import Json, Outcome
from activity_core.domain import ids
from activity_core.domain.documents import Model
from activity_core.errors import Fault, InvalidInputError
from activity_core.services.event_types import Verdict
from activity_core.services.trying import MADE_UP, Trial


class TrialIn(Model):
    """Either `definition` or `activity`. `context` stands in for what would be fetched."""

    event: Any
    definition: Any = None
    activity: str | None = None
    context: Annotated[dict[str, Any], Field(default_factory=dict, max_length=20)]


class TriedRuleOut(BaseModel):
    id: str
    holds: bool | None
    reason: str


class TriedTaskOut(BaseModel):
    task_id: str
    task_type: str
    index: int
    consumer: str
    params: Json


class FaultOut(BaseModel):
    pointer: str
    message: str


class InvalidOut(BaseModel):
    """The event is not what the schema of its type allows: it would be refused, or accepted and kept back (quarantine)."""

    on_invalid: Literal["refuse", "quarantine"]
    errors: list[FaultOut]


class TrialOut(BaseModel):
    """`outcome`: what the ledger would say before it looks at other events; `waiting`: it would run. `invalid`: it would not
    get so far. `error`: why its plan would fail. `missing_context`: what would be fetched and was not given. Of a bare
    definition the ids are made up."""

    outcome: Outcome
    reason_code: str
    reason: str
    event_id: str
    workflow_id: str
    run_id: UUID
    keys: dict[str, str | None]
    rules: list[TriedRuleOut]
    tasks: list[TriedTaskOut]
    error: str | None
    missing_context: list[str]
    invalid: InvalidOut | None
    made_up_ids: bool


async def tried(use: Services, value: dict[str, Any]) -> TrialOut:
    """Raises InvalidInputError, NotFoundError."""
    asked, faults = bodies.validated(value, TrialIn)
    if asked is None:
        raise InvalidInputError(faults)
    if (asked.definition is None) == (asked.activity is None):
        raise InvalidInputError([Fault("", "write either 'definition' (a document) or 'activity' (a slug)")])
    trial = await use.trying.try_event(
        definition=asked.definition, activity=asked.activity, event=asked.event, context=asked.context
    )
    return _shown(trial)


def _shown(trial: Trial) -> TrialOut:
    run_id = ids.run_id(trial.workflow_id)
    tasks = [
        TriedTaskOut(
            task_id=ids.task_id(run_id, task.task_type, task.index),
            task_type=task.task_type,
            index=task.index,
            consumer=task.consumer,
            params=task.params,
        )
        for task in trial.tasks
    ]
    return TrialOut(
        outcome=trial.decision.outcome,
        reason_code=trial.decision.reason_code,
        reason=trial.decision.reason,
        event_id=trial.event_id,
        workflow_id=trial.workflow_id,
        run_id=run_id,
        keys=dict(trial.keys),
        rules=[TriedRuleOut(id=rule.id, holds=rule.holds, reason=rule.reason) for rule in trial.rules],
        tasks=tasks,
        error=trial.error,
        missing_context=list(trial.missing),
        invalid=_invalid(trial.verdict),
        made_up_ids=trial.activity_id == MADE_UP,
    )


def _invalid(verdict: Verdict | None) -> InvalidOut | None:
    if verdict is None:
        return None
    errors = [FaultOut(pointer=f"/event{fault.pointer}", message=fault.message) for fault in verdict.faults]
    return InvalidOut(on_invalid="quarantine" if verdict.quarantine else "refuse", errors=errors)
