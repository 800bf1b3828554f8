"""POST /v1/webhooks/{source}: each sender's own way, forgeries, repeats, and a receipt of every request."""

import asyncio
import gzip
import time
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook
from stripe import WebhookSignature

from tests.api.conftest import Api
from tests.api.webhooks import BY_NAME, document, post, reason, receipts, signed, source
from tests.domain.webhooks.support import SENDERS, Sender, payload

each_sender = pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: sender.name)
timed = pytest.mark.parametrize("sender", [s for s in SENDERS if s.timed], ids=lambda sender: sender.name)


def slug(name: str) -> str:
    return f"{name.replace('_', '-')}-{uuid4().hex[:8]}"


async def metric(api: Api, name: str) -> int:
    text = (await api.http.get("/metrics")).text
    return sum(
        int(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("activity_core_webhook_requests_total") and f'source="{name}"' in line
    )


@each_sender
async def test_r25_r27_a_signed_request_is_an_event_of_its_source_and_its_repeat_a_duplicate(
    api: Api, sender: Sender
) -> None:
    name = slug(sender.name)
    made = await source(api, document(sender, name))
    first = await post(api, name, signed(sender), sender.body)
    assert first.status_code == 202, first.text
    external_id, event_type = sender.event
    shown = (await api.http.get(f"/v1/events/{first.json()['id']}")).json()
    assert (shown["source"], shown["type"]) == (name, event_type)
    assert shown["event_id"].startswith(f"{name}:")
    if external_id is None:
        return
    assert shown["event_id"] == f"{name}:{external_id}"
    again = await post(api, name, signed(sender, offset=-1), sender.body)
    assert (again.status_code, again.json()["status"], again.json()["id"]) == (200, "duplicate", first.json()["id"])
    shown = (await api.http.get(f"/v1/events/{first.json()['id']}")).json()
    assert [(r["result"], r["status"], r["external_id"]) for r in shown["receipts"]] == [
        ("duplicate", 200, external_id),
        ("accepted", 202, external_id),
    ]
    assert {r["secret_id"] for r in shown["receipts"]} == {made["secrets"][0]["id"]}


@each_sender
async def test_a_forged_request_is_refused_and_leaves_a_receipt_without_its_body(api: Api, sender: Sender) -> None:
    name = slug(sender.name)
    await source(api, document(sender, name))
    without = [pair for pair in signed(sender) if pair[0] != sender.signature]
    doubled = [*signed(sender), next(pair for pair in signed(sender) if pair[0] == sender.signature)]
    forged = {
        "bad_signature": (signed(sender, secret=sender.secrets[1]), sender.body),
        "missing_signature": (without, sender.body),
        "doubled_header": (doubled, sender.body),
    }
    for expected, (headers, body) in forged.items():
        answer = await post(api, name, headers, body)
        assert (answer.status_code, reason(answer)) == (422 if expected == "doubled_header" else 401, expected)
    if sender.covers_body:
        answer = await post(api, name, signed(sender), sender.body.replace(b":", b": ", 1))
        assert (answer.status_code, reason(answer)) == (401, "bad_signature")
    kept = await receipts(api, name)
    assert {r["result"] for r in kept} == {"rejected"} and {r["event_uuid"] for r in kept} == {None}
    assert set(forged) == {r["reason_code"] for r in kept}
    assert await api.sql("SELECT 1 FROM events WHERE source = $1", name) == []


@timed
@pytest.mark.parametrize(("offset", "expected"), [(-400, "stale_timestamp"), (400, "future_timestamp")])
async def test_a_timestamp_out_of_tolerance_is_refused(api: Api, sender: Sender, offset: int, expected: str) -> None:
    name = slug(sender.name)
    await source(api, document(sender, name))
    answer = await post(api, name, signed(sender, offset=offset), sender.body)
    assert (answer.status_code, reason(answer)) == (401, expected)


@each_sender
async def test_a_secret_is_rotated_without_a_gap(api: Api, sender: Sender) -> None:
    name, (new, old) = slug(sender.name), sender.secrets
    await source(api, document(sender, name, secrets=[old]))
    both = await source(api, document(sender, name, secrets=[new, old]))
    for secret in (old, new):
        answer = await post(api, name, signed(sender, secret=secret), sender.body)
        assert answer.status_code in (200, 202), answer.text
    assert [r["secret_id"] for r in await receipts(api, name)] == [both["secrets"][0]["id"], both["secrets"][1]["id"]]
    await source(api, document(sender, name, secrets=[new]))
    assert (await post(api, name, signed(sender, secret=old), sender.body)).status_code == 401


@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255), sender=st.sampled_from(SENDERS))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_an_altered_byte_of_a_signed_body_is_refused(
    api: Api, doors: dict[str, str], place: float, byte: int, sender: Sender
) -> None:
    if not sender.covers_body:
        return
    altered = bytearray(sender.body)
    altered[int(place * len(altered))] ^= byte
    answer = await post(api, doors[sender.name], signed(sender), bytes(altered))
    assert (answer.status_code, reason(answer)) == (401, "bad_signature")


