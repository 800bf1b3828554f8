"""Request bodies, read from the raw bytes by the domain's strict reader and never by the framework."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from activity_core.domain.json_values import JsonError, JsonValue, canonical_json, parse_json
from activity_core.errors import Fault, InvalidInputError, MalformedBodyError, UnsupportedMediaTypeError

M = TypeVar("M", bound=BaseModel)
INSTANTS = ("from", "to", "at", "until")
INSTANT_MISSING = "is required; write an instant with its offset, for example '2026-03-01T09:00:00Z'"


def json_body(schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    """For `openapi_extra`: the body of a route that reads it itself."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def media_type(header: str | None) -> str:
    """The media type alone, in lower case; "" when there is none."""
    return (header or "").partition(";")[0].strip().lower()


def parse_body(raw: bytes) -> JsonValue:
    """Raises MalformedBodyError for what is no JSON, InvalidInputError for JSON that can't be stored."""
    try:
        return parse_json(raw)
    except JsonError as error:
        if error.code == "malformed":
            raise MalformedBodyError(f"the body {error.message}") from error
        raise InvalidInputError([Fault(error.pointer, error.message, error.code)]) from error


async def read_json(request: Request) -> JsonValue:
    """The body as JSON, whatever +json type it is declared as, or none."""
    declared = media_type(request.headers.get("content-type"))
    if declared not in ("", "application/json") and not (
        declared.startswith("application/") and declared.endswith("+json")
    ):
        raise UnsupportedMediaTypeError(f"'{_shown(declared)}' is not supported; send JSON as application/json")
    return parse_body(await request.body())


async def read_command(request: Request, *fields: str) -> dict[str, Any]:
    """The body of a command: a JSON object with some of these fields; an empty body is an empty object."""
    if not await request.body():
        return {}
    value = await read_json(request)
    if not isinstance(value, dict):
        raise InvalidInputError([Fault("", "write a JSON object")])
    faults = [
        Fault("/" + name.replace("~", "~0").replace("/", "~1"), unknown_field(name, fields), "unknown_field")
        for name in value
        if name not in fields
    ]
    if faults:
        raise InvalidInputError(faults)
    return value


async def read_model(request: Request, model: type[M]) -> M:
    """The body of a command as its model; an empty body is an empty object. Raises InvalidInputError, every fault named."""
    value = await read_json(request) if await request.body() else {}
    if not isinstance(value, dict):
        raise InvalidInputError([Fault("", "write a JSON object")])
    document, faults = validated(value, model)
    if document is None:
        raise InvalidInputError(faults)
    return document


def validated(
    value: dict[str, Any], model: type[M], nested: Mapping[str, type[BaseModel]] | None = None
) -> tuple[M | None, list[Fault]]:
    """The model, or what is wrong. `nested`: the models of those fields that are lists of objects."""
    try:
        return model.model_validate_json(canonical_json(value)), []
    except ValidationError as error:
        return None, [_fault(detail, model, nested or {}) for detail in error.errors(include_url=False)]


def _fault(detail: ErrorDetails, model: type[BaseModel], nested: Mapping[str, type[BaseModel]]) -> Fault:
    path, context = detail["loc"], detail.get("ctx", {})
    name = str(path[-1])
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)
    match detail["type"]:
        case "missing":
            return Fault(pointer, INSTANT_MISSING if name in INSTANTS else "is required", "required")
        case "extra_forbidden":
            place = model if len(path) == 1 else nested[str(path[0])]
            known = tuple(field.alias or own for own, field in place.model_fields.items())
            return Fault(pointer, unknown_field(name, known), "unknown_field")
        case "literal_error":
            return Fault(pointer, f"write {context.get('expected')}")
        case "greater_than_equal":
            return Fault(pointer, f"write {context['ge']:,} or more")
        case "less_than_equal":
            return Fault(pointer, f"write {context['le']:,} or less")
        case "model_type":
            return Fault(pointer, "write a JSON object")
        case "too_long":
            return Fault(pointer, f"write {context.get('max_length')} at most")
        case "value_error":
            # advice on how to write `+` in a URL is of no use here
            return Fault(pointer, str(context.get("error")).replace("%2B", "+"))
    return Fault(pointer, detail["msg"])


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """`json_body` of a command's model."""
    return json_body(model.model_json_schema(), required=required)


def unknown_field(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown field; did you mean '{near[0]}'?" if near else f"unknown field; known are: {', '.join(known)}"


def _shown(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"
