"""Activities, their revisions, and the index by event type."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, insert, or_, select, text, update
from sqlalchemy.exc import IntegrityError

from activity_core.domain.selectors import Selector
from activity_core.errors import SlugTakenError
from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, activity_revisions, event_subscriptions, trigger_state


@dataclass(frozen=True, slots=True)
class ActivityRecord:
    """An activity with its revision in force."""

    id: uuid.UUID
    slug: str
    revision: int
    spec: dict[str, Any]
    effective: dict[str, Any]
    generation: int
    observed_generation: int
    sync_error: str | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    activity_id: uuid.UUID
    revision: int
    spec: dict[str, Any]
    effective: dict[str, Any]
    in_force_from: datetime
    in_force_until: datetime | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An activity whose revision in force at some instant subscribes to an event type."""

    activity_id: uuid.UUID
    revision: int


def _query() -> Select[Any]:
    r = activity_revisions.c
    a = activities.c
    return select(
        *(a.id, a.slug, a.revision, r.spec, r.effective, a.generation, a.observed_generation, a.sync_error),
        *(a.created_at, a.updated_at, a.deleted_at),
    ).join(activity_revisions, (r.activity_id == a.id) & (r.revision == a.revision))


async def by_id(connection: Connection, activity_id: uuid.UUID) -> ActivityRecord | None:
    """Primary key. Deleted ones too."""
    row = (await connection.execute(_query().where(activities.c.id == activity_id))).one_or_none()
    return ActivityRecord(*row) if row else None


async def by_slug(connection: Connection, slug: str) -> ActivityRecord | None:
    """The live one; index uq_activities_slug_live."""
    query = _query().where(activities.c.slug == slug, activities.c.deleted_at.is_(None))
    row = (await connection.execute(query)).one_or_none()
    return ActivityRecord(*row) if row else None


async def ids_of_slugs(connection: Connection, slugs: Sequence[str]) -> list[uuid.UUID]:
    """Of live activities; index uq_activities_slug_live."""
    query = select(activities.c.id).where(activities.c.slug.in_(slugs), activities.c.deleted_at.is_(None))
    return list((await connection.execute(query)).scalars())


def matching(selector: Selector) -> Select[Any]:
    """The ids of activities whose labels, by their revision in force, match."""
    a, r = activities.c, activity_revisions.c
    labels = r.effective["labels"]
    query = select(a.id).join(activity_revisions, (r.activity_id == a.id) & (r.revision == a.revision))
    for requirement in selector.requirements:
        value = labels[requirement.key].astext
        match requirement.op:
            case "=":
                query = query.where(value == requirement.value)
            case "!=":
                query = query.where(value.is_distinct_from(requirement.value))
            case "exists":
                query = query.where(value.is_not(None))
            case "absent":
                query = query.where(value.is_(None))
    return query


async def listed(
    connection: Connection, *, selector: Selector | None = None, cursor: Cursor | None, limit: int
) -> Page[ActivityRecord]:
    """Live ones, newest first; index ix_activities_created_at_id."""
    query = _query().where(activities.c.deleted_at.is_(None))
    if selector is not None:
        query = query.where(activities.c.id.in_(matching(selector)))
    query = before(query, activities.c.created_at, activities.c.id, cursor, limit)
    rows = [ActivityRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.created_at, str(record.id)))


async def create(
    connection: Connection,
    activity_id: uuid.UUID,
    *,
    slug: str,
    spec: dict[str, Any],
    effective: dict[str, Any],
    patterns: Sequence[str],
    next_due_at: datetime | None,
    now: datetime,
) -> None:
    """Insert activity, first revision and trigger state. Raises SlugTakenError."""
    try:
        async with connection.begin_nested():
            await connection.execute(
                insert(activities).values(id=activity_id, slug=slug, revision=1, created_at=now, updated_at=now)
            )
    except IntegrityError as error:
        raise SlugTakenError(f"an activity with the slug '{slug}' exists already; PUT replaces it") from error
    await _insert_revision(connection, activity_id, 1, spec, effective, patterns, now)
    await connection.execute(
        insert(trigger_state).values(activity_id=activity_id, settled_through=now, next_due_at=next_due_at)
    )


async def revise(
    connection: Connection,
    record: ActivityRecord,
    *,
    spec: dict[str, Any],
    effective: dict[str, Any],
    patterns: Sequence[str],
    now: datetime,
) -> None:
    """Put the next revision in force. The caller holds the activity's lock."""
    await end_revision(connection, record.id, now)
    revision = record.revision + 1
    await _insert_revision(connection, record.id, revision, spec, effective, patterns, now)
    await connection.execute(
        update(activities)
        .where(activities.c.id == record.id)
        .values(revision=revision, generation=activities.c.generation + 1, updated_at=now)
    )


async def soft_delete(connection: Connection, activity_id: uuid.UUID, now: datetime) -> None:
    """Mark as deleted and let the schedule be removed. The caller holds the activity's lock."""
    await end_revision(connection, activity_id, now)
    await connection.execute(
        update(activities)
        .where(activities.c.id == activity_id)
        .values(deleted_at=now, updated_at=now, generation=activities.c.generation + 1)
    )


