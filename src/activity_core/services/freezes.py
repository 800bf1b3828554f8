"""Freezes: a pause of every activity whose labels match, from an instant on."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activity_core.domain.json_values import JsonValue
from activity_core.domain.selectors import SelectorError, parse_selector
from activity_core.errors import Fault, InvalidInputError, NotFoundError
from activity_core.services.activities import FREEZES
from activity_core.services.holds import activities_matching, as_hold
from activity_core.store import holds, idempotency, time_rows, trigger_state
from activity_core.store.database import Connection, Database
from activity_core.store.holds import FreezeRecord
from activity_core.store.locks import one_at_a_time
from activity_core.store.paging import Cursor, Page


@dataclass(frozen=True, slots=True)
class Frozen:
    """A freeze as it stands: whether it holds now, and how many live activities it matches."""

    freeze: FreezeRecord
    active: bool
    matches: int


class Freezes:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        selector: str,
        *,
        note: str | None,
        from_at: datetime | None,
        until: datetime | None,
        on_misfire: str | None,
        events: str,
        idempotency_key: str | None = None,
    ) -> Frozen:
        """From `from_at` on (None: now) nothing of the matching activities starts. Raises InvalidInputError.

        Times and events that come are held from that very instant; events that wait already, within seconds of it.
        The same Idempotency-Key gives the same freeze.
        """
        try:
            text = parse_selector(selector).text
        except SelectorError as error:
            raise InvalidInputError([Fault("/selector", str(error))]) from error
        freeze_id = uuid.uuid4()
        async with self._database.begin() as connection:
            await one_at_a_time(connection, FREEZES)
            now = await trigger_state.clock(connection)
            if idempotency_key is not None:
                asked: list[JsonValue] = [
                    text,
                    note,
                    *(str(instant) for instant in (from_at, until)),
                    on_misfire,
                    events,
                ]
                answered = await idempotency.claim(connection, "freezes", idempotency_key, asked)
                if answered is not None:
                    return await self._shown(connection, uuid.UUID(answered.response["id"]), now)
                await idempotency.keep_response(connection, "freezes", idempotency_key, {"id": str(freeze_id)})
            _check_span(from_at or now, until, now)
            begins = max(from_at or now, now)
            await holds.create_freeze(
                connection,
                freeze_id,
                selector=text,
                note=note,
                from_at=begins,
                until=until,
                on_misfire=on_misfire,
                events=events,
            )
            matching = await activities_matching(connection, text)
            await self._tell(connection, matching, begins)
            created = await self._read(connection, freeze_id)
            if begins <= now:
                hold, caught = as_hold(created), await trigger_state.set_held(connection, matching, freeze_id)
                await time_rows.hold(connection, caught, reason_code=hold.reason_code, reason=hold.reason)
            return Frozen(created, begins <= now, len(matching))

    async def end(self, freeze_id: uuid.UUID) -> Frozen:
        """End it now; one that has ended stays as it is. What it held is decided within seconds."""
        async with self._database.begin() as connection:
            await one_at_a_time(connection, FREEZES)
            freeze = await self._read(connection, freeze_id)
            now = await trigger_state.clock(connection)
            await holds.end_freeze(connection, freeze_id, now)
            held = await trigger_state.held_by(connection, freeze_id)
            touched = set(held) | set(await activities_matching(connection, freeze.selector))
            await self._tell(connection, sorted(touched), now)
            return await self._shown(connection, freeze_id, now)

    async def get(self, freeze_id: uuid.UUID) -> Frozen:
        async with self._database.read() as connection:
            return await self._shown(connection, freeze_id, await trigger_state.clock(connection))

    async def listed(self, *, cursor: Cursor | None, limit: int) -> Page[Frozen]:
        """Newest first."""
        async with self._database.read() as connection:
            now = await trigger_state.clock(connection)
            found = await holds.list_freezes(connection, cursor=cursor, limit=limit)
            labels = await holds.label_sets(connection)
        return Page([_frozen(freeze, labels, now) for freeze in found.items], found.next_cursor)

    async def _tell(self, connection: Connection, activity_ids: Sequence[uuid.UUID], at: datetime) -> None:
        await trigger_state.lock_all(connection, activity_ids)
        await trigger_state.look_at_holds(connection, activity_ids, at)

    async def _read(self, connection: Connection, freeze_id: uuid.UUID) -> FreezeRecord:
        freeze = await holds.freeze_by_id(connection, freeze_id)
        if freeze is None:
            raise NotFoundError(f"there is no freeze '{freeze_id}'")
        return freeze

    async def _shown(self, connection: Connection, freeze_id: uuid.UUID, now: datetime) -> Frozen:
        labels = await holds.label_sets(connection)
        return _frozen(await self._read(connection, freeze_id), labels, now)


def _frozen(freeze: FreezeRecord, labels: Sequence[tuple[dict[str, str], int]], now: datetime) -> Frozen:
    end = holds.end_of(freeze)
    active = freeze.from_at <= now and (end is None or end > now)
    selector = parse_selector(freeze.selector)
    return Frozen(freeze, active, sum(count for found, count in labels if selector.matches(found)))


def _check_span(begins: datetime, until: datetime | None, now: datetime) -> None:
    if begins < now and (now - begins).total_seconds() > 60:
        raise InvalidInputError([Fault("/from", "is past; write an instant to come, or leave it out to begin now")])
    if until is not None and until <= max(begins, now):
        raise InvalidInputError([Fault("/until", "is past, or not after 'from'; write a later instant")])
