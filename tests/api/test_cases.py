"""Faults that other receivers had, and requests as their senders document them, against this door: by their case ids."""

import base64
import gzip
import json
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import httpx
import pytest
import structlog

from tests.api.conftest import Api
from tests.api.samples import event_activity
from tests.api.webhooks import post, reason, receipts, source
from tests.domain.webhooks.support import b64_mac, hex_mac, payload

Json = dict[str, Any]

SLACK, GRAFANA = "test-slack-secret", "test-grafana-secret"
GENERIC: Json = {"scheme": "hmac", "signature": {"header": "X-Hub-Signature-256", "prefix": "sha256="}}
SECRET = "test-secret"


def slug(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


async def event(api: Api, answer: httpx.Response) -> Json:
    assert answer.status_code in (200, 202), answer.text
    shown: Json = (await api.http.get(f"/v1/events/{answer.json()['id']}")).json()
    return shown


async def generic(api: Api) -> str:
    name = slug("generic")
    await source(api, {"slug": name, "secrets": [SECRET], **GENERIC})
    return name


async def started(api: Api, event_type: str) -> list[str]:
    """The event ids that an activity for this type of event is owed runs of."""
    rows = await api.sql(
        "SELECT o.key FROM occurrences o JOIN activities a ON a.id = o.activity_id "
        "WHERE a.slug = $1 AND o.outcome = 'waiting'",
        f"of-{event_type.replace('.', '-').lower()}",
    )
    return [row["key"] for row in rows]


async def watch(api: Api, event_type: str) -> None:
    document = event_activity(event_type, slug=f"of-{event_type.replace('.', '-').lower()}")
    assert (await api.http.post("/v1/activities", json=document)).status_code == 201


# -- requests as recorded; where a timestamp is signed, signed anew as of now

TOPIC = "arn:aws:sns:eu-west-1:000000000000:orders"
DOCUMENTS: dict[str, Json] = {
    "github_issues_opened": {"scheme": "github", "secrets": ["test-gh-secret"]},
    "pagerduty_incident": {"scheme": "pagerduty", "secrets": ["test-pd-secret"]},
    "slack_event_retry": {"scheme": "slack", "secrets": [SLACK]},
    "slack_slash_command": {"scheme": "slack", "secrets": [SLACK]},
    "grafana_alert": {
        "scheme": "hmac",
        "secrets": [GRAFANA],
        "signature": {
            "header": "X-Grafana-Alerting-Signature",
            "signed": "{timestamp}:{body}",
            "timestamp_header": "X-Grafana-Alerting-Timestamp",
        },
        "type": {"template": "grafana.${ data.status }"},
    },
    "alertmanager_group": {
        "scheme": "bearer",
        "secrets": ["am-token"],
        "type": {"template": "alertmanager.${ data.status }"},
    },
    "cloudevents_batch": {"scheme": "none"},
}
EXPECTED = {
    "github_issues_opened": "github.issues.opened",
    "pagerduty_incident": "pagerduty.incident.triggered",
    "slack_event_retry": "slack.app_mention",
    "slack_slash_command": "slack.command.deploy",
    "grafana_alert": "grafana.firing",
    "alertmanager_group": "alertmanager.firing",
    "cloudevents_batch": "webhook.received",
}


def recorded(name: str) -> tuple[dict[str, str], bytes]:
    sent = payload(name)["request"]
    headers, body = dict(sent["headers"]), base64.b64decode(sent["body_b64"])
    now = int(time.time())
    if name.startswith("slack"):
        headers |= {"X-Slack-Request-Timestamp": str(now)}
        headers |= {"X-Slack-Signature": "v0=" + hex_mac(SLACK, b"v0:%d:" % now + body)}
    if name == "grafana_alert":
        headers |= {"X-Grafana-Alerting-Timestamp": str(now)}
        headers |= {"X-Grafana-Alerting-Signature": hex_mac(GRAFANA, b"%d:" % now + body)}
    if name == "alertmanager_group":
        headers |= {"Authorization": "Bearer am-token"}
    return headers, body


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_a_recorded_request_is_an_event_with_the_id_and_type_that_its_sender_documents(
    api: Api, name: str
) -> None:
    at = slug(name.replace("_", "-"))
    await source(api, {"slug": at, **DOCUMENTS[name]})
    headers, body = recorded(name)
    shown = await event(api, await post(api, at, list(headers.items()), body))
    assert shown["type"] == EXPECTED[name]
    documented = payload(name)["event_id"]["value"]
    if isinstance(documented, str):
        assert shown["event_id"] == f"{at}:{documented}"
    else:
        assert shown["external_id"].startswith("evt_")
    if name == "slack_slash_command":
        assert shown["data"]["text"] == "web prod & notify=yes ✓"
    else:
        assert shown["data"] == json.loads(body)
    if name != "cloudevents_batch":
        unsigned = {k: v for k, v in headers.items() if "signature" not in k.lower() and k != "Authorization"}
        refused = await post(api, at, list(unsigned.items()), body)
        assert (refused.status_code, reason(refused)) == (401, "missing_signature")


@pytest.mark.parametrize("name", ["slack_event_retry", "grafana_alert"])
async def test_a_recorded_request_as_it_was_is_stale_by_now(api: Api, name: str) -> None:
    at = slug("stale")
    await source(api, {"slug": at, **DOCUMENTS[name]})
    sent = payload(name)["request"]
    answer = await post(api, at, list(sent["headers"].items()), base64.b64decode(sent["body_b64"]))
    expected = "stale_timestamp" if sent_long_ago(sent["headers"]) else "future_timestamp"
    assert (answer.status_code, reason(answer)) == (401, expected)


def sent_long_ago(headers: Mapping[str, str]) -> bool:
    times = [int(value) for name, value in headers.items() if name.endswith("Timestamp")]
    return max(times) < time.time()


@pytest.mark.parametrize("name", ["sns_notification", "sns_subscription_confirmation"])
async def test_d06_a_message_whose_certificate_is_not_of_sns_is_refused(api: Api, name: str) -> None:
    """As recorded it names an address of SNS, which a test has no way to: see test_sns.py for what then happens."""
    at = slug("sns")
    await source(api, {"slug": at, "scheme": "sns", "topics": [TOPIC]})
    sent = payload(name)["request"]
    message = json.loads(base64.b64decode(sent["body_b64"]))
    for url in (
        "https://127.0.0.1/SimpleNotificationService-1.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.example/",
    ):
        body = json.dumps({**message, "SigningCertURL": url}).encode()
        answer = await post(api, at, list(sent["headers"].items()), body)
        assert (answer.status_code, reason(answer)) == (401, "untrusted_url")
    assert await api.sql("SELECT 1 FROM events WHERE source = $1", at) == []


# -- c-dedupe


async def test_case_c02_a_slack_retry_is_known_by_its_event_id(api: Api) -> None:
    at = slug("c02")
    kind = f"slack.t{uuid4().hex[:6]}"
    await source(api, {"slug": at, **DOCUMENTS["slack_event_retry"], "type": {"constant": kind}})
    await watch(api, kind)
    headers, body = recorded("slack_event_retry")
    assert headers["X-Slack-Retry-Num"] == "1"
    answers = [await post(api, at, list(headers.items()), body) for _ in range(2)]
    assert [(a.status_code, a.json()["status"]) for a in answers] == [(202, "accepted"), (200, "duplicate")]
    await api.route()
    assert await started(api, kind) == [f"{at}:Ev0TEST0001"]


async def test_case_c05_without_an_id_two_alike_are_two_events(api: Api) -> None:
    at, kind = slug("c05"), f"ping.t{uuid4().hex[:6]}"
    await source(api, {"slug": at, "scheme": "none", "type": {"constant": kind}})
    await watch(api, kind)
    answers = [await post(api, at, [("Content-Type", "application/json")], b'{"ping":1}') for _ in range(2)]
    assert [a.status_code for a in answers] == [202, 202]
    assert len({a.json()["event_id"] for a in answers}) == 2
    await api.route()
    assert set(await started(api, kind)) == {a.json()["event_id"] for a in answers}


async def test_case_c06_dedupe_works_inside_a_batch_as_well(api: Api) -> None:
    headers, body = recorded("cloudevents_batch")
    await watch(api, "com.example.order.created")
    first, again = [await api.http.post("/v1/events", headers=headers, content=body) for _ in range(2)]
    assert [item["status"] for item in first.json()["items"]] == ["accepted", "accepted", "duplicate"]
    assert (again.status_code, {item["status"] for item in again.json()["items"]}) == (200, {"duplicate"})
    await api.route()
    assert len(await started(api, "com.example.order.created")) == 2


async def test_case_c08_the_same_id_of_two_sources_is_two_events(api: Api) -> None:
    kind = f"c08.t{uuid4().hex[:6]}"
    await watch(api, kind)
    for sender in ("/svc/a", "/svc/b"):
        sent = {"specversion": "1.0", "id": "1", "source": sender, "type": kind}
        answer = await api.http.post("/v1/events", json=sent, headers={"Content-Type": "application/cloudevents+json"})
        assert answer.status_code == 202
    await api.route()
    assert len(await started(api, kind)) == 2


# -- d-ingest

D01 = base64.b64decode("eyJtc2ciIDogIlx1MDAxQlszMW1yZWRcdTAwMUJbMG0iLCAicHJpY2UiOiAxLjEwLCAiYiI6MSwgImEiOjJ9")
D01_SIGNATURE = "sha256=0da76bf7e767648cc3259acb20bf649dc22bf137ed3f3d7e9eb5d2159a333ae8"
D01_RESERIALISED = "sha256=524aae038d72d8ca6d89420b0b18369c0843eb38dc2c91311b5bec9e040b633a"
D02 = '{"commit":"fix 🐛 for naïve users"}'.encode()
D02_SIGNATURE = "sha256=be2444e49492b65702867f29629f6a21428240c266fc6519dd5484f5902cb3a4"
D04 = b'{"specversion":"1.0","id":"d04","source":"/az","type":"com.example.t","data":{"k":1}}'
D08 = base64.b64decode("gIGC/wBQTkc=")
D10 = base64.b64decode("H4sIAAAAAAACA6tWSsvPV7JSSkosUqoFAO/1K/4NAAAA")
D10_SIGNATURE = "sha256=02e5a239b08e36b506f4260325c36943ea4586b438ae89d842dcd6efccf267b2"
D10_UNCOMPRESSED = "sha256=9b1abf7d901bda91325d00f6b397fb0dc257937939b27d4dc67848ab9e08f6c0"


def demo(event_id: str, signature: str | None = None, **more: str) -> list[tuple[str, str]]:
    headers = {"Content-Type": "application/json", "X-Event-Id": event_id, "X-Event-Type": "demo"}
    if signature is not None:
        headers["X-Hub-Signature-256"] = signature
    return list({**headers, **{name.replace("_", "-"): value for name, value in more.items()}}.items())


async def test_case_d01_the_raw_bytes_are_what_is_signed(api: Api) -> None:
    at = await generic(api)
    shown = await event(api, await post(api, at, demo("d01", D01_SIGNATURE), D01))
    assert (shown["event_id"], shown["data"]["price"]) == (f"{at}:d01", 1.1)
    assert (await post(api, at, demo("d01b", D01_RESERIALISED), D01)).status_code == 401
    for place in range(len(D01)):
        altered = D01[:place] + bytes([D01[place] ^ 1]) + D01[place + 1 :]
        answer = await post(api, at, demo("d01c", D01_SIGNATURE), altered)
        assert (answer.status_code, reason(answer)) == (401, "bad_signature")
    assert len(await api.sql("SELECT 1 FROM events WHERE source = $1", at)) == 1


async def test_case_d02_text_is_utf_8_whatever_the_charset_says(api: Api) -> None:
    at = await generic(api)
    shown = await event(api, await post(api, at, demo("d02", D02_SIGNATURE), D02))
    assert shown["data"] == {"commit": "fix 🐛 for naïve users"}
    odd = demo("d02b", D02_SIGNATURE, Content_Type="application/json; charset=ISO-8859-1")
    answer = await post(api, at, odd, D02)
    assert (answer.status_code, reason(answer)) == (415, "unsupported_charset")


async def test_case_d04_media_types_have_no_case_and_may_have_parameters(api: Api) -> None:
    content_type = {"Content-Type": "Application/CloudEvents+JSON; charset=utf-8"}
    native = await event(api, await api.http.post("/v1/events", headers=content_type, content=D04))
    assert "d04" in native["event_id"] and native["data"] == {"k": 1}
    at = slug("d04")
    await source(api, {"slug": at, "scheme": "none", "id": {"pointer": "/id"}, "type": {"pointer": "/type"}})
    shown = await event(api, await post(api, at, list(content_type.items()), D04))
    assert (shown["event_id"], shown["type"], shown["data"]) == (f"{at}:d04", "com.example.t", json.loads(D04))


@pytest.mark.parametrize("path", ["webhook", "/v1/events", "/v1/activities", "/v1/sources"])
async def test_case_d08_a_binary_body_is_refused_and_not_logged(api: Api, path: str) -> None:
    at = slug("d08")
    await source(api, {"slug": at, "scheme": "none"})
    with structlog.testing.capture_logs() as logged:
        answer = await api.http.post(
            f"/v1/webhooks/{at}" if path == "webhook" else path, headers=demo("d08"), content=D08
        )
    assert answer.status_code in (400, 422), answer.text
    assert "PNG" not in answer.text and "PNG" not in repr(logged)
    assert await api.sql("SELECT 1 FROM events WHERE source = $1", at) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"x":NaN}', "not_json"),
        (b'{"x":-Infinity}', "not_json"),
        (b'{"x":"\\ud800"}', "unstorable_character"),
        (b'{"x":1e999}', "number_out_of_range"),
        (b'{"a":1,"a":2}', "duplicate_key"),
    ],
)
async def test_case_d09_what_can_not_be_kept_is_refused_by_name_at_every_door(
    api: Api, body: bytes, expected: str
) -> None:
    at = slug("d09")
    await source(api, {"slug": at, "scheme": "none"})
    headers = [("Content-Type", "application/json"), ("X-Event-Type", "demo")]
    answer = await post(api, at, headers, body)
    assert (answer.status_code, reason(answer)) == (422, expected)
    assert (await receipts(api, at))[0]["reason_code"] == expected
    native = await api.http.post("/v1/events", content=b'{"type":"demo","data":' + body + b"}")
    assert native.status_code in (400, 422)


