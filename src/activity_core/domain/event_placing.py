"""A batch of events of one activity, placed one after another by its rules: each may stand in the way of the next. Pure.

What the ledger has of their groups goes in; what becomes of each event, and of the rows before them, comes out. A batch
comes to the same as its events one by one.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from activity_core.domain.documents import Activity, Concurrency, Debounce, EventTrigger, RateLimit
from activity_core.domain.event_rules import Head, Keys, Outcome, Placed, admitted, debounced, rate_limited

LATER_EVENT = "a later event of its debounce key came before it started"


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that matched. `row_id`: of its ledger row. `held`: a pause or freeze holds it."""

    row_id: uuid.UUID
    position: tuple[datetime, str]
    keys: Keys
    held: bool = False


@dataclass(frozen=True, slots=True)
class GroupHead:
    """A row that stands for a debounced group. `place`: the concurrency key of which it takes a place, if it does."""

    row_id: uuid.UUID
    head: Head
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Groups:
    """What the ledger has of the groups of the batch, by key. `slots`: the newest slots of a rate limit, newest first, as
    far as `slots_wanted` says. `taken`: runs that are open or about to start."""

    heads: Mapping[str, Sequence[GroupHead]]
    slots: Mapping[str, Sequence[datetime | None]]
    taken: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    """What becomes of an event. `start_after`: None when something else lets it start."""

    outcome: Outcome
    reason_code: str
    reason: str
    start_after: datetime | None
    not_before: datetime | None = None
    until: datetime | None = None
    merged_into: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """`places`: by row. `absorbed`: rows of the ledger that are merged now, into which. `extended`: until when."""

    places: dict[uuid.UUID, Place]
    absorbed: dict[uuid.UUID, uuid.UUID]
    extended: dict[uuid.UUID, datetime]


def slots_wanted(rule: RateLimit, arrivals: int) -> tuple[int, int]:
    """(offset, how many) of the newest slots that so many arrivals of a key need: each looks at the `count`-th newest,
    and each that is admitted makes the one after it that."""
    offset = max(0, rule.count - arrivals)
    return offset, rule.count - offset


def place_all(activity: Activity, arrivals: Sequence[Arrival], groups: Groups, now: datetime) -> Placement:
    """Place them in the order of their positions."""
    board = _Board(activity, groups, now)
    for arrival in sorted(arrivals, key=lambda arrival: arrival.position):
        board.put(arrival)
    return board.placement()


