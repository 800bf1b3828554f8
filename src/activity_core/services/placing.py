"""Where matched events go by their activities' rules: debounce, rate limit, concurrency. The decisions are `event_placing`'s;
here what they need is read and what they come to is written, under the ledgers' locks and for a whole batch at once."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from activity_core.domain.documents import Activity, Debounce, EventTrigger, RateLimit
from activity_core.domain.event_placing import (
    LATER_EVENT,
    Arrival,
    GroupHead,
    Groups,
    Place,
    latest_head,
    place_all,
    slots_wanted,
)
from activity_core.domain.event_rules import Head, Keys, RuleKeyError, keys_of
from activity_core.store import event_rows, ledger
from activity_core.store.database import Connection
from activity_core.store.event_rows import HeadRow, Pair
from activity_core.store.events import EventRecord
from activity_core.store.trigger_state import TriggerState

# What Postgres calls infinity: no claim comes to it.
NEVER = datetime.max.replace(tzinfo=UTC)
# What a row has by the rules, empty where there are none: all rows of one insert have the same columns.
NO_RULES: dict[str, Any] = {
    "merged_into": None,
    "group_key": None,
    "group_until": None,
    "not_before": None,
    "concurrency_key": None,
    "concurrency_limit": None,
}
NO_KEYS = Keys()


@dataclass(frozen=True, slots=True)
class Draft:
    """A row that is to start if the rules let it. `scope`: what the keys see. `again`: its outcome, if it has a row."""

    state: TriggerState
    activity: Activity
    event: EventRecord
    scope: dict[str, Any]
    row: dict[str, Any]
    again: str | None = None
    keys: Keys = NO_KEYS

    @property
    def pair(self) -> Pair:
        """Of its group; it has one."""
        return (self.state.activity_id, self.keys.group or "")


def new_id() -> uuid.UUID:
    """Known before the insert, because what it absorbs names it."""
    return uuid.uuid4()


async def write_drafts(connection: Connection, drafts: Sequence[Draft]) -> bool:
    """Write what becomes of each. True if any is to start."""
    starts = False
    for turn in _turns(drafts):
        starts |= await _write_turn(connection, turn)
    return starts


def _turns(drafts: Sequence[Draft]) -> Iterator[list[Draft]]:
    """One revision of each activity at a time: an edit may have changed what its keys mean."""
    left: dict[uuid.UUID, dict[int, list[Draft]]] = defaultdict(lambda: defaultdict(list))
    for draft in drafts:
        left[draft.state.activity_id][draft.row["revision"]].append(draft)
    while left:
        yield [draft for revisions in left.values() for draft in revisions.pop(min(revisions))]
        left = {activity_id: revisions for activity_id, revisions in left.items() if revisions}


async def _write_turn(connection: Connection, drafts: Sequence[Draft]) -> bool:
    keyed: list[Draft] = []
    rows: list[tuple[Draft, dict[str, Any]]] = []
    for draft in drafts:
        try:
            keyed.append(replace(draft, keys=keys_of(draft.activity, draft.scope)))
        except RuleKeyError as error:
            failed = Place("filter_error", "key_error", str(error), draft.state.now)
            rows.append((draft, _row(draft, failed)))
    if keyed:
        rows += await _placed(connection, keyed)
    new = [row for draft, row in rows if draft.again is None]
    if new:
        await ledger.insert_rows(connection, new)
    # a key that still can't be made is no new decision
    again = [row for draft, row in rows if draft.again is not None and row["outcome"] != draft.again]
    if again:
        await ledger.redecide(connection, again)
    return any(row["outcome"] == "waiting" for _, row in rows)


async def _placed(connection: Connection, drafts: Sequence[Draft]) -> list[tuple[Draft, dict[str, Any]]]:
    groups = await _groups(connection, drafts)
    absorbed: dict[uuid.UUID, uuid.UUID] = {}
    extended: dict[uuid.UUID, datetime] = {}
    rows = []
    for activity_id, own in _by_activity(drafts).items():
        arrivals = [
            Arrival(draft.row["id"], _position(draft.event), draft.keys, draft.row["start_after"] == NEVER)
            for draft in own
        ]
        placement = place_all(own[0].activity, arrivals, groups[activity_id], own[0].state.now)
        absorbed |= placement.absorbed
        extended |= placement.extended
        rows += [(draft, _row(draft, placement.places[draft.row["id"]])) for draft in own]
    if absorbed:
        await event_rows.merge(connection, absorbed, LATER_EVENT)
    if extended:
        await event_rows.extend(connection, extended)
    return rows


async def _groups(connection: Connection, drafts: Sequence[Draft]) -> dict[uuid.UUID, Groups]:
    """What the ledger has of the groups of these events, by activity: one query for each kind of rule that they have."""
    trailing: list[Draft] = []
    leading: list[tuple[Draft, Debounce]] = []
    limited: list[tuple[Draft, RateLimit]] = []
    for draft in drafts:
        trigger = draft.activity.trigger
        if not isinstance(trigger, EventTrigger):
            continue
        if trigger.debounce is not None and trigger.debounce.edge == "trailing":
            trailing.append(draft)
        elif trigger.debounce is not None:
            leading.append((draft, trigger.debounce))
        elif trigger.rate_limit is not None:
            limited.append((draft, trigger.rate_limit))
    heads: list[HeadRow] = []
    if trailing:
        heads += await event_rows.waiting_heads(connection, sorted({draft.pair for draft in trailing}))
    if leading:
        wanted = {(draft.pair, latest_head(rule, draft.event.accepted_at)) for draft, rule in leading}
        heads += await event_rows.newest_heads(connection, sorted(wanted))
    slots = await _slots(connection, limited)
    places = {(d.state.activity_id, d.keys.concurrency) for d in drafts if d.keys.concurrency is not None}
    places |= {(head.activity_id, head.place) for head in heads if head.place is not None}
    taken = await event_rows.taken(connection, sorted(places)) if places else {}
    return _by_key({draft.state.activity_id for draft in drafts}, heads, slots, taken)


async def _slots(
    connection: Connection, limited: Sequence[tuple[Draft, RateLimit]]
) -> dict[Pair, list[datetime | None]]:
    if not limited:
        return {}
    arrivals = Counter(draft.pair for draft, _ in limited)
    rules = {draft.pair: rule for draft, rule in limited}
    return await event_rows.slots(
        connection, [(pair, slots_wanted(rules[pair], count)) for pair, count in sorted(arrivals.items())]
    )


def _by_key(
    activity_ids: set[uuid.UUID],
    heads: Sequence[HeadRow],
    slots: dict[Pair, list[datetime | None]],
    taken: dict[Pair, int],
) -> dict[uuid.UUID, Groups]:
    by_activity: dict[uuid.UUID, dict[str, dict[uuid.UUID, GroupHead]]] = defaultdict(lambda: defaultdict(dict))
    for row in heads:
        head = Head((row.due_at, str(row.event_uuid)), row.waiting, row.until)
        by_activity[row.activity_id][row.key][row.id] = GroupHead(row.id, head, row.place)
    return {
        activity_id: Groups(
            {key: list(found.values()) for key, found in by_activity[activity_id].items()},
            {key: found for (owner, key), found in slots.items() if owner == activity_id},
            {key: count for (owner, key), count in taken.items() if owner == activity_id},
        )
        for activity_id in activity_ids
    }


def _by_activity(drafts: Sequence[Draft]) -> dict[uuid.UUID, list[Draft]]:
    found: dict[uuid.UUID, list[Draft]] = defaultdict(list)
    for draft in drafts:
        found[draft.state.activity_id].append(draft)
    return found


def _position(event: EventRecord) -> tuple[datetime, str]:
    return (event.accepted_at, str(event.id))


def _row(draft: Draft, place: Place) -> dict[str, Any]:
    concurrency = draft.activity.concurrency
    row = {
        **draft.row,
        "outcome": place.outcome,
        "start_after": place.start_after or NEVER,
        "group_key": draft.keys.group,
        "group_until": place.until,
        "not_before": place.not_before,
        "merged_into": place.merged_into,
        "concurrency_key": draft.keys.concurrency,
        "concurrency_limit": None if concurrency is None else concurrency.limit,
        "decided_at": None if place.outcome == "waiting" else draft.state.now,
    }
    if place.outcome == "waiting" and draft.row["start_after"] == NEVER:
        return row  # what holds it is its reason
    return {**row, "reason_code": place.reason_code, "reason": place.reason}
