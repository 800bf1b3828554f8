"""Where a matched event goes by its activity's rules: debounce, rate limit, concurrency. Under the ledger's lock, one event
after another, because each may stand in the way of the next."""

import uuid
from datetime import UTC, datetime
from typing import Any

from activity_core.domain import event_rules
from activity_core.domain.documents import Activity, Debounce, EventTrigger, RateLimit
from activity_core.domain.event_rules import Head, Placed, RuleKeyError
from activity_core.store import event_rows
from activity_core.store.database import Connection
from activity_core.store.event_rows import HeadRow
from activity_core.store.events import EventRecord
from activity_core.store.trigger_state import TriggerState

# What Postgres calls infinity: no claim comes to it.
NEVER = datetime.max.replace(tzinfo=UTC)


async def place(
    connection: Connection,
    state: TriggerState,
    activity: Activity,
    event: EventRecord,
    scope: dict[str, Any],
    row: dict[str, Any],
) -> dict[str, Any]:
    """The row of an event that is to start, as the rules have it; what it is merged into or absorbs is written."""
    try:
        keys = event_rules.keys_of(activity, scope)
    except RuleKeyError as error:
        return {
            **row,
            "outcome": "filter_error",
            "reason_code": "key_error",
            "reason": str(error),
            "decided_at": state.now,
            "start_after": state.now,
        }
    trigger = activity.trigger
    if isinstance(trigger, EventTrigger) and keys.group is not None:
        row = {**row, "group_key": keys.group}
        if trigger.debounce is not None:
            row = await _debounce(connection, state, trigger.debounce, keys.group, event, row)
        elif trigger.rate_limit is not None:
            row = await _rate_limit(connection, state, trigger.rate_limit, keys.group, event, row)
    if keys.concurrency is not None and row["outcome"] == "waiting":
        row = await _concurrency(connection, state, activity, keys.concurrency, row)
    return row


async def _debounce(
    connection: Connection,
    state: TriggerState,
    rule: Debounce,
    key: str,
    event: EventRecord,
    row: dict[str, Any],
) -> dict[str, Any]:
    position = (event.accepted_at, str(event.id))
    find = event_rows.newest_head if rule.edge == "leading" else event_rows.waiting_head
    found = await find(connection, state.activity_id, key)
    placed = event_rules.debounced(rule, position, _head(found), state.now)
    if found is not None and placed.absorbs and not await event_rows.merge(connection, found.id, row["id"], state.now):
        # it started in this very moment, without the ledger's lock: this event begins a group of its own
        placed = event_rules.debounced(rule, position, None, state.now)
    if found is not None and placed.head_until is not None:
        await event_rows.extend(connection, found.id, placed.head_until)
    if placed.outcome == "merged":
        return {**_decided(row, placed, state), "merged_into": None if found is None else found.id}
    row = _started_after(row, placed, state)
    # the newest of a leading group is found by it
    return {**row, "group_until": placed.until, "not_before": placed.not_before or event.accepted_at}


async def _rate_limit(
    connection: Connection, state: TriggerState, rule: RateLimit, key: str, event: EventRecord, row: dict[str, Any]
) -> dict[str, Any]:
    nth = await event_rows.nth_slot(connection, state.activity_id, key, rule.count)
    placed = event_rules.rate_limited(rule, event.accepted_at, nth, state.now)
    if placed.outcome != "waiting":
        return _decided(row, placed, state)
    return {**_started_after(row, placed, state), "not_before": placed.not_before}


async def _concurrency(
    connection: Connection, state: TriggerState, activity: Activity, key: str, row: dict[str, Any]
) -> dict[str, Any]:
    rule = activity.concurrency
    if rule is None:
        return row
    row = {**row, "concurrency_key": key, "concurrency_limit": rule.limit}
    if row["start_after"] == NEVER:
        return row  # held: whoever lets it go looks for room
    placed = event_rules.admitted(rule, await event_rows.taken(connection, state.activity_id, key))
    if placed is None:
        return row
    if placed.outcome != "waiting":
        return _decided(row, placed, state)
    return {**row, "reason_code": placed.reason_code, "reason": placed.reason, "start_after": NEVER}


def _started_after(row: dict[str, Any], placed: Placed, state: TriggerState) -> dict[str, Any]:
    """A row that is held says so, and nothing else."""
    if row["start_after"] == NEVER:
        return row
    start = max(state.now, placed.not_before or state.now)
    return {**row, "reason_code": placed.reason_code, "reason": placed.reason, "start_after": start}


def _decided(row: dict[str, Any], placed: Placed, state: TriggerState) -> dict[str, Any]:
    return {
        **row,
        "outcome": placed.outcome,
        "reason_code": placed.reason_code,
        "reason": placed.reason,
        "decided_at": state.now,
        "start_after": state.now,
    }


def _head(row: HeadRow | None) -> Head | None:
    return None if row is None else Head((row.due_at, str(row.event_uuid)), row.waiting, row.until)


# What a row has by the rules, empty where there are none: all rows of one insert have the same columns.
NO_RULES: dict[str, Any] = {
    "merged_into": None,
    "group_key": None,
    "group_until": None,
    "not_before": None,
    "concurrency_key": None,
    "concurrency_limit": None,
}


def new_id() -> uuid.UUID:
    """Known before the insert, because what it absorbs names it."""
    return uuid.uuid4()
