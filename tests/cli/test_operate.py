"""Pause, resume, rerun, next, and what the commands about runs say of held, merged and repeated times."""

from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.scripted import Script

RUN_ID = "11111111-1111-1111-1111-111111111111"
ACTIVITY_ID = "22222222-2222-2222-2222-222222222222"
OCCURRENCE_ID = "33333333-3333-3333-3333-333333333333"
FREEZE_ID = "44444444-4444-4444-4444-444444444444"
TRIGGERED = {
    "run_id": RUN_ID,
    "workflow_id": "activity-x:manual:y",
    "activity_id": ACTIVITY_ID,
    "occurrence_id": OCCURRENCE_ID,
}
PAUSE = "/v1/activities/digest/pause"
RESUME = "/v1/activities/digest/resume"
NEXT = "/v1/activities/digest/next"
RERUN = f"/v1/runs/{RUN_ID}/rerun"


def _activity(**state: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "enabled": True,
        "paused": False,
        "note": None,
        "until": None,
        "paused_at": None,
        "freezes": [],
    }
    return {"id": ACTIVITY_ID, "slug": "digest", "state": known | state}


def _resumed(times: int, events: int, **state: Any) -> dict[str, Any]:
    return {"activity": _activity(**state), "times": times, "events": events}


def _run(**values: Any) -> dict[str, Any]:
    run = {
        "run_id": RUN_ID,
        "slug": "digest",
        "triggered_by": "manual",
        "scheduled_for": None,
        "event_id": None,
        "window": None,
        "covers": None,
        "status": "completed",
        "result": "done",
        "reason": None,
        "started_at": "2026-03-01T09:00:00+00:00",
        "finished_at": "2026-03-01T09:00:01+00:00",
        "tasks": {"total": 1, "completed": 1},
    }
    return run | values


def _page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": None}


def test_pause_says_until_when_and_how_to_go_on(call: Call, api: Script) -> None:
    until = "2026-03-02T05:00:00+00:00"
    api.on("POST", PAUSE, 200, _activity(paused=True))
    api.on("POST", PAUSE, 200, _activity(paused=True, note="disk \x1b[2J full", until=until))
    assert call("pause", "digest").out == "digest is paused\n"
    ended = call("pause", "digest", "--note", "n", "--until", "2026-03-02T06:00:00+01:00", "--events", "skip")
    assert (ended.code, ended.out) == (0, "digest is paused until 2026-03-02T05:00:00Z: disk \\x1b[2J full\n")
    assert ended.err == "Its due times and events wait. Go on with `activity-core resume digest`.\n"
    # as given: what an instant means is for the API to say
    sent = {"note": "n", "until": "2026-03-02T06:00:00+01:00", "events": "skip"}
    assert [asked.body for asked in api.asked] == [{}, sent]


@pytest.mark.parametrize(
    ("times", "events", "said"),
    [
        (0, 0, "digest is not paused; nothing had waited"),
        (1, 0, "digest is resumed; what waited is decided now: 1 due time, 0 events"),
        (12, 1, "digest is resumed; what waited is decided now: 12 due times, 1 event"),
    ],
)
def test_resume_says_how_much_is_decided(call: Call, api: Script, times: int, events: int, said: str) -> None:
    api.on("POST", RESUME, 200, _resumed(times, events))
    ended = call("resume", "digest", "--on-misfire", "compress", "--events", "run")
    assert (ended.code, ended.out) == (0, said + "\n")
    assert ("occurrences --activity digest" in ended.err) == (times > 0)
    assert api.asked[0].body == {"on_misfire": "compress", "events": "run"}


def test_resume_names_what_still_holds(call: Call, api: Script) -> None:
    api.on("POST", RESUME, 200, _resumed(0, 0, freezes=[FREEZE_ID], enabled=False))
    ended = call("resume", "digest")
    assert f"`activity-core freeze end {FREEZE_ID}`" in ended.err
    assert "It is disabled" in ended.err
    assert api.asked[0].body == {}


def test_resume_with_held_events_says_the_option_to_add(call: Call, api: Script) -> None:
    api.problem("POST", RESUME, 422, "invalid_input", "no", ("/events", "3 events wait; write 'run' or 'skip'"))
    ended = call("resume", "digest")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "error: no (invalid_input)",
        "  /events: 3 events wait; write 'run' or 'skip'",
        "Say what becomes of the events that waited: add --events run or --events skip.",
    ]


def test_other_refusals_of_resume_are_told_as_they_are(call: Call, api: Script) -> None:
    api.problem("POST", RESUME, 404, "not_found", "there is no activity 'digest'")
    assert call("resume", "digest").err == "error: there is no activity 'digest' (not_found)\n"


