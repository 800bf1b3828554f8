"""init, apply and get: what is read, what is sent, and what is said when it is refused."""

from pathlib import Path

import pytest

from activity_core.commands.files import read_documents
from activity_core.domain.reading import read_document
from tests.cli.conftest import Call
from tests.cli.scripted import Script

EXAMPLES = Path(__file__).parents[2] / "examples"
APPLIED = {
    "dry_run": False,
    "documents": [
        {"kind": "Activity", "slug": "one", "change": "created", "revision": 1},
        {"kind": "Consumer", "slug": "two", "change": "unchanged", "revision": 3},
    ],
}


def test_init_writes_a_definition_that_is_valid_and_says_what_is_next(call: Call, tmp_path: Path) -> None:
    ended = call("init", "my/definitions")
    assert ended.code == 0
    path = "my/definitions/heartbeat.yaml"
    assert f"activity-core apply -f {path}" in ended.out
    [document] = read_documents([path])
    activity = read_document(document.value)
    assert activity.slug == "heartbeat"
    assert (tmp_path / path).read_text() == (EXAMPLES / "heartbeat.yaml").read_text()


def test_init_overwrites_nothing(call: Call, tmp_path: Path) -> None:
    (tmp_path / "heartbeat.yaml").write_text("mine")
    ended = call("init")
    assert ended.code == 1
    assert "heartbeat.yaml is there already" in ended.err
    assert (tmp_path / "heartbeat.yaml").read_text() == "mine"


def test_examples_are_valid_and_directory_is_read_without_what_is_inside_its_directories(call: Call) -> None:
    documents = read_documents([str(EXAMPLES)])
    assert {read_document(document.value).slug for document in documents} == {
        "heartbeat",
        "github-issues",
        "digest",
        "mailer",
    }


def test_apply_sends_every_document_of_every_file_in_order(call: Call, api: Script, tmp_path: Path) -> None:
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs/b.yaml").write_text("slug: b1\nwhen: 2026-03-01\n---\nslug: b2\non: yes\n")
    (tmp_path / "defs/a.json").write_text('[{"slug": "a1"}, {"slug": "a2"}]')
    (tmp_path / "defs/notes.txt").write_text("not: read")
    (tmp_path / "bom.yml").write_bytes(b"\xef\xbb\xbfslug: c\n")
    api.on("POST", "/v1/apply", 200, APPLIED)

    ended = call("apply", "-f", "defs", "-f", "bom.yml", "-f", "-", "-f", "defs/b.yaml", stdin="slug: d\n")

    assert ended.code == 0
    assert api.asked[0].body == {
        "documents": [
            {"slug": "a1"},
            {"slug": "a2"},
            {"slug": "b1", "when": "2026-03-01"},
            {"slug": "b2", "on": "yes"},
            {"slug": "c"},
            {"slug": "d"},
        ],
        "dry_run": False,
    }
    assert [line.split() for line in ended.out.splitlines()] == [
        ["KIND", "SLUG", "CHANGE", "REVISION"],
        ["Activity", "one", "created", "1"],
        ["Consumer", "two", "unchanged", "3"],
    ]


