"""Bring Temporal's schedules to what the definitions want. Level-triggered: whatever was missed is found by the next pass."""

import uuid
from datetime import datetime

import structlog
from temporalio.service import RPCError

from activity_core.domain.calendars import compile_times
from activity_core.domain.documents import TimeTrigger, stored_activity, times_of
from activity_core.errors import UnavailableError
from activity_core.services.poller import Poller
from activity_core.services.settle import Settler
from activity_core.store import activities, metrics, trigger_state
from activity_core.store.activities import ActivityRecord
from activity_core.store.database import Connection, Database
from activity_core.store.locks import try_lock
from activity_core.temporal.schedules import DesiredSchedule, Schedules, overlap_of

BATCH = 200
# Looking at one costs a call; with more than this it takes several passes to go round.
COMPARED_PER_PASS = 500

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def desired_schedule(record: ActivityRecord, now: datetime) -> DesiredSchedule | None:
    """What the schedule of this activity should be; None: there should be none.

    One that has no time to come is removed by the server sooner or later; it is not there to begin with.
    """
    activity = stored_activity(record.effective)
    trigger = activity.trigger
    times = times_of(trigger)
    if times is None or not isinstance(trigger, TimeTrigger) or record.deleted_at is not None:
        return None
    if not activity.enabled or times.next_after(now) is None:
        return None
    return DesiredSchedule(record.id, compile_times(times), overlap_of(trigger))


class ScheduleSync:
    def __init__(
        self, database: Database, schedules: Schedules, database_id: uuid.UUID, poller: Poller, settler: Settler
    ) -> None:
        self._database = database
        self.schedules = schedules
        self._database_id = database_id
        self._poller = poller
        self._settler = settler
        self._checked_up_to: uuid.UUID | None = None

    async def reconcile(self) -> None:
        """Repair schedules that are missing, changed by hand, or left over. One process at a time does it.

        Raises UnavailableError without Temporal. Only schedules that carry this database's mark are touched.
        """
        async with self._database.session() as connection, try_lock(connection, "reconcile schedules") as held:
            if not held:
                return
            owned = await self.schedules.owned(self._database_id)
            wanted = await activities.scheduled(connection)
            for activity_id in owned - wanted.keys():
                await self._look_at_unwanted(connection, activity_id)
            for activity_id in wanted.keys() - owned:
                # lists lag behind by seconds, so what is not in one may be there
                if await self.schedules.fingerprint(activity_id) is None:
                    await self._repair(connection, activity_id, "missing")
            await self._compare(connection, {key: wanted[key] for key in sorted(wanted.keys() & owned)})
        await self.sync_pending()

    async def _look_at_unwanted(self, connection: Connection, activity_id: uuid.UUID) -> None:
        """A schedule of ours that should not be there, or whose activity is just being synced."""
        record = await activities.by_id(connection, activity_id)
        if record is None:
            # this database never had it: a backup older than it was restored
            log.warning("schedule.orphan_removed", activity_id=str(activity_id))
            await metrics.count(connection, "schedule_repairs", "orphaned")
            await self.schedules.remove(activity_id)
        elif record.observed_generation >= record.generation:
            await self._repair(connection, activity_id, "orphaned")

    async def _repair(self, connection: Connection, activity_id: uuid.UUID, what: str) -> None:
        log.warning("schedule.repaired", activity_id=str(activity_id), what=what)
        await metrics.count(connection, "schedule_repairs", what)
        await activities.mark_unsynced(connection, activity_id)

    async def _compare(self, connection: Connection, wanted: dict[uuid.UUID, str | None]) -> None:
        """Look at some of the schedules, going round over the passes, and mark those that were changed by hand."""
        ahead = [key for key in wanted if self._checked_up_to is None or key > self._checked_up_to]
        turn = ahead[:COMPARED_PER_PASS]
        self._checked_up_to = turn[-1] if len(ahead) > COMPARED_PER_PASS else None
        for activity_id in turn:
            if await self.schedules.fingerprint(activity_id) != wanted[activity_id]:
                await self._repair(connection, activity_id, "changed")

    async def sync_pending(self) -> None:
        """Sync every activity whose schedule is behind its definition. Raises UnavailableError without Temporal."""
        after: uuid.UUID | None = None
        while True:
            async with self._database.read() as connection:
                pending = await activities.unsynced(connection, after=after, limit=BATCH)
            for activity_id in pending:
                try:
                    await self._sync(activity_id)
                except (ValueError, LookupError):  # a definition that can't be read must not stop the others' (I9)
                    log.exception("schedule.definition_unreadable", activity_id=str(activity_id))
            if len(pending) < BATCH:
                return
            after = pending[-1]

    async def _sync(self, activity_id: uuid.UUID) -> None:
        # one writer per schedule: of concurrent updates through the SDK one survives, and all are answered "ok". The lock
        # is the session's and not a transaction's: no call to Temporal is made inside a transaction
        async with self._database.session() as connection, try_lock(connection, f"schedule {activity_id}") as held:
            if held:
                await self._write(connection, activity_id)

    async def _write(self, connection: Connection, activity_id: uuid.UUID) -> None:
        record = await activities.by_id(connection, activity_id)
        if record is None or record.observed_generation >= record.generation:
            return
        desired = desired_schedule(record, await trigger_state.clock(connection))
        # what is to be caught up is asked of the schedule as it is: the new one may not have these times
        settled = await self._settler.settle(activity_id, issue=True)
        try:
            fingerprint = None
            if settled is not None and settled.planned.issue:
                await self.schedules.backfill(activity_id, settled.planned.issue)
            if desired is None:
                await self.schedules.remove(activity_id)
            else:
                fingerprint = await self.schedules.put(desired, self._database_id)
        except RPCError as error:
            await activities.mark_sync_error(connection, activity_id, f"{error.status.name}: {error.message}"[:500])
            log.error("schedule.sync_failed", activity_id=str(activity_id), error=str(error))
            if error.status.name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"):
                raise UnavailableError("Temporal can't be reached") from error
            return
        await activities.mark_synced(connection, activity_id, record.generation, fingerprint)
        if desired is not None:
            await self._poller.look(activity_id)
        log.info("schedule.synced", activity_id=str(activity_id), generation=record.generation)
