"""Route events again, as the definitions of today have it. Ids are kept, so what ran never runs again (R6, R8)."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activity_core.domain.event_types import matching_patterns
from activity_core.errors import Fault, InvalidInputError
from activity_core.services.activities import find
from activity_core.services.definitions import Definitions
from activity_core.services.reads import find_event
from activity_core.services.routing import ALWAYS, REPLAYED, decide
from activity_core.store import activities, events, replays
from activity_core.store.activities import Candidate
from activity_core.store.database import Connection, Database
from activity_core.store.events import EventRecord
from activity_core.store.notify import EVENTS, notify
from activity_core.store.replays import ReplayFilter

MAX_EVENTS = 10_000
PAGE = 200


@dataclass(slots=True)
class OfActivity:
    """What a replay comes to for an activity, in events. `starts`: its filter lets them through, if its debounce, rate
    limit and concurrency do; `reopened`: of these, those that had been decided otherwise. `left`: decided for good."""

    activity_id: uuid.UUID
    slug: str
    starts: int = 0
    reopened: int = 0
    filtered: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """`events`: how many are routed again, or would be."""

    events: int
    by_activity: Sequence[OfActivity]


class Replaying:
    def __init__(self, database: Database, definitions: Definitions) -> None:
        self._database = database
        self._definitions = definitions

    async def one(self, ref: str, *, activity: str | None, dry_run: bool) -> Replay:
        """Raises NotFoundError."""
        async with self._database.begin() as connection:
            event = await find_event(connection, ref)
            where = ReplayFilter(event_uuid=event.id)
            return await self._replay(connection, where, activity, limit=1, dry_run=dry_run)

    async def many(
        self,
        *,
        start: datetime,
        end: datetime,
        event_type: str | None,
        source: str | None,
        activity: str | None,
        limit: int,
        dry_run: bool,
    ) -> Replay:
        """Those accepted in [start, end), oldest first, `limit` at most."""
        if start >= end:
            raise InvalidInputError([Fault("/to", "must be after 'from'")])
        where = ReplayFilter(accepted_from=start, accepted_to=end, event_type=event_type, source=source)
        async with self._database.begin() as connection:
            return await self._replay(connection, where, activity, limit=limit, dry_run=dry_run)

    async def _replay(
        self, connection: Connection, where: ReplayFilter, activity: str | None, *, limit: int, dry_run: bool
    ) -> Replay:
        activity_id = None if activity is None else (await find(connection, activity)).id
        chosen = await replays.choose(connection, where, limit)
        count = _Count(connection, self._definitions, activity_id)
        for start in range(0, len(chosen), PAGE):
            await count.add(chosen[start : start + PAGE])
        if not dry_run and chosen:
            await replays.mark(connection, chosen, activity_id)
            await notify(connection, EVENTS)
        return Replay(len(chosen), sorted(count.found.values(), key=lambda item: item.slug))


class _Count:
    """What the router will make of the events, as far as it can be told of each for itself."""

    def __init__(self, connection: Connection, definitions: Definitions, activity_id: uuid.UUID | None) -> None:
        self._connection = connection
        self._definitions = definitions
        self._only = activity_id
        self._candidates: dict[str, list[Candidate]] = {}
        self.found: dict[uuid.UUID, OfActivity] = {}

    async def add(self, ids: Sequence[uuid.UUID]) -> None:
        outcomes = await replays.outcomes(self._connection, ids)
        for event in await events.by_ids(self._connection, ids):
            # what was never routed goes to all of them, see `replays.mark`
            kept_back = event.quarantine_reason is not None or event.dead_letter_reason is not None
            for candidate in await self._candidates_of(event):
                if not kept_back and self._only not in (None, candidate.activity_id):
                    continue
                await self._add(event, candidate, outcomes.get((candidate.activity_id, event.id)))

    async def _candidates_of(self, event: EventRecord) -> list[Candidate]:
        if event.type not in self._candidates:
            found = await activities.candidates(self._connection, matching_patterns(event.type), ALWAYS)
            self._candidates[event.type] = found
        return self._candidates[event.type]

    async def _add(self, event: EventRecord, candidate: Candidate, outcome: str | None) -> None:
        try:
            activity = await self._definitions.get(self._connection, candidate.activity_id, candidate.revision)
        except (ValueError, LookupError):
            return  # its row will say so
        decision = decide(activity, event, candidate.activity_id)
        if decision.reason_code == "source_unmatched" and outcome is None:
            return
        row = OfActivity(candidate.activity_id, activity.slug)
        row = self.found.setdefault(candidate.activity_id, row)
        if outcome is not None and outcome not in REPLAYED:
            row.left += 1
        elif decision.outcome == "waiting":
            row.starts += 1
            row.reopened += outcome is not None
        else:
            row.filtered += 1
