"""What a verified request says: decompressed within a cap, and read into JSON by its content type.

Compression is undone after the signature was verified, which is over the bytes as sent.
"""

import re
import zlib
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl

from activity_core.domain.json_values import JsonError, JsonValue, faults_of, parse_json
from activity_core.domain.webhooks.outcomes import Refused, WebhookRequest

MAX_FORM_FIELDS = 1_000
_GZIP = 16 + zlib.MAX_WBITS

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  # a grammar rule
_MEDIA_TYPE = re.compile(rf"({_TOKEN}/{_TOKEN})[ \t]*((?:;.*)?)")
_PARAMETER = re.compile(rf';[ \t]*(?:({_TOKEN})=({_TOKEN}|"(?:[^"\\]|\\.)*")[ \t]*)?')


@dataclass(frozen=True, slots=True)
class Body:
    """`data` of an empty body is null."""

    data: JsonValue
    kind: Literal["json", "form", "empty"]


def decompress(raw: bytes, cap: int) -> bytes | Refused:
    """Undo gzip, of one member. Never holds more than `cap` + 1 bytes of output."""
    member = zlib.decompressobj(_GZIP)
    try:
        output = member.decompress(raw, cap + 1)
    except zlib.error:
        return Refused("malformed_encoding", "the body is not what Content-Encoding: gzip says")
    if len(output) > cap:
        return Refused("too_large", f"the body has more than {cap} bytes when decompressed")
    if not member.eof or member.unused_data:
        return Refused("malformed_encoding", "the gzip body ends too early, or something follows it")
    return output


def read_body(request: WebhookRequest, *, cap: int, document_field: str | None = None) -> Body | Refused:
    """The body as a JSON value: JSON as itself, a form as an object of strings (of lists of them for fields that came
    more than once). `cap` is in bytes, decompressed. `document_field`: a form with this field alone, once, is the JSON
    document in it, as GitHub and Slack send it."""
    raw = _plain(request, cap)
    if isinstance(raw, Refused):
        return raw
    if not raw:
        return Body(None, "empty")
    header = request.header("Content-Type")
    if isinstance(header, Refused):
        return header
    media_type = _media_type(header) if header else "application/json"
    if isinstance(media_type, Refused):
        return media_type
    if media_type == "application/x-www-form-urlencoded":
        return _form(raw, document_field)
    # SNS and others send JSON as text/plain.
    if media_type in ("application/json", "text/json", "text/plain") or media_type.endswith("+json"):
        return _json(raw, "the body")
    return Refused(
        "unsupported_media_type", "send JSON as application/json, or a form as application/x-www-form-urlencoded"
    )


def _plain(request: WebhookRequest, cap: int) -> bytes | Refused:
    encoding = request.header("Content-Encoding")
    if isinstance(encoding, Refused):
        return encoding
    match (encoding or "identity").lower():
        case "identity":
            if len(request.body) > cap:
                return Refused("too_large", f"the body has more than {cap} bytes")
            return request.body
        case "gzip" | "x-gzip":
            return decompress(request.body, cap)
    return Refused("unsupported_encoding", "this Content-Encoding is not supported; send the body as it is or as gzip")


def _media_type(header: str) -> str | Refused:
    """The media type in lower case. JSON and forms are UTF-8; another charset is refused rather than ignored, because
    a sender that means it would have its text garbled."""
    match = _MEDIA_TYPE.fullmatch(header)
    if match is None:
        return Refused("unsupported_media_type", "Content-Type is malformed; write for example application/json")
    position, parameters = 0, match[2]
    while position < len(parameters):
        parameter = _PARAMETER.match(parameters, position)
        if parameter is None:
            return Refused("unsupported_media_type", "the parameters of Content-Type are malformed")
        charset = (parameter[2] or "").strip('"').lower()
        if (parameter[1] or "").lower() == "charset" and charset not in ("utf-8", "utf8"):
            return Refused("unsupported_charset", f"the charset '{charset[:40]}' is not supported; send UTF-8")
        position = parameter.end()
    return match[1].lower()


def _json(raw: bytes, subject: str) -> Body | Refused:
    try:
        return Body(parse_json(raw), "json")
    except JsonError as error:
        code = "not_json" if error.code == "malformed" else error.code
        return Refused(code, f"{subject} {error.message}" + (f" (at {error.pointer[:200]})" if error.pointer else ""))


def _form(raw: bytes, document_field: str | None) -> Body | Refused:
    try:
        text = raw.decode()
        if text.count("&") >= MAX_FORM_FIELDS:
            return Refused("malformed_form", f"the form has more than {MAX_FORM_FIELDS} fields")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        return Refused("malformed_form", "the form is not UTF-8")
    if document_field is not None and [name for name, _ in pairs] == [document_field]:
        return _json(pairs[0][1].encode(), f"the field '{document_field}'")
    fields: dict[str, list[JsonValue]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    data: JsonValue = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    for fault in faults_of(data):
        return Refused("unstorable_character", f"the form {fault.message}")
    return Body(data, "form")
