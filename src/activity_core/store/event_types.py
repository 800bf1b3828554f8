"""What is declared of event types, and which types there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, null, select, text, update

from activity_core.store.database import Connection
from activity_core.store.tables import event_types


@dataclass(frozen=True, slots=True)
class EventTypeRecord:
    type: str
    revision: int
    description: str | None
    schema: Any
    example: Any
    on_invalid: str
    created_at: datetime
    updated_at: datetime


COLUMNS = [event_types.c[name] for name in EventTypeRecord.__dataclass_fields__]


async def by_type(connection: Connection, event_type: str, *, for_update: bool = False) -> EventTypeRecord | None:
    query = select(*COLUMNS).where(event_types.c.type == event_type)
    row = (await connection.execute(query.with_for_update() if for_update else query)).one_or_none()
    return EventTypeRecord(*row) if row else None


async def create(connection: Connection, event_type: str, **values: Any) -> None:
    await connection.execute(insert(event_types).values(type=event_type, revision=1, **_stored(values)))


def _stored(values: dict[str, Any]) -> dict[str, Any]:
    """None is the absence of a schema, and not the JSON null."""
    return {name: null() if value is None else value for name, value in values.items()}


async def replace(connection: Connection, record: EventTypeRecord, **values: Any) -> None:
    await connection.execute(
        update(event_types)
        .where(event_types.c.type == record.type)
        .values(revision=record.revision + 1, updated_at=func.clock_timestamp(), **_stored(values))
    )


async def remove(connection: Connection, event_type: str) -> None:
    await connection.execute(delete(event_types).where(event_types.c.type == event_type))


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """Which schema a type has, without the schema."""

    type: str
    revision: int
    created_at: datetime
    on_invalid: str


async def with_schemas(connection: Connection) -> list[SchemaVersion]:
    """Every type that has one."""
    e = event_types.c
    query = select(e.type, e.revision, e.created_at, e.on_invalid).where(e.schema.is_not(None))
    return [SchemaVersion(*row) for row in await connection.execute(query)]


async def schemas_of(connection: Connection, types: Sequence[str]) -> dict[str, Any]:
    """By type (primary key)."""
    e = event_types.c
    rows = await connection.execute(select(e.type, e.schema).where(e.type.in_(types), e.schema.is_not(None)))
    return {row.type: row.schema for row in rows}


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A type that is declared or was seen. `recent`: events of the last 24 hours."""

    type: str
    description: str | None
    on_invalid: str | None
    has_schema: bool
    recent: int
    last_accepted_at: datetime | None


# Which types there are, without reading every event: from one to the next in the index.
_LISTED = text(
    """
    WITH RECURSIVE seen AS (
      (SELECT type FROM events WHERE type > :after AND type >= :prefix ORDER BY type LIMIT 1)
      UNION ALL
      SELECT (SELECT e.type FROM events e WHERE e.type > s.type ORDER BY e.type LIMIT 1) FROM seen s WHERE s.type IS NOT NULL
    ), page AS (
      SELECT type FROM (
        (SELECT type FROM seen WHERE type IS NOT NULL AND starts_with(type, :prefix) LIMIT :limit)
        UNION
        (SELECT type FROM event_types WHERE type > :after AND starts_with(type, :prefix) ORDER BY type LIMIT :limit)
      ) both_kinds ORDER BY type LIMIT :limit
    )
    SELECT p.type, t.description, t.on_invalid, coalesce(t.schema IS NOT NULL, false),
      (SELECT count(*) FROM events e WHERE e.type = p.type AND e.accepted_at > clock_timestamp() - interval '24 hours'),
      (SELECT max(e.accepted_at) FROM events e WHERE e.type = p.type)
    FROM page p LEFT JOIN event_types t ON t.type = p.type ORDER BY p.type
    """
)


async def listed(connection: Connection, *, prefix: str, after: str, limit: int) -> Sequence[TypeRow]:
    """By name, those after `after`; index ix_events_type_accepted_at_id."""
    rows = await connection.execute(_LISTED, {"prefix": prefix, "after": after, "limit": limit})
    return [TypeRow(*row) for row in rows]
