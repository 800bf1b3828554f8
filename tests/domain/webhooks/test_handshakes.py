"""Requests that are no events: they are answered, and only once they are verified."""

import json
from typing import Any

import pytest

from activity_core.domain.webhooks.handshakes import Reply, cloudevents_validation
from activity_core.domain.webhooks.outcomes import Refused
from activity_core.domain.webhooks.presets import PRESETS
from activity_core.domain.webhooks.receiving import Delivery, Outcome, receive
from tests.domain.webhooks.support import CAP, NOW, SENDERS, Headers, request

SLACK = next(sender for sender in SENDERS if sender.name == "slack")


def slack(document: Any, *, secret: str | None = None) -> Outcome:
    body = json.dumps(document).encode()
    return SLACK.receive(SLACK.headers(secret=secret, body=body), body)


def test_the_challenge_of_slack_goes_back_as_json() -> None:
    outcome = slack({"type": "url_verification", "token": "x", "challenge": "3eZbrw1aB<b>"})
    assert isinstance(outcome, Reply)
    assert (outcome.status, outcome.media_type) == (200, "application/json")
    assert json.loads(outcome.body) == {"challenge": "3eZbrw1aB<b>"}


def test_a_challenge_that_is_not_signed_goes_nowhere() -> None:
    outcome = slack({"type": "url_verification", "challenge": "x"}, secret="another")
    assert isinstance(outcome, Refused) and outcome.reason_code == "bad_signature"


@pytest.mark.parametrize("challenge", [None, "", 5, {"a": 1}, "x" * 1_025])
def test_an_odd_challenge_is_refused(challenge: Any) -> None:
    outcome = slack({"type": "url_verification", "challenge": challenge})
    assert isinstance(outcome, Refused) and outcome.reason_code == "malformed_handshake"


def test_other_slack_requests_are_events() -> None:
    limited = slack({"type": "app_rate_limited", "minute_rate_limited": 5})
    assert isinstance(limited, Delivery) and (limited.type, limited.id_origin) == ("slack.app_rate_limited", "fresh")
    assert isinstance(slack([]), Refused)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"ssl_check=1&token=x", Reply("slack_ssl_check")),
        (b"payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%221.2%22%7D", "slack.block_actions"),
        (b"command=%2Fdeploy&trigger_id=1.2&ssl_check=1", "slack.command.deploy"),
    ],
)
def test_slack_forms(body: bytes, expected: Any) -> None:
    headers = [("Content-Type", "application/x-www-form-urlencoded"), *SLACK.headers(body=body)[1:]]
    outcome = SLACK.receive(headers, body)
    assert (outcome.type if isinstance(outcome, Delivery) else outcome) == expected


def test_a_challenge_to_another_source_is_an_event_of_its() -> None:
    body = b'{"type":"url_verification","challenge":"x"}'
    assert isinstance(receive(request([], body), PRESETS["none"], (), NOW, cap=CAP), Delivery)


def validation(headers: Headers, **more: Any) -> Reply | Refused:
    return cloudevents_validation(request(headers, b""), **more)


@pytest.mark.parametrize(
    ("asked", "per_minute", "granted"),
    [(None, None, "*"), ("120", None, "120"), ("120", 60, "60"), ("30", 60, "30"), (None, 60, "60"), ("*", 60, "60")],
)
def test_the_validation_of_cloudevents_names_origin_and_rate(
    asked: str | None, per_minute: int | None, granted: str
) -> None:
    rate = [] if asked is None else [("WebHook-Request-Rate", asked)]
    outcome = validation([("webhook-request-origin", "eventemitter.example.com"), *rate], per_minute=per_minute)
    assert isinstance(outcome, Reply) and outcome.status == 200
    assert dict(outcome.headers) == {
        "Allow": "POST, OPTIONS",
        "WebHook-Allowed-Origin": "eventemitter.example.com",
        "WebHook-Allowed-Rate": granted,
    }


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], "malformed_handshake"),
        ([("WebHook-Request-Origin", "")], "malformed_handshake"),
        ([("WebHook-Request-Origin", "a\r\nSet-Cookie: x")], "malformed_handshake"),
        ([("WebHook-Request-Origin", "é.example")], "malformed_handshake"),
        ([("WebHook-Request-Origin", "x" * 300)], "malformed_handshake"),
        ([("WebHook-Request-Origin", "a.example"), ("WebHook-Request-Rate", "-1")], "malformed_handshake"),
        ([("WebHook-Request-Origin", "a.example"), ("WebHook-Request-Origin", "b.example")], "doubled_header"),
        ([("WebHook-Request-Origin", "b.example")], "origin_not_allowed"),
    ],
)
def test_validations_that_are_refused(headers: Headers, expected: str) -> None:
    outcome = validation(headers, allowed_origins=("a.example",))
    assert isinstance(outcome, Refused) and outcome.reason_code == expected


def test_an_allowed_origin_is_found_whatever_its_case() -> None:
    assert isinstance(validation([("WebHook-Request-Origin", "A.example")], allowed_origins=("a.example",)), Reply)
