"""Who sent a request: signatures with a shared secret, and plain credentials.

What is signed are the bytes as sent: a compressed body is verified compressed, and nothing is parsed before. Signatures
are compared as text, in constant time, each against each secret: comparing decoded bytes would accept several spellings
of one signature (unused bits of base64).
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from activity_core.domain.webhooks.outcomes import Refused, Verified, WebhookRequest, header_bytes

DEFAULT_TOLERANCE_SECONDS = 300
MAX_SIGNATURES = 32  # in one header
MIN_WHSEC_BYTES, MAX_WHSEC_BYTES = 24, 64  # as the specification has it

Algorithm = Literal["sha256", "sha512", "sha1"]
_DIGEST_BYTES: dict[str, int] = {"sha256": 32, "sha512": 64, "sha1": 20}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECONDS = re.compile(r"[0-9]{1,12}")
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_HOLE = re.compile(r"\{([^{}]*)\}")


class SchemeError(ValueError):
    """Settings or a secret that can't work; the text says what to write instead."""


def check_header_name(name: str) -> str:
    if len(name) > 128 or not _TOKEN.fullmatch(name):
        raise SchemeError(f"'{name[:40]}' is no header name; write for example 'X-Signature'")
    return name


@dataclass(frozen=True, slots=True)
class Hmac:
    """An HMAC in a header. Raises SchemeError for settings that don't go together.

    `prefix` stands before each signature; with `separator` there may be several, and those with another prefix are other
    versions, which don't count. `signed` is a text with {body} once and, if their headers are named, {timestamp} and {id}.
    `key`: how a secret is written: `text` is its UTF-8 bytes, `whsec` is base64 after an optional `whsec_`.
    """

    header: str
    algorithm: Algorithm = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    separator: str | None = None
    signed: str = "{body}"
    timestamp_header: str | None = None
    timestamp_unit: Literal["seconds", "milliseconds"] = "seconds"
    tolerance_seconds: int = DEFAULT_TOLERANCE_SECONDS
    id_header: str | None = None
    key: Literal["text", "base64", "hex", "whsec"] = "text"
    pieces: tuple[str, ...] = field(init=False, repr=False, compare=False)  # literal, hole, literal, …, literal

    def __post_init__(self) -> None:
        for name in (self.header, self.timestamp_header, self.id_header):
            if name is not None:
                check_header_name(name)
        object.__setattr__(self, "pieces", tuple(_HOLE.split(self.signed)))
        _check_signed(self)


@dataclass(frozen=True, slots=True)
class Stripe:
    """`Stripe-Signature: t=…,v1=…` over `{t}.{body}`; several v1 during a rotation."""

    tolerance_seconds: int = DEFAULT_TOLERANCE_SECONDS


@dataclass(frozen=True, slots=True)
class Bearer:
    """A secret as it is in a header. The body is not signed: whoever can change it on its way is not found out."""

    header: str = "Authorization"
    prefix: str = "Bearer "

    def __post_init__(self) -> None:
        check_header_name(self.header)


@dataclass(frozen=True, slots=True)
class Basic:
    """HTTP Basic; a secret is `user:password`. The body is not signed."""


@dataclass(frozen=True, slots=True)
class Unsigned:
    """Anybody may send."""


Keys = dict[int, bytes]  # by the position of the secret

SharedSecret = Hmac | Stripe | Bearer | Basic | Unsigned


def verify(request: WebhookRequest, scheme: SharedSecret, secrets: Sequence[str], now: datetime) -> Verified | Refused:
    """Whether one of the secrets vouches for this request at `now` (aware). Secrets that `check_secret` refuses match
    nothing. A signature is judged before its timestamp, so that `stale_timestamp` says that the sender is who it says."""
    if isinstance(scheme, Unsigned):
        return Verified()
    keys = {index: key for index, secret in enumerate(secrets) if (key := _key(scheme, secret))}
    if not keys:
        return Refused("no_secret", "this source has no secret yet, so nothing can be verified")
    match scheme:
        case Hmac():
            return _verify_hmac(request, scheme, keys, now)
        case Stripe():
            return _verify_stripe(request, scheme, keys, now)
        case Bearer():
            return _verify_credential(request, scheme.header, scheme.prefix, keys)
        case Basic():
            return _verify_credential(request, "Authorization", "Basic ", keys)


def check_secret(scheme: SharedSecret, secret: str) -> str:
    """Return the secret, or raise SchemeError saying how one is written for this scheme."""
    if isinstance(scheme, Unsigned):
        raise SchemeError("a source without signatures has no secrets")
    if not secret or secret != secret.strip():
        raise SchemeError("a secret must not be empty, nor begin or end with white space")
    if isinstance(scheme, Basic) and ":" not in secret:
        raise SchemeError("write the secret as 'user:password'")
    if isinstance(scheme, Bearer) and not (secret.isascii() and secret.isprintable()):
        raise SchemeError("a secret that is sent in a header has printable ASCII characters only")
    key = _key(scheme, secret)
    if key is None:
        raise SchemeError(f"this secret is not what its scheme wants ({getattr(scheme, 'key', 'text')})")
    if isinstance(scheme, Hmac) and scheme.key == "whsec" and not MIN_WHSEC_BYTES <= len(key) <= MAX_WHSEC_BYTES:
        raise SchemeError(f"the secret after 'whsec_' has {MIN_WHSEC_BYTES} to {MAX_WHSEC_BYTES} bytes in base64")
    return secret


