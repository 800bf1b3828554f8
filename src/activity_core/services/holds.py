"""What holds an activity: its pause, or a freeze that its labels match. Then times and events wait in the ledger.

A hold begins and ends at an instant, whether anybody looks or not. The ledger's rows show it as soon as somebody who has
the activity's lock looks (`look`): every settle does, and whoever writes event rows.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from activity_core.domain.documents import Activity
from activity_core.domain.planner import PlanAs
from activity_core.domain.selectors import parse_selector
from activity_core.store import holds, time_rows, trigger_state
from activity_core.store.database import Connection
from activity_core.store.holds import FreezeRecord, HoldRecord
from activity_core.store.trigger_state import TriggerState

FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Hold:
    """A pause or freeze, and how rows that wait for its end say so."""

    record: HoldRecord
    reason_code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """`hold` None: nothing holds the activity. `changes_at`: when that may be otherwise; None: it stays so.

    `ended`: holds whose end nobody has seen to yet, oldest end first.
    """

    hold: Hold | None
    changes_at: datetime | None
    ended: tuple[HoldRecord, ...] = ()


def may_have_changed(state: TriggerState, now: datetime) -> bool:
    """Whether what the rows show is worth a look. In the common case (nothing holds, nothing will) it is not."""
    return state.hold_changes_at is not None and state.hold_changes_at <= now


async def look(connection: Connection, state: TriggerState, activity: Activity, now: datetime) -> Held:
    """What holds the activity at `now`, and what has ended since somebody looked: also a freeze that nobody has seen begin.

    A pause whose `until` has passed is ended by it, as of then.
    """
    if state.held_by is None and not may_have_changed(state, now):
        return Held(None, state.hold_changes_at)
    pause = await holds.open_pause(connection, state.activity_id)
    if pause is not None and pause.until is not None and pause.until <= now:
        await holds.change_pause(connection, pause.id, ended_at=pause.until)
        pause = None
    since = now if state.hold_changes_at is None else min(state.hold_changes_at, now)
    freezes = frozen_by(await holds.freezes_since(connection, since), activity.labels)
    shown = None if state.held_by is None else await holds.by_id(connection, state.held_by)
    # one that was ended before it began has never held
    unseen: list[HoldRecord] = [f for f in freezes if f.id != state.held_by and f.from_at < _end(f)]
    ended = [hold for hold in ([shown] if shown else []) + unseen if _end(hold) <= now]
    ended.sort(key=_end)
    lasting = [freeze for freeze in freezes if _end(freeze) > now]
    record = pause or next((freeze for freeze in lasting if freeze.from_at <= now), None)
    if record is not None:
        return Held(as_hold(record), record.until, tuple(ended))
    return Held(None, min((freeze.from_at for freeze in lasting), default=None), tuple(ended))


def _end(hold: HoldRecord) -> datetime:
    return holds.end_of(hold) or FOREVER


async def show(connection: Connection, state: TriggerState, held: Held, now: datetime) -> None:
    """See to what has ended, let the rows that wait show what holds them now, and let those go that nothing holds any more.

    All times that were due while it held must be in the ledger.
    """
    for ended in held.ended:
        if (plan_as := _plan_as(ended)) is not None:
            await time_rows.plan_waiting_as(connection, state.activity_id, plan_as, until=_end(ended), replace=True)
        if ended.events == "skip":
            await time_rows.skip_held_events(connection, state.activity_id, now)
    hold_id = None if held.hold is None else held.hold.record.id
    if (hold_id, held.changes_at) != (state.held_by, state.hold_changes_at):
        await trigger_state.set_hold(connection, state.activity_id, held_by=hold_id, hold_changes_at=held.changes_at)
    if hold_id == state.held_by and not held.ended:
        return
    if held.hold is None:
        await time_rows.release(connection, state.activity_id)
    else:
        hold = held.hold
        await time_rows.hold(connection, [state.activity_id], reason_code=hold.reason_code, reason=hold.reason)


def _plan_as(ended: HoldRecord) -> PlanAs | None:
    match ended.on_misfire:
        case "skip" | "catchup" | "compress":
            return ended.on_misfire
        case _:
            return None


def as_hold(record: HoldRecord) -> Hold:
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
