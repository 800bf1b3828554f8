"""One webhook request, judged from its raw bytes to the event that it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from activity_core.domain.json_values import JsonValue
from activity_core.domain.webhooks.bodies import read_body
from activity_core.domain.webhooks.handshakes import ConfirmSubscription, Reply, slack_handshake, sns_handshake
from activity_core.domain.webhooks.identity import identify
from activity_core.domain.webhooks.outcomes import Refused, Verified, WebhookRequest
from activity_core.domain.webhooks.presets import Source
from activity_core.domain.webhooks.schemes import verify
from activity_core.domain.webhooks.sns import RsaVerifier, Sns, SnsMessage, read_message, verify_message


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event to accept. `external_id` None: to be given one (R23). `data` is the whole body."""

    external_id: str | None
    id_origin: Literal["source", "idempotency_key", "fresh"]
    type: str
    data: JsonValue
    verified: Verified


@dataclass(frozen=True, slots=True)
class SnsTrust:
    """What SNS needs beside the request: the certificate at `sns.certificate_url`, and RSA."""

    certificate_pem: str
    rsa: RsaVerifier


Outcome = Delivery | Reply | ConfirmSubscription | Refused


def receive(
    request: WebhookRequest,
    source: Source,
    secrets: Sequence[str],
    now: datetime,
    *,
    cap: int,
    sns: SnsTrust | None = None,
) -> Outcome:
    """Verify the bytes as sent, then decompress (at most `cap` bytes), parse, answer handshakes, and identify. Nothing
    in a request makes it raise."""
    message: SnsMessage | None = None
    if isinstance(source.scheme, Sns):
        read = read_message(request.body, source.scheme)
        if isinstance(read, Refused):
            return read
        if sns is None:
            return Refused("bad_signature", "the certificate of this message could not be had")
        message = read
        verified = verify_message(read, source.scheme, sns.certificate_pem, sns.rsa, now)
    else:
        verified = verify(request, source.scheme, secrets, now)
    if isinstance(verified, Refused):
        return verified
    body = read_body(request, cap=cap, document_field=source.document_field)
    if isinstance(body, Refused):
        return body
    handshake = _handshake(source, body.data, message)
    if handshake is not None:
        return handshake
    identity = identify(request, body.data, source.ids, source.types)
    if isinstance(identity, Refused):
        return identity
    return Delivery(identity.external_id, identity.id_origin, identity.type, body.data, verified)


def _handshake(
    source: Source, data: JsonValue, message: SnsMessage | None
) -> Reply | ConfirmSubscription | Refused | None:
    if message is not None:
        return sns_handshake(message)
    return slack_handshake(data) if source.handshake == "slack" else None
