"""From an accepted event to one ledger row per matching activity. Nothing is started here.

Matching is by the revision in force when the event was accepted, so a backlog is routed as if there had been none; only
a redelivery decides under the current revision.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog

from activity_core.domain.documents import Activity, EventTrigger
from activity_core.domain.event_rules import has_rules, source_matches
from activity_core.domain.event_types import matching_patterns
from activity_core.domain.expressions import ExpressionError, compile_condition
from activity_core.domain.planner import Decision
from activity_core.errors import UnavailableError
from activity_core.services import holds
from activity_core.services.definitions import Definitions
from activity_core.services.holds import Hold
from activity_core.services.placing import NEVER, NO_RULES, Draft, new_id, write_drafts
from activity_core.services.runs import event_scope
from activity_core.store import activities, events, ledger, trigger_state
from activity_core.store.activities import Candidate, Subscription
from activity_core.store.database import Connection, Database
from activity_core.store.events import EventRecord
from activity_core.store.ledger import OccurrenceRecord
from activity_core.store.notify import STARTS, notify
from activity_core.store.trigger_state import TriggerState

BATCH = 100
MAX_ATTEMPTS = 8
# What a redelivery decides again, and what a replay does.
REDECIDED = frozenset({"disabled", "filter_error", "dead_letter"})
REPLAYED = REDECIDED | {"filtered"}
# A time at which what is in force now still is.
ALWAYS = datetime.max.replace(tzinfo=UTC)
WAITING = Decision("waiting", "due", "matched, not started yet")

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Match:
    event: EventRecord
    activity_id: uuid.UUID
    revision: int
    decision: Decision


class Routing:
    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def route_batch(self) -> int:
        """Route up to a batch of events; how many there were. One that breaks the batch is routed alone afterwards."""
        try:
            async with self._database.begin() as connection:
                batch = await events.claim_unrouted(connection, BATCH)
                await self._route(connection, batch)
                return len(batch)
        except UnavailableError:
            raise
        except Exception:
            log.exception("events.route_failed")
        return await self._route_singly()

    async def _route_singly(self) -> int:
        async with self._database.read() as connection:
            batch = await events.unrouted_ids(connection, BATCH)
        for event_uuid in batch:
            try:
                async with self._database.begin() as connection:
                    event = await events.claim_one(connection, event_uuid)
                    if event is not None:
                        await self._route(connection, [event])
            except UnavailableError:
                raise
            except Exception as error:
                log.exception("event.route_failed", event_uuid=str(event_uuid))
                async with self._database.begin() as connection:
                    reason = f"{type(error).__name__}: {error}"[:500]
                    await events.mark_route_failed(connection, event_uuid, reason, MAX_ATTEMPTS)
        return len(batch)

    async def _route(self, connection: Connection, batch: Sequence[EventRecord]) -> None:
        if not batch:
            return
        matches: list[Match] = []
        for event, candidates in await _candidates(connection, batch):
            for candidate in candidates:
                match = await self._match(connection, event, candidate)
                if match is not None:
                    matches.append(match)
        # every writer of a ledger takes its lock first; the filters are evaluated before
        locked = await trigger_state.lock_all(connection, {match.activity_id for match in matches})
        await self._write(connection, matches, locked)
        await events.mark_routed(connection, [event.id for event in batch])

    async def _match(self, connection: Connection, event: EventRecord, candidate: Candidate) -> Match | None:
        """None for an activity that the event is not for: one that wants other sources, or that a replay leaves out."""
        if event.route_activity_id not in (None, candidate.activity_id):
            return None
        if not await self._wants(connection, event, candidate):
            return None
        decision = await self._decide(connection, event, candidate.activity_id, candidate.revision)
        return Match(event, candidate.activity_id, candidate.revision, decision)

    async def _wants(self, connection: Connection, event: EventRecord, candidate: Candidate) -> bool:
        try:
            activity = await self._definitions.get(connection, candidate.activity_id, candidate.revision)
        except (ValueError, LookupError):
            return True  # that it can't be read is what its row will say
        trigger = activity.trigger
        return not isinstance(trigger, EventTrigger) or source_matches(trigger.sources, event.source)

    async def _decide(
        self, connection: Connection, event: EventRecord, activity_id: uuid.UUID, revision: int
    ) -> Decision:
        """A definition that can't be read is its own trouble, and not that of the event's other activities (R26, I9)."""
        try:
            activity = await self._definitions.get(connection, activity_id, revision)
        except (ValueError, LookupError) as error:
            log.exception("definition.unreadable", activity_id=str(activity_id), revision=revision)
            reason = f"revision {revision} of its definition can't be read ({type(error).__name__}); save it anew"
            return Decision("dead_letter", "definition_unreadable", reason)
        return decide(activity, event, activity_id)

    async def _write(
        self, connection: Connection, matches: Sequence[Match], locked: dict[uuid.UUID, TriggerState]
    ) -> None:
        held = {state.activity_id: await self._hold(connection, state) for state in locked.values()}
        known = await self._known(connection, matches)
        plain: list[dict[str, Any]] = []
        again: list[dict[str, Any]] = []
        drafts: list[Draft] = []
        for match in matches:
            state = locked[match.activity_id]
            before = known.get((match.activity_id, match.event.event_id))
            now = await self._now(connection, match, state, before)
            if now is None:
                continue
            row = _row(now, state, held[match.activity_id], before)
            ruled = await self._ruled(connection, now) if row["outcome"] == "waiting" else None
            if ruled is not None:
                ruled = await self._limited(connection, ruled, now, state)
                scope = decision_scope(ruled, match.event, match.activity_id)
                drafts.append(Draft(state, ruled, match.event, scope, row, None if before is None else before.outcome))
            elif before is None:
                plain.append(row)
            elif before.outcome != row["outcome"]:
                again.append(row)
        starts = await write_drafts(connection, drafts) if drafts else False
        if again:
            await ledger.redecide(connection, again)
        if plain:
            await ledger.insert_rows(connection, plain)
        if starts or any(row["outcome"] == "waiting" for row in again + plain):
            await notify(connection, STARTS)

    async def _known(
        self, connection: Connection, matches: Sequence[Match]
    ) -> dict[tuple[uuid.UUID, str], OccurrenceRecord]:
        """The rows that may be there already, and must not be placed twice. An event without rules that comes for the
        first time needs no look."""
        pairs = [
            (match.activity_id, match.event.event_id)
            for match in matches
            if match.event.route_as is not None or await self._ruled(connection, match) is not None
        ]
        return await ledger.by_keys(connection, pairs) if pairs else {}

    async def _now(
        self, connection: Connection, match: Match, state: TriggerState, before: OccurrenceRecord | None
    ) -> Match | None:
        """The match as it is decided under the lock; None for a row that stays as it is.

        A redelivery or a replay decides again what is not final, under the revision in force now.
        """
        if before is None:
            return await self._stopped(connection, match, state)
        redecided = REPLAYED if match.event.route_as == "replay" else REDECIDED
        if before.outcome not in redecided or state.deleted:
            return None
        decision = await self._decide(connection, match.event, match.activity_id, state.revision)
        return replace(match, revision=state.revision, decision=decision)

    async def _ruled(self, connection: Connection, match: Match) -> Activity | None:
        """The definition, if it has rules that look at other events. Cached, so that it costs no query."""
        if match.decision.outcome == "dead_letter":
            return None
        activity = await self._definitions.get(connection, match.activity_id, match.revision)
        return activity if has_rules(activity) else None

    async def _limited(self, connection: Connection, ruled: Activity, match: Match, state: TriggerState) -> Activity:
        """How many of a key may be open goes by the revision in force now: it guards what is there now."""
        if ruled.concurrency is None or match.revision == state.revision:
            return ruled
        now = (await self._definitions.get(connection, state.activity_id, state.revision)).concurrency
        if now is None:
            return ruled
        return ruled.model_copy(update={"concurrency": ruled.concurrency.model_copy(update={"limit": now.limit})})

    async def _hold(self, connection: Connection, state: TriggerState) -> Hold | None:
        """What holds the activity's events now. Costs nothing where no pause or freeze is about."""
        if state.held_by is None and not holds.may_have_changed(state, state.now):
            return None
        activity = await self._definitions.get(connection, state.activity_id, state.revision)
        held = await holds.look(connection, state, activity, state.now)
        # noted here too: with no worker about, nobody else might before it ends, and then nobody would let the rows go
        await holds.show(connection, state, held, state.now)
        return held.hold

    async def _stopped(self, connection: Connection, match: Match, state: TriggerState) -> Match:
        """Disabling stops what is on its way too: also events that were accepted before and not routed yet."""
        if match.decision.outcome != "waiting" or state.deleted or state.revision == match.revision:
            return match
        now = await self._decide(connection, match.event, match.activity_id, state.revision)
        return replace(match, decision=now) if now.outcome == "disabled" else match


