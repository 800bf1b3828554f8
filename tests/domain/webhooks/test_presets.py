"""Each preset against its sender: what is accepted, and every way in which a request is refused."""

import hmac
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain.webhooks import schemes
from activity_core.domain.webhooks.outcomes import Refused, Verified
from activity_core.domain.webhooks.presets import PRESETS, standard_webhooks
from activity_core.domain.webhooks.receiving import Delivery, Outcome, receive
from activity_core.domain.webhooks.schemes import (
    Basic,
    Bearer,
    Hmac,
    SchemeError,
    Stripe,
    Unsigned,
    check_secret,
    verify,
)
from tests.domain.webhooks.support import CAP, NOW, OWN, SENDERS, TIMESTAMP, Headers, Sender, b64_mac, hex_mac, request

each = pytest.mark.parametrize("sender", SENDERS, ids=lambda sender: sender.name)
timed = pytest.mark.parametrize("sender", [s for s in SENDERS if s.timed], ids=lambda sender: sender.name)


def reason(outcome: object) -> str | None:
    return outcome.reason_code if isinstance(outcome, Refused) else None


def without(headers: Headers, name: str) -> Headers:
    return [(given, value) for given, value in headers if given != name]


@each
def test_a_signed_request_is_an_event_with_its_id_and_type(sender: Sender) -> None:
    outcome = sender.receive(sender.headers())
    assert isinstance(outcome, Delivery)
    assert (outcome.external_id, outcome.type) == sender.event
    assert outcome.verified.secret == 0
    assert outcome.id_origin == ("fresh" if sender.event[0] is None else "source")


@each
def test_the_wrong_secret_is_refused(sender: Sender) -> None:
    assert reason(sender.receive(sender.headers(secret=sender.secrets[1]))) == "bad_signature"


@each
def test_rotation_takes_both_secrets_and_says_which(sender: Sender) -> None:
    new, old = sender.secrets
    for position, secret in enumerate((new, old)):
        outcome = sender.receive(sender.headers(secret=secret), secrets=(new, old))
        assert isinstance(outcome, Delivery) and outcome.verified.secret == position
    assert reason(sender.receive(sender.headers(secret=old), secrets=(new,))) == "bad_signature"


@each
def test_an_altered_body_is_refused_where_the_body_is_signed(sender: Sender) -> None:
    outcome = sender.receive(sender.headers(), sender.body.replace(b":", b": ", 1))
    assert reason(outcome) == ("bad_signature" if sender.covers_body else None)


@each
def test_a_missing_an_empty_and_a_doubled_signature_are_refused(sender: Sender) -> None:
    headers = sender.headers()
    rest = without(headers, sender.signature)
    value = dict(headers)[sender.signature]
    assert reason(sender.receive(rest)) == "missing_signature"
    assert reason(sender.receive([*rest, (sender.signature, " ")])) == "missing_signature"
    for second in (value, "x"):
        assert reason(sender.receive([*headers, (sender.signature.upper(), second)])) == "doubled_header"
    # Two header lines that a proxy made into one. A list of signatures is as good as one of them.
    expected: dict[str, list[str | None]] = {
        "standard_webhooks": [None],
        "pagerduty": [None],
        "stripe": ["malformed_timestamp"],
    }
    joined = sender.receive([*rest, (sender.signature, f"{value}, {value}")])
    assert reason(joined) in expected.get(sender.name, ["malformed_signature", "bad_signature"])


@each
def test_no_signature_of_another_shape_passes(sender: Sender) -> None:
    rest = without(sender.headers(), sender.signature)
    for value in (
        "x",
        "sha1=" + "0" * 40,
        "v1=",
        "v1,",
        "v0=é",
        "sha256=" + "0" * 63,
        "=" * 5000,
        "Bearer",
        "Basic",
        "\x00",
    ):
        assert reason(sender.receive([*rest, (sender.signature, value)])) in ("malformed_signature", "bad_signature")


