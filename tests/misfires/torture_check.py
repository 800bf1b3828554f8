"""What the torture must not have broken, from Postgres alone and by simple arithmetic: none of our code in between.

Each finding is a line of text with the rows that it is about.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import asyncpg

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER = datetime.max.replace(tzinfo=UTC)
# How much later than it ended a run may be taken to be open still: its end is looked for each 15 s, in ones that are 10 s
# old, and not while Temporal is away or all workers are.
SEEN_LATE = timedelta(seconds=75)
# Events that wait when a freeze is made are held within seconds of it.
EVENTS_HELD = timedelta(seconds=3)


@dataclass(frozen=True)
class Revision:
    """In force in (since, until]; its times are in the ledger up to `settled`."""

    document: dict[str, Any]
    since: datetime
    until: datetime
    settled: datetime

    def in_force(self, begin: datetime, end: datetime) -> bool:
        return self.since <= end and begin <= self.until

    @property
    def trigger(self) -> dict[str, Any]:
        return dict(self.document["trigger"])

    def owed(self) -> Iterator[datetime]:
        """By `anchor + k * every_seconds`."""
        trigger = self.trigger
        if not self.document["enabled"] or trigger["type"] != "interval":
            return
        every = timedelta(seconds=trigger["every_seconds"])
        anchor = _instant(trigger["anchor"]) or EPOCH
        time = anchor + ((self.since - anchor) // every + 1) * every
        while time <= min(self.until, self.settled):
            if (_instant(trigger["start_at"]) or EPOCH) <= time <= (_instant(trigger["end_at"]) or FOREVER):
                yield time
            time += every


@dataclass(frozen=True)
class Hold:
    """A pause, or a freeze of `selector` (`key=value`). [begin, end)."""

    begin: datetime
    end: datetime
    on_misfire: str | None
    events: str
    selector: str | None = None

    def holds(self, labels: dict[str, str]) -> bool:
        if self.selector is None:
            return True
        key, _, value = self.selector.partition("=")
        return labels.get(key) == value


def _hold(begin: datetime, end: datetime | None, *more: Any) -> Hold:
    return Hold(begin, end or FOREVER, *more)


@dataclass
class Activity:
    id: UUID
    slug: str
    deleted: datetime | None
    revisions: list[Revision] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    backfills: list[tuple[datetime, datetime]] = field(default_factory=list)

    @property
    def times(self) -> list[dict[str, Any]]:
        return sorted((row for row in self.rows if row["kind"] == "time"), key=lambda row: row["scheduled_for"])

    def policies(self, row: dict[str, Any], decided: datetime) -> set[str]:
        """Those that may have decided the row: its own revision's, or what was said when a hold ended."""
        due, nominal = row["due_at"], row["scheduled_for"]
        found = {r.trigger.get("misfire_policy", "") for r in self.revisions if r.in_force(nominal, due)}
        return found | {h.on_misfire for h in self.holds if h.on_misfire and h.begin <= decided and h.end >= nominal}

    def graces(self, row: dict[str, Any], instant: datetime) -> list[timedelta]:
        return [timedelta(seconds=rules.get("misfire_grace_seconds", 0)) for rules in self._rules(row, instant)]

    def limit(self, row: dict[str, Any], instant: datetime) -> int:
        return min(int(rules.get("catchup_limit", 10)) for rules in self._rules(row, instant))

    def _rules(self, row: dict[str, Any], instant: datetime) -> list[dict[str, Any]]:
        """Of the revision in force, of both when one has just followed the other, and of that which the time was due under:
        what waits for something else than the policy keeps its rules."""
        own = [self.revisions[row["revision"] - 1]]
        return [r.trigger for r in own + [r for r in self.revisions if r.in_force(instant, instant)]]

    def allowed_all(self, begin: datetime, end: datetime) -> bool:
        return any(r.trigger.get("overlap_policy") for r in self.revisions if r.in_force(begin, end))


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


