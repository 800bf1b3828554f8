"""The poller: the ledger is complete without ticks, and without Temporal.

It settles activities whose next due instant has passed by two seconds, in Postgres alone. Heads it finds are fired by
another loop, which may block while Temporal is down.
"""

import uuid
from collections import OrderedDict
from datetime import datetime

import structlog

from activity_core.domain import ids
from activity_core.errors import UnavailableError
from activity_core.services.settle import Settler
from activity_core.store import trigger_state
from activity_core.store.database import Database
from activity_core.temporal.client import Temporal

OVERDUE_SECONDS = 2.0
BATCH = 500

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Poller:
    def __init__(self, database: Database, settler: Settler, temporal: Temporal) -> None:
        self._database = database
        self._settler = settler
        self._temporal = temporal
        self._heads: OrderedDict[uuid.UUID, datetime] = OrderedDict()

    async def settle_overdue(self) -> int:
        """Settle what is overdue; how many activities were."""
        async with self._database.read() as connection:
            overdue = await trigger_state.overdue(connection, OVERDUE_SECONDS, BATCH)
        for activity_id in overdue:
            try:
                head = await self._settler.settle_overdue(activity_id, OVERDUE_SECONDS)
            except UnavailableError:
                raise
            except Exception:  # one activity's trouble must not stop the others' times (I9)
                log.exception("activity.settle_failed", activity_id=str(activity_id))
                continue
            if head is not None:
                self._heads[activity_id] = head
        return len(overdue)

    async def look(self, activity_id: uuid.UUID) -> None:
        """Settle one activity now, and fire what is to run: a time that fell due while its schedule was being written
        has no tick, and need not wait until it is overdue."""
        settled = await self._settler.settle(activity_id)
        if settled is not None and settled.plan.head is not None:
            self._heads[activity_id] = settled.plan.head

    async def fire_heads(self) -> None:
        """Start a fire for each head found. The ID holds the head: a fire that ended must not hide the next one."""
        while self._heads:
            activity_id, head = self._heads.popitem(last=False)
            await self._temporal.start_fire(ids.fire_workflow_id(activity_id, head), str(activity_id))
