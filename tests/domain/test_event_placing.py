"""Batches of events placed by debounce, rate limit and concurrency, against a ledger kept in memory."""

import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain.documents import Activity, EventTrigger, stored_activity
from activity_core.domain.event_placing import (
    Arrival,
    GroupHead,
    Groups,
    Place,
    latest_head,
    place_all,
    slots_wanted,
)
from activity_core.domain.event_rules import Head, Keys

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def ruled(trigger: dict[str, Any], concurrency: dict[str, Any] | None = None) -> Activity:
    document = {"slug": "a", "trigger": {"type": "event", "event_types": ["t"], **trigger}, "concurrency": concurrency}
    return stored_activity(document)


@dataclass
class Row:
    arrival: Arrival
    place: Place
    started: bool = False

    @property
    def outcome(self) -> str:
        return "started" if self.started else self.place.outcome


@dataclass
class Ledger:
    """Rows as Postgres has them, and what `event_rows` asks of them."""

    activity: Activity
    rows: dict[uuid.UUID, Row] = field(default_factory=dict)
    ended: set[uuid.UUID] = field(default_factory=set)

    def groups(self, arrivals: list[Arrival]) -> Groups:
        trigger = self.activity.trigger
        assert isinstance(trigger, EventTrigger)
        heads: dict[str, list[GroupHead]] = {}
        slots: dict[str, list[datetime | None]] = {}
        for key in {arrival.keys.group for arrival in arrivals if arrival.keys.group is not None}:
            own = [row for row in self.rows.values() if row.arrival.keys.group == key]
            admitted = [row for row in own if row.outcome in ("waiting", "started")]
            of_key = [arrival for arrival in arrivals if arrival.keys.group == key]
            if trigger.debounce is not None and trigger.debounce.edge == "leading":
                found = []
                for arrival in of_key:
                    latest = latest_head(trigger.debounce, arrival.position[0])
                    before = [row for row in admitted if row.place.not_before and row.place.not_before <= latest]
                    found += sorted(before, key=lambda row: row.place.not_before or START)[-1:]
                heads[key] = [self._head(row) for row in {row.arrival.row_id: row for row in found}.values()]
            elif trigger.debounce is not None:
                waiting = [row for row in own if row.outcome == "waiting"]
                heads[key] = [self._head(row) for row in sorted(waiting, key=lambda row: row.arrival.position)[-1:]]
            elif trigger.rate_limit is not None:
                newest = sorted((row.place.not_before for row in admitted if row.place.not_before), reverse=True)
                offset, count = slots_wanted(trigger.rate_limit, len(of_key))
                wanted: list[datetime | None] = list(newest[offset : offset + count])
                slots[key] = wanted + [None] * (count - len(wanted))
        keys = {row.arrival.keys.concurrency for row in self.rows.values()}
        keys |= {arrival.keys.concurrency for arrival in arrivals}
        return Groups(heads, slots, {key: self.taken(key) for key in keys if key is not None})

    def _head(self, row: Row) -> GroupHead:
        takes = row.outcome == "waiting" and row.place.start_after is not None
        head = Head(row.arrival.position, row.outcome == "waiting", row.place.until)
        return GroupHead(row.arrival.row_id, head, row.arrival.keys.concurrency if takes else None)

    def taken(self, key: str) -> int:
        own = [row for row in self.rows.values() if row.arrival.keys.concurrency == key]
        open_runs = sum(row.started and row.arrival.row_id not in self.ended for row in own)
        return open_runs + sum(row.outcome == "waiting" and row.place.start_after is not None for row in own)

    def route(self, arrivals: list[Arrival], now: datetime) -> None:
        placement = place_all(self.activity, arrivals, self.groups(arrivals), now)
        assert set(placement.places) == {arrival.row_id for arrival in arrivals}
        for row_id, into in placement.absorbed.items():
            assert self.rows[row_id].outcome == "waiting"
            self.rows[row_id].place = Place("merged", "debounced", "", now, merged_into=into)
        for row_id, until in placement.extended.items():
            row = self.rows[row_id]
            row.place = replace(row.place, until=until)
        for arrival in arrivals:
            self.rows[arrival.row_id] = Row(arrival, placement.places[arrival.row_id])

    def start_due(self, now: datetime) -> None:
        for row in self.rows.values():
            if row.outcome == "waiting" and row.place.start_after is not None and row.place.start_after <= now:
                row.started = True

    def last(self, row: Row) -> Row:
        steps = 0
        while row.place.merged_into is not None and row.outcome == "merged":
            row, steps = self.rows[row.place.merged_into], steps + 1
            assert steps <= len(self.rows)
        return row

    def shown(self) -> list[tuple[Any, ...]]:
        """All but through which rows something was merged, and what is said of it."""
        return [
            (
                row.arrival.position,
                row.outcome,
                self.last(row).arrival.position,
                None if row.outcome != "waiting" else (row.place.start_after, row.place.not_before, row.place.until),
            )
            for row in sorted(self.rows.values(), key=lambda row: row.arrival.position)
        ]


debounces = st.fixed_dictionaries(
    {
        "seconds": st.integers(1, 20),
        "max_wait_seconds": st.none() | st.integers(1, 40),
        "edge": st.sampled_from(["trailing", "leading"]),
    }
).map(lambda rule: {"debounce": rule})
rate_limits = st.fixed_dictionaries(
    {
        "count": st.integers(1, 4),
        "per_seconds": st.integers(1, 30),
        "on_exceed": st.sampled_from(["drop", "queue"]),
    }
).map(lambda rule: {"rate_limit": rule})
concurrencies = st.none() | st.fixed_dictionaries(
    {"limit": st.integers(1, 3), "on_limit": st.sampled_from(["queue", "drop"])}
)
activities = st.builds(ruled, st.one_of(st.just({}), debounces, rate_limits), concurrencies)


