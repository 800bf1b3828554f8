"""Apply a set of documents: all of them or none, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from activity_core.domain.documents import Activity, stored_activity
from activity_core.domain.json_values import JsonValue
from activity_core.domain.reading import read_document
from activity_core.errors import Fault, InvalidInputError, SlugTakenError
from activity_core.services import activities, consumers, sources
from activity_core.services.definitions import Definitions
from activity_core.services.secrets import Secrets
from activity_core.store import activities as activity_store
from activity_core.store import trigger_state
from activity_core.store.database import Connection, Database
from activity_core.store.locks import one_at_a_time, side_by_side

MAX_DOCUMENTS = 1_000


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one document: `change` is created, replaced or unchanged. `activity` None: it is another kind's."""

    kind: str
    slug: str
    change: str
    revision: int
    activity: Activity | None


class _DryRunError(Exception):
    """Rolls the transaction back after everything was tried."""


class Apply:
    def __init__(self, database: Database, definitions: Definitions, secrets: Secrets) -> None:
        self._database = database
        self._definitions = definitions
        self._secrets = secrets

    async def apply(self, documents: Sequence[JsonValue], *, dry_run: bool) -> list[Applied]:
        """Create or replace every document, in the order given in the answer. References may point within the batch.

        Raises InvalidInputError with pointers `/documents/{n}/…` for every fault of every document; then nothing
        is changed.
        """
        if len(documents) > MAX_DOCUMENTS:
            raise InvalidInputError([Fault("/documents", f"{MAX_DOCUMENTS} documents at most")])
        try:
            return await self._apply(documents, dry_run)
        except SlugTakenError:
            # somebody created one of them between our look and our insert: then this one replaces it
            return await self._apply(documents, dry_run)

    async def _apply(self, documents: Sequence[JsonValue], dry_run: bool) -> list[Applied]:
        applied: dict[int, Applied] = {}
        try:
            async with self._database.begin() as connection:
                await one_at_a_time(connection, "apply")
                await side_by_side(connection, activities.FREEZES)
                await self._lock_ledgers(connection, documents)
                await self._put_all(connection, documents, applied)
                if dry_run:
                    raise _DryRunError
        except _DryRunError:
            pass
        return [applied[position] for position in sorted(applied)]

    async def _lock_ledgers(self, connection: Connection, documents: Sequence[JsonValue]) -> None:
        """All at once and in id order, as everybody who locks several does."""
        named = [value.get("slug") for value in documents if isinstance(value, dict)]
        slugs = [slug for slug in named if isinstance(slug, str)]
        await trigger_state.lock_all(connection, await activity_store.ids_of_slugs(connection, slugs))

    async def _put_all(
        self, connection: Connection, documents: Sequence[JsonValue], applied: dict[int, Applied]
    ) -> None:
        faults: list[Fault] = []
        seen: dict[tuple[str, str], int] = {}
        # consumers first, so that activities of the same batch may name them
        for position in sorted(range(len(documents)), key=lambda n: _order(documents[n])):
            value = documents[position]
            try:
                kind = value.get("kind") if isinstance(value, dict) else None
                if kind not in ("Activity", "Consumer", "Source"):
                    read_document(value)
                slug = value.get("slug") if isinstance(value, dict) else None
                if isinstance(slug, str) and seen.setdefault((str(kind), slug), position) != position:
                    where = f"/documents/{seen[str(kind), slug]}"
                    raise InvalidInputError([Fault("/slug", f"'{slug}' is there already, at {where}")])
                saved: activities.Saved | consumers.SavedConsumer | sources.SavedSource
                if kind == "Consumer":
                    saved = await consumers.put(connection, value)
                elif kind == "Source":
                    saved = await sources.put(connection, self._secrets, value)
                else:
                    saved = await activities.put(connection, self._definitions, value)
            except InvalidInputError as error:
                prefix = f"/documents/{position}"
                faults.extend(Fault(prefix + fault.pointer, fault.message, fault.code) for fault in error.faults)
                continue
            record = saved.record
            definition = stored_activity(record.effective) if kind == "Activity" else None
            applied[position] = Applied(str(kind), record.slug, saved.change, record.revision, definition)
        if faults:
            raise InvalidInputError(sorted(faults, key=lambda fault: fault.pointer))


def _order(value: JsonValue) -> tuple[bool, str]:
    if not isinstance(value, dict):
        return True, ""
    return value.get("kind") != "Consumer", str(value.get("slug"))