def _check_signed(scheme: Hmac) -> None:
    holes, literals = scheme.pieces[1::2], scheme.pieces[::2]
    if any("{" in literal or "}" in literal for literal in literals) or not set(holes) <= {"body", "timestamp", "id"}:
        raise SchemeError(
            "what is signed is written with {body}, {timestamp} and {id}, for example '{timestamp}.{body}'"
        )
    if holes.count("body") != 1 or len(set(holes)) != len(holes):
        raise SchemeError("what is signed holds {body} once, and {timestamp} and {id} once at most")
    for hole, header in (("timestamp", scheme.timestamp_header), ("id", scheme.id_header)):
        if (hole in holes) != (header is not None):
            raise SchemeError(f"name the header of the {hole} exactly if {{{hole}}} is signed: else it proves nothing")
    if "id" in holes:
        at = holes.index("id")
        # Beside another hole, the end of the id could be moved without changing the signed bytes.
        if (at > 0 and not literals[at]) or (at + 1 < len(holes) and not literals[at + 1]):
            raise SchemeError("put a character between {id} and what stands beside it, for example '{id}.{body}'")
    if not scheme.signed.isascii() or not scheme.prefix.isascii() or scheme.separator == "":
        raise SchemeError("what is signed and prefixes are ASCII, and a separator is not empty")
    if not 1 <= scheme.tolerance_seconds <= 86_400:
        raise SchemeError("a tolerance is 1 to 86400 seconds")


def _key(scheme: SharedSecret, secret: str) -> bytes | None:
    """None for a secret that is empty or not written as the scheme wants: an empty key would let anybody sign."""
    kind = scheme.key if isinstance(scheme, Hmac) else "text"
    try:
        if kind == "text":
            return secret.encode() or None
        if kind == "hex":
            return bytes.fromhex(secret) or None
        encoded = secret.removeprefix("whsec_") if kind == "whsec" else secret
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True) or None
    except (ValueError, binascii.Error):
        return None


def _verify_hmac(request: WebhookRequest, scheme: Hmac, keys: Keys, now: datetime) -> Verified | Refused:
    signature = request.header(scheme.header)
    if isinstance(signature, Refused):
        return signature
    if not signature:
        return Refused("missing_signature", f"the header {scheme.header} is missing")
    given = _signatures(signature, scheme)
    if isinstance(given, Refused):
        return given
    holes = _holes(request, scheme)
    if isinstance(holes, Refused):
        return holes
    signed = [holes[piece] if index % 2 else piece.encode() for index, piece in enumerate(scheme.pieces)]
    matched = _match(given, keys, signed, scheme.algorithm, scheme.encoding)
    if matched is None:
        return Refused("bad_signature", f"no signature in {scheme.header} was made with a secret of this source")
    if scheme.timestamp_header is None:
        return Verified(secret=matched)
    seconds = int(holes["timestamp"]) / (1000 if scheme.timestamp_unit == "milliseconds" else 1)
    fault = judge_time(seconds, now, past=scheme.tolerance_seconds, future=scheme.tolerance_seconds)
    return fault or Verified(secret=matched, signed_at=datetime.fromtimestamp(seconds, UTC))


def _signatures(text: str, scheme: Hmac) -> list[bytes] | Refused:
    """The signatures without their prefixes, those of other versions and shapes left out."""
    items = [text] if scheme.separator is None else [item.strip(" \t") for item in text.split(scheme.separator)]
    if len(items) > MAX_SIGNATURES:
        return Refused("malformed_signature", f"{scheme.header} holds more than {MAX_SIGNATURES} signatures")
    size = _DIGEST_BYTES[scheme.algorithm]
    length = size * 2 if scheme.encoding == "hex" else (size + 2) // 3 * 4
    found = [header_bytes(item[len(scheme.prefix) :]) for item in items if item.startswith(scheme.prefix)]
    found = [item for item in found if len(item) == length]
    if not found:
        shape = f"'{scheme.prefix}' and {length} characters of {scheme.encoding}"
        return Refused("malformed_signature", f"{scheme.header} holds no {scheme.algorithm} signature; one is {shape}")
    return found


