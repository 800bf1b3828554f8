"""Values on their way into CEL and out of it.

Seen with cel-expr-python 0.1.3 on CPython 3.11:
- Reading a null (`Value.value()`, `Value.plain_value()`, also inside a list or map) takes a reference from None each time
  and gives none back; after some thousands the process aborts ("deallocating None"). So a null is never read, only its
  type, and containers are read one level at a time.
- A string is cut at U+0000. A datetime, a tuple, a subclass of str or dict is an error value.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from cel_expr_python import cel
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from activity_core.domain.cel.errors import ExpressionError
from activity_core.domain.json_values import MAX_INT, JsonValue

# `[event, event, …]` holds its event many times over, and each part takes a microsecond or two to read.
MAX_READ_VALUES = 30_000

_NULL = cel.Type.NULL
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


def to_cel(value: object, path: str) -> object:
    """A copy that the library takes: JSON values, with aware datetimes and timedeltas as protobuf messages. `path` names
    the value in the ExpressionError for anything else."""
    if isinstance(value, str):
        if (not value.isascii() or "\x00" in value) and _UNUSABLE.search(value):
            raise ExpressionError(f"{path} holds U+0000 or half a surrogate pair")
        return str.__str__(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ExpressionError(f"{path} is an integer beyond ±(2^63-1)")
        return int(value)
    if isinstance(value, dict):
        return {_key(key, path): to_cel(item, path) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_cel(item, path) for item in value]
    return _rarer_to_cel(value, path)


def _rarer_to_cel(value: object, path: str) -> object:
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        timestamp = Timestamp()
        timestamp.FromDatetime(value)
        return timestamp
    if isinstance(value, timedelta):
        duration = Duration()
        duration.FromTimedelta(value)
        return duration
    if isinstance(value, Mapping):
        return to_cel(dict(value), path)
    if isinstance(value, Timestamp | Duration):
        return value
    what = "a time without a zone" if isinstance(value, datetime) else f"{value!r:.40}, a Python {type(value).__name__}"
    raise ExpressionError(f"{path} holds {what}, which expressions don't know")


def _key(key: object, path: str) -> str:
    text = to_cel(key, path)
    if not isinstance(text, str):
        raise ExpressionError(f"{path} has a key that is not a string")
    return text


def from_cel(value: cel.Value) -> object:
    """The value as Python objects, for `to_json` or `to_cel`. An error must have been looked for before. Raises
    ExpressionError for more than MAX_READ_VALUES."""
    return _Reader().read(value)


class _Reader:
    def __init__(self) -> None:
        self.left = MAX_READ_VALUES

    def read(self, value: cel.Value) -> object:
        self.left -= 1
        if self.left < 0:
            raise ExpressionError(f"the value is too large, of more than {MAX_READ_VALUES} parts")
        if value.type() == _NULL:
            return None
        found = value.value()
        if isinstance(found, list):
            return [self.read(item) for item in found]
        if isinstance(found, dict):
            # the library keeps no order of keys; this one makes the result the same in every process
            return {key: self.read(found[key]) for key in sorted(found, key=str)}
        return found


def to_json(value: object) -> JsonValue:
    """What `from_cel` or `to_cel` made, as JSON. Times become what CEL's own `string()` makes of them: RFC 3339 in UTC
    with 0, 3 or 6 decimals, and seconds as in "90s". Raises ExpressionError for what JSON can't hold."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ExpressionError("the value is an integer beyond ±(2^63-1)")
        return value
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ExpressionError("the value is a map with keys that are not strings, which JSON can't hold")
        return {key: to_json(item) for key, item in value.items()}
    return _rarer_to_json(value)


def _rarer_to_json(value: object) -> JsonValue:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError("the value is not a finite number")
        return value
    if isinstance(value, Timestamp):
        return _rfc3339(value.ToDatetime(tzinfo=UTC))
    if isinstance(value, datetime):
        return _rfc3339(value)
    if isinstance(value, Duration):
        return _seconds(value.ToTimedelta())
    if isinstance(value, timedelta):
        return _seconds(value)
    raise ExpressionError(f"the value is of a type that JSON can't hold ({type(value).__name__})")


def _rfc3339(instant: datetime) -> str:
    second = instant.astimezone(UTC).replace(tzinfo=None, microsecond=0)
    return f"{second.isoformat()}{_fraction(instant.microsecond)}Z"


def _seconds(span: timedelta) -> str:
    sign, length = ("-", -span) if span < timedelta(0) else ("", span)
    return f"{sign}{length.days * 86_400 + length.seconds}{_fraction(length.microseconds)}s"


def _fraction(microseconds: int) -> str:
    if not microseconds:
        return ""
    return f".{microseconds:06}" if microseconds % 1_000 else f".{microseconds // 1_000:03}"
