"""The commands against an API that answers what the test says: what is asked, what is shown, how it ends."""

import socket
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.scripted import Script

RUN_ID = "11111111-1111-1111-1111-111111111111"
TRIGGERED = {
    "run_id": RUN_ID,
    "workflow_id": "activity-x:manual:y",
    "activity_id": "22222222-2222-2222-2222-222222222222",
    "occurrence_id": "33333333-3333-3333-3333-333333333333",
}
OCCURRENCE = f"/v1/occurrences/{TRIGGERED['occurrence_id']}"


def _run(**values: Any) -> dict[str, Any]:
    run = {
        "run_id": RUN_ID,
        "slug": "digest",
        "triggered_by": "manual",
        "scheduled_for": None,
        "event_id": None,
        "status": "completed",
        "result": "done",
        "reason": None,
        "started_at": "2026-03-01T09:00:00.250000+00:00",
        "finished_at": "2026-03-01T09:00:01.500000+00:00",
        "tasks": {"total": 3, "completed": 2, "failed": 1, "pending": 0},
    }
    return run | values


def _page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": None}


def test_problem_is_told_with_its_code_and_each_fault_on_a_line(call: Call, api: Script) -> None:
    joined = "/params: write a JSON object; /on_overlap: no"
    errors = (("/params", "write a JSON object"), ("", "no"))
    api.problem("POST", "/v1/activities/digest/trigger", 422, "invalid_input", joined, *errors)
    ended = call("trigger", "digest", "--params", "1")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "error: Refused (invalid_input)",
        "  /params: write a JSON object",
        "  /: no",
    ]
    assert not ended.out


def test_not_found_is_told(call: Call, api: Script) -> None:
    api.problem("GET", "/v1/activities/nope", 404, "not_found", "there is no activity 'nope'")
    ended = call("get", "nope")
    assert (ended.code, ended.err) == (1, "error: there is no activity 'nope' (not_found)\n")


def test_api_that_is_not_there_is_named_with_how_to_start_it(call: Call) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        ended = call("runs", "--api-url", url)
    assert ended.code == 3
    assert ended.err.splitlines() == [
        f"error: nothing answers at {url} (connection refused)",
        "Start the service with `make run`, or say where it is with --api-url or ACTIVITY_CORE_API_URL.",
    ]


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "8080"])
def test_wrong_api_url_is_a_wrong_command_line(call: Call, url: str) -> None:
    ended = call("runs", "--api-url", url)
    assert ended.code == 2
    assert "--api-url" in ended.err


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b"<html>nothing here</html>"), (200, b"<html>hello</html>"), (200, b"[]"), (500, b'{"a": 1}')],
)
def test_another_server_is_not_taken_for_ours(call: Call, api: Script, status: int, body: bytes) -> None:
    api.on("GET", "/v1/runs", status, body)
    ended = call("runs")
    assert ended.code == 3
    assert "is it activity-core?" in ended.err


def test_r25_unknown_outcome_says_how_to_send_the_same_again(call: Call, api: Script) -> None:
    api.problem("POST", "/v1/events", 503, "unavailable", "Postgres does not answer")
    api.problem("POST", "/v1/activities/digest/trigger", 503, "unavailable", "Postgres does not answer")

    ended = call("events", "send", "order.paid")
    assert ended.code == 3
    assert f"--event-id {api.asked[0].body['event_id']}" in ended.err

    ended = call("trigger", "digest")
    assert ended.code == 3
    assert f"--idempotency-key {api.asked[1].headers['idempotency-key']}" in ended.err

    api.on("POST", "/v1/activities/digest/trigger", 202, TRIGGERED)
    assert call("trigger", "digest", "--idempotency-key", "mine").code == 3
    assert call("trigger", "digest", "--idempotency-key", "mine").code == 0
    assert [asked.headers["idempotency-key"] for asked in api.asked[2:]] == ["mine", "mine"]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["get"], "/v1/activities"),
        (["get", "digest"], "/v1/activities/digest"),
        (["runs"], "/v1/runs"),
        (["occurrences"], "/v1/occurrences"),
        (["tasks"], "/v1/tasks"),
        (["events", "list"], "/v1/events"),
        (["why", "digest"], "/v1/activities/digest/why"),
    ],
)
def test_output_json_is_the_answer_unchanged(call: Call, api: Script, arguments: list[str], path: str) -> None:
    body = b'{"items":[], "odd":  "spacing", "esc":"\\u001b[31m", "next_cursor": null}'
    api.on("GET", path, 200, body)
    ended = call(*arguments, "-o", "json")
    assert ended.code == 0
    assert ended.out == body.decode() + "\n"


