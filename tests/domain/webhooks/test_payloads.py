"""Requests as senders make them: every recorded payload, and the faults that other receivers had with them."""

import base64
import gzip
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from activity_core.domain.webhooks.handshakes import ConfirmSubscription
from activity_core.domain.webhooks.identity import from_header, from_template
from activity_core.domain.webhooks.outcomes import Refused
from activity_core.domain.webhooks.presets import PRESETS, Source
from activity_core.domain.webhooks.receiving import Delivery, Outcome, SnsTrust, receive
from activity_core.domain.webhooks.schemes import Bearer, Hmac
from activity_core.domain.webhooks.sns import Sns
from tests.domain.webhooks.support import (
    CAP,
    GENERIC,
    NOW,
    Headers,
    b64_mac,
    hex_mac,
    payload,
    payload_request,
    request,
    rsa_verify,
)

TOPICS = Sns(topics=("arn:aws:sns:eu-west-1:000000000000:orders",))
GRAFANA = Source(
    Hmac(
        "X-Grafana-Alerting-Signature",
        signed="{timestamp}:{body}",
        timestamp_header="X-Grafana-Alerting-Timestamp",
    ),
    types=(from_template("grafana.{/status}"),),
)
ALERTMANAGER = Source(Bearer(), types=(from_template("alertmanager.{/status}"),))
SNS = replace(PRESETS["sns"], scheme=TOPICS)

