"""Request bodies, read from the raw bytes by the domain's strict reader and never by the framework."""

import difflib
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from activity_core.domain.json_values import JsonError, JsonValue, canonical_json, parse_json
from activity_core.errors import Fault, InvalidInputError, MalformedBodyError, UnsupportedMediaTypeError

M = TypeVar("M", bound=BaseModel)


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
    faults = [_unknown(name, fields) for name in value if name not in fields]
    if faults:
        raise InvalidInputError(faults)
    return value


async def read_model(request: Request, model: type[M]) -> M:
    """The body of a command as its model; an empty body is an empty object. Raises InvalidInputError, every fault named."""
    value = await read_json(request) if await request.body() else {}
    if not isinstance(value, dict):
        raise InvalidInputError([Fault("", "write a JSON object")])
    try:
        return model.model_validate_json(canonical_json(value))
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise InvalidInputError([_fault(detail, model) for detail in details]) from error


def _fault(detail: ErrorDetails, model: type[BaseModel]) -> Fault:
    name, context = str(detail["loc"][0]), detail.get("ctx", {})
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in detail["loc"])
    match detail["type"]:
        case "missing":
            return Fault(pointer, "is required", "required")
        case "extra_forbidden":
            return _unknown(name, tuple(field.alias or own for own, field in model.model_fields.items()))
        case "literal_error":
            return Fault(pointer, f"write {context.get('expected')}")
        case "value_error":
            # advice on `+` in URLs is of no use here
            return Fault(pointer, str(context.get("error")).replace("%2B", "+"))
    return Fault(pointer, detail["msg"])


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """`json_body` of a command's model."""
    return json_body(model.model_json_schema(), required=required)


def _unknown(name: str, fields: tuple[str, ...]) -> Fault:
    near = difflib.get_close_matches(name, fields, n=1)
    message = f"did you mean '{near[0]}'?" if near else f"known are: {', '.join(fields)}"
    return Fault("/" + name.replace("~", "~0").replace("/", "~1"), f"unknown field; {message}", "unknown_field")


def _shown(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"
