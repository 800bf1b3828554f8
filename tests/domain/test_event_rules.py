"""Debounce, rate limit and concurrency as pure decisions, and what a group of events comes to by them."""

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_core.domain.documents import Concurrency, Debounce, RateLimit
from activity_core.domain.event_rules import (
    Head,
    RuleKeyError,
    admitted,
    debounced,
    rate_limited,
    rendered_key,
    source_matches,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Row:
    place: int
    accepted: datetime
    state: str = "waiting"
    start: datetime = START
    until: datetime | None = None
    into: int | None = None

    @property
    def position(self) -> tuple[datetime, str]:
        return (self.accepted, f"{self.place:04}")


def live(rule: Debounce, offsets: list[float], order: list[int]) -> list[Row]:
    """Events that were accepted at these offsets, routed in this order as if each as soon as it may be; what has come to
    its start is started before the next one is routed."""
    rows = [Row(place, at(offset)) for place, offset in enumerate(offsets)]
    routed: list[Row] = []
    now = START
    for place in order:
        row = rows[place]
        now = max(now, row.accepted)
        for other in routed:
            if other.state == "waiting" and other.start <= now:
                other.state = "started"
        leading = rule.edge == "leading"
        heads = [o for o in routed if o.state == "waiting" or (leading and o.state == "started")]
        found = max(heads, key=lambda o: o.position, default=None)
        head = None if found is None else Head(found.position, found.state == "waiting", found.until)
        placed = debounced(rule, row.position, head, now)
        if placed.outcome == "merged":
            assert found is not None
            row.state, row.into = "merged", found.place
            if placed.head_until is not None:
                found.until = placed.head_until
        else:
            if placed.absorbs:
                assert found is not None
                found.state, found.into = "merged", row.place
            row.start, row.until = placed.not_before or now, placed.until
        routed.append(row)
    for row in routed:
        if row.state == "waiting":
            row.state = "started"
    return rows


offsets = st.lists(st.floats(0, 100, allow_nan=False), min_size=1, max_size=12).map(sorted)
debounces = st.builds(
    Debounce,
    seconds=st.integers(1, 20),
    max_wait_seconds=st.none() | st.integers(1, 40),
    edge=st.sampled_from(["trailing", "leading"]),
)


@given(rule=debounces, offsets=offsets, data=st.data())
def test_every_event_of_a_group_runs_or_is_merged_into_one_that_runs(
    rule: Debounce, offsets: list[float], data: st.DataObject
) -> None:
    order = list(range(len(offsets)))
    if data.draw(st.booleans()):  # two routers may take them in another order
        order = data.draw(st.permutations(order))
    rows = live(rule, offsets, order)
    for row in rows:
        end, steps = row, 0
        while end.into is not None:
            end, steps = rows[end.into], steps + 1
            assert steps <= len(rows)
        assert end.state == "started"


@given(offsets=offsets, seconds=st.integers(1, 20), max_wait=st.none() | st.integers(1, 40))
def test_a_trailing_group_runs_as_its_last_event_when_it_has_been_quiet(
    offsets: list[float], seconds: int, max_wait: int | None
) -> None:
    rule = Debounce(seconds=seconds, max_wait_seconds=max_wait)
    rows = live(rule, offsets, list(range(len(offsets))))
    started = [row for row in rows if row.state == "started"]
    for row in started:
        group = [other for other in rows if other is row or _ends_in(rows, other) is row]
        first, last = group[0], group[-1]
        assert last is row
        assert row.start - last.accepted <= timedelta(seconds=seconds)
        if max_wait is not None:
            assert row.start - first.accepted <= timedelta(seconds=max_wait) or row.start == row.accepted
        else:
            assert row.start == row.accepted + timedelta(seconds=seconds)


def _ends_in(rows: list[Row], row: Row) -> Row:
    while row.into is not None:
        row = rows[row.into]
    return row


@given(offsets=offsets, seconds=st.integers(1, 20))
def test_a_leading_group_runs_as_its_first_event_and_not_again_until_it_has_been_quiet(
    offsets: list[float], seconds: int
) -> None:
    rows = live(Debounce(seconds=seconds, edge="leading"), offsets, list(range(len(offsets))))
    for earlier, later in itertools.pairwise(rows):
        quiet = later.accepted - earlier.accepted >= timedelta(seconds=seconds)
        assert (later.state == "started") == quiet
        assert rows[0].state == "started"


@given(
    offsets=offsets,
    count=st.integers(1, 4),
    per=st.integers(1, 30),
    on_exceed=st.sampled_from(["drop", "queue"]),
)
def test_no_window_holds_more_than_the_count(offsets: list[float], count: int, per: int, on_exceed: str) -> None:
    rule = RateLimit.model_validate({"count": count, "per_seconds": per, "on_exceed": on_exceed})
    slots: list[datetime] = []
    dropped = 0
    for offset in offsets:
        accepted = at(offset)
        newest = sorted(slots, reverse=True)
        placed = rate_limited(rule, accepted, newest[count - 1] if len(newest) >= count else None, accepted)
        if placed.outcome == "rate_limited":
            dropped += 1
            within = [slot for slot in slots if accepted - slot < timedelta(seconds=per)]
            assert len(within) >= count  # nothing is dropped that there was room for
        else:
            assert placed.not_before is not None and placed.not_before >= accepted
            slots.append(placed.not_before)
    assert dropped == 0 or on_exceed == "drop"
    for slot in slots:
        assert sum(slot <= other < slot + timedelta(seconds=per) for other in slots) <= count


def test_a_dropped_event_is_judged_by_when_it_came_and_a_queued_one_by_when_it_is_looked_at() -> None:
    rule = RateLimit(count=1, per_seconds=10)
    assert rate_limited(rule, at(15), at(4), at(100)).not_before == at(15)
    queued = rate_limited(replace_queue(rule), at(15), at(98), at(100))
    assert (queued.reason_code, queued.not_before) == ("rate_limit", at(108))


def replace_queue(rule: RateLimit) -> RateLimit:
    return rule.model_copy(update={"on_exceed": "queue"})


def test_concurrency_has_room_below_its_limit() -> None:
    queue, drop = Concurrency(limit=2), Concurrency(limit=2, on_limit="drop")
    assert admitted(queue, 1) is None
    full, dropped = admitted(queue, 2), admitted(drop, 3)
    assert full is not None and (full.outcome, full.reason_code) == ("waiting", "concurrency")
    assert dropped is not None and dropped.outcome == "concurrency_dropped"


def test_keys_are_texts_of_bounded_length() -> None:
    scope = {"event": {"subject": "a", "data": {"n": 7, "flag": True, "none": None, "list": [1], "long": "ä" * 300}}}
    assert rendered_key("", scope) == ""
    assert rendered_key("k-${ event.subject }", scope) == "k-a"
    assert rendered_key("${ event.data.n }", scope) == "7"
    assert rendered_key("${ event.data.flag }", scope) == "true"
    assert rendered_key("${ event.data.long }", scope).startswith("~sha256.")
    for wrong in ("${ event.data.missing }", "${ event.data.none }", "${ event.data.list }"):
        with pytest.raises(RuleKeyError):
            rendered_key(wrong, scope)


@pytest.mark.parametrize(
    ("patterns", "source", "expected"),
    [
        ((), "any", True),
        (("shop-*",), "shop-eu", True),
        (("shop-*",), "bishop-eu", False),
        (("shop-?",), "shop-12", False),
        (("https://*/orders",), "https://eu/x/orders", True),
        (("a.b",), "axb", False),
        (("x", "y*"), "yes", True),
    ],
)
def test_sources_are_matched_by_globs(patterns: tuple[str, ...], source: str, expected: bool) -> None:
    assert source_matches(patterns, source) is expected


def test_many_stars_cost_nothing() -> None:
    assert not source_matches(("*" * 200 + "x",), "a" * 1_000)


def test_the_head_of_another_start_is_no_head() -> None:
    rule = Debounce(seconds=5)
    started = Head((at(0), "0"), waiting=False, until=None)
    assert not debounced(rule, (at(1), "1"), started, at(1)).absorbs
