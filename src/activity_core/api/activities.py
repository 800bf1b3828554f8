"""/v1/activities."""

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query, Request, Response

from activity_core.api import bodies, params, shown, views
from activity_core.api.services import Services, Use
from activity_core.api.why_view import WhyOut, why_out
from activity_core.domain import zones
from activity_core.domain.documents import Activity, EventTrigger, Trigger, stored_activity, times_of, zone_of
from activity_core.errors import Fault, InvalidInputError
from activity_core.services.settle import new_time
from activity_core.services.why import Answer
from activity_core.store.activities import ActivityRecord
from activity_core.store.ledger import OccurrenceFilter
from activity_core.store.runs import RunFilter

DOCUMENT = bodies.json_body({"$ref": "#/components/schemas/Activity"})
TRIGGER_BODY = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "params": {"type": ["object", "null"], "description": "What the run sees as `params`"},
        "on_overlap": {
            "enum": ["refuse", "wait", "allow", None],
            "description": "While a run is open. `wait`: after the runs and requests before it. "
            "The default is refuse for activities with times, else allow",
        },
    },
}

router = APIRouter(prefix="/v1/activities", tags=["activities"])


@router.post("", status_code=201, openapi_extra=DOCUMENT)
async def create_activity(
    request: Request, response: Response, use: Use, idempotency_key: params.IdempotencyKey = None
) -> views.ActivityOut:
    """Create an activity. 409 when the slug is taken."""
    key = params.read_idempotency_key(idempotency_key)
    saved = await use.activities.create(await bodies.read_json(request), idempotency_key=key)
    response.headers["Location"] = f"/v1/activities/{saved.record.id}"
    return await shown.activity(use, saved.record, response)


@router.get("")
async def list_activities(
    use: Use,
    selector: params.SelectorText = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.ActivityOut]:
    """The activities that are not deleted, newest first."""
    chosen = params.read_selector(selector)
    page = await use.activities.listed(selector=chosen, cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=await shown.activities(use, page.items), next_cursor=page.next_cursor)


@router.get("/{ref}")
async def get_activity(ref: str, response: Response, use: Use) -> views.ActivityOut:
    """By UUID or slug. 410 when a UUID names a deleted one."""
    return await shown.activity(use, await use.activities.get(ref), response)


@router.put("/{ref}", openapi_extra=DOCUMENT, responses={201: {"model": views.ActivityOut, "description": "Created"}})
async def put_activity(
    ref: str, request: Request, response: Response, use: Use, if_match: params.IfMatch = None
) -> views.ActivityOut:
    """Create (by slug) or replace. Unchanged: 200, and no new revision."""
    params.refuse_if_none_match(request)
    expected = params.read_if_match(if_match)
    saved = await use.activities.put(ref, await bodies.read_json(request), if_match=expected)
    if saved.change == "created":
        response.status_code = 201
        response.headers["Location"] = f"/v1/activities/{saved.record.id}"
    return await shown.activity(use, saved.record, response)


@router.delete("/{ref}", status_code=204)
async def delete_activity(ref: str, request: Request, use: Use, if_match: params.IfMatch = None) -> Response:
    """What waits gets the outcome `deleted`; open runs finish. The id is never used again, the slug may be."""
    params.refuse_if_none_match(request)
    await use.activities.delete(ref, if_match=params.read_if_match(if_match))
    return Response(status_code=204)


@router.get("/{ref}/revisions")
async def list_revisions(ref: str, use: Use) -> views.ListOf[views.RevisionOut]:
    """Every revision, newest first, with the time in which it is in force."""
    return views.ListOf(items=[views.revision(record) for record in await use.activities.revisions(ref)])


@router.get("/{ref}/occurrences")
async def list_occurrences_of_activity(
    ref: str,
    use: Use,
    outcome: views.Outcome | None = None,
    reason_code: str | None = None,
    kind: views.OccurrenceKind | None = None,
    start: params.From = None,
    end: params.To = None,
    merged_into: params.MergedInto = None,
    backfill_id: params.BackfillId = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.OccurrenceOut]:
    """The ledger of one activity, newest first."""
    params.check_range(start, end)
    activity_id = await params.activity_id_of(use.reads, ref)
    where = OccurrenceFilter(activity_id, outcome, reason_code, kind, None, start, end, merged_into, backfill_id)
    page = await use.reads.occurrences(where, cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[views.occurrence(row) for row in page.items], next_cursor=page.next_cursor)