def test_filters_are_sent_and_what_is_left_out_is_not(call: Call, api: Script) -> None:
    for path in ("/v1/runs", "/v1/occurrences", "/v1/tasks", "/v1/events"):
        api.on("GET", path, 200, _page())
    assert call("runs", "--activity", "a", "--status", "failed", "--limit", "7").code == 0
    assert call("occurrences", "--activity", "a", "--outcome", "skipped", "--cursor", "c").code == 0
    assert call("tasks", "--run", RUN_ID, "--state", "waiting", "--activity", "a").code == 0
    assert call("events", "list", "--type", "order.paid", "--event-id", "a/b c").code == 0
    assert [asked.query for asked in api.asked] == [
        {"activity": "a", "status": "failed", "limit": "7"},
        {"activity": "a", "outcome": "skipped", "limit": "20", "cursor": "c"},
        {"run_id": RUN_ID, "activity": "a", "state": "waiting", "limit": "20"},
        {"type": "order.paid", "event_id": "a/b c", "limit": "20"},
    ]


def test_runs_are_shown_with_what_they_are_for(call: Call, api: Script) -> None:
    nominal = _run(scheduled_for="2026-03-01T09:00:00+00:00", triggered_by="schedule")
    event = _run(event_id="evt_1", status="running", result=None, finished_at=None, tasks={"total": 0})
    api.on("GET", "/v1/runs", 200, _page(nominal, event, _run()))
    lines = call("runs").out.splitlines()
    assert lines[0].split() == ["ACTIVITY", "FOR", "STATUS", "RESULT", "STARTED", "TOOK", "TASKS", "RUN"]
    assert "2026-03-01T09:00:00+00:00  completed  done    2026-03-01T09:00:00Z  1.2 s" in lines[1]
    assert "2 completed, 1 failed" in lines[1]
    assert "event evt_1" in lines[2]
    assert "digest    manual" in lines[3]
    # Whole, however narrow the window: it is there to be copied.
    assert all(line.endswith(RUN_ID) for line in lines[1:])


def test_what_strangers_wrote_can_not_command_the_terminal(call: Call, api: Script) -> None:
    task = {
        "slug": "github-issues",
        "task_type": "triage",
        "consumer": "inbox",
        "state": "waiting",
        "reason": "\x1b]0;owned\x07 [red]markup[/red]\u202e",
        "created_at": "2026-03-01T09:00:00+00:00",
        "task_id": "task-1",
        "params": {"title": "Crash on \x1b[31m input\x9b2J"},
    }
    api.on("GET", "/v1/tasks", 200, _page(task))
    shown = call("tasks").out
    assert "\\x1b]0;owned\\x07 [red]markup[/red]\\u202e" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e")

    sentence = "the run failed: \x1b[2J gone\u2028"
    why = WHY | {"sentence": sentence}
    api.on(
        "GET",
        "/v1/activities/a/why",
        200,
        why | {"attempts": [], "actions": [], "neighbours": {"previous": None, "next": None}},
    )
    assert "the run failed: \\x1b[2J gone\\u2028\n" in call("why", "a").out


def test_trigger_says_its_run(call: Call, api: Script) -> None:
    api.on("POST", "/v1/activities/digest/trigger", 202, TRIGGERED)
    ended = call("trigger", "digest", "--params", '{"a": [1, "\\ud83d\\ude00"]}', "--allow-overlap")
    assert (ended.code, ended.out) == (0, f"run {RUN_ID}\n")
    assert api.asked[0].body == {"params": {"a": [1, "😀"]}, "on_overlap": "allow"}


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1), ("terminated", 1), ("timed_out", 1)])
def test_wait_ends_with_the_run(call: Call, api: Script, status: str, code: int) -> None:
    api.on("POST", "/v1/activities/digest/trigger", 202, TRIGGERED)
    api.problem("GET", f"/v1/runs/{RUN_ID}", 404, "not_found", "there is no such run")
    api.on("GET", f"/v1/runs/{RUN_ID}", 200, _run(status="running", result=None, finished_at=None))
    api.on("GET", f"/v1/runs/{RUN_ID}", 200, _run(status=status, reason="because"))
    api.on("GET", OCCURRENCE, 200, {"outcome": "waiting", "reason": "not started yet"})
    ended = call("trigger", "digest", "--wait")
    assert ended.code == code
    assert ended.out == f"run {RUN_ID} {status} (done): because; tasks: 2 completed, 1 failed\n"


def test_wait_ends_when_it_is_decided_that_nothing_runs(call: Call, api: Script) -> None:
    api.on("POST", "/v1/activities/digest/trigger", 202, TRIGGERED)
    api.problem("GET", f"/v1/runs/{RUN_ID}", 404, "not_found", "there is no such run")
    api.on("GET", OCCURRENCE, 200, {"outcome": "waiting", "reason": "not started yet"})
    api.on("GET", OCCURRENCE, 200, {"outcome": "deleted", "reason": "the activity was deleted"})
    ended = call("trigger", "digest", "--wait")
    assert (ended.code, ended.err) == (1, "error: it was not run: the activity was deleted (deleted)\n")


