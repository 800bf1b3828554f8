"""/openapi.json, made truthful: the problems that routes answer, and the documents that they read themselves."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from activity_core.api.problems import MEDIA_TYPE, Problem
from activity_core.domain.documents import Activity, HttpConsumer
from activity_core.domain.webhooks.document import Source

_REF = "#/components/schemas/{model}"
_PROBLEM = {"description": "A problem", "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}}
_NOT_OURS = ("HTTPValidationError", "ValidationError")


def install(app: FastAPI) -> None:
    """Replace the schema that FastAPI would make."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _schema(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to extend it


def _schema(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
    )
    components: dict[str, Any] = schema.setdefault("components", {}).setdefault("schemas", {})
    for name in _NOT_OURS:
        components.pop(name, None)
    inputs = [*((kind, "validation") for kind in (Activity, HttpConsumer, Source)), (Problem, "serialization")]
    _, made = models_json_schema(inputs, ref_template=_REF)  # type: ignore[arg-type]  # a list is invariant in its tuples
    components.update(made["$defs"])
    for path in schema["paths"].values():
        for operation in path.values():
            # FastAPI documents a 422 of its own shape; every error of ours is a problem
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = _PROBLEM
    return schema
