"""Create, replace, delete and read sources; and what the webhook door needs of one."""

import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from activity_core.domain.json_values import JsonValue
from activity_core.domain.reading import read_source
from activity_core.domain.webhooks import presets
from activity_core.domain.webhooks.document import Source, compile_source, named_secret
from activity_core.domain.webhooks.schemes import SchemeError, SharedSecret, check_secret
from activity_core.domain.webhooks.sns import Sns
from activity_core.errors import Fault, InvalidInputError, NotFoundError, RevisionMismatchError
from activity_core.services.activities import as_sent
from activity_core.services.secrets import HOW_TO_NAME, MAX_SECRET_BYTES, Secrets, SecretUnavailableError
from activity_core.settings import PREFIX
from activity_core.store import idempotency, receipts, sources
from activity_core.store.database import Connection, Database
from activity_core.store.paging import Cursor, Page
from activity_core.store.receipts import ReceiptRecord
from activity_core.store.sources import SecretRecord, SourceRecord

# How long the door of a process may go by a source or a secret that was changed.
LIVE_SECONDS = 2.0
# Before a request is refused, it is looked again whether the source or its secrets are new: so often at most.
RELOAD_SECONDS = 0.25
MAX_LIVE = 1_000

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source with its secrets as they may be shown; `trouble`: why one of them can't be used here."""

    record: SourceRecord
    secrets: tuple[SecretRecord, ...]
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedSource:
    """`change`: `created`, `replaced` or `unchanged`."""

    record: SourceRecord
    change: str


@dataclass(frozen=True, slots=True)
class LiveSource:
    """What judges a request: `secrets` in clear and their ids, position by position. `lacks_secrets`: there are more, which
    can't be had here, so that a request that none of these vouches for may be authentic all the same."""

    id: uuid.UUID
    slug: str
    source: presets.Source
    secrets: tuple[str, ...] = field(repr=False)
    secret_ids: tuple[uuid.UUID, ...]
    rate_per_second: int | None
    allowed_origins: tuple[str, ...]
    lacks_secrets: bool = False


async def put(
    connection: Connection,
    secrets: Secrets,
    value: JsonValue,
    *,
    slug: str | None = None,
    if_match: int | None = None,
    create_only: bool = False,
) -> SavedSource:
    """Create the source of this document or replace the one with its slug. The caller commits.

    Secrets that stay are sealed with the first key, whichever sealed them before: so keys are rotated by documents
    without secrets too.
    """
    document = read_source(value)
    if slug is not None and slug != document.slug:
        raise InvalidInputError([Fault("/slug", f"the path says '{slug}'; a slug never changes")])
    _check_usable(document, secrets)
    spec = _without_secrets(as_sent(value, "Source"))
    effective = document.model_dump(mode="json", exclude={"secrets"})
    record = None if create_only else await sources.by_slug(connection, document.slug, for_update=True)
    if record is None:
        if if_match is not None:
            raise RevisionMismatchError(f"there is no source '{document.slug}' yet; leave If-Match out")
        source_id = uuid.uuid4()
        await sources.create(connection, source_id, document.slug, spec=spec, effective=effective)
        await _save_secrets(connection, secrets, source_id, document, [])
        return SavedSource(await _reread(connection, document.slug), "created")
    if if_match is not None and if_match != record.revision:
        raise RevisionMismatchError(f"'{record.slug}' is at revision {record.revision}, not {if_match}")
    known = (await sources.secrets_of(connection, [record.id]))[record.id]
    _check_kept(secrets, document, known)
    changed = await _save_secrets(connection, secrets, record.id, document, known)
    await _reseal(connection, secrets, known)
    if record.spec == spec and not changed:
        return SavedSource(record, "unchanged")
    await sources.replace(connection, record, spec=spec, effective=effective)
    return SavedSource(await _reread(connection, document.slug), "replaced")


def _without_secrets(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != "secrets"}


def _check_usable(document: Source, secrets: Secrets) -> None:
    """Whether each secret can be had, or kept: what can't be used is refused when it is written, not at the first event."""
    faults = []
    scheme = compile_source(document).scheme
    for place, secret in enumerate(document.secrets or ()):
        name = named_secret(secret.get_secret_value())
        found = None if name is None else secrets.named(name)
        if name is None and not secrets.can_seal:
            message = f"a secret can't be stored without a key: set {PREFIX}ENCRYPTION_KEYS, {HOW_TO_NAME}"
            faults.append(Fault(f"/secrets/{place}", message))
        elif name is not None and found is None:
            message = f"set {PREFIX}SECRET_{name} for the API (or the file {name} in {PREFIX}SECRETS_DIR) first"
            faults.append(Fault(f"/secrets/{place}", message))
        elif wrong := _unsuitable(scheme, found or secret.get_secret_value()):
            faults.append(Fault(f"/secrets/{place}", f"what is set as {name}: {wrong}" if name else wrong))
    if faults:
        raise InvalidInputError(faults)


