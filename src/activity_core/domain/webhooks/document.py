"""The document of a source, and how it is compiled into what judges its requests."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from activity_core.domain.documents import API_VERSION, Model, Text
from activity_core.domain.ids import check_source_slug
from activity_core.domain.webhooks import presets
from activity_core.domain.webhooks.identity import (
    IdFrom,
    from_cel,
    from_header,
    from_pointer,
    from_template,
    hiding,
)
from activity_core.domain.webhooks.presets import PRESETS, PresetName
from activity_core.domain.webhooks.schemes import (
    Bearer,
    Hmac,
    SchemeError,
    SharedSecret,
    Stripe,
    Unsigned,
    check_secret,
)
from activity_core.domain.webhooks.sns import Sns

MAX_SECRETS = 5
SECRET_NAME = re.compile(r"\$\{\s*secret\.([A-Z][A-Z0-9_]{0,99})\s*\}")
# Of the optional fields, which scheme has which.
FIELDS_OF_SCHEMES: dict[str, tuple[PresetName, ...]] = {
    "signature": ("hmac",),
    "credential": ("bearer",),
    "topics": ("sns",),
    "header_prefix": ("standard_webhooks",),
    "tolerance_seconds": ("standard_webhooks", "stripe", "slack", "sns"),
}


class From(Model):
    """Where an id or a type is: exactly one of these. `template` holds `${ CEL }` over header, query and data."""

    header: Annotated[str, Field(max_length=128)] | None = None
    pointer: Annotated[str, Field(max_length=512)] | None = None
    template: Annotated[str, Field(max_length=512)] | None = None
    constant: Annotated[str, Field(max_length=256)] | None = None


def _listed(value: object) -> object:
    return [value] if isinstance(value, dict) else value


Origins = Annotated[tuple[From, ...], Field(min_length=1, max_length=10, strict=False), BeforeValidator(_listed)]


class Signature(Model):
    """Of an `hmac` source; the fields of `schemes.Hmac`."""

    header: str = "X-Signature"
    algorithm: Literal["sha256", "sha512", "sha1"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: Annotated[str, Field(max_length=50)] = ""
    separator: Annotated[str, Field(max_length=5)] | None = None
    signed: Annotated[str, Field(max_length=200)] = "{body}"
    timestamp_header: str | None = None
    timestamp_unit: Literal["seconds", "milliseconds"] = "seconds"
    tolerance_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    id_header: str | None = None
    key: Literal["text", "base64", "hex", "whsec"] = "text"


class Credential(Model):
    """Of a `bearer` source: the header that holds the secret, and what stands before it."""

    header: str = "Authorization"
    prefix: Annotated[str, Field(max_length=50)] = "Bearer "


class Source(Model):
    """A named sender of webhooks. `secrets` are taken and never shown; left out of a PUT, those in force stay."""

    api_version: Literal["activity-core/v1"] = API_VERSION
    kind: Literal["Source"] = "Source"
    slug: Annotated[str, AfterValidator(check_source_slug)]
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    description: Text | None = None
    scheme: PresetName
    secrets: Annotated[tuple[SecretStr, ...], Field(max_length=MAX_SECRETS)] | None = None
    id: Origins | None = None
    type: Origins | None = None
    signature: Signature | None = None
    credential: Credential | None = None
    topics: Annotated[tuple[str, ...], Field(max_length=50)] | None = None
    header_prefix: Annotated[str, Field(max_length=50)] | None = None
    tolerance_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    allowed_origins: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=50)] = ("*",)
    rate_per_second: Annotated[int, Field(ge=1, le=10_000)] | None = None


class SourceError(ValueError):
    """`faults`: (JSON pointer, sentence) of everything that can't work in a document whose shape is right."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer}: {message}" for pointer, message in faults))
        self.faults = list(faults)


