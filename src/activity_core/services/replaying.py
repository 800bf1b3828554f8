"""Route events again, as the definitions of today have it. Ids are kept, so what ran never runs again (R6, R8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activity_core.errors import Fault, InvalidInputError
from activity_core.services.activities import find
from activity_core.services.reads import find_event
from activity_core.store import replays
from activity_core.store.database import Connection, Database
from activity_core.store.notify import EVENTS, notify
from activity_core.store.replays import Reopened, ReplayFilter

MAX_EVENTS = 10_000


@dataclass(frozen=True, slots=True)
class Replay:
    """`events`: how many are routed again (or would be). `rows`: those of their ledger rows that are decided anew; what
    an activity that has none yet makes of them is the router's to find out."""

    events: int
    rows: Sequence[Reopened]


class Replaying:
    def __init__(self, database: Database) -> None:
        self._database = database

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
        rows = await replays.reopened(connection, chosen, activity_id)
        if not dry_run and chosen:
            await replays.mark(connection, chosen, activity_id)
            await notify(connection, EVENTS)
        return Replay(len(chosen), rows)
