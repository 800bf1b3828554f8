"""The ledger in words: one English sentence for what became of an occurrence, or of an instant that is none. Pure text."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

# Longer than this a row or a start does not wait unless something is wrong.
EXPECTED_WITHIN = timedelta(seconds=10)
BY_RULE = ("debounce", "rate_limit", "concurrency")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """How a run went. `inbox`: how many of its tasks wait for somebody to complete them."""

    status: str
    result: str | None
    reason: str | None
    started_at: datetime
    finished_at: datetime | None
    inbox: int = 0


@dataclass(frozen=True, slots=True)
class HoldFacts:
    """A pause, or with `selector` a freeze. `ended` None: it holds still, at most to `until`."""

    began: datetime
    ended: datetime | None = None
    until: datetime | None = None
    note: str | None = None
    selector: str | None = None


@dataclass(frozen=True, slots=True)
class CoversFacts:
    """The nominal times that one run stands for; `first` and `last` as the run names them."""

    first: str
    last: str
    count: int


@dataclass(frozen=True, slots=True)
class OpenRunFacts:
    run_id: str
    since: datetime


@dataclass(frozen=True, slots=True)
class BackfillFacts:
    asked_at: datetime
    note: str | None = None


@dataclass(frozen=True, slots=True)
class NewerFacts:
    """What became of the missed times after one that was dropped: how many of them were, or still are to be, caught up."""

    started: int
    waiting: int


@dataclass(frozen=True, slots=True)
class RowFacts:
    """A ledger row. `scheduled_for` is None where it is `due_at`; `zone`: the trigger's, for times.

    `holds`: those that hold it now if it waits, else those that held it. `open_runs`: of the activity, open now if it
    waits, else when it was due. `looked_at`: when its row was written, if that was long after it was due. `now`: to say
    that something takes long. `merged_into`, `merged_event`: the nominal time or the event whose run covers it, and
    `merged_outcome` what became of that.
    `not_before`: when it may start, by a debounce or a rate limit.
    """

    kind: str
    outcome: str
    reason_code: str
    reason: str
    due_at: datetime
    zone: ZoneInfo | None = None
    event_id: str | None = None
    run: RunFacts | None = None
    scheduled_for: datetime | None = None
    holds: Sequence[HoldFacts] = ()
    open_runs: Sequence[OpenRunFacts] = ()
    request_before: bool = False
    looked_at: datetime | None = None
    now: datetime | None = None
    covers: CoversFacts | None = None
    merged_into: datetime | None = None
    merged_event: str | None = None
    merged_outcome: str | None = None
    not_before: datetime | None = None
    newer: NewerFacts | None = None
    backfill: BackfillFacts | None = None
    rerun_of: str | None = None


def of_row(row: RowFacts) -> str:
    """What became of an occurrence and why."""
    subject = _subject(row)
    if row.outcome == "waiting":
        return f"{subject} {_waiting(row)}{_looked(row)}"
    held = _held_before(row)
    if row.outcome == "started":
        return f"{subject} {held}{_started(row)}{_looked(row)}"
    if row.outcome == "merged":
        return f"{subject} {held}{_merged(row)}{_looked(row)}"
    verbs = {
        "skipped": "was skipped",
        "dropped": "was dropped",
        "filter_error": "did not run because its filter failed",
        "dead_letter": "could not be handled and was given up",
    }
    again = {
        "filter_error": " Sent again after the filter is mended, it is decided again.",
        "disabled": " Sent again after the activity is enabled, it is decided again.",
    }
    verb = verbs.get(row.outcome, "did not run")
    advice = again.get(row.outcome, "") if row.kind == "event" else ""
    return f"{subject} {held}{verb}: {_because(row)}.{_newer(row)}{advice}{_looked(row)}"


def hold(facts: HoldFacts) -> str:
    """A hold from its begin on, as part of a sentence: `the pause from … to … (note)`."""
    what = "the pause" if facts.selector is None else f"the freeze of {facts.selector}"
    ends = " on" if facts.ended is None else f" to {instant(facts.ended)}"
    return f"{what} from {instant(facts.began)}{ends}{_note(facts.note)}"


def no_due_time(slug: str, at: datetime, previous: datetime | None, following: datetime | None) -> str:
    return f"'{slug}' has no due time at {instant(at)}. {_around(previous, following)}"


def outside_bounds(
    slug: str, at: datetime, bound: str, limit: datetime, previous: datetime | None, following: datetime | None
) -> str:
    """`bound`: `start_at` or `end_at`."""
    order = "before" if bound == "start_at" else "after"
    return f"'{slug}' owes nothing {order} its {bound}, {instant(limit)}. {_around(previous, following)}"


def between_times_by_jitter(jitter_seconds: int) -> str:
    """What to add for an instant at which a run may well have started."""
    return f" Its runs start up to {jitter_seconds} s after their nominal time (jitter_seconds): ask for that one."


def still_to_come(slug: str, at: datetime, now: datetime, holds: Sequence[HoldFacts] = ()) -> str:
    """`holds`: those that will still hold it then, as far as is known."""
    text = f"'{slug}' is due at {instant(at)}, which is {_seconds(at - now)} away."
    return f"{text} It will wait: {_holding(holds)}." if holds else text


def before_creation(slug: str, at: datetime, created_at: datetime) -> str:
    return f"'{slug}' did not exist at {instant(at)}; it was created at {instant(created_at)}, so nothing was owed."


def after_deletion(slug: str, at: datetime, deleted_at: datetime) -> str:
    return f"'{slug}' was deleted at {instant(deleted_at)}, so nothing is owed at {instant(at)}."


def was_disabled(slug: str, at: datetime, revision: int) -> str:
    return f"'{slug}' was disabled at {instant(at)} (revision {revision}), so no time was owed."


def is_disabled(slug: str, at: datetime) -> str:
    return f"'{slug}' is disabled, so nothing will be due at {instant(at)} unless it is enabled before."


def no_times(slug: str, trigger_type: str) -> str:
    ask = "ask with an event_id" if trigger_type == "event" else "it runs when somebody triggers it"
    return f"'{slug}' had no due times then: its trigger is of type '{trigger_type}'; {ask}."


def not_settled(
    slug: str, at: datetime, settled_through: datetime | None, now: datetime, holds: Sequence[HoldFacts] = ()
) -> str:
    text = f"'{slug}' was due at {instant(at)} and the ledger has not caught up with it yet"
    held = f" It will wait there: {_holding(holds)}." if holds else ""
    if settled_through is not None and min(now - settled_through, now - at) > EXPECTED_WITHIN:
        return f"{text}: no worker has looked at it since {instant(settled_through)}.{held} Is a worker running?"
    return f"{text}; a worker does that within seconds.{held}"


def passed_over(slug: str, at: datetime) -> str:
    return (
        f"'{slug}' would be due at {instant(at)} by the calendar of this version, but the ledger went past it without a "
        "row: what was computed then had other rules, such as time zone data from before an upgrade."
    )


def nothing_yet(
    slug: str,
    created_at: datetime,
    trigger_type: str,
    following: datetime | None,
    *,
    enabled: bool,
    holds: Sequence[HoldFacts] = (),
) -> str:
    since = f"since '{slug}' was created at {instant(created_at)}"
    if not enabled:
        return f"Nothing has been due {since}, and it is disabled, so nothing is owed."
    held = f" What comes waits: {_holding(holds)}." if holds and trigger_type != "manual" else ""
    if trigger_type == "event":
        return f"No event for it has come {since}.{held}"
    if trigger_type == "manual":
        return f"Nobody has triggered it {since}."
    return f"Nothing has been due {since}. {_around(None, following)}{held}"


def instant(at: datetime) -> str:
    """An instant as people read it: UTC, whole seconds unless it has a fraction."""
    utc = at.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds")


def _subject(row: RowFacts) -> str:
    if row.kind == "time":
        nominal = row.scheduled_for or row.due_at
        clock = "%a %H:%M:%S" if nominal.second else "%a %H:%M"
        local = "" if row.zone is None else f" ({nominal.astimezone(row.zone):{clock}} in {row.zone.key})"
        jitter = "" if nominal == row.due_at else f", due at {instant(row.due_at)} by its jitter,"
        return f"The time {instant(nominal)}{local}{jitter}"
    if row.kind == "event":
        return f"The event '{row.event_id}', accepted at {instant(row.due_at)},"
    if row.rerun_of is not None:
        return f"The rerun of run {row.rerun_of}, asked for at {instant(row.due_at)},"
    return f"The manual request of {instant(row.due_at)}"


def _waiting(row: RowFacts) -> str:
    if row.holds:
        asked = "" if row.backfill is None else f" to be backfilled, as {_asked(row.backfill)}"
        return f"waits{asked}: {_holding(row.holds)}. It is decided when nothing holds it any more."
    if row.now is not None and row.due_at > row.now:
        return f"waits for that, {_seconds(row.due_at - row.now)} from now."
    if row.kind == "event" and (row.reason_code in BY_RULE or _is_early(row)):
        return _by_rule(row)
    if row.kind == "manual" and (row.open_runs or row.request_before):
        return f"waits for {_first_open(row) if row.open_runs else 'the request before it'} to end, as it asked to."
    if row.backfill is not None:
        order = "backfilled times run one after the other, after those that are due now"
        return f"waits to be backfilled, as {_asked(row.backfill)}: {order}{_beside(row)}."
    if row.kind == "time" and row.open_runs:
        return f"is due and waits: {_first_open(row)} decides it when it ends."
    text = "is due and its run has not started yet." if row.kind == "time" else "waits for its run to start."
    if row.reason_code in ("paused", "frozen"):
        text = "is not held any more; a worker decides it within seconds."
    late = row.now is not None and row.now - max(row.due_at, row.not_before or row.due_at) > EXPECTED_WITHIN
    return f"{text} Is a worker running, and is Temporal there?" if late else text


def _is_early(row: RowFacts) -> bool:
    return row.not_before is not None and row.now is not None and row.not_before > row.now


def _by_rule(row: RowFacts) -> str:
    text = row.reason.rstrip(".") if row.reason_code in BY_RULE else "waits as its debounce or rate limit says"
    if row.not_before is None or not _is_early(row):
        return f"{text}."
    return f"{text}; it starts at {instant(row.not_before)}{_or_later(row)}."


def _or_later(row: RowFacts) -> str:
    return {"debounce": " unless another comes", "concurrency": " at the earliest"}.get(row.reason_code, "")


def _holding(holds: Sequence[HoldFacts]) -> str:
    return " and ".join(_holds(facts) for facts in holds)


def _holds(facts: HoldFacts) -> str:
    until = "" if facts.until is None else f", until {instant(facts.until)}"
    since = f"since {instant(facts.began)}{until}{_note(facts.note)}"
    if facts.selector is None:
        return f"the activity is paused {since}"
    return f"the freeze of {facts.selector} holds it {since}"


def _held_before(row: RowFacts) -> str:
    return f"was held by {' and '.join(hold(facts) for facts in row.holds)}, then " if row.holds else ""


def _first_open(row: RowFacts) -> str:
    run = row.open_runs[0]
    others = "" if len(row.open_runs) == 1 else f" (and {len(row.open_runs) - 1} more)"
    return f"run {run.run_id} of this activity{others}, open since {instant(run.since)},"


def _beside(row: RowFacts) -> str:
    return f"; run {row.open_runs[0].run_id} is open" if row.open_runs else ""


def _started(row: RowFacts) -> str:
    if row.run is None:
        return f"was started: {row.reason.rstrip('.')}."
    end = _end(row.run)
    if row.backfill is not None:
        waited = _seconds(row.run.started_at - row.backfill.asked_at)
        return f"was backfilled: {_asked(row.backfill)}, and it started {waited} later{end}"
    how = ""
    if row.covers is not None and row.covers.count > 1:
        how = f" as one run for the {row.covers.count} times from {row.covers.first} to {row.covers.last}"
    elif row.kind == "time" and row.reason_code == "late":
        how = " as a catch-up, after its grace,"
    others = ""
    if row.open_runs:
        several = len(row.open_runs) > 1
        others = f" Before it, {'other runs' if several else 'another run'} of it {'were' if several else 'was'} open."
    return f"started {_seconds(row.run.started_at - row.due_at)} later{how}{end}{others}"


def _merged(row: RowFacts) -> str:
    if row.merged_event is not None:
        text = f"did not run for itself: event '{row.merged_event}' stands for both, as its debounce says"
        if row.run is not None:
            return f"{text}; its run started at {instant(row.run.started_at)}{_end(row.run)}"
        return f"{text}; it {'waits' if row.merged_outcome == 'waiting' else f'did not run ({row.merged_outcome})'}."
    if row.merged_into is None:
        return f"was merged into another run: {row.reason.rstrip('.')}."
    text = f"is covered by the run of {instant(row.merged_into)}"
    if row.covers is not None:
        text += f", one run for the {row.covers.count} times from {row.covers.first} to {row.covers.last}"
    if row.run is None:
        return f"{text}."
    return f"{text}, which started at {instant(row.run.started_at)}{_end(row.run)}"


def _because(row: RowFacts) -> str:
    """The ledger's reason, with what it does not name: the runs that were open, or how a hold was ended."""
    if row.reason_code == "overlap" and row.open_runs:
        names = " and ".join(f"run {run.run_id}, open since {instant(run.since)}," for run in row.open_runs)
        return f"{names} was still open then" if len(row.open_runs) == 1 else f"{names} were still open then"
    if row.outcome == "skipped" and row.reason_code in ("paused", "frozen") and row.holds:
        return "that hold was ended with events: skip"
    return row.reason.rstrip(".")


