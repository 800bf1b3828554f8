"""Senders: requests signed by what their documentation says, with nothing of ours but the record they come in."""

import base64
import hashlib
import hmac
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activity_core.domain.webhooks.outcomes import WebhookRequest
from activity_core.domain.webhooks.presets import PRESETS, Source
from activity_core.domain.webhooks.receiving import Outcome, receive
from activity_core.domain.webhooks.schemes import Hmac

PAYLOADS = Path(__file__).with_name("payloads")
CAP = 1_048_576
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
TIMESTAMP = int(NOW.timestamp())

Headers = list[tuple[str, str]]


def request(headers: Iterable[tuple[str, str]], body: bytes, **more: Any) -> WebhookRequest:
    return WebhookRequest("POST", tuple(headers), body, **more)


def payload(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((PAYLOADS / f"{name}.json").read_text())
    return loaded


def payload_request(name: str) -> WebhookRequest:
    sent = payload(name)["request"]
    return request(sent["headers"].items(), base64.b64decode(sent["body_b64"]))


def hex_mac(secret: str, signed: bytes, algorithm: str = "sha256") -> str:
    return hmac.new(secret.encode(), signed, algorithm).hexdigest()


def b64_mac(key: bytes, signed: bytes, algorithm: str = "sha256") -> str:
    return base64.b64encode(hmac.new(key, signed, algorithm).digest()).decode()


@dataclass(frozen=True)
class Sender:
    """`sign` gives the headers for (secret, Unix time, body); `more` are those that are always there."""

    name: str
    source: Source
    secrets: tuple[str, str]
    sign: Callable[[str, int, bytes], Headers]
    body: bytes
    event: tuple[str | None, str]
    signature: str
    more: tuple[tuple[str, str], ...] = ()
    timed: bool = False
    covers_body: bool = True
    ids: tuple[str, ...] = ()  # headers that hold the id

    def headers(self, *, secret: str | None = None, at: int = TIMESTAMP, body: bytes | None = None) -> Headers:
        signed = self.sign(secret or self.secrets[0], at, self.body if body is None else body)
        return [("Content-Type", "application/json"), *signed, *self.more]

    def receive(
        self, headers: Headers, body: bytes | None = None, *, secrets: tuple[str, ...] | None = None
    ) -> Outcome:
        body = self.body if body is None else body
        return receive(request(headers, body), self.source, secrets or self.secrets[:1], NOW, cap=CAP)


WHSEC = tuple("whsec_" + base64.b64encode(hashlib.sha256(name).digest()).decode() for name in (b"new", b"old"))


def _standard_webhooks(secret: str, at: int, body: bytes) -> Headers:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = b64_mac(key, b"msg_1.%d." % at + body)
    return [("webhook-id", "msg_1"), ("webhook-timestamp", str(at)), ("webhook-signature", f"v1,{mac}")]


def _slack(secret: str, at: int, body: bytes) -> Headers:
    mac = hex_mac(secret, b"v0:%d:" % at + body)
    return [("X-Slack-Request-Timestamp", str(at)), ("X-Slack-Signature", f"v0={mac}")]


def _own(secret: str, at: int, body: bytes) -> Headers:
    mac = b64_mac(secret.encode(), b"%d000|evt-7|" % at + body, "sha512")
    return [("X-Own-Time", f"{at}000"), ("X-Own-Id", "evt-7"), ("X-Own-Signature", f"sig={mac}")]


OWN = replace(
    PRESETS["hmac"],
    scheme=Hmac(
        header="X-Own-Signature",
        algorithm="sha512",
        encoding="base64",
        prefix="sig=",
        signed="{timestamp}|{id}|{body}",
        timestamp_header="X-Own-Time",
        timestamp_unit="milliseconds",
        id_header="X-Own-Id",
    ),
)
GENERIC = replace(PRESETS["hmac"], scheme=Hmac(header="X-Hub-Signature-256", prefix="sha256="))

SENDERS = [
    Sender(
        "standard_webhooks",
        PRESETS["standard_webhooks"],
        (WHSEC[0], WHSEC[1]),
        _standard_webhooks,
        b'{"type":"contact.created","data":{"id":7}}',
        ("msg_1", "contact.created"),
        "webhook-signature",
        timed=True,
        ids=("webhook-id",),
    ),
    Sender(
        "github",
        PRESETS["github"],
        ("gh-new", "gh-old"),
        lambda secret, _, body: [("X-Hub-Signature-256", "sha256=" + hex_mac(secret, body))],
        b'{"action": "labeled", "issue": {"id": 5}}',
        ("72d3162e-cc78-11e3-81ab-4c9367dc0958", "github.issues.labeled"),
        "X-Hub-Signature-256",
        (("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"), ("X-GitHub-Event", "issues")),
        ids=("X-GitHub-Delivery",),
    ),
    Sender(
        "stripe",
        PRESETS["stripe"],
        ("whsec_new", "whsec_old"),
        lambda secret, at, body: [("Stripe-Signature", f"t={at},v1={hex_mac(secret, b'%d.' % at + body)}")],
        b'{"id":"evt_1","object":"event","type":"invoice.paid","data":{"object":{"id":"in_1"}}}',
        ("evt_1", "stripe.invoice.paid"),
        "Stripe-Signature",
        timed=True,
    ),
    Sender(
        "slack",
        PRESETS["slack"],
        ("slack-new", "slack-old"),
        _slack,
        b'{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}',
        ("Ev1", "slack.app_mention"),
        "X-Slack-Signature",
        timed=True,
    ),
    Sender(
        "shopify",
        PRESETS["shopify"],
        ("shop-new", "shop-old"),
        lambda secret, _, body: [("X-Shopify-Hmac-Sha256", b64_mac(secret.encode(), body))],
        b'{"id":820982911946154508,"total_price":"10.00"}',
        ("98880550-7158-44d4-b7cd-2c97c8a091b5", "shopify.orders.create"),
        "X-Shopify-Hmac-Sha256",
        (("X-Shopify-Topic", "orders/create"), ("X-Shopify-Event-Id", "98880550-7158-44d4-b7cd-2c97c8a091b5")),
        ids=("X-Shopify-Event-Id",),
    ),
    Sender(
        "pagerduty",
        PRESETS["pagerduty"],
        ("pd-new", "pd-old"),
        lambda secret, _, body: [("X-PagerDuty-Signature", "v1=" + hex_mac(secret, body))],
        b'{"event":{"id":"01A","event_type":"incident.triggered","data":{"id":"Q1"}}}',
        ("01A", "pagerduty.incident.triggered"),
        "X-PagerDuty-Signature",
    ),
    Sender(
        "hmac",
        OWN,
        ("own-new", "own-old"),
        _own,
        b'{"n":1}',
        ("evt-7", "webhook.received"),
        "X-Own-Signature",
        (("X-Event-Id", "evt-7"),),
        timed=True,
        ids=("X-Own-Id", "X-Event-Id"),
    ),
    Sender(
        "bearer",
        PRESETS["bearer"],
        ("token-new", "token-old"),
        lambda secret, _, body: [("Authorization", f"Bearer {secret}")],
        b'{"n":1}',
        ("e1", "demo"),
        "Authorization",
        (("X-Event-Id", "e1"), ("X-Event-Type", "demo")),
        covers_body=False,
        ids=("X-Event-Id",),
    ),
    Sender(
        "basic",
        PRESETS["basic"],
        ("user:new", "user:old"),
        lambda secret, _, body: [("Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}")],
        b'{"n":1}',
        (None, "demo"),
        "Authorization",
        (("X-Event-Type", "demo"),),
        covers_body=False,
    ),
]


# RSA for SNS, for tests only: PKCS #1 v1.5 by the book, and a key that is made anew from a seed.

_DIGEST_INFO = {
    "sha1": bytes.fromhex("3021300906052b0e03021a05000414"),
    "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
}
E = 65_537


def _prime(rng: random.Random, bits: int) -> int:
    while True:
        candidate = rng.getrandbits(bits) | (3 << (bits - 2)) | 1
        if candidate % E != 1 and all(pow(base, candidate - 1, candidate) == 1 for base in (2, 3, 5, 7)):
            return candidate


_RNG = random.Random(1)
_P, _Q = _prime(_RNG, 512), _prime(_RNG, 512)
OWN_CERTIFICATE = "the certificate of the key made here"
OWN_MODULUS = _P * _Q


def _encoded(signed: bytes, hash_name: str, size: int) -> bytes:
    info = _DIGEST_INFO[hash_name] + hashlib.new(hash_name, signed).digest()
    return b"\x00\x01" + b"\xff" * (size - 3 - len(info)) + b"\x00" + info


def rsa_sign(signed: bytes, hash_name: str) -> bytes:
    private = pow(E, -1, (_P - 1) * (_Q - 1))
    return pow(int.from_bytes(_encoded(signed, hash_name, 128)), private, OWN_MODULUS).to_bytes(128)


def rsa_verify(pem: str, signature: bytes, signed: bytes, hash_name: str) -> bool:
    modulus = OWN_MODULUS if pem == OWN_CERTIFICATE else _modulus(pem)
    size = (modulus.bit_length() + 7) // 8
    if len(signature) != size or int.from_bytes(signature) >= modulus:
        return False
    return pow(int.from_bytes(signature), E, modulus).to_bytes(size) == _encoded(signed, hash_name, size)


def _der(data: bytes) -> list[tuple[int, bytes]]:
    """The (tag, content) pairs that stand one after another."""
    found, at = [], 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size]), at + size
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _modulus(pem: str) -> int:
    """Of the RSA key in an X.509 certificate."""
    lines = [line for line in pem.splitlines() if line and not line.startswith("-----")]
    to_be_signed = _der(_der(_der(base64.b64decode("".join(lines)))[0][1])[0][1])
    keys = [content for tag, content in to_be_signed if tag == 0x30 and _der(content)[-1][0] == 0x03]
    modulus, exponent = _der(_der(_der(keys[0])[1][1][1:])[0][1])
    assert int.from_bytes(exponent[1]) == E
    return int.from_bytes(modulus[1])
