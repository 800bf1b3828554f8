"""POST /v1/simulate: what is answered for which range, what is refused and where, and that it stays bounded.

The application has no Postgres here: a simulation reads and stores nothing.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import pytest

from activity_core.api.app import create_app
from activity_core.services.simulating import MAX_IN_LINE
from activity_core.settings import Settings
from activity_core.store.database import Database

MINUTELY = {"type": "cron", "cron": "* * * * *", "timezone": "UTC"}
DAY_OUT = {"from": "2026-03-01T10:00:30Z", "to": "2026-03-02T10:01:30Z"}


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(database_url="postgresql://nobody@127.0.0.1:1/none", temporal_address="127.0.0.1:1")
    app = create_app(settings, Database(settings.asyncpg_url, pool_size=1, application_name="test-simulate"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api.test") as client:
        yield client


async def simulation(http: httpx.AsyncClient, trigger: dict[str, Any], start: str, end: str, **more: Any) -> Any:
    answer = await http.post("/v1/simulate", json={"trigger": trigger, "from": start, "to": end, **more})
    assert answer.status_code == 200, answer.text[:1_000]
    return answer.json()


async def refusal(http: httpx.AsyncClient, **changes: Any) -> dict[str, str]:
    """The messages by pointer for a good body with these changes; None leaves a field out."""
    body = {"trigger": MINUTELY, "from": "2026-03-01T10:00:00Z", "to": "2026-03-01T11:00:00Z", **changes}
    answer = await http.post("/v1/simulate", json={name: value for name, value in body.items() if value is not None})
    assert answer.status_code == 422, answer.text[:1_000]
    assert answer.json()["code"] == "invalid_input"
    return {fault["pointer"]: fault["message"] for fault in answer.json()["errors"]}


def rows(answer: Any) -> list[str]:
    """`10:02 merged compressed into 10:04`."""
    return [
        f"{row['scheduled_for'][11:16]} {row['outcome']} {row['reason_code']}"
        + (f" into {row['merged_into'][11:16]}" if row["merged_into"] else "")
        for row in answer["occurrences"]
    ]


def runs(answer: Any) -> list[str]:
    """`10:04 at 10:05:20 [10:01, 10:04) covers 3 from 10:02 to 10:04`."""
    return [
        f"{run['scheduled_for'][11:16]} at {run['started_at'][11:19]} "
        f"[{(run['window']['start'] or '')[11:16]}, {run['window']['end'][11:16]}) covers {run['covers']['count']} "
        f"from {run['covers']['first'][11:16]} to {run['covers']['last'][11:16]}"
        for run in answer["runs"]
    ]


def counts(answer: Any) -> dict[str, int]:
    return dict(Counter(f"{row['outcome']} {row['reason_code']}" for row in answer["occurrences"]))


@pytest.mark.parametrize(
    ("policy", "expected", "late_runs"),
    [
        ("skip", {"skipped late": 1440}, []),
        (
            "catchup",
            {"dropped over_limit": 1430, "started late": 10},
            [f"2026-03-02T{time}:00+00:00" for time in [*(f"09:{minute}" for minute in range(51, 60)), "10:00"]],
        ),
        ("compress", {"merged compressed": 1439, "started late": 1}, ["2026-03-02T10:00:00+00:00"]),
    ],
)
@pytest.mark.parametrize("cause", ["worker_down", "temporal_down", "overload", "paused"])
async def test_r11_an_outage_of_1440_minutely_times(
    http: httpx.AsyncClient, policy: str, cause: str, expected: dict[str, int], late_runs: list[str]
) -> None:
    more = {"pauses": [DAY_OUT]} if cause == "paused" else {"outages": [{**DAY_OUT, "cause": cause}]}
    trigger = {**MINUTELY, "misfire_policy": policy}
    answer = await simulation(http, trigger, "2026-03-01T10:00:00Z", "2026-03-02T10:03:00Z", **more)
    assert counts(answer) == {"started on_time": 3, **expected}
    recovered = [run for run in answer["runs"] if run["started_at"] == "2026-03-02T10:01:30+00:00"]
    assert [run["scheduled_for"] for run in recovered] == [*late_runs, "2026-03-02T10:01:00+00:00"]
    if policy == "compress":
        assert recovered[0]["window"] == {"start": "2026-03-01T10:00:00+00:00", "end": "2026-03-02T10:00:00+00:00"}
        first, last = "2026-03-01T10:01:00+00:00", "2026-03-02T10:00:00+00:00"
        assert recovered[0]["covers"] == {"first": first, "last": last, "count": 1440}
        assert {row["merged_into"] for row in answer["occurrences"]} == {None, last}


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("2026-03-01T10:00:00Z", "2026-03-01T10:02:00Z", ["10:00", "10:01"]),
        ("2026-03-01T10:00:00.000001Z", "2026-03-01T10:02:00.000001Z", ["10:01", "10:02"]),
        ("2026-03-01T11:00:00+01:00", "2026-03-01T10:00:01Z", ["10:00"]),
        ("2026-03-01T09:59:59.999999Z", "2026-03-01T10:00:00Z", []),
    ],
)
async def test_the_range_is_half_open(http: httpx.AsyncClient, start: str, end: str, expected: list[str]) -> None:
    answer = await simulation(http, MINUTELY, start, end)
    assert rows(answer) == [f"{time} started on_time" for time in expected]
    assert [run["scheduled_for"][11:16] for run in answer["runs"]] == expected


async def test_what_would_start_at_the_end_or_later_still_waits(http: httpx.AsyncClient) -> None:
    start, end = "2026-03-01T10:00:00Z", "2026-03-01T10:02:30Z"
    answer = await simulation(http, MINUTELY, start, end, run_seconds=150)
    assert rows(answer) == ["10:00 started on_time", "10:01 waiting due", "10:02 waiting due"]
    later = await simulation(http, MINUTELY, start, "2026-03-01T10:02:30.000001Z", run_seconds=150)
    assert rows(later) == ["10:00 started on_time", "10:01 started late", "10:02 waiting due"]
    held = await simulation(http, MINUTELY, start, end, pauses=[{"from": "2026-03-01T10:00:30Z", "to": end}])
    assert rows(held) == ["10:00 started on_time", "10:01 waiting paused", "10:02 waiting paused"]


async def test_runs_have_the_windows_of_the_times_they_cover(http: httpx.AsyncClient) -> None:
    outage = {"from": "2026-03-01T10:01:30Z", "to": "2026-03-01T10:05:20Z"}
    answer = await simulation(http, MINUTELY, "2026-03-01T10:00:00Z", "2026-03-01T10:06:00Z", outages=[outage])
    assert rows(answer)[2:5] == [
        "10:02 merged compressed into 10:04",
        "10:03 merged compressed into 10:04",
        "10:04 started late",
    ]
    assert runs(answer) == [
        "10:00 at 10:00:00 [09:59, 10:00) covers 1 from 10:00 to 10:00",
        "10:01 at 10:01:00 [10:00, 10:01) covers 1 from 10:01 to 10:01",
        "10:04 at 10:05:20 [10:01, 10:04) covers 3 from 10:02 to 10:04",
        "10:05 at 10:05:20 [10:04, 10:05) covers 1 from 10:05 to 10:05",
    ]


async def test_first_window_begins_where_the_rule_has_its_time_before(http: httpx.AsyncClient) -> None:
    bounded = {"type": "interval", "every_seconds": 3600, "start_at": "2026-03-01T10:30:00Z"}
    answer = await simulation(http, bounded, "2026-03-01T10:00:00Z", "2026-03-01T12:30:00Z")
    assert [run[18:32] for run in runs(answer)] == ["[10:00, 11:00)", "[11:00, 12:00)"]
    once = {"type": "once", "at": "2026-03-01T10:30:00Z"}
    answer = await simulation(http, once, "2026-03-01T10:00:00Z", "2026-03-01T12:30:00Z")
    assert [run["window"] for run in answer["runs"]] == [{"start": None, "end": "2026-03-01T10:30:00+00:00"}]


async def test_an_edit_brings_its_times_and_its_policy(http: httpx.AsyncClient) -> None:
    quarterly = {"type": "interval", "every_seconds": 900, "misfire_policy": "skip"}
    answer = await simulation(
        http,
        MINUTELY,
        "2026-03-01T10:00:00Z",
        "2026-03-01T10:40:00Z",
        outages=[{"from": "2026-03-01T10:01:30Z", "to": "2026-03-01T10:20:00Z"}],
        edits=[{"at": "2026-03-01T10:03:00Z", "trigger": quarterly}],
    )
    # what was due up to the edit stays compressed; the new trigger's 10:15 is skipped
    assert rows(answer) == [
        "10:00 started on_time",
        "10:01 started on_time",
        "10:02 merged compressed into 10:03",
        "10:03 started late",
        "10:15 skipped late",
        "10:30 started on_time",
    ]


async def test_resume_may_name_another_policy(http: httpx.AsyncClient) -> None:
    pause = {"from": "2026-03-01T10:00:30Z", "to": "2026-03-01T10:04:30Z"}
    outcomes = {}
    for on_misfire in ("policy", "skip", "catchup", "compress"):
        pauses = [{**pause, "on_misfire": on_misfire}]
        answer = await simulation(http, MINUTELY, "2026-03-01T10:00:00Z", "2026-03-01T10:05:00Z", pauses=pauses)
        outcomes[on_misfire] = counts(answer)
    assert outcomes["skip"] == {"started on_time": 2, "skipped late": 3}
    assert outcomes["catchup"] == {"started on_time": 2, "started late": 3}
    assert outcomes["compress"] == {"started on_time": 2, "merged compressed": 2, "started late": 1}
    assert outcomes["policy"] == outcomes["compress"]


async def test_allow_all_runs_beside_each_other(http: httpx.AsyncClient) -> None:
    trigger = {**MINUTELY, "overlap_policy": "allow_all"}
    answer = await simulation(http, trigger, "2026-03-01T10:00:00Z", "2026-03-01T10:03:00Z", run_seconds=600)
    assert rows(answer) == [f"10:0{minute} started on_time" for minute in range(3)]


async def test_notices_say_what_may_surprise(http: httpx.AsyncClient) -> None:
    odd = {**MINUTELY, "cron": "0 9 25-31 * MON-FRI", "jitter_seconds": 30}
    answer = await simulation(http, MINUTELY, "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z")
    assert (answer["description"], answer["notices"]) == ("every minute, UTC time", [])
    edits = [{"at": "2026-03-01T00:30:00Z", "trigger": odd}]
    answer = await simulation(http, odd, "2026-03-01T00:00:00Z", "2026-03-01T01:00:00Z", edits=edits)
    assert [(notice["code"], notice["pointer"]) for notice in answer["notices"]] == [
        ("cron_warning", "/trigger/cron"),
        ("cron_warning", "/edits/0/trigger/cron"),
        ("jitter_left_out", "/trigger/jitter_seconds"),
        ("no_times", "/to"),
    ]
    assert answer["notices"][-1]["message"].endswith("the next one is 2026-03-02T09:00:00+00:00")


SPAN = {"from": "2026-03-01T10:10:00Z", "to": "2026-03-01T10:10:00+00:00"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trigger": None}, {"/trigger": "is required"}),
        ({"from": None}, {"/from": "is required; write an instant"}),
        ({"from": "2026-03-01T10:00:00"}, {"/from": "without an offset is ambiguous"}),
        ({"to": 5}, {"/to": "write an ISO 8601 time"}),
        ({"to": "2026-03-01T10:00:00Z"}, {"/to": "is not after 'from'"}),
        ({"trigger": {"type": "manual"}}, {"/trigger/type": "'manual' has no due times"}),
        ({"trigger": {"type": "event", "event_types": ["a"]}}, {"/trigger/type": "write cron, interval or once"}),
        ({"trigger": {**MINUTELY, "cron": "0 0 12 * * ?"}}, {"/trigger/cron": "write `0 12 * * *`"}),
        ({"trigger": 7}, {"/trigger": "object"}),
        ({"run_seconds": -1}, {"/run_seconds": "write 0 or more"}),
        ({"run_seconds": True}, {"/run_seconds": "integer"}),
        ({"outages": [SPAN]}, {"/outages/0/to": "is not after its 'from'"}),
        ({"pauses": [SPAN]}, {"/pauses/0/to": "is not after its 'from'"}),
        (
            {"outages": [{**SPAN, "cause": "rain"}]},
            {"/outages/0/cause": "'worker_down', 'temporal_down' or 'overload'"},
        ),
        ({"pauses": [{**SPAN, "on_misfire": "run"}]}, {"/pauses/0/on_misfire": "write 'policy', 'skip'"}),
        ({"outages": [7]}, {"/outages/0": "write a JSON object"}),
        ({"outages": [{**SPAN, "form": 1}]}, {"/outages/0/form": "did you mean 'from'?"}),
        ({"outages": [SPAN] * 101}, {"/outages": "write 100 at most"}),
        (
            {"edits": [{"at": "2026-03-01T11:00:00Z", "trigger": MINUTELY}]},
            {"/edits/0/at": "is not in the range"},
        ),
        (
            {"edits": [{"at": "2026-03-01T10:30:00Z", "trigger": {"type": "manual"}}]},
            {"/edits/0/trigger/type": "write cron, interval or once"},
        ),
        (
            {"edits": [{"at": "2026-03-01T10:30:00Z", "trigger": {**MINUTELY, "timezone": "Berlin"}}]},
            {"/edits/0/trigger/timezone": "write `Europe/Berlin`"},
        ),
        ({"definition": {}}, {"/definition": "unknown field; known are"}),
        ({"outage": []}, {"/outage": "did you mean 'outages'?"}),
        ({"to": "2026-04-05T03:21:00Z"}, {"/to": "more than 50,000 times are due; narrow the range"}),
        (
            {
                "trigger": {**MINUTELY, "misfire_policy": "catchup", "catchup_limit": 1000},
                "to": "2026-04-01T00:00:00Z",
                "run_seconds": 70,
            },
            {"/to": "too many times wait for too long; narrow the range"},
        ),
        (
            {"from": None, "run_seconds": "x", "trigger": {"type": "cron"}, "pauses": [{}]},
            dict.fromkeys(
                ("/from", "/run_seconds", "/trigger/cron", "/trigger/timezone", "/pauses/0/from", "/pauses/0/to"), ""
            ),
        ),
    ],
)
async def test_each_fault_is_told_where_it_is(
    http: httpx.AsyncClient, changes: dict[str, Any], expected: dict[str, str]
) -> None:
    found = await refusal(http, **changes)
    assert found.keys() == expected.keys()
    assert all(part in found[pointer] for pointer, part in expected.items()), found


@pytest.mark.parametrize("body", [b"[]", b"7", b"null"])
async def test_another_json_value_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/v1/simulate", content=body, headers={"Content-Type": "application/json"})
    assert [fault["message"] for fault in answer.json()["errors"]] == ["write a JSON object"]


async def test_fifty_thousand_times_are_answered(http: httpx.AsyncClient) -> None:
    answer = await simulation(http, MINUTELY, "2026-03-01T00:00:00Z", "2026-04-04T17:20:00Z")
    assert counts(answer) == {"started on_time": 50_000}
    assert len(answer["runs"]) == 50_000


async def test_those_who_ask_at_once_get_in_line_and_the_line_is_bounded(http: httpx.AsyncClient) -> None:
    body = {"trigger": MINUTELY, "from": "2026-03-01T00:00:00Z", "to": "2026-03-11T00:00:00Z"}
    answers = await asyncio.gather(*(http.post("/v1/simulate", json=body) for _ in range(MAX_IN_LINE + 2)))
    assert sorted(answer.status_code for answer in answers) == [200] * MAX_IN_LINE + [503] * 2
    turned_away = next(answer for answer in answers if answer.status_code == 503)
    assert (turned_away.json()["code"], turned_away.headers["retry-after"]) == ("unavailable", "1")
    assert (await http.post("/v1/simulate", json=body)).status_code == 200


async def test_body_and_answer_are_as_documented(http: httpx.AsyncClient) -> None:
    schema = (await http.get("/openapi.json")).json()
    operation = schema["paths"]["/v1/simulate"]["post"]
    components = {"components": schema["components"]}
    body_schema = operation["requestBody"]["content"]["application/json"]["schema"] | components
    body = {
        "trigger": MINUTELY,
        "from": "2026-03-01T10:00:00Z",
        "to": "2026-03-01T11:00:00Z",
        "run_seconds": 5,
        "outages": [{"from": "2026-03-01T10:10:00Z", "to": "2026-03-01T10:20:00Z", "cause": "overload"}],
        "pauses": [{"from": "2026-03-01T10:30:00Z", "to": "2026-03-01T10:40:00Z", "on_misfire": "skip"}],
        "edits": [{"at": "2026-03-01T10:50:00Z", "trigger": {"type": "once", "at": "2026-03-01T10:55:00Z"}}],
    }
    jsonschema.validate(body, body_schema)
    for wrong in ({**body, "outages": [{}]}, {**body, "trigger": {"type": "manual"}}, {**body, "extra": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, body_schema)
    answer = await http.post("/v1/simulate", json=body)
    documented = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert len(answer.json()["occurrences"]) > 50
    jsonschema.validate(answer.json(), documented | components)
