"""The envelopes that an event may arrive in, read into one form: ours, and CloudEvents 1.0 in all three modes."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from activity_core.domain import ids
from activity_core.domain.event_types import EventTypeError, check_type
from activity_core.domain.instants import InstantError, read_instant
from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.errors import Fault, InvalidInputError

MAX_SOURCE_BYTES = 1_024
MAX_SUBJECT_BYTES = 1_024
MAX_BATCH = 500
NATIVE_FIELDS = ("event_id", "type", "source", "subject", "time", "data")
CLOUDEVENTS_REQUIRED = ("specversion", "id", "source", "type")


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event as it was sent, checked. `external_id` None: it came without one and is to be given one.

    `data` None: there is none. `cloudevents`: the source is free text, and (source, id) is the identity.
    """

    external_id: str | None
    source: str
    type: str
    subject: str | None
    time: datetime | None
    data: JsonValue
    cloudevents: bool

    def event_id(self, external_id: str) -> str:
        return ids.event_identity(self.source, external_id, cloudevents=self.cloudevents)

    def content_hash(self) -> bytes:
        """Over what the sender said beside the id: the same id with another hash is a conflict."""
        time = None if self.time is None else self.time.isoformat()
        return hashlib.sha256(canonical_json([self.type, self.source, self.subject, time, self.data])).digest()


def read_native(value: JsonValue) -> Envelope:
    """Our envelope: {event_id, type, source, subject, time, data}; only `type` is required."""
    if not isinstance(value, dict):
        raise InvalidInputError([Fault("", "write a JSON object with at least a 'type'")])
    faults = [
        Fault(f"/{_escaped(name)}", f"unknown field; known are: {', '.join(NATIVE_FIELDS)}", "unknown_field")
        for name in value
        if name not in NATIVE_FIELDS
    ]
    source = _optional_text(value, "source", faults) or ids.DEFAULT_SOURCE
    if source != ids.DEFAULT_SOURCE:
        _check(faults, "/source", ids.check_source_slug, source)
    return _read(value, "event_id", source, faults, cloudevents=False)


def read_cloudevent(value: JsonValue) -> Envelope:
    """A CloudEvent in JSON (structured mode). Extension attributes are not kept."""
    if not isinstance(value, dict):
        raise InvalidInputError([Fault("", "write one CloudEvent as a JSON object")])
    faults = [
        Fault(f"/{name}", "is required by CloudEvents", "required")
        for name in CLOUDEVENTS_REQUIRED
        if value.get(name) in (None, "")
    ]
    if value.get("specversion") not in (None, "", "1.0"):
        faults.append(Fault("/specversion", "write '1.0'"))
    if "data_base64" in value:
        faults.append(Fault("/data_base64", "binary data is not available in this version; send JSON in 'data'"))
    source = _optional_text(value, "source", faults) or ""
    if _size(source) > MAX_SOURCE_BYTES:
        faults.append(Fault("/source", f"may have {MAX_SOURCE_BYTES} bytes at most"))
    return _read(value, "id", source, faults, cloudevents=True)


def read_cloudevents(value: JsonValue) -> list[Envelope]:
    """A batch of CloudEvents in JSON; every fault of every one is named."""
    if not isinstance(value, list):
        raise InvalidInputError([Fault("", "write a JSON array of CloudEvents")])
    if len(value) > MAX_BATCH:
        raise InvalidInputError([Fault("", f"{len(value)} events; a batch may have {MAX_BATCH} at most", "too_large")])
    read: list[Envelope] = []
    faults: list[Fault] = []
    for position, item in enumerate(value):
        try:
            read.append(read_cloudevent(item))
        except InvalidInputError as error:
            faults += [replace(fault, pointer=f"/{position}{fault.pointer}") for fault in error.faults]
    if faults:
        raise InvalidInputError(faults)
    return read


def read_binary_cloudevent(headers: Mapping[str, str], data: JsonValue) -> Envelope:
    """A CloudEvent in binary mode: its attributes from `ce-…` headers (without the `ce-`), its data from the body."""
    attributes: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, text in headers.items():
        try:
            attributes[name] = _header_text(text)
        except UnicodeDecodeError:
            faults.append(Fault(f"/headers/ce-{name}", "is no percent-encoded UTF-8"))
    if not faults:
        try:
            return read_cloudevent({**attributes, "data": data})
        except InvalidInputError as error:
            faults = [replace(fault, pointer=f"/headers/ce-{fault.pointer[1:]}") for fault in error.faults]
    raise InvalidInputError(faults)


def _header_text(text: str) -> str:
    """As the HTTP binding has it: a quoted string is unquoted, then percent-encoded UTF-8 decoded."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    return unquote(text, errors="strict")


def _read(value: dict[str, Any], id_field: str, source: str, faults: list[Fault], *, cloudevents: bool) -> Envelope:
    external_id = value.get(id_field)
    if external_id is not None and not (cloudevents and external_id == ""):
        if isinstance(external_id, str):
            _check(faults, f"/{id_field}", ids.check_external_id, external_id)
        else:
            faults.append(Fault(f"/{id_field}", "write a string"))
    event_type = value.get("type")
    if isinstance(event_type, str) and event_type:
        _check(faults, "/type", check_type, event_type)
    elif "type" not in value and not cloudevents:
        faults.append(Fault("/type", "is required", "required"))
    elif not isinstance(event_type, str) or not cloudevents:
        faults.append(Fault("/type", "write a string such as 'order.paid'"))
    subject = _optional_text(value, "subject", faults)
    if subject is not None and _size(subject) > MAX_SUBJECT_BYTES:
        faults.append(Fault("/subject", f"may have {MAX_SUBJECT_BYTES} bytes at most"))
    time = _time(value, faults)
    if faults:
        raise InvalidInputError(sorted(set(faults), key=lambda fault: (fault.pointer, fault.message)))
    return Envelope(external_id, source, str(event_type), subject, time, value.get("data"), cloudevents)


def _optional_text(value: dict[str, Any], name: str, faults: list[Fault]) -> str | None:
    text = value.get(name)
    if text is None or isinstance(text, str):
        return text
    faults.append(Fault(f"/{name}", "write a string"))
    return None


def _time(value: dict[str, Any], faults: list[Fault]) -> datetime | None:
    text = value.get("time")
    if text is None:
        return None
    try:
        return read_instant(text)
    except InstantError as error:
        faults.append(Fault("/time", str(error)))
        return None


def _check(faults: list[Fault], pointer: str, check: Any, text: str) -> None:
    try:
        check(text)
    except (ids.IdError, EventTypeError) as error:
        faults.append(Fault(pointer, str(error)))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
