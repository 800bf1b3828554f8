"""Amazon SNS over HTTP: its certificate, its handshake, its messages as text/plain. The network beyond us is made up."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from activity_core.domain.webhooks.outcomes import WebhookRequest
from activity_core.domain.webhooks.sns import Sns
from activity_core.services.egress import EgressError, NotThereError
from activity_core.services.sns import AT_ONCE, KEPT, SnsCertificates
from activity_core.settings import Settings
from tests.api.conftest import Api, application
from tests.api.webhooks import reason, receipts, source
from tests.stack import eventually

Json = dict[str, Any]
TOPIC = "arn:aws:sns:eu-west-1:000000000000:orders"
CERTIFICATE = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0a1b.pem"
SUBSCRIBE = f"https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t0k"
SIGNED = {
    "Notification": ["Message", "MessageId", "Timestamp", "TopicArn", "Type"],
    "SubscriptionConfirmation": ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"],
}
KEY = rsa.generate_private_key(65_537, 2_048)


def pem(days: int = 1) -> bytes:
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(now - timedelta(days=9))
    return (
        builder.not_valid_after(now + timedelta(days=days))
        .sign(KEY, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


class Network:
    """What lies beyond us: the answers by URL, and what was asked for."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {CERTIFICATE: pem(), SUBSCRIBE: b"<ok/>"}
        self.asked: list[str] = []
        self.away = False
        self.reached = asyncio.Event()
        self.reached.set()

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        await self.reached.wait()
        if self.away:
            raise EgressError("ConnectError")
        if url not in self.answers:
            raise NotThereError("answered 404")
        return self.answers[url]


@pytest.fixture
async def sns(api_settings: Settings) -> AsyncIterator[tuple[Api, Network]]:
    network = Network()
    async with application(api_settings, network.fetch) as api:
        await source(api, {"slug": "aws", "scheme": "sns", "topics": [TOPIC]})
        yield api, network


def message(kind: str = "Notification", **changed: Any) -> Json:
    fields = {
        "Type": kind,
        "MessageId": f"m-{datetime.now(UTC).timestamp()}",
        "TopicArn": TOPIC,
        "Message": '{"order": 7}',
        "Timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "SignatureVersion": "2",
        "SigningCertURL": CERTIFICATE,
        **({} if kind == "Notification" else {"SubscribeURL": SUBSCRIBE, "Token": "t0k"}),
        **changed,
    }
    signed = "".join(f"{name}\n{fields[name]}\n" for name in SIGNED[kind]).encode()
    signature = KEY.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return {**fields, "Signature": base64.b64encode(signature).decode()}


async def send(api: Api, document: Json) -> Any:  # an httpx.Response
    headers = {"Content-Type": "text/plain; charset=UTF-8", "x-amz-sns-message-type": document["Type"]}
    return await api.http.post("/v1/webhooks/aws", headers=headers, content=json.dumps(document))


async def test_d06_a_notification_as_text_plain_is_an_event_and_its_certificate_is_fetched_once(
    sns: tuple[Api, Network],
) -> None:
    api, network = sns
    sent = message()
    first, again = await send(api, sent), await send(api, sent)
    assert (first.status_code, again.status_code) == (202, 200)
    shown = (await api.http.get(f"/v1/events/{first.json()['id']}")).json()
    assert (shown["type"], shown["event_id"]) == ("sns.orders", f"aws:{sent['MessageId']}")
    assert network.asked == [CERTIFICATE]


async def test_a_subscription_is_confirmed_with_one_get_and_is_no_event(sns: tuple[Api, Network]) -> None:
    api, network = sns
    answer = await send(api, message("SubscriptionConfirmation"))
    assert answer.status_code == 200
    assert network.asked == [CERTIFICATE, SUBSCRIBE]
    assert (await receipts(api, "aws", result="handshake"))[0]["reason_code"] == "sns_subscribed"


