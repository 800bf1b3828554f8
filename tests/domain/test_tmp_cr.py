"""Due times, held against a walk over every minute and against two other implementations."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from activity_core.domain import zones
from activity_core.domain.cron import (
    CronError,
    between,
    check_zone,
    iterate,
    next_after,
    parse_cron,
    previous_at_or_before,
    previous_before,
)
from .cron_reference import CLOCK_CHANGES, Written, due_minute_by_minute, expressions, window

SECOND = timedelta(seconds=1)
# Without a deadline: the machine that runs this may be busy, and what is bounded is asserted below.
relaxed = settings(max_examples=4000, deadline=None, derandomize=False,database=None)
changes = st.sampled_from(CLOCK_CHANGES)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@relaxed
@given(written=expressions(), change=changes)
def test_due_times_are_those_of_a_walk_over_every_minute(written: Written, change: tuple[str, str]) -> None:
    assume(written.possible)
    zone, (start, end) = check_zone(change[0]), window(change[1])
    assert between(parse_cron(written.text), zone, start, end) == due_minute_by_minute(written, zone, start, end)


@relaxed
@given(written=expressions(), change=changes, cuts=st.lists(st.integers(0, 4 * 86_400_000_000), max_size=4))
def test_next_previous_and_between_agree_wherever_the_window_is_cut(
    written: Written, change: tuple[str, str], cuts: list[int]
) -> None:
    assume(written.possible)
    cron, zone, (start, end) = parse_cron(written.text), check_zone(change[0]), window(change[1])
    due = between(cron, zone, start, end)
    assert all(a < b for a, b in pairwise(due))
    edges = sorted([start, *(start + timedelta(microseconds=c) for c in cuts), end])
    assert [t for a, b in pairwise(edges) for t in between(cron, zone, a, b)] == due
    for edge in {*edges[1:], *due[:3], *due[-3:]}:
        later, earlier = [t for t in due if t > edge], [t for t in due if t < edge]
        upcoming = next_after(cron, zone, edge)
        assert upcoming == later[0] if later else upcoming is None or upcoming > end
        latest = previous_before(cron, zone, edge)
        assert latest == earlier[-1] if earlier else latest is None or latest <= start
        assert previous_at_or_before(cron, zone, edge) == (edge if edge in due else latest)


@relaxed
@given(written=expressions(), change=changes)
def test_a_chain_of_next_is_between_and_a_chain_of_previous_is_its_reverse(
    written: Written, change: tuple[str, str]
) -> None:
    assume(written.possible)
    cron, zone, (start, end) = parse_cron(written.text), check_zone(change[0]), window(change[1])
    due = between(cron, zone, start, end)
    forward, instant = [], next_after(cron, zone, start)
    while instant and instant <= end and len(forward) < 100:
        forward.append(instant)
        instant = next_after(cron, zone, instant)
    assert forward == due[:100]
    back, instant = [], previous_at_or_before(cron, zone, end)
    while instant and instant > start and len(back) < 100:
        back.append(instant)
        instant = previous_before(cron, zone, instant)
    assert back == due[::-1][:100]


@relaxed
@given(written=expressions(), change=changes)
def test_due_times_are_those_of_cronsim(written: Written, change: tuple[str, str]) -> None:
    assume(written.possible)
    minute, hour = written.parts[:2]
    # Known difference: for cronsim a `*` in the minute field, too, makes a job follow elapsed time.
    assume(hour.startswith("*") or not minute.startswith("*"))
    zone, (start, end) = check_zone(change[0]), window(change[1], before=1, after=1)
    theirs = []
    for local in CronSim(written.text, start.astimezone(zone)):
        if local.astimezone(UTC) > end:
            break
        theirs.append(local.astimezone(UTC))
    # Known difference: cronsim repeats an instant, or goes back, when a gap moves several times of a fixed job.
    assert between(parse_cron(written.text), zone, start, end) == sorted(set(theirs))
