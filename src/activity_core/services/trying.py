"""Try an event on a definition: what would come of it, by the functions that decide it in earnest. Nothing is stored."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from activity_core.domain import event_rules, ids
from activity_core.domain.documents import Activity, EventTrigger, HttpContext, StaticContext, stored_activity
from activity_core.domain.envelopes import Envelope, read_native
from activity_core.domain.event_rules import RuleKeyError
from activity_core.domain.event_schema import compile_schema
from activity_core.domain.expressions import ExpressionError, compile_condition
from activity_core.domain.json_values import JsonValue
from activity_core.domain.planner import Decision
from activity_core.domain.reading import read_activity
from activity_core.domain.schema_cost import SchemaError
from activity_core.domain.taskplan import PlanError, PlannedTask, plan_tasks, run_scope
from activity_core.errors import Fault, InvalidInputError
from activity_core.services.activities import find
from activity_core.services.event_types import Verdict, verdict_on
from activity_core.services.routing import decide, decision_scope
from activity_core.services.runs import event_scope
from activity_core.store import event_types
from activity_core.store.database import Database
from activity_core.store.events import EventRecord

MADE_UP = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class TriedRule:
    """`holds` None: it could not be evaluated, or one before it did not hold."""

    id: str
    holds: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """What would become of the event: the ledger's outcome before any other event is looked at, then the run's plan.

    `verdict`: what the schema of its type has against it; all else is as if it had come through. `error`: why the run would
    fail when it is planned. `missing`: context that would be fetched and was not given.
    """

    decision: Decision
    event_id: str
    activity_id: uuid.UUID
    keys: Mapping[str, str | None]
    rules: tuple[TriedRule, ...] = ()
    tasks: tuple[PlannedTask, ...] = ()
    error: str | None = None
    missing: tuple[str, ...] = field(default=())
    verdict: Verdict | None = None

    @property
    def workflow_id(self) -> str:
        return ids.run_workflow_id(self.activity_id, self.event_id)


class Trying:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def try_event(
        self, *, definition: JsonValue, activity: str | None, event: JsonValue, context: Mapping[str, JsonValue]
    ) -> Trial:
        """On a definition, or on an activity as it is in force. Raises InvalidInputError, NotFoundError."""
        activity_id = MADE_UP
        if activity is not None:
            async with self._database.read() as connection:
                record = await find(connection, activity)
            activity_id, document = record.id, stored_activity(record.effective)
        else:
            document = _placed(lambda: read_activity(definition), "/definition")
        envelope = _placed(lambda: read_native(event), "/event")
        made = trial(document, activity_id, _as_accepted(envelope), context)
        return replace(made, verdict=await self._verdict(envelope))

    async def _verdict(self, envelope: Envelope) -> Verdict | None:
        """By the schema in force this moment, which the doors follow within two seconds."""
        async with self._database.read() as connection:
            declared = await event_types.by_type(connection, envelope.type)
        if declared is None or declared.schema is None:
            return None
        try:
            return verdict_on(compile_schema(declared.schema), declared.on_invalid, envelope.data)
        except SchemaError:  # of another version of the library, say: the doors go without it
            return None


def _placed(read: Any, pointer: str) -> Any:  # of whatever `read` returns
    try:
        return read()
    except InvalidInputError as error:
        raise InvalidInputError([Fault(pointer + f.pointer, f.message, f.code) for f in error.faults]) from error


def _as_accepted(envelope: Envelope) -> EventRecord:
    external_id = envelope.external_id or "evt_example"
    now = datetime.now(UTC)
    return EventRecord(
        id=MADE_UP,
        event_id=envelope.event_id(external_id),
        source=envelope.source,
        external_id=external_id,
        type=envelope.type,
        subject=envelope.subject,
        time=envelope.time,
        data=envelope.data,
        accepted_at=now,
        routed_at=None,
        route_attempts=0,
        dead_letter_reason=None,
        quarantine_reason=None,
        route_as=None,
        route_activity_id=None,
        conflicts=0,
        causation_run_id=None,
        depth=0,
    )


def trial(activity: Activity, activity_id: uuid.UUID, event: EventRecord, context: Mapping[str, JsonValue]) -> Trial:
    """Pure."""
    decision = decide(activity, event, activity_id)
    keys: dict[str, str | None] = {"debounce": None, "rate_limit": None, "concurrency": None}
    made = Trial(decision, event.event_id, activity_id, keys)
    if decision.outcome != "waiting":
        return made
    try:
        found = event_rules.keys_of(activity, decision_scope(activity, event, activity_id))
    except RuleKeyError as error:
        return Trial(Decision("filter_error", "key_error", str(error)), event.event_id, activity_id, keys)
    if isinstance(activity.trigger, EventTrigger):
        keys["debounce" if activity.trigger.debounce else "rate_limit"] = found.group
    keys["concurrency"] = found.concurrency
    return _planned(activity, activity_id, event, context, made)


def _planned(
    activity: Activity, activity_id: uuid.UUID, event: EventRecord, context: Mapping[str, JsonValue], made: Trial
) -> Trial:
    run_id = ids.run_id(made.workflow_id)
    scope = run_scope(
        activity,
        activity_id=str(activity_id),
        run_id=str(run_id),
        scheduled_for=None,
        window=None,
        event=event_scope(event),
        params=None,
    )
    missing = []
    for source in activity.context:
        if source.name in context:
            scope["context"][source.name] = context[source.name]
        elif isinstance(source, StaticContext):
            scope["context"][source.name] = source.value
        elif isinstance(source, HttpContext):
            missing.append(source.name)
    rules, error = _rules(activity, scope)
    tasks: tuple[PlannedTask, ...] = ()
    if error is None:
        try:
            tasks = plan_tasks(activity, scope).tasks
        except PlanError as failure:
            error = str(failure)
    return Trial(made.decision, made.event_id, activity_id, made.keys, tuple(rules), tasks, error, tuple(missing))


def _rules(activity: Activity, scope: Mapping[str, Any]) -> tuple[list[TriedRule], str | None]:
    tried: list[TriedRule] = []
    going, error = True, None
    for position, rule in enumerate(activity.rules):
        holds: bool | None = None
        if going and error is None:
            try:
                holds = compile_condition(rule.when).holds(scope)
            except ExpressionError as failure:
                error = f"/rules/{position}/when: {failure}"
            going = bool(holds)
        tried.append(TriedRule(rule.id, holds, rule.reason))
    return tried, error