@pytest.fixture(scope="module")
async def doors(api: Api) -> dict[str, str]:
    """A source for each sender."""
    names = {sender.name: slug(sender.name) for sender in SENDERS}
    for sender in SENDERS:
        await source(api, document(sender, names[sender.name]))
    return names


async def test_what_the_senders_own_libraries_sign_is_taken(api: Api) -> None:
    sender = BY_NAME["standard_webhooks"]
    name = slug("svix")
    await source(api, document(sender, name, header_prefix="svix-"))
    body = '{"type":"a.b"}'
    now = time.time()
    signature = Webhook(sender.secrets[0]).sign("msg_9", datetime.fromtimestamp(now, UTC), body)
    headers = [("svix-id", "msg_9"), ("svix-timestamp", str(int(now))), ("svix-signature", signature)]
    assert (await post(api, name, headers, body.encode())).status_code == 202

    stripe, name = BY_NAME["stripe"], slug("stripe")
    await source(api, document(stripe, name))
    mac = WebhookSignature._compute_signature(f"{int(now)}.{stripe.body.decode()}", stripe.secrets[0])
    answer = await post(api, name, [("Stripe-Signature", f"t={int(now)},v1={mac}")], stripe.body)
    assert answer.status_code == 202, answer.text


async def test_the_same_id_with_other_content_stands_as_it_was_and_says_so(api: Api) -> None:
    sender, name = BY_NAME["github"], slug("github")
    await source(api, document(sender, name))
    first = await post(api, name, signed(sender), sender.body)
    other = sender.body.replace(b"labeled", b"renamed")
    again = await post(api, name, signed(sender, body=other), other)
    assert (again.status_code, again.json()) == (
        200,
        {"id": first.json()["id"], "event_id": first.json()["event_id"], "status": "duplicate", "conflict": True},
    )
    shown = (await api.http.get(f"/v1/events/{first.json()['id']}")).json()
    assert (shown["data"]["action"], shown["conflicts"]) == ("labeled", 1)
    assert [r["conflict"] for r in shown["receipts"]] == [True, False]


async def test_r23_a_request_without_an_id_gets_one_and_its_key_is_one(api: Api) -> None:
    sender, name = BY_NAME["basic"], slug("basic")
    await source(api, document(sender, name))
    twice = [await post(api, name, signed(sender), sender.body) for _ in range(2)]
    assert {answer.status_code for answer in twice} == {202}
    assert len({answer.json()["event_id"] for answer in twice}) == 2
    keyed = [await post(api, name, [*signed(sender), ("Idempotency-Key", "k1")], sender.body) for _ in range(2)]
    assert [answer.status_code for answer in keyed] == [202, 200]
    assert keyed[0].json()["event_id"] == f"{name}:k1"


async def test_where_id_and_type_are_is_the_sources_to_say(api: Api) -> None:
    sender, name = BY_NAME["bearer"], slug("bearer")
    where = {
        "id": [{"header": "X-None"}, {"pointer": "/meta/id"}],
        "type": {"template": "shop.${ header['x-kind'] }.${ data.meta.what }"},
    }
    await source(api, document(sender, name, **where))
    headers = [pair for pair in signed(sender) if not pair[0].startswith("X-Event")]
    answer = await post(api, name, [*headers, ("X-Kind", "order")], b'{"meta": {"id": 17, "what": "paid"}}')
    shown = (await api.http.get(f"/v1/events/{answer.json()['id']}")).json()
    assert (shown["event_id"], shown["type"]) == (f"{name}:17", "shop.order.paid")
    missing = await post(api, name, headers, b"{}")
    assert (missing.status_code, reason(missing)) == (422, "missing_type")