CASES: list[tuple[str, Source, str | None, str | None, str]] = [
    (
        "github_issues_opened",
        PRESETS["github"],
        "test-gh-secret",
        "7f0c1c5e-e6f0-11f0-8000-000000000002",
        "github.issues.opened",
    ),
    ("grafana_alert", GRAFANA, "test-grafana-secret", None, "grafana.firing"),
    (
        "pagerduty_incident",
        PRESETS["pagerduty"],
        "test-pd-secret",
        "01PDTESTEVENT0000000000001",
        "pagerduty.incident.triggered",
    ),
    ("slack_event_retry", PRESETS["slack"], "test-slack-secret", "Ev0TEST0001", "slack.app_mention"),
    ("slack_slash_command", PRESETS["slack"], "test-slack-secret", "111.222.aabbcc", "slack.command.deploy"),
    ("sns_notification", SNS, None, "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "sns.orders"),
]


def trust(name: str) -> SnsTrust | None:
    certificate = payload(name)["signature"].get("test_certificate_pem")
    return SnsTrust(certificate, rsa_verify) if certificate else None


@pytest.mark.parametrize(("name", "source", "secret", "event_id", "event_type"), CASES, ids=[case[0] for case in CASES])
def test_a_recorded_request_is_verified_and_known(
    name: str, source: Source, secret: str | None, event_id: str | None, event_type: str
) -> None:
    sent = payload_request(name)
    secrets = [secret] if secret else []
    outcome = receive(sent, source, secrets, NOW, cap=CAP, sns=trust(name))
    assert isinstance(outcome, Delivery)
    assert (outcome.external_id, outcome.type) == (event_id, event_type)
    assert event_id == payload(name)["event_id"]["value"]
    if name != "slack_slash_command":
        assert outcome.data == json.loads(sent.body)

    # In the middle of the message of SNS, whose UnsubscribeURL is not signed, stands the text that is.
    middle = sent.body.index(b"42") if name == "sns_notification" else len(sent.body) // 2
    for at in (0, middle, len(sent.body) - 1):
        altered = replace(sent, body=sent.body[:at] + bytes([sent.body[at] ^ 1]) + sent.body[at + 1 :])
        assert isinstance(receive(altered, source, secrets, NOW, cap=CAP, sns=trust(name)), Refused)


def test_a_slash_command_is_decoded_to_an_object_of_strings() -> None:
    outcome = receive(payload_request("slack_slash_command"), PRESETS["slack"], ["test-slack-secret"], NOW, cap=CAP)
    assert isinstance(outcome, Delivery) and isinstance(outcome.data, dict)
    assert outcome.data["text"] == "web prod & notify=yes ✓"
    assert outcome.data["command"] == "/deploy"


def test_c02_a_slack_retry_is_the_same_event_whatever_its_retry_headers_say() -> None:
    retry = payload_request("slack_event_retry")
    first = replace(retry, headers=tuple(pair for pair in retry.headers if not pair[0].startswith("X-Slack-Retry")))
    outcomes = [receive(sent, PRESETS["slack"], ["test-slack-secret"], NOW, cap=CAP) for sent in (first, retry)]
    assert outcomes[0] == outcomes[1] and isinstance(outcomes[0], Delivery)


def test_alertmanager_has_no_signature_and_no_id_and_is_an_event_still() -> None:
    sent = payload_request("alertmanager_group")
    authorized = replace(sent, headers=(*sent.headers, ("Authorization", "bearer am-token")))
    outcome = receive(authorized, ALERTMANAGER, ["am-token"], NOW, cap=CAP)
    assert isinstance(outcome, Delivery)
    assert (outcome.external_id, outcome.id_origin, outcome.type) == (None, "fresh", "alertmanager.firing")
    refused = receive(sent, ALERTMANAGER, ["am-token"], NOW, cap=CAP)
    assert isinstance(refused, Refused) and refused.reason_code == "missing_signature"


def test_a_batch_of_cloudevents_is_one_body_here() -> None:
    """What a batch is belongs to the API; a webhook source takes the document as it is."""
    outcome = receive(payload_request("cloudevents_batch"), PRESETS["none"], (), NOW, cap=CAP)
    assert isinstance(outcome, Delivery) and isinstance(outcome.data, list) and len(outcome.data) == 3


def test_d06_sns_sends_json_as_plain_text_and_a_handshake_first() -> None:
    name = "sns_subscription_confirmation"
    sent = payload_request(name)
    outcome = receive(sent, SNS, (), NOW, cap=CAP, sns=trust(name))
    assert isinstance(outcome, ConfirmSubscription)
    assert outcome.url == json.loads(sent.body)["SubscribeURL"]
    for scheme, given, now in (
        (TOPICS, None, NOW),
        (TOPICS, SnsTrust(trust(name).certificate_pem, lambda *_: False), NOW),  # type: ignore[union-attr]
        (Sns(), trust(name), NOW),
        (TOPICS, trust(name), NOW + timedelta(hours=2)),
    ):
        assert isinstance(receive(sent, replace(SNS, scheme=scheme), (), now, cap=CAP, sns=given), Refused)


D01 = base64.b64decode("eyJtc2ciIDogIlx1MDAxQlszMW1yZWRcdTAwMUJbMG0iLCAicHJpY2UiOiAxLjEwLCAiYiI6MSwgImEiOjJ9")
D01_SIGNATURE = "sha256=0da76bf7e767648cc3259acb20bf649dc22bf137ed3f3d7e9eb5d2159a333ae8"
D01_RESERIALISED = "sha256=524aae038d72d8ca6d89420b0b18369c0843eb38dc2c91311b5bec9e040b633a"
D02 = '{"commit":"fix 🐛 for naïve users"}'.encode()
D02_SIGNATURE = "sha256=be2444e49492b65702867f29629f6a21428240c266fc6519dd5484f5902cb3a4"
D10 = base64.b64decode("H4sIAAAAAAACA6tWSsvPV7JSSkosUqoFAO/1K/4NAAAA")
D10_SIGNATURE = "sha256=02e5a239b08e36b506f4260325c36943ea4586b438ae89d842dcd6efccf267b2"
D10_UNCOMPRESSED = "sha256=9b1abf7d901bda91325d00f6b397fb0dc257937939b27d4dc67848ab9e08f6c0"


def generic(event_id: str, body: bytes, signature: str, **more: str) -> Outcome:
    headers: Headers = [
        ("Content-Type", "application/json"),
        ("X-Event-Id", event_id),
        ("X-Event-Type", "demo"),
        ("X-Hub-Signature-256", signature),
    ]
    given = {**dict(headers), **{name.replace("_", "-"): value for name, value in more.items()}}
    return receive(request(given.items(), body), GENERIC, ["test-secret"], NOW, cap=CAP)


def test_d01_the_raw_bytes_are_signed_not_what_a_parser_makes_of_them() -> None:
    outcome = generic("d01", D01, D01_SIGNATURE)
    assert isinstance(outcome, Delivery)
    assert (outcome.external_id, outcome.type) == ("d01", "demo")
    assert outcome.data == {"msg": "\x1b[31mred\x1b[0m", "price": 1.1, "b": 1, "a": 2}
    assert isinstance(generic("d01", D01, D01_RESERIALISED), Refused)
    for at in range(len(D01)):
        for bit in range(8):
            altered = D01[:at] + bytes([D01[at] ^ 1 << bit]) + D01[at + 1 :]
            refused = generic("d01", altered, D01_SIGNATURE)
            assert isinstance(refused, Refused) and refused.reason_code == "bad_signature"


def test_d02_emoji_are_kept_and_another_charset_is_named() -> None:
    outcome = generic("d02", D02, D02_SIGNATURE)
    assert isinstance(outcome, Delivery) and outcome.data == {"commit": "fix 🐛 for naïve users"}
    refused = generic("d02", D02, D02_SIGNATURE, Content_Type="application/json; charset=ISO-8859-1")
    assert isinstance(refused, Refused) and refused.reason_code == "unsupported_charset"
    assert "iso-8859-1" in refused.message and refused.family == "unsupported"


def test_d10_the_bytes_as_sent_are_signed_and_gzip_is_undone_within_a_cap() -> None:
    outcome = generic("d10", D10, D10_SIGNATURE, Content_Encoding="gzip")
    assert isinstance(outcome, Delivery) and outcome.data == {"foo": "bar"}
    refused = generic("d10", D10, D10_UNCOMPRESSED, Content_Encoding="gzip")
    assert isinstance(refused, Refused) and refused.reason_code == "bad_signature"


@pytest.mark.parametrize(
    ("encoding", "body", "reason_code", "family"),
    [
        ("br", D10, "unsupported_encoding", "unsupported"),
        ("gzip, gzip", D10, "unsupported_encoding", "unsupported"),
        ("gzip", gzip.compress(bytes(50_000_000)), "too_large", "too_large"),
        ("gzip", D10[:-3], "malformed_encoding", "malformed"),
        ("gzip", D10 + D10, "malformed_encoding", "malformed"),
        ("gzip", b'{"foo":"bar"}', "malformed_encoding", "malformed"),
    ],
    ids=["brotli", "twice", "bomb", "truncated", "two members", "plain"],
)
def test_d10_other_encodings_and_bombs(encoding: str, body: bytes, reason_code: str, family: str) -> None:
    headers: Any = [("Content-Encoding", encoding), ("X-Event-Id", "d10")]
    refused = receive(request(headers, body), PRESETS["none"], (), NOW, cap=CAP)
    assert isinstance(refused, Refused) and (refused.reason_code, refused.family) == (reason_code, family)


def test_github_forms_hold_the_document_in_their_payload() -> None:
    """GitHub's default content type; the form is what is signed."""
    document = payload_request("github_issues_opened").body
    body = urlencode({"payload": document.decode()}).encode()
    headers = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("X-GitHub-Event", "issues"),
        ("X-GitHub-Delivery", "d-1"),
        ("X-Hub-Signature-256", "sha256=" + hex_mac("s", body)),
    ]
    outcome = receive(request(headers, body), PRESETS["github"], ["s"], NOW, cap=CAP)
    assert isinstance(outcome, Delivery)
    assert (outcome.type, outcome.data) == ("github.issues.opened", json.loads(document))


def test_the_delivery_of_shopify_may_be_told_by_its_other_header() -> None:
    source = replace(PRESETS["shopify"], ids=(from_header("X-Shopify-Webhook-Id"),))
    headers = [
        ("X-Shopify-Hmac-Sha256", b64_mac(b"s", b"{}")),
        ("X-Shopify-Webhook-Id", "w-1"),
        ("X-Shopify-Event-Id", "e-1"),
        ("X-Shopify-Topic", "app/uninstalled"),
    ]
    outcomes = [receive(request(headers, b"{}"), each, ["s"], NOW, cap=CAP) for each in (source, PRESETS["shopify"])]
    assert [outcome.external_id for outcome in outcomes if isinstance(outcome, Delivery)] == ["w-1", "e-1"]
    assert {outcome.type for outcome in outcomes if isinstance(outcome, Delivery)} == {"shopify.app.uninstalled"}
