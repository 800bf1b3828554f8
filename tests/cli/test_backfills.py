"""Backfills from the command line: the plan, the question, the waiting, the end."""

import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from activity_core.settings import environment_without_settings
from tests.cli.conftest import Call
from tests.cli.scripted import Script

BACKFILL_ID = "55555555-5555-5555-5555-555555555555"
PLAN = "/v1/activities/digest/backfill"
BACKFILL = f"/v1/backfills/{BACKFILL_ID}"
RANGE = ("--from", "2026-03-01T00:00:00+01:00", "--to", "2026-03-02T00:00:00")
SENT = {"from": "2026-03-01T00:00:00+01:00", "to": "2026-03-02T00:00:00"}


def _item(hour: int, action: str, **values: Any) -> dict[str, Any]:
    window = {"start": f"2026-03-01T{hour - 1:02}:00:00+00:00", "end": f"2026-03-01T{hour:02}:00:00+00:00"}
    item = {"scheduled_for": window["end"], "action": action, "outcome": None, "reason": "why", "window": window}
    return item | {"overlaps": None} | values


def _plan(*items: dict[str, Any], dry_run: bool = True, reopen: int = 0, add: int = 0, leave: int = 0) -> Any:
    return {
        "id": None if dry_run or not items else BACKFILL_ID,
        "slug": "digest",
        "dry_run": dry_run,
        "counts": {"reopen": reopen, "add": add, "leave": leave},
        "items": list(items),
    }


ITEMS = (
    _item(9, "reopen", outcome="skipped", reason="nothing ran in time"),
    _item(10, "leave", outcome="started", reason="it ran"),
    _item(11, "add", reason="it was disabled", overlaps="2026-03-01T12:00:00+00:00"),
)
COUNTS: Any = {"reopen": 1, "add": 1, "leave": 1}
SUMMARY = "1 to reopen, 1 to add, 1 to leave as they are"


def _backfill(**counts: int) -> dict[str, Any]:
    return {
        "id": BACKFILL_ID,
        "slug": "digest",
        "from": "2026-02-28T23:00:00+00:00",
        "to": "2026-03-02T00:00:00+00:00",
        "note": None,
        "requested_at": "2026-03-03T00:00:00.5+00:00",
        "cancelled_at": None,
        "counts": {"waiting": 0, "started": 0, "cancelled": 0} | counts | {"total": sum(counts.values())},
    }


def _plan_then_run(api: Script) -> None:
    api.on("POST", PLAN, 200, _plan(*ITEMS, **COUNTS))
    api.on("POST", PLAN, 202, _plan(*ITEMS, dry_run=False, **COUNTS))


def test_dry_run_shows_the_whole_plan_and_changes_nothing(call: Call, api: Script) -> None:
    api.on("POST", PLAN, 200, _plan(*ITEMS, **COUNTS))
    ended = call("backfill", "digest", *RANGE, "--dry-run", "--note", "outage")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["FOR", "ACTION", "OUTCOME", "REASON", "WINDOW", "FROM", "WINDOW", "TO", "OVERLAPS"]
    assert " ".join(lines[1].split()) == (
        "2026-03-01T09:00:00+00:00 reopen skipped nothing ran in time 2026-03-01T08:00:00Z 2026-03-01T09:00:00Z -"
    )
    assert "leave" in lines[2]
    assert lines[3].endswith("2026-03-01T12:00:00Z")
    assert lines[4:] == [SUMMARY]
    assert ended.code == 0
    assert "Dry run: nothing was changed." in ended.err
    assert [asked.body for asked in api.asked] == [SENT | {"note": "outage", "dry_run": True}]


def test_yes_shows_what_will_run_and_runs_it(call: Call, api: Script) -> None:
    _plan_then_run(api)
    ended = call("backfill", "digest", *RANGE, "--yes")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert [line.split()[1] for line in lines[1:3]] == ["reopen", "add"]
    assert lines[3:] == [SUMMARY, f"backfill {BACKFILL_ID}: 2 times to run"]
    assert [asked.body for asked in api.asked] == [SENT | {"dry_run": True}, SENT | {"dry_run": False}]


