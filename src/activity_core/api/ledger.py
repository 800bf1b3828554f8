"""/v1/occurrences and /v1/runs."""

from typing import Literal
from uuid import UUID

from fastapi import APIRouter, Request

from activity_core.api import bodies, params, views
from activity_core.api.services import Use
from activity_core.domain.documents import Model
from activity_core.store.ledger import OccurrenceFilter
from activity_core.store.runs import RunFilter

occurrences = APIRouter(prefix="/v1/occurrences", tags=["ledger"])
runs = APIRouter(prefix="/v1/runs", tags=["runs"])


@occurrences.get("")
async def list_occurrences(
    use: Use,
    activity: params.ActivityRef = None,
    outcome: views.Outcome | None = None,
    reason_code: str | None = None,
    kind: views.OccurrenceKind | None = None,
    selector: params.SelectorText = None,
    start: params.From = None,
    end: params.To = None,
    merged_into: params.MergedInto = None,
    backfill_id: params.BackfillId = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.OccurrenceOut]:
    """The ledger across activities, newest first; `from` and `to` are about when they were due."""
    params.check_range(start, end)
    activity_id = await params.optional_activity_id(use.reads, activity)
    where = OccurrenceFilter(
        *(activity_id, outcome, reason_code, kind, None, start, end, merged_into, backfill_id),
        params.read_selector(selector),
    )
    page = await use.reads.occurrences(where, cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[views.occurrence(row) for row in page.items], next_cursor=page.next_cursor)


@occurrences.get("/{occurrence_id}")
async def get_occurrence(occurrence_id: UUID, use: Use) -> views.OccurrenceOut:
    return views.occurrence(await use.reads.occurrence(occurrence_id))


@runs.get("")
async def list_runs(
    use: Use,
    activity: params.ActivityRef = None,
    status: views.RunStatus | None = None,
    start: params.From = None,
    end: params.To = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.RunOut]:
    """Runs across activities, newest first; `from` and `to` are about when they started."""
    params.check_range(start, end)
    where = RunFilter(await params.optional_activity_id(use.reads, activity), status, None, start, end)
    page = await use.reads.runs(where, cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[views.run(view) for view in page.items], next_cursor=page.next_cursor)


class RerunIn(Model):
    """`current`: by the definition as it is now; `original`: by the revision that the run had."""

    revision: Literal["current", "original"] = "current"
    on_overlap: Literal["refuse", "wait", "allow"] | None = None


@runs.post("/{run_id}/rerun", status_code=202, openapi_extra=bodies.body_of(RerunIn, required=False))
async def rerun(
    run_id: UUID, request: Request, use: Use, idempotency_key: params.IdempotencyKey = None
) -> views.TriggeredOut:
    """Run again what a run was for: its window, its event or its params. Its tasks are new ones, with keys of their own."""
    asked = await bodies.read_model(request, RerunIn)
    key = params.read_idempotency_key(idempotency_key)
    return views.triggered(
        await use.triggering.rerun(
            run_id,
            original_revision=asked.revision == "original",
            on_overlap=asked.on_overlap,
            idempotency_key=key,
        )
    )


@runs.get("/{run_id}")
async def get_run(run_id: UUID, use: Use) -> views.RunOut:
    return views.run(await use.reads.run(run_id))
