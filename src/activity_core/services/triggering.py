"""Run an activity now, because somebody asked."""

import uuid
from dataclasses import dataclass

from activity_core.domain import ids
from activity_core.domain.documents import TimeTrigger
from activity_core.domain.json_values import JsonValue
from activity_core.errors import (
    ActivityDisabledError,
    Fault,
    GoneError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    NotFoundError,
    RunOpenError,
)
from activity_core.services.activities import find
from activity_core.services.definitions import Definitions
from activity_core.store import ledger, runs, trigger_state
from activity_core.store.activities import ActivityRecord
from activity_core.store.database import Connection, Database
from activity_core.store.notify import STARTS, notify


@dataclass(frozen=True, slots=True)
class Triggered:
    """A manual occurrence that waits to be started, or has been."""

    activity_id: uuid.UUID
    occurrence_id: uuid.UUID
    run_id: uuid.UUID
    workflow_id: str


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for: with the params of a trigger, or again what a run was for."""

    params: JsonValue
    triggered_by: str
    rerun_of: uuid.UUID | None = None
    event_uuid: uuid.UUID | None = None
    revision: int | None = None


class Triggering:
    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def trigger(
        self, ref: str, *, params: JsonValue, on_overlap: str | None, idempotency_key: str | None
    ) -> Triggered:
        """Write the manual row. The same Idempotency-Key gives the same run, for ever.

        `on_overlap`: `refuse` (default for activities with times) raises RunOpenError while a run is open; `wait` lets it
        wait for the runs and requests before it; `allow` (default for the others) does not look.
        """
        key = _key(idempotency_key)
        async with self._database.begin() as connection:
            record = await find(connection, ref)
            return await self._ask(connection, record, key, _Request(params, "manual"), on_overlap)

    async def rerun(
        self, run_id: uuid.UUID, *, original_revision: bool, on_overlap: str | None, idempotency_key: str | None
    ) -> Triggered:
        """Ask for a run of what another run was for: its window, its event or its params.

        By the revision in force, unless by the original's. Raises NotFoundError, GoneError, and what `trigger` raises.
        """
        key = _key(idempotency_key)
        async with self._database.begin() as connection:
            run = await runs.by_id(connection, run_id)
            if run is None:
                raise NotFoundError(f"there is no run '{run_id}'")
            record = await find(connection, str(run.activity_id))
            occurrence = await ledger.by_id(connection, run.occurrence_id)
            request = _Request(
                None if occurrence is None else occurrence.params,
                "rerun",
                run_id,
                run.event_uuid,
                run.revision if original_revision else None,
            )
            return await self._ask(connection, record, key, request, on_overlap)

    async def _ask(
        self,
        connection: Connection,
        record: ActivityRecord,
        key: str,
        request: _Request,
        on_overlap: str | None,
    ) -> Triggered:
        state = await trigger_state.lock(connection, record.id)
        if state is None or state.deleted:
            raise GoneError(f"activity '{record.slug}' was deleted")
        workflow_id = ids.run_workflow_id(record.id, key)
        known = await ledger.by_key(connection, record.id, key)
        if known is not None:
            if (known.params, known.rerun_of) != (request.params, request.rerun_of):
                raise IdempotencyKeyReusedError("this Idempotency-Key came before with another request; use a new one")
            return Triggered(record.id, known.id, ids.run_id(workflow_id), workflow_id)
        activity = await self._definitions.get(connection, record.id, state.revision)
        if not activity.enabled:
            raise ActivityDisabledError(f"'{record.slug}' is disabled; enable it first")
        overlap = on_overlap or ("refuse" if isinstance(activity.trigger, TimeTrigger) else "allow")
        if overlap == "refuse" and await self._busy(connection, record.id):
            raise RunOpenError(
                f"a run of '{record.slug}' is open; send on_overlap: wait to run after it, or allow to run beside it"
            )
        waits = overlap == "wait" and await self._busy(connection, record.id)
        occurrence_id = uuid.uuid4()
        await ledger.insert_manual(
            connection,
            {
                "id": occurrence_id,
                "activity_id": record.id,
                "kind": "manual",
                "key": key,
                "revision": request.revision or state.revision,
                "due_at": state.now,
                "params": request.params,
                "triggered_by": request.triggered_by,
                "rerun_of": request.rerun_of,
                "event_uuid": request.event_uuid,
                "plan_as": "wait" if overlap == "wait" else None,
                "outcome": "waiting",
                "reason_code": "overlap" if waits else "due",
                "reason": "asked for, waits for its turn" if waits else "asked for, not started yet",
            },
        )
        await notify(connection, STARTS)
        return Triggered(record.id, occurrence_id, ids.run_id(workflow_id), workflow_id)

    async def _busy(self, connection: Connection, activity_id: uuid.UUID) -> bool:
        return (
            await runs.has_open(connection, activity_id)
            or await ledger.first_request(connection, activity_id) is not None
        )


def _key(idempotency_key: str | None) -> str:
    try:
        return ids.manual_key(idempotency_key if idempotency_key is not None else str(uuid.uuid4()))
    except ids.IdError as error:
        raise InvalidInputError([Fault("/headers/Idempotency-Key", str(error))]) from error
