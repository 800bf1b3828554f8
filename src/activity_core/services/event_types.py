"""What is declared of event types; and the check of events against it, at the door."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from activity_core.domain.event_schema import EventSchema, compile_schema
from activity_core.domain.event_types import EventTypeError, check_type
from activity_core.domain.json_values import JsonValue
from activity_core.domain.schema_cost import SchemaError
from activity_core.errors import Fault, InvalidInputError, NotFoundError, RevisionMismatchError, UnavailableError
from activity_core.store import event_types
from activity_core.store.database import Database
from activity_core.store.event_types import EventTypeRecord, SchemaVersion, TypeRow
from activity_core.store.locks import one_at_a_time

# How long the door of another process may go by a schema that was changed; the one that changes it goes by it at once.
FRESH_SECONDS = 2.0
MAX_QUARANTINE_REASON = 500

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a user says of a type. `schema` None: anything goes."""

    description: str | None
    schema: JsonValue
    example: JsonValue
    on_invalid: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with an event's data. `quarantine`: it is kept back rather than refused."""

    faults: tuple[Fault, ...]
    quarantine: bool

    @property
    def reason(self) -> str:
        told = "; ".join(f"{fault.pointer}: {fault.message}" for fault in self.faults)
        return f"its data is not what the schema of its type allows: {told}"[:MAX_QUARANTINE_REASON]


class EventTypes:
    """The use cases; each owns its transaction and commits before it returns."""

    def __init__(self, database: Database, schemas: "EventSchemas") -> None:
        self._database = database
        self._schemas = schemas

    async def put(
        self, event_type: str, declaration: Declaration, *, if_match: int | None
    ) -> tuple[EventTypeRecord, bool]:
        """(the record, whether it is new). Raises InvalidInputError, RevisionMismatchError."""
        _check(event_type, declaration)
        values: dict[str, Any] = {
            "description": declaration.description,
            "schema": declaration.schema,
            "example": declaration.example,
            "on_invalid": declaration.on_invalid,
        }
        async with self._database.begin() as connection:
            await one_at_a_time(connection, "event types")
            record = await event_types.by_type(connection, event_type)
            if if_match is not None and (record is None or record.revision != if_match):
                at = "is not declared" if record is None else f"is at revision {record.revision}"
                raise RevisionMismatchError(f"'{event_type}' {at}, not at {if_match}")
            if record is None:
                await event_types.create(connection, event_type, **values)
            elif any(getattr(record, name) != value for name, value in values.items()):
                await event_types.replace(connection, record, **values)
            saved = await event_types.by_type(connection, event_type)
            assert saved is not None  # noqa: S101 (it was written)
        self._schemas.outdate()
        return saved, record is None

    async def get(self, event_type: str) -> EventTypeRecord:
        async with self._database.read() as connection:
            record = await event_types.by_type(connection, event_type)
        if record is None:
            raise NotFoundError(f"event type '{event_type}' is not declared; events of it are welcome all the same")
        return record

    async def delete(self, event_type: str, *, if_match: int | None) -> None:
        """Events of it are checked no more."""
        async with self._database.begin() as connection:
            record = await event_types.by_type(connection, event_type, for_update=True)
            if record is None:
                raise NotFoundError(f"event type '{event_type}' is not declared")
            if if_match is not None and record.revision != if_match:
                raise RevisionMismatchError(f"'{event_type}' is at revision {record.revision}, not {if_match}")
            await event_types.remove(connection, event_type)
        self._schemas.outdate()

    async def listed(self, *, prefix: str, after: str, limit: int) -> tuple[Sequence[TypeRow], str | None]:
        """(a page by name, the name to go on after)."""
        async with self._database.read() as connection:
            rows = await event_types.listed(connection, prefix=prefix, after=after, limit=limit + 1)
        return rows[:limit], rows[limit - 1].type if len(rows) > limit else None


def _check(event_type: str, declaration: Declaration) -> None:
    faults: list[Fault] = []
    try:
        check_type(event_type)
    except EventTypeError as error:
        faults.append(Fault("/path/type", str(error)))
    try:
        schema = None if declaration.schema is None else compile_schema(declaration.schema)
    except SchemaError as error:
        faults.append(Fault(f"/schema{error.pointer}", error.message))
    else:
        if schema is not None and declaration.example is not None:
            faults += [Fault(f"/example{pointer}", text) for pointer, text in schema.faults(declaration.example)]
    if faults:
        raise InvalidInputError(faults)


class EventSchemas:
    """The schemas in force, read at most once in two seconds and compiled once per revision."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read_at: float | None = None
        self._outdated_at = 0.0
        self._reading: asyncio.Task[UnavailableError | None] | None = None
        self._known: dict[str, _Known] = {}

    async def check(self, event_type: str, data: JsonValue) -> Verdict | None:
        """None for an event that is welcome. Raises UnavailableError only if the schemas were never read."""
        if self._read_at is None or time.monotonic() - self._read_at > FRESH_SECONDS:
            await self._freshen()
        # a read under way when they were changed may have missed it: then there is another
        while self._read_at is not None and self._read_at <= self._outdated_at and await self._freshen():
            pass
        known = self._known.get(event_type)
        return None if known is None else verdict_on(known.schema, known.version.on_invalid, data)

    def outdate(self) -> None:
        """They were changed by this process: the next check reads them again."""
        self._outdated_at = time.monotonic()

    async def _freshen(self) -> bool:
        """One read, for all that arrive meanwhile: who went on without it would go by what may be hours old. Whether it
        succeeded."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(lambda _: setattr(self, "_reading", None))
        failure = await asyncio.shield(self._reading)  # it goes on when one of those who wait gives up
        if failure is not None and self._read_at is None:
            raise UnavailableError(failure.detail)
        return failure is None

    async def _read(self) -> UnavailableError | None:
        began = time.monotonic()
        try:
            async with self._database.read() as connection:
                versions = {record.type: record for record in await event_types.with_schemas(connection)}
                kept = {name: known for name, known in self._known.items() if known.version == versions.get(name)}
                changed = [name for name in versions if name not in kept]
                schemas = await event_types.schemas_of(connection, changed) if changed else {}
        except UnavailableError as error:
            return error
        for name, schema in schemas.items():
            await asyncio.sleep(0)  # others go on between two of a thousand, each of some milliseconds at worst
            try:
                kept[name] = _Known(versions[name], compile_schema(schema))
            except SchemaError as error:  # of another version of the library, say
                log.error("event_type.schema_unusable", type=name, error=str(error))
        self._known, self._read_at = kept, began
        return None


@dataclass(frozen=True, slots=True)
class _Known:
    version: SchemaVersion
    schema: EventSchema


def verdict_on(schema: EventSchema, on_invalid: str, data: JsonValue) -> Verdict | None:
    faults = schema.faults(data)
    if not faults:
        return None
    placed = tuple(Fault(f"/data{pointer}", text, "schema_invalid") for pointer, text in faults)
    return Verdict(placed, quarantine=on_invalid == "quarantine")
