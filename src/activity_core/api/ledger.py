"""/v1/occurrences and /v1/runs."""

from uuid import UUID

from fastapi import APIRouter

from activity_core.api import params, views
from activity_core.api.services import Use
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
    start: params.From = None,
    end: params.To = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.OccurrenceOut]:
    """The ledger across activities, newest first; `from` and `to` are about when they were due."""
    params.check_range(start, end)
    activity_id = await params.optional_activity_id(use.reads, activity)
    where = OccurrenceFilter(activity_id, outcome, reason_code, kind, None, start, end)
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


@runs.get("/{run_id}")
async def get_run(run_id: UUID, use: Use) -> views.RunOut:
    return views.run(await use.reads.run(run_id))
