"""What the owners of the schemes publish: a secret, a request, and the signature that belongs to it."""

from datetime import UTC, datetime, timedelta

import pytest

from activity_core.domain.webhooks.outcomes import Refused, Verified
from activity_core.domain.webhooks.presets import PRESETS, PresetName
from activity_core.domain.webhooks.schemes import SharedSecret, verify
from activity_core.domain.webhooks.sns import Sns
from tests.domain.webhooks.support import Headers, b64_mac, hex_mac, request

SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
    b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
    b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
    b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
STANDARD_KEY = bytes.fromhex("31f290f6bf06298aab4f08d43c3f082cf648a362da2da4b0")

VECTORS: dict[str, tuple[SharedSecret, str, int, Headers, bytes]] = {}


def _scheme(preset: PresetName) -> SharedSecret:
    scheme = PRESETS[preset].scheme
    assert not isinstance(scheme, Sns)
    return scheme


def _vector(name: str, preset: PresetName, secret: str, at: int, headers: Headers, body: bytes) -> None:
    VECTORS[name] = (_scheme(preset), secret, at, headers, body)


_vector(
    "Standard Webhooks",
    "standard_webhooks",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    1614265330,
    [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ],
    b'{"test": 2432232314}',
)
_vector(
    "GitHub",
    "github",
    "It's a Secret to Everybody",
    0,
    [("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")],
    b"Hello, World!",
)
_vector(
    "Slack",
    "slack",
    "8f742231b10e8888abcd99yyyzzz85a5",
    1531420618,
    [
        ("X-Slack-Request-Timestamp", "1531420618"),
        ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
    ],
    SLACK_BODY,
)


@pytest.mark.parametrize("name", VECTORS)
def test_the_published_example_is_verified_and_an_altered_one_is_not(name: str) -> None:
    scheme, secret, at, headers, body = VECTORS[name]
    now = datetime.fromtimestamp(at, UTC)
    assert isinstance(verify(request(headers, body), scheme, [secret], now), Verified)
    for altered in (body + b" ", body[:-1], body.replace(b"e", b"E", 1)):
        refused = verify(request(headers, altered), scheme, [secret], now)
        assert isinstance(refused, Refused) and refused.reason_code == "bad_signature"


def test_stripe_and_shopify_as_their_pages_describe_them() -> None:
    """They publish no example with its secret, so the signature is computed here, from the description."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    at, body = int(now.timestamp()), b'{"id": "evt_test_webhook", "object": "event"}'
    stripe = [("Stripe-Signature", f"t={at},v1={hex_mac('whsec_test', f'{at}.'.encode() + body)},v0=6ffbb59b2300aae6")]
    shopify = [("X-Shopify-Hmac-SHA256", b64_mac(b"hush", body))]
    assert isinstance(verify(request(stripe, body), _scheme("stripe"), ["whsec_test"], now), Verified)
    assert isinstance(verify(request(shopify, body), _scheme("shopify"), ["hush"], now), Verified)


def test_the_key_of_a_standard_webhooks_secret_is_its_base64_after_the_prefix() -> None:
    scheme = _scheme("standard_webhooks")
    now = datetime(2021, 2, 25, 15, 2, 10, tzinfo=UTC)
    mac = b64_mac(STANDARD_KEY, b"msg_1.1614265330.{}")
    headers = [("webhook-id", "msg_1"), ("webhook-timestamp", "1614265330"), ("webhook-signature", f"v1,{mac}")]
    for secret in ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"):
        verified = verify(request(headers, b"{}"), scheme, [secret], now + timedelta(seconds=1))
        assert verified == Verified(secret=0, signed_at=now)