def test_long_plan_is_cut(call: Call, api: Script) -> None:
    items = [_item(1 + number % 20, "reopen") for number in range(500)]
    api.on("POST", PLAN, 200, _plan(*items, reopen=9_000, leave=1))
    short = call("backfill", "digest", *RANGE, "--yes")
    assert len(short.out.splitlines()) == 1 + 20 + 2
    assert "These are the first 20 of 9000. --dry-run shows more.\n" in short.err
    whole = call("backfill", "digest", *RANGE, "--dry-run")
    assert len(whole.out.splitlines()) == 1 + 500 + 1
    assert "These are the first 500 of 9001.\n" in whole.err


def test_nothing_to_run_asks_nothing_and_sends_nothing_more(call: Call, api: Script) -> None:
    api.on("POST", PLAN, 200, _plan(_item(9, "leave", outcome="started"), leave=1))
    ended = call("backfill", "digest", *RANGE, "--yes", "--wait")
    assert (ended.code, ended.out) == (0, "0 to reopen, 0 to add, 1 to leave as they are\n")
    assert ended.err == "There is nothing to run.\n"
    assert [asked.body["dry_run"] for asked in api.asked] == [True]


def test_what_was_taken_up_meanwhile_is_told(call: Call, api: Script) -> None:
    api.on("POST", PLAN, 200, _plan(*ITEMS, **COUNTS))
    api.on("POST", PLAN, 202, _plan(dry_run=False, leave=3))
    ended = call("backfill", "digest", *RANGE, "--yes", "--wait")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "nothing left to run")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "there is no terminal to ask on: add --yes to run it, or --dry-run to see what would run"),
        (["-o", "json"], "-o json asks nothing: add --yes to run it, or --dry-run to see what would run"),
        (["--dry-run", "--wait"], "--dry-run starts nothing that --wait could wait for"),
    ],
)
def test_what_nobody_can_answer_is_refused_before_anything_is_sent(
    call: Call, api: Script, options: list[str], said: str
) -> None:
    ended = call("backfill", "digest", *RANGE, *options)
    assert (ended.code, ended.err) == (2, f"error: {said}\n")
    assert api.asked == []


