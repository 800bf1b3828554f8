"""What a backfill makes of each time of its range."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_core.domain.backfill import (
    BEFORE_CREATION,
    MAX_TIMES,
    WHILE_DISABLED,
    Item,
    LedgerTime,
    NeverDue,
    Revision,
    bounded,
    counts,
    never_due,
    plan_backfill,
)
from activity_core.domain.documents import Activity, stored_activity, times_of

DAY = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(hour: float) -> datetime:
    return DAY + hour * HOUR


def hourly(minute: int = 0, *, enabled: bool = True, **bounds: Any) -> Activity:
    trigger = {"type": "cron", "cron": f"{minute} * * * *", "timezone": "UTC", **bounds}
    return stored_activity({"slug": "a", "enabled": enabled, "trigger": trigger})


ON_EVENT = stored_activity({"slug": "a", "enabled": False, "trigger": {"type": "event", "event_types": ["a"]}})


def due(revisions: Sequence[Revision], start: float = 0, end: float = 24, now: float = 24) -> list[NeverDue]:
    return list(never_due(revisions, at(start), at(end), at(now)))


def hours(times: Sequence[NeverDue]) -> list[float]:
    return [(time.scheduled_for - DAY) / HOUR for time in times]


def plan(
    known: Sequence[LedgerTime] = (),
    unowed: Sequence[NeverDue] = (),
    before: datetime | None = None,
    following: LedgerTime | None = None,
) -> list[Item]:
    return plan_backfill(known, unowed, before=before, following=following)


def added(*times: float) -> list[NeverDue]:
    return [NeverDue(at(hour), at(hour - 1), 1, WHILE_DISABLED) for hour in times]


def test_before_creation_the_times_are_those_of_the_first_revision() -> None:
    revisions = [Revision(1, hourly(), at(4.5), at(8)), Revision(2, hourly(30), at(8), None)]
    found = due(revisions)
    assert hours(found) == [0, 1, 2, 3, 4]
    assert {(time.revision, time.reason) for time in found} == {(1, BEFORE_CREATION)}
    assert [time.interval_start for time in found] == [at(hour - 1) for hour in range(5)]


def test_the_range_is_half_open_and_the_instant_of_creation_belongs_to_before_it() -> None:
    assert hours(due([Revision(1, hourly(), at(4), None)], 1, 4)) == [1, 2, 3]
    assert hours(due([Revision(1, hourly(), at(4), None)], 1, 4.5)) == [1, 2, 3, 4]
    assert hours(due([Revision(1, hourly(), at(4), None)], 1.5, 3)) == [2]
    assert hours(due([Revision(1, hourly(), at(4), None)], 5, 9)) == []


def test_while_disabled_the_times_are_those_of_the_disabled_revision_and_of_no_other() -> None:
    """An edited cron never makes a past time due: what the enabled revisions did not owe stays not owed."""
    revisions = [
        Revision(1, hourly(), at(0), at(4)),
        Revision(2, hourly(30, enabled=False), at(4), at(6)),
        Revision(3, hourly(45, enabled=False), at(6), at(8)),
        Revision(4, hourly(10), at(8), None),
    ]
    found = due(revisions, 0.5)
    assert hours(found) == [4.5, 5.5, 6.75, 7.75]
    assert [(time.revision, time.reason) for time in found] == [(2, WHILE_DISABLED)] * 2 + [(3, WHILE_DISABLED)] * 2


def test_a_time_at_the_instant_of_an_edit_is_the_earlier_revisions() -> None:
    """Settle owes the times in (watermark, now], and an edit settles up to its own instant first."""
    revisions = [Revision(1, hourly(), at(-9), at(4)), Revision(2, hourly(enabled=False), at(4), at(6))]
    assert hours(due([*revisions, Revision(3, hourly(), at(6), None)])) == [5, 6]


def test_a_first_revision_that_was_disabled_counts_for_both() -> None:
    revisions = [Revision(1, hourly(enabled=False), at(2), at(4)), Revision(2, hourly(5), at(4), None)]
    found = due(revisions)
    assert hours(found) == [0, 1, 2, 3, 4]
    assert [time.reason for time in found] == [BEFORE_CREATION] * 3 + [WHILE_DISABLED] * 2


def test_a_revision_without_times_adds_none_and_bounds_are_kept() -> None:
    assert due([Revision(1, ON_EVENT, at(2), at(4)), Revision(2, hourly(), at(4), None)]) == []
    bounded_by = hourly(start_at="2026-03-01T02:00:00Z", end_at="2026-03-01T05:00:00Z")
    assert hours(due([Revision(1, bounded_by, at(20), None)])) == [2, 3, 4, 5]


def test_a_disabled_revision_that_is_the_last_one_ends_now() -> None:
    revisions = [Revision(1, hourly(enabled=False), at(2), None)]
    assert hours(due(revisions, 3, 20, now=6.5)) == [3, 4, 5, 6]


def test_times_are_made_as_they_are_read() -> None:
    every_minute = stored_activity({"slug": "a", "trigger": {"type": "cron", "cron": "* * * * *", "timezone": "UTC"}})
    revisions = [Revision(1, every_minute, at(0), None)]
    assert len(bounded(never_due(revisions, datetime(1970, 1, 1, tzinfo=UTC), at(0), at(1)))) == MAX_TIMES + 1
    rare = stored_activity({"slug": "a", "trigger": {"type": "cron", "cron": "0 0 29 2 1", "timezone": "UTC"}})
    assert len(due([Revision(1, rare, at(0), None)], -24 * 365 * 56)) > 0


@pytest.mark.parametrize(
    ("outcome", "action"),
    [
        ("skipped", "reopen"),
        ("dropped", "reopen"),
        ("disabled", "reopen"),
        ("started", "leave"),
        ("merged", "leave"),
        ("waiting", "leave"),
        ("deleted", "leave"),
    ],
)
def test_r16_what_ran_or_is_covered_or_waits_is_left(outcome: str, action: str) -> None:
    (item,) = plan([LedgerTime(at(3), at(2), outcome, "as it says")])
    assert (item.action, item.outcome, item.interval_start, item.revision) == (action, outcome, at(2), None)
    assert item.reason == "as it says" or outcome in ("started", "merged", "waiting")
    assert item.reason


def test_a_time_in_the_ledger_is_not_added_again() -> None:
    known = [LedgerTime(at(2), at(1), "skipped", "late"), LedgerTime(at(3), at(2), "started", "")]
    items = plan(known, added(1, 2, 3, 4))
    assert [(item.action, item.scheduled_for) for item in items] == [
        ("add", at(1)),
        ("reopen", at(2)),
        ("leave", at(3)),
        ("add", at(4)),
    ]
    assert counts(items) == {"reopen": 1, "add": 2, "leave": 1}


def test_an_added_time_begins_where_the_one_before_it_ended() -> None:
    known = [LedgerTime(at(2), at(1), "started", "")]
    items = plan(known, added(1, 1.5, 5, 6), before=at(-7))
    starts = {item.scheduled_for: item.interval_start for item in items if item.action == "add"}
    assert starts == {at(1): at(-7), at(1.5): at(1), at(5): at(2), at(6): at(5)}
    (first, _) = plan([], added(5, 6))
    assert first.interval_start == at(4), "the first of all begins at the rule's time before it"


def test_the_plan_says_which_later_window_holds_an_added_time() -> None:
    known = [LedgerTime(at(2), at(1), "started", ""), LedgerTime(at(9), at(2), "started", "")]
    following = LedgerTime(at(20), at(9), "waiting", "")
    items = plan(known, added(0.5, 3, 4, 11), following=following)
    overlaps = {(item.scheduled_for - DAY) / HOUR: item.overlaps for item in items}
    assert overlaps == {0.5: None, 2: None, 3: at(9), 4: at(9), 9: None, 11: at(20)}


def test_an_added_time_at_the_very_edge_of_a_window_does_not_overlap_it() -> None:
    items = plan([], added(3), following=LedgerTime(at(4), at(3)))
    assert [item.overlaps for item in items] == [None]
    items = plan([], added(3), following=LedgerTime(at(4), None))
    assert [item.overlaps for item in items] == [None]


@st.composite
def lives(draw: st.DrawFn) -> list[Revision]:
    """Revisions without a gap between them, the first from some hour on."""
    edges = sorted(draw(st.sets(st.integers(0, 40).map(lambda half: half / 2), min_size=1, max_size=6)))
    minutes, enabled = st.sampled_from([0, 15, 30]), st.booleans()
    return [
        Revision(number, hourly(draw(minutes), enabled=draw(enabled)), at(since), None if until is None else at(until))
        for number, (since, until) in enumerate(zip(edges, [*edges[1:], None], strict=True), start=1)
    ]


def owed(revisions: Sequence[Revision]) -> Iterator[datetime]:
    """What settle would have written by midnight."""
    for revision in revisions:
        times = times_of(revision.activity.trigger)
        if times is not None and revision.activity.enabled:
            yield from times.iterate(revision.since, revision.until or at(24))


@given(lives(), st.integers(0, 20), st.integers(1, 24))
def test_a_time_is_owed_or_never_due_and_not_both_and_never_of_a_rule_outside_its_life(
    revisions: list[Revision], start: int, length: int
) -> None:
    end = min(start + length, 24)
    found = due(revisions, start, end)
    times = [time.scheduled_for for time in found]
    assert times == sorted(set(times)) and all(at(start) <= time < at(end) for time in times)
    assert not set(times) & set(owed(revisions))
    by_number = {revision.number: revision for revision in revisions}
    for time in found:
        revision = by_number[time.revision]
        rule = times_of(revision.activity.trigger)
        assert rule is not None and rule.is_due(time.scheduled_for)
        inside = revision.since < time.scheduled_for <= (revision.until or at(24))
        assert inside == (time.reason == WHILE_DISABLED) and (inside or revision.number == 1)
    # no hole either: of the rule in force, every time was owed or is found
    for revision in revisions:
        rule = times_of(revision.activity.trigger)
        assert rule is not None
        for nominal in rule.iterate(revision.since, revision.until or at(24)):
            if at(start) <= nominal < at(end):
                assert (nominal in times) != (nominal in set(owed(revisions)))


@given(lives())
def test_a_backfill_of_everything_leaves_one_chain_of_windows(revisions: list[Revision]) -> None:
    known, previous = [], None
    for nominal in owed(revisions):
        known.append(LedgerTime(nominal, previous, "started", ""))
        previous = nominal
    items = plan(known, due(revisions))
    added_items = [item for item in items if item.action == "add"]
    nominals = [item.scheduled_for for item in items]
    assert nominals == sorted(set(nominals))
    for item in added_items:
        place = nominals.index(item.scheduled_for)
        if place:
            assert item.interval_start == nominals[place - 1]
        successor = next((row for row in known if row.scheduled_for > item.scheduled_for), None)
        reaches = successor is not None and successor.interval_start is not None
        if reaches and successor is not None and successor.interval_start is not None:
            expected = successor.scheduled_for if successor.interval_start < item.scheduled_for else None
            assert item.overlaps == expected
    # a second plan over what the first one wrote adds nothing
    again = plan([LedgerTime(i.scheduled_for, i.interval_start, "started", "") for i in items], due(revisions))
    assert counts(again) == {"reopen": 0, "add": 0, "leave": len(items)}
