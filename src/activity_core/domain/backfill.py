"""What a user's backfill does with each nominal time of its range. Pure: no clock, no I/O.

Of times that are in the ledger, those that ended without a run are reopened. Times that were never due (before the
activity was created, and while it was disabled) are added. A time outside the life of the revision whose rule it comes
from is never taken: an edited cron makes no past time due.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

from activity_core.domain.documents import Activity, times_of
from activity_core.domain.times import Times

# Times of one backfill: it is planned and written in one transaction.
MAX_TIMES = 10_000
# Outcomes that are no run and no part of one. `disabled` is one of them: such a time was due, waited, and was given up.
REOPENED = frozenset({"skipped", "dropped", "disabled"})
BEFORE_CREATION = "the activity had not been created yet"
WHILE_DISABLED = "the activity was disabled"

Action = Literal["reopen", "add", "leave"]

_INSTANT = timedelta(microseconds=1)
_LEFT = {"started": "it ran", "merged": "the run of a later time covers it", "waiting": "it waits for its run already"}


@dataclass(frozen=True, slots=True)
class LedgerTime:
    """A time that is in the ledger, or will be: its window is [interval_start, scheduled_for)."""

    scheduled_for: datetime
    interval_start: datetime | None
    outcome: str = "waiting"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Revision:
    """A definition in force in (since, until]: a time at `until` is still its own. `until` None: it is the last one."""

    number: int
    activity: Activity
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Item:
    """What becomes of one time. `reason`: why it has its outcome, was never due, or is left as it is.

    `overlaps`: the later time whose window holds this one's too. `revision`: that of a time to add.
    """

    scheduled_for: datetime
    action: Action
    outcome: str | None
    reason: str
    interval_start: datetime | None
    overlaps: datetime | None = None
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class _Unowed:
    """A span (after, until] in which nothing was due, with the rule that says which times it has. `after` None: ever."""

    after: datetime | None
    until: datetime
    revision: int
    times: Times
    reason: str


@dataclass(frozen=True, slots=True)
class NeverDue:
    """A time that the ledger never owed. `interval_start`: the time of its rule before it."""

    scheduled_for: datetime
    interval_start: datetime | None
    revision: int
    reason: str


def never_due(revisions: Sequence[Revision], start: datetime, end: datetime, now: datetime) -> Iterator[NeverDue]:
    """The times of [start, end) that were never due, ascending, made as they are read. `revisions`: oldest first."""
    for span in _unowed(revisions, now):
        after = start - _INSTANT if span.after is None else max(span.after, start - _INSTANT)
        for nominal in span.times.iterate(after, min(span.until, end - _INSTANT)):
            yield NeverDue(nominal, span.times.interval_start(nominal), span.revision, span.reason)


def plan_backfill(
    known: Sequence[LedgerTime],
    unowed: Sequence[NeverDue],
    *,
    before: datetime | None,
    following: LedgerTime | None,
) -> list[Item]:
    """What becomes of each time, oldest first. `known`: the ledger's times of the range; both ascending.

    `before`: the ledger's last time before the range; `following`: the first one after it, or to come.
    """
    in_ledger = {row.scheduled_for for row in known}
    found = [_of_row(row) for row in known]
    found += [
        Item(time.scheduled_for, "add", None, time.reason, time.interval_start, revision=time.revision)
        for time in unowed
        if time.scheduled_for not in in_ledger
    ]
    found.sort(key=lambda item: item.scheduled_for)
    overlaps = _overlaps([item.scheduled_for for item in found if item.action == "add"], known, following)
    return list(_chained(found, before, overlaps))


def counts(items: Sequence[Item]) -> dict[str, int]:
    found = Counter(item.action for item in items)
    return {"reopen": found["reopen"], "add": found["add"], "leave": found["leave"]}


def bounded(times: Iterator[NeverDue]) -> list[NeverDue]:
    """One more than a backfill takes, at most."""
    return list(islice(times, MAX_TIMES + 1))


def _unowed(revisions: Sequence[Revision], now: datetime) -> Iterator[_Unowed]:
    first = revisions[0]
    times = times_of(first.activity.trigger)
    if times is not None:
        yield _Unowed(None, first.since, first.number, times, BEFORE_CREATION)
    for revision in revisions:
        times = times_of(revision.activity.trigger)
        if times is not None and not revision.activity.enabled:
            yield _Unowed(revision.since, revision.until or now, revision.number, times, WHILE_DISABLED)


def _of_row(row: LedgerTime) -> Item:
    if row.outcome in REOPENED:
        return Item(row.scheduled_for, "reopen", row.outcome, row.reason, row.interval_start)
    reason = _LEFT.get(row.outcome, row.reason)
    return Item(row.scheduled_for, "leave", row.outcome, reason, row.interval_start)


def _chained(items: Sequence[Item], before: datetime | None, overlaps: dict[datetime, datetime]) -> Iterator[Item]:
    """Each time to add begins where the one before it ended, whatever became of that."""
    for item in items:
        if item.action != "add":
            yield item
        else:
            start = item.interval_start if before is None else before
            yield Item(
                item.scheduled_for,
                item.action,
                item.outcome,
                item.reason,
                start,
                overlaps.get(item.scheduled_for),
                item.revision,
            )
        before = item.scheduled_for


def _overlaps(
    added: Sequence[datetime], known: Sequence[LedgerTime], following: LedgerTime | None
) -> dict[datetime, datetime]:
    """For times to add the first later one whose window was to reach over them, had they not been added."""
    found: dict[datetime, datetime] = {}
    for row in known if following is None else [*known, following]:
        if row.interval_start is None:
            continue
        first = bisect_right(added, row.interval_start)
        for scheduled_for in islice(added, first, None):
            if scheduled_for >= row.scheduled_for:
                break
            found.setdefault(scheduled_for, row.scheduled_for)
    return found