@timed
@pytest.mark.parametrize(
    ("offset", "expected"), [(-301, "stale_timestamp"), (-300, None), (300, None), (301, "future_timestamp")]
)
def test_timestamps_are_taken_up_to_the_tolerance_both_ways(sender: Sender, offset: int, expected: str | None) -> None:
    assert reason(sender.receive(sender.headers(at=TIMESTAMP + offset))) == expected


@timed
def test_a_forged_timestamp_is_a_bad_signature_not_a_stale_one(sender: Sender) -> None:
    outcome = sender.receive(sender.headers(at=TIMESTAMP - 9999, secret=sender.secrets[1]))
    assert reason(outcome) == "bad_signature"


@pytest.mark.parametrize(
    ("name", "header"),
    [("standard_webhooks", "webhook-timestamp"), ("slack", "X-Slack-Request-Timestamp"), ("hmac", "X-Own-Time")],
)
def test_a_timestamp_that_is_missing_doubled_or_no_number_is_refused(name: str, header: str) -> None:
    sender = next(sender for sender in SENDERS if sender.name == name)
    headers, rest = sender.headers(), without(sender.headers(), header)
    assert reason(sender.receive(rest)) == "missing_timestamp"
    assert reason(sender.receive([*headers, (header, "1")])) == "doubled_header"
    for value in ("-1", "1e9", "１７６７２６８８００", "9" * 16, "2026-01-01", "0x1", "1.5", "+1"):
        assert reason(sender.receive([*rest, (header, value)])) == "malformed_timestamp", value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("v1={mac}", "missing_timestamp"),
        ("t={at}", "malformed_signature"),
        ("t={at},t={at},v1={mac}", "malformed_timestamp"),
        ("t=x,v1={mac}", "malformed_timestamp"),
        ("t={at},v0={mac}", "malformed_signature"),
        ("t={at},v1=" + "0" * 64 + ",v1={mac}", None),
        ("t={at}" + ",v1={mac}" * 40, "malformed_signature"),
    ],
)
def test_the_parts_of_a_stripe_signature(value: str, expected: str | None) -> None:
    sender = next(sender for sender in SENDERS if sender.name == "stripe")
    mac = hex_mac(sender.secrets[0], f"{TIMESTAMP}.".encode() + sender.body)
    header = value.replace("{at}", str(TIMESTAMP)).replace("{mac}", mac)
    assert reason(sender.receive([("Stripe-Signature", header)])) == expected


@each
def test_a_doubled_id_is_refused(sender: Sender) -> None:
    for header in sender.ids:
        assert reason(sender.receive([*sender.headers(), (header, "other")])) == "doubled_header"


def test_several_signatures_in_one_header() -> None:
    standard = next(sender for sender in SENDERS if sender.name == "standard_webhooks")
    headers = dict(standard.headers())
    good = headers["webhook-signature"]
    junk = "v1," + b64_mac(b"other", b"other")
    for listed, expected in (
        (f"{junk} {good}", None),
        (f"v1a,abc= {good} v2,{good[3:]}", None),
        (f"{junk} {junk}", "bad_signature"),
        (f"v1a,{good[3:]}", "malformed_signature"),
        (" ".join([junk] * 32 + [good]), "malformed_signature"),
    ):
        outcome = standard.receive(list({**headers, "webhook-signature": listed}.items()))
        assert reason(outcome) == expected, listed


def test_a_signed_id_cannot_take_over_what_stands_beside_it() -> None:
    """`a.1` + `.` + time + … and `a` + `.1.` + … are the same signed bytes."""
    standard = next(sender for sender in SENDERS if sender.name == "standard_webhooks")
    body = f"{TIMESTAMP}.".encode() + standard.body
    headers = [(name, value) for name, value in standard.headers(body=body)]
    shifted = {**dict(headers), "webhook-id": f"msg_1.{TIMESTAMP}"}
    assert reason(standard.receive(list(shifted.items()))) == "bad_id"


