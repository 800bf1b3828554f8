"""What holds an activity: its pause, or a freeze that its labels match. Then times and events wait in the ledger.

A hold begins and ends at an instant, whether anybody looks or not. The ledger's rows show it as soon as somebody who has
the activity's lock looks (`look`): every settle does, and whoever writes event rows.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activity_core.domain.documents import Activity
from activity_core.domain.planner import PlanAs
from activity_core.domain.selectors import parse_selector
from activity_core.store import holds, time_rows, trigger_state
from activity_core.store.database import Connection
from activity_core.store.holds import FreezeRecord, PauseRecord
from activity_core.store.trigger_state import TriggerState


@dataclass(frozen=True, slots=True)
class Hold:
    """A pause or freeze, and how rows that wait for its end say so."""

    record: PauseRecord
    reason_code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """`hold` None: nothing holds the activity. `changes_at`: when that may be otherwise; None: it stays so."""

    hold: Hold | None
    changes_at: datetime | None


FREE = Held(None, None)


def may_have_changed(state: TriggerState, now: datetime) -> bool:
    """Whether what the rows show is worth a look. In the common case (nothing holds, nothing will) it is not."""
    return state.hold_changes_at is not None and state.hold_changes_at <= now


async def look(connection: Connection, state: TriggerState, activity: Activity, now: datetime) -> Held:
    """What holds the activity at `now`. A pause whose `until` has passed is ended by it, as of then."""
    if state.held_by is None and not may_have_changed(state, now):
        return Held(None, state.hold_changes_at)
    pause = await holds.open_pause(connection, state.activity_id)
    if pause is not None and pause.until is not None and pause.until <= now:
        await holds.change_pause(connection, pause.id, ended_at=pause.until)
        pause = None
    freezes = frozen_by(await holds.open_freezes(connection, now), activity.labels)
    begun = [freeze for freeze in freezes if freeze.from_at <= now]
    record = pause or (begun[0] if begun else None)
    if record is not None:
        return Held(as_hold(record), record.until)
    return Held(None, min((freeze.from_at for freeze in freezes), default=None))


async def show(connection: Connection, state: TriggerState, held: Held, now: datetime) -> None:
    """Let the rows that wait show what holds them now, and let those go that nothing holds any more.

    All times that were due while it held must be in the ledger.
    """
    hold_id = None if held.hold is None else held.hold.record.id
    if (hold_id, held.changes_at) != (state.held_by, state.hold_changes_at):
        await trigger_state.set_hold(connection, state.activity_id, held_by=hold_id, hold_changes_at=held.changes_at)
    if hold_id == state.held_by:
        return
    if held.hold is not None:
        hold = held.hold
        await time_rows.hold(connection, [state.activity_id], reason_code=hold.reason_code, reason=hold.reason)
        return
    ended = None if state.held_by is None else await holds.by_id(connection, state.held_by)
    if ended is not None and (plan_as := _plan_as(ended)) is not None:
        until = min(instant for instant in (ended.ended_at, ended.until, now) if instant is not None)
        await time_rows.plan_waiting_as(connection, state.activity_id, plan_as, until=until, replace=True)
    await time_rows.release(connection, state.activity_id, events="run" if ended is None else ended.events, now=now)


def _plan_as(ended: PauseRecord) -> PlanAs | None:
    match ended.on_misfire:
        case "skip" | "catchup" | "compress":
            return ended.on_misfire
        case _:
            return None


def as_hold(record: PauseRecord) -> Hold:
    """A pause or freeze as the rows that it holds tell of it."""
    note = f" ({record.note})" if record.note else ""
    until = f" until {record.until:%Y-%m-%d %H:%M:%S} UTC" if record.until is not None else ""
    if isinstance(record, FreezeRecord):
        return Hold(record, "frozen", f"held by the freeze of {record.selector}{until}{note}")
    return Hold(record, "paused", f"held: the activity is paused{until}{note}")


def frozen_by(freezes: Sequence[FreezeRecord], labels: dict[str, str]) -> list[FreezeRecord]:
    return [freeze for freeze in freezes if parse_selector(freeze.selector).matches(labels)]


async def activities_matching(connection: Connection, selector_text: str) -> list[uuid.UUID]:
    """The live activities that a selector matches, in id order."""
    selector = parse_selector(selector_text)
    labels = await holds.live_labels(connection)
    return sorted(activity_id for activity_id, found in labels.items() if selector.matches(found))
