"""Apply a set of documents: all of them or none, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from activity_core.domain.json_values import JsonValue
from activity_core.domain.reading import read_document
from activity_core.errors import Fault, InvalidInputError
from activity_core.services import activities, consumers
from activity_core.services.definitions import Definitions
from activity_core.store.database import Connection, Database

MAX_DOCUMENTS = 1_000


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one document: `change` is created, replaced or unchanged."""

    kind: str
    slug: str
    change: str
    revision: int


class _DryRunError(Exception):
    """Rolls the transaction back after everything was tried."""


class Apply:
    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def apply(self, documents: Sequence[JsonValue], *, dry_run: bool) -> list[Applied]:
        """Create or replace every document, in the order given in the answer. References may point within the batch.

        Raises InvalidInputError with pointers `/documents/{n}/…` for every fault of every document; then nothing
        is changed.
        """
        if len(documents) > MAX_DOCUMENTS:
            raise InvalidInputError([Fault("/documents", f"{MAX_DOCUMENTS} documents at most")])
        applied: dict[int, Applied] = {}
        try:
            async with self._database.begin() as connection:
                await self._put_all(connection, documents, applied)
                if dry_run:
                    raise _DryRunError
        except _DryRunError:
            pass
        return [applied[position] for position in sorted(applied)]

    async def _put_all(
        self, connection: Connection, documents: Sequence[JsonValue], applied: dict[int, Applied]
    ) -> None:
        faults: list[Fault] = []
        seen: dict[tuple[str, str], int] = {}
        # consumers first, so that activities of the same batch may name them; then by slug, so that two applies at
        # once take their locks in the same order
        for position in sorted(range(len(documents)), key=lambda n: _order(documents[n])):
            value = documents[position]
            try:
                kind = value.get("kind") if isinstance(value, dict) else None
                if kind not in ("Activity", "Consumer"):
                    read_document(value)
                slug = value.get("slug") if isinstance(value, dict) else None
                if isinstance(slug, str) and seen.setdefault((str(kind), slug), position) != position:
                    where = f"/documents/{seen[str(kind), slug]}"
                    raise InvalidInputError([Fault("/slug", f"'{slug}' is there already, at {where}")])
                saved: activities.Saved | consumers.SavedConsumer
                if kind == "Consumer":
                    saved = await consumers.put(connection, value)
                else:
                    saved = await activities.put(connection, self._definitions, value)
            except InvalidInputError as error:
                prefix = f"/documents/{position}"
                faults.extend(Fault(prefix + fault.pointer, fault.message, fault.code) for fault in error.faults)
                continue
            applied[position] = Applied(str(kind), saved.record.slug, saved.change, saved.record.revision)
        if faults:
            raise InvalidInputError(sorted(faults, key=lambda fault: fault.pointer))


def _order(value: JsonValue) -> tuple[bool, str]:
    if not isinstance(value, dict):
        return True, ""
    return value.get("kind") != "Consumer", str(value.get("slug"))
