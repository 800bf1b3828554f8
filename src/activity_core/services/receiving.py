"""A webhook request, from the door to its answer: who sent it, what it is, and a receipt of what became of it."""

import re
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from activity_core.domain import ids
from activity_core.domain.envelopes import Envelope
from activity_core.domain.webhooks import handshakes, receiving
from activity_core.domain.webhooks.handshakes import ConfirmSubscription, Reply
from activity_core.domain.webhooks.outcomes import Refused, WebhookRequest
from activity_core.domain.webhooks.receiving import Delivery, SnsTrust
from activity_core.domain.webhooks.sns import Sns
from activity_core.errors import (
    ActivityCoreError,
    BodyTooLargeError,
    EventConflictError,
    Fault,
    InvalidInputError,
    NotFoundError,
    OverloadedError,
)
from activity_core.services.accept import Accepted, Acceptor, ContentConflictError, DataTooLargeError
from activity_core.services.causes import Causes
from activity_core.services.receipts import Receipts
from activity_core.services.secrets import SecretUnavailableError
from activity_core.services.sns import SnsCertificates
from activity_core.services.sources import RELOAD_SECONDS, LiveSource, Sources
from activity_core.store import events
from activity_core.store.database import Database
from activity_core.store.receipts import NewReceipt

MAX_NOTED = 200
MAX_REASON = 500
MAX_BUCKETS = 1_000

_CONFLICT = "this id was accepted before with other content; the first one stands"
_NOT_PRINTABLE = re.compile(r"[^ -~]")
# What comes after the family in the status line is the API's.
STATUSES = {"not_authentic": 401, "unsupported": 415, "too_large": 413, "malformed": 422}


@dataclass(frozen=True, slots=True)
class Received:
    """The request is an event. `conflict`: its id was there with other content, which stands."""

    accepted: Accepted
    conflict: bool = False


Answer = Received | Reply | Refused


@dataclass(frozen=True, slots=True)
class _End:
    """What became of a request, for its receipt."""

    result: str
    status: int
    reason_code: str | None
    reason: str | None
    received: Received | None = None


class Receiving:
    def __init__(
        self,
        database: Database,
        sources: Sources,
        acceptor: Acceptor,
        receipts: Receipts,
        certificates: SnsCertificates,
        *,
        causes: Causes,
        max_bytes: int,
    ) -> None:
        self._database = database
        self._causes = causes
        self._sources = sources
        self._acceptor = acceptor
        self._receipts = receipts
        self._certificates = certificates
        self._max_bytes = max_bytes
        self._rates = _Rates()

    async def source(self, slug: str) -> LiveSource:
        """Raises NotFoundError and UnavailableError."""
        missing = NotFoundError(f"there is no source '{slug[:100]}'; PUT /v1/sources/{{slug}} makes one")
        try:
            # what no source can be called is not looked up: Postgres can't even read all of it
            ids.check_slug(slug)
        except ids.IdError:
            raise missing from None
        live = await self._sources.live(slug) or await self._sources.live(slug, at_most=RELOAD_SECONDS)
        if live is None:
            raise missing
        return live

    async def receive(
        self, live: LiveSource, request: WebhookRequest, *, request_id: str, run_id: str | None = None
    ) -> Answer:
        """Judge the request, accept its event, keep a receipt. `run_id`: the run that its sender names as the cause.

        Raises what `Acceptor.accept` raises, and OverloadedError for a source that sends faster than it may; of each a
        receipt is kept as well.
        """
        judged: Delivery | Answer | None = None
        try:
            self._take(live)
            live, judged = await self._judged(live, request)
            answer = await self._accept(live, judged, run_id) if isinstance(judged, Delivery) else judged
        except ActivityCoreError as error:
            await self._note(live, request, request_id, judged, _of_error(error))
            raise
        await self._note(live, request, request_id, judged, _of_answer(answer))
        return answer

    def options(self, live: LiveSource, request: WebhookRequest) -> Reply | Refused:
        """The answer to a CloudEvents sender that asks for consent."""
        return handshakes.cloudevents_validation(
            request,
            allowed_origins=live.allowed_origins,
            per_minute=None if live.rate_per_second is None else live.rate_per_second * 60,
        )

    async def refuse(
        self, live: LiveSource, request: WebhookRequest, *, request_id: str, error: ActivityCoreError, status: int
    ) -> None:
        """Keep a receipt of a request that was not even read to its end."""
        await self._note(live, request, request_id, None, replace(_of_error(error), status=status))

    def _take(self, live: LiveSource) -> None:
        """Raises OverloadedError."""
        if not self._rates.take(live):
            message = f"source '{live.slug}' may send {live.rate_per_second} requests a second"
            raise OverloadedError(message, [Fault("", message, "rate_limited")])

    async def _judged(self, live: LiveSource, request: WebhookRequest) -> tuple[LiveSource, Delivery | Reply | Refused]:
        """A sender that uses a secret as soon as it was set must not be refused for what this process does not know yet."""
        judged = await self._judge(live, request)
        if isinstance(judged, Refused) and judged.family == "not_authentic":
            newer = await self._sources.live(live.slug, at_most=RELOAD_SECONDS)
            if newer is not None and newer != live:
                live, judged = newer, await self._judge(newer, request)
        if live.lacks_secrets and isinstance(judged, Refused) and judged.reason_code in ("no_secret", "bad_signature"):
            # not a 401, after which some senders never come again
            raise SecretUnavailableError(f"a secret of this source can't be had; GET /v1/sources/{live.slug} says why")
        return live, judged

    async def _judge(self, live: LiveSource, request: WebhookRequest) -> Delivery | Reply | Refused:
        scheme, trust = live.source.scheme, None
        if isinstance(scheme, Sns):
            trust = await self._certificates.trust(request, scheme)
        outcome = _received(live, request, self._max_bytes, trust)
        if not isinstance(outcome, ConfirmSubscription):
            return outcome
        if await self._certificates.confirm(outcome.url):
            return Reply("sns_subscribed")
        return Refused("malformed_handshake", "the subscription could not be confirmed at its SubscribeURL")

    async def _accept(self, live: LiveSource, delivery: Delivery, run_id: str | None) -> Received | Refused:
        cause = None if run_id is None else await self._causes.of(run_id)
        envelope = Envelope(
            external_id=delivery.external_id,
            source=live.slug,
            type=delivery.type,
            subject=None,
            # what is signed is when the attempt was made, and differs from one to the next
            time=None,
            data=delivery.data,
            cloudevents=False,
        )
        try:
            return Received(await self._acceptor.accept(envelope, cause=cause))
        except DataTooLargeError as error:
            return Refused("too_large", error.faults[0].message)
        except ContentConflictError as conflict:
            async with self._database.session() as connection:
                await events.count_conflict(connection, conflict.stored.id)
            return Received(conflict.stored, conflict=True)

    async def _note(
        self,
        live: LiveSource,
        request: WebhookRequest,
        request_id: str,
        judged: Delivery | Answer | None,
        end: _End,
    ) -> None:
        delivery = judged if isinstance(judged, Delivery) else None
        secret = None if delivery is None else delivery.verified.secret
        await self._receipts.keep(
            live.slug,
            NewReceipt(
                id=uuid.uuid4(),
                source_id=live.id,
                result=end.result,
                reason_code=end.reason_code,
                reason=end.reason,
                status=end.status,
                size_bytes=len(request.body),
                content_type=_noted(request, "Content-Type"),
                user_agent=_noted(request, "User-Agent"),
                request_id=request_id,
                conflict=end.received is not None and end.received.conflict,
                event_uuid=None if end.received is None else end.received.accepted.id,
                secret_id=None if secret is None else live.secret_ids[secret],
                external_id=None if delivery is None else delivery.external_id,
                event_type=None if delivery is None else delivery.type,
            ),
        )