async def test_case_d10_a_compressed_body_is_verified_as_it_was_sent_and_unpacked_within_a_cap(api: Api) -> None:
    at = await generic(api)
    packed = demo("d10", D10_SIGNATURE, Content_Encoding="gzip")
    assert (await event(api, await post(api, at, packed, D10)))["data"] == {"foo": "bar"}
    plain = demo("d10b", D10_UNCOMPRESSED, Content_Encoding="gzip")
    assert reason(await post(api, at, plain, D10)) == "bad_signature"
    others = [
        ("br", D10, 415, "unsupported_encoding"),
        ("gzip", gzip.compress(bytes(50_000_000)), 413, "too_large"),
        ("gzip", D10[:-6], 422, "malformed_encoding"),
        ("gzip", b64_mac(b"k", b"").encode(), 422, "malformed_encoding"),
    ]
    for encoding, body, status, expected in others:
        headers = demo("d10c", "sha256=" + hex_mac(SECRET, body), Content_Encoding=encoding)
        answer = await post(api, at, headers, body)
        assert (answer.status_code, reason(answer)) == (status, expected)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, "ce-id"),
        ({"ce-id": ""}, "ce-id"),
        ({"ce-id": "1", "ce-specversion": "0.3"}, "specversion"),
        ({"ce-id": "1", "ce-specversion": "2.0"}, "specversion"),
    ],
)
async def test_case_d13_what_a_binary_cloudevent_lacks_is_named(api: Api, changed: dict[str, str], says: str) -> None:
    kind = f"d13-{uuid4().hex[:6]}"
    headers = {"Content-Type": "application/json", "ce-specversion": "1.0", "ce-type": kind, "ce-source": "/s"}
    answer = await api.http.post("/v1/events", headers=headers | changed, content=b'{"k":1}')
    assert answer.status_code == 422 and says in json.dumps(answer.json()["errors"]), answer.text
    assert await api.sql("SELECT 1 FROM events WHERE type = $1", kind) == []


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", None])
@pytest.mark.parametrize("size", [1_048_576, 2_200_000, 26_214_400])
async def test_case_d14_the_limit_holds_for_every_type_and_for_chunks(
    api: Api, content_type: str | None, size: int
) -> None:
    """Nothing is accepted that Temporal would not take: an event's data has 256 KiB at most."""
    at = slug("d14")
    await source(api, {"slug": at, "scheme": "none"})
    text = b'{"a":"' if content_type != "application/x-www-form-urlencoded" else b"a="
    end = b'"}' if content_type != "application/x-www-form-urlencoded" else b""
    body = text + b"x" * (size - len(text) - len(end)) + end
    headers = [] if content_type is None else [("Content-Type", content_type)]

    async def chunks() -> Any:  # bytes, bit by bit
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    for content in (body, chunks()):
        answer = await api.http.post(f"/v1/webhooks/{at}", headers=headers, content=content)
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert [r["reason_code"] for r in await receipts(api, at)] == ["too_large"] * 2
    small = await api.http.post(f"/v1/webhooks/{at}", headers=headers, content=text + b"x" * 260_000 + end)
    assert small.status_code == 202, small.text