@pytest.mark.parametrize(
    ("headers", "body", "status", "expected"),
    [
        ([("Content-Type", "application/x-www-form-urlencoded")], b"payload=%7B%22a%22%3A1%7D", 202, {"a": 1}),
        ([("Content-Type", "application/vnd.x+json; charset=UTF-8")], b'{"a":1}', 202, {"a": 1}),
        ([("Content-Type", "text/plain")], b'{"a":1}', 202, {"a": 1}),
        ([], b'{"a":1}', 202, {"a": 1}),
        ([("Content-Type", "application/json")], b"", 202, None),
        ([("Content-Encoding", "gzip")], gzip.compress(b'{"a":1}'), 202, {"a": 1}),
        ([("Content-Encoding", "gzip")], gzip.compress(b'"' + b"a" * 3_000_000 + b'"'), 413, "too_large"),
        ([("Content-Encoding", "gzip")], b"no gzip", 422, "malformed_encoding"),
        ([("Content-Encoding", "br")], b"x", 415, "unsupported_encoding"),
        ([("Content-Type", "application/xml")], b"<a/>", 415, "unsupported_media_type"),
        ([("Content-Type", "application/json; charset=latin-1")], b"{}", 415, "unsupported_charset"),
        ([("Content-Type", "application/json")], b"{", 422, "not_json"),
        ([("Content-Type", "application/json")], b'{"x":NaN}', 422, "not_json"),
        ([("Content-Type", "application/json")], b'{"x":"\\ud800"}', 422, "unstorable_character"),
        ([("Content-Type", "application/json")], b'{"x":"\\u0000"}', 422, "unstorable_character"),
        ([("Content-Type", "application/json")], b'{"x":1e999}', 422, "number_out_of_range"),
        ([("Content-Type", "application/json")], b'{"a":1,"a":2}', 422, "duplicate_key"),
        ([("Content-Type", "application/json")], b"\xff\xfe\x00", 422, "not_json"),
        ([("Content-Type", "application/json")], b"[" * 2_000 + b"]" * 2_000, 422, "too_deep"),
        ([("Content-Type", "application/json")], b'"' + b"a" * 2_200_000 + b'"', 413, "too_large"),
        ([("Content-Type", "application/x-www-form-urlencoded")], b"a=" + b"b" * 2_200_000, 413, "too_large"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bodies_of_every_kind_are_events_or_have_a_clear_refusal(
    api: Api, headers: list[tuple[str, str]], body: bytes, status: int, expected: object
) -> None:
    name = "any-body"
    await source(api, {"slug": name, "scheme": "none", "type": {"constant": "any.body"}})
    before = len(await receipts(api, name, limit="500"))
    answer = await api.http.post(f"/v1/webhooks/{name}", headers=headers, content=body)
    assert answer.status_code == status, answer.text
    if status == 202:
        shown = (await api.http.get(f"/v1/events/{answer.json()['id']}")).json()
        assert shown["data"] == (expected if headers[:1] != FORM else {"payload": '{"a":1}'})
    else:
        assert reason(answer) in (expected, "")
        newest = (await receipts(api, name))[0]
        assert (newest["result"], newest["reason_code"], newest["status"]) == ("rejected", expected, status)
    assert len(await receipts(api, name, limit="500")) == before + 1


FORM = [("Content-Type", "application/x-www-form-urlencoded")]


@pytest.mark.parametrize("case", ["D01", "D02"])
async def test_case_the_raw_bytes_are_what_is_signed(api: Api, case: str) -> None:
    """octokit/webhooks.js#71, mapbox/ecs-conex#64: odd spacing, and characters beyond ASCII."""
    body = {"D01": b'{ "a" : 1.0,  "b":"\\u00e9" }', "D02": '{"commit":"fix 🚀"}'.encode()}[case]
    sender, name = BY_NAME["github"], slug("github")
    await source(api, document(sender, name))
    assert (await post(api, name, signed(sender, body=body), body)).status_code == 202


async def test_case_c02_a_retry_is_known_by_its_id_not_by_its_retry_header(api: Api) -> None:
    sent = payload("slack_event_retry")["request"]
    assert any(name.lower() == "x-slack-retry-num" for name in sent["headers"])
    sender, name = BY_NAME["slack"], slug("slack")
    await source(api, document(sender, name))
    retry = [*signed(sender), ("X-Slack-Retry-Num", "1"), ("X-Slack-Retry-Reason", "http_timeout")]
    assert [(await post(api, name, retry, sender.body)).status_code for _ in range(2)] == [202, 200]


async def test_handshakes_are_answered_and_are_no_events(api: Api) -> None:
    sender, name = BY_NAME["slack"], slug("slack")
    await source(api, document(sender, name))
    body = b'{"type":"url_verification","challenge":"c-1"}'
    answer = await post(api, name, signed(sender, body=body), body)
    assert (answer.status_code, answer.json()) == (200, {"challenge": "c-1"})
    assert [(r["result"], r["reason_code"]) for r in await receipts(api, name)] == [
        ("handshake", "slack_url_verification")
    ]
    unsigned = await post(api, name, [("Content-Type", "application/json")], body)
    assert unsigned.status_code == 401
    consent = await api.http.options(f"/v1/webhooks/{name}", headers={"WebHook-Request-Origin": "events.example.org"})
    assert (consent.status_code, consent.headers["WebHook-Allowed-Origin"]) == (200, "events.example.org")


async def test_i14_the_requests_of_a_source_add_up(api: Api) -> None:
    sender, name = BY_NAME["github"], slug("github")
    await source(api, document(sender, name))
    for _ in range(3):
        await post(api, name, signed(sender), sender.body)
        await post(api, name, signed(sender, secret="wrong"), sender.body)
    assert await metric(api, name) == 6 == len(await receipts(api, name))


async def test_an_unsigned_request_takes_no_id_from_a_signed_one(api: Api) -> None:
    sender, name = BY_NAME["github"], slug("github")
    await source(api, document(sender, name))
    external_id, event_type = sender.event
    assert (await post(api, name, signed(sender, secret="wrong"), sender.body)).status_code == 401
    native = {"event_id": external_id, "source": name, "type": event_type}
    answer = await api.http.post("/v1/events", json=native)
    assert answer.status_code == 422 and "/v1/webhooks/" in answer.text
    assert (await post(api, name, signed(sender), sender.body)).status_code == 202


async def test_a_source_over_its_rate_is_told_when_to_come_back_and_others_are_not(api: Api) -> None:
    sender = BY_NAME["bearer"]
    noisy, quiet = slug("noisy"), slug("quiet")
    await source(api, document(sender, noisy, rate_per_second=5))
    await source(api, document(sender, quiet))
    answers = await asyncio.gather(*(post(api, noisy, signed(sender), sender.body) for _ in range(60)))
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 40 and all(answer.headers["Retry-After"] for answer in refused)
    assert (await post(api, quiet, signed(sender), sender.body)).status_code == 202
    kept = await receipts(api, noisy, reason_code="rate_limited", limit="500")
    assert len(kept) == len(refused)


@pytest.mark.parametrize("name", ["%00", "a%00b", "A", "%ED%A0%80", "x" * 300, "%27"])
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_what_no_source_can_be_called_is_not_found(api: Api, name: str, method: str) -> None:
    answer = await api.http.request(method, f"/v1/webhooks/{name}", content=b"{}")
    assert answer.status_code == 404, answer.text


async def test_an_unknown_source_is_not_found_and_a_deleted_one_no_more(api: Api) -> None:
    assert (await api.http.post("/v1/webhooks/nobody", content=b"{}")).status_code == 404
    sender, name = BY_NAME["bearer"], slug("gone")
    await source(api, document(sender, name))
    assert (await api.http.delete(f"/v1/sources/{name}")).status_code == 204
    assert (await post(api, name, signed(sender), sender.body)).status_code == 404


async def test_a_named_secret_that_is_gone_is_a_503_that_says_so_to_the_operator(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, name = BY_NAME["github"], slug("named")
    missing = await api.http.put(
        f"/v1/sources/{name}", json=document(sender, name, secrets=["${ secret.HOOK_SECRET }"])
    )
    assert missing.status_code == 422 and "ACTIVITY_CORE_SECRET_HOOK_SECRET" in missing.text
    monkeypatch.setenv("ACTIVITY_CORE_SECRET_HOOK_SECRET", sender.secrets[0])
    made = await source(api, document(sender, name, secrets=["${ secret.HOOK_SECRET }"]))
    assert made["secrets"][0]["name"] == "HOOK_SECRET"
    assert (await post(api, name, signed(sender), sender.body)).status_code == 202
    monkeypatch.delenv("ACTIVITY_CORE_SECRET_HOOK_SECRET")
    api.app.state.services.sources._live.clear()
    assert (await post(api, name, signed(sender), sender.body)).status_code == 503
    assert "is not set" in (await api.http.get(f"/v1/sources/{name}")).json()["trouble"][0]