async def read(database_url: str) -> list[Activity]:
    connection = await asyncpg.connect(database_url)
    try:
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        rows = await connection.fetch("SELECT id, slug, deleted_at FROM activities ORDER BY created_at")
        found = {row[0]: Activity(*row) for row in rows}
        for row in await connection.fetch(
            "SELECT r.activity_id, r.effective, r.in_force_from, r.in_force_until, s.settled_through "
            "FROM activity_revisions r JOIN trigger_state s USING (activity_id) ORDER BY 1, r.revision"
        ):
            found[row[0]].revisions.append(Revision(row[1], row[2], row[3] or FOREVER, row[4]))
        for row in await connection.fetch("SELECT * FROM occurrences ORDER BY due_at, id"):
            found[row["activity_id"]].rows.append(dict(row))
        for row in await connection.fetch(
            "SELECT r.*, e.status, e.finished_at, o.kind, o.plan_as FROM activity_runs r "
            "JOIN occurrences o ON o.id = r.occurrence_id LEFT JOIN activity_run_ends e ON e.run_id = r.run_id "
            "ORDER BY r.started_at, r.scheduled_for"
        ):
            found[row["activity_id"]].runs.append(dict(row))
        ends = "least(ended_at, until)"
        for row in await connection.fetch(f"SELECT activity_id, from_at, {ends}, on_misfire, events FROM pauses"):
            found[row[0]].holds.append(_hold(*list(row)[1:]))
        for row in await connection.fetch(f"SELECT from_at, {ends}, on_misfire, events, selector FROM freezes"):
            for activity in found.values():
                activity.holds.append(_hold(*row))
        for row in await connection.fetch("SELECT activity_id, from_at, to_at FROM backfills"):
            found[row[0]].backfills.append((row[1], row[2]))
        return list(found.values())
    finally:
        await connection.close()


def findings(activities: list[Activity]) -> list[str]:
    found = []
    for activity in activities:
        for check in (owed, outcomes, limits, overlaps, windows, held, oldest_first):
            found += [f"{check.__name__}: {activity.slug} {activity.id}: {text}" for text in check(activity)]
    return found


def owed(activity: Activity) -> Iterator[str]:
    """Every time that was owed has its row; any other row is one that a backfill added."""
    due = [time for revision in activity.revisions for time in revision.owed()]
    if len(set(due)) != len(due):
        yield "a time is owed by two revisions: the check is wrong"
    rows = {row["scheduled_for"]: row for row in activity.times}
    for time in sorted(set(due) - rows.keys()):
        yield f"{time} was owed and has no row"
    for time, row in rows.items():
        if (row["triggered_by"] == "schedule") != (time in set(due)):
            yield f"{time} is {'' if time in set(due) else 'not '}owed: {_said(row)}"
        elif row["triggered_by"] == "backfill" and not any(begin <= time < end for begin, end in activity.backfills):
            yield f"no backfill asked for {time}: {_said(row)}"


def _first(row: dict[str, Any]) -> tuple[str, str, datetime]:
    """(outcome, reason code, when) of the row's first decision: before a backfill reopened it."""
    decided = [entry for entry in row["history"] if entry["decided_at"] is not None]
    if not decided:
        return row["outcome"], row["reason_code"], row["decided_at"]
    return decided[0]["outcome"], decided[0]["reason_code"], datetime.fromisoformat(decided[0]["decided_at"])


NEEDS = {("skipped", "late"): "skip", ("skipped", "overlap"): "skip", ("dropped", "over_limit"): "catchup"}


def outcomes(activity: Activity) -> Iterator[str]:
    """Each row's first decision is one that the policy in force makes, and each later one such as backfills make."""
    for row in activity.rows:
        if row["outcome"] == "waiting":
            yield f"waits: {_said(row)}"
        elif not row["reason"] or not row["reason_code"]:
            yield f"no reason: {_said(row)}"
        elif row["kind"] == "event":
            yield from _event_outcome(activity, row)
        elif row["kind"] == "manual":
            if (row["outcome"], row["reason_code"]) not in REQUESTS:
                yield f"not what becomes of a request: {_said(row)}"
            if row["outcome"] in ("deleted", "disabled"):
                yield from _given_up(activity, row["outcome"], row["decided_at"], row)
        else:
            yield from _time_outcome(activity, row)


