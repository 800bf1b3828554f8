"""AWS SNS: messages signed with the key of a certificate whose address is in the message itself.

`read_message` checks everything that can be checked without the certificate, above all that its address is one of SNS:
only then may the caller fetch it (https, no redirects) and hand it to `verify_message`. RSA is the caller's too, as a
`RsaVerifier`. Any AWS account can have SNS sign messages, so the topics that are expected are named in `Sns`: they are
what a secret is elsewhere. Only the fields of `_SIGNED_FIELDS` are signed; UnsubscribeURL and MessageAttributes are not.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import parse_qsl

from activity_core.domain.json_values import JsonError, JsonValue, parse_json
from activity_core.domain.webhooks.outcomes import Refused, Verified, WebhookRequest
from activity_core.domain.webhooks.schemes import DEFAULT_TOLERANCE_SECONDS, SchemeError, judge_time

# SNS retries for 3,600 s at most and signs once, so a message may rightly be that old.
DEFAULT_MAX_AGE_SECONDS = 3_600 + DEFAULT_TOLERANCE_SECONDS

MessageType = Literal["Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation"]
RsaHash = Literal["sha1", "sha256"]
# (certificate in PEM, signature, signed bytes, hash) -> whether the certificate's key made this PKCS #1 v1.5 signature.
# False for whatever is wrong with the certificate, too.
RsaVerifier = Callable[[str, bytes, bytes, RsaHash], bool]

_CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED_FIELDS: dict[MessageType, tuple[str, ...]] = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": _CONFIRMATION,
    "UnsubscribeConfirmation": _CONFIRMATION,
}
_HASHES: dict[str, RsaHash] = {"1": "sha1", "2": "sha256"}
_ARN = re.compile(r"arn:aws(?:-[a-z]+)*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(?:\.fifo)?")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)
# Regions only: `sns.s3-us-west-2.amazonaws.com` would be somebody's bucket. Whole URLs, so that no parser can be tricked.
_HOST = (
    r"https://sns\.(?:cn-[a-z]+-\d{1,2}\.amazonaws\.com\.cn|(?!cn-)[a-z]{2}(?:-[a-z]+){1,2}-\d{1,2}\.amazonaws\.com)"
)
_CERTIFICATE_URL = re.compile(_HOST + r"/SimpleNotificationService-[A-Za-z0-9]{1,128}\.pem", re.ASCII)
_SUBSCRIBE_URL = re.compile(_HOST + r"/\?(?P<query>[A-Za-z0-9._~%&=:+-]{1,2048})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Sns:
    """`topics`: ARNs, whole or with `*` for the rest, for example `arn:aws:sns:eu-west-1:123456789012:orders`. With
    none, every message is refused."""

    topics: tuple[str, ...] = ()
    max_age_seconds: int = DEFAULT_MAX_AGE_SECONDS
    tolerance_seconds: int = DEFAULT_TOLERANCE_SECONDS  # into the future

    def __post_init__(self) -> None:
        for topic in self.topics:
            # With the account in it, because any account may sign.
            if not _ARN.fullmatch(topic.removesuffix("*") + "x" if topic.endswith("*") else topic):
                raise SchemeError(
                    f"'{topic[:80]}' is no topic ARN up to its account; 'arn:aws:sns:…:123456789012:*' is"
                )


@dataclass(frozen=True, slots=True)
class SnsMessage:
    """A message that is not verified yet."""

    type: MessageType
    topic_arn: str
    sent_at: datetime
    certificate_url: str
    hash: RsaHash
    signature: bytes
    signed: bytes
    document: dict[str, JsonValue]


def read_message(body: bytes, scheme: Sns) -> SnsMessage | Refused:
    """The message with all that the certificate is needed for. `certificate_url` is an address of SNS."""
    document = _document(body)
    if isinstance(document, Refused):
        return document
    kind = next((kind for kind in _SIGNED_FIELDS if kind == document.get("Type")), None)
    if kind is None:
        return Refused("malformed_message", f"'Type' must be one of {', '.join(_SIGNED_FIELDS)}")
    optional = {"Subject"} if document.get("Subject") is None else set()
    fields = [name for name in _SIGNED_FIELDS[kind] if name not in optional]
    fields_read = (*fields, "SignatureVersion", "SigningCertURL", "Signature")
    if not document.get("Signature"):
        return Refused("missing_signature", "'Signature' is missing")
    for name in fields_read:
        if not isinstance(document.get(name), str):
            return Refused("malformed_message", f"'{name}' must be a string")
    text = {name: str(document[name]) for name in fields_read}
    if not _expected(text["TopicArn"], scheme.topics):
        return Refused("wrong_topic", "'TopicArn' is not among the topics of this source")
    if not is_certificate_url(text["SigningCertURL"]):
        return Refused("untrusted_url", "'SigningCertURL' is not a certificate on https://sns.<region>.amazonaws.com")
    algorithm, signature = _HASHES.get(text["SignatureVersion"]), _base64(text["Signature"])
    if algorithm is None or signature is None:
        return Refused("malformed_signature", "'SignatureVersion' must be '1' or '2', and 'Signature' base64")
    sent_at = _instant(text["Timestamp"])
    if sent_at is None:
        return Refused("malformed_timestamp", "'Timestamp' must be like '2026-01-01T12:00:00.000Z'")
    signed = "".join(f"{name}\n{text[name]}\n" for name in fields).encode()
    return SnsMessage(kind, text["TopicArn"], sent_at, text["SigningCertURL"], algorithm, signature, signed, document)


def verify_message(
    message: SnsMessage, scheme: Sns, certificate_pem: str, rsa: RsaVerifier, now: datetime
) -> Verified | Refused:
    """Whether the certificate that is at `message.certificate_url` vouches for the message at `now`."""
    if not rsa(certificate_pem, message.signature, message.signed, message.hash):
        return Refused("bad_signature", "'Signature' was not made with the key of the certificate")
    fault = judge_time(message.sent_at.timestamp(), now, past=scheme.max_age_seconds, future=scheme.tolerance_seconds)
    return fault or Verified(signed_at=message.sent_at)


def is_certificate_url(url: str) -> bool:
    """Whether a certificate may be fetched from there: a .pem of SNS itself, over https, on the standard port."""
    return _CERTIFICATE_URL.fullmatch(url) is not None


def is_subscribe_url(url: str, topic_arn: str, token: str) -> bool:
    """Whether a GET there does nothing but confirm this subscription: the action, topic and token stand in it once."""
    match = _SUBSCRIBE_URL.fullmatch(url)
    if match is None:
        return False
    expected = [("Action", "ConfirmSubscription"), ("Token", token), ("TopicArn", topic_arn)]
    return sorted(parse_qsl(match["query"], keep_blank_values=True)) == expected


def certificate_url(request: WebhookRequest, scheme: Sns) -> str | Refused:
    """Where the certificate for this request is to be fetched; Refused when the request needs no fetching to be refused."""
    message = read_message(request.body, scheme)
    return message if isinstance(message, Refused) else message.certificate_url


def _document(body: bytes) -> dict[str, JsonValue] | Refused:
    try:
        document = parse_json(body)
    except JsonError as error:
        return Refused("not_json" if error.code == "malformed" else error.code, f"the body {error}")
    if not isinstance(document, dict):
        return Refused("malformed_message", "the body must be a JSON object")
    return document


def _expected(topic_arn: str, topics: tuple[str, ...]) -> bool:
    if not _ARN.fullmatch(topic_arn):
        return False
    return any(topic_arn.startswith(topic[:-1]) if topic.endswith("*") else topic_arn == topic for topic in topics)


def _base64(text: str) -> bytes | None:
    """None also for a second spelling of the same bytes."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return decoded if decoded and base64.b64encode(decoded).decode() == text else None


def _instant(text: str) -> datetime | None:
    try:
        if not _TIMESTAMP.fullmatch(text):
            return None
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