def _check_kept(secrets: Secrets, document: Source, known: Sequence[SecretRecord]) -> None:
    """Secrets that stay were written for the scheme of before."""
    if document.secrets is not None:
        return
    scheme = compile_source(document).scheme
    for record in known:
        try:
            wrong = _unsuitable(scheme, _clear(secrets, record))
        except SecretUnavailableError:
            continue
        if wrong:
            message = f"secret {record.fingerprint}, which would stay: {wrong}; write the secrets, or [] for none"
            raise InvalidInputError([Fault("/secrets", message)])


def _unsuitable(scheme: SharedSecret | Sns, secret: str) -> str | None:
    """Why this scheme can't use it."""
    if isinstance(scheme, Sns):
        return "SNS signs with a certificate"
    if len(secret.encode()) > MAX_SECRET_BYTES:
        return f"a secret has {MAX_SECRET_BYTES} bytes at most"
    try:
        check_secret(scheme, secret)
    except SchemeError as error:
        return str(error)
    return None


def _clear(secrets: Secrets, record: SecretRecord) -> str:
    """Raises SecretUnavailableError."""
    if record.name is None:
        return secrets.open(record.sealed or b"", str(record.source_id))
    found = secrets.named(record.name)
    if found is None:
        raise SecretUnavailableError(f"{PREFIX}SECRET_{record.name} is not set")
    return found


async def _reseal(connection: Connection, secrets: Secrets, known: Sequence[SecretRecord]) -> None:
    for record in known:
        if record.sealed is None or secrets.is_current(record.sealed):
            continue
        try:
            text = _clear(secrets, record)
        except SecretUnavailableError:
            continue
        sealed = secrets.seal(text, str(record.source_id))
        await sources.reseal(connection, record.id, sealed, secrets.fingerprint(text))


async def _save_secrets(
    connection: Connection, secrets: Secrets, source_id: uuid.UUID, document: Source, known: Sequence[SecretRecord]
) -> bool:
    """Whether anything changed. Those that were there keep their id; left out of the document, all stay."""
    if document.secrets is None:
        return False
    there = {_text_of(secrets, record): record for record in known}
    kept: list[tuple[uuid.UUID, int]] = []
    new: list[dict[str, Any]] = []
    wanted = list(dict.fromkeys(_canonical(secret.get_secret_value()) for secret in document.secrets))
    for position, text in enumerate(wanted):
        if (record := there.get(text)) is not None:
            kept.append((record.id, position))
            continue
        name = named_secret(text)
        sealed = None if name is not None else secrets.seal(text, str(source_id))
        new.append({"position": position, "name": name, "sealed": sealed, "fingerprint": secrets.fingerprint(text)})
    if not new and kept == [(record.id, record.position) for record in known]:
        return False
    await sources.replace_secrets(connection, source_id, kept, new)
    return True


def _canonical(text: str) -> str:
    name = named_secret(text)
    return text if name is None else f"${{ secret.{name} }}"


def _text_of(secrets: Secrets, record: SecretRecord) -> str | None:
    """As a document writes it; None for one that can't be opened any more."""
    if record.name is not None:
        return f"${{ secret.{record.name} }}"
    try:
        return _clear(secrets, record)
    except SecretUnavailableError:
        return None


async def _reread(connection: Connection, slug: str) -> SourceRecord:
    record = await sources.by_slug(connection, slug)
    if record is None:
        raise NotFoundError(f"there is no source '{slug}'")
    return record