def test_wait_gives_up_after_its_timeout(call: Call, api: Script) -> None:
    api.on("POST", "/v1/activities/digest/trigger", 202, TRIGGERED)
    api.on("GET", f"/v1/runs/{RUN_ID}", 200, _run(status="running", result=None, finished_at=None))
    ended = call("trigger", "digest", "--wait", "--timeout", "1")
    assert ended.code == 1
    assert "is still running; it goes on" in ended.err


def test_events_send_sends_one_envelope(call: Call, api: Script, tmp_path: Any) -> None:
    (tmp_path / "data.json").write_text('{"order": 17}')
    api.on("POST", "/v1/events", 202, {"id": "u", "event_id": "shop:e1", "status": "accepted"})
    api.on("POST", "/v1/events", 200, {"id": "u", "event_id": "shop:e1", "status": "duplicate"})
    send = ("events", "send", "order.paid", "--event-id", "e1", "--source", "shop", "--data")
    assert call(*send, "@data.json").out == "event shop:e1 accepted\n"
    assert call(*send, "@-", stdin='{"order": 17}').out == "event shop:e1 duplicate\n"
    envelope = {"event_id": "e1", "type": "order.paid", "source": "shop", "data": {"order": 17}}
    assert [asked.body for asked in api.asked] == [envelope, envelope]


@pytest.mark.parametrize(
    "arguments",
    [
        ["events", "send", "x", "--data", "{a: 1}"],
        ["events", "send", "x", "--data", "@missing.json"],
        ["events", "send", "x", "--data", "NaN"],
        ["trigger", "x", "--params", "{"],
        ["why", "x", "--at", "2026-03-01T09:00:00Z", "--event-id", "e"],
        ["get", ".."],
        ["get", ""],
    ],
)
def test_arguments_that_cannot_be_meant_are_refused_before_anything_is_sent(
    call: Call, api: Script, arguments: list[str]
) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert api.asked == []


def test_tasks_are_completed_and_failed(call: Call, api: Script) -> None:
    task = f"task-{RUN_ID}:triage:0"
    path = f"/v1/tasks/task-{RUN_ID}%3Atriage%3A0"
    answer = {"task_id": task, "state": "completed", "reason": None}
    api.on("POST", f"{path}/complete", 200, answer)
    api.on("POST", f"{path}/fail", 200, answer | {"state": "failed", "reason": "no"})
    assert call("tasks", "complete", task).out == f"{task} completed\n"
    assert call("tasks", "complete", task, "--output", "null").code == 0
    assert call("tasks", "complete", task, "--output", '{"a": 1}').code == 0
    assert call("tasks", "fail", task, "--reason", "no").out == f"{task} failed: no\n"
    assert [asked.body for asked in api.asked] == [{}, {"output": None}, {"output": {"a": 1}}, {"reason": "no"}]


WHY = {
    "scheduled_for": "2026-03-01T09:00:00+00:00",
    "event_id": None,
    "outcome": "started",
    "reason_code": "on_time",
    "sentence": "It ran for 09:00, on time.",
    "evidence": [{"at": "2026-03-01T09:00:00.1+00:00", "what": "the run started", "ref": "/v1/runs/r"}],
    "run": _run(reason="a task failed"),
    "attempts": [
        {
            "task_id": "task-1",
            "started_at": "2026-03-01T09:00:01+00:00",
            "outcome": "failed",
            "late": True,
            "http_status": 503,
            "error": "busy",
        }
    ],
    "actions": [{"label": "Run it now", "command": "activity-core trigger digest"}],
    "neighbours": {"previous": "2026-03-01T08:00:00+00:00", "next": None},
}


def test_why_is_a_sentence_then_evidence_then_actions(call: Call, api: Script) -> None:
    api.on("GET", "/v1/activities/digest/why", 200, WHY)
    ended = call("why", "digest", "--at", "2026-03-01T10:00:00+01:00")
    assert api.asked[0].query == {"at": "2026-03-01T10:00:00+01:00"}
    assert ended.out.splitlines() == [
        "It ran for 09:00, on time.",
        "",
        "Outcome: started (on_time)",
        "",
        "Evidence:",
        "  2026-03-01T09:00:00.100Z  the run started  /v1/runs/r",
        "",
        "Run:",
        f"  {RUN_ID}  completed  done  a task failed  2 completed, 1 failed",
        "",
        "Attempts to hand over its tasks:",
        "  2026-03-01T09:00:01.000Z  task-1  failed  late  HTTP 503  busy",
        "",
        "Due times around it:",
        "  before  2026-03-01T08:00:00+00:00",
        "",
        "What you can do:",
        "  Run it now:  activity-core trigger digest",
    ]


def test_empty_lists_say_so_apart_from_the_output(call: Call, api: Script) -> None:
    api.on("GET", "/v1/runs", 200, _page())
    ended = call("runs")
    assert (ended.code, ended.out, ended.err) == (0, "", "No runs.\n")
