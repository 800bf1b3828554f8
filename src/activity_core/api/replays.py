"""POST /v1/events/…/replay: route events again."""

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from activity_core.api import bodies
from activity_core.api.services import Use
from activity_core.domain.documents import Instant, Model
from activity_core.services.replaying import MAX_EVENTS, Replay

router = APIRouter(prefix="/v1/events", tags=["events"])


class ReplayOne(Model):
    activity: str | None = None
    dry_run: bool = False


class ReplayMany(Model):
    """Those accepted in [from, to), oldest first."""

    start: Annotated[Instant, Field(alias="from")]
    end: Annotated[Instant, Field(alias="to")]
    type: str | None = None
    source: str | None = None
    activity: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_EVENTS)] = MAX_EVENTS
    dry_run: bool = False


class OfActivityOut(BaseModel):
    """In events. `starts`: its filter lets them through; its debounce, rate limit and concurrency may still hold them back.
    `reopened`: of these, how many had been decided otherwise. `filtered`: not for it. `left`: decided for good."""

    activity_id: UUID
    slug: str
    starts: int
    reopened: int
    filtered: int
    left: int


class ReplayOut(BaseModel):
    """`events`: how many are routed again, or would be."""

    dry_run: bool
    events: int
    by_activity: list[OfActivityOut]


@router.post("/replay", status_code=202, openapi_extra=bodies.body_of(ReplayMany))
async def replay_events(request: Request, use: Use) -> ReplayOut:
    """Route the events of a range again, as the definitions of today have it. What ran does not run again."""
    command = await bodies.read_model(request, ReplayMany)
    replay = await use.replaying.many(
        start=command.start,
        end=command.end,
        event_type=command.type,
        source=command.source,
        activity=command.activity,
        limit=command.limit,
        dry_run=command.dry_run,
    )
    return _shown(replay, command.dry_run)


@router.post("/{ref:path}/replay", status_code=202, openapi_extra=bodies.body_of(ReplayOne, required=False))
async def replay_event(ref: str, request: Request, use: Use) -> ReplayOut:
    """Route one event again: by `id` or event_id. Also one that is a dead letter, quarantined or a loop."""
    command = await bodies.read_model(request, ReplayOne)
    replay = await use.replaying.one(ref, activity=command.activity, dry_run=command.dry_run)
    return _shown(replay, command.dry_run)


def _shown(replay: Replay, dry_run: bool) -> ReplayOut:
    by_activity = [OfActivityOut(**asdict(item)) for item in replay.by_activity]
    return ReplayOut(dry_run=dry_run, events=replay.events, by_activity=by_activity)
