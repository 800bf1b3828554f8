"""Pause and resume: operator state beside the document, which applying a definition never changes."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from activity_core.errors import Fault, GoneError, InvalidInputError
from activity_core.services.activities import find
from activity_core.services.definitions import Definitions
from activity_core.services.holds import as_hold, frozen_by
from activity_core.services.settle import Settler, settle_fully
from activity_core.store import holds, time_rows, trigger_state
from activity_core.store.activities import ActivityRecord
from activity_core.store.database import Connection, Database
from activity_core.store.holds import FreezeRecord, HoldRecord
from activity_core.store.notify import STARTS, notify
from activity_core.store.trigger_state import TriggerState


@dataclass(frozen=True, slots=True)
class Status:
    """What holds an activity at the moment: its pause, and the freezes that match it."""

    pause: HoldRecord | None = None
    freezes: tuple[FreezeRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """How many times and events waited, and are decided now; or when a freeze ends that holds them too, as was said."""

    record: ActivityRecord
    times: int
    events: int


class Pausing:
    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions
        self._settler = Settler(database, definitions)

    async def status(self, records: Sequence[ActivityRecord]) -> dict[uuid.UUID, Status]:
        """What holds each of these activities now."""
        async with self._database.read() as connection:
            now = await trigger_state.clock(connection)
            pauses = await holds.open_pauses(connection, [record.id for record in records])
            freezes = [freeze for freeze in await holds.open_freezes(connection, now) if freeze.from_at <= now]
        return {
            record.id: Status(
                _lasting(pauses.get(record.id), now), tuple(frozen_by(freezes, record.effective["labels"]))
            )
            for record in records
        }

    async def pause(self, ref: str, *, note: str | None, until: datetime | None, events: str) -> ActivityRecord:
        """Let times and events wait from now on. Of an activity that is paused already, note and `until` are replaced.

        Raises InvalidInputError for an `until` that is past.
        """
        async with self._locked(ref) as (connection, record, state):
            await settle_fully(connection, self._definitions, state)
            now = state.now
            if until is not None and until <= now:
                raise InvalidInputError([Fault("/until", "is past; write an instant to come, or leave it out")])
            paused = await holds.open_pause(connection, record.id)
            if paused is None:
                await holds.begin_pause(connection, record.id, note=note, from_at=now, until=until, events=events)
            else:
                await holds.change_pause(connection, paused.id, note=note, until=until, events=events)
                hold = as_hold(replace(paused, note=note, until=until, events=events))
                await time_rows.hold(connection, [record.id], reason_code=hold.reason_code, reason=hold.reason)
            await self._settle_anew(connection, state, now)
            return record

    async def resume(self, ref: str, *, on_misfire: str | None, events: str | None) -> Resumed:
        """End the pause: what waits is decided now. `on_misfire` None: by the activity's policy.

        Raises InvalidInputError when events wait and `events` does not say what becomes of them.
        """
        async with self._locked(ref) as (connection, record, state):
            settled = await settle_fully(connection, self._definitions, state)
            paused = await holds.open_pause(connection, record.id)
            if paused is None:
                return Resumed(record, 0, 0)
            times, waiting_events = await time_rows.count_waiting(connection, record.id)
            if waiting_events and events is None:
                message = f"{waiting_events} events wait; write 'run' to run them or 'skip' to skip them"
                raise InvalidInputError([Fault("/events", message, "required")])
            await holds.change_pause(
                connection, paused.id, ended_at=settled.through, on_misfire=on_misfire, events=events or "run"
            )
            await self._settle_anew(connection, state, settled.through)
            await notify(connection, STARTS)
            return Resumed(record, times, waiting_events)

    @asynccontextmanager
    async def _locked(self, ref: str) -> AsyncIterator[tuple[Connection, ActivityRecord, TriggerState]]:
        """A transaction that holds the lock of a live activity's ledger. What an outage left is settled before."""
        async with self._database.read() as connection:
            record = await find(connection, ref)
        await self._settler.settle(record.id)
        async with self._database.begin() as connection:
            state = await trigger_state.lock(connection, record.id)
            if state is None or state.deleted:
                raise GoneError(f"activity '{ref}' was deleted")
            yield connection, await find(connection, str(record.id)), state

    async def _settle_anew(self, connection: Connection, state: TriggerState, now: datetime) -> None:
        """Let the rows show what holds them since the write just made, and plan what nothing holds any more."""
        await trigger_state.look_at_holds(connection, [state.activity_id], now)
        locked = await trigger_state.lock(connection, state.activity_id)
        assert locked is not None  # noqa: S101 (it is locked already)
        await settle_fully(connection, self._definitions, locked)
        await trigger_state.wake(connection, state.activity_id)


def _lasting(pause: HoldRecord | None, now: datetime) -> HoldRecord | None:
    """The pause, unless its `until` has passed and nobody has looked since."""
    return None if pause is None or (pause.until is not None and pause.until <= now) else pause
