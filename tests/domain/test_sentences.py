"""What `why` says reads as English, whatever became of an occurrence."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from activity_core.domain import sentences as say
from activity_core.domain.sentences import HoldFacts

DUE = datetime(2026, 3, 1, 9, tzinfo=UTC)
FROM, TO, AFTER = DUE - timedelta(hours=1), DUE + timedelta(hours=1), DUE + timedelta(minutes=5)
OPEN = say.OpenRunFacts("r1", DUE - timedelta(minutes=1))
COVERS = say.CoversFacts("a", "c", 3)


def run(status: str, *, result: str | None = None, reason: str | None = None, inbox: int = 0) -> say.RunFacts:
    ended = None if status == "running" else DUE + timedelta(seconds=2.4)
    return say.RunFacts(status, result, reason, DUE + timedelta(seconds=0.4), ended, inbox)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            say.RowFacts(
                "time", "started", "on_time", "", DUE, ZoneInfo("Europe/Berlin"), run=run("completed", result="done")
            ),
            "The time 2026-03-01T09:00:00+00:00 (Sun 10:00 in Europe/Berlin) started 0.4 s later and completed after 2.0 s; "
            "its tasks are handed over.",
        ),
        (
            say.RowFacts(
                "event", "started", "on_time", "", DUE, None, "e1", run("completed", result="no_work", reason="none")
            ),
            "The event 'e1', accepted at 2026-03-01T09:00:00+00:00, started 0.4 s later and completed after 2.0 s, with "
            "nothing to do: none.",
        ),
        (
            say.RowFacts("manual", "started", "on_time", "", DUE, run=run("running", inbox=2)),
            "The manual request of 2026-03-01T09:00:00+00:00 started 0.4 s later and is running. 2 of its tasks wait in "
            "the inbox.",
        ),
        (
            say.RowFacts("time", "waiting", "due", "", DUE, open_runs=[OPEN], now=AFTER),
            "The time 2026-03-01T09:00:00+00:00 is due and waits: run r1 of this activity, open since "
            "2026-03-01T08:59:00+00:00, decides it when it ends.",
        ),
        (
            say.RowFacts("event", "disabled", "disabled", "it was disabled", DUE, None, "e1"),
            "The event 'e1', accepted at 2026-03-01T09:00:00+00:00, did not run: it was disabled. Sent again after the "
            "activity is enabled, it is decided again.",
        ),
        (
            say.RowFacts("time", "skipped", "overlap", "a run was open.", DUE),
            "The time 2026-03-01T09:00:00+00:00 was skipped: a run was open.",
        ),
        (
            say.RowFacts("time", "waiting", "due", "", DUE, now=AFTER),
            "The time 2026-03-01T09:00:00+00:00 is due and its run has not started yet. Is a worker running, and is "
            "Temporal there?",
        ),
        (
            say.RowFacts("time", "waiting", "paused", "", DUE, holds=[HoldFacts(FROM, until=TO, note="moving")]),
            "The time 2026-03-01T09:00:00+00:00 waits: the activity is paused since 2026-03-01T08:00:00+00:00, until "
            "2026-03-01T10:00:00+00:00 (moving). It is decided when nothing holds it any more.",
        ),
        (
            say.RowFacts(
                "event", "waiting", "frozen", "", DUE, None, "e1", holds=[HoldFacts(FROM, selector="team=ops")]
            ),
            "The event 'e1', accepted at 2026-03-01T09:00:00+00:00, waits: the freeze of team=ops holds it since "
            "2026-03-01T08:00:00+00:00. It is decided when nothing holds it any more.",
        ),
        (
            say.RowFacts("time", "waiting", "due", "", DUE + timedelta(seconds=90), scheduled_for=DUE, now=DUE),
            "The time 2026-03-01T09:00:00+00:00, due at 2026-03-01T09:01:30+00:00 by its jitter, waits for that, 90.0 s "
            "from now.",
        ),
        (
            say.RowFacts("manual", "waiting", "due", "", DUE, open_runs=[OPEN, OPEN]),
            "The manual request of 2026-03-01T09:00:00+00:00 waits for run r1 of this activity (and 1 more), open since "
            "2026-03-01T08:59:00+00:00, to end, as it asked to.",
        ),
        (
            say.RowFacts("manual", "waiting", "due", "", DUE, request_before=True),
            "The manual request of 2026-03-01T09:00:00+00:00 waits for the request before it to end, as it asked to.",
        ),
        (
            say.RowFacts("time", "started", "late", "", DUE, run=run("running"), holds=[HoldFacts(FROM, TO)]),
            "The time 2026-03-01T09:00:00+00:00 was held by the pause from 2026-03-01T08:00:00+00:00 to "
            "2026-03-01T10:00:00+00:00, then started 0.4 s later as a catch-up, after its grace, and is running.",
        ),
        (
            say.RowFacts("time", "started", "late", "", DUE, run=run("running"), covers=COVERS, looked_at=AFTER),
            "The time 2026-03-01T09:00:00+00:00 started 0.4 s later as one run for the 3 times from a to c and is running. "
            "No worker looked at it until 2026-03-01T09:05:00+00:00.",
        ),
        (
            say.RowFacts("time", "merged", "compressed", "", DUE, run=run("failed"), covers=COVERS, merged_into=TO),
            "The time 2026-03-01T09:00:00+00:00 is covered by the run of 2026-03-01T10:00:00+00:00, one run for the 3 times "
            "from a to c, which started at 2026-03-01T09:00:00.400+00:00 and failed after 2.0 s.",
        ),
        (
            say.RowFacts("time", "dropped", "over_limit", "too many", DUE, newer=say.NewerFacts(2, 1)),
            "The time 2026-03-01T09:00:00+00:00 was dropped: too many. Of the missed times after it, caught up: 2, still to "
            "start: 1.",
        ),
        (
            say.RowFacts("time", "skipped", "overlap", "a run was open", DUE, open_runs=[OPEN]),
            "The time 2026-03-01T09:00:00+00:00 was skipped: run r1, open since 2026-03-01T08:59:00+00:00, was still open "
            "then.",
        ),
        (
            say.RowFacts("event", "skipped", "paused", "", DUE, None, "e1", holds=[HoldFacts(FROM, TO)]),
            "The event 'e1', accepted at 2026-03-01T09:00:00+00:00, was held by the pause from 2026-03-01T08:00:00+00:00 to "
            "2026-03-01T10:00:00+00:00, then was skipped: that hold was ended with events: skip.",
        ),
        (
            say.RowFacts(
                "time", "started", "backfill", "", DUE, run=run("running"), backfill=say.BackfillFacts(DUE, "n")
            ),
            "The time 2026-03-01T09:00:00+00:00 was backfilled: somebody asked for it at 2026-03-01T09:00:00+00:00 (n), and "
            "it started 0.4 s later and is running.",
        ),
        (
            say.RowFacts("manual", "started", "on_time", "", DUE, run=run("running"), rerun_of="r0"),
            "The rerun of run r0, asked for at 2026-03-01T09:00:00+00:00, started 0.4 s later and is running.",
        ),
    ],
)
def test_sentences_read_as_english(row: say.RowFacts, sentence: str) -> None:
    assert say.of_row(row) == sentence
