"""The ledger in words: one English sentence for what became of an occurrence, or of an instant that is none. Pure text."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class RunFacts:
    """How a run went. `inbox`: how many of its tasks wait for somebody to complete them."""

    status: str
    result: str | None
    reason: str | None
    started_at: datetime
    finished_at: datetime | None
    inbox: int = 0


@dataclass(frozen=True, slots=True)
class RowFacts:
    """A ledger row. `zone`: the trigger's, for times. `blocked_by_run`: a run of the activity is open."""

    kind: str
    outcome: str
    reason_code: str
    reason: str
    due_at: datetime
    zone: ZoneInfo | None = None
    event_id: str | None = None
    run: RunFacts | None = None
    blocked_by_run: bool = False


def of_row(row: RowFacts) -> str:
    """What became of an occurrence and why."""
    subject = _subject(row)
    if row.outcome == "started":
        if row.run is None:
            return f"{subject} was started: {row.reason}."
        return f"{subject} started {_seconds(row.run.started_at - row.due_at)} later{_end(row.run)}"
    if row.outcome == "waiting":
        return f"{subject} {_waiting(row)}"
    verbs = {
        "skipped": "was skipped",
        "dropped": "was dropped",
        "merged": "was merged into another run",
        "filter_error": "did not run because its filter failed",
        "deleted": "did not run",
        "dead_letter": "could not be handled and was given up",
    }
    again = {
        "filter_error": " Sent again after the filter is mended, it is decided again.",
        "disabled": " Sent again after the activity is enabled, it is decided again.",
    }
    verb = verbs.get(row.outcome, "did not run")
    return f"{subject} {verb}: {row.reason.rstrip('.')}." + (again.get(row.outcome, "") if row.kind == "event" else "")


def no_due_time(slug: str, at: datetime, previous: datetime | None, following: datetime | None) -> str:
    return f"'{slug}' has no due time at {instant(at)}. {_around(previous, following)}"


def still_to_come(slug: str, at: datetime, now: datetime) -> str:
    return f"'{slug}' is due at {instant(at)}, which is {_seconds(at - now)} away."


def before_creation(slug: str, at: datetime, created_at: datetime) -> str:
    return f"'{slug}' did not exist at {instant(at)}; it was created at {instant(created_at)}, so nothing was owed."


def after_deletion(slug: str, at: datetime, deleted_at: datetime) -> str:
    return f"'{slug}' was deleted at {instant(deleted_at)}, so nothing is owed at {instant(at)}."


def was_disabled(slug: str, at: datetime, revision: int) -> str:
    return f"'{slug}' was disabled at {instant(at)} (revision {revision}), so no time was owed."


def no_times(slug: str, trigger_type: str) -> str:
    ask = "ask with an event_id" if trigger_type == "event" else "it runs when somebody triggers it"
    return f"'{slug}' had no due times then: its trigger is of type '{trigger_type}'; {ask}."


def not_settled(slug: str, at: datetime, settled_through: datetime | None, now: datetime) -> str:
    text = f"'{slug}' was due at {instant(at)} and the ledger has not caught up with it yet"
    if (
        settled_through is not None
        and now - settled_through > timedelta(seconds=10)
        and now - at > timedelta(seconds=10)
    ):
        return f"{text}: no worker has looked at it since {instant(settled_through)}. Is a worker running?"
    return f"{text}; a worker does that within seconds."


def nothing_yet(
    slug: str, created_at: datetime, trigger_type: str, following: datetime | None, *, enabled: bool
) -> str:
    since = f"since '{slug}' was created at {instant(created_at)}"
    if not enabled:
        return f"Nothing has been due {since}, and it is disabled, so nothing is owed."
    if trigger_type == "event":
        return f"No event for it has come {since}."
    if trigger_type == "manual":
        return f"Nobody has triggered it {since}."
    return f"Nothing has been due {since}. {_around(None, following)}"


def no_such_event(event_id: str) -> str:
    return f"No event with the id '{event_id}' was ever accepted."


def event_not_routed(event_id: str, accepted_at: datetime) -> str:
    return (
        f"The event '{event_id}' was accepted at {instant(accepted_at)} and has not been matched with activities yet."
    )


def event_dead_letter(event_id: str, reason: str) -> str:
    return f"The event '{event_id}' could not be matched with activities and was given up: {reason}."


def event_unmatched(slug: str, event_id: str, event_type: str, patterns: Sequence[str]) -> str:
    listed = ", ".join(f"'{pattern}'" for pattern in patterns)
    return f"The event '{event_id}' is of type '{event_type}', which '{slug}' does not subscribe to; it takes {listed}."


def event_other_trigger(slug: str, event_id: str, trigger_type: str) -> str:
    return f"'{slug}' was not triggered by events when '{event_id}' was accepted: its trigger was of type '{trigger_type}'."


def event_before_creation(slug: str, event_id: str, accepted_at: datetime, created_at: datetime) -> str:
    return (
        f"The event '{event_id}' was accepted at {instant(accepted_at)}, before '{slug}' was created at "
        f"{instant(created_at)}."
    )


def event_after_deletion(slug: str, event_id: str, accepted_at: datetime) -> str:
    return f"'{slug}' was deleted before the event '{event_id}' was accepted at {instant(accepted_at)}."


def instant(at: datetime) -> str:
    """An instant as people read it: UTC, whole seconds unless it has a fraction."""
    utc = at.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds")


def _subject(row: RowFacts) -> str:
    if row.kind == "time":
        local = "" if row.zone is None else f" ({row.due_at.astimezone(row.zone):%a %H:%M} in {row.zone.key})"
        return f"The time {instant(row.due_at)}{local}"
    if row.kind == "event":
        return f"The event '{row.event_id}', accepted at {instant(row.due_at)},"
    return f"The manual request of {instant(row.due_at)}"


def _waiting(row: RowFacts) -> str:
    if row.kind != "time":
        return "waits for its run to start."
    if row.blocked_by_run:
        return "is due and waits: a run of this activity is open, and decides it when it ends."
    return "is due and its run has not started yet."


def _end(run: RunFacts) -> str:
    took = "" if run.finished_at is None else f" after {_seconds(run.finished_at - run.started_at)}"
    because = f": {run.reason.rstrip('.')}" if run.reason else ""
    ends = {
        "running": " and is running",
        "cancelled": f" and was cancelled{took}",
        "terminated": f" and was terminated{took}",
        "timed_out": f" and timed out{took}",
        "lost": f" and was lost{took}",
    }
    text = ends.get(run.status, f" and {run.status}{took}")
    if run.status == "completed":
        text += f", with nothing to do{because}" if run.result == "no_work" else "; its tasks are handed over"
    else:
        text += because
    inbox = f" {run.inbox} of its tasks wait{'s' if run.inbox == 1 else ''} in the inbox." if run.inbox else ""
    return f"{text}.{inbox}"


def _around(previous: datetime | None, following: datetime | None) -> str:
    before = "There is none before it" if previous is None else f"The one before was {instant(previous)}"
    after = "none comes after it" if following is None else f"the next is {instant(following)}"
    if previous is None and following is not None:
        return f"The next due time is {instant(following)}."
    return f"{before}, {after}."


def _seconds(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3_600:.0f} hours" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