def test_a_svix_sender_differs_in_its_header_names_only() -> None:
    sender = next(sender for sender in SENDERS if sender.name == "standard_webhooks")
    headers = [(name.replace("webhook-", "svix-"), value) for name, value in sender.headers()]
    svix = replace(sender, source=standard_webhooks("svix-"))
    assert isinstance(svix.receive(headers), Delivery)
    assert reason(sender.receive(headers)) == "missing_signature"


def test_hex_in_capitals_is_the_same_signature() -> None:
    sender = next(sender for sender in SENDERS if sender.name == "github")
    value = dict(sender.headers())["X-Hub-Signature-256"]
    rest = without(sender.headers(), "X-Hub-Signature-256")
    capitals = "sha256=" + value.removeprefix("sha256=").upper()
    assert isinstance(sender.receive([*rest, ("X-Hub-Signature-256", capitals)]), Delivery)
    assert reason(sender.receive([*rest, ("X-Hub-Signature-256", value.upper())])) == "malformed_signature"


def test_a_sha1_signature_does_not_stand_in_for_the_sha256_one() -> None:
    sender = next(sender for sender in SENDERS if sender.name == "github")
    headers = [("X-Hub-Signature", "sha1=" + hex_mac(sender.secrets[0], sender.body, "sha1")), *sender.more]
    assert reason(sender.receive(headers)) == "missing_signature"


def test_sources_without_signatures_take_anything() -> None:
    outcome = receive(request([], b"[1]"), PRESETS["none"], (), NOW, cap=CAP)
    assert outcome == Delivery(None, "fresh", "webhook.received", [1], Verified())


@each
@pytest.mark.parametrize("secrets", [(), ("",)])
def test_a_source_without_secrets_lets_nobody_in(sender: Sender, secrets: tuple[str, ...]) -> None:
    scheme: Any = sender.source.scheme
    assert reason(verify(request(sender.headers(), sender.body), scheme, secrets, NOW)) == "no_secret"


def test_an_empty_key_lets_nobody_in() -> None:
    """HMAC with an empty key is something anybody can compute."""
    for scheme, secret in ((PRESETS["standard_webhooks"].scheme, "whsec_"), (Hmac("X-S", key="hex"), "  ")):
        mac = b64_mac(b"", b"m.%d.{}" % TIMESTAMP)
        headers = [
            ("webhook-id", "m"),
            ("webhook-timestamp", str(TIMESTAMP)),
            ("webhook-signature", f"v1,{mac}"),
            ("X-S", hex_mac("", b"{}")),
        ]
        assert reason(verify(request(headers, b"{}"), scheme, [secret], NOW)) == "no_secret"  # type: ignore[arg-type]
        for others in ((secret, WRONG), (WRONG, secret)):
            assert reason(verify(request(headers, b"{}"), scheme, others, NOW)) == "bad_signature"  # type: ignore[arg-type]


WRONG = "00112233445566778899aabbccddeeff"  # hex and base64 alike


