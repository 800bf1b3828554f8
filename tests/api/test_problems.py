"""Errors: one shape for all of them, whatever went wrong."""

import re
from typing import Any

import httpx
import jsonschema
import pytest

from activity_core import errors
from activity_core.api import problems
from activity_core.services.reads import Reads
from tests.api.conftest import Api
from tests.api.samples import cron_activity, event_activity


def leaves(kind: type[errors.ActivityCoreError]) -> set[type[errors.ActivityCoreError]]:
    return {kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))}


def test_every_code_of_the_tree_has_a_status_of_its_own() -> None:
    ours = [
        kind for kind in leaves(errors.ActivityCoreError) if kind.__module__ in (errors.__name__, problems.__name__)
    ]
    codes = [kind.code for kind in ours]
    assert set(codes) <= set(problems.STATUSES)
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("GET", "/v1/activities/", 404, "not_found"),
        ("GET", "/metric", 404, "not_found"),
        ("GET", "/v1/activities/%00", 404, "not_found"),
        ("GET", "/v1/activities/nobody", 404, "not_found"),
        ("GET", "/v1/events/nothing", 404, "not_found"),
        ("GET", "/v1/tasks/task-x", 404, "not_found"),
        ("GET", "/v1/tasks/task-------------------------------------:a:0", 404, "not_found"),
        ("GET", "/v1/tasks/task-8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11:a:" + "9" * 5000, 404, "not_found"),
        ("GET", "/v1/runs/8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11", 404, "not_found"),
        ("GET", "/v1/activities/8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11", 404, "not_found"),
        ("PUT", "/v1/activities/8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11", 404, "not_found"),
        ("GET", "/v1/runs/run-1", 422, "invalid_input"),
        ("PATCH", "/v1/activities", 405, "method_not_allowed"),
        ("DELETE", "/v1/events", 405, "method_not_allowed"),
    ],
)
async def test_unknown_things_are_problems(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await http.request(method, path, json=cron_activity() if method == "PUT" else None)

    assert answer.headers["content-type"] == problems.MEDIA_TYPE
    body = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert body["type"] == f"urn:activity-core:problem:{code}"
    assert body["instance"] == f"urn:activity-core:request:{answer.headers['x-request-id']}"
    assert status != 405 or answer.headers["allow"]


async def test_a_bug_is_a_500_without_internals_and_logged_under_the_request_id(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WronglyWired(Reads):
        async def run(self, run_id: Any) -> Any:
            raise ZeroDivisionError("secret detail")

    object.__setattr__(api.app.state.services, "reads", WronglyWired(api.database))
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr("activity_core.api.middleware.log.exception", lambda event, **ids: logged.append(ids))
    try:
        path = "/v1/runs/8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11"
        answer = await api.http.get(path, headers={"X-Request-Id": "trace-7"})
    finally:
        object.__setattr__(api.app.state.services, "reads", Reads(api.database))

    assert (answer.status_code, answer.json()["code"], answer.headers["x-request-id"]) == (500, "internal", "trace-7")
    assert "secret" not in answer.text and "ZeroDivision" not in answer.text
    assert logged == [{"request_id": "trace-7", "method": "GET", "path": path}]


@pytest.mark.parametrize("given", ["a b", "x" * 65, "<script>", ""])
async def test_an_odd_request_id_is_replaced(http: httpx.AsyncClient, given: str) -> None:
    named = (await http.get("/healthz", headers={"X-Request-Id": given})).headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]+", named)


@pytest.mark.parametrize("text", ["\ud800", "\x00", "x" * 100_000, "Ω\n", "\udcff" * 10])
def test_f04_the_encoder_takes_any_text(text: str) -> None:
    fault = errors.Fault(f"/{text}", text)
    response = problems.of_error(errors.InvalidInputError([fault]), "r")
    assert response.status_code == 422
    assert len(response.body) < 20_000


async def test_page_of_another_site_may_not_write(http: httpx.AsyncClient) -> None:
    foreign, own = {"Origin": "https://evil.test"}, {"Origin": "http://api.test"}
    refused = await http.post("/v1/events", json={"type": "t"}, headers=foreign)
    assert (refused.status_code, refused.json()["code"]) == (403, "cross_origin")
    assert (await http.post("/v1/events", json={"type": "t"}, headers=own)).status_code == 202
    assert (await http.get("/v1/events", headers=foreign)).status_code == 200


def references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*(references(value) for value in schema.values()))
    return set().union(*(references(value) for value in schema)) if isinstance(schema, list) else set()


async def test_openapi_is_whole_and_says_what_is_answered(api: Api) -> None:
    schema = (await api.http.get("/openapi.json")).json()
    named = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert references(schema) <= named
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    for path in ("activities", "activities/{ref}", "activities/{ref}/why", "activities/{ref}/trigger", "consumers"):
        assert f"/v1/{path}" in schema["paths"]
    accept = schema["paths"]["/v1/events"]["post"]
    types = ("application/json", "application/cloudevents+json", "application/cloudevents-batch+json")
    assert set(accept["requestBody"]["content"]) == set(types)
    assert {"200", "202", "default"} <= set(accept["responses"])

    def check(path: str, answer: httpx.Response) -> None:
        operation = schema["paths"][path][answer.request.method.lower()]
        documented = operation["responses"].get(str(answer.status_code), operation["responses"]["default"])
        (media_type,) = documented["content"]
        assert answer.headers["content-type"].startswith(media_type)
        shape = {**documented["content"][media_type]["schema"], "components": schema["components"]}
        jsonschema.validate(answer.json(), shape)

    http, document = api.http, event_activity("a.b")
    check("/v1/activities", await http.post("/v1/activities", json=document))
    check("/v1/activities", await http.post("/v1/activities", json=document))
    check("/v1/activities", await http.post("/v1/activities", json={}))
    check("/v1/activities", await http.get("/v1/activities"))
    check("/v1/activities/{ref}", await http.get(f"/v1/activities/{document['slug']}"))
    check("/v1/activities/{ref}", await http.put(f"/v1/activities/{document['slug']}", json={**document, "name": "x"}))
    check("/v1/activities/{ref}/revisions", await http.get(f"/v1/activities/{document['slug']}/revisions"))
    check("/v1/activities/{ref}/next", await http.get(f"/v1/activities/{document['slug']}/next"))
    check("/v1/activities/{ref}/trigger", await http.post(f"/v1/activities/{document['slug']}/trigger"))
    check("/v1/activities/{ref}/why", await http.get(f"/v1/activities/{document['slug']}/why"))
    check("/v1/occurrences", await http.get("/v1/occurrences?limit=500"))
    event = await http.post("/v1/events", json={"type": "a.b"})
    check("/v1/events", event)
    check("/v1/events", await http.get("/v1/events"))
    check("/v1/events/{ref}", await http.get(f"/v1/events/{event.json()['id']}"))
    for path in ("/v1/runs", "/v1/tasks", "/v1/consumers", "/healthz", "/readyz"):
        check(path, await http.get(path))


async def test_pages_are_self_contained(http: httpx.AsyncClient) -> None:
    for page in ("/console", "/docs"):
        answer = await http.get(page)
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert "<script>" not in answer.text and "style=" not in answer.text
        used = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
        assert used and all(target.startswith("/") for target in used)
        for target in used:
            assert (await http.get(target)).status_code == 200, target