REQUESTS = {("started", "on_time"), ("started", "late"), ("deleted", "deleted"), ("disabled", "disabled")}


def _event_outcome(activity: Activity, row: dict[str, Any]) -> Iterator[str]:
    outcome, decided = row["outcome"], row["decided_at"]
    if outcome == "skipped":
        ended = [h for h in activity.holds if h.events == "skip" and row["due_at"] <= h.end <= decided]
        if not ended:
            yield f"skipped, and no hold ended so: {_said(row)}"
    elif outcome in ("deleted", "disabled"):
        yield from _given_up(activity, outcome, decided, row)
    elif outcome != "started":
        yield f"not what becomes of an event: {_said(row)}"


def _given_up(activity: Activity, outcome: str, decided: datetime, row: dict[str, Any]) -> Iterator[str]:
    if outcome == "deleted" and activity.deleted != decided:
        yield f"not deleted then: {_said(row)}"
    disabled = [revision for revision in activity.revisions if not revision.document["enabled"]]
    if outcome == "disabled" and not any(
        decided == revision.since or (row["kind"] == "event" and revision.in_force(row["due_at"], row["due_at"]))
        for revision in disabled
    ):
        yield f"not disabled then: {_said(row)}"


def _time_outcome(activity: Activity, row: dict[str, Any]) -> Iterator[str]:
    outcome, code, decided = _first(row)
    if row["plan_as"] == "run":
        earlier = {entry["outcome"] for entry in row["history"] if entry["decided_at"]}
        if row["outcome"] not in {"started", "deleted", "disabled", *earlier} and row["reason_code"] not in (
            "backfill_cancelled",
            "trigger_changed",
        ):
            yield f"not what becomes of a backfilled time: {_said(row)}"
        if row["triggered_by"] == "backfill" or not earlier:
            return
    policies = activity.policies(row, decided)
    late = decided - row["due_at"]
    if (outcome, code) in NEEDS:
        if NEEDS[outcome, code] not in policies:
            yield f"policies {policies}: {_said(row)}"
        if code == "late" and late <= min(activity.graces(row, decided)):
            yield f"within its grace: {_said(row)}"
        if code == "overlap" and not _open_at(activity, row["due_at"]):
            yield f"no run was open: {_said(row)}"
    elif outcome == "merged":
        if "compress" not in policies:
            yield f"policies {policies}: {_said(row)}"
    elif outcome == "started":
        on_time = late <= max(activity.graces(row, decided))
        if code not in ("on_time", "late") or (code == "on_time" and not on_time):
            yield f"{late} after it was due: {_said(row)}"
        if code == "late" and policies == {"skip"}:
            yield f"policies {policies}: {_said(row)}"
    elif outcome in ("deleted", "disabled"):
        yield from _given_up(activity, outcome, decided, row)
    else:
        yield f"not what becomes of a time: {_said(row)}"


def _open_at(activity: Activity, instant: datetime) -> bool:
    """Whether a run other than a backfilled one may have been taken to be open."""
    for run in activity.runs:
        if run["triggered_by"] == "backfill":
            continue
        late = timedelta(0) if run["status"] in ("completed", None) else SEEN_LATE
        if run["started_at"] <= instant < (run["finished_at"] or FOREVER) + late:
            return True
    return False


def limits(activity: Activity) -> Iterator[str]:
    """A time is dropped only when the limit is reached by newer ones that were misfired and undecided as well."""
    decisions = [(row["scheduled_for"], row["due_at"], row, *_first(row)) for row in activity.times]
    for number, (_, _, row, outcome, _, decided) in enumerate(decisions):
        if outcome != "dropped":
            continue
        cutoff = decided - min(activity.graces(row, decided))
        newer = [
            other
            for time, due, other, other_outcome, _, other_decided in decisions[number + 1 :]
            if due < cutoff and (other_outcome == "waiting" or other_decided >= decided)
        ]
        if len(newer) < activity.limit(row, decided):
            yield f"only {len(newer)} newer ones waited, limit {activity.limit(row, decided)}: {_said(row)}"