async def _candidates(
    connection: Connection, batch: Sequence[EventRecord]
) -> list[tuple[EventRecord, Iterable[Candidate]]]:
    """Each event with those whose type pattern matches, asked for the batch at once."""
    # a replay asks what the definitions of today make of it
    ats = [ALWAYS if event.route_as == "replay" else event.accepted_at for event in batch]
    patterns = {event.type: matching_patterns(event.type) for event in batch}
    by_pattern: dict[str, list[Subscription]] = {}
    wanted = {pattern for matching in patterns.values() for pattern in matching}
    for subscription in await activities.subscriptions(connection, wanted, min(ats), max(ats)):
        by_pattern.setdefault(subscription.pattern, []).append(subscription)
    found: list[tuple[EventRecord, Iterable[Candidate]]] = []
    for event, at in zip(batch, ats, strict=True):
        subscribed = (s for pattern in patterns[event.type] for s in by_pattern.get(pattern, ()))
        found.append((event, dict.fromkeys(s.candidate for s in subscribed if s.in_force_at(at))))
    return found


def decide(activity: Activity, event: EventRecord, activity_id: uuid.UUID) -> Decision:
    """What becomes of an event for an activity whose type pattern matches. Pure."""
    if not activity.enabled:
        return Decision("disabled", "disabled", "the activity was disabled when the event was accepted")
    trigger = activity.trigger
    if not isinstance(trigger, EventTrigger):
        return Decision("filtered", "no_event_trigger", "the activity is not triggered by events any more")
    if not set(trigger.event_types) & set(matching_patterns(event.type)):
        return Decision("filtered", "type_unmatched", "the activity does not subscribe to this type any more")
    if not source_matches(trigger.sources, event.source):
        return Decision("filtered", "source_unmatched", "the activity does not take events of this source any more")
    if trigger.filter is None:
        return WAITING
    try:
        holds = compile_condition(trigger.filter).holds(decision_scope(activity, event, activity_id))
    except ExpressionError as error:
        return Decision("filter_error", "filter_error", str(error)[:500])
    return WAITING if holds else Decision("filtered", "filter_false", "its filter does not hold for this event")


