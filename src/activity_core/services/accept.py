"""The front door of events: what is answered 2xx is committed in Postgres (R25).

Requests that arrive together share one transaction: a commit costs a disk flush, whoever waits for it.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from activity_core.domain.envelopes import Envelope
from activity_core.domain.json_values import canonical_json
from activity_core.errors import ActivityCoreError, EventConflictError, Fault, InvalidInputError, UnavailableError
from activity_core.store import events
from activity_core.store.database import Database
from activity_core.store.events import KnownEvent, NewEvent
from activity_core.store.notify import EVENTS, notify

BATCH = 500
MAX_QUEUED = 10_000
NOTIFY_SECONDS = 0.005

# SQLSTATE classes: data exception, program limit exceeded
_ABOUT_VALUES = ("22", "54")

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Accepted:
    """`duplicate`: the event was there already, with this content."""

    id: uuid.UUID
    event_id: str
    duplicate: bool


class Acceptor:
    """Accepts events in groups. One per API process; `run` must be running."""

    def __init__(self, database: Database, *, max_data_bytes: int) -> None:
        self._database = database
        self._max_data_bytes = max_data_bytes
        self._queue: deque[tuple[NewEvent, asyncio.Future[Accepted | ActivityCoreError]]] = deque()
        self._arrived = asyncio.Event()
        self._to_route = asyncio.Event()

    async def accept(self, envelope: Envelope, *, assigned_id: str | None = None) -> Accepted:
        """Commit the event, or find it. `assigned_id`: the id to give when it came without one (R23).

        Raises InvalidInputError, EventConflictError, or UnavailableError (the outcome is unknown: send it again).
        """
        new = self._new_event(envelope, assigned_id)
        if len(self._queue) >= MAX_QUEUED:
            raise UnavailableError("too many events are waiting to be stored; send it again in a moment")
        outcome: asyncio.Future[Accepted | ActivityCoreError] = asyncio.get_running_loop().create_future()
        self._queue.append((new, outcome))
        self._arrived.set()
        answer = await outcome
        if isinstance(answer, ActivityCoreError):
            raise answer
        return answer

    def _new_event(self, envelope: Envelope, assigned_id: str | None) -> NewEvent:
        external_id = envelope.external_id or assigned_id or f"evt_{uuid.uuid4().hex}"
        data = None if envelope.data is None else canonical_json(envelope.data).decode()
        if data is not None and len(data.encode()) > self._max_data_bytes:
            message = f"{len(data.encode())} bytes, over the limit of {self._max_data_bytes}; store it and send a link"
            raise InvalidInputError([Fault("/data", message, "too_large")])
        return NewEvent(
            id=uuid.uuid4(),
            event_id=envelope.event_id(external_id),
            source=envelope.source,
            external_id=external_id,
            type=envelope.type,
            subject=envelope.subject,
            time=envelope.time,
            data=data,
            content_hash=envelope.content_hash(),
        )

    async def run(self) -> None:
        """Commit what arrives, until cancelled."""
        async with asyncio.TaskGroup() as group:
            # one committer: while it waits for the disk the next batch grows; two of half the size take longer
            group.create_task(self._commit_loop())
            group.create_task(self._notify_loop())

    async def _notify_loop(self) -> None:
        """Wake the router, apart from the commits: NOTIFY holds a database-wide lock while its transaction commits, and
        would so make all committers wait for each other's disk flush."""
        while True:
            await self._to_route.wait()
            self._to_route.clear()
            try:
                async with self._database.read() as connection:
                    await notify(connection, EVENTS)
            except UnavailableError:
                log.warning("events.notify_failed")  # the router polls, too
            await asyncio.sleep(NOTIFY_SECONDS)

    async def _commit_loop(self) -> None:
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            try:
                answers = await self._commit([new for new, _ in batch])
            except UnavailableError as error:
                answers = [error] * len(batch)
            except Exception:
                log.exception("events.batch_failed", size=len(batch))
                answers = await self._one_by_one([new for new, _ in batch])
            for (_, outcome), answer in zip(batch, answers, strict=True):
                if not outcome.done():
                    outcome.set_result(answer)

    async def _one_by_one(self, batch: Sequence[NewEvent]) -> list[Accepted | ActivityCoreError]:
        """After a batch failed: only the event that broke it is refused."""
        answers: list[Accepted | ActivityCoreError] = []
        for new in batch:
            try:
                answers.extend(await self._commit([new]))
            except UnavailableError as error:
                answers.append(error)
            except Exception as error:
                log.exception("event.unstorable", event_id=new.event_id)
                answers.append(_refusal(error))
        return answers

    async def _commit(self, batch: Sequence[NewEvent]) -> list[Accepted | ActivityCoreError]:
        first: dict[str, NewEvent] = {}
        for new in batch:
            first.setdefault(new.event_id, new)
        # Each statement commits by itself: a transaction around them would cost three round trips more. A crash in between
        # leaves an event that is accepted and not answered: sent again, it is a duplicate.
        async with self._database.read() as connection:
            inserted = await events.accept(connection, list(first.values()))
            others = [new.event_id for new in first.values() if new.id not in inserted]
            known = await events.known(connection, others) if others else {}
            reopened = await events.reopen_undecided(connection, [k.id for k in known.values()]) if known else 0
        if inserted or reopened:
            self._to_route.set()
        by_event_id: dict[str, NewEvent | KnownEvent] = {
            **known,
            **{new.event_id: new for new in first.values() if new.id in inserted},
        }
        return [_answer(new, by_event_id.get(new.event_id), inserted) for new in batch]


def _answer(
    new: NewEvent, stored: NewEvent | KnownEvent | None, inserted: set[uuid.UUID]
) -> Accepted | ActivityCoreError:
    if stored is None:
        # (source, id) is there under another event_id: only a change of how ids are built could do that
        return EventConflictError(
            f"the id '{new.external_id}' of source '{new.source}' is stored under another event_id"
        )
    if new.id in inserted:
        return Accepted(new.id, new.event_id, duplicate=False)
    if (stored.source, stored.external_id) != (new.source, new.external_id):
        return EventConflictError(
            f"event_id '{new.event_id}' belongs to the id '{stored.external_id}' of source '{stored.source}'"
        )
    if stored.content_hash != new.content_hash:
        return EventConflictError(
            f"event '{new.event_id}' was accepted before with other content; the first one stands"
        )
    return Accepted(stored.id, stored.event_id, duplicate=True)


def _refusal(error: Exception) -> ActivityCoreError:
    """For an error that nobody foresaw. Only what Postgres says of the values themselves is the sender's to mend."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    if isinstance(state, str) and state.startswith(_ABOUT_VALUES):
        return InvalidInputError([Fault("", "this event can't be stored", "unstorable")])
    return UnavailableError("this event can't be stored at the moment; send it again later")
