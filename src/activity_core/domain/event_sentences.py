"""What `why` says of an event that has no row in an activity's ledger."""

from collections.abc import Sequence
from datetime import datetime

from activity_core.domain.sentences import instant


def no_such_event(event_id: str) -> str:
    return f"No event with the id '{event_id}' was ever accepted."


def event_not_routed(event_id: str, accepted_at: datetime) -> str:
    return (
        f"The event '{event_id}' was accepted at {instant(accepted_at)} and has not been matched with activities yet."
    )


def event_quarantined(event_id: str, reason: str) -> str:
    return f"The event '{event_id}' is quarantined and was given to no activity: {reason.rstrip('.')}."


def event_other_source(slug: str, event_id: str, source: str, patterns: Sequence[str]) -> str:
    listed = ", ".join(f"'{pattern}'" for pattern in patterns)
    return f"The event '{event_id}' came from '{source}', and '{slug}' takes events from {listed} alone."


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