def decision_scope(activity: Activity, event: EventRecord, activity_id: uuid.UUID) -> dict[str, Any]:
    """What filters and keys see."""
    return {
        "event": event_scope(event),
        "activity": {"id": str(activity_id), "slug": activity.slug, "name": activity.name, "labels": activity.labels},
    }


def _row(match: Match, state: TriggerState, hold: Hold | None, before: OccurrenceRecord | None) -> dict[str, Any]:
    decision = match.decision
    if state.deleted and decision.outcome == "waiting":
        decision = Decision("deleted", "deleted", "the activity was deleted")
    held = hold is not None and decision.outcome == "waiting"
    if hold is not None and held:
        decision = Decision("waiting", hold.reason_code, hold.reason)
    return {
        **NO_RULES,
        "id": new_id() if before is None else before.id,
        "activity_id": match.activity_id,
        "kind": "event",
        "key": match.event.event_id,
        "revision": match.revision,
        "due_at": match.event.accepted_at,
        "event_uuid": match.event.id,
        "triggered_by": "event",
        "outcome": decision.outcome,
        "reason_code": decision.reason_code,
        "reason": decision.reason,
        "decided_at": None if decision.outcome == "waiting" else state.now,
        # nothing claims it before the hold's end
        "start_after": NEVER if held else state.now,
    }
