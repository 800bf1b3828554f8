"""The front door of events: what is answered 2xx is committed in Postgres (R25).

Requests that arrive together share one transaction: a commit costs a disk flush, whoever waits for it.
"""

import asyncio
import uuid
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from activity_core.domain.envelopes import Envelope
from activity_core.domain.json_values import canonical_json
from activity_core.errors import (
    ActivityCoreError,
    EventConflictError,
    Fault,
    InvalidInputError,
    OverloadedError,
    UnavailableError,
)
from activity_core.services.event_types import EventSchemas
from activity_core.store import events
from activity_core.store.database import Database
from activity_core.store.events import KnownEvent, NewEvent
from activity_core.store.notify import EVENTS, notify

BATCH = 500
MAX_QUEUED = 10_000
# Of one source: a noisy one must leave room for the others.
MAX_QUEUED_PER_SOURCE = 2_000
# So many events in a row may have made each other.
MAX_DEPTH = 16
NOTIFY_SECONDS = 0.005

# SQLSTATE classes: data exception, program limit exceeded
_ABOUT_VALUES = ("22", "54")

_LOOP = f"loop: more than {MAX_DEPTH} events in a row were made by runs of each other; replay it to run it all the same"

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Accepted:
    """`duplicate`: the event was there already, with this content. `quarantined`: it is kept back, because the schema of
    its type does not allow it."""

    id: uuid.UUID
    event_id: str
    duplicate: bool
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """The run that made an event, and how many such steps lie behind it."""

    run_id: uuid.UUID
    depth: int


class ContentConflictError(EventConflictError):
    """The id is there with other content; `stored` is the event that stands."""

    def __init__(self, detail: str, stored: Accepted) -> None:
        super().__init__(detail)
        self.stored = stored


class DataTooLargeError(InvalidInputError):
    """The data of an event is beyond what an event may have."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    new: NewEvent
    outcome: "asyncio.Future[Accepted | ActivityCoreError]"


class _Queues:
    """What waits, by source: taken in turn, one of each, so that one that floods does not delay the others (I9)."""

    def __init__(self) -> None:
        self._by_source: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self.size = 0

    def add(self, waiting: _Waiting) -> None:
        """Raises UnavailableError or OverloadedError when there is no room."""
        if self.size >= MAX_QUEUED:
            raise UnavailableError("too many events are waiting to be stored; send it again in a moment")
        queue = self._by_source.setdefault(waiting.new.source, deque())
        if len(queue) >= MAX_QUEUED_PER_SOURCE:
            raise OverloadedError(f"too many events of '{waiting.new.source[:100]}' are waiting to be stored")
        queue.append(waiting)
        self.size += 1

    def take(self, limit: int) -> list[_Waiting]:
        taken: list[_Waiting] = []
        while self._by_source and len(taken) < limit:
            source, queue = self._by_source.popitem(last=False)
            taken.append(queue.popleft())
            if queue:
                self._by_source[source] = queue
        self.size -= len(taken)
        return taken


class Acceptor:
    """Accepts events in groups. One per API process; `run` must be running."""

    def __init__(self, database: Database, schemas: EventSchemas, *, max_data_bytes: int) -> None:
        self._database = database
        self._schemas = schemas
        self._max_data_bytes = max_data_bytes
        self._queues = _Queues()
        self._arrived = asyncio.Event()
        self._to_route = asyncio.Event()

    async def accept(
        self, envelope: Envelope, *, assigned_id: str | None = None, cause: Cause | None = None
    ) -> Accepted:
        """Commit the event, or find it. `assigned_id`: the id to give when it came without one (R23).

        Raises InvalidInputError, EventConflictError, OverloadedError, or UnavailableError (the outcome is unknown: send
        it again).
        """
        verdict = await self._schemas.check(envelope.type, envelope.data)
        if verdict is not None and not verdict.quarantine and not await self.is_known(envelope, assigned_id):
            raise InvalidInputError(list(verdict.faults))
        quarantine = verdict.reason if verdict is not None and verdict.quarantine else None
        new = self._new_event(envelope, assigned_id, cause, quarantine)
        outcome: asyncio.Future[Accepted | ActivityCoreError] = asyncio.get_running_loop().create_future()
        self._queues.add(_Waiting(new, outcome))
        self._arrived.set()
        answer = await outcome
        if isinstance(answer, ActivityCoreError):
            raise answer
        return answer

    async def is_known(self, envelope: Envelope, assigned_id: str | None) -> bool:
        """Whether its id is there: what was accepted before its type had this schema, or a source this name, is a
        duplicate still when it is sent again (R24, I3)."""
        external_id = envelope.external_id or assigned_id
        if external_id is None:
            return False
        event_id = envelope.event_id(external_id)
        async with self._database.read() as connection:
            return event_id in await events.known(connection, [event_id])

    def _new_event(
        self, envelope: Envelope, assigned_id: str | None, cause: Cause | None, quarantine: str | None
    ) -> NewEvent:
        external_id = envelope.external_id or assigned_id or f"evt_{uuid.uuid4().hex}"
        data = None if envelope.data is None else canonical_json(envelope.data).decode()
        if data is not None and len(data.encode()) > self._max_data_bytes:
            message = f"{len(data.encode())} bytes, over the limit of {self._max_data_bytes}; store it and send a link"
            raise DataTooLargeError([Fault("/data", message, "too_large")])
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
            causation_run_id=None if cause is None else cause.run_id,
            depth=0 if cause is None else min(cause.depth, MAX_DEPTH + 1),
            quarantine_reason=quarantine,
            dead_letter_reason=_LOOP if cause is not None and cause.depth > MAX_DEPTH else None,
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
            while not self._queues.size:
                self._arrived.clear()
                await self._arrived.wait()
            batch = self._queues.take(BATCH)
            try:
                answers = await self._commit([waiting.new for waiting in batch])
            except UnavailableError as error:
                answers = [error] * len(batch)
            except Exception:
                log.exception("events.batch_failed", size=len(batch))
                answers = await self._one_by_one([waiting.new for waiting in batch])
            for waiting, answer in zip(batch, answers, strict=True):
                if not waiting.outcome.done():
                    waiting.outcome.set_result(answer)

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
            reopened = 0
            if known:
                reopened = await events.reopen_undecided(
                    connection, [k.id for k in known.values()], max_depth=MAX_DEPTH
                )
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
        return Accepted(new.id, new.event_id, duplicate=False, quarantined=new.quarantine_reason is not None)
    if (stored.source, stored.external_id) != (new.source, new.external_id):
        return EventConflictError(
            f"event_id '{new.event_id}' belongs to the id '{stored.external_id}' of source '{stored.source}'"
        )
    if stored.content_hash != new.content_hash:
        return ContentConflictError(
            f"event '{new.event_id}' was accepted before with other content; the first one stands",
            Accepted(stored.id, stored.event_id, duplicate=True),
        )
    return Accepted(stored.id, stored.event_id, duplicate=True)


def _refusal(error: Exception) -> ActivityCoreError:
    """For an error that nobody foresaw. Only what Postgres says of the values themselves is the sender's to mend."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    if isinstance(state, str) and state.startswith(_ABOUT_VALUES):
        return InvalidInputError([Fault("", "this event can't be stored", "unstorable")])
    return UnavailableError("this event can't be stored at the moment; send it again later")
