"""Why, for an event that has no row in an activity's ledger."""

from activity_core.domain import event_sentences as say
from activity_core.domain.documents import EventTrigger, stored_activity
from activity_core.domain.event_rules import source_matches
from activity_core.domain.event_types import matching_patterns
from activity_core.services.why.actions import SEND_AGAIN, replay
from activity_core.services.why.answers import Action, Answer, Evidence, path_of
from activity_core.store import activities
from activity_core.store.activities import ActivityRecord
from activity_core.store.database import Connection
from activity_core.store.events import EventRecord


def of_unknown(event_id: str) -> Answer:
    sent = [Action("Send it", "POST /v1/events")]
    return Answer("no_such_event", "no_such_event", say.no_such_event(event_id), event_id=event_id, actions=sent)


async def of_unmatched(connection: Connection, record: ActivityRecord, event: EventRecord) -> Answer:
    """For an event that has no row in this activity's ledger."""
    slug, name, accepted = record.slug, event.event_id, event.accepted_at
    outcome, code, actions = "not_matched", "type_unmatched", []
    revision = await activities.revision_at(connection, record.id, accepted)
    definition = None if revision is None else stored_activity(revision.effective)
    if event.dead_letter_reason is not None:
        outcome, code, sentence = "dead_letter", "dead_letter", say.event_dead_letter(name, event.dead_letter_reason)
        actions = [replay(event) if event.dead_letter_reason.startswith("loop") else SEND_AGAIN]
    elif event.quarantine_reason is not None:
        outcome, code, sentence = "quarantined", "quarantined", say.event_quarantined(name, event.quarantine_reason)
        actions = [replay(event)]
    elif accepted < record.created_at:
        code, sentence = "before_creation", say.event_before_creation(slug, name, accepted, record.created_at)
    elif definition is None:
        code, sentence = "after_deletion", say.event_after_deletion(slug, name, accepted)
    elif not isinstance(definition.trigger, EventTrigger):
        code, sentence = "no_event_trigger", say.event_other_trigger(slug, name, definition.trigger.type)
    elif not source_matches(definition.trigger.sources, event.source):
        code = "source_unmatched"
        sentence = say.event_other_source(slug, name, event.source, definition.trigger.sources)
    elif set(definition.trigger.event_types) & set(matching_patterns(event.type)):
        outcome, code, sentence = "waiting", "not_routed", say.event_not_routed(name, accepted)
    else:
        sentence = say.event_unmatched(slug, name, event.type, definition.trigger.event_types)
    evidence = [
        Evidence(accepted, f"the event was accepted (type {event.type})", f"/v1/events/{event.id}"),
        Evidence(record.created_at, "the activity was created", path_of(record)),
    ]
    evidence.sort(key=lambda item: item.at)
    return Answer(outcome, code, sentence, event_id=name, evidence=evidence, actions=actions)
