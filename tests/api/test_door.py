"""The door of webhooks beside its happy ways: what every refusal leaves behind, what a forgery must not cost, causes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.event import listen, remove
from starlette.types import Message

from activity_core.api.middleware import BodyGuard
from activity_core.settings import Settings
from tests.api import asking
from tests.api.cable import cable
from tests.api.conftest import Api, application
from tests.api.samples import event_activity
from tests.api.webhooks import BY_NAME, counted, document, post, reason, receipts, signed, source
from tests.domain.webhooks.support import SENDERS, Headers

RUN_ID = "Activity-Core-Run-Id"


def slug(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


async def open_door(api: Api) -> str:
    """A source that anybody may send to."""
    name = slug("open")
    await source(api, {"slug": name, "scheme": "none", "type": {"constant": "any.body"}})
    return name


async def chunks(size: int) -> AsyncIterator[bytes]:
    for start in range(0, size, 65_536):
        yield b"x" * min(65_536, size - start)


@pytest.mark.parametrize(
    ("query", "headers", "body", "status", "code", "expected"),
    [
        ("?" + "a=1&" * 200, [], b"{}", 422, "invalid_input", "malformed_query"),
        ("", [("Origin", "https://elsewhere.example.org")], b"{}", 403, "cross_origin", "cross_origin"),
        ("", [], b"x" * 1_100_000, 413, "body_too_large", "too_large"),
        ("", [], 1_100_000, 413, "body_too_large", "too_large"),
        ("", [], 26_214_400, 413, "body_too_large", "too_large"),
        ("", [], json.dumps("x" * 300_000).encode(), 413, "body_too_large", "too_large"),
        ("", [("Content-Type", "application/x-www-form-urlencoded")], 1_100_000, 413, "body_too_large", "too_large"),
    ],
    ids=["query", "origin", "length", "chunked", "chunked, 25 MB", "data", "form, chunked"],
)
async def test_i14_whatever_is_refused_is_counted_and_has_a_receipt(
    api: Api, query: str, headers: Headers, body: bytes | int, status: int, code: str, expected: str
) -> None:
    name = await open_door(api)
    content = body if isinstance(body, bytes) else chunks(body)
    answer = await api.http.post(f"/v1/webhooks/{name}{query}", headers=headers, content=content)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    (kept,) = await receipts(api, name)
    assert (kept["result"], kept["reason_code"], kept["status"]) == ("rejected", expected, status)
    assert await counted(api, name) == {("rejected", expected): 1}
    assert await api.sql("SELECT 1 FROM events WHERE source = $1", name) == []


async def test_a_body_that_does_not_come_is_a_408_with_a_receipt(api: Api) -> None:
    name = await open_door(api)
    never = asyncio.Event()
    messages: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]
    sent: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await never.wait()
        raise AssertionError("nothing comes")

    async def send(message: Message) -> None:
        sent.append(message)

    path = f"/v1/webhooks/{name}"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    await BodyGuard(api.app, max_bytes=100, seconds=0.02)(scope, receive, send)
    assert (sent[0]["status"], json.loads(sent[1]["body"])["code"]) == (408, "request_timeout")
    (kept,) = await receipts(api, name)
    assert (kept["reason_code"], kept["status"]) == ("request_timeout", 408)
    assert await counted(api, name) == {("rejected", "request_timeout"): 1}


@pytest.mark.parametrize("path", ["%00", "%ff", "x" * 5_000, "a%2Fb", "..%2f..%2fetc", "ünï", "A B", "'%20OR%201=1"])
async def test_any_name_of_a_source_that_is_none_is_not_found(api: Api, path: str) -> None:
    for method in ("POST", "OPTIONS"):
        answer = await api.http.request(
            method, f"/v1/webhooks/{path}", content=b"{}", headers={"WebHook-Request-Origin": "x.example.org"}
        )
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), answer.text


HELD: list[tuple[str, str]] = [
    ("standard_webhooks", "webhook-id"),
    ("standard_webhooks", "webhook-timestamp"),
    ("standard_webhooks", "webhook-signature"),
    ("slack", "X-Slack-Request-Timestamp"),
    ("slack", "X-Slack-Signature"),
    ("stripe", "Stripe-Signature"),
    ("hmac", "X-Own-Time"),
    ("hmac", "X-Own-Id"),
    ("hmac", "X-Own-Signature"),
    ("github", "X-Hub-Signature-256"),
    ("shopify", "X-Shopify-Hmac-Sha256"),
    ("pagerduty", "X-PagerDuty-Signature"),
    ("bearer", "Authorization"),
    ("basic", "Authorization"),
]


@pytest.fixture(scope="module")
async def doors(api: Api) -> dict[str, str]:
    """A source for each sender."""
    names = {sender.name: slug(sender.name.replace("_", "-")) for sender in SENDERS}
    for sender in SENDERS:
        await source(api, document(sender, names[sender.name]))
    return names


@given(
    held=st.sampled_from(HELD),
    place=st.floats(0, 1, exclude_max=True),
    other=st.characters(codec="ascii", categories=("L", "N", "P", "S")),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_an_altered_character_of_a_signed_header_is_refused(
    api: Api, doors: dict[str, str], held: tuple[str, str], place: float, other: str
) -> None:
    sender, altered = BY_NAME[held[0]], held[1]
    headers = dict(signed(sender))
    value = headers[altered]
    at = int(place * len(value))
    headers[altered] = value[:at] + other + value[at + 1 :]
    if headers[altered].lower() == value.lower() and altered == "Authorization" and at < len("Bearer"):
        return  # the name of an authentication scheme has no case
    if headers[altered] == value:
        return
    answer = await post(api, doors[sender.name], list(headers.items()), sender.body)
    assert answer.status_code in (401, 422), (headers[altered], answer.text)


async def test_while_postgres_is_away_requests_are_counted_and_what_is_signed_may_come_again(
    api_settings: Settings,
) -> None:
    """A forgery may be signed with a secret that this process has not seen yet, and is then told to come again as well."""
    sender, name = BY_NAME["github"], slug("away")
    async with cable(api_settings.asyncpg_url) as line, application(line.through(api_settings)) as api:
        await source(api, document(sender, name))
        assert (await post(api, name, signed(sender), sender.body)).status_code == 202
        await line.cut()
        refused = await post(api, name, signed(sender, secret="wrong"), sender.body)
        assert refused.status_code in (401, 503)
        unknown = await post(api, name, signed(sender), sender.body)
        assert (unknown.status_code, unknown.json()["code"]) == (503, "unavailable")
        await line.mend()
        again = await post(api, name, signed(sender), sender.body)
        assert (again.status_code, again.json()["status"]) == (200, "duplicate")
        known = await counted(api, name)
        assert (known[("accepted", "")], known[("duplicate", "")], sum(known.values())) == (1, 1, 4)


async def test_a_forgery_that_names_a_run_has_nobody_look_for_it(api: Api) -> None:
    sender, name = BY_NAME["github"], slug("named")
    await source(api, document(sender, name))
    asked: list[str] = []

    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        asked.append(statement)

    listen(api.database.engine.sync_engine, "before_cursor_execute", note)
    found = []
    for secret in ("wrong", None):
        asked.clear()
        await post(api, name, [*signed(sender, secret=secret), (RUN_ID, str(uuid4()))], sender.body)
        found.append(any("activity_runs" in statement for statement in asked))
    remove(api.database.engine.sync_engine, "before_cursor_execute", note)
    assert found == [False, True]


async def depth_of(api: Api, answer_id: str) -> tuple[str | None, int]:
    shown = (await api.http.get(f"/v1/events/{answer_id}")).json()
    return shown["causation_run_id"], shown["depth"]


async def test_an_event_names_the_run_that_made_it_and_a_loop_ends_as_a_dead_letter(api: Api) -> None:
    kind, name = f"chain.t{uuid4().hex[:8]}", slug("chain")
    await source(api, {"slug": name, "scheme": "none", "type": {"constant": kind}})
    activity = await asking.create(api, event_activity(kind))
    first = (await post(api, name, [], b"{}")).json()
    cause, last = None, first
    for step in range(17):
        assert await depth_of(api, last["id"]) == (cause, step)
        await api.route()
        cause = await asking.start(api, activity, last["event_id"])
        await asking.end(api, activity, cause)
        last = (await post(api, name, [(RUN_ID, cause)], b"{}")).json()
    assert await depth_of(api, last["id"]) == (cause, 17)
    await api.route()
    shown = (await api.http.get(f"/v1/events/{last['id']}")).json()
    assert (shown["status"], shown["occurrences"]) == ("dead_letter", [])
    assert "loop" in shown["dead_letter_reason"]


@pytest.mark.parametrize("named", [str(UUID(int=7)), "no uuid", "", "\xff"])
async def test_a_run_that_is_unknown_is_no_cause_and_refused_at_the_native_door_alone(api: Api, named: str) -> None:
    name = await open_door(api)
    headers = [(RUN_ID.encode(), named.encode("latin-1"))]
    answer = await api.http.post(f"/v1/webhooks/{name}", headers=headers, content=b"{}")
    assert answer.status_code == 202 and await depth_of(api, answer.json()["id"]) == (None, 0)
    native = await api.http.post("/v1/events", headers=headers, json={"type": "t"})
    assert (native.status_code, native.json()["errors"][0]["pointer"]) == (422, f"/headers/{RUN_ID}")


async def test_senders_of_cloudevents_are_told_that_they_are_welcome(api: Api) -> None:
    asked = {"WebHook-Request-Origin": "events.example.org", "WebHook-Request-Rate": "120"}
    name = slug("consent")
    await source(api, document(BY_NAME["bearer"], name, rate_per_second=1, allowed_origins=["events.example.org"]))
    for path, rate in (("/v1/events", "120"), (f"/v1/webhooks/{name}", "60")):
        answer = await api.http.options(path, headers=asked)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["WebHook-Allowed-Origin"] == "events.example.org"
        assert (answer.headers["WebHook-Allowed-Rate"], "POST" in answer.headers["Allow"]) == (rate, True)
        unnamed = await api.http.options(path)
        assert (unnamed.status_code, reason(unnamed)) == (422, "malformed_handshake")
    stranger = await api.http.options(f"/v1/webhooks/{name}", headers={"WebHook-Request-Origin": "x.example.org"})
    assert (stranger.status_code, reason(stranger)) == (401, "origin_not_allowed")


async def test_webhooks_are_in_the_description_of_the_api(api: Api) -> None:
    paths = (await api.http.get("/openapi.json")).json()["paths"]
    assert {"post", "options"} <= set(paths["/v1/webhooks/{source}"]) and "options" in paths["/v1/events"]


async def test_i12_what_a_receipt_keeps_of_a_request_is_short_printable_and_no_secret(api: Api) -> None:
    sender, name = BY_NAME["bearer"], slug("odd")
    await source(api, document(sender, name))
    headers = [
        (b"User-Agent", b"agent\xff\t" + b"x" * 5_000),
        (b"Content-Type", b"application/json; a=\xe9"),
        (b"Authorization", b"Bearer wrong-and-private"),
    ]
    answer = await api.http.post(f"/v1/webhooks/{name}", headers=headers, content=b'{"private": 1}')
    assert answer.status_code == 401
    (kept,) = await receipts(api, name)
    assert kept["user_agent"].startswith("agent?") and len(kept["user_agent"]) == 200
    assert kept["content_type"].isascii() and kept["size_bytes"] == 14
    assert "private" not in json.dumps(kept)


async def test_receipts_are_found_by_result_reason_and_time_page_by_page(api: Api) -> None:
    sender, name = BY_NAME["github"], slug("pages")
    await source(api, document(sender, name))
    before = time.time() - 60
    for secret in (None, "wrong", None, "wrong", "wrong"):
        await post(api, name, signed(sender, secret=secret), sender.body)
    by = {result: len(await receipts(api, name, result=result)) for result in ("accepted", "duplicate", "rejected")}
    assert by == {"accepted": 1, "duplicate": 1, "rejected": 3}
    assert len(await receipts(api, name, reason_code="bad_signature")) == 3
    instant = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(before))
    assert await receipts(api, name, to=instant) == [] and len(await receipts(api, name, **{"from": instant})) == 5
    seen, cursor = [], None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await api.http.get(f"/v1/sources/{name}/requests", params=query)).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [item["id"] for item in await receipts(api, name)] and len(set(seen)) == 5
    assert (await api.http.get("/v1/sources/nobody/requests")).status_code == 404


async def squat(api: Api, name: str, external_id: str, *, as_key: bool) -> httpx.Response:
    """The id of a source's event, asked for at the native door."""
    headers = {"Idempotency-Key": f"{name}:{external_id}"} if as_key else {}
    event = {"type": "forged", **({} if as_key else {"event_id": f"{name}:{external_id}"})}
    return await api.http.post("/v1/events", json=event, headers=headers)