def compile_source(document: Source) -> presets.Source:
    """What judges the requests of this source. Raises SourceError naming everything that can't work."""
    faults = [*_misplaced(document)]
    base = PRESETS[document.scheme]
    scheme = base.scheme
    try:
        scheme, base = _scheme(document, base)
    except SchemeError as error:
        faults.append((_place_of(document.scheme), str(error)))
    credential = scheme.header if isinstance(scheme, Bearer) else "Authorization"
    ids = _origins("/id", document.id, faults, credential, constant=False)
    types = _origins("/type", document.type, faults, credential, constant=True)
    if not isinstance(scheme, Sns):
        faults += list(_secret_faults(document, scheme))
    elif document.secrets:
        faults.append(("/secrets", "SNS signs with a certificate; leave secrets out"))
    if faults:
        raise SourceError(faults)
    return replace(base, scheme=scheme, ids=ids or base.ids, types=types or base.types)


def named_secret(text: str) -> str | None:
    """The name in `${ secret.NAME }`; None for a literal."""
    match = SECRET_NAME.fullmatch(text.strip())
    return match[1] if match else None


def _misplaced(document: Source) -> Iterator[tuple[str, str]]:
    for field, schemes in FIELDS_OF_SCHEMES.items():
        if getattr(document, field) is not None and document.scheme not in schemes:
            yield f"/{field}", f"only a source of scheme {' or '.join(schemes)} has it; leave it out"
    if document.scheme == "sns" and not document.topics:
        yield "/topics", "name the topics, for example 'arn:aws:sns:eu-west-1:123456789012:orders'"


def _scheme(document: Source, base: presets.Source) -> tuple[SharedSecret | Sns, presets.Source]:
    scheme = base.scheme
    if document.scheme == "hmac" and document.signature is not None:
        return Hmac(**document.signature.model_dump()), base
    if document.scheme == "bearer" and document.credential is not None:
        return Bearer(**document.credential.model_dump()), base
    if document.scheme == "standard_webhooks" and document.header_prefix is not None:
        base = presets.standard_webhooks(document.header_prefix)
        scheme = base.scheme
    if isinstance(scheme, Sns):
        scheme = Sns(topics=document.topics or ())
    if document.tolerance_seconds is not None and isinstance(scheme, Hmac | Stripe | Sns):
        return replace(scheme, tolerance_seconds=document.tolerance_seconds), base
    return scheme, base


def _place_of(scheme: str) -> str:
    return next((f"/{field}" for field, schemes in FIELDS_OF_SCHEMES.items() if scheme in schemes), "/scheme")


def _origins(
    pointer: str, written: tuple[From, ...] | None, faults: list[tuple[str, str]], credential: str, *, constant: bool
) -> tuple[IdFrom, ...]:
    found: list[IdFrom] = []
    for place, item in enumerate(written or ()):
        try:
            found.append(hiding(_origin(item, constant=constant), credential))
        except SchemeError as error:
            faults.append((f"{pointer}/{place}", str(error)))
    return tuple(found)


def _origin(item: From, *, constant: bool) -> IdFrom:
    given = {name: value for name, value in item.model_dump().items() if value is not None}
    known = ["header", "pointer", "template", *(["constant"] if constant else [])]
    if len(given) != 1 or not given.keys() <= set(known):
        raise SchemeError(f"write exactly one of {', '.join(known)}")
    ((name, value),) = given.items()
    match name:
        case "header":
            return from_header(value)
        case "pointer":
            return from_pointer(value)
        case "template":
            return from_cel(value)
    if not value or "{" in value or "}" in value:
        raise SchemeError("a constant is an event type such as 'order.paid'")
    return from_template(value)


def _secret_faults(document: Source, scheme: SharedSecret) -> Iterator[tuple[str, str]]:
    for place, secret in enumerate(document.secrets or ()):
        text = secret.get_secret_value()
        if named_secret(text) is not None and not isinstance(scheme, Unsigned):
            continue
        try:
            if "${" in text:
                raise SchemeError("write a secret itself, or its name as '${ secret.NAME }' with capital letters")
            check_secret(scheme, text)
        except SchemeError as error:
            yield f"/secrets/{place}", str(error)