@pytest.mark.parametrize(
    ("kind", "changed", "expected"),
    [
        ("SubscriptionConfirmation", {"SubscribeURL": "https://169.254.169.254/"}, "untrusted_url"),
        ("SubscriptionConfirmation", {"SubscribeURL": SUBSCRIBE.replace("Confirm", "Delete")}, "untrusted_url"),
        (
            "Notification",
            {"SigningCertURL": "https://evil.example.org/SimpleNotificationService-1.pem"},
            "untrusted_url",
        ),
        ("Notification", {"SigningCertURL": "http://127.0.0.1/SimpleNotificationService-1.pem"}, "untrusted_url"),
        ("Notification", {"TopicArn": TOPIC.replace("orders", "others")}, "wrong_topic"),
        ("Notification", {"Timestamp": "2020-01-01T00:00:00.000Z"}, "stale_timestamp"),
    ],
)
async def test_what_points_elsewhere_is_refused_and_nothing_is_called(
    sns: tuple[Api, Network], kind: str, changed: Json, expected: str
) -> None:
    api, network = sns
    answer = await send(api, message(kind, **changed))
    assert (answer.status_code, reason(answer)) == (401, expected)
    assert set(network.asked) <= {CERTIFICATE}


async def test_an_altered_message_is_refused(sns: tuple[Api, Network]) -> None:
    api, _ = sns
    answer = await send(api, {**message(), "Message": "other"})
    assert (answer.status_code, reason(answer)) == (401, "bad_signature")


@pytest.mark.parametrize("certificate", [pem(days=-1), b"no certificate", None], ids=["expired", "junk", "missing"])
async def test_a_certificate_that_proves_nothing_is_a_bad_signature(
    sns: tuple[Api, Network], certificate: bytes | None
) -> None:
    api, network = sns
    if certificate is None:
        del network.answers[CERTIFICATE]
    else:
        network.answers[CERTIFICATE] = certificate
    sent = message()
    for _ in range(2):
        answer = await send(api, sent)
        assert (answer.status_code, reason(answer)) == (401, "bad_signature")
    assert network.asked == [CERTIFICATE]


@pytest.mark.parametrize("kind", ["Notification", "SubscriptionConfirmation"])
async def test_while_sns_can_not_be_asked_it_is_told_to_send_again(sns: tuple[Api, Network], kind: str) -> None:
    """A 4xx would be its last attempt."""
    api, network = sns
    if kind == "SubscriptionConfirmation":
        await send(api, message())
    network.away = True
    answer = await send(api, message(kind))
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert (await receipts(api, "aws", reason_code="unavailable"))[0]["status"] == 503


async def test_a_certificate_that_many_messages_wait_for_is_fetched_once_though_the_first_of_them_leaves() -> None:
    network = Network()
    network.reached.clear()
    certificates = SnsCertificates(network.fetch)
    sent = WebhookRequest("POST", (), json.dumps(message()).encode())
    first, *others = [asyncio.create_task(certificates.trust(sent, Sns(topics=(TOPIC,)))) for _ in range(20)]
    await eventually(lambda: network.asked)
    first.cancel()
    network.reached.set()
    trusted = await asyncio.gather(*others)
    assert {trust.certificate_pem for trust in trusted if trust} == {network.answers[CERTIFICATE].decode()}
    assert None not in trusted and network.asked == [CERTIFICATE]


async def test_certificates_that_others_name_are_few_at_once_and_do_not_drive_out_the_one_in_use(
    sns: tuple[Api, Network],
) -> None:
    api, network = sns
    assert (await send(api, message())).status_code == 202

    def named(number: int) -> Json:
        return message(SigningCertURL=CERTIFICATE.replace("0a1b", f"f{number:03}"))

    network.reached.clear()
    forged = [asyncio.create_task(send(api, named(number))) for number in range(30)]
    await eventually(lambda: len(network.asked) >= 1 + AT_ONCE)
    assert (await send(api, message())).status_code == 202, "what is known needs no turn"
    assert len(network.asked) == 1 + AT_ONCE
    network.reached.set()
    for number in range(30, 2 * KEPT):
        assert (await send(api, named(number))).status_code == 401
        assert (await send(api, message())).status_code == 202
    assert {answer.status_code for answer in await asyncio.gather(*forged)} == {401}
    assert network.asked.count(CERTIFICATE) == 1
