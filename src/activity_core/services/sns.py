"""What Amazon SNS needs beside a request: the certificate that it names, and RSA.

That a certificate is SNS's own is known by where it comes from, over TLS; its dates are checked too.
"""

import asyncio
import time
from collections import OrderedDict
from datetime import UTC, datetime

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from activity_core.domain.webhooks.outcomes import Refused, WebhookRequest
from activity_core.domain.webhooks.receiving import SnsTrust
from activity_core.domain.webhooks.sns import RsaHash, Sns, certificate_url
from activity_core.errors import UnavailableError
from activity_core.services.egress import EgressError, Fetch, NotThereError

KEPT = 64
KEPT_SECONDS = 3_600.0
FAILED_SECONDS = 30.0
AT_ONCE = 8

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class SnsCertificates:
    """Certificates by their URL, fetched once an hour; one that could not be had is not asked for again for a while.

    Whoever knows the topic can name any certificate of SNS, so that few are fetched at once, and those in use stay."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._kept: OrderedDict[str, tuple[float, str | EgressError]] = OrderedDict()
        self._fetching: dict[str, asyncio.Task[str | EgressError]] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def trust(self, request: WebhookRequest, scheme: Sns) -> SnsTrust | None:
        """What to verify this request with; None when it is refused without, or there is no such certificate.

        Raises UnavailableError when it can't be had at the moment: a refusal would lose the message, because SNS sends
        it again after a 5xx alone.
        """
        url = certificate_url(request, scheme)
        if isinstance(url, Refused):
            return None
        pem = await self._certificate(url)
        return None if pem is None else SnsTrust(pem, verified_by)

    async def _certificate(self, url: str) -> str | None:
        kept = self._kept.get(url)
        if kept is not None and time.monotonic() < kept[0]:
            self._kept.move_to_end(url)
            return _had(kept[1])
        fetching = self._fetching.get(url)
        if fetching is None:
            fetching = self._fetching[url] = asyncio.create_task(self._fetched(url))
            fetching.add_done_callback(lambda _: self._fetching.pop(url, None))
        # shielded: the one who asked first may go, and the others still wait for it
        return _had(await asyncio.shield(fetching))

    async def _fetched(self, url: str) -> str | EgressError:
        found: str | EgressError
        try:
            async with self._at_once:
                found = (await self._fetch(url)).decode("ascii", "replace")
        except EgressError as error:
            log.warning("sns.certificate_unavailable", url=url, error=str(error))
            found = error
        until = time.monotonic() + (KEPT_SECONDS if isinstance(found, str) else FAILED_SECONDS)
        self._kept[url] = (until, found)
        self._kept.move_to_end(url)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    async def confirm(self, url: str) -> bool:
        """The one GET that confirms a subscription; `url` was checked to do nothing else. False when SNS refuses it.

        Raises UnavailableError when SNS can't be reached: then it asks again.
        """
        try:
            await self._fetch(url)
        except NotThereError as error:
            log.warning("sns.confirmation_refused", error=str(error))
            return False
        except EgressError as error:
            raise UnavailableError(f"the subscription can't be confirmed at the moment ({error})") from error
        return True


def _had(found: str | EgressError) -> str | None:
    """Raises UnavailableError."""
    if isinstance(found, EgressError):
        if isinstance(found, NotThereError):
            return None
        raise UnavailableError(f"the certificate of SNS can't be had at the moment ({found})") from found
    return found


def verified_by(certificate_pem: str, signature: bytes, signed: bytes, algorithm: RsaHash) -> bool:
    """See `domain.webhooks.sns.RsaVerifier`."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
            return False
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            return False
        # SHA-1 is what version 1 of SNS's signatures is made with
        digest = hashes.SHA256() if algorithm == "sha256" else hashes.SHA1()  # noqa: S303
        key.verify(signature, signed, padding.PKCS1v15(), digest)
    except (ValueError, InvalidSignature):
        return False
    return True