@pytest.mark.parametrize("as_key", [False, True])
async def test_r27_a_native_event_takes_no_id_of_a_source_by_spelling_it_out(api: Api, as_key: bool) -> None:
    sender, name = BY_NAME["github"], slug("squat")
    await source(api, document(sender, name))
    api.app.state.services.reserved._until = 0.0  # two seconds later
    external_id = str(sender.event[0])
    forged = await squat(api, name, external_id, as_key=as_key)
    signed_one = await post(api, name, signed(sender), sender.body)
    assert (forged.status_code, signed_one.status_code) == (422, 202), (forged.text, signed_one.text)
    pointer = "/headers/Idempotency-Key" if as_key else "/event_id"
    assert forged.json()["errors"][0]["pointer"] == pointer and f"/v1/webhooks/{name}" in forged.text


async def test_i3_a_native_event_that_was_there_before_the_source_is_a_duplicate_and_the_other_is_told(
    api: Api,
) -> None:
    sender, name = BY_NAME["github"], slug("before")
    external_id = str(sender.event[0])
    first = await squat(api, name, external_id, as_key=False)
    await source(api, document(sender, name))
    api.app.state.services.reserved._until = 0.0  # two seconds later
    again = await squat(api, name, external_id, as_key=False)
    assert (first.status_code, again.status_code, again.json()["id"]) == (202, 200, first.json()["id"])
    refused = await post(api, name, signed(sender), sender.body)
    assert (refused.status_code, refused.json()["code"]) == (409, "event_conflict")
    assert [(r["status"], r["reason_code"]) for r in await receipts(api, name)] == [(409, "event_conflict")]