@st.composite
def arrivals_of(draw: st.DrawFn, activity: Activity) -> list[Arrival]:
    trigger = activity.trigger
    assert isinstance(trigger, EventTrigger)
    grouped = trigger.debounce is not None or trigger.rate_limit is not None
    made = []
    for number, offset in enumerate(sorted(draw(st.lists(st.integers(0, 100), min_size=1, max_size=14)))):
        keys = Keys(
            draw(st.sampled_from("ab")) if grouped else None,
            draw(st.sampled_from("xy")) if activity.concurrency is not None else None,
        )
        row_id = uuid.UUID(int=number + 1)
        made.append(Arrival(row_id, (at(offset), str(row_id)), keys, held=draw(st.integers(0, 9)) == 0))
    return made


def parts_of(data: st.DataObject, items: list[Arrival]) -> list[list[Arrival]]:
    parts, rest = [], list(items)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        parts.append(rest[:size])
        rest = rest[size:]
    return parts


@settings(max_examples=150)
@given(activity=activities, data=st.data())
def test_a_batch_comes_to_the_same_as_its_events_one_by_one(activity: Activity, data: st.DataObject) -> None:
    arrivals = data.draw(arrivals_of(activity))
    now = at(data.draw(st.integers(0, 120)))
    ledgers = [Ledger(activity) for _ in range(2)]
    for arrival in arrivals:
        ledgers[0].route([arrival], now)
    for part in parts_of(data, arrivals):
        ledgers[1].route(part, now)
    assert ledgers[0].shown() == ledgers[1].shown()


@settings(max_examples=150)
@given(activity=activities, data=st.data())
def test_r22_each_event_has_one_outcome_in_whatever_order_two_routers_take_them(
    activity: Activity, data: st.DataObject
) -> None:
    arrivals = data.draw(arrivals_of(activity))
    now = START
    ledger = Ledger(activity)
    for part in parts_of(data, data.draw(st.permutations(arrivals))):
        now = max([now, *(arrival.position[0] for arrival in part)])
        ledger.start_due(now)
        ledger.route(part, now)
    ledger.start_due(at(100_000))
    assert set(ledger.rows) == {arrival.row_id for arrival in arrivals}
    trigger = activity.trigger
    assert isinstance(trigger, EventTrigger)
    for row in ledger.rows.values():
        if row.outcome == "merged":
            assert trigger.debounce is not None
            end = ledger.last(row)
            # one that the concurrency drops takes its group with it, and says so
            assert end.outcome in ("started", "waiting", "concurrency_dropped") and end is not row
            assert end.arrival.keys.group == row.arrival.keys.group
        elif row.outcome == "waiting":
            assert row.arrival.held or row.place.reason_code == "concurrency"
        else:
            assert row.outcome in ("started", "rate_limited", "concurrency_dropped")


@settings(max_examples=100)
@given(rule=rate_limits, data=st.data())
def test_no_window_holds_more_slots_of_a_key_than_the_count(rule: dict[str, Any], data: st.DataObject) -> None:
    activity = ruled(rule)
    ledger, now = Ledger(activity), START
    for part in parts_of(data, data.draw(arrivals_of(activity).flatmap(st.permutations))):
        now = max([now, *(arrival.position[0] for arrival in part)])
        ledger.route(part, now)
    per = timedelta(seconds=rule["rate_limit"]["per_seconds"])
    for key in "ab":
        rows = [row for row in ledger.rows.values() if row.arrival.keys.group == key and row.outcome == "waiting"]
        slots = [row.place.not_before for row in rows if row.place.not_before is not None]
        assert len(slots) == len(rows)
        for slot in slots:
            assert sum(slot <= other < slot + per for other in slots) <= rule["rate_limit"]["count"]


@settings(max_examples=100)
@given(
    trigger=st.one_of(st.just({}), debounces, rate_limits),
    rule=concurrencies.filter(lambda rule: rule is not None),
    data=st.data(),
)
def test_no_more_of_a_key_start_than_its_limit(trigger: Any, rule: Any, data: st.DataObject) -> None:
    activity = ruled(trigger, rule)
    ledger, now = Ledger(activity), START
    for part in parts_of(data, data.draw(arrivals_of(activity))):
        now = max([now, *(arrival.position[0] for arrival in part)])
        ledger.start_due(now)
        for row in ledger.rows.values():
            if row.started and data.draw(st.booleans()):
                ledger.ended.add(row.arrival.row_id)
        ledger.route(part, now)
        assert all(ledger.taken(key) <= rule["limit"] for key in "xy")


def test_one_that_absorbs_another_takes_its_place() -> None:
    activity = ruled({"debounce": {"seconds": 5}}, {"limit": 1, "on_limit": "drop"})
    ledger = Ledger(activity)
    ids = [uuid.UUID(int=number) for number in (1, 2)]
    for row_id in ids:
        ledger.route([Arrival(row_id, (at(0), str(row_id)), Keys("g", "c"))], at(1))
    assert [ledger.rows[row_id].outcome for row_id in ids] == ["merged", "waiting"]
    assert ledger.taken("c") == 1