def _newer(row: RowFacts) -> str:
    if row.newer is None:
        return ""
    waiting = f", still to start: {row.newer.waiting}" if row.newer.waiting else ""
    return f" Of the missed times after it, caught up: {row.newer.started}{waiting}."


def _looked(row: RowFacts) -> str:
    return "" if row.looked_at is None else f" No worker looked at it until {instant(row.looked_at)}."


def _asked(backfill: BackfillFacts) -> str:
    return f"somebody asked for it at {instant(backfill.asked_at)}{_note(backfill.note)}"


def _note(note: str | None) -> str:
    return f" ({note})" if note else ""


def _end(run: RunFacts) -> str:
    took = "" if run.finished_at is None else f" after {_seconds(run.finished_at - run.started_at)}"
    because = f": {run.reason.rstrip('.')}" if run.reason else ""
    ends = {
        "running": " and is running",
        "cancelled": f" and was cancelled{took}",
        "terminated": f" and was terminated{took}",
        "timed_out": f" and timed out{took}",
        "lost": f" and was lost{took}",
    }
    text = ends.get(run.status, f" and {run.status}{took}")
    if run.status == "completed":
        text += f", with nothing to do{because}" if run.result == "no_work" else "; its tasks are handed over"
    else:
        text += because
    inbox = f" {run.inbox} of its tasks wait{'s' if run.inbox == 1 else ''} in the inbox." if run.inbox else ""
    return f"{text}.{inbox}"


def _around(previous: datetime | None, following: datetime | None) -> str:
    before = "There is none before it" if previous is None else f"The one before was {instant(previous)}"
    after = "none comes after it" if following is None else f"the next is {instant(following)}"
    if previous is None and following is not None:
        return f"The next due time is {instant(following)}."
    return f"{before}, {after}."


def _seconds(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3_600:.0f} hours" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