class _Board:
    def __init__(self, activity: Activity, groups: Groups, now: datetime) -> None:
        trigger = activity.trigger
        self._trigger = trigger if isinstance(trigger, EventTrigger) else None
        self._concurrency: Concurrency | None = activity.concurrency
        self._now = now
        self._heads = {key: list(heads) for key, heads in groups.heads.items()}
        self._slots = {key: list(slots) for key, slots in groups.slots.items()}
        self._taken = dict(groups.taken)
        self._places: dict[uuid.UUID, Place] = {}
        self._absorbed: dict[uuid.UUID, uuid.UUID] = {}
        self._extended: dict[uuid.UUID, datetime] = {}

    def put(self, arrival: Arrival) -> None:
        key, trigger = arrival.keys.group, self._trigger
        head: GroupHead | None = None
        placed = Placed("waiting", "due", "matched, not started yet")
        if key is not None and trigger is not None and trigger.debounce is not None:
            head = self._head(trigger.debounce, key, arrival.position)
            found = None if head is None else head.head
            placed = debounced(trigger.debounce, arrival.position, found, self._now)
            self._settle_head(key, head, arrival, placed)
        elif key is not None and trigger is not None and trigger.rate_limit is not None:
            placed = rate_limited(trigger.rate_limit, arrival.position[0], self._slots[key][-1], self._now)
        place = self._place(arrival, placed, head)
        if place.outcome == "waiting" and arrival.keys.concurrency is not None:
            place = self._in_turn(arrival.keys.concurrency, place)
        self._places[arrival.row_id] = place
        if place.outcome == "waiting" and key is not None:
            self._remember(key, arrival, place)

    def _remember(self, key: str, arrival: Arrival, place: Place) -> None:
        """For those that come after it."""
        if key in self._slots and place.not_before is not None:
            slots = self._slots[key]
            at = next((n for n, other in enumerate(slots) if other is None or other <= place.not_before), len(slots))
            slots.insert(at, place.not_before)
            slots.pop()
        elif key in self._heads:
            takes = None if place.start_after is None else arrival.keys.concurrency
            self._heads[key].append(GroupHead(arrival.row_id, Head(arrival.position, True, place.until), takes))

    def _head(self, rule: Debounce, key: str, position: tuple[datetime, str]) -> GroupHead | None:
        heads = self._heads.setdefault(key, [])
        if rule.edge == "leading":
            heads = [item for item in heads if item.head.position[0] <= latest_head(rule, position[0])]
        return max(heads, key=lambda item: item.head.position, default=None)

    def _settle_head(self, key: str, head: GroupHead | None, arrival: Arrival, placed: Placed) -> None:
        if head is None:
            return
        if placed.absorbs:
            self._heads[key].remove(head)
            self._absorbed[head.row_id] = arrival.row_id
            if head.place is not None and head.place in self._taken:
                self._taken[head.place] -= 1
        if placed.head_until is not None and placed.head_until != head.head.until:
            self._heads[key].remove(head)
            self._heads[key].append(replace(head, head=replace(head.head, until=placed.head_until)))
            self._extended[head.row_id] = placed.head_until

    def _place(self, arrival: Arrival, placed: Placed, head: GroupHead | None) -> Place:
        if placed.outcome != "waiting":
            into = head.row_id if head is not None and placed.outcome == "merged" else None
            return Place(placed.outcome, placed.reason_code, placed.reason, self._now, merged_into=into)
        not_before = placed.not_before
        if placed.until is not None and not_before is None:
            not_before = arrival.position[0]  # the newest of a leading group is found by it
        start = None if arrival.held else max(self._now, not_before or self._now)
        return Place("waiting", placed.reason_code, placed.reason, start, not_before, placed.until)

    def _in_turn(self, key: str, place: Place) -> Place:
        if self._concurrency is None or place.start_after is None:
            return place  # held: whoever lets it go looks for room
        full = admitted(self._concurrency, self._taken[key])
        if full is None:
            self._taken[key] += 1
            return place
        if full.outcome != "waiting":
            return Place(full.outcome, full.reason_code, full.reason, self._now)
        return replace(place, reason_code=full.reason_code, reason=full.reason, start_after=None)

    def placement(self) -> Placement:
        """All that was merged names the row that runs, and not one that was merged itself."""
        places = {
            row_id: place if place.merged_into is None else replace(place, merged_into=self._last(place.merged_into))
            for row_id, place in self._places.items()
        }
        absorbed: dict[uuid.UUID, uuid.UUID] = {}
        for row_id, into in self._absorbed.items():
            if row_id in places:
                places[row_id] = self._merged(self._last(into))
            else:
                absorbed[row_id] = self._last(into)
        extended: dict[uuid.UUID, datetime] = {}
        for row_id, until in self._extended.items():
            if row_id in places:
                places[row_id] = replace(places[row_id], until=until)
            else:
                extended[row_id] = until
        return Placement(places, absorbed, extended)

    def _merged(self, into: uuid.UUID) -> Place:
        return Place("merged", "debounced", LATER_EVENT, self._now, merged_into=into)

    def _last(self, row_id: uuid.UUID) -> uuid.UUID:
        while row_id in self._absorbed:
            row_id = self._absorbed[row_id]
        return row_id


def latest_head(rule: Debounce, accepted: datetime) -> datetime:
    """Up to when the first event of a group that runs as its first may have come, for one accepted then to be of it."""
    return accepted + timedelta(seconds=rule.seconds)
