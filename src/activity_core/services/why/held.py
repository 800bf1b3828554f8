"""Which pauses and freezes hold an activity, or held it while something waited."""

from collections.abc import Sequence
from datetime import datetime

from activity_core.domain import sentences as say
from activity_core.domain.selectors import parse_selector
from activity_core.services.holds import frozen_by
from activity_core.services.why.answers import Action, Evidence, path_of
from activity_core.store import activities, holds, time_rows
from activity_core.store.activities import ActivityRecord, RevisionRecord
from activity_core.store.database import Connection
from activity_core.store.holds import FreezeRecord, HoldRecord


async def holding(connection: Connection, record: ActivityRecord, now: datetime) -> list[HoldRecord]:
    """What holds it now, whether or not a worker has looked since: its pause first."""
    found: list[HoldRecord] = []
    pause = await holds.open_pause(connection, record.id)
    if pause is not None and (pause.until is None or pause.until > now):
        found.append(pause)
    begun = [freeze for freeze in await holds.open_freezes(connection, now) if freeze.from_at <= now]
    found.extend(frozen_by(begun, record.effective["labels"]))
    return found


async def holding_at(connection: Connection, record: ActivityRecord, at: datetime, now: datetime) -> list[HoldRecord]:
    """What will hold it at an instant to come, as far as it is known now."""
    found: list[HoldRecord] = []
    pause = await holds.open_pause(connection, record.id)
    if pause is not None and (pause.until is None or pause.until > max(at, now)):
        found.append(pause)
    known = [freeze for freeze in await holds.open_freezes(connection, now) if freeze.from_at <= at]
    lasting = [freeze for freeze in known if freeze.until is None or freeze.until > at]
    found.extend(frozen_by(lasting, record.effective["labels"]))
    return found


async def held_between(
    connection: Connection, record: ActivityRecord, start: datetime, end: datetime
) -> list[HoldRecord]:
    """What held it at some instant of (start, end): a freeze, if the labels of a revision in force then matched."""
    found = [
        pause for pause in await holds.pauses_within(connection, record.id, start, end) if _overlaps(pause, start, end)
    ]
    freezes = [freeze for freeze in await holds.freezes_within(connection, start, end) if _overlaps(freeze, start, end)]
    if freezes:
        revisions = await activities.revisions(connection, record.id)
        found.extend(freeze for freeze in freezes if _matched(freeze, revisions, start, end))
    return sorted(found, key=lambda hold: hold.from_at)


def ended_at(hold: HoldRecord) -> datetime | None:
    """When it ended or will end by itself; None: it lasts until somebody ends it."""
    return min((instant for instant in (hold.ended_at, hold.until) if instant is not None), default=None)


def facts(hold: HoldRecord, now: datetime) -> say.HoldFacts:
    end = ended_at(hold)
    over = end is not None and end <= now
    selector = hold.selector if isinstance(hold, FreezeRecord) else None
    return say.HoldFacts(hold.from_at, end if over else None, hold.until, hold.note, selector)


def evidence(record: ActivityRecord, found: Sequence[HoldRecord], now: datetime) -> list[Evidence]:
    """Begin and end of each."""
    shown = []
    for hold in found:
        what, ref = "the pause", path_of(record)
        if isinstance(hold, FreezeRecord):
            what, ref = f"the freeze of {hold.selector}", f"/v1/freezes/{hold.id}"
        note = f" ({hold.note})" if hold.note else ""
        shown.append(Evidence(hold.from_at, f"{what} began{note}", ref))
        end = ended_at(hold)
        if end is not None and end <= now:
            by = " by itself" if end == hold.until else ""
            decided = f" (times: {hold.on_misfire or 'policy'}, events: {hold.events})"
            shown.append(Evidence(end, f"{what} ended{by}{decided}", ref))
    return shown


async def ways_out(connection: Connection, record: ActivityRecord, found: Sequence[HoldRecord]) -> list[Action]:
    """How to end what holds it now."""
    actions = []
    for hold in found:
        if isinstance(hold, FreezeRecord):
            label = f"End the freeze of {hold.selector}, for all that it holds"
            actions.append(Action(label, f"activity-core freeze end {hold.id}"))
        else:
            _, events = await time_rows.count_waiting(connection, record.id)
            choice = " --events run" if events else ""
            actions.append(Action("Resume it", f"activity-core resume {record.slug}{choice}"))
    return actions


def _overlaps(hold: HoldRecord, start: datetime, end: datetime) -> bool:
    """Half-open: what was decided at the instant at which it began was not held by it."""
    ended = ended_at(hold)
    return hold.from_at < end and (ended is None or ended > start)


def _matched(freeze: FreezeRecord, revisions: Sequence[RevisionRecord], start: datetime, end: datetime) -> bool:
    selector = parse_selector(freeze.selector)
    since = max(start, freeze.from_at)
    until = min(end, ended_at(freeze) or end)
    return any(
        selector.matches(revision.effective.get("labels", {}))
        for revision in revisions
        if revision.in_force_from < until and (revision.in_force_until is None or revision.in_force_until > since)
    )
