"""Named senders of webhooks, with their secrets as they are stored."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from activity_core.errors import SlugTakenError
from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import source_secrets, sources


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """`spec` and `effective` are without the secrets."""

    id: uuid.UUID
    slug: str
    revision: int
    spec: dict[str, Any]
    effective: dict[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """Either named (the name), or sealed (the bytes)."""

    id: uuid.UUID
    source_id: uuid.UUID
    position: int
    name: str | None
    sealed: bytes | None
    fingerprint: str
    added_at: datetime


COLUMNS = [sources.c[name] for name in SourceRecord.__dataclass_fields__]
SECRET_COLUMNS = [source_secrets.c[name] for name in SecretRecord.__dataclass_fields__]


async def by_slug(connection: Connection, slug: str, *, for_update: bool = False) -> SourceRecord | None:
    """Index uq_sources_slug_live."""
    query = select(*COLUMNS).where(sources.c.slug == slug, sources.c.deleted_at.is_(None))
    row = (await connection.execute(query.with_for_update() if for_update else query)).one_or_none()
    return SourceRecord(*row) if row else None


async def slugs(connection: Connection) -> frozenset[str]:
    """Of all sources. Index uq_sources_slug_live."""
    return frozenset(await connection.scalars(select(sources.c.slug).where(sources.c.deleted_at.is_(None))))


async def listed(connection: Connection, *, cursor: Cursor | None, limit: int) -> Page[SourceRecord]:
    """Newest first."""
    query = select(*COLUMNS).where(sources.c.deleted_at.is_(None))
    query = before(query, sources.c.created_at, sources.c.id, cursor, limit)
    rows = [SourceRecord(*row) for row in await connection.execute(query)]
    return page(rows, limit, lambda record: Cursor(record.created_at, str(record.id)))


async def create(
    connection: Connection, source_id: uuid.UUID, slug: str, *, spec: dict[str, Any], effective: dict[str, Any]
) -> None:
    """Raises SlugTakenError."""
    values = {"id": source_id, "slug": slug, "revision": 1, "spec": spec, "effective": effective}
    try:
        async with connection.begin_nested():
            await connection.execute(insert(sources).values(**values))
    except IntegrityError as error:
        raise SlugTakenError(f"a source with the slug '{slug}' exists already; PUT replaces it") from error


async def replace(
    connection: Connection, record: SourceRecord, *, spec: dict[str, Any], effective: dict[str, Any]
) -> None:
    await connection.execute(
        update(sources)
        .where(sources.c.id == record.id)
        .values(revision=record.revision + 1, spec=spec, effective=effective, updated_at=func.clock_timestamp())
    )


async def soft_delete(connection: Connection, record: SourceRecord) -> None:
    """Its secrets go at once: nothing needs them any more."""
    await connection.execute(delete(source_secrets).where(source_secrets.c.source_id == record.id))
    await connection.execute(update(sources).where(sources.c.id == record.id).values(deleted_at=func.clock_timestamp()))


async def secrets_of(connection: Connection, source_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[SecretRecord]]:
    """In the order in which they are tried; unique index (source_id, fingerprint)."""
    s = source_secrets.c
    query = select(*SECRET_COLUMNS).where(s.source_id.in_(source_ids)).order_by(s.source_id, s.position)
    found: dict[uuid.UUID, list[SecretRecord]] = {source_id: [] for source_id in source_ids}
    for row in await connection.execute(query):
        found[row.source_id].append(SecretRecord(*row))
    return found


async def reseal(connection: Connection, secret_id: uuid.UUID, sealed: bytes, fingerprint: str) -> None:
    """The same secret, sealed with another key."""
    values = {"sealed": sealed, "fingerprint": fingerprint}
    await connection.execute(update(source_secrets).where(source_secrets.c.id == secret_id).values(**values))


async def replace_secrets(
    connection: Connection, source_id: uuid.UUID, kept: Sequence[tuple[uuid.UUID, int]], new: Sequence[dict[str, Any]]
) -> None:
    """Keep those of `kept` (id, position), remove the others, add the new ones."""
    s = source_secrets.c
    ids = [secret_id for secret_id, _ in kept]
    await connection.execute(delete(source_secrets).where(s.source_id == source_id, s.id.not_in(ids)))
    for secret_id, position in kept:
        await connection.execute(update(source_secrets).where(s.id == secret_id).values(position=position))
    for values in new:
        await connection.execute(insert(source_secrets).values(source_id=source_id, **values))
