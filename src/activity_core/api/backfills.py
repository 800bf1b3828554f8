"""Backfills: run times of the past that did not run."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from activity_core.api import bodies, params, views
from activity_core.api.pausing import Note
from activity_core.api.services import Use
from activity_core.domain.backfill import Item
from activity_core.domain.documents import Instant, Model
from activity_core.services.backfilling import Asked, Backfill, BackfillView


class BackfillIn(Model):
    """The due times of [`from`, `to`), all of them past, 10,000 at most."""

    start: Annotated[Instant, Field(alias="from")]
    end: Annotated[Instant, Field(alias="to")]
    dry_run: bool = False
    note: Note | None = None


class PlannedTime(BaseModel):
    """`outcome`: what the ledger says of it, null for a time that was never due. `overlaps`: the later time whose window
    holds this one's too."""

    scheduled_for: views.Instant
    action: Literal["reopen", "add", "leave"]
    outcome: views.Outcome | None
    reason: str
    window: views.Window
    overlaps: views.Instant | None


class Planned(BaseModel):
    """How many times are reopened, added, and left as they are."""

    reopen: int
    add: int
    leave: int


class BackfillPlanOut(BaseModel):
    """`id` is null when nothing was begun: a dry run, or nothing to run. `items`: the first 500, oldest first."""

    id: UUID | None
    activity_id: UUID
    slug: str
    dry_run: bool
    start: Annotated[views.Instant, Field(serialization_alias="from")]
    end: Annotated[views.Instant, Field(serialization_alias="to")]
    counts: Planned
    items: list[PlannedTime]
    notices: list[views.Notice]


class BackfillOut(BaseModel):
    """`counts` by outcome, with their `total`; `cancelled`: times that went back to what they were."""

    id: UUID
    activity_id: UUID
    slug: str
    start: Annotated[views.Instant, Field(serialization_alias="from")]
    end: Annotated[views.Instant, Field(serialization_alias="to")]
    note: str | None
    requested_at: views.Instant
    cancelled_at: views.Instant | None
    counts: dict[str, int]


of_activity = APIRouter(prefix="/v1/activities", tags=["backfills"])
router = APIRouter(prefix="/v1/backfills", tags=["backfills"])


@of_activity.post(
    "/{ref}/backfill",
    status_code=202,
    responses={200: {"model": BackfillPlanOut, "description": "What a dry run would do"}},
    openapi_extra=bodies.body_of(BackfillIn),
)
async def backfill_activity(
    ref: str, request: Request, response: Response, use: Use, idempotency_key: params.IdempotencyKey = None
) -> BackfillPlanOut:
    """Run the times of a range that were skipped, dropped or given up, and those that were never due: before the activity
    was created, or while it was disabled. They run one at a time after all others; with `allow_all` 10 at once.

    Times that ran, or are covered by a run, are left. `dry_run`: 200 with the plan, and nothing changes.
    """
    key = params.read_idempotency_key(idempotency_key)
    asked = await bodies.read_model(request, BackfillIn)
    if asked.dry_run:
        response.status_code = 200
    wanted = Asked(asked.start, asked.end, asked.note, asked.dry_run)
    return _plan_out(await use.backfilling.backfill(ref, wanted, idempotency_key=key))


@of_activity.get("/{ref}/backfills")
async def list_backfills(
    ref: str, use: Use, cursor: params.CursorText = None, limit: params.Limit = params.DEFAULT_LIMIT
) -> views.ListOf[BackfillOut]:
    """The backfills of one activity, newest first."""
    activity_id = await params.activity_id_of(use.reads, ref)
    page = await use.backfilling.listed(activity_id, cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[_out(view) for view in page.items], next_cursor=page.next_cursor)


@router.get("/{backfill_id}")
async def get_backfill(backfill_id: UUID, use: Use) -> BackfillOut:
    return _out(await use.backfilling.get(backfill_id))


@router.post("/{backfill_id}/cancel")
async def cancel_backfill(backfill_id: UUID, use: Use) -> BackfillOut:
    """What waits goes back to what it was, and what it added is skipped; runs that started go on. A repeat changes nothing."""
    return _out(await use.backfilling.cancel(backfill_id))


def _plan_out(made: Backfill) -> BackfillPlanOut:
    notices = []
    if made.held is not None:
        message = f"{made.held}; what is backfilled waits until nothing holds it"
        notices.append(views.Notice(code="held", pointer="", message=message))
    return BackfillPlanOut(
        id=made.id,
        activity_id=made.activity_id,
        slug=made.slug,
        dry_run=made.asked.dry_run,
        start=made.asked.start,
        end=made.asked.end,
        counts=Planned.model_validate(made.counts),
        items=[_item(item) for item in made.items],
        notices=notices,
    )


def _item(item: Item) -> PlannedTime:
    names = ("scheduled_for", "action", "outcome", "reason", "overlaps")
    window = views.Window(start=item.interval_start, end=item.scheduled_for)
    return PlannedTime.model_validate({**{name: getattr(item, name) for name in names}, "window": window})


def _out(view: BackfillView) -> BackfillOut:
    record = view.record
    counts = {"waiting": 0, "started": 0, "cancelled": 0, **view.counts}
    return BackfillOut(
        id=record.id,
        activity_id=record.activity_id,
        slug=record.slug,
        start=record.from_at,
        end=record.to_at,
        note=record.note,
        requested_at=record.requested_at,
        cancelled_at=record.cancelled_at,
        counts={**counts, "total": sum(counts.values())},
    )
