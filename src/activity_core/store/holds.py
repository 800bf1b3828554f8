"""Pauses and freezes: what holds the times and events of activities, now or at an instant that is past."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, or_, select, text, update

from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, activity_revisions, freezes, pauses


@dataclass(frozen=True, slots=True)
class HoldRecord:
    """A pause, or what a freeze has of one: [from_at, ended_at or until).

    `on_misfire` None: times are decided by their policy. `events`: run or skip.
    """

    id: uuid.UUID
    note: str | None
    from_at: datetime
    until: datetime | None
    ended_at: datetime | None
    on_misfire: str | None
    events: str


@dataclass(frozen=True, slots=True)
class FreezeRecord(HoldRecord):
    """A pause of every activity whose labels match `selector`."""

    selector: str
    created_at: datetime


def end_of(hold: HoldRecord) -> datetime | None:
    """When it ended or will; None: when somebody ends it."""
    return min((instant for instant in (hold.ended_at, hold.until) if instant is not None), default=None)


_PAUSE = [pauses.c[name] for name in HoldRecord.__dataclass_fields__]
_FREEZE = [freezes.c[name] for name in FreezeRecord.__dataclass_fields__]
# Written out, as the partial indexes are only used so.
_OPEN = text("ended_at IS NULL")


async def open_pause(connection: Connection, activity_id: uuid.UUID) -> HoldRecord | None:
    """The pause that nobody has ended; its `until` may be past. Index uq_pauses_open."""
    query = select(*_PAUSE).where(pauses.c.activity_id == activity_id, _OPEN)
    row = (await connection.execute(query)).one_or_none()
    return HoldRecord(*row) if row else None


async def open_pauses(connection: Connection, activity_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, HoldRecord]:
    """Of these activities; index uq_pauses_open."""
    query = select(pauses.c.activity_id, *_PAUSE).where(pauses.c.activity_id.in_(activity_ids), _OPEN)
    return {row[0]: HoldRecord(*row[1:]) for row in await connection.execute(query)}


async def by_id(connection: Connection, hold_id: uuid.UUID) -> HoldRecord | None:
    """A pause or a freeze; primary keys."""
    row = (await connection.execute(select(*_PAUSE).where(pauses.c.id == hold_id))).one_or_none()
    return HoldRecord(*row) if row else await freeze_by_id(connection, hold_id)


async def begin_pause(
    connection: Connection,
    activity_id: uuid.UUID,
    *,
    note: str | None,
    from_at: datetime,
    until: datetime | None,
    events: str,
) -> None:
    """The caller holds the activity's lock, and there is no open one."""
    values = {"activity_id": activity_id, "note": note, "from_at": from_at, "until": until, "events": events}
    await connection.execute(insert(pauses).values(**values))


async def change_pause(connection: Connection, pause_id: uuid.UUID, **values: Any) -> None:
    """Set columns of an open pause: another note or `until`, or its end."""
    await connection.execute(update(pauses).where(pauses.c.id == pause_id, _OPEN).values(**values))


async def pauses_within(
    connection: Connection, activity_id: uuid.UUID, start: datetime, end: datetime
) -> list[HoldRecord]:
    """Those that held at some instant of [start, end], oldest first; index ix_pauses_activity_id_from_at."""
    p = pauses.c
    query = select(*_PAUSE).where(
        p.activity_id == activity_id, p.from_at <= end, or_(p.ended_at.is_(None), p.ended_at > start)
    )
    return [HoldRecord(*row) for row in await connection.execute(query.order_by(p.from_at))]


async def freezes_since(connection: Connection, since: datetime) -> list[FreezeRecord]:
    """Those that had not ended at an instant, oldest first."""
    f = freezes.c
    query = select(*_FREEZE).where(
        or_(f.ended_at.is_(None), f.ended_at > since), or_(f.until.is_(None), f.until > since)
    )
    return [FreezeRecord(*row) for row in await connection.execute(query.order_by(f.from_at, f.id))]


async def open_freezes(connection: Connection, now: datetime) -> list[FreezeRecord]:
    """Those that hold now or will, oldest first; index ix_freezes_open."""
    f = freezes.c
    query = select(*_FREEZE).where(_OPEN, or_(f.until.is_(None), f.until > now)).order_by(f.from_at, f.id)
    return [FreezeRecord(*row) for row in await connection.execute(query)]


async def freezes_within(connection: Connection, start: datetime, end: datetime) -> list[FreezeRecord]:
    """Those that held, whatever they matched, at some instant of [start, end], oldest first."""
    f = freezes.c
    query = select(*_FREEZE).where(
        f.from_at <= end, or_(f.ended_at.is_(None), f.ended_at > start), or_(f.until.is_(None), f.until > start)
    )
    return [FreezeRecord(*row) for row in await connection.execute(query.order_by(f.from_at, f.id))]


async def freeze_by_id(connection: Connection, freeze_id: uuid.UUID) -> FreezeRecord | None:
    row = (await connection.execute(select(*_FREEZE).where(freezes.c.id == freeze_id))).one_or_none()
    return FreezeRecord(*row) if row else None


async def create_freeze(connection: Connection, freeze_id: uuid.UUID, **values: Any) -> None:
    await connection.execute(insert(freezes).values(id=freeze_id, **values))


async def end_freeze(connection: Connection, freeze_id: uuid.UUID, now: datetime) -> None:
    """An end that has come stays."""
    f = freezes.c
    await connection.execute(
        update(freezes).where(f.id == freeze_id, _OPEN, or_(f.until.is_(None), f.until > now)).values(ended_at=now)
    )


async def list_freezes(connection: Connection, *, cursor: Cursor | None, limit: int) -> Page[FreezeRecord]:
    """Newest first; index ix_freezes_created_at_id."""
    query = before(select(*_FREEZE), freezes.c.created_at, freezes.c.id, cursor, limit)
    rows = [FreezeRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.created_at, str(record.id)))


async def label_sets(connection: Connection) -> list[tuple[dict[str, str], int]]:
    """Which labels live activities have, and how many have these."""
    a, r = activities.c, activity_revisions.c
    labels = r.effective["labels"].label("labels")
    query = (
        select(labels, func.count())
        .join(activities, (r.activity_id == a.id) & (r.revision == a.revision))
        .where(a.deleted_at.is_(None))
        .group_by(labels)
    )
    return [(row[0] or {}, row[1]) for row in await connection.execute(query)]


async def live_labels(connection: Connection) -> dict[uuid.UUID, dict[str, str]]:
    """The labels of every live activity: what a selector is held against."""
    a, r = activities.c, activity_revisions.c
    query = (
        select(a.id, r.effective["labels"])
        .join(activity_revisions, (r.activity_id == a.id) & (r.revision == a.revision))
        .where(a.deleted_at.is_(None))
    )
    return {row[0]: row[1] or {} for row in await connection.execute(query)}
