"""Named consumers."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.exc import IntegrityError

from activity_core.errors import SlugTakenError
from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import activities, activity_revisions, consumers


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    id: uuid.UUID
    slug: str
    revision: int
    spec: dict[str, Any]
    effective: dict[str, Any]
    created_at: datetime
    updated_at: datetime


COLUMNS = [consumers.c[name] for name in ConsumerRecord.__dataclass_fields__]


async def by_slug(connection: Connection, slug: str, *, for_update: bool = False) -> ConsumerRecord | None:
    query = select(*COLUMNS).where(consumers.c.slug == slug, consumers.c.deleted_at.is_(None))
    row = (await connection.execute(query.with_for_update() if for_update else query)).one_or_none()
    return ConsumerRecord(*row) if row else None


async def existing_slugs(connection: Connection, slugs: set[str]) -> set[str]:
    query = select(consumers.c.slug).where(consumers.c.slug.in_(slugs), consumers.c.deleted_at.is_(None))
    # shared lock: a consumer must not be deleted while a definition that names it is being saved
    return set((await connection.execute(query.with_for_update(read=True))).scalars())


async def listed(connection: Connection, *, cursor: Cursor | None, limit: int) -> Page[ConsumerRecord]:
    query = select(*COLUMNS).where(consumers.c.deleted_at.is_(None))
    query = before(query, consumers.c.created_at, consumers.c.id, cursor, limit)
    rows = [ConsumerRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.created_at, str(record.id)))


async def create(connection: Connection, slug: str, *, spec: dict[str, Any], effective: dict[str, Any]) -> None:
    """Raises SlugTakenError."""
    try:
        async with connection.begin_nested():
            await connection.execute(
                insert(consumers).values(id=uuid.uuid4(), slug=slug, revision=1, spec=spec, effective=effective)
            )
    except IntegrityError as error:
        raise SlugTakenError(f"a consumer with the slug '{slug}' exists already; PUT replaces it") from error


async def replace(
    connection: Connection, record: ConsumerRecord, *, spec: dict[str, Any], effective: dict[str, Any]
) -> None:
    await connection.execute(
        update(consumers)
        .where(consumers.c.id == record.id)
        .values(revision=record.revision + 1, spec=spec, effective=effective, updated_at=func.clock_timestamp())
    )


async def soft_delete(connection: Connection, record: ConsumerRecord) -> None:
    await connection.execute(
        update(consumers).where(consumers.c.id == record.id).values(deleted_at=func.clock_timestamp())
    )


async def used_by(connection: Connection, slug: str, limit: int) -> list[str]:
    """Slugs of live activities whose revision in force hands tasks to this consumer."""
    query = (
        select(activities.c.slug)
        .join(
            activity_revisions,
            (activity_revisions.c.activity_id == activities.c.id)
            & (activity_revisions.c.revision == activities.c.revision),
        )
        .where(activities.c.deleted_at.is_(None))
        .where(activity_revisions.c.effective["tasks"].contains([{"consumer": slug}]))
        .order_by(activities.c.slug)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())