@pytest.mark.parametrize(
    ("typed", "code", "requests"), [("y\n", 0, 2), ("n\n", 1, 1), ("\n", 1, 1)], ids=["yes", "no", "enter"]
)
def test_on_a_terminal_it_asks(api: Script, typed: str, code: int, requests: int) -> None:
    _plan_then_run(api)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed.encode())
        ended = subprocess.run(
            [sys.executable, "-m", "activity_core", "backfill", "digest", *RANGE],
            env={
                **environment_without_settings(),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "ACTIVITY_CORE_API_URL": api.url,
            },
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert ended.returncode == code
    assert SUMMARY in ended.stdout
    assert "Run 2 times of digest? [y/N]:" in ended.stderr
    assert ("Nothing was changed." in ended.stderr) == (code == 1)
    assert len(api.asked) == requests


@pytest.mark.parametrize(
    ("counts", "code", "shown"),
    [({"started": 2}, 0, "2 started"), ({"started": 1, "cancelled": 1}, 1, "1 started, 1 cancelled")],
)
def test_wait_ends_when_nothing_waits(call: Call, api: Script, counts: dict[str, int], code: int, shown: str) -> None:
    _plan_then_run(api)
    api.on("GET", BACKFILL, 200, _backfill(waiting=2))
    api.on("GET", BACKFILL, 200, _backfill(waiting=2))
    api.on("GET", BACKFILL, 200, _backfill(waiting=1, started=1))
    api.on("GET", BACKFILL, 200, _backfill(**counts))
    ended = call("backfill", "digest", *RANGE, "--yes", "--wait")
    assert ended.code == code
    assert ended.out.splitlines()[-1] == f"backfill {BACKFILL_ID}: {shown}"
    assert [line for line in ended.err.splitlines() if "of 2" in line] == [
        "2 of 2 still to start",
        "1 of 2 still to start",
    ]


def test_wait_gives_up_after_its_timeout(call: Call, api: Script) -> None:
    _plan_then_run(api)
    api.on("GET", BACKFILL, 200, _backfill(waiting=1, started=1))
    ended = call("backfill", "digest", *RANGE, "--yes", "--wait", "--timeout", "1")
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == (
        "error: after 1 s, 1 of 2 still to start; the backfill goes on; "
        f"stop it with `activity-core cancel-backfill {BACKFILL_ID}`"
    )


def test_lost_answers_say_that_it_may_go_on(call: Call, api: Script) -> None:
    api.on("POST", PLAN, 202, _plan(*ITEMS, dry_run=False, **COUNTS))
    api.problem("GET", BACKFILL, 503, "unavailable", "Postgres does not answer")
    ended = call("backfill", "digest", *RANGE, "--yes", "--wait", "-o", "json")
    assert ended.code == 3
    assert ended.err.splitlines()[-1] == "The backfill goes on; see `activity-core backfills digest`."

    api.problem("POST", "/v1/activities/other/backfill", 503, "unavailable", "Postgres does not answer")
    ended = call("backfill", "other", *RANGE, "--yes", "-o", "json")
    assert ended.code == 3
    assert "It may have begun; see `activity-core backfills other`." in ended.err


def test_refused_instants_are_told(call: Call, api: Script) -> None:
    api.problem("POST", PLAN, 422, "invalid_input", "no", ("/to", "write it with its offset"))
    ended = call("backfill", "digest", *RANGE, "--dry-run")
    assert (ended.code, ended.err.splitlines()[1]) == (1, "  /to: write it with its offset")


def test_backfills_are_listed_with_how_far_they_are(call: Call, api: Script) -> None:
    cancelled = _backfill(started=1, cancelled=4) | {"cancelled_at": "2026-03-03T01:00:00+00:00", "note": "outage"}
    items = [_backfill(waiting=2, started=1), cancelled]
    api.on("GET", "/v1/activities/digest/backfills", 200, {"items": items, "next_cursor": None})
    lines = call("backfills", "digest", "--limit", "3").out.splitlines()
    assert lines[0].split() == ["REQUESTED", "FROM", "TO", "TIMES", "CANCELLED", "NOTE", "BACKFILL"]
    assert "2 waiting, 1 started" in lines[1]
    assert "1 started, 4 cancelled  2026-03-03T01:00:00Z  outage  " in lines[2]
    assert all(line.endswith(BACKFILL_ID) for line in lines[1:])
    assert api.asked[0].query == {"limit": "3"}


def test_cancel_says_what_ran_before(call: Call, api: Script) -> None:
    api.on("POST", f"{BACKFILL}/cancel", 200, _backfill(started=1, cancelled=4))
    ended = call("cancel-backfill", BACKFILL_ID)
    assert (ended.code, ended.out) == (0, f"backfill {BACKFILL_ID} cancelled; 1 started, 4 cancelled\n")


@pytest.mark.parametrize(
    ("arguments", "method", "path"),
    [
        (["backfill", "digest", *RANGE, "--yes"], "POST", PLAN),
        (["backfill", "digest", *RANGE, "--dry-run"], "POST", PLAN),
        (["backfills", "digest"], "GET", "/v1/activities/digest/backfills"),
        (["cancel-backfill", BACKFILL_ID], "POST", f"{BACKFILL}/cancel"),
    ],
)
def test_output_json_is_the_answer_unchanged(
    call: Call, api: Script, arguments: list[str], method: str, path: str
) -> None:
    body = b'{"items":[], "id": null, "odd":  "spacing"}'
    api.on(method, path, 200, body)
    ended = call(*arguments, "-o", "json")
    assert (ended.code, ended.out, ended.err) == (0, body.decode() + "\n", "")
    assert len(api.asked) == 1


def test_output_json_with_wait_is_the_backfill_at_its_end(call: Call, api: Script) -> None:
    api.on("POST", PLAN, 202, _plan(*ITEMS, dry_run=False, **COUNTS))
    api.on("GET", BACKFILL, 200, _backfill(started=2))
    ended = call("backfill", "digest", *RANGE, "--yes", "--wait", "-o", "json")
    assert (ended.code, ended.json) == (0, _backfill(started=2))
    assert [asked.method for asked in api.asked] == ["POST", "GET"]
