"""The end of a run, with what waits for it."""

import uuid
from datetime import datetime

from activity_core.store import event_rows, runs, trigger_state
from activity_core.store.database import Connection
from activity_core.store.notify import STARTS, notify


async def end_run(
    connection: Connection,
    activity_id: uuid.UUID,
    run_id: uuid.UUID,
    *,
    status: str,
    result: str | None,
    reason: str | None,
    finished_at: datetime | None = None,
) -> bool:
    """Write the end, wake what waits for it: the activity's times and requests, and the next event of its concurrency
    key. False if the run had ended. The caller holds the ledger's lock, and commits."""
    if not await runs.end(connection, run_id, status=status, result=result, reason=reason, finished_at=finished_at):
        return False
    await trigger_state.wake_if_waiting(connection, activity_id)
    key = await runs.concurrency_key(connection, run_id)
    if key is not None and await event_rows.release_queued(connection, activity_id, key):
        await notify(connection, STARTS)
    return True
