"""/v1/consumers and /v1/apply."""

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from activity_core.api import bodies, notices, params, views
from activity_core.api.services import Use
from activity_core.errors import Fault, InvalidInputError
from activity_core.store.consumers import ConsumerRecord

DOCUMENT = bodies.json_body({"$ref": "#/components/schemas/HttpConsumer"})
APPLY_BODY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["documents"],
    "properties": {
        "documents": {
            "type": "array",
            "items": {
                "oneOf": [{"$ref": f"#/components/schemas/{kind}"} for kind in ("Activity", "HttpConsumer", "Source")]
            },
            "description": "Each with its `kind`",
        },
        "dry_run": {"type": "boolean", "default": False},
    },
}

router = APIRouter(prefix="/v1/consumers", tags=["consumers"])
apply_router = APIRouter(prefix="/v1/apply", tags=["documents"])


@router.post("", status_code=201, openapi_extra=DOCUMENT)
async def create_consumer(
    request: Request, response: Response, use: Use, idempotency_key: params.IdempotencyKey = None
) -> views.ConsumerOut:
    """Create a consumer. 409 when the slug is taken."""
    key = params.read_idempotency_key(idempotency_key)
    saved = await use.consumers.create(await bodies.read_json(request), idempotency_key=key)
    response.headers["Location"] = f"/v1/consumers/{saved.record.slug}"
    return _shown(saved.record, response)


@router.get("")
async def list_consumers(
    use: Use, cursor: params.CursorText = None, limit: params.Limit = params.DEFAULT_LIMIT
) -> views.ListOf[views.ConsumerOut]:
    """The named consumers, newest first. The built-in ones, `inbox` and `log`, are not listed."""
    page = await use.consumers.listed(cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[views.consumer(record) for record in page.items], next_cursor=page.next_cursor)


@router.get("/{slug}")
async def get_consumer(slug: str, response: Response, use: Use) -> views.ConsumerOut:
    return _shown(await use.consumers.get(slug), response)


@router.put("/{slug}", openapi_extra=DOCUMENT, responses={201: {"model": views.ConsumerOut, "description": "Created"}})
async def put_consumer(
    slug: str, request: Request, response: Response, use: Use, if_match: params.IfMatch = None
) -> views.ConsumerOut:
    """Create or replace. Unchanged: 200, and no new revision."""
    params.refuse_if_none_match(request)
    expected = params.read_if_match(if_match)
    saved = await use.consumers.put(slug, await bodies.read_json(request), if_match=expected)
    if saved.change == "created":
        response.status_code = 201
        response.headers["Location"] = f"/v1/consumers/{saved.record.slug}"
    return _shown(saved.record, response)


@router.delete("/{slug}", status_code=204)
async def delete_consumer(slug: str, request: Request, use: Use, if_match: params.IfMatch = None) -> Response:
    """409 `in_use` while an activity hands tasks to it."""
    params.refuse_if_none_match(request)
    await use.consumers.delete(slug, if_match=params.read_if_match(if_match))
    return Response(status_code=204)


@apply_router.post("", openapi_extra=bodies.json_body(APPLY_BODY))
async def apply_documents(request: Request, use: Use) -> views.AppliedOut:
    """Create or replace all the documents, or none. They may refer to each other."""
    command = await bodies.read_command(request, "documents", "dry_run", "set", "prune")
    documents, dry_run = command.get("documents"), command.get("dry_run", False)
    faults = [
        Fault(f"/{name}", f"'{name}' is not available in this version; leave it out")
        for name in ("set", "prune")
        if name in command
    ]
    if documents is None:
        faults.append(Fault("/documents", "is required", "required"))
    elif not isinstance(documents, list):
        faults.append(Fault("/documents", "write a list of documents"))
    if not isinstance(dry_run, bool):
        faults.append(Fault("/dry_run", "write true or false"))
    if faults:
        raise InvalidInputError(faults)
    assert isinstance(documents, list)  # noqa: S101 (a fault otherwise)
    applied = await use.apply.apply(documents, dry_run=bool(dry_run))
    now = datetime.now(UTC)
    told = [[] if item.activity is None else notices.of_activity(item.activity, now) for item in applied]
    documents = [views.applied(item, found) for item, found in zip(applied, told, strict=True)]
    return views.AppliedOut(dry_run=bool(dry_run), documents=documents)


def _shown(record: ConsumerRecord, response: Response) -> views.ConsumerOut:
    response.headers["ETag"] = f'"{record.revision}"'
    return views.consumer(record)
