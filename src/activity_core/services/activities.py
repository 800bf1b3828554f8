"""Create, replace, delete and read activities. What must happen later (the schedule) is a generation in the same commit."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from activity_core.domain import documents as docs
from activity_core.domain import ids
from activity_core.domain.json_values import JsonValue
from activity_core.domain.planner import Decision
from activity_core.domain.reading import consumer_references, read_activity
from activity_core.domain.selectors import Selector
from activity_core.errors import (
    Fault,
    GoneError,
    InvalidInputError,
    NotFoundError,
    RevisionMismatchError,
    SlugTakenError,
)
from activity_core.services.definitions import Definitions
from activity_core.services.settle import Settler, next_due, settle_fully
from activity_core.store import activities, consumers, event_rows, holds, idempotency, ledger, time_rows, trigger_state
from activity_core.store.activities import ActivityRecord, RevisionRecord
from activity_core.store.database import Connection, Database
from activity_core.store.locks import side_by_side
from activity_core.store.notify import SCHEDULES, STARTS, notify
from activity_core.store.paging import Cursor, Page

DELETED = Decision("deleted", "deleted", "the activity was deleted")
DISABLED = Decision("disabled", "disabled", "the activity was disabled before this could start")
TRIGGER_CHANGED = Decision("skipped", "trigger_changed", "the trigger was changed before this could start")
SETTLE_SOON = timedelta(seconds=1)
# Under this name, whoever gives an activity labels waits for whoever makes a freeze, and the other way round.
FREEZES = "freezes"


@dataclass(frozen=True, slots=True)
class Saved:
    """`change`: `created`, `replaced` or `unchanged`."""

    record: ActivityRecord
    change: str


async def find(connection: Connection, ref: str) -> ActivityRecord:
    """The live activity that a UUID or slug names. Raises NotFoundError or GoneError."""
    if ids.is_uuid(ref):
        record = await activities.by_id(connection, uuid.UUID(ref))
        if record is not None and record.deleted_at is not None:
            raise GoneError(f"activity '{ref}' was deleted at {record.deleted_at.isoformat()}")
    else:
        record = await activities.by_slug(connection, ref)
    if record is None:
        raise NotFoundError(f"there is no activity '{ref}'")
    return record


async def check(connection: Connection, value: JsonValue) -> docs.Activity:
    """Read a definition and look up what it names. Raises InvalidInputError naming every fault of both kinds."""
    faults: list[Fault] = []
    document = None
    try:
        document = read_activity(value)
    except InvalidInputError as error:
        faults.extend(error.faults)
    named = list(consumer_references(value))
    existing = await consumers.existing_slugs(connection, {slug for _, slug in named}) if named else set()
    faults.extend(
        Fault(pointer, f"there is no consumer '{slug}'; create it first, or write 'inbox' or 'log'", "unknown_consumer")
        for pointer, slug in named
        if slug not in existing
    )
    if faults or document is None:
        raise InvalidInputError(sorted(set(faults), key=lambda fault: (fault.pointer, fault.message)))
    return document


def as_sent(value: JsonValue, kind: str) -> dict[str, Any]:
    """The spec that is stored: what was sent, with `api_version` and `kind` written out."""
    assert isinstance(value, dict)  # noqa: S101 (it was read as a document)
    return {**value, "api_version": docs.API_VERSION, "kind": kind}


async def put(
    connection: Connection,
    definitions: Definitions,
    value: JsonValue,
    *,
    ref: str | None = None,
    if_match: int | None = None,
    create_only: bool = False,
) -> Saved:
    """Create the activity of this document or replace the one with its slug. The caller commits.

    The caller is `side_by_side` with others under FREEZES, and was before it took the lock of any ledger.
    `ref`: the UUID or slug of the path, which the document must belong to.
    """
    document = await check(connection, value)
    record = await activities.by_slug(connection, document.slug)
    if ref is not None and ref != document.slug:
        named = await find(connection, ref)
        if named.slug != document.slug:
            message = (
                f"this is '{named.slug}', and a slug never changes; PUT '{document.slug}' to make another activity"
            )
            raise InvalidInputError([Fault("/slug", message)])
        record = named
    spec, effective = as_sent(value, "Activity"), docs.effective(document)
    if record is None or create_only:
        if if_match is not None:
            raise RevisionMismatchError(f"there is no activity '{document.slug}' yet; leave If-Match out")
        activity_id = uuid.uuid4()
        now = await trigger_state.clock(connection)
        _check_ahead(document, now)
        await activities.create(
            connection,
            activity_id,
            slug=document.slug,
            spec=spec,
            effective=effective,
            patterns=_patterns(document),
            next_due_at=next_due(document, now),
            now=now,
        )
        await _look_at_freezes(connection, activity_id, now)
        await notify(connection, SCHEDULES)
        return Saved(await _reread(connection, activity_id), "created")
    return await _replace(connection, definitions, record.id, document, spec, effective, if_match)


async def _replace(
    connection: Connection,
    definitions: Definitions,
    activity_id: uuid.UUID,
    document: docs.Activity,
    spec: dict[str, Any],
    effective: dict[str, Any],
    if_match: int | None,
) -> Saved:
    """Settle under the old rules, then put the new ones in force: a new cron never makes a past time due."""
    state = await trigger_state.lock(connection, activity_id)
    record = await _reread(connection, activity_id)
    if state is None or record.deleted_at is not None:
        raise GoneError(f"activity '{activity_id}' was deleted")
    _check_match(record, if_match)
    if record.spec == spec:
        return Saved(record, "unchanged")
    settled = await settle_fully(connection, definitions, state)
    before = settled.activity.trigger
    if document.trigger != before:
        _check_ahead(document, settled.through)
    await activities.revise(
        connection, record, spec=spec, effective=effective, patterns=_patterns(document), now=settled.through
    )
    if not document.enabled:
        await ledger.end_waiting(connection, activity_id, DISABLED, settled.through)
    elif not isinstance(document.trigger, docs.TimeTrigger):
        await ledger.end_waiting(connection, activity_id, TRIGGER_CHANGED, settled.through, only_times=True)
    elif isinstance(before, docs.TimeTrigger) and before.misfire_policy != document.trigger.misfire_policy:
        # what waits by now was missed under the old policy; the new one is the next outage's (R10)
        await time_rows.plan_waiting_as(
            connection, activity_id, before.misfire_policy, until=settled.through, replace=False
        )
    if document.concurrency != settled.activity.concurrency:
        limit = None if document.concurrency is None else document.concurrency.limit
        await event_rows.relimit(connection, activity_id, limit)
        await notify(connection, STARTS)
    due = next_due(document, settled.through)
    await trigger_state.set_state(
        connection,
        activity_id,
        settled_through=settled.through,
        last_nominal=None,
        # times that wait are planned again under the new rules at once
        next_due_at=None if due is None else min(due, settled.through + SETTLE_SOON),
    )
    await _look_at_freezes(connection, activity_id, settled.through)
    await notify(connection, SCHEDULES)
    return Saved(await _reread(connection, activity_id), "replaced")


def _check_ahead(document: docs.Activity, now: datetime) -> None:
    """A single instant that is past would never run: say so now, and not by silence."""
    trigger = document.trigger
    if isinstance(trigger, docs.OnceTrigger) and trigger.at <= now:
        message = f"{trigger.at.isoformat()} is past; write an instant to come, or ask for a run now with `trigger`"
        raise InvalidInputError([Fault("/trigger/at", message)])


async def _look_at_freezes(connection: Connection, activity_id: uuid.UUID, now: datetime) -> None:
    """Its labels are new: a freeze may match them now, or not any more."""
    if await holds.open_freezes(connection, now):
        await trigger_state.look_at_holds(connection, [activity_id], now)


def _patterns(document: docs.Activity) -> tuple[str, ...]:
    return document.trigger.event_types if isinstance(document.trigger, docs.EventTrigger) else ()


def _check_match(record: ActivityRecord, if_match: int | None) -> None:
    if if_match is not None and if_match != record.revision:
        raise RevisionMismatchError(
            f"'{record.slug}' is at revision {record.revision}, not {if_match}; read it again and redo your change"
        )


async def _reread(connection: Connection, activity_id: uuid.UUID) -> ActivityRecord:
    record = await activities.by_id(connection, activity_id)
    assert record is not None  # noqa: S101 (activities are never removed)
    return record


class Activities:
    """The use cases; each owns its transaction and commits before it returns."""

    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions
        self._settler = Settler(database, definitions)

    async def create(self, value: JsonValue, *, idempotency_key: str | None) -> Saved:
        """Raises InvalidInputError, SlugTakenError, IdempotencyKeyReusedError."""
        async with self._database.begin() as connection:
            await side_by_side(connection, FREEZES)
            if idempotency_key is not None:
                answered = await idempotency.claim(connection, "activities", idempotency_key, value)
                if answered is not None:
                    return Saved(await _reread(connection, uuid.UUID(answered.response["id"])), "created")
            saved = await put(connection, self._definitions, value, create_only=True)
            if idempotency_key is not None:
                response = {"id": str(saved.record.id)}
                await idempotency.keep_response(connection, "activities", idempotency_key, response)
            return saved

    async def put(self, ref: str, value: JsonValue, *, if_match: int | None) -> Saved:
        """Create or replace; the unknown UUID is a NotFoundError, because ids are ours to give."""
        await self._settle(ref)
        try:
            return await self._put(ref, value, if_match)
        except (SlugTakenError, GoneError):
            if ids.is_uuid(ref):
                raise
            # somebody created or deleted it between our look and our write: then look again
            return await self._put(ref, value, if_match)

    async def _settle(self, ref: str) -> None:
        """Settle what a long outage left, in bounded transactions, before the one of the change."""
        async with self._database.read() as connection:
            try:
                record = await find(connection, ref)
            except (NotFoundError, GoneError):
                return
        await self._settler.settle(record.id)

    async def _put(self, ref: str, value: JsonValue, if_match: int | None) -> Saved:
        async with self._database.begin() as connection:
            await side_by_side(connection, FREEZES)
            if ids.is_uuid(ref):
                await find(connection, ref)
            return await put(connection, self._definitions, value, ref=ref, if_match=if_match)

    async def delete(self, ref: str, *, if_match: int | None) -> None:
        """Settle, give waiting rows the outcome `deleted`, and let the schedule be removed. Open runs finish."""
        await self._settle(ref)
        async with self._database.begin() as connection:
            record = await find(connection, ref)
            state = await trigger_state.lock(connection, record.id)
            record = await _reread(connection, record.id)
            if state is None or record.deleted_at is not None:
                raise GoneError(f"activity '{ref}' was deleted")
            _check_match(record, if_match)
            settled = await settle_fully(connection, self._definitions, state)
            await ledger.end_waiting(connection, record.id, DELETED, settled.through)
            await activities.soft_delete(connection, record.id, settled.through)
            await trigger_state.set_state(
                connection, record.id, settled_through=settled.through, last_nominal=None, next_due_at=None
            )
            await notify(connection, SCHEDULES)

    async def get(self, ref: str) -> ActivityRecord:
        async with self._database.read() as connection:
            return await find(connection, ref)

    async def listed(self, *, selector: Selector | None, cursor: Cursor | None, limit: int) -> Page[ActivityRecord]:
        async with self._database.read() as connection:
            return await activities.listed(connection, selector=selector, cursor=cursor, limit=limit)

    async def revisions(self, ref: str) -> Sequence[RevisionRecord]:
        async with self._database.read() as connection:
            record = await find(connection, ref)
            return await activities.revisions(connection, record.id)
