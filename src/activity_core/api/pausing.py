"""Pause and resume of an activity, and /v1/freezes."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import Field

from activity_core.api import bodies, params, shown, views
from activity_core.api.services import Use
from activity_core.domain.documents import Instant, Model

Note = Annotated[str, Field(max_length=500)]
Events = Literal["run", "skip"]
OnMisfire = Literal["policy", "skip", "catchup", "compress"]


class PauseIn(Model):
    """`events`: what becomes of the events that wait when `until` ends the pause."""

    note: Note | None = None
    until: Instant | None = None
    events: Events = "run"


class ResumeIn(Model):
    """`on_misfire`: how the times that wait are decided; `policy`: as the activity says. `events`: needed when any wait."""

    on_misfire: OnMisfire = "policy"
    events: Events | None = None


class FreezeIn(Model):
    """`from` left out: from now on. `until` left out: until it is ended."""

    selector: Annotated[str, Field(max_length=8_000)]
    note: Note | None = None
    start: Annotated[Instant | None, Field(alias="from")] = None
    until: Instant | None = None
    on_misfire: OnMisfire = "policy"
    events: Events = "run"


pausing = APIRouter(prefix="/v1/activities", tags=["activities"])
freezes = APIRouter(prefix="/v1/freezes", tags=["freezes"])


@pausing.post("/{ref}/pause", openapi_extra=bodies.body_of(PauseIn, required=False))
async def pause_activity(ref: str, request: Request, response: Response, use: Use) -> views.ActivityOut:
    """From now on its times and events wait in the ledger, and requests still run. Paused already: note and `until` change.

    Applying its definition does not end the pause.
    """
    asked = await bodies.read_model(request, PauseIn)
    record = await use.pausing.pause(ref, note=asked.note, until=asked.until, events=asked.events)
    return await shown.activity(use, record, response)


@pausing.post("/{ref}/resume", openapi_extra=bodies.body_of(ResumeIn, required=False))
async def resume_activity(ref: str, request: Request, response: Response, use: Use) -> views.ResumedOut:
    """What waits is decided now. 422 at `/events` when events wait and it is not said what becomes of them."""
    asked = await bodies.read_model(request, ResumeIn)
    resumed = await use.pausing.resume(ref, on_misfire=_misfire(asked.on_misfire), events=asked.events)
    activity = await shown.activity(use, resumed.record, response)
    return views.ResumedOut(activity=activity, times=resumed.times, events=resumed.events)


@freezes.post("", status_code=201, openapi_extra=bodies.body_of(FreezeIn))
async def create_freeze(
    request: Request, response: Response, use: Use, idempotency_key: params.IdempotencyKey = None
) -> views.FreezeOut:
    """Hold the times and events of every activity whose labels match, those made later too."""
    key = params.read_idempotency_key(idempotency_key)
    asked = await bodies.read_model(request, FreezeIn)
    frozen = await use.freezes.create(
        asked.selector,
        note=asked.note,
        from_at=asked.start,
        until=asked.until,
        on_misfire=_misfire(asked.on_misfire),
        events=asked.events,
        idempotency_key=key,
    )
    response.headers["Location"] = f"/v1/freezes/{frozen.freeze.id}"
    return views.freeze(frozen)


@freezes.get("")
async def list_freezes(
    use: Use, cursor: params.CursorText = None, limit: params.Limit = params.DEFAULT_LIMIT
) -> views.ListOf[views.FreezeOut]:
    """All of them, newest first, also those that have ended."""
    page = await use.freezes.listed(cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[views.freeze(item) for item in page.items], next_cursor=page.next_cursor)


@freezes.get("/{freeze_id}")
async def get_freeze(freeze_id: UUID, use: Use) -> views.FreezeOut:
    return views.freeze(await use.freezes.get(freeze_id))


@freezes.delete("/{freeze_id}")
async def end_freeze(freeze_id: UUID, use: Use) -> views.FreezeOut:
    """End it now. What it held is decided within seconds. One that has ended stays as it is."""
    return views.freeze(await use.freezes.end(freeze_id))


def _misfire(on_misfire: OnMisfire) -> str | None:
    return None if on_misfire == "policy" else on_misfire
