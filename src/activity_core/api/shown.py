"""Activities as they are shown: with what holds them, which is no part of their record."""

from collections.abc import Sequence
from datetime import UTC, datetime

from fastapi import Response

from activity_core.api import notices, views
from activity_core.api.services import Services
from activity_core.domain.documents import stored_activity
from activity_core.store.activities import ActivityRecord


async def activity(use: Services, record: ActivityRecord, response: Response) -> views.ActivityOut:
    """One, with its revision as the ETag."""
    response.headers["ETag"] = f'"{record.revision}"'
    return (await activities(use, [record]))[0]


async def activities(use: Services, records: Sequence[ActivityRecord]) -> list[views.ActivityOut]:
    status, now = await use.pausing.status(records), datetime.now(UTC)
    return [
        views.activity(record, status[record.id], notices.of_activity(stored_activity(record.effective), now), now)
        for record in records
    ]
