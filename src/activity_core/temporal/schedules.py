"""Temporal Schedules: built from our calendars, never from the user's string, and written by one writer each."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.api.schedule.v1 import Schedule as ScheduleProto
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleBackfill,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from activity_core.domain import ids
from activity_core.domain.calendars import Calendar, CalendarRange, Calendars, Interval
from activity_core.domain.documents import TimeTrigger
from activity_core.errors import UnavailableError
from activity_core.temporal.client import TASK_TIMEOUT, Temporal
from activity_core.workflows import contracts as c

# Explicit, because the default is a year; an hour, because ten seconds lose runs in a plain burst.
CATCHUP_WINDOW = timedelta(hours=1)

# In the memo of every schedule of ours: the id of the database that owns it. A memo can't be changed afterwards.
MARK = "activity_core_database"


@dataclass(frozen=True, slots=True)
class DesiredSchedule:
    """What the schedule of one activity should be."""

    activity_id: uuid.UUID
    calendars: Calendars
    overlap: ScheduleOverlapPolicy


def build(desired: DesiredSchedule, task_queue: str) -> Schedule:
    """The Temporal Schedule: it starts the fire workflow, and settle decides what is due."""
    return Schedule(
        action=ScheduleActionStartWorkflow(
            c.FIRE_WORKFLOW,
            c.FireInput(str(desired.activity_id)),
            id=ids.fire_workflow_id(desired.activity_id),
            task_queue=task_queue,
            task_timeout=TASK_TIMEOUT,
        ),
        spec=ScheduleSpec(
            calendars=[_calendar(calendar) for calendar in desired.calendars.calendars],
            intervals=[_interval(interval) for interval in desired.calendars.intervals],
            start_at=desired.calendars.start_at,
            end_at=desired.calendars.end_at,
            time_zone_name=desired.calendars.zone,
        ),
        policy=SchedulePolicy(overlap=desired.overlap, catchup_window=CATCHUP_WINDOW),
    )


def overlap_of(trigger: TimeTrigger) -> ScheduleOverlapPolicy:
    """What the server does with a tick while a fire is open: what settle does with the time (R12)."""
    if trigger.misfire_policy == "skip":
        return ScheduleOverlapPolicy.SKIP
    if trigger.overlap_policy == "allow_all":
        return ScheduleOverlapPolicy.ALLOW_ALL
    return ScheduleOverlapPolicy.BUFFER_ONE


def _interval(interval: Interval) -> ScheduleIntervalSpec:
    every, offset = timedelta(seconds=interval.every_seconds), timedelta(seconds=interval.offset_seconds)
    return ScheduleIntervalSpec(every=every, offset=offset)


def _calendar(calendar: Calendar) -> ScheduleCalendarSpec:
    return ScheduleCalendarSpec(
        second=_ranges(calendar.second),
        minute=_ranges(calendar.minute),
        hour=_ranges(calendar.hour),
        day_of_month=_ranges(calendar.day_of_month),
        month=_ranges(calendar.month),
        day_of_week=_ranges(calendar.day_of_week),
        year=_ranges(calendar.year),
    )


def _ranges(ranges: tuple[CalendarRange, ...]) -> list[ScheduleRange]:
    return [ScheduleRange(start=r.start, end=r.end, step=r.step) for r in ranges]


class Schedules:
    """Writes schedules. The caller holds the sync lock of the activity."""

    def __init__(self, temporal: Temporal) -> None:
        self._temporal = temporal

    async def put(self, desired: DesiredSchedule, database_id: uuid.UUID) -> str:
        """Create the schedule or bring it to what is desired; never deletes and recreates. Returns its fingerprint."""
        client = await self._temporal.client()
        schedule = build(desired, self._temporal.task_queue)
        schedule_id = ids.schedule_id(desired.activity_id)

        async def replaced(_: ScheduleUpdateInput) -> ScheduleUpdate:
            return ScheduleUpdate(schedule=schedule)

        try:
            await client.create_schedule(
                schedule_id, schedule, memo={MARK: str(database_id)}, rpc_timeout=timedelta(seconds=5)
            )
        except ScheduleAlreadyRunningError:
            await client.get_schedule_handle(schedule_id).update(replaced, rpc_timeout=timedelta(seconds=5))
        found = await self.fingerprint(desired.activity_id)
        if found is None:
            raise UnavailableError(f"schedule {schedule_id} vanished while it was written")
        return found

    async def fingerprint(self, activity_id: uuid.UUID) -> str | None:
        """Of the schedule as the server holds it: what it does, when and whether it is paused. None: there is none."""
        client = await self._temporal.client()
        try:
            handle = client.get_schedule_handle(ids.schedule_id(activity_id))
            found = await handle.describe(rpc_timeout=timedelta(seconds=5))
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        held = ScheduleProto()
        held.CopyFrom(found.raw_description.schedule)
        # notes and counters of remaining actions are no part of what it should be
        held.state.notes = ""
        return hashlib.sha256(held.SerializeToString(deterministic=True)).hexdigest()

    async def backfill(self, activity_id: uuid.UUID, times: Sequence[datetime]) -> bool:
        """Ask for fires of these nominal times, in one call: of several close together the server loses some.

        False if there is no schedule. A fire runs what is first in the ledger's queue, whatever time it came for.
        """
        client = await self._temporal.client()
        entries = [
            ScheduleBackfill(start_at=time, end_at=time, overlap=ScheduleOverlapPolicy.BUFFER_ALL) for time in times
        ]
        try:
            handle = client.get_schedule_handle(ids.schedule_id(activity_id))
            await handle.backfill(*entries, rpc_timeout=timedelta(seconds=5))
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True

    async def owned(self, database_id: uuid.UUID) -> set[uuid.UUID]:
        """Activities of this database that have a schedule. Others' schedules, and other databases', are not looked at."""
        client = await self._temporal.client()
        found = set()
        async for listed in await client.list_schedules(page_size=1000):
            if not listed.id.startswith("activity-"):
                continue
            if (await listed.memo()).get(MARK) == str(database_id):
                found.add(ids.parse_schedule_id(listed.id))
        return found

    async def remove(self, activity_id: uuid.UUID) -> None:
        """Delete the schedule; one that is gone already is as good."""
        client = await self._temporal.client()
        try:
            await client.get_schedule_handle(ids.schedule_id(activity_id)).delete(rpc_timeout=timedelta(seconds=5))
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
