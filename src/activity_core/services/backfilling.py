"""A user's backfill: run times of the past that did not run. What it writes are waiting rows; settle and gate do the rest."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from activity_core.domain import ids
from activity_core.domain.backfill import (
    MAX_TIMES,
    Item,
    LedgerTime,
    Revision,
    bounded,
    counts,
    never_due,
    plan_backfill,
)
from activity_core.domain.documents import Activity, times_of
from activity_core.domain.json_values import JsonValue
from activity_core.errors import ActivityDisabledError, Fault, GoneError, InvalidInputError, NotFoundError
from activity_core.services import holds
from activity_core.services.activities import find
from activity_core.services.definitions import Definitions
from activity_core.services.holds import Hold
from activity_core.services.settle import Settler, settle_fully
from activity_core.store import activities, backfills, idempotency, trigger_state
from activity_core.store.activities import ActivityRecord
from activity_core.store.backfills import AddedTime, BackfillRecord
from activity_core.store.database import Connection, Database
from activity_core.store.paging import Cursor, Page
from activity_core.store.trigger_state import TriggerState

SHOWN_ITEMS = 500
ASKED = ("due", "asked for by a backfill, not started yet")
SCOPE = "backfills"


@dataclass(frozen=True, slots=True)
class Asked:
    """The range [start, end), and whether only to plan."""

    start: datetime
    end: datetime
    note: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Backfill:
    """What was planned, and asked for unless `id` is None. `items`: the first ones. `held`: what they wait for."""

    id: uuid.UUID | None
    activity_id: uuid.UUID
    slug: str
    asked: Asked
    counts: Mapping[str, int]
    items: Sequence[Item]
    held: str | None = None


@dataclass(frozen=True, slots=True)
class BackfillView:
    """A backfill and how many of its times have which outcome."""

    record: BackfillRecord
    counts: Mapping[str, int]


class Backfilling:
    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions
        self._settler = Settler(database, definitions)

    async def backfill(self, ref: str, asked: Asked, *, idempotency_key: str | None) -> Backfill:
        """Plan the range, and unless `dry_run` let the times that did not run wait for their run, one after another.

        Raises InvalidInputError for a range that is not past or has too many times, ActivityDisabledError. The same
        Idempotency-Key is answered as it was the first time.
        """
        if asked.start >= asked.end:
            raise InvalidInputError([Fault("/to", "must be after 'from': the range is [from, to)")])
        async with self._database.read() as connection:
            record = await find(connection, ref)
        await self._settler.settle(record.id)  # what an outage left, in bounded transactions
        key = None if asked.dry_run else idempotency_key
        async with self._database.begin() as connection:
            if key is not None:
                answered = await idempotency.claim(connection, SCOPE, key, _request(record.id, asked))
                if answered is not None:
                    return _of_json(record, asked, answered.response)
            made = await self._ask(connection, record, asked)
            if key is not None:
                await idempotency.keep_response(connection, SCOPE, key, _as_json(made))
            return made

    async def _ask(self, connection: Connection, record: ActivityRecord, asked: Asked) -> Backfill:
        state, activity, now = await self._settled(connection, record)
        if asked.end > now:
            raise InvalidInputError([Fault("/to", f"is to come; only past times are backfilled: write {_said(now)}")])
        items = await self._plan(connection, state, activity, asked, now)
        found = counts(items)
        held = (await holds.look(connection, state, activity, now)).hold
        backfill_id = None
        if not asked.dry_run and len(items) > found["leave"]:
            backfill_id = uuid.uuid4()
            await self._write(connection, state, backfill_id, asked, items, held)
        reason = None if held is None else held.reason
        return Backfill(backfill_id, record.id, record.slug, asked, found, items[:SHOWN_ITEMS], reason)

    async def _settled(self, connection: Connection, record: ActivityRecord) -> tuple[TriggerState, Activity, datetime]:
        """Under the lock, with all that is due in the ledger: the state, the definition in force, and now."""
        state = await trigger_state.lock(connection, record.id)
        if state is None or state.deleted:
            raise GoneError(f"activity '{record.slug}' was deleted")
        settled = await settle_fully(connection, self._definitions, state)
        if not settled.activity.enabled:
            raise ActivityDisabledError(f"'{record.slug}' is disabled; enable it first")
        again = await trigger_state.lock(connection, record.id)
        assert again is not None  # noqa: S101 (it is locked already)
        return again, settled.activity, settled.through

    async def _plan(
        self, connection: Connection, state: TriggerState, activity: Activity, asked: Asked, now: datetime
    ) -> list[Item]:
        known = await backfills.times_within(connection, state.activity_id, asked.start, asked.end, limit=MAX_TIMES + 1)
        revisions = [
            Revision(
                record.revision,
                await self._definitions.get(connection, record.activity_id, record.revision),
                record.in_force_from,
                record.in_force_until,
            )
            for record in reversed(await activities.revisions(connection, state.activity_id))
        ]
        unowed = bounded(never_due(revisions, asked.start, asked.end, now))
        if max(len(known), len(unowed)) <= MAX_TIMES:
            items = plan_backfill(
                known,
                unowed,
                before=await backfills.last_before(connection, state.activity_id, asked.start),
                following=await self._following(connection, state, activity, asked.end, now),
            )
            if len(items) <= MAX_TIMES:
                return items
        message = f"the range has more than {MAX_TIMES:,} due times; narrow it, and ask for the rest afterwards"
        raise InvalidInputError([Fault("/to", message)])

    async def _following(
        self, connection: Connection, state: TriggerState, activity: Activity, end: datetime, now: datetime
    ) -> LedgerTime | None:
        """The first time after the range: in the ledger, or as settle will write it."""
        row = await backfills.first_from(connection, state.activity_id, end)
        times = times_of(activity.trigger)
        coming = None if row is not None or times is None else times.next_after(now)
        if times is None or coming is None:
            return row
        return LedgerTime(coming, state.last_nominal or times.interval_start(coming))

    async def _write(
        self,
        connection: Connection,
        state: TriggerState,
        backfill_id: uuid.UUID,
        asked: Asked,
        items: Sequence[Item],
        held: Hold | None,
    ) -> None:
        """The rows, and settle at once: it knows from now on that they wait."""
        reason_code, reason = ASKED if held is None else (held.reason_code, held.reason)
        why = {"reason_code": reason_code, "reason": reason}
        await backfills.create(
            connection,
            backfill_id,
            activity_id=state.activity_id,
            from_at=asked.start,
            to_at=asked.end,
            note=asked.note,
            now=state.now,
        )
        reopened = [item.scheduled_for for item in items if item.action == "reopen"]
        if reopened:
            await backfills.reopen(connection, state.activity_id, backfill_id, reopened, **why)
        added = [
            AddedTime(ids.time_key(item.scheduled_for), item.scheduled_for, item.interval_start, item.revision)
            for item in items
            if item.revision is not None
        ]
        if added:
            await backfills.add(connection, state.activity_id, backfill_id, added, **why)
        await settle_fully(connection, self._definitions, state)
        await trigger_state.wake(connection, state.activity_id)

    async def cancel(self, backfill_id: uuid.UUID) -> BackfillView:
        """What waits for it goes back to what it was; what has started goes on. A repeat changes nothing."""
        async with self._found(backfill_id) as (_, record):
            pass
        async with self._database.begin() as connection:
            state = await trigger_state.lock(connection, record.activity_id)
            assert state is not None  # noqa: S101 (activities are never removed)
            await backfills.give_back(connection, backfill_id, state.now)
            await backfills.mark_cancelled(connection, backfill_id, state.now)
        return await self.get(backfill_id)

    async def get(self, backfill_id: uuid.UUID) -> BackfillView:
        async with self._found(backfill_id) as (connection, record):
            found = await backfills.counts(connection, [backfill_id])
        return BackfillView(record, found.get(backfill_id, {}))

    async def listed(self, activity_id: uuid.UUID, *, cursor: Cursor | None, limit: int) -> Page[BackfillView]:
        """Newest first."""
        async with self._database.read() as connection:
            found = await backfills.listed(connection, activity_id, cursor=cursor, limit=limit)
            counted = await backfills.counts(connection, [record.id for record in found.items])
        views = [BackfillView(record, counted.get(record.id, {})) for record in found.items]
        return Page(views, found.next_cursor)

    @asynccontextmanager
    async def _found(self, backfill_id: uuid.UUID) -> AsyncIterator[tuple[Connection, BackfillRecord]]:
        async with self._database.read() as connection:
            record = await backfills.by_id(connection, backfill_id)
            if record is None:
                raise NotFoundError(f"there is no backfill '{backfill_id}'")
            yield connection, record


def _request(activity_id: uuid.UUID, asked: Asked) -> JsonValue:
    span = {"from": asked.start.isoformat(), "to": asked.end.isoformat()}
    return {"id": str(activity_id), **span, "note": asked.note}


def _as_json(made: Backfill) -> dict[str, Any]:
    return {
        "id": None if made.id is None else str(made.id),
        "counts": dict(made.counts),
        "items": [{name: _value(value) for name, value in asdict(item).items()} for item in made.items],
        "held": made.held,
    }


def _value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _of_json(record: ActivityRecord, asked: Asked, answer: Mapping[str, Any]) -> Backfill:
    instants = ("scheduled_for", "interval_start", "overlaps")
    items = [
        Item(**{**item, **{name: item[name] and datetime.fromisoformat(item[name]) for name in instants}})
        for item in answer["items"]
    ]
    backfill_id = None if answer["id"] is None else uuid.UUID(answer["id"])
    return Backfill(backfill_id, record.id, record.slug, asked, answer["counts"], items, answer["held"])


def _said(instant: datetime) -> str:
    return f"at most {instant:%Y-%m-%dT%H:%M:%S}Z"