async def end_revision(connection: Connection, activity_id: uuid.UUID, now: datetime) -> None:
    for table in (activity_revisions, event_subscriptions):
        await connection.execute(
            update(table)
            .where(table.c.activity_id == activity_id, table.c.in_force_until.is_(None))
            .values(in_force_until=now)
        )


async def _insert_revision(
    connection: Connection,
    activity_id: uuid.UUID,
    revision: int,
    spec: dict[str, Any],
    effective: dict[str, Any],
    patterns: Sequence[str],
    now: datetime,
) -> None:
    key = {"activity_id": activity_id, "revision": revision, "in_force_from": now}
    await connection.execute(insert(activity_revisions).values(**key, spec=spec, effective=effective))
    if patterns:
        await connection.execute(
            insert(event_subscriptions), [{**key, "pattern": pattern} for pattern in dict.fromkeys(patterns)]
        )


async def revision(connection: Connection, activity_id: uuid.UUID, number: int) -> RevisionRecord | None:
    """Primary key."""
    r = activity_revisions.c
    query = select(activity_revisions).where(r.activity_id == activity_id, r.revision == number)
    row = (await connection.execute(query)).one_or_none()
    return RevisionRecord(*row) if row else None


async def revisions(connection: Connection, activity_id: uuid.UUID) -> list[RevisionRecord]:
    """Newest first."""
    r = activity_revisions.c
    query = select(activity_revisions).where(r.activity_id == activity_id).order_by(r.revision.desc())
    return [RevisionRecord(*row) for row in await connection.execute(query)]


@dataclass(frozen=True, slots=True)
class Subscription:
    pattern: str
    candidate: Candidate
    in_force_from: datetime
    in_force_until: datetime | None

    def in_force_at(self, at: datetime) -> bool:
        return self.in_force_from <= at and (self.in_force_until is None or at < self.in_force_until)


_SUBSCRIPTIONS = text(
    """
    SELECT s.pattern, s.activity_id, s.revision, s.in_force_from, s.in_force_until
    FROM event_subscriptions s
    WHERE s.pattern = ANY(:patterns)
      AND s.in_force_from <= :last AND (s.in_force_until IS NULL OR s.in_force_until > :first)
    """
)


async def subscriptions(
    connection: Connection, patterns: Iterable[str], first: datetime, last: datetime
) -> list[Subscription]:
    """Those to any of the patterns that were in force at some time from `first` to `last`; primary key of
    event_subscriptions (pattern first)."""
    rows = await connection.execute(_SUBSCRIPTIONS, {"patterns": sorted(patterns), "first": first, "last": last})
    return [
        Subscription(row.pattern, Candidate(row.activity_id, row.revision), row.in_force_from, row.in_force_until)
        for row in rows
    ]


async def candidates(connection: Connection, patterns: Sequence[str], at: datetime) -> list[Candidate]:
    """Who subscribes to any of the patterns at that instant."""
    found = await subscriptions(connection, patterns, at, at)
    return list(dict.fromkeys(subscription.candidate for subscription in found))


async def revision_at(connection: Connection, activity_id: uuid.UUID, at: datetime) -> RevisionRecord | None:
    """The revision in force at an instant; None before the first and after the deletion."""
    r = activity_revisions.c
    query = select(activity_revisions).where(
        r.activity_id == activity_id, r.in_force_from <= at, or_(r.in_force_until.is_(None), r.in_force_until > at)
    )
    row = (await connection.execute(query.order_by(r.revision.desc()).limit(1))).one_or_none()
    return RevisionRecord(*row) if row else None


async def unsynced(connection: Connection, *, after: uuid.UUID | None, limit: int) -> list[uuid.UUID]:
    """Activities whose Temporal Schedule is not what it should be; index ix_activities_unsynced."""
    query = select(activities.c.id).where(activities.c.observed_generation < activities.c.generation)
    if after is not None:
        query = query.where(activities.c.id > after)
    return list((await connection.execute(query.order_by(activities.c.id).limit(limit))).scalars())


async def mark_synced(connection: Connection, activity_id: uuid.UUID, generation: int, fingerprint: str | None) -> None:
    await connection.execute(
        update(activities)
        .where(activities.c.id == activity_id)
        .values(
            observed_generation=func.greatest(activities.c.observed_generation, generation),
            sync_error=None,
            schedule_fingerprint=fingerprint,
        )
    )


async def mark_unsynced(connection: Connection, activity_id: uuid.UUID) -> None:
    """Let the schedule be written again, because it is not what was written."""
    await connection.execute(
        update(activities).where(activities.c.id == activity_id).values(generation=activities.c.generation + 1)
    )


async def scheduled(connection: Connection) -> dict[uuid.UUID, str | None]:
    """Live activities whose schedule was written and should be there, with its fingerprint."""
    a = activities.c
    query = select(a.id, a.schedule_fingerprint).where(
        a.deleted_at.is_(None), a.schedule_fingerprint.is_not(None), a.observed_generation == a.generation
    )
    return {row[0]: row[1] for row in await connection.execute(query)}


async def mark_sync_error(connection: Connection, activity_id: uuid.UUID, message: str) -> None:
    await connection.execute(
        update(activities)
        .where(
            activities.c.id == activity_id, or_(activities.c.sync_error.is_(None), activities.c.sync_error != message)
        )
        .values(sync_error=message)
    )
