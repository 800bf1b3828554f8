"""`simulate`: what is asked of the API for a file and for an activity, how the answer is told, and where faults are."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call
from tests.cli.scripted import Script

DIGEST = """\
api_version: activity-core/v1
kind: Activity
slug: digest
trigger:
  type: cron
  cron: "* * * * *"
  timezone: UTC
"""
TRIGGER = {"type": "cron", "cron": "* * * * *", "timezone": "UTC"}
RANGE = ("--from", "2026-03-01T10:00:00Z", "--to", "2026-03-02T10:03:00Z")
SPAN = "2026-03-01T10:00:30Z/2026-03-02T10:01:30Z"
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


def minute(number: int) -> str:
    return (TEN + timedelta(minutes=number)).isoformat()


def row(number: int, outcome: str, reason_code: str, merged_into: int | None = None) -> dict[str, Any]:
    into = None if merged_into is None else minute(merged_into)
    return {"scheduled_for": minute(number), "outcome": outcome, "reason_code": reason_code, "merged_into": into}


def run(number: int, *, started: str | None = None, count: int = 1) -> dict[str, Any]:
    return {
        "scheduled_for": minute(number),
        "started_at": started or minute(number),
        "window": {"start": minute(number - count), "end": minute(number)},
        "covers": {"first": minute(number - count + 1), "last": minute(number), "count": count},
    }


def answer(*rows: dict[str, Any], runs: list[dict[str, Any]], notices: tuple[str, ...] = ()) -> dict[str, Any]:
    told = [{"code": "cron_warning", "pointer": "/trigger/cron", "message": message} for message in notices]
    return {"description": "every minute, UTC time", "notices": told, "occurrences": list(rows), "runs": runs}


def day_out(policy: str) -> dict[str, Any]:
    """10:00 runs, the 1,440 times after it are misfired, two more run."""
    late = "2026-03-02T10:01:30+00:00"
    misfired = {
        "skip": [row(n, "skipped", "late") for n in range(1, 1441)],
        "catchup": [
            *(row(n, "dropped", "over_limit") for n in range(1, 1431)),
            *(row(n, "started", "late") for n in range(1431, 1441)),
        ],
        "compress": [*(row(n, "merged", "compressed", 1440) for n in range(1, 1440)), row(1440, "started", "late")],
    }[policy]
    recovered = {
        "skip": [],
        "catchup": [run(n, started=late) for n in range(1431, 1441)],
        "compress": [run(1440, started=late, count=1440)],
    }[policy]
    kept = [row(n, "started", "on_time") for n in (1441, 1442)]
    runs = [run(0), *recovered, run(1441, started=late), run(1442)]
    return answer(row(0, "started", "on_time"), *misfired, *kept, runs=runs)


@pytest.fixture
def digest(call: Call) -> str:
    Path("digest.yaml").write_text(DIGEST)
    return "digest.yaml"


def test_a_file_and_the_options_are_asked_as_one_question(call: Call, api: Script, digest: str) -> None:
    api.on("POST", "/v1/simulate", 200, day_out("skip"))
    spans = ("--outage", SPAN, "--outage", f"{SPAN}:overload", "--pause", SPAN, "--pause", f"{SPAN}:catchup")
    assert call("simulate", digest, *RANGE, *spans, "--run-seconds", "90", "--policy", "skip").code == 0
    span = {"from": "2026-03-01T10:00:30Z", "to": "2026-03-02T10:01:30Z"}
    assert api.asked[0].body == {
        "trigger": {**TRIGGER, "misfire_policy": "skip"},
        "from": "2026-03-01T10:00:00Z",
        "to": "2026-03-02T10:03:00Z",
        "run_seconds": 90,
        "outages": [span, {**span, "cause": "overload"}],
        "pauses": [span, {**span, "on_misfire": "catchup"}],
    }
    assert call("simulate", "-", *RANGE, stdin=DIGEST).code == 0
    assert api.asked[1].body["trigger"] == TRIGGER


def test_an_activity_is_simulated_as_it_is_in_force(call: Call, api: Script) -> None:
    api.on("GET", "/v1/activities/digest", 200, {"effective": {"trigger": {**TRIGGER, "misfire_policy": "skip"}}})
    api.on("POST", "/v1/simulate", 200, day_out("skip"))
    assert call("simulate", "digest", *RANGE).code == 0
    assert api.asked[1].body["trigger"] == {**TRIGGER, "misfire_policy": "skip"}


def test_instants_with_offsets_are_no_causes(call: Call, api: Script, digest: str) -> None:
    api.on("POST", "/v1/simulate", 200, day_out("skip"))
    given = ("2026-03-01T10:00:00+01:00/2026-03-01T11:00+01:00", "2026-03-01T10Z/2026-03-01T11Z:worker_down")
    assert call("simulate", digest, *RANGE, "--outage", given[0], "--outage", given[1]).code == 0
    assert api.asked[0].body["outages"] == [
        {"from": "2026-03-01T10:00:00+01:00", "to": "2026-03-01T11:00+01:00"},
        {"from": "2026-03-01T10Z", "to": "2026-03-01T11Z", "cause": "worker_down"},
    ]


def test_long_series_are_told_in_one_line_and_late_runs_one_by_one(call: Call, api: Script, digest: str) -> None:
    api.on("POST", "/v1/simulate", 200, day_out("catchup"))
    lines = call("simulate", digest, *RANGE, "--outage", SPAN).out.splitlines()
    assert lines[0] == "Due every minute, UTC time: 1,443 times in the range, 13 runs."
    assert [line.split() for line in lines[3:6]] == [
        ["started", "on_time", "3"],
        ["dropped", "over_limit", "1,430"],
        ["started", "late", "10"],
    ]
    timeline = lines[8:]
    assert len(timeline) == 14
    assert "2026-03-01T10:01:00Z … 2026-03-02T09:50:00Z  1,430 times dropped (over_limit)" in timeline[1]
    assert timeline[2].split("  ")[0] == "2026-03-02T09:51:00Z"
    assert "started (late)" in timeline[2]
    assert "2026-03-02T10:01:30Z  2026-03-02T09:50:00Z – 2026-03-02T09:51:00Z  1" in timeline[2]


def test_a_compressed_run_says_what_it_covers(call: Call, api: Script, digest: str) -> None:
    api.on("POST", "/v1/simulate", 200, day_out("compress"))
    lines = call("simulate", digest, *RANGE).out.splitlines()
    assert "1,439 times merged (compressed) into 2026-03-02T10:00:00Z" in lines[9]
    assert lines[10].endswith("2026-03-01T10:00:00Z – 2026-03-02T10:00:00Z  1,440")


def test_policies_are_compared_side_by_side(call: Call, api: Script, digest: str) -> None:
    for policy in ("skip", "catchup", "compress"):
        api.on("POST", "/v1/simulate", 200, day_out(policy))
    ended = call("simulate", digest, *RANGE, "--compare")
    assert [asked.body["trigger"]["misfire_policy"] for asked in api.asked] == ["skip", "catchup", "compress"]
    lines = [[cell for cell in line.split("  ") if cell] for line in ended.out.splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert cells[2:9] == [
        ["TIMES", "SKIP", "CATCHUP", "COMPRESS"],
        ["runs", "3", "13", "4"],
        ["started (on_time)", "3", "3", "3"],
        ["skipped (late)", "1,440", "-", "-"],
        ["dropped (over_limit)", "-", "1,430", "-"],
        ["started (late)", "-", "10", "1"],
        ["merged (compressed)", "-", "-", "1,439"],
    ]
    late, merged = "started (late)", "merged (compressed)"
    assert [line[1:] for line in cells[11:15]] == [
        ["1", *["started (on_time)"] * 3],
        ["1,430", "skipped (late)", "dropped (over_limit)", merged],
        ["9", "skipped (late)", late, merged],
        ["1", "skipped (late)", late, late],
    ]


def test_json_is_the_answer_and_with_compare_one_for_each_policy(call: Call, api: Script, digest: str) -> None:
    api.on("POST", "/v1/simulate", 200, b'{"odd":  "spacing"}')
    assert call("simulate", digest, *RANGE, "-o", "json").out == '{"odd":  "spacing"}\n'
    compared = call("simulate", digest, *RANGE, "--compare", "-o", "json")
    assert compared.json == {policy: {"odd": "spacing"} for policy in ("skip", "catchup", "compress")}


def test_what_still_waits_and_notices_are_told_beside_the_answer(call: Call, api: Script, digest: str) -> None:
    waiting = answer(row(0, "waiting", "due"), row(1, "waiting", "due"), runs=[], notices=("It is every day.",))
    api.on("POST", "/v1/simulate", 200, waiting)
    ended = call("simulate", digest, *RANGE)
    assert ended.err.splitlines() == [
        "Note: It is every day.",
        "2 times would still wait at the end of the range: a later --to shows what becomes of them.",
    ]
    api.answers.clear()
    api.on("POST", "/v1/simulate", 200, answer(runs=[], notices=("no time is due in the range",)))
    ended = call("simulate", digest, *RANGE)
    assert ended.out == "Due every minute, UTC time: 0 times in the range, 0 runs.\n"
    assert ended.err == "Note: no time is due in the range\n"


def test_a_timeline_of_many_lines_is_cut(call: Call, api: Script, digest: str) -> None:
    changing = [row(n, "started" if n % 2 else "skipped", "x") for n in range(60)]
    api.on("POST", "/v1/simulate", 200, answer(*changing, runs=[]))
    assert call("simulate", digest, *RANGE).err == "10 more lines are left out; -o json has all.\n"


def test_faults_are_told_where_they_were_written(call: Call, api: Script, digest: str) -> None:
    faults = [
        ("/trigger/timezone", "write `Europe/Berlin`"),
        ("/to", "is not after 'from'"),
        ("/outages/1/to", "is not after its 'from'"),
        ("/run_seconds", "write 0 or more"),
    ]
    api.problem("POST", "/v1/simulate", 422, "invalid_input", "no", *faults)
    ended = call("simulate", digest, *RANGE, "--outage", "a/b", "--outage", f"{SPAN}:overload")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "digest.yaml:7: /trigger/timezone: write `Europe/Berlin`",
        "error: --to: is not after 'from'",
        f"error: --outage {SPAN}:overload: is not after its 'from'",
        "error: --run-seconds: write 0 or more",
    ]
    api.on("GET", "/v1/activities/digest", 200, {"effective": {"trigger": {"type": "manual"}}})
    ended = call("simulate", "digest", *RANGE)
    assert ended.err.splitlines()[0] == "error: /trigger/timezone: write `Europe/Berlin`"


def test_other_refusals_are_told_as_everywhere(call: Call, api: Script, digest: str) -> None:
    api.problem("POST", "/v1/simulate", 503, "unavailable", "4 simulations are under way")
    ended = call("simulate", digest, *RANGE)
    assert (ended.code, ended.err) == (3, "error: 4 simulations are under way (unavailable)\n")
    api.problem("GET", "/v1/activities/nope", 404, "not_found", "there is no activity 'nope'")
    assert call("simulate", "nope", *RANGE).err == "error: there is no activity 'nope' (not_found)\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--outage", "2026-03-01T10:00:00Z"), "--outage must read like"),
        (("--pause", "a/b/c"), "--pause must read like"),
        (("--policy", "skip", "--compare"), "--policy or --compare, not both"),
        (("--policy", "burst"), "--policy"),
        (("--run-seconds", "-1"), "--run-seconds"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    call: Call, api: Script, digest: str, arguments: tuple[str, ...], told: str
) -> None:
    ended = call("simulate", digest, *RANGE, *arguments)
    assert ended.code == 2
    assert told in ended.err
    assert not api.asked


def test_a_file_must_define_one_activity(call: Call, api: Script) -> None:
    Path("two.yaml").write_text(f"{DIGEST}---\n{DIGEST.replace('digest', 'other')}")
    Path("none.yaml").write_text("kind: Consumer\nslug: mailer\n")
    ended = call("simulate", "two.yaml", *RANGE)
    assert (ended.code, "2 activities (digest, other)" in ended.err) == (2, True)
    ended = call("simulate", "none.yaml", *RANGE)
    assert (ended.code, ended.err) == (2, "error: none.yaml defines no activity\n")
    ended = call("simulate", "missing.yaml", *RANGE)
    assert (ended.code, ended.err) == (2, "error: there is no file or directory missing.yaml\n")
    assert not api.asked