def _holes(request: WebhookRequest, scheme: Hmac) -> dict[str, bytes] | Refused:
    holes = {"body": request.body}
    if scheme.timestamp_header is not None:
        text = request.header(scheme.timestamp_header)
        if isinstance(text, Refused):
            return text
        if not text:
            return Refused("missing_timestamp", f"the header {scheme.timestamp_header} is missing")
        unit = scheme.timestamp_unit
        if not (_MILLISECONDS if unit == "milliseconds" else _SECONDS).fullmatch(text):
            return Refused("malformed_timestamp", f"{scheme.timestamp_header} is not a Unix time in {unit}")
        holes["timestamp"] = text.encode()
    if scheme.id_header is not None:
        text = request.header(scheme.id_header)
        if isinstance(text, Refused):
            return text
        if not text:
            return Refused("missing_id", f"the header {scheme.id_header} is missing")
        if any(character in text for character in _id_borders(scheme)):
            return Refused("bad_id", f"{scheme.id_header} holds what separates it from the rest of what is signed")
        holes["id"] = header_bytes(text)
    return holes


def _id_borders(scheme: Hmac) -> list[str]:
    """The characters that an id must not hold. With one of them the same signed bytes could be read as another id,
    timestamp and body: whoever captured a request could send it again under a new id."""
    at = scheme.pieces[1::2].index("id") * 2 + 1
    before = scheme.pieces[at - 1][-1] if at > 1 else ""
    after = scheme.pieces[at + 1][0] if at + 2 < len(scheme.pieces) else ""
    return [character for character in (before, after) if character]


def _verify_stripe(request: WebhookRequest, scheme: Stripe, keys: Keys, now: datetime) -> Verified | Refused:
    signature = request.header("Stripe-Signature")
    if isinstance(signature, Refused):
        return signature
    if not signature:
        return Refused("missing_signature", "the header Stripe-Signature is missing")
    items = [item.strip(" \t").partition("=") for item in signature.split(",")]
    times = [value for name, _, value in items if name == "t"]
    given = [header_bytes(value) for name, _, value in items if name == "v1" and len(value) == 64]
    if len(items) > MAX_SIGNATURES or not given:
        return Refused("malformed_signature", "Stripe-Signature holds no 'v1=' and 64 hex digits, or far too many")
    if not times:
        return Refused("missing_timestamp", "Stripe-Signature holds no 't='")
    if len(times) > 1 or not _SECONDS.fullmatch(times[0]):
        return Refused("malformed_timestamp", "Stripe-Signature must hold one 't=' with a Unix time in seconds")
    matched = _match(given, keys, [times[0].encode(), b".", request.body], "sha256", "hex")
    if matched is None:
        return Refused("bad_signature", "no signature in Stripe-Signature was made with a secret of this source")
    fault = judge_time(int(times[0]), now, past=scheme.tolerance_seconds, future=scheme.tolerance_seconds)
    return fault or Verified(secret=matched, signed_at=datetime.fromtimestamp(int(times[0]), UTC))


def _verify_credential(request: WebhookRequest, header: str, prefix: str, keys: Keys) -> Verified | Refused:
    value = request.header(header)
    if isinstance(value, Refused):
        return value
    if not value:
        return Refused("missing_signature", f"the header {header} is missing")
    if value[: len(prefix)].lower() != prefix.lower():  # the name of an authentication scheme has no case
        return Refused("malformed_signature", f"{header} must begin with '{prefix.strip()}'")
    # Hashed first, because compare_digest tells lengths apart.
    given = hashlib.sha256(header_bytes(value[len(prefix) :].strip(" \t"))).digest()
    basic = prefix == "Basic "
    matched = None
    for index, key in keys.items():
        expected = hashlib.sha256(base64.b64encode(key) if basic else key).digest()
        if hmac.compare_digest(expected, given) and matched is None:
            matched = index
    if matched is None:
        return Refused("bad_signature", f"what {header} holds is no secret of this source")
    return Verified(secret=matched)


def _match(given: list[bytes], keys: Keys, signed: list[bytes], algorithm: Algorithm, encoding: str) -> int | None:
    """The position of the first key that made one of the signatures. Goes through all keys and signatures, whatever
    matches, so that the time taken tells nothing."""
    matched: int | None = None
    for index, key in keys.items():
        mac = hmac.new(key, digestmod=algorithm)
        for piece in signed:
            mac.update(piece)
        digest = mac.digest()
        lower = digest.hex().encode() if encoding == "hex" else base64.b64encode(digest)
        upper = lower.upper() if encoding == "hex" else lower
        for signature in given:
            equal = hmac.compare_digest(lower, signature) | hmac.compare_digest(upper, signature)
            if equal and matched is None:
                matched = index
    return matched


def judge_time(seconds: float, now: datetime, *, past: int, future: int) -> Refused | None:
    """Whether a signed Unix time is too far from `now`; the limits themselves are within."""
    age = now.timestamp() - seconds
    if age > past:
        return Refused("stale_timestamp", f"was signed {_shown(age)} ago; at most {past} s are taken")
    if -age > future:
        return Refused("future_timestamp", f"was signed {_shown(-age)} in the future; at most {future} s are taken")
    return None


def _shown(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