def test_rerun_is_like_a_trigger(call: Call, api: Script) -> None:
    api.on("POST", RERUN, 202, TRIGGERED)
    ended = call("rerun", RUN_ID)
    assert (ended.code, ended.out) == (0, f"run {RUN_ID}\n")
    assert f"runs --activity {ACTIVITY_ID}" in ended.err
    options = ("--revision", "original", "--on-overlap", "wait", "--idempotency-key", "mine")
    assert call("rerun", RUN_ID, *options).code == 0
    assert [asked.body for asked in api.asked] == [{}, {"revision": "original", "on_overlap": "wait"}]
    assert api.asked[0].headers["idempotency-key"] != api.asked[1].headers["idempotency-key"] == "mine"


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1)])
def test_rerun_waits_for_its_end(call: Call, api: Script, status: str, code: int) -> None:
    api.on("POST", RERUN, 202, TRIGGERED)
    api.problem("GET", f"/v1/runs/{RUN_ID}", 404, "not_found", "there is no such run")
    api.on("GET", f"/v1/runs/{RUN_ID}", 200, _run(status=status))
    api.on("GET", f"/v1/occurrences/{OCCURRENCE_ID}", 200, {"outcome": "waiting", "reason": "a run is open"})
    ended = call("rerun", RUN_ID, "--wait")
    assert (ended.code, ended.out) == (code, f"run {RUN_ID} {status} (done); tasks: 1 completed\n")


def test_rerun_that_got_no_answer_can_be_asked_again(call: Call, api: Script) -> None:
    api.problem("POST", RERUN, 503, "unavailable", "Postgres does not answer")
    ended = call("rerun", RUN_ID)
    assert ended.code == 3
    assert f"--idempotency-key {api.asked[0].headers['idempotency-key']}" in ended.err


def test_next_shows_both_clocks(call: Call, api: Script) -> None:
    at = "2026-03-02T08:00:00+00:00"
    item = {"scheduled_for": at, "local": "2026-03-02T09:00:00+01:00", "due_at": at}
    answer = {"description": "at 09:00", "timezone": "Europe/Berlin", "enabled": True, "paused": False}
    api.on("GET", NEXT, 200, answer | {"items": [item]})
    ended = call("next", "digest", "--count", "1")
    assert api.asked[0].query == {"count": "1"}
    assert ended.out.splitlines() == [
        "at 09:00",
        "",
        "SCHEDULED FOR              LOCAL (EUROPE/BERLIN)",
        "2026-03-02T08:00:00+00:00  2026-03-02T09:00:00+01:00",
    ]
    assert not ended.err


def test_next_shows_due_where_jitter_moves_it(call: Call, api: Script) -> None:
    at = "2026-03-02T08:00:00+00:00"
    item = {"scheduled_for": at, "local": at, "due_at": "2026-03-02T08:00:17+00:00"}
    answer = {"description": "every 3600 seconds", "timezone": None, "enabled": True, "paused": True}
    api.on("GET", NEXT, 200, answer | {"items": [item]})
    ended = call("next", "digest")
    assert ended.out.splitlines()[2:] == [
        "SCHEDULED FOR              DUE",
        "2026-03-02T08:00:00+00:00  2026-03-02T08:00:17+00:00",
    ]
    assert ended.err == "It is paused: what falls due waits. Go on with `activity-core resume digest`.\n"


def test_next_of_what_is_disabled_says_so(call: Call, api: Script) -> None:
    answer = {"description": "at 09:00", "timezone": "UTC", "enabled": False, "paused": True, "items": []}
    api.on("GET", NEXT, 200, answer)
    ended = call("next", "digest")
    assert (ended.code, ended.out) == (0, "at 09:00\n")
    assert ended.err.startswith("No due times are ahead.\nIt is disabled")


@pytest.mark.parametrize(
    ("arguments", "method", "path"),
    [
        (["pause", "digest"], "POST", PAUSE),
        (["resume", "digest"], "POST", RESUME),
        (["rerun", RUN_ID], "POST", RERUN),
        (["next", "digest"], "GET", NEXT),
    ],
)
def test_output_json_is_the_answer_unchanged(
    call: Call, api: Script, arguments: list[str], method: str, path: str
) -> None:
    body = b'{"items":[], "odd":  "spacing"}'
    api.on(method, path, 200, body)
    ended = call(*arguments, "-o", "json")
    assert (ended.code, ended.out, ended.err) == (0, body.decode() + "\n", "")


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ([], {}),
        (["--allow-overlap"], {"on_overlap": "allow"}),
        (["--on-overlap", "wait"], {"on_overlap": "wait"}),
        (["--on-overlap", "refuse"], {"on_overlap": "refuse"}),
        (["--on-overlap", "allow", "--allow-overlap"], {"on_overlap": "allow"}),
    ],
)
def test_trigger_says_what_to_do_about_an_open_run(
    call: Call, api: Script, options: list[str], sent: dict[str, str]
) -> None:
    api.on("POST", "/v1/activities/digest/trigger", 202, TRIGGERED)
    assert call("trigger", "digest", *options).code == 0
    assert api.asked[0].body == sent