class Sources:
    """The use cases; each owns its transaction and commits before it returns."""

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._database = database
        self._secrets = secrets
        self._live: OrderedDict[str, tuple[float, LiveSource | None]] = OrderedDict()

    @property
    def secrets(self) -> Secrets:
        return self._secrets

    async def create(self, value: JsonValue, *, idempotency_key: str | None = None) -> SavedSource:
        """Raises InvalidInputError, SlugTakenError, IdempotencyKeyReusedError."""
        async with self._database.begin() as connection:
            if idempotency_key is not None:
                answered = await idempotency.claim(connection, "sources", idempotency_key, self._masked(value))
                if answered is not None:
                    return SavedSource(await _reread(connection, answered.response["slug"]), "created")
            saved = await put(connection, self._secrets, value, create_only=True)
            if idempotency_key is not None:
                await idempotency.keep_response(connection, "sources", idempotency_key, {"slug": saved.record.slug})
            return saved

    def _masked(self, value: JsonValue) -> JsonValue:
        """The request as it is remembered: a hash of a secret could be guessed at."""
        written = value.get("secrets") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(written, list):
            return value
        return {**value, "secrets": [self._secrets.fingerprint(str(text)) for text in written]}

    async def put(self, slug: str, value: JsonValue, *, if_match: int | None) -> SavedSource:
        async with self._database.begin() as connection:
            saved = await put(connection, self._secrets, value, slug=slug, if_match=if_match)
        self._live.pop(slug, None)
        return saved

    async def delete(self, slug: str, *, if_match: int | None = None) -> None:
        """Its webhooks are answered 404 from now on; what it sent stays."""
        async with self._database.begin() as connection:
            record = await sources.by_slug(connection, slug, for_update=True)
            if record is None:
                raise NotFoundError(f"there is no source '{slug}'")
            if if_match is not None and if_match != record.revision:
                raise RevisionMismatchError(f"'{record.slug}' is at revision {record.revision}, not {if_match}")
            await sources.soft_delete(connection, record)
        self._live.pop(slug, None)

    async def get(self, slug: str) -> SourceStatus:
        async with self._database.read() as connection:
            record = await _reread(connection, slug)
            known = await sources.secrets_of(connection, [record.id])
        return self._status(record, known[record.id])

    async def listed(self, *, cursor: Cursor | None, limit: int) -> Page[SourceStatus]:
        async with self._database.read() as connection:
            found = await sources.listed(connection, cursor=cursor, limit=limit)
            known = await sources.secrets_of(connection, [record.id for record in found.items])
        return Page([self._status(record, known[record.id]) for record in found.items], found.next_cursor)

    def _status(self, record: SourceRecord, known: Sequence[SecretRecord]) -> SourceStatus:
        scheme, trouble = compile_source(_stored(record)).scheme, []
        for secret in known:
            try:
                self._usable(secret, scheme)
            except SecretUnavailableError as error:
                trouble.append(f"secret {secret.fingerprint}: {error.detail}")
        return SourceStatus(record, tuple(known), tuple(trouble))

    def _usable(self, record: SecretRecord, scheme: SharedSecret | Sns) -> str:
        """Raises SecretUnavailableError, also for a named one that was set to what the scheme can't use."""
        text = _clear(self._secrets, record)
        if wrong := _unsuitable(scheme, text):
            raise SecretUnavailableError(f"what is set as {record.name or record.fingerprint}: {wrong}")
        return text

    async def requests(
        self,
        slug: str,
        *,
        result: str | None,
        reason_code: str | None,
        received_from: datetime | None,
        received_to: datetime | None,
        cursor: Cursor | None,
        limit: int,
    ) -> Page[ReceiptRecord]:
        """The receipts of what came for it, newest first."""
        async with self._database.read() as connection:
            record = await _reread(connection, slug)
            return await receipts.listed(
                connection,
                source_id=record.id,
                result=result,
                reason_code=reason_code,
                received_from=received_from,
                received_to=received_to,
                cursor=cursor,
                limit=limit,
            )

    async def known(self, slug: str) -> bool:
        """Whether it is a source of ours. Raises UnavailableError."""
        return await self.live(slug) is not None

    async def live(self, slug: str, *, at_most: float = LIVE_SECONDS) -> LiveSource | None:
        """What judges the requests of this source, `at_most` so many seconds old; None for one that is not there.
        Raises UnavailableError."""
        now = time.monotonic()
        known = self._live.get(slug)
        if known is not None and now - known[0] < at_most:
            return known[1]
        async with self._database.read() as connection:
            record = await sources.by_slug(connection, slug)
            secrets = [] if record is None else (await sources.secrets_of(connection, [record.id]))[record.id]
        found = None if record is None else self._judging(record, secrets)
        self._live[slug] = (now, found)
        self._live.move_to_end(slug)
        if len(self._live) > MAX_LIVE:
            self._live.popitem(last=False)
        return found

    def _judging(self, record: SourceRecord, secrets: Sequence[SecretRecord]) -> LiveSource:
        document = _stored(record)
        source = compile_source(document)
        clear: list[tuple[uuid.UUID, str]] = []
        for secret in secrets:
            try:
                clear.append((secret.id, self._usable(secret, source.scheme)))
            except SecretUnavailableError as error:
                log.error("source.secret_unavailable", source=record.slug, secret_id=str(secret.id), error=error.detail)
        return LiveSource(
            record.id,
            record.slug,
            source,
            tuple(text for _, text in clear),
            tuple(secret_id for secret_id, _ in clear),
            document.rate_per_second,
            document.allowed_origins,
            lacks_secrets=len(clear) < len(secrets),
        )


def _stored(record: SourceRecord) -> Source:
    """Fields of a later version are left out."""
    return Source.model_validate(record.effective, strict=False, extra="ignore")
