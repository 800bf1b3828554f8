"""The poller: the ledger is complete without ticks, and without Temporal.

It settles activities whose next due instant has passed by two seconds, in Postgres alone. Heads it finds are fired by
another loop, which may block while Temporal is down.
"""

import asyncio
import uuid
from collections import OrderedDict
from datetime import datetime

import structlog

from activity_core.domain import ids
from activity_core.errors import UnavailableError
from activity_core.services.settle import Settler
from activity_core.store import time_rows, trigger_state
from activity_core.store.database import Database
from activity_core.temporal.client import Temporal

OVERDUE_SECONDS = 2.0
BATCH = 500
SIDE_BY_SIDE = 4
# Fires that were started and whose head has not begun. More would wait in Temporal's queues, in the way of everything else.
MAX_FIRED = 50
# After so long a fire that has not come to its run is taken for lost.
FIRE_AGAIN_SECONDS = 20.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Poller:
    def __init__(self, database: Database, settler: Settler, temporal: Temporal) -> None:
        self._database = database
        self._settler = settler
        self._temporal = temporal
        self._heads: OrderedDict[uuid.UUID, datetime] = OrderedDict()
        self._fired: dict[tuple[uuid.UUID, datetime], float] = {}

    async def settle_overdue(self) -> int:
        """Settle what is overdue; how many activities were."""
        async with self._database.read() as connection:
            overdue = await trigger_state.overdue(connection, OVERDUE_SECONDS, BATCH)
        for place in range(0, len(overdue), SIDE_BY_SIDE):
            await asyncio.gather(*(self._settle(activity_id) for activity_id in overdue[place : place + SIDE_BY_SIDE]))
        return len(overdue)

    async def _settle(self, activity_id: uuid.UUID) -> None:
        try:
            self._found(activity_id, await self._settler.settle_overdue(activity_id, OVERDUE_SECONDS))
        except UnavailableError:
            raise
        except Exception:  # one activity's trouble must not stop the others' times (I9)
            log.exception("activity.settle_failed", activity_id=str(activity_id))

    async def look(self, activity_id: uuid.UUID) -> None:
        """Settle one activity now, and fire what is to run: a time that fell due while its schedule was being written
        has no tick, and need not wait until it is overdue."""
        settled = await self._settler.settle(activity_id)
        self._found(activity_id, None if settled is None else settled.head)

    def _found(self, activity_id: uuid.UUID, head: datetime | None) -> None:
        if head is None:
            self._heads.pop(activity_id, None)
        else:
            self._heads[activity_id] = head

    async def fire_heads(self) -> None:
        """Start a fire for each head found. The ID holds the head: a fire that ended must not hide the next one."""
        if not self._heads:
            return
        await self._forget_begun()
        for activity_id, head in list(self._heads.items()):
            if len(self._fired) >= MAX_FIRED:
                return
            if self._heads.get(activity_id) != head:
                continue
            if (activity_id, head) not in self._fired:
                await self._fire(activity_id, head)
            # a settle in the meantime may have found that there is none any more, or another
            if self._heads.get(activity_id) == head:
                del self._heads[activity_id]

    async def _fire(self, activity_id: uuid.UUID, head: datetime) -> None:
        try:
            await self._temporal.start_fire(ids.fire_workflow_id(activity_id, head), str(activity_id))
        except UnavailableError:
            raise
        except Exception:  # one that can't be started must not hold up the others (I9): it is found again
            log.exception("fire.start_failed", activity_id=str(activity_id))
        else:
            self._fired[activity_id, head] = asyncio.get_running_loop().time()

    async def _forget_begun(self) -> None:
        """Of the fires under way, those whose head waits no more, or has waited for too long."""
        if not self._fired:
            return
        since = asyncio.get_running_loop().time() - FIRE_AGAIN_SECONDS
        async with self._database.read() as connection:
            waiting = await time_rows.still_waiting(connection, list(self._fired))
        self._fired = {fired: at for fired, at in self._fired.items() if fired in waiting and at > since}
