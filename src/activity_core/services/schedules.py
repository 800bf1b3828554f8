"""Bring Temporal's schedules to what the definitions want. Level-triggered: whatever was missed is found by the next pass."""

import uuid

import structlog
from temporalio.service import RPCError

from activity_core.domain import cron
from activity_core.domain.calendars import compile_calendars
from activity_core.domain.documents import CronTrigger, stored_activity
from activity_core.errors import UnavailableError
from activity_core.store import activities
from activity_core.store.activities import ActivityRecord
from activity_core.store.database import Connection, Database
from activity_core.store.locks import try_lock
from activity_core.temporal.schedules import DesiredSchedule, Schedules

BATCH = 200

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def desired_schedule(record: ActivityRecord) -> DesiredSchedule | None:
    """What the schedule of this activity should be; None: there should be none."""
    activity = stored_activity(record.effective)
    if record.deleted_at is not None or not activity.enabled or not isinstance(activity.trigger, CronTrigger):
        return None
    calendars = compile_calendars(cron.parse_cron(activity.trigger.cron), activity.trigger.timezone)
    return DesiredSchedule(record.id, calendars)


class ScheduleSync:
    def __init__(self, database: Database, schedules: Schedules) -> None:
        self._database = database
        self._schedules = schedules

    async def sync_pending(self) -> None:
        """Sync every activity whose schedule is behind its definition. Raises UnavailableError without Temporal."""
        after: uuid.UUID | None = None
        while True:
            async with self._database.read() as connection:
                pending = await activities.unsynced(connection, after=after, limit=BATCH)
            for activity_id in pending:
                await self._sync(activity_id)
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
        desired = desired_schedule(record)
        try:
            if desired is None:
                await self._schedules.remove(activity_id)
            else:
                await self._schedules.put(desired)
        except RPCError as error:
            await activities.mark_sync_error(connection, activity_id, f"{error.status.name}: {error.message}"[:500])
            log.error("schedule.sync_failed", activity_id=str(activity_id), error=str(error))
            if error.status.name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"):
                raise UnavailableError("Temporal can't be reached") from error
            return
        await activities.mark_synced(connection, activity_id, record.generation)
        log.info("schedule.synced", activity_id=str(activity_id), generation=record.generation)
