"""Requests that are no events: a sender asks whether we are there and want its events."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.domain.webhooks.outcomes import Refused, WebhookRequest
from activity_core.domain.webhooks.sns import SnsMessage, is_subscribe_url

MAX_CHALLENGE = 1_024
_ORIGIN = re.compile(r"[A-Za-z0-9*](?:[A-Za-z0-9._:*/-]{0,252})", re.ASCII)
_RATE = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole answer. `handshake` names it for the receipt."""

    handshake: str
    status: int = 200
    media_type: str | None = None
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ConfirmSubscription:
    """The caller makes one GET of `url`, which is an address of SNS that does nothing else, and answers 200 after it."""

    url: str
    topic_arn: str


def slack_handshake(data: JsonValue) -> Reply | Refused | None:
    """Of a verified request; None when it is an event. The challenge goes back as JSON: as text it could be made a
    page on our origin."""
    if not isinstance(data, dict):
        return None
    if data.get("ssl_check") == "1" and "command" not in data:
        return Reply("slack_ssl_check")
    if data.get("type") != "url_verification":
        return None
    challenge = data.get("challenge")
    if not isinstance(challenge, str) or not 1 <= len(challenge) <= MAX_CHALLENGE:
        return Refused("malformed_handshake", f"'challenge' must be a string of 1 to {MAX_CHALLENGE} characters")
    return Reply("slack_url_verification", 200, "application/json", canonical_json({"challenge": challenge}))


def sns_handshake(message: SnsMessage) -> Reply | ConfirmSubscription | Refused | None:
    """Of a verified message; None when it is an event. The end of a subscription is taken note of: its SubscribeURL
    would undo it."""
    match message.type:
        case "Notification":
            return None
        case "UnsubscribeConfirmation":
            return Reply("sns_unsubscribed")
    url = str(message.document.get("SubscribeURL"))
    if not is_subscribe_url(url, message.topic_arn, str(message.document.get("Token"))):
        return Refused("untrusted_url", "'SubscribeURL' is not the confirmation of this topic on SNS")
    return ConfirmSubscription(url, message.topic_arn)


def cloudevents_validation(
    request: WebhookRequest, *, allowed_origins: Sequence[str] = ("*",), per_minute: int | None = None
) -> Reply | Refused:
    """The answer to OPTIONS (CloudEvents "abuse protection"). It is about consent only: no signature, no trust.
    `allowed_origins` are exact names, or `*` for all. `per_minute`: how many requests are welcome; None for any number."""
    origin = request.header("WebHook-Request-Origin")
    rate = request.header("WebHook-Request-Rate")
    if isinstance(origin, Refused):
        return origin
    if isinstance(rate, Refused):
        return rate
    if not origin or not _ORIGIN.fullmatch(origin):
        return Refused("malformed_handshake", "WebHook-Request-Origin must be the DNS name of the sender")
    if rate and rate != "*" and not _RATE.fullmatch(rate):
        return Refused("malformed_handshake", "WebHook-Request-Rate must be a number of requests a minute")
    if "*" not in allowed_origins and origin.lower() not in {allowed.lower() for allowed in allowed_origins}:
        return Refused("origin_not_allowed", "this origin is not welcome here")
    wanted = int(rate) if rate and rate != "*" else None
    granted = min((limit for limit in (wanted, per_minute) if limit is not None), default=None)
    headers = (
        ("Allow", "POST, OPTIONS"),
        ("WebHook-Allowed-Origin", origin),
        ("WebHook-Allowed-Rate", "*" if granted is None else str(granted)),
    )
    return Reply("cloudevents_validation", 200, headers=headers)
