"""JSON Schemas of event types (draft 2020-12), compiled once: a check costs microseconds.

No event and no schema may hold up the door: patterns are matched in linear time, the work that a schema can ask for is
counted before it is compiled (`schema_cost`), and what is wrong is told in full only where that is cheap. To tell takes
the library some 60 µs for each fault, of which data of 256 KiB may have 60,000.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import jsonschema_rs

from activity_core.domain.json_values import MAX_DEPTH, JsonValue, canonical_json, deeper_than, pointer_step
from activity_core.domain.schema_cost import MAX_PATTERN_BYTES, SchemaError, costs

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_FAULTS = 20
MAX_MESSAGE = 300
# A schema that costs more for data of a few levels is of no use.
MAX_COST, MAX_COST_LEVELS = 10_000, 4
# In evaluations, of each of its values by each part of the schema that speaks of it: of 20 to 150 ns, about a second.
MAX_WORK = 10_000_000
MAX_WORK_TOLD = 5_000
CHEAP_COST = 40  # more than that is not reached without hundreds of kilobytes: checked without a look at the size
TEXT_BYTES_PER_VALUE = 64
# Bytes of a compiled pattern. The library's own limit is 10 MB, for each.
_REGEX = jsonschema_rs.RegexOptions(size_limit=256 * 1024)
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NO_PATTERN = (
    f"is no pattern that can be taken: up to {MAX_PATTERN_BYTES} bytes, matched in linear time, so without (?=…), (?!…), "
    "(?<…) and \\1; write lengths as minLength and maxLength"
)


class EventSchema:
    """A compiled schema. Nothing in an event makes it raise or take long."""

    __slots__ = ("_costs", "_one_is_cheap", "_validator")

    def __init__(
        self, validator: jsonschema_rs.Draft202012Validator, costs: Sequence[int], *, one_is_cheap: bool
    ) -> None:
        self._validator = validator
        self._costs = costs
        self._one_is_cheap = one_is_cheap

    def faults(self, data: JsonValue) -> list[tuple[str, str]]:
        """(JSON pointer into the data, sentence) of what the schema does not allow; 20 at most, and of large data only the
        first one. Values are not quoted. `data` is JSON as `parse_json` gives it."""
        work = None
        if self._costs[MAX_DEPTH] > CHEAP_COST:
            work = self._work(data)
            if work > MAX_WORK:
                return [("", "is too large, or too deep, to be checked by the schema of its type")]
        if self._validator.is_valid(data):
            return []
        work = self._work(data) if work is None else work
        if work <= MAX_WORK_TOLD:
            return list(islice(map(_told, self._validator.iter_errors(data)), MAX_FAULTS))
        return [self._first(data)]

    def _work(self, data: JsonValue) -> int:
        levels, values = _extent(data)
        return self._costs[levels] * (values + len(canonical_json(data)) // TEXT_BYTES_PER_VALUE)

    def _first(self, data: JsonValue) -> tuple[str, str]:
        if self._one_is_cheap:
            try:
                self._validator.validate(data)
            except jsonschema_rs.ValidationError as error:
                return _told(error)
        return "", "is not what the schema of its type allows; it is too large to be told where"


def compile_schema(schema: JsonValue) -> EventSchema:
    """Raises SchemaError saying what can't be taken: it is no schema, refers elsewhere, or is too large."""
    if not isinstance(schema, dict):
        raise SchemaError("", "write a JSON Schema as an object")
    text = canonical_json(schema)
    if len(text) > MAX_SCHEMA_BYTES or deeper_than(schema, MAX_SCHEMA_DEPTH):
        raise SchemaError("", f"a schema may have {MAX_SCHEMA_BYTES} bytes and {MAX_SCHEMA_DEPTH} levels at most")
    if schema.get("$schema", _DRAFT) not in (_DRAFT, f"{_DRAFT}#"):
        raise SchemaError("/$schema", f"write '{_DRAFT}', or leave it out")
    found = costs(schema)
    if found[MAX_COST_LEVELS] > MAX_COST:
        raise SchemaError("", "its parts refer to each other in so many ways that a check could take for ever")
    try:
        validator = jsonschema_rs.Draft202012Validator(schema, pattern_options=_REGEX, offline=True, mask="the value")
    except jsonschema_rs.ValidationError as error:
        raise _refused(error) from error
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError("", str(error)[:MAX_MESSAGE]) from error
    # what these have to say of a value holds all that is wrong with it for each of their branches
    return EventSchema(validator, found, one_is_cheap=b'"anyOf"' not in text and b'"oneOf"' not in text)


def _refused(error: jsonschema_rs.ValidationError) -> SchemaError:
    pointer, message = _told(error)
    if message.endswith('is not a "regex"'):
        message = _NO_PATTERN
    elif pointer.endswith("/type"):
        message = "write one of null, boolean, object, array, number, string, integer, or a list of these"
    return SchemaError(pointer, message)


def _told(error: jsonschema_rs.ValidationError) -> tuple[str, str]:
    pointer = ""
    for step in error.instance_path:
        pointer = pointer_step(pointer, step)
    message = str(error.message)
    return pointer, message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"


def _extent(value: Any) -> tuple[int, int]:
    """(how many containers lie in each other, 64 at most; how many values there are)."""
    levels, values, inside = 0, 1, [value]
    while levels < MAX_DEPTH and (inside := list(_inside(inside))):
        levels += 1
        values += len(inside)
    return levels, values


def _inside(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value
