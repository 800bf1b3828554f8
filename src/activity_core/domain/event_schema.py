"""JSON Schemas of event types (draft 2020-12), compiled once: a check costs microseconds."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jsonschema_rs

from activity_core.domain.json_values import JsonValue, canonical_json, deeper_than, pointer_step

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_FAULTS = 20
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class SchemaError(ValueError):
    """`pointer`: where in the schema."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer}: {message}" if pointer else message)
        self.pointer = pointer
        self.message = message


class EventSchema:
    """A compiled schema. Nothing in an event makes it raise or take long: patterns are matched in linear time."""

    __slots__ = ("_validator",)

    def __init__(self, validator: jsonschema_rs.Draft202012Validator) -> None:
        self._validator = validator

    def faults(self, data: JsonValue) -> list[tuple[str, str]]:
        """(JSON pointer into the data, sentence) of what the schema does not allow; 20 at most. Values are not quoted."""
        if self._validator.is_valid(data):
            return []
        return list(islice(self._faults(data), MAX_FAULTS))

    def _faults(self, data: JsonValue) -> Iterator[tuple[str, str]]:
        for error in self._validator.iter_errors(data):
            pointer = ""
            for step in error.instance_path:
                pointer = pointer_step(pointer, step)
            yield pointer, str(error.message)


def compile_schema(schema: JsonValue) -> EventSchema:
    """Raises SchemaError saying what can't be taken: it is no schema, refers elsewhere, or is too large."""
    if not isinstance(schema, dict):
        raise SchemaError("", "write a JSON Schema as an object")
    if len(canonical_json(schema)) > MAX_SCHEMA_BYTES or deeper_than(schema, MAX_SCHEMA_DEPTH):
        raise SchemaError("", f"a schema may have {MAX_SCHEMA_BYTES} bytes and {MAX_SCHEMA_DEPTH} levels at most")
    if schema.get("$schema", _DRAFT) not in (_DRAFT, f"{_DRAFT}#"):
        raise SchemaError("/$schema", f"write '{_DRAFT}', or leave it out")
    for pointer, reference in _references(schema, ""):
        if not reference.startswith("#"):
            raise SchemaError(pointer, "refers elsewhere; a schema stands alone, with '#/$defs/…' for its parts")
    options = jsonschema_rs.RegexOptions()
    try:
        validator = jsonschema_rs.Draft202012Validator(schema, pattern_options=options, offline=True, mask="the value")
    except jsonschema_rs.ValidationError as error:
        pointer = ""
        for step in error.instance_path:
            pointer = pointer_step(pointer, step)
        raise SchemaError(pointer, str(error.message)[:500]) from error
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError("", str(error)[:500]) from error
    return EventSchema(validator)


def _references(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("$ref", "$dynamicRef") and isinstance(item, str):
                yield pointer_step(pointer, key), item
            yield from _references(item, pointer_step(pointer, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _references(item, pointer_step(pointer, place))
