"""Definitions in force, read once per revision: a revision never changes, so there is nothing to invalidate."""

import uuid
from collections import OrderedDict

from activity_core.domain.documents import Activity, stored_activity
from activity_core.store import activities
from activity_core.store.database import Connection

CAPACITY = 2_000


class Definitions:
    """A process-wide cache of parsed revisions."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[uuid.UUID, int], Activity] = OrderedDict()

    def known(self, activity_id: uuid.UUID, revision: int) -> Activity | None:
        """The revision if it was read before: no connection is needed then."""
        return self._known.get((activity_id, revision))

    async def get(self, connection: Connection, activity_id: uuid.UUID, revision: int) -> Activity:
        key = (activity_id, revision)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        record = await activities.revision(connection, activity_id, revision)
        if record is None:
            raise LookupError(f"activity {activity_id} has no revision {revision}")
        activity = stored_activity(record.effective)
        self._known[key] = activity
        if len(self._known) > CAPACITY:
            self._known.popitem(last=False)
        return activity