def overlaps(activity: Activity) -> Iterator[str]:
    """A time starts when no run is open, and so does a request that waits; with allow_all none looks."""
    for run in activity.runs:
        if run["kind"] != "time" and run["plan_as"] != "wait":
            continue
        for other in activity.runs:
            if other is run or other["started_at"] > run["started_at"]:
                continue
            if run["kind"] == "time" and activity.allowed_all(run["started_at"], run["started_at"]):
                continue
            # started by a tick that was ahead of the clock, and ended before that instant: which was first is not known
            if run["started_at"] == other["started_at"] and run["finished_at"] == run["started_at"]:
                continue
            if (other["finished_at"] or FOREVER) > run["started_at"]:
                yield f"{_ran(run)} started beside {_ran(other)}"


def windows(activity: Activity) -> Iterator[str]:
    """A run's window begins where the interval of its oldest time does, and its times follow each other without a gap."""
    members: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    rows = {row["id"]: row for row in activity.rows}
    for row in activity.times:
        if row["merged_into"] is not None:
            members[row["merged_into"]].append(row)
    before: tuple[datetime, dict[str, Any]] | None = None
    for run in sorted((r for r in activity.runs if r["kind"] == "time"), key=lambda run: run["scheduled_for"]):
        head = rows[run["occurrence_id"]]
        block = [*members[head["id"]], head]
        if (run["window_start"], run["window_end"]) != (block[0]["interval_start"], head["scheduled_for"]):
            yield f"the window is not that of its times: {_ran(run)}, {_said(block[0])}"
        for earlier, later in pairwise(block):
            if later["interval_start"] != earlier["scheduled_for"]:
                yield f"a gap before {_said(later)}, merged into {_ran(run)}"
        if head["triggered_by"] != "schedule":
            continue
        if before is not None and run["window_start"] is not None and run["window_start"] < before[0]:
            yield f"{_ran(run)} overlaps {_ran(before[1])}"
        before = run["window_end"], run


def held(activity: Activity) -> Iterator[str]:
    """Nothing but requests starts while a pause or freeze holds."""
    for run in activity.runs:
        if run["kind"] == "manual":
            continue
        at = run["started_at"]
        labels = [r.document["labels"] for r in activity.revisions if r.in_force(at, at)]
        slack = EVENTS_HELD if run["kind"] == "event" else timedelta(0)
        for hold in activity.holds:
            if hold.begin + slack < at < hold.end and all(hold.holds(found) for found in labels):
                yield f"{_ran(run)} started while held: {hold}"


def oldest_first(activity: Activity) -> Iterator[str]:
    """No time starts while an older one that may run waits."""
    rows = activity.times
    nominals = [row["scheduled_for"] for row in rows]
    by_id = {row["id"]: row for row in rows}
    for run in activity.runs:
        if run["kind"] != "time" or by_id[run["occurrence_id"]]["plan_as"] == "run":
            continue
        at = run["started_at"]
        if activity.allowed_all(at, at):
            continue
        for row in rows[: bisect_left(nominals, run["scheduled_for"])]:
            outcome, _, decided = _first(row)
            if row["triggered_by"] == "backfill":
                continue
            if row["due_at"] <= at < (decided or FOREVER) and row["merged_into"] != run["occurrence_id"]:
                yield f"{_ran(run)} started while {_said(row)} waited ({outcome} at {decided})"


def _said(row: dict[str, Any]) -> str:
    shown = (
        "key",
        "due_at",
        "created_at",
        "interval_start",
        "outcome",
        "reason_code",
        "reason",
        "decided_at",
        "plan_as",
    )
    return ", ".join(f"{name} {row[name]}" for name in shown) + f", history {row['history']}"


def _ran(run: dict[str, Any]) -> str:
    shown = (
        "workflow_id",
        "started_at",
        "finished_at",
        "status",
        "covers",
        "window_start",
        "window_end",
        "kind",
        "plan_as",
    )
    return "run(" + ", ".join(f"{name} {run[name]}" for name in shown) + ")"
