"""What goes into a judgement of a webhook request, and the refusals that come out. A sender's fault is never raised."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

ReasonCode = Literal[
    "no_secret",
    "missing_signature",
    "malformed_signature",
    "bad_signature",
    "missing_timestamp",
    "malformed_timestamp",
    "stale_timestamp",
    "future_timestamp",
    "wrong_topic",
    "untrusted_url",
    "origin_not_allowed",
    "doubled_header",
    "unsupported_encoding",
    "unsupported_media_type",
    "unsupported_charset",
    "too_large",
    "malformed_encoding",
    "not_json",
    "too_deep",
    "number_out_of_range",
    "duplicate_key",
    "unstorable_character",
    "malformed_form",
    "malformed_message",
    "malformed_handshake",
    "missing_id",
    "bad_id",
    "missing_type",
    "bad_type",
]

# What a refusal is about; the API has one HTTP status for each.
Family = Literal["not_authentic", "unsupported", "too_large", "malformed"]

_NOT_AUTHENTIC = (
    "no_secret missing_signature malformed_signature bad_signature missing_timestamp malformed_timestamp stale_timestamp "
    "future_timestamp wrong_topic untrusted_url origin_not_allowed"
)
_FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_NOT_AUTHENTIC.split(), "not_authentic"),
    "unsupported_encoding": "unsupported",
    "unsupported_media_type": "unsupported",
    "unsupported_charset": "unsupported",
    "too_large": "too_large",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """`message` is for the sender and for the receipt: it names headers and fields, and never quotes a signature, a
    secret or the body."""

    reason_code: ReasonCode
    message: str

    @property
    def family(self) -> Family:
        return _FAMILIES.get(self.reason_code, "malformed")


@dataclass(frozen=True, slots=True)
class Verified:
    """`secret`: the position of the secret that matched, so that a rotation shows when the old one is out of use; None
    where there are no secrets. `signed_at`: the instant that was signed, if one was."""

    secret: int | None = None
    signed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """One request as it came. Header values are latin-1 text, as ASGI servers hand them over, one entry per header line;
    `body` is as sent, compressed if it was. Headers, query and body stay out of `repr`, because they hold credentials."""

    method: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def header(self, name: str) -> str | Refused | None:
        """The value without the white space around it; Refused when the header came twice, since two readers may then
        take different ones for true."""
        wanted = name.lower()
        values = [value for given, value in self.headers if given.lower() == wanted]
        if len(values) > 1:
            return Refused("doubled_header", f"the header {name} came {len(values)} times; send it once")
        return values[0].strip(" \t") if values else None


def header_bytes(value: str) -> bytes:
    """The bytes of a header value as they were sent."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:  # no server gives such a text; it is no reason to fail
        return value.encode("utf-8", "surrogatepass")
