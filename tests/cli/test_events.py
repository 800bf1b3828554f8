"""Trying, replaying and listing events, declaring their types, and requests of sources, from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.scripted import Script

RUN_ID = "22222222-2222-2222-2222-222222222222"
DEFINITION = """\
kind: Activity
slug: triage
trigger:
  type: event
  event_types: [github.issues.opened]
  filter: event.data.open
"""
EVENT = '{"type": "github.issues.opened",\n "data": {"open": true}}'
ONE, MANY = "/v1/events/evt_1/replay", "/v1/events/replay"
RANGE = ("--from", "2026-03-01T00:00:00Z", "--to", "2026-03-02T00:00:00Z")


def tried(**values: Any) -> dict[str, Any]:
    task = {
        "task_id": f"task-{RUN_ID}:label:0",
        "task_type": "label",
        "index": 0,
        "consumer": "inbox",
        "params": {"label": "bug"},
    }
    answer = {
        "outcome": "waiting",
        "reason_code": "due",
        "reason": "it is due",
        "event_id": "evt_example",
        "workflow_id": "activity-0:evt_example",
        "run_id": RUN_ID,
        "keys": {"debounce": "issue-7", "rate_limit": None, "concurrency": ""},
        "rules": [{"id": "bug", "holds": True, "reason": "no bug"}, {"id": "new", "holds": False, "reason": "too old"}],
        "tasks": [task],
        "error": None,
        "missing_context": [],
        "invalid": None,
        "made_up_ids": True,
    }
    return answer | values


@pytest.fixture
def files(call: Call) -> None:
    """In the directory that `call` has gone to."""
    Path("triage.yaml").write_text(DEFINITION)
    Path("issue.json").write_text(EVENT)
    Path("context.yaml").write_text("stock:\n  count: 1\n")


@pytest.mark.usefixtures("files")
def test_test_sends_what_the_files_say_and_shows_what_would_come_of_it(call: Call, api: Script) -> None:
    api.on("POST", "/v1/simulate", 200, tried())
    ended = call("events", "test", "triage.yaml", "--event", "issue.json", "--context", "context.yaml")
    assert (ended.code, ended.err) == (0, "")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines == [
        "evt_example on triage.yaml: it would run",
        "debounce key: issue-7",
        "concurrency key: (empty: one for all)",
        f"run {RUN_ID}, workflow activity-0:evt_example (of a made-up activity)",
        "",
        "RULE HOLDS ELSE",
        "bug yes -",
        "new no too old",
        "",
        "TASK INDEX CONSUMER PARAMS ID",
        f'label 0 inbox {{"label": "bug"}} task-{RUN_ID}:label:0',
    ]
    sent = api.asked[0].body
    assert sent["event"] == json.loads(EVENT)
    assert sent["context"] == {"stock": {"count": 1}}
    assert sent["definition"]["trigger"]["filter"] == "event.data.open"


@pytest.mark.usefixtures("files")
def test_test_of_an_activity_in_force_names_it(call: Call, api: Script) -> None:
    api.on("POST", "/v1/simulate", 200, tried(outcome="filtered", reason_code="filter_false", reason="no"))
    ended = call("events", "test", "triage", "--event", "-", stdin=EVENT)
    assert (ended.code, ended.out) == (0, "evt_example on triage: filtered (filter_false): no\n")
    assert api.asked[0].body == {"event": json.loads(EVENT), "activity": "triage"}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"outcome": "filter_error", "reason": "no such key: open"}, "no such key: open"),
        ({"error": "/tasks/0/params/x: no such key", "missing_context": ["stock"]}, "The run would fail when it is"),
        (
            {
                "invalid": {
                    "on_invalid": "quarantine",
                    "errors": [{"pointer": "/event/data/open", "message": "the value is not of type"}],
                }
            },
            "issue.json:2: /data/open: the value is not of type",
        ),
    ],
    ids=["filter", "plan", "schema"],
)
def test_test_fails_where_the_event_would(call: Call, api: Script, answer: Any, said: str) -> None:
    api.on("POST", "/v1/simulate", 200, tried(**answer))
    ended = call("events", "test", "triage", "--event", "issue.json")
    assert ended.code == 1
    assert said in ended.out + ended.err


@pytest.mark.usefixtures("files")
def test_faults_are_told_in_the_file_they_stand_in(call: Call, api: Script) -> None:
    api.problem(
        *("POST", "/v1/simulate", 422, "invalid_input", "no"),
        ("/definition/trigger/filter", "unknown name"),
        ("/event/data", "too large"),
        ("/context/stock", "what?"),
        ("/activity", "write a slug"),
    )
    ended = call("events", "test", "triage.yaml", "--event", "issue.json", "--context", "context.yaml")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "triage.yaml:6: /trigger/filter: unknown name",
        "issue.json:2: /data: too large",
        "context.yaml:1: /stock: what?",
        "error: /activity: write a slug",
    ]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "arguments",
    [
        ["issue.json", "--event", "issue.json"],
        ["-", "--event", "-"],
        ["triage.yaml", "--event", "none.json"],
    ],
)
def test_files_that_can_not_be_used_are_told_before_anything_is_sent(
    call: Call, api: Script, arguments: list[str]
) -> None:
    ended = call("events", "test", *arguments)
    assert (ended.code, ended.out, api.asked) == (2, "", [])
    assert ended.err.startswith("error: ")


def replayed(*, dry_run: bool, events: int = 3, **counts: int) -> dict[str, Any]:
    counted = {"starts": 2, "reopened": 1, "filtered": 1, "left": 4} | counts
    item = {"activity_id": RUN_ID, "slug": "triage", **counted}
    return {"dry_run": dry_run, "events": events, "by_activity": [item] if events else []}


def test_replay_shows_the_plan_and_replays_a_range(call: Call, api: Script) -> None:
    api.on("POST", MANY, 202, replayed(dry_run=True))
    api.on("POST", MANY, 202, replayed(dry_run=False))
    ended = call("events", "replay", *RANGE, "--type", "order.paid", "--source", "shop", "--limit", "9", "--yes")
    assert ended.code == 0
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines == [
        "ACTIVITY STARTS OF THESE REOPENED FILTERED LEFT AS THEY ARE",
        "triage 2 1 1 4",
        "3 events to route again",
        "3 events routed again",
    ]
    asked = {"from": RANGE[1], "to": RANGE[3], "type": "order.paid", "source": "shop", "limit": 9}
    assert [asked_.body for asked_ in api.asked] == [asked | {"dry_run": True}, asked | {"dry_run": False}]
    assert "`activity-core occurrences`" in ended.err


def test_replay_of_one_event_names_it_in_the_path(call: Call, api: Script) -> None:
    api.on("POST", ONE, 202, replayed(dry_run=True, events=1))
    ended = call("events", "replay", "evt_1", "--activity", "triage", "--dry-run")
    assert ended.code == 0
    assert ended.err == "Dry run: nothing was changed.\n"
    assert [asked.body for asked in api.asked] == [{"activity": "triage", "dry_run": True}]


def test_replay_of_nothing_asks_nothing(call: Call, api: Script) -> None:
    api.on("POST", ONE, 202, replayed(dry_run=True, events=0))
    ended = call("events", "replay", "evt_1", "--yes")
    assert (ended.code, ended.out, len(api.asked)) == (0, "0 events to route again\n", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["evt_1"],
        [*RANGE, "-o", "json"],
        [],
        ["--from", "2026-03-01T00:00:00Z", "--yes"],
        ["evt_1", *RANGE, "--yes"],
        ["evt_1", "--type", "order.paid", "--yes"],
    ],
    ids=" ".join,
)
def test_replay_that_is_not_clear_sends_nothing(call: Call, api: Script, arguments: list[str]) -> None:
    ended = call("events", "replay", *arguments)
    assert (ended.code, ended.out, api.asked) == (2, "", [])


def test_replay_that_got_no_answer_says_that_asking_again_is_safe(call: Call, api: Script) -> None:
    api.problem("POST", ONE, 503, "unavailable", "Postgres does not answer")
    ended = call("events", "replay", "evt_1", "--yes", "-o", "json")
    assert ended.code == 3
    assert "Asking again runs nothing twice." in ended.err


def test_list_asks_for_a_status_and_shows_why(call: Call, api: Script) -> None:
    event = {
        "type": "order.paid",
        "source": "shop",
        "subject": None,
        "status": "quarantined",
        "accepted_at": "2026-03-01T09:00:00.5+00:00",
        "event_id": "evt_1",
        "dead_letter_reason": None,
        "quarantine_reason": "its data is not what …",
    }
    api.on("GET", "/v1/events", 200, {"items": [event], "next_cursor": None})
    ended = call("events", "list", "--status", "quarantined", "--source", "shop", *RANGE)
    assert ended.out.splitlines()[0].split()[-1] == "REASON"
    assert ended.out.splitlines()[1].endswith("its data is not what …")
    asked = {"status": "quarantined", "source": "shop", "from": RANGE[1], "to": RANGE[3], "limit": "20"}
    assert api.asked[0].query == asked


def test_send_says_that_an_event_is_kept_back(call: Call, api: Script) -> None:
    api.on("POST", "/v1/events", 202, {"id": RUN_ID, "event_id": "e", "status": "accepted", "quarantined": True})
    ended = call("events", "send", "order.paid")
    assert ended.out == "event e accepted\n"
    assert "`events replay` lets it through" in ended.err


def test_types_are_listed(call: Call, api: Script) -> None:
    item = {
        "type": "order.paid",
        "description": "An order",
        "on_invalid": None,
        "has_schema": False,
        "count_24h": 12,
        "last_accepted_at": "2026-03-01T09:00:00+00:00",
    }
    api.on("GET", "/v1/events/types", 200, {"items": [item], "next_cursor": "order.paid"})
    ended = call("events", "types", "list", "--prefix", "order.")
    assert ended.out.splitlines()[1].split() == [
        *("order.paid", "no", "-", "12", "2026-03-01T09:00:00Z", "An", "order"),
    ]
    assert ended.err == "There are more: --cursor order.paid\n"
    assert api.asked[0].query == {"prefix": "order.", "limit": "50"}


def test_a_type_is_declared_from_a_file_shown_and_removed(call: Call, api: Script) -> None:
    Path("type.yaml").write_text("description: An order\nschema:\n  type: object\n")
    path = "/v1/events/types/order.paid%2Feu"
    api.on("PUT", path, 201, {"type": "order.paid/eu", "revision": 1})
    api.on("PUT", path, 200, {"type": "order.paid/eu", "revision": 1})
    api.on("GET", path, 200, b'{"odd":  "spacing"}')
    api.on("DELETE", path, 204, b"")
    put = ("events", "types", "put", "order.paid/eu", "-f", "type.yaml")
    assert call(*put).out == "event type order.paid/eu declared, revision 1\n"
    assert call(*put).out == "event type order.paid/eu is declared, revision 1\n"
    assert api.asked[0].body == {"description": "An order", "schema": {"type": "object"}}
    assert call("events", "types", "get", "order.paid/eu").out == '{"odd":  "spacing"}\n'
    assert call("events", "types", "delete", "order.paid/eu").out.endswith("is not declared any more\n")


def test_faults_of_a_schema_are_told_with_their_line(call: Call, api: Script) -> None:
    Path("type.yaml").write_text("description: An order\nschema:\n  type: objekt\n")
    faults = (("/schema/type", "write one of …"), ("/path/type", "an event type is …"))
    api.problem("PUT", "/v1/events/types/a..b", 422, "invalid_input", "no", *faults)
    ended = call("events", "types", "put", "a..b", "-f", "type.yaml")
    assert (ended.code, ended.err) == (
        1,
        "type.yaml:3: /schema/type: write one of …\nerror: an event type is …\n",
    )


def test_sources_are_listed_with_what_troubles_them(call: Call, api: Script) -> None:
    source = {
        "slug": "github",
        "scheme": "github",
        "secrets": [{"name": "GITHUB", "fingerprint": "0123abcd"}, {"name": None, "fingerprint": "4567abcd"}],
        "trouble": ["the secret GITHUB is not set"],
        "revision": 2,
        "webhook_path": "/v1/webhooks/github",
    }
    api.on("GET", "/v1/sources", 200, {"items": [source], "next_cursor": None})
    ended = call("sources", "list")
    assert ended.out.splitlines()[1].split() == [
        *("github", "github", "GITHUB,", "4567abcd", "2", "/v1/webhooks/github"),
    ]
    assert ended.err == "warning: github: the secret GITHUB is not set\n"


def test_a_source_is_shown_as_a_document_with_its_secrets_told_apart(call: Call, api: Script) -> None:
    source = {
        "id": "550e8400-e29b-41d4-a716-446655440000",
        "slug": "hub",
        "secrets": [{"name": "HUB", "fingerprint": "0123abcd"}, {"name": None, "fingerprint": "4567abcd"}],
        "trouble": ["the secret HUB is not set"],
        "revision": 2,
        "webhook_path": "/v1/webhooks/hub",
        "spec": {
            "rate_per_second": 5,
            "type": [{"header": "X-Type"}],
            "slug": "hub",
            "scheme": "github",
            "kind": "Source",
        },
    }
    api.on("GET", "/v1/sources/hub", 200, source)
    ended = call("sources", "get", "hub")
    assert ended.out.splitlines() == [
        "# id 550e8400-e29b-41d4-a716-446655440000, revision 2, webhooks to /v1/webhooks/hub",
        "# secrets, which stay when this is applied: HUB, sealed 4567abcd",
        *("kind: Source", "slug: hub", "type:", "  - header: X-Type", "scheme: github", "rate_per_second: 5"),
    ]
    assert ended.err == "warning: hub: the secret HUB is not set\n"


def test_requests_of_a_source_are_listed_with_what_became_of_them(call: Call, api: Script) -> None:
    request = {
        "received_at": "2026-03-01T09:00:00.5+00:00",
        "result": "rejected",
        "reason_code": "bad_signature",
        "reason": "the signature does not match",
        "status": 401,
        "event_type": None,
        "external_id": None,
        "size_bytes": 12,
        "user_agent": "\x1b[2Jcurl",
    }
    api.on("GET", "/v1/sources/github/requests", 200, {"items": [request], "next_cursor": None})
    ended = call("sources", "requests", "github", "--result", "rejected", "--reason", "bad_signature", *RANGE)
    assert "\x1b" not in ended.out
    assert ended.out.splitlines()[1].split()[:4] == ["2026-03-01T09:00:00Z", "rejected", "bad_signature", "401"]
    asked = {"result": "rejected", "reason_code": "bad_signature", "from": RANGE[1], "to": RANGE[3], "limit": "20"}
    assert api.asked[0].query == asked


@pytest.mark.parametrize(
    ("arguments", "method", "path"),
    [
        (["events", "test", "triage", "--event", "issue.json"], "POST", "/v1/simulate"),
        (["events", "replay", "evt_1", "--dry-run"], "POST", ONE),
        (["events", "types", "list"], "GET", "/v1/events/types"),
        (["events", "types", "put", "a.b", "-f", "context.yaml"], "PUT", "/v1/events/types/a.b"),
        (["sources", "list"], "GET", "/v1/sources"),
        (["sources", "get", "github"], "GET", "/v1/sources/github"),
        (["sources", "requests", "github"], "GET", "/v1/sources/github/requests"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("files")
def test_output_json_is_the_answer_unchanged(
    call: Call, api: Script, arguments: list[str], method: str, path: str
) -> None:
    body = json.dumps(tried() | {"items": []}).replace(", ", ",  ").encode()
    api.on(method, path, 200, body)
    ended = call(*arguments, "-o", "json")
    assert (ended.code, ended.out, ended.err) == (0, body.decode() + "\n", "")
