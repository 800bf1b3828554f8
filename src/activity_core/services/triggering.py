"""Run an activity now, because somebody asked."""

import uuid
from dataclasses import dataclass

from activity_core.domain import ids
from activity_core.domain.documents import CronTrigger
from activity_core.domain.json_values import JsonValue
from activity_core.errors import (
    ActivityDisabledError,
    Fault,
    GoneError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    RunOpenError,
)
from activity_core.services.activities import find
from activity_core.services.definitions import Definitions
from activity_core.store import ledger, runs
from activity_core.store.database import Database
from activity_core.store.notify import STARTS, notify


@dataclass(frozen=True, slots=True)
class Triggered:
    """A manual occurrence that waits to be started, or has been."""

    activity_id: uuid.UUID
    occurrence_id: uuid.UUID
    run_id: uuid.UUID
    workflow_id: str


class Triggering:
    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def trigger(
        self, ref: str, *, params: JsonValue, on_overlap: str | None, idempotency_key: str | None
    ) -> Triggered:
        """Write the manual row. The same Idempotency-Key gives the same run, for ever.

        `on_overlap`: `refuse` (default for activities with times) raises RunOpenError while a run is open; `allow`
        (default for the others) does not look.
        """
        try:
            key = ids.manual_key(idempotency_key if idempotency_key is not None else str(uuid.uuid4()))
        except ids.IdError as error:
            raise InvalidInputError([Fault("/headers/Idempotency-Key", str(error))]) from error
        async with self._database.begin() as connection:
            record = await find(connection, ref)
            state = await ledger.lock(connection, record.id)
            if state is None or state.deleted:
                raise GoneError(f"activity '{ref}' was deleted")
            workflow_id = ids.run_workflow_id(record.id, key)
            known = await ledger.by_key(connection, record.id, key)
            if known is not None:
                if known.params != params:
                    raise IdempotencyKeyReusedError("this Idempotency-Key came before with other params; use a new one")
                return Triggered(record.id, known.id, ids.run_id(workflow_id), workflow_id)
            activity = await self._definitions.get(connection, record.id, state.revision)
            if not activity.enabled:
                raise ActivityDisabledError(f"'{record.slug}' is disabled; enable it first")
            overlap = on_overlap or ("refuse" if isinstance(activity.trigger, CronTrigger) else "allow")
            if overlap == "refuse" and (
                await runs.has_open(connection, record.id) or await ledger.manual_waits(connection, record.id)
            ):
                raise RunOpenError(f"a run of '{record.slug}' is open; send on_overlap: allow to start another")
            occurrence_id = uuid.uuid4()
            await ledger.insert_manual(
                connection,
                {
                    "id": occurrence_id,
                    "activity_id": record.id,
                    "kind": "manual",
                    "key": key,
                    "revision": state.revision,
                    "due_at": state.now,
                    "params": params,
                    "triggered_by": "manual",
                    "outcome": "waiting",
                    "reason_code": "due",
                    "reason": "asked for, not started yet",
                },
            )
            await notify(connection, STARTS)
        return Triggered(record.id, occurrence_id, ids.run_id(workflow_id), workflow_id)
