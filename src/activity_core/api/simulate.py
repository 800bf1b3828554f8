"""POST /v1/simulate."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, SkipValidation

from activity_core.api import bodies, notices, trials
from activity_core.api.services import Use
from activity_core.api.views import Instant, Notice, Window
from activity_core.domain.documents import CronTrigger, IntervalTrigger, Model, OnceTrigger, Seconds, TimeTrigger
from activity_core.domain.documents import Instant as InstantIn
from activity_core.domain.json_values import JsonValue
from activity_core.domain.reading import read_trigger
from activity_core.domain.simulation import (
    Cause,
    Outage,
    Pause,
    SimulatedOccurrence,
    SimulatedRun,
    Simulation,
    SimulationTooLongError,
)
from activity_core.errors import Fault, InvalidInputError
from activity_core.services.simulating import RESOLUTION, Breathe, Question, due_times

MAX_EACH = 100
"""Outages, pauses and edits."""

# What is in it is read as in a document.
TriggerIn = Annotated[CronTrigger | IntervalTrigger | OnceTrigger, SkipValidation]


class OutageIn(Model):
    start: Annotated[InstantIn, Field(alias="from")]
    end: Annotated[InstantIn, Field(alias="to")]
    cause: Cause = "worker_down"


class PauseIn(Model):
    start: Annotated[InstantIn, Field(alias="from")]
    end: Annotated[InstantIn, Field(alias="to")]
    on_misfire: Annotated[
        Literal["policy", "skip", "catchup", "compress"],
        Field(description="What resume says about the times that waited"),
    ] = "policy"


class EditIn(Model):
    at: InstantIn
    trigger: TriggerIn


class SimulateIn(Model):
    trigger: TriggerIn
    start: Annotated[InstantIn, Field(alias="from", description="Inclusive")]
    end: Annotated[InstantIn, Field(alias="to", description="Exclusive")]
    run_seconds: Annotated[Seconds, Field(description="How long each run takes")] = 0
    outages: Annotated[tuple[OutageIn, ...], Field(max_length=MAX_EACH)] = ()
    pauses: Annotated[tuple[PauseIn, ...], Field(max_length=MAX_EACH)] = ()
    edits: Annotated[tuple[EditIn, ...], Field(max_length=MAX_EACH)] = ()


class SimulatedOccurrenceOut(BaseModel):
    """`merged_into`: the nominal time of the run that covers it."""

    scheduled_for: Instant
    outcome: Literal["waiting", "started", "skipped", "dropped", "merged"]
    reason_code: str
    merged_into: Instant | None


class SimulatedCoversOut(BaseModel):
    first: Instant
    last: Instant
    count: int


class SimulatedRunOut(BaseModel):
    scheduled_for: Instant
    started_at: Instant
    window: Window
    covers: SimulatedCoversOut


class SimulationOut(BaseModel):
    """Occurrences by nominal time, runs by start."""

    description: Annotated[str, Field(description="When the trigger is due, in plain English")]
    notices: list[Notice]
    occurrences: list[SimulatedOccurrenceOut]
    runs: list[SimulatedRunOut]


_FIELDS: dict[str, type[Model]] = {"outages": OutageIn, "pauses": PauseIn, "edits": EditIn}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with these definitions in the places that refer to them: the components of the API have none of them."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref")).rpartition("/")[2]
    if name in definitions:
        return _inlined(definitions[name], definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items() if key != "$defs"}


def _body_schema() -> Any:
    schema = SimulateIn.model_json_schema(ref_template="#/components/schemas/{model}")
    return _inlined(schema, {model.__name__: schema["$defs"][model.__name__] for model in _FIELDS.values()})


router = APIRouter(prefix="/v1/simulate", tags=["simulate"])


@router.post(
    "",
    response_model=SimulationOut | trials.TrialOut,
    openapi_extra=bodies.json_body({"anyOf": [_body_schema(), trials.TrialIn.model_json_schema()]}),
)
async def simulate(request: Request, use: Use) -> Response:
    """What would become of a trigger's times and what would run, by the runtime's own planner. Nothing is stored.

    Of the times due in [`from`, `to`), as the ledger stands when `to` comes: what would be decided or started at `to`
    or later still waits. No run is open at `from`. Jitter is left out: it follows from the id of an activity. Outages
    and pauses may overlap and reach out of the range; an edit puts another trigger in force. 50,000 times at most.

    With an `event` in place of times: what would become of it by a `definition`, or by an `activity` as it is in force.
    """
    value = await bodies.read_json(request)
    if isinstance(value, dict) and "event" in value:
        return Response((await trials.tried(use, value)).model_dump_json(), media_type="application/json")
    # not on the event loop: a hundred edits in as many zones take half a second
    question = await asyncio.to_thread(_read, value)
    try:
        body = await use.simulating.answer(question, lambda simulation, breathe: _shown(question, simulation, breathe))
    except SimulationTooLongError as error:
        raise InvalidInputError([Fault("/to", str(error))]) from error
    return Response(body, media_type="application/json")


def _read(value: JsonValue) -> Question:
    """Raises InvalidInputError naming every fault."""
    if not isinstance(value, dict):
        raise InvalidInputError([Fault("", "write a JSON object")])
    asked, faults = _read_body(value)
    triggers: dict[str, TimeTrigger] = {}
    for pointer, raw in _raw_triggers(value):
        try:
            triggers[pointer] = _read_trigger(raw, pointer)
        except InvalidInputError as error:
            faults += error.faults
    if faults or asked is None:
        raise InvalidInputError(sorted(faults, key=lambda fault: fault.pointer))
    return Question(
        triggers["/trigger"],
        asked.start,
        asked.end,
        timedelta(seconds=asked.run_seconds),
        tuple(Outage(outage.start, outage.end, outage.cause) for outage in asked.outages),
        tuple(Pause(p.start, p.end, None if p.on_misfire == "policy" else p.on_misfire) for p in asked.pauses),
        tuple((edit.at, triggers[f"/edits/{number}/trigger"]) for number, edit in enumerate(asked.edits)),
    )


def _read_body(value: dict[str, Any]) -> tuple[SimulateIn | None, list[Fault]]:
    asked, faults = bodies.validated(value, SimulateIn, _FIELDS)
    return asked, faults + (list(_range_faults(asked)) if asked is not None else [])


def _range_faults(asked: SimulateIn) -> Iterator[Fault]:
    if asked.end <= asked.start:
        yield Fault("/to", "is not after 'from'")
    spans = [(f"/outages/{number}", outage.start, outage.end) for number, outage in enumerate(asked.outages)]
    spans += [(f"/pauses/{number}", pause.start, pause.end) for number, pause in enumerate(asked.pauses)]
    yield from (Fault(f"{pointer}/to", "is not after its 'from'") for pointer, start, end in spans if end <= start)
    for number, edit in enumerate(asked.edits):
        if not asked.start <= edit.at < asked.end:
            yield Fault(f"/edits/{number}/at", "is not in the range: from 'from' on, and before 'to'")


def _raw_triggers(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if "trigger" in value:
        yield "/trigger", value["trigger"]
    edits = value.get("edits")
    for number, edit in enumerate(edits[:MAX_EACH] if isinstance(edits, list) else ()):
        if isinstance(edit, dict) and "trigger" in edit:
            yield f"/edits/{number}/trigger", edit["trigger"]


def _read_trigger(raw: Any, pointer: str) -> TimeTrigger:
    trigger = read_trigger(raw, pointer)
    if not isinstance(trigger, TimeTrigger):
        fault = f"a trigger of type '{trigger.type}' has no due times to simulate; write cron, interval or once"
        raise InvalidInputError([Fault(f"{pointer}/type", fault)])
    return trigger


def _shown(question: Question, simulation: Simulation, breathe: Breathe) -> bytes:
    """`SimulationOut`, as JSON at once: of 50,000 rows it would be ten times slower by way of models."""

    def occurrence(row: SimulatedOccurrence) -> dict[str, Any]:
        breathe()
        return {
            "scheduled_for": row.scheduled_for,
            "outcome": row.outcome,
            "reason_code": row.reason_code,
            "merged_into": row.merged_into,
        }

    def run(row: SimulatedRun) -> dict[str, Any]:
        breathe()
        return {
            "scheduled_for": row.scheduled_for,
            "started_at": row.started_at,
            "window": {"start": row.window[0], "end": row.window[1]},
            "covers": {"first": row.covers[0], "last": row.covers[-1], "count": len(row.covers)},
        }

    return orjson.dumps(
        {
            "description": due_times(question.trigger).describe(),
            "notices": [notice.model_dump() for notice in _notices(question, simulation)],
            "occurrences": [occurrence(row) for row in simulation.occurrences],
            "runs": [run(row) for row in simulation.runs],
        }
    )


def _notices(question: Question, simulation: Simulation) -> Iterator[Notice]:
    triggers = [("/trigger", question.trigger)]
    triggers += [(f"/edits/{number}/trigger", trigger) for number, (_, trigger) in enumerate(question.edits)]
    for pointer, trigger in triggers:
        yield from notices.cron_warnings(trigger, question.start, pointer)
    for pointer in [f"{pointer}/jitter_seconds" for pointer, trigger in triggers if trigger.jitter_seconds][:1]:
        message = "jitter is left out of a simulation: each time is taken to be due at its nominal instant"
        yield Notice(code="jitter_left_out", pointer=pointer, message=message)
    if not simulation.occurrences:
        following = due_times(_last_trigger(question)).next_after(question.end - RESOLUTION)
        later = f"the next one is {following.isoformat()}" if following else "none is left after it"
        yield Notice(code="no_times", pointer="/to", message=f"no time is due in the range, and {later}")


def _last_trigger(question: Question) -> TimeTrigger:
    """The one in force at the end."""
    return max(question.edits, key=lambda edit: edit[0])[1] if question.edits else question.trigger