def test_refusal_because_of_an_open_run_names_the_options(call: Call, api: Script) -> None:
    api.problem("POST", "/v1/activities/digest/trigger", 409, "run_open", "a run of 'digest' is open")
    ended = call("trigger", "digest")
    assert ended.code == 1
    assert ended.err.splitlines()[1] == "To run after it: --on-overlap wait. To run beside it: --on-overlap allow."


@pytest.mark.parametrize(
    "arguments",
    [
        ["trigger", "digest", "--on-overlap", "wait", "--allow-overlap"],
        ["trigger", "digest", "--on-overlap", "maybe"],
        ["resume", "digest", "--on-misfire", "later"],
        ["pause", "digest", "--events", "hold"],
        ["rerun", RUN_ID, "--revision", "7"],
        ["next", "digest", "--count", "0"],
    ],
)
def test_options_that_cannot_be_meant_are_refused_before_anything_is_sent(
    call: Call, api: Script, arguments: list[str]
) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert ended.err
    assert api.asked == []


@pytest.mark.parametrize(
    ("first", "shown"),
    [
        ("2026-03-01T09:02:00+00:00", "2026-03-01T09:04:00+00:00 (covers 3 from 09:02)"),
        ("2026-02-28T09:02:00+00:00", "2026-03-01T09:04:00+00:00 (covers 3 from 2026-02-28T09:02:00+00:00)"),
        ("2026-03-01T09:03:30+00:00", "2026-03-01T09:04:00+00:00 (covers 3 from 2026-03-01T09:03:30+00:00)"),
    ],
)
def test_r15_runs_say_which_times_they_cover(call: Call, api: Script, first: str, shown: str) -> None:
    at = "2026-03-01T09:04:00+00:00"
    several = _run(scheduled_for=at, covers={"first": first, "last": at, "count": 3})
    single = _run(scheduled_for=at, covers={"first": at, "last": at, "count": 1})
    api.on("GET", "/v1/runs", 200, _page(several, single))
    lines = call("runs").out.splitlines()
    assert f"digest    {shown}  completed" in lines[1]
    assert "covers" not in lines[2]


def test_occurrences_are_filtered_by_what_was_decided(call: Call, api: Script) -> None:
    api.on("GET", "/v1/occurrences", 200, _page())
    asked = {
        "--selector": ("selector", "team=ops,env!=dev"),
        "--reason-code": ("reason_code", "over_limit"),
        "--kind": ("kind", "time"),
        "--from": ("from", "2026-03-01T00:00:00+01:00"),
        "--to": ("to", "2026-03-02T00:00:00"),
        "--merged-into": ("merged_into", OCCURRENCE_ID),
        "--backfill": ("backfill_id", FREEZE_ID),
    }
    options = [part for option, (_, value) in asked.items() for part in (option, value)]
    assert call("occurrences", *options).code == 0
    assert api.asked[0].query == {"limit": "20", **dict(asked.values())}


def test_merged_occurrences_say_whose_run_covers_them(call: Call, api: Script) -> None:
    row = {
        "id": OCCURRENCE_ID,
        "slug": "digest",
        "scheduled_for": "2026-03-01T09:04:00+00:00",
        "event_id": None,
        "outcome": "started",
        "reason_code": "late",
        "reason": "caught up",
        "run_id": RUN_ID,
        "merged_into": None,
        "rerun_of": None,
    }
    merged = row | {
        "id": FREEZE_ID,
        "scheduled_for": "2026-03-01T09:03:00+00:00",
        "outcome": "merged",
        "reason_code": "compressed",
        "run_id": None,
        "merged_into": OCCURRENCE_ID,
    }
    again = row | {"scheduled_for": None, "rerun_of": RUN_ID}
    api.on("GET", "/v1/occurrences", 200, _page(row, merged, again))
    lines = call("occurrences").out.splitlines()
    assert lines[0].split()[-2:] == ["RUN", "OCCURRENCE"]
    assert lines[1].split()[-2:] == [RUN_ID, OCCURRENCE_ID]
    assert f"  that of occurrence {OCCURRENCE_ID}  " in lines[2]
    assert lines[2].endswith(FREEZE_ID)
    assert f"digest    rerun of {RUN_ID}  " in lines[3]
