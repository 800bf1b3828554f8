"""Requests made up from the API's own description, and others aimed at what is there: sound documents with a piece of
them altered, names that exist."""

import json
import time
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
Json = dict[str, Any]
PAST, LATER, FUTURE = "2024-03-01T00:00:00Z", "2024-03-03T00:00:00Z", "2099-01-01T00:00:00Z"


@dataclass
class Found:
    """How often each status came, by operation, and each distinct fault with a request that shows it."""

    statuses: Counter[int] = field(default_factory=Counter)
    by_operation: dict[str, Counter[int]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.statuses.total()

    def __str__(self) -> str:
        shown = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        return f"{self.total} requests over {len(self.by_operation)} operations ({shown}); {len(self.faults)} faults"


def activity(trigger: Json, slug: str, **more: Any) -> Json:
    tasks = [{"task_type": "note", "consumer": "log", "params": {"n": "${ activity.slug }"}}]
    return {"kind": "Activity", "slug": slug, "trigger": trigger, "tasks": tasks, **more}


def samples() -> dict[str, Json]:
    """Sound documents, by slug."""
    by_event: Json = {"type": "event", "event_types": ["fuzz.paid", "fuzz.*"], "filter": "event.data.n >= 0"}
    cron: Json = {"type": "cron", "cron": "0 9 * * *", "timezone": "Europe/Berlin", "misfire_policy": "catchup"}
    ask = [{"task_type": "ask", "consumer": "inbox", "params": {"who": "${ params.who }"}}]
    rules: Json = {"concurrency": {"key": "${ event.data.k }", "limit": 1}}
    return {
        "by-event": activity({**by_event, "debounce": {"key": "${ event.data.k }", "seconds": 1}}, "by-event"),
        "by-rate": activity({**by_event, "rate_limit": {"count": 5, "per_seconds": 60}}, "by-rate", **rules),
        "by-cron": activity({**cron, "catchup_limit": 3}, "by-cron"),
        "by-hand": {**activity({"type": "manual"}, "by-hand"), "tasks": ask},
        "target": {"kind": "Consumer", "slug": "target", "type": "http", "url": "http://127.0.0.1:9/"},
        "hub": {"kind": "Source", "slug": "hub", "scheme": "github", "secrets": ["a long secret of the hub"]},
        "open": {
            "kind": "Source",
            "slug": "open",
            "scheme": "none",
            "id": [{"pointer": "/id"}, {"header": "X-Id"}],
            "type": [{"template": "fuzz.${ data.kind }"}, {"constant": "fuzz.paid"}],
        },
    }


ACTIVITIES = ("by-event", "by-rate", "by-cron", "by-hand")
EVENT: Json = {"event_id": "e-1", "type": "fuzz.paid", "data": {"n": 1, "k": "a"}}
CLOUD_EVENT: Json = {"specversion": "1.0", "id": "1", "source": "/fuzz", "type": "fuzz.paid", "data": {"n": 2}}
RANGE: Json = {"from": PAST, "to": LATER}


def bodies(operation: str) -> list[Any]:
    """Sound bodies of an operation, "METHOD /path"."""
    made = samples()
    activities = [made[slug] for slug in ACTIVITIES]
    outages = [{**RANGE, "cause": "worker_down"}]
    known: dict[str, list[Any]] = {
        "POST /v1/events": [EVENT, CLOUD_EVENT, [CLOUD_EVENT], {"type": "fuzz.paid"}],
        "POST /v1/webhooks/{source}": [{"id": 1, "kind": "paid", "n": 1}, {"kind": "shipped"}, []],
        "POST /v1/activities": activities,
        "PUT /v1/activities/{ref}": activities,
        "POST /v1/consumers": [made["target"]],
        "PUT /v1/consumers/{slug}": [made["target"]],
        "POST /v1/sources": [made["hub"], made["open"]],
        "PUT /v1/sources/{slug}": [made["hub"], made["open"]],
        "POST /v1/apply": [{"documents": list(made.values())}, {"documents": list(made.values()), "dry_run": True}],
        "POST /v1/activities/{ref}/trigger": [{}, {"params": {"who": "me"}, "on_overlap": "allow"}],
        "POST /v1/activities/{ref}/pause": [{}, {"note": "n", "until": FUTURE, "events": "skip"}],
        "POST /v1/activities/{ref}/resume": [{"events": "run"}, {"on_misfire": "skip", "events": "skip"}],
        "POST /v1/activities/{ref}/backfill": [RANGE, {**RANGE, "dry_run": True, "note": "n"}],
        "POST /v1/freezes": [{"selector": "team=none", "note": "n", "from": FUTURE}],
        "POST /v1/runs/{run_id}/rerun": [{}, {"revision": "original", "on_overlap": "allow"}],
        "POST /v1/tasks/{ref}/complete": [{"output": {"a": 1}}, {}],
        "POST /v1/tasks/{ref}/fail": [{"reason": "no"}],
        "PUT /v1/events/types/{event_type}": [
            {"description": "d", "schema": {"type": "object", "required": ["n"]}, "example": {"n": 1}},
            {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "on_invalid": "quarantine"},
        ],
        "POST /v1/events/replay": [{"from": PAST, "to": FUTURE, "dry_run": True}, {"from": PAST, "to": FUTURE}],
        "POST /v1/events/{ref}/replay": [{}, {"activity": "by-event"}],
        "POST /v1/simulate": [
            {"activity": "by-event", "event": EVENT},
            {"definition": made["by-rate"], "event": EVENT, "context": {}},
            {"trigger": made["by-cron"]["trigger"], **RANGE, "run_seconds": 10, "outages": outages},
        ],
    }
    return known.get(operation, [])


def names(client: httpx.Client) -> dict[str, list[str]]:
    """Put the samples into the service, and something to each list; values that exist, by parameter, those of `ref` as
    "/collection ref". What other requests left there may refuse some of it."""
    applied = client.post("/v1/apply", json={"documents": list(samples().values())})
    assert applied.is_success, applied.text
    client.post("/v1/events", json={**EVENT, "event_id": uuid4().hex})
    client.post("/v1/webhooks/open", json={"id": "w-1", "n": 1})
    client.post("/v1/activities/by-hand/trigger", json={"params": {"who": "me"}, "on_overlap": "allow"})
    client.post("/v1/freezes", json={"selector": "team=none"})
    client.post("/v1/activities/by-cron/backfill", json=RANGE)
    cursor = client.get("/v1/events", params={"limit": 1}).json()["next_cursor"]
    return {
        "/activities ref": list(ACTIVITIES),
        "/events ref": _listed(client, "/v1/events", "id") + _listed(client, "/v1/events", "event_id"),
        "/tasks ref": _listed(client, "/v1/tasks", "id"),
        "slug": ["target", "hub", "open"],
        "source": ["hub", "open"],
        "event_type": ["fuzz.paid", "fuzz.shipped"],
        "occurrence_id": _listed(client, "/v1/occurrences", "id"),
        "run_id": _listed(client, "/v1/runs", "run_id"),
        "freeze_id": _listed(client, "/v1/freezes", "id"),
        "backfill_id": _listed(client, "/v1/activities/by-cron/backfills", "id"),
        "activity": ["by-event", "by-cron"],
        "selector": ["team=none", "team in (a, b)", "!team"],
        "type": ["fuzz.paid"],
        "event_id": ["w-1", "open:w-1"],
        "at": [PAST, "2024-03-01T09:00:00+01:00"],
        "from": [PAST],
        "to": [LATER, FUTURE],
        "limit": ["1", "2"],
        "cursor": [cursor or "none"],
    }


def _listed(client: httpx.Client, path: str, name: str) -> list[str]:
    """What the list at `path` has, once it has any."""
    deadline = time.monotonic() + 30
    while not (rows := client.get(path).json()["items"]):
        assert time.monotonic() < deadline, f"{path} stays empty"
    return [row[name] for row in rows]


def altered(value: Any) -> st.SearchStrategy[Any]:
    """`value` as it is, or with one piece of it replaced, left out, or doubled under another name."""
    places = list(_places(value, ()))
    odd = ["", " ", "a" * 300, "\x00", "${ ", "${ event.x.y }", "*", 2**63, -1, 0, 1e308, [], {}, None, True]
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    anything = st.sampled_from(odd) | numbers | st.text(max_size=20)

    def change(choice: tuple[tuple[Any, ...], str, Any]) -> Any:
        place, way, new = choice
        if way == "as it is":
            # documents by name stay few, and those without a name become many
            return {**value, "event_id": uuid4().hex} if isinstance(value, dict) and "event_id" in value else value
        if not place:
            return new
        made = deepcopy(value)
        within = made
        for step in place[:-1]:
            within = within[step]
        if way == "left out":
            del within[place[-1]]
        elif way == "another" and isinstance(within, dict):
            within[f"{place[-1]}_"] = new
        else:
            within[place[-1]] = new
        return made

    ways = st.sampled_from(["as it is", "as it is", "replaced", "replaced", "left out", "another"])
    return st.tuples(st.sampled_from(places), ways, anything).map(change)


def _places(value: Any, here: tuple[Any, ...]) -> Any:
    yield here
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _places(below, (*here, key))


class Fuzz:
    """Rounds of requests of every operation of the service at `base`."""

    def __init__(self, base: str) -> None:
        self.found = Found()
        self._operations = []
        for result in schemathesis.openapi.from_url(f"{base}/openapi.json").get_all_operations():
            assert isinstance(result, Ok), result
            self._operations.append(result.ok())
        self._client = httpx.Client(base_url=base, trust_env=False, timeout=30)
        self._names: dict[str, list[str]] = {}
        self._session = requests.Session()
        self._session.trust_env = False

    def run(self, *, at_least: int, per_round: int) -> Found:
        """Round after round until so many requests were made. Of each operation and way so many a round."""
        while self.found.total < at_least:
            # what has come up to now may have removed or altered it
            self._names = names(self._client)
            # what removes comes last, or the rest of the round would be answered 404
            for operation in sorted(self._operations, key=lambda operation: operation.method.upper() == "DELETE"):
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    self._each(operation.as_strategy(generation_mode=mode), operation.label, per_round)
                self._each(self._aimed(operation), operation.label, per_round)
        return self.found

    def close(self) -> None:
        self._client.close()
        self._session.close()

    def _aimed(self, operation: Any) -> st.SearchStrategy[Any]:
        """Sound requests, of which names and bodies are replaced by such as the service knows."""
        sound = bodies(operation.label)
        body = st.one_of([altered(one) for one in sound]) if sound else st.none()
        chance = st.randoms(use_true_random=False)

        def aim(drawn: tuple[Any, Any, Any]) -> Any:
            case, given_body, random = drawn
            for name in case.path_parameters or {}:
                case.path_parameters[name] = random.choice(self._known(operation.label, name))
            for name in list(case.query or {}):
                if name in self._names:
                    case.query[name] = random.choice(self._names[name])
                elif random.random() < 0.5:
                    del case.query[name]
            for name in ("If-Match", "Idempotency-Key"):
                # of a made-up one neither is right
                if case.headers and random.random() < 0.8:
                    case.headers.pop(name, None)
            if case.method.upper() == "OPTIONS":
                case.headers = {**(case.headers or {}), "WebHook-Request-Origin": "sender.example"}
            if sound:
                case.body, case.media_type = given_body, _media_type(given_body)
            return case

        return st.tuples(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), body, chance).map(aim)

    def _known(self, label: str, name: str) -> list[str]:
        if name == "ref":
            return self._names[f"/{label.split('/')[2]} ref"]
        return self._names[name]

    def _each(self, strategy: st.SearchStrategy[Any], label: str, count: int) -> None:
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            verbosity=Verbosity.quiet,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def each(case: Any) -> None:
            self._send(case, label)

        with suppress(Unsatisfiable):  # nothing that is sent there can be wrong by its shape
            each()

    def _send(self, case: Any, label: str) -> None:
        answer = case.call(session=self._session, timeout=30)
        self.found.statuses[answer.status_code] += 1
        self.found.by_operation.setdefault(label, Counter())[answer.status_code] += 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except (Failure, FailureGroup) as failure:
            each = failure.exceptions if isinstance(failure, FailureGroup) else (failure,)
            for one in each:
                key = f"{label} → {answer.status_code}: {type(one).__name__}: {one.title}"
                shown = f"{one}\n{_request(case)}\n{answer.text[:500]}"
                self.found.faults.setdefault(key, shown)


def _request(case: Any) -> str:
    body = case.body if isinstance(case.body, (dict, list, str)) else repr(case.body)
    return f"{case.method} {case.formatted_path} {case.query} {json.dumps(body, default=repr)[:2000]}"


def _media_type(body: Any) -> str:
    if isinstance(body, list) and body and isinstance(body[0], dict) and "specversion" in body[0]:
        return "application/cloudevents-batch+json"
    if isinstance(body, dict) and "specversion" in body:
        return "application/cloudevents+json"
    return "application/json"