@each
def test_every_secret_is_compared_whichever_matches(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(left: bytes, right: bytes) -> bool:
        nonlocal calls
        calls += 1
        return hmac_compare(left, right)

    hmac_compare = hmac.compare_digest
    monkeypatch.setattr(schemes.hmac, "compare_digest", counted)  # type: ignore[attr-defined]
    counts = set()
    right, wrong = sender.secrets
    for secrets in ((right, wrong, wrong), (wrong, wrong, right), (wrong, wrong, wrong)):
        calls = 0
        sender.receive(sender.headers(), secrets=secrets)
        counts.add(calls)
    assert len(counts) == 1 and counts.pop() >= 3


@given(
    sender=st.sampled_from([sender for sender in SENDERS if sender.covers_body]),
    place=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
)
@settings(max_examples=1_500, deadline=None)
def test_an_altered_byte_anywhere_in_what_is_signed_is_refused(sender: Sender, place: float, byte: int) -> None:
    """The signature itself is a part of it: no second spelling of it is taken either."""
    headers = sender.headers()
    signed_names = {
        sender.signature,
        "webhook-id",
        "webhook-timestamp",
        "X-Slack-Request-Timestamp",
        "X-Own-Time",
        "X-Own-Id",
    }
    parts = [(index, value.encode()) for index, (name, value) in enumerate(headers) if name in signed_names]
    parts.append((-1, sender.body))
    places = [(index, part, at) for index, part in parts for at in range(len(part))]
    index, part, position = places[int(place * len(places))]
    altered = part[:position] + bytes([byte]) + part[position + 1 :]
    if altered == part:
        assert isinstance(sender.receive(headers), Delivery)
        return
    if index == -1:
        outcome: Outcome = sender.receive(headers, altered)
    else:
        changed = [
            (name, altered.decode("latin-1") if at == index else value) for at, (name, value) in enumerate(headers)
        ]
        outcome = sender.receive(changed)
    assert isinstance(outcome, Refused)


NAMES = sorted({name for sender in SENDERS for name, _ in sender.headers()} | {"Idempotency-Key", "Content-Encoding"})


@given(
    source=st.sampled_from([*PRESETS.values(), OWN]),
    headers=st.lists(st.tuples(st.sampled_from(NAMES), st.text(max_size=80)), max_size=8),
    body=st.binary(max_size=200),
    secrets=st.lists(st.text(max_size=40), max_size=3),
)
@settings(max_examples=1_000, deadline=None)
def test_nothing_that_is_sent_raises(source: Any, headers: Headers, body: bytes, secrets: list[str]) -> None:
    outcome = receive(request(headers, body), source, secrets, NOW, cap=1_000)
    assert outcome.message if isinstance(outcome, Refused) else isinstance(outcome, Delivery)


def test_i12_nothing_that_is_shown_of_a_request_holds_a_credential() -> None:
    for sender in SENDERS:
        shown = repr(request(sender.headers(), sender.body, query=(("key", "canary"),)))
        for canary in (*sender.secrets, dict(sender.headers())[sender.signature], "canary"):
            assert canary not in shown
        wrong = sender.headers(secret=sender.secrets[1])
        outcome = sender.receive(wrong)
        assert isinstance(outcome, Refused)
        for canary in (*sender.secrets, dict(wrong)[sender.signature]):
            assert canary not in outcome.message


@pytest.mark.parametrize(
    "settings_",
    [
        {"header": "X Signature"},
        {"header": ""},
        {"header": "X", "signed": "body"},
        {"header": "X", "signed": "{body}{body}"},
        {"header": "X", "signed": "{nonce}{body}"},
        {"header": "X", "signed": "{body"},
        {"header": "X", "signed": "{timestamp}.{body}"},
        {"header": "X", "timestamp_header": "T"},
        {"header": "X", "id_header": "I"},
        {"header": "X", "signed": "{id}{body}", "id_header": "I"},
        {"header": "X", "signed": "{body}{id}", "id_header": "I"},
        {"header": "X", "separator": ""},
        {"header": "X", "prefix": "é"},
        {"header": "X", "tolerance_seconds": 0},
    ],
)
def test_settings_that_prove_nothing_are_refused(settings_: dict[str, Any]) -> None:
    with pytest.raises(SchemeError):
        Hmac(**settings_)


@pytest.mark.parametrize(
    ("scheme", "good", "bad"),
    [
        (
            PRESETS["standard_webhooks"].scheme,
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            ["whsec_", "whsec_c2hvcnQ=", "whsec_é"],
        ),
        (Hmac("X"), "any text, é too", ["", " x", "x\n"]),
        (Hmac("X", key="hex"), "00ff", ["xyz", "0"]),
        (Hmac("X", key="base64"), "AAE=", ["*", "AAAAA"]),
        (Bearer(), "token", ["", "to\nken", "é"]),
        (Basic(), "user:pass", ["user"]),
        (Stripe(), "whsec_x", [""]),
        (Unsigned(), None, ["anything"]),
    ],
)
def test_secrets_are_checked_as_their_scheme_writes_them(scheme: Any, good: str | None, bad: list[str]) -> None:
    if good is not None:
        assert check_secret(scheme, good) == good
    for secret in bad:
        with pytest.raises(SchemeError):
            check_secret(scheme, secret)