def _received(
    live: LiveSource, request: WebhookRequest, cap: int, trust: SnsTrust | None
) -> Delivery | Reply | ConfirmSubscription | Refused:
    return receiving.receive(request, live.source, live.secrets, datetime.now(UTC), cap=cap, sns=trust)


def _of_answer(answer: Answer) -> _End:
    match answer:
        case Received(conflict=True):
            return _End("duplicate", 200, "conflict", _CONFLICT, answer)
        case Received(accepted=Accepted(duplicate=True)):
            return _End("duplicate", 200, None, None, answer)
        case Received():
            return _End("accepted", 202, None, None, answer)
        case Reply():
            return _End("handshake", answer.status, answer.handshake, None)
        case Refused():
            return _End("rejected", STATUSES[answer.family], answer.reason_code, answer.message)


def _of_error(error: ActivityCoreError) -> _End:
    """The code of its first fault is the reason, and where there is none its own."""
    status = {OverloadedError: 429, InvalidInputError: 422, EventConflictError: 409}.get(type(error), 503)
    reason_code = "too_large" if isinstance(error, BodyTooLargeError) else error.code
    return _End("rejected", status, error.faults[0].code if error.faults else reason_code, error.detail[:MAX_REASON])


def _noted(request: WebhookRequest, name: str) -> str | None:
    """A header as far as it may be kept: what a sender puts there is anything."""
    value = request.header(name)
    if not isinstance(value, str):
        return None
    return _NOT_PRINTABLE.sub("?", value[:MAX_NOTED])


class _Rates:
    """A token bucket for each source with a rate; a second's worth may come at once."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[uuid.UUID, tuple[float, float]] = OrderedDict()

    def take(self, live: LiveSource) -> bool:
        """Whether one more may come now."""
        rate = live.rate_per_second
        if rate is None:
            return True
        now = time.monotonic()
        left, since = self._buckets.get(live.id, (float(rate), now))
        left = min(float(rate), left + (now - since) * rate)
        self._buckets[live.id] = (max(left - 1, 0) if left >= 1 else left, now)
        self._buckets.move_to_end(live.id)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return left >= 1
