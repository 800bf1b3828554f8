"""Freezes from the command line."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.scripted import Script

FREEZE_ID = "44444444-4444-4444-4444-444444444444"
FREEZES = "/v1/freezes"
FREEZE = f"{FREEZES}/{FREEZE_ID}"


def _freeze(**values: Any) -> dict[str, Any]:
    freeze = {
        "id": FREEZE_ID,
        "selector": "team=ops",
        "note": None,
        "from": "2026-03-01T09:00:00+00:00",
        "until": None,
        "ended_at": None,
        "active": True,
        "on_misfire": "policy",
        "events": "run",
        "created_at": "2026-03-01T09:00:00+00:00",
        "matches": 3,
    }
    return freeze | values


def test_create_says_what_is_held_and_how_to_end_it(call: Call, api: Script) -> None:
    api.on("POST", FREEZES, 201, _freeze())
    ended = call("freeze", "create", "--selector", "team=ops")
    assert (ended.code, ended.out) == (0, f"freeze {FREEZE_ID} active; team=ops matches 3 activities\n")
    assert ended.err == f"It holds them until `activity-core freeze end {FREEZE_ID}`.\n"
    assert api.asked[0].body == {"selector": "team=ops"}


def test_create_sends_instants_as_given(call: Call, api: Script) -> None:
    begins = datetime.now(UTC) + timedelta(days=2)
    ends = begins + timedelta(days=1)
    api.on("POST", FREEZES, 201, _freeze(**{"from": begins.isoformat()}, until=ends.isoformat(), active=False))
    sent = {
        "selector": "env=prod,team!=sre",
        "from": "2026-12-24T00:00:00",
        "until": "2026-12-27T00:00:00+01:00",
        "note": "holidays",
        "on_misfire": "catchup",
        "events": "skip",
    }
    options = [part for name, value in sent.items() for part in (f"--{name.replace('_', '-')}", value)]
    ended = call("freeze", "create", *options)
    assert ended.out == f"freeze {FREEZE_ID} planned; team=ops matches 3 activities\n"
    assert not ended.err
    assert api.asked[0].body == sent


def test_create_warns_when_nothing_matches(call: Call, api: Script) -> None:
    api.on("POST", FREEZES, 201, _freeze(matches=0))
    ended = call("freeze", "create", "--selector", "team=ops")
    assert ended.out == f"freeze {FREEZE_ID} active; team=ops matches 0 activities\n"
    assert f"No activity has these labels. Take it back with `activity-core freeze end {FREEZE_ID}`." in ended.err


def test_create_that_got_no_answer_says_where_to_look(call: Call, api: Script) -> None:
    api.problem("POST", FREEZES, 503, "unavailable", "Postgres does not answer")
    ended = call("freeze", "create", "--selector", "team=ops")
    assert ended.code == 3
    assert "See `activity-core freeze list` before asking again." in ended.err


def test_list_shows_which_hold_now(call: Call, api: Script) -> None:
    past, future = "2026-03-01T09:00:00+00:00", (datetime.now(UTC) + timedelta(days=1)).isoformat()
    freezes = [
        _freeze(**{"from": future}, active=False),
        _freeze(note="stocktaking"),
        _freeze(until=past, active=False),
        _freeze(until=future, ended_at=past, active=False),
        _freeze(**{"from": future}, ended_at=past, active=False),
    ]
    api.on("GET", FREEZES, 200, {"items": freezes, "next_cursor": "more"})
    ended = call("freeze", "list", "--limit", "5", "--cursor", "c")
    lines = ended.out.splitlines()
    assert lines[0].split()[:4] == ["SELECTOR", "STATE", "FROM", "UNTIL"]
    assert [line.split()[1] for line in lines[1:]] == ["planned", "active", "ended", "ended", "ended"]
    assert lines[4].split()[3] == "2026-03-01T09:00:00Z"
    assert "  stocktaking  " in lines[2]
    assert all(line.endswith(FREEZE_ID) for line in lines[1:])
    assert ended.err == "There are more: --cursor more\n"
    assert api.asked[0].query == {"limit": "5", "cursor": "c"}


def test_end_says_where_to_see_what_became_of_the_times(call: Call, api: Script) -> None:
    api.on("DELETE", FREEZE, 200, _freeze(active=False, ended_at="2026-03-01T10:00:00+00:00", matches=1))
    ended = call("freeze", "end", FREEZE_ID)
    assert (ended.code, ended.out) == (0, f"freeze {FREEZE_ID} ended; team=ops matches 1 activity\n")
    assert "`activity-core occurrences --selector 'team=ops'`" in ended.err


@pytest.mark.parametrize(
    ("arguments", "method", "path"),
    [
        (["create", "--selector", "team=ops"], "POST", FREEZES),
        (["list"], "GET", FREEZES),
        (["end", FREEZE_ID], "DELETE", FREEZE),
    ],
)
def test_output_json_is_the_answer_unchanged(
    call: Call, api: Script, arguments: list[str], method: str, path: str
) -> None:
    body = b'{"items":[], "odd":  "spacing"}'
    api.on(method, path, 200, body)
    ended = call("freeze", *arguments, "-o", "json")
    assert (ended.code, ended.out, ended.err) == (0, body.decode() + "\n", "")


def test_unknown_freeze_is_told(call: Call, api: Script) -> None:
    api.problem("DELETE", FREEZE, 404, "not_found", "there is no such freeze")
    ended = call("freeze", "end", FREEZE_ID)
    assert (ended.code, ended.err) == (1, "error: there is no such freeze (not_found)\n")