def test_dry_run_is_asked_for_and_said(call: Call, api: Script, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("slug: a\n")
    api.on("POST", "/v1/apply", 200, {**APPLIED, "dry_run": True})
    ended = call("apply", "-f", "a.yaml", "--dry-run")
    assert api.asked[0].body["dry_run"] is True
    assert "nothing was changed" in ended.err


def test_faults_of_the_api_are_shown_at_their_line(call: Call, api: Script, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "slug: a\n---\nslug: b\ntrigger:\n  type: cron\n  cron: bad\ntasks:\n  - params: {}\n"
    )
    (tmp_path / "c.json").write_text('{\n  "slug": "c",\n  "a/b": 1\n}')
    api.problem(
        "POST",
        "/v1/apply",
        422,
        "invalid_input",
        "…",
        ("/documents/1/trigger/cron", "write five fields"),
        ("/documents/1/trigger/timezone", "is required"),
        ("/documents/1/tasks/0/task_type", "is required"),
        ("/documents/2/a~1b", "unknown field"),
        ("/documents/0", "is wrong as a whole"),
        ("/documents/2/slug", "'c' is there already, at /documents/1"),
    )
    ended = call("apply", "-f", "a.yaml", "-f", "c.json")
    assert ended.code == 1
    assert not ended.out
    assert ended.err.splitlines() == [
        "a.yaml:1: /: is wrong as a whole",
        "a.yaml:4: /trigger/timezone: is required",
        "a.yaml:6: /trigger/cron: write five fields",
        "a.yaml:8: /tasks/0/task_type: is required",
        "c.json:2: /slug: 'c' is there already, at a.yaml:3",
        "c.json:3: /a~1b: unknown field",
        "Nothing was applied.",
    ]


def test_problem_that_is_no_fault_of_a_document_is_shown_as_it_came(call: Call, api: Script, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("slug: a\n")
    api.problem("POST", "/v1/apply", 422, "invalid_input", "too many", ("/documents", "1000 documents at most"))
    ended = call("apply", "-f", "a.yaml")
    assert ended.code == 1
    assert ended.err.splitlines() == ["error: too many (invalid_input)", "  /documents: 1000 documents at most"]


def test_faults_of_files_are_all_named_and_nothing_is_sent(call: Call, api: Script, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("slug: a\nslug: b\n")
    (tmp_path / "b.json").write_text('{"slug": }')
    (tmp_path / "c.yaml").write_text("slug: fine\n")
    ended = call("apply", "-f", ".")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "a.yaml:2: /slug: the key 'slug' is there already",
        "b.json:1: /: not JSON: Expecting value",
        "Nothing was applied.",
    ]
    assert api.asked == []


@pytest.mark.parametrize(
    ("arguments", "files", "code", "said"),
    [
        (["-f", "nowhere.yaml"], {}, 2, "there is no file or directory nowhere.yaml"),
        (["-f", "."], {"a.txt": b""}, 2, ". has no .yaml, .yml, .json file"),
        (["-f", "a.yaml"], {"a.yaml": b"# nothing\n"}, 2, "no documents in a.yaml"),
        (["-f", "a.yaml"], {"a.yaml": b"slug: \xff\n"}, 1, "a.yaml is not UTF-8 (byte 6)"),
    ],
)
def test_files_that_are_not_there_or_hold_nothing(
    call: Call, tmp_path: Path, arguments: list[str], files: dict[str, bytes], code: int, said: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    ended = call("apply", *arguments)
    assert ended.code == code
    assert said in ended.err


SPEC = {
    "api_version": "activity-core/v1",
    "kind": "Activity",
    "slug": "nightly",
    "description": "line one\nline two: with colon\n",
    "labels": {"on": "yes", "n": "012"},
    "trigger": {"type": "cron", "cron": "0 3 * * *", "timezone": "UTC", "misfire_policy": "skip"},
    "tasks": [
        {"task_type": "t", "params": {"at": "2026-03-01", "n": 1.5, "none": None, "text": "${ a }", "no": "1e3"}}
    ],
}


def _activity(slug: str, trigger: dict[str, object], **more: object) -> dict[str, object]:
    return {
        "id": f"00000000-0000-0000-0000-{len(slug):012}",
        "slug": slug,
        "revision": 2,
        "state": {"enabled": True},
        "spec": SPEC,
        "effective": {"trigger": trigger},
        "schedule": {"sync": "in_sync", "next": "2026-03-01T03:00:00+00:00", "error": None},
        **more,
    }


def test_get_shows_a_definition_that_can_be_applied_again(call: Call, api: Script, tmp_path: Path) -> None:
    api.on("GET", "/v1/activities/nightly", 200, _activity("nightly", SPEC["trigger"]))  # type: ignore[arg-type]
    ended = call("get", "nightly")
    (tmp_path / "again.yaml").write_text(ended.out)
    [document] = read_documents(["again.yaml"])
    assert document.value == SPEC
    assert [line.partition(":")[0] for line in ended.out.splitlines()[1:4]] == ["api_version", "kind", "slug"]


def test_get_lists_activities(call: Call, api: Script) -> None:
    items = [
        _activity("nightly", {"type": "cron", "cron": "0 3 * * *", "timezone": "UTC"}),
        _activity("paid", {"type": "event", "event_types": ["a.b", "c.*"]}, state={"enabled": False}, schedule={}),
        _activity("by-hand", {"type": "manual"}, schedule=None),
    ]
    held = {"enabled": True, "paused": True, "until": None, "note": "moving\nout", "paused_at": None, "freezes": ["f"]}
    until = {**held, "until": "2026-03-02T06:00:00+00:00", "note": "n" * 50, "freezes": []}
    items += [
        _activity("quarter", {"type": "interval", "every_seconds": 900}, state=held),
        _activity("daily", {"type": "interval", "every_seconds": 86_400}, state={**until, "enabled": False}),
        _activity("newyear", {"type": "once", "at": "2027-01-01T00:00:00+00:00"}, state={**held, "paused": False}),
    ]
    api.on("GET", "/v1/activities", 200, {"items": items, "next_cursor": "abc"})
    ended = call("get", "--limit", "3", "--selector", "team=ops")
    assert api.asked[0].query == {"limit": "3", "selector": "team=ops"}
    lines = ended.out.splitlines()
    assert lines[0].split() == ["SLUG", "TRIGGER", "STATE", "REVISION", "NEXT", "DUE", "ID"]
    assert 'nightly  cron "0 3 * * *" UTC' in lines[1]
    assert "2026-03-01T03:00:00Z" in lines[1]
    assert "event a.b, c.*" in lines[2]
    assert "disabled" in lines[2]
    assert [part.strip() for part in lines[4].split("  ") if part][1:3] == [
        "every 15 minutes",
        r"paused (moving\nout), frozen",
    ]
    assert "every day" in lines[5]
    assert f"disabled, paused until 2026-03-02T06:00:00Z ({'n' * 39}…)" in lines[5]
    assert "once 2027-01-01T00:00:00Z" in lines[6]
    assert "  frozen  " in lines[6]
    assert "--cursor abc" in ended.err


def test_get_of_one_takes_no_selector(call: Call, api: Script) -> None:
    ended = call("get", "nightly", "--selector", "team=ops")
    assert (ended.code, api.asked) == (2, [])
    assert "not both" in ended.err


def test_get_of_one_tells_in_comments_what_holds_it(call: Call, api: Script, tmp_path: Path) -> None:
    state = {"enabled": True, "paused": True, "note": "a: b\nc: d", "until": None, "freezes": ["f1", "f2"]}
    state["paused_at"] = "2026-03-01T03:00:00.123+00:00"
    api.on("GET", "/v1/activities/nightly", 200, _activity("nightly", {}, state=state))
    ended = call("get", "nightly")
    assert ended.out.splitlines()[1:3] == [
        r"# paused since 2026-03-01T03:00:00Z: a: b\nc: d",
        "# frozen by f1, f2",
    ]
    (tmp_path / "again.yaml").write_text(ended.out)
    assert read_documents(["again.yaml"])[0].value == SPEC


def test_get_writes_a_trigger_in_the_order_in_which_people_do(call: Call, api: Script) -> None:
    trigger = {
        "type": "interval",
        "every_seconds": 900,
        "anchor": "2026-03-01T00:00:00Z",
        "start_at": "2026-03-01T00:00:00Z",
        "end_at": "2026-03-02T00:00:00Z",
        "jitter_seconds": 5,
        "misfire_policy": "catchup",
        "misfire_grace_seconds": 60,
        "catchup_limit": 10,
        "overlap_policy": "allow_all",
        "late_after_seconds": 300,
    }
    shuffled = dict(sorted(trigger.items()))
    api.on("GET", "/v1/activities/a", 200, _activity("a", trigger, spec={"slug": "a", "trigger": shuffled}))
    lines = call("get", "a").out.splitlines()
    assert [line.strip().partition(":")[0] for line in lines[3:]] == list(trigger)


def test_apply_warns_of_what_is_taken_all_the_same(call: Call, api: Script, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("slug: one\n")
    notice = {"code": "cron_warning", "pointer": "/trigger/cron", "message": "this is every weekday"}
    documents = [{**APPLIED["documents"][0], "notices": [notice]}]  # type: ignore[index]
    api.on("POST", "/v1/apply", 200, {"dry_run": False, "documents": documents})
    ended = call("apply", "-f", "a.yaml")
    assert (ended.code, "warning" in ended.out) == (0, False)
    assert ended.err.splitlines() == ["warning: one: /trigger/cron: this is every weekday"]
