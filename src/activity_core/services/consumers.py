"""Create, replace, delete and read consumers."""

from dataclasses import dataclass

from activity_core.domain import documents as docs
from activity_core.domain.json_values import JsonValue
from activity_core.domain.reading import read_consumer
from activity_core.errors import Fault, InUseError, InvalidInputError, NotFoundError, RevisionMismatchError
from activity_core.services.activities import as_sent
from activity_core.store import consumers, idempotency
from activity_core.store.consumers import ConsumerRecord
from activity_core.store.database import Connection, Database
from activity_core.store.paging import Cursor, Page


@dataclass(frozen=True, slots=True)
class SavedConsumer:
    """`change`: `created`, `replaced` or `unchanged`."""

    record: ConsumerRecord
    change: str


async def put(
    connection: Connection,
    value: JsonValue,
    *,
    slug: str | None = None,
    if_match: int | None = None,
    create_only: bool = False,
) -> SavedConsumer:
    """Create the consumer of this document or replace the one with its slug. The caller commits."""
    document = read_consumer(value)
    if slug is not None and slug != document.slug:
        raise InvalidInputError([Fault("/slug", f"the path says '{slug}'; a slug never changes")])
    spec, effective = as_sent(value, "Consumer"), docs.effective(document)
    record = None if create_only else await consumers.by_slug(connection, document.slug, for_update=True)
    if record is None:
        if if_match is not None:
            raise RevisionMismatchError(f"there is no consumer '{document.slug}' yet; leave If-Match out")
        await consumers.create(connection, document.slug, spec=spec, effective=effective)
        return SavedConsumer(await _reread(connection, document.slug), "created")
    if if_match is not None and if_match != record.revision:
        raise RevisionMismatchError(f"'{record.slug}' is at revision {record.revision}, not {if_match}")
    if record.spec == spec:
        return SavedConsumer(record, "unchanged")
    await consumers.replace(connection, record, spec=spec, effective=effective)
    return SavedConsumer(await _reread(connection, document.slug), "replaced")


async def _reread(connection: Connection, slug: str) -> ConsumerRecord:
    record = await consumers.by_slug(connection, slug)
    if record is None:
        raise NotFoundError(f"there is no consumer '{slug}'")
    return record


class Consumers:
    """The use cases; each owns its transaction and commits before it returns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, value: JsonValue, *, idempotency_key: str | None = None) -> SavedConsumer:
        """Raises InvalidInputError, SlugTakenError, IdempotencyKeyReusedError."""
        async with self._database.begin() as connection:
            if idempotency_key is not None:
                answered = await idempotency.claim(connection, "consumers", idempotency_key, value)
                if answered is not None:
                    return SavedConsumer(await _reread(connection, answered.response["slug"]), "created")
            saved = await put(connection, value, create_only=True)
            if idempotency_key is not None:
                response = {"slug": saved.record.slug}
                await idempotency.keep_response(connection, "consumers", idempotency_key, response)
            return saved

    async def put(self, slug: str, value: JsonValue, *, if_match: int | None) -> SavedConsumer:
        async with self._database.begin() as connection:
            return await put(connection, value, slug=slug, if_match=if_match)

    async def delete(self, slug: str, *, if_match: int | None = None) -> None:
        """Raises InUseError while a live activity names it."""
        async with self._database.begin() as connection:
            record = await consumers.by_slug(connection, slug, for_update=True)
            if record is None:
                raise NotFoundError(f"there is no consumer '{slug}'")
            if if_match is not None and if_match != record.revision:
                raise RevisionMismatchError(f"'{record.slug}' is at revision {record.revision}, not {if_match}")
            users = await consumers.used_by(connection, slug, limit=5)
            if users:
                raise InUseError(f"consumer '{slug}' is used by {', '.join(users)}; change these first")
            await consumers.soft_delete(connection, record)

    async def get(self, slug: str) -> ConsumerRecord:
        async with self._database.read() as connection:
            return await _reread(connection, slug)

    async def listed(self, *, cursor: Cursor | None, limit: int) -> Page[ConsumerRecord]:
        async with self._database.read() as connection:
            return await consumers.listed(connection, cursor=cursor, limit=limit)