@router.get("/{ref}/runs")
async def list_runs_of_activity(
    ref: str,
    use: Use,
    status: views.RunStatus | None = None,
    start: params.From = None,
    end: params.To = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.RunOut]:
    """The runs of one activity, newest first; `from` and `to` are about when they started."""
    params.check_range(start, end)
    where = RunFilter(await params.activity_id_of(use.reads, ref), status, None, start, end)
    page = await use.reads.runs(where, cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[views.run(view) for view in page.items], next_cursor=page.next_cursor)


@router.get("/{ref}/next")
async def next_times(ref: str, use: Use, count: Annotated[int, Query(ge=1, le=100)] = 5) -> views.NextTimes:
    """The next due times, and in plain English when it runs. A disabled activity owes none."""
    record = await use.activities.get(ref)
    status = (await use.pausing.status([record]))[record.id]
    definition, now = stored_activity(record.effective), datetime.now(UTC)
    trigger = definition.trigger
    times = times_of(trigger)
    items = []
    if times is not None and definition.enabled:
        zone = zones.load(zone_of(trigger))
        coming = islice(times.iterate(now, datetime.max.replace(tzinfo=UTC)), count)
        items = [_next_time(record, definition, scheduled_for, zone) for scheduled_for in coming]
    return views.NextTimes(
        description=_described(trigger),
        timezone=None if times is None else zone_of(trigger),
        enabled=definition.enabled,
        paused=status.pause is not None or bool(status.freezes),
        freezes=[freeze.id for freeze in status.freezes],
        items=items,
    )


def _next_time(record: ActivityRecord, definition: Activity, scheduled_for: datetime, zone: ZoneInfo) -> views.NextTime:
    due_at = new_time(record.id, definition, scheduled_for, None).due_at
    return views.NextTime(scheduled_for=scheduled_for, local=scheduled_for.astimezone(zone).isoformat(), due_at=due_at)


@router.get("/{ref}/why")
async def why(
    ref: str,
    use: Use,
    at: Annotated[params.Instant | None, Query(description="A due time")] = None,
    event_id: Annotated[str | None, Query(description="The event_id (or UUID) of an event")] = None,
) -> WhyOut:
    """Why it did or did not run: for a due time, for an event, or (with neither) for what was due last."""
    if at is not None and event_id is not None:
        raise InvalidInputError([Fault("/query/event_id", "write either 'at' or 'event_id', not both")])
    return why_out(await _answer(use, ref, at, event_id))


@router.post(
    "/{ref}/trigger",
    status_code=202,
    openapi_extra=bodies.json_body(TRIGGER_BODY, required=False),
)
async def trigger_activity(
    ref: str, request: Request, use: Use, idempotency_key: params.IdempotencyKey = None
) -> views.TriggeredOut:
    """Run it now. The same Idempotency-Key gives the same run, for ever. 409 `run_open` or `disabled`."""
    key = params.read_idempotency_key(idempotency_key)
    command = await bodies.read_command(request, "params", "on_overlap")
    given, on_overlap = command.get("params"), command.get("on_overlap")
    faults = []
    if given is not None and not isinstance(given, dict):
        faults.append(Fault("/params", "write a JSON object"))
    if on_overlap not in (None, "refuse", "wait", "allow"):
        faults.append(Fault("/on_overlap", "write 'refuse', 'wait' or 'allow', or leave it out"))
    if faults:
        raise InvalidInputError(faults)
    return views.triggered(await use.triggering.trigger(ref, params=given, on_overlap=on_overlap, idempotency_key=key))


def _described(trigger: Trigger) -> str:
    times = times_of(trigger)
    if times is not None:
        return times.describe()
    if isinstance(trigger, EventTrigger):
        suffix = " that its filter lets through" if trigger.filter is not None else ""
        return f"for each event of type {', '.join(trigger.event_types)}{suffix}"
    return "when somebody triggers it"


async def _answer(use: Services, ref: str, at: datetime | None, event_id: str | None) -> Answer:
    if at is not None:
        return await use.why.at(ref, at)
    if event_id is not None:
        return await use.why.event(ref, event_id)
    return await use.why.last(ref)
