"""What can be done about an occurrence: commands, and requests where there is none, that work as they stand."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from activity_core.domain import ids
from activity_core.domain.documents import stored_activity
from activity_core.services.reads import RunView
from activity_core.services.why.answers import Action, name_of
from activity_core.store.activities import ActivityRecord
from activity_core.store.events import EventRecord
from activity_core.store.ledger import OccurrenceRecord

SEND_AGAIN = Action("Send the event again: it is decided again", "POST /v1/events")
MEND = Action("Mend the definition", "activity-core apply -f FILE")
ENABLE = Action("Enable it: nothing of it runs while it is disabled", "activity-core apply -f FILE")


def actions_of(
    record: ActivityRecord,
    row: OccurrenceRecord,
    event: EventRecord | None,
    run: RunView | None,
    inbox: Sequence[uuid.UUID],
    covering: OccurrenceRecord | None,
) -> list[Action]:
    complete = "Complete a task that waits in the inbox (--output JSON keeps what came of it)"
    actions = [Action(complete, f"activity-core tasks complete {task}") for task in inbox]
    if covering is not None and covering.kind == "event":
        asked = f"activity-core why {name_of(record)} --event-id {covering.key}"
        actions.append(Action("See the run that covers it", asked))
    elif covering is not None and covering.scheduled_for is not None:
        at = ids.format_nominal(covering.scheduled_for)
        actions.append(Action("See the run that covers it", f"activity-core why {name_of(record)} --at {at}"))
    failed = run is not None and run.run.status not in ("running", "completed")
    if run is not None and failed:
        actions.append(Action("See its tasks", f"activity-core tasks --run {run.run.run_id}"))
    if record.deleted_at is not None:
        return actions
    again = _again(record, row, event, run if failed else None)
    if again and not stored_activity(record.effective).enabled:
        actions.append(ENABLE)
    return [*actions, *again]


def _again(
    record: ActivityRecord, row: OccurrenceRecord, event: EventRecord | None, failed: RunView | None
) -> list[Action]:
    if failed is not None:
        return [Action("Run it again", f"activity-core rerun {failed.run.run_id}")]
    if event is not None and row.kind == "event":
        if row.outcome in ("filter_error", "dead_letter"):
            return [MEND, SEND_AGAIN]
        if row.outcome == "disabled":
            return [SEND_AGAIN]
        if row.outcome == "filtered":
            return [replay(event)]
        if row.outcome in ("skipped", "rate_limited", "concurrency_dropped"):
            return [Action("Send it once more, under another event_id", "POST /v1/events")]
        return []
    if row.kind == "time" and row.scheduled_for is not None and row.outcome in ("skipped", "dropped", "disabled"):
        return [backfill(record, row.scheduled_for), trigger(record)]
    return [trigger(record)] if row.kind == "manual" and row.outcome == "disabled" else []


def replay(event: EventRecord) -> Action:
    return Action("Replay it: it is routed as the definitions of today have it", f"POST /v1/events/{event.id}/replay")


def backfill(record: ActivityRecord, scheduled_for: datetime) -> Action:
    """Of this one time."""
    start, end = (ids.format_nominal(at) for at in (scheduled_for, scheduled_for + timedelta(seconds=1)))
    return Action("Run it for this time", f"activity-core backfill {record.slug} --from {start} --to {end}")


def trigger(record: ActivityRecord) -> Action:
    return Action("Run it now", f"activity-core trigger {record.slug}")
