"""/v1/sources: the named senders of webhooks."""

from uuid import UUID

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from activity_core.api import bodies, params, views
from activity_core.api.services import Services, Use
from activity_core.services.sources import SavedSource, SourceStatus

DOCUMENT = bodies.json_body({"$ref": "#/components/schemas/Source"})

router = APIRouter(prefix="/v1/sources", tags=["sources"])


class SourceSecretOut(BaseModel):
    """`name` of one that is set outside; `fingerprint` tells secrets apart, and is none of them."""

    id: UUID
    name: str | None
    fingerprint: str
    added_at: views.Instant


class SourceOut(BaseModel):
    """`trouble`: why a secret can't be used by this process."""

    id: UUID
    slug: str
    revision: int
    scheme: str
    webhook_path: str
    secrets: list[SourceSecretOut]
    trouble: list[str]
    spec: dict[str, views.Json]
    effective: dict[str, views.Json]
    created_at: views.Instant
    updated_at: views.Instant


@router.post("", status_code=201, openapi_extra=DOCUMENT)
async def create_source(
    request: Request, response: Response, use: Use, idempotency_key: params.IdempotencyKey = None
) -> SourceOut:
    """Create a source. 409 when the slug is taken."""
    key = params.read_idempotency_key(idempotency_key)
    saved = await use.sources.create(await bodies.read_json(request), idempotency_key=key)
    response.headers["Location"] = f"/v1/sources/{saved.record.slug}"
    return await _saved(use, saved, response)


@router.get("")
async def list_sources(
    use: Use, cursor: params.CursorText = None, limit: params.Limit = params.DEFAULT_LIMIT
) -> views.ListOf[SourceOut]:
    """The named sources, newest first."""
    page = await use.sources.listed(cursor=params.read_cursor(cursor), limit=limit)
    return views.ListOf(items=[_source(status) for status in page.items], next_cursor=page.next_cursor)


@router.get("/{slug}")
async def get_source(slug: str, response: Response, use: Use) -> SourceOut:
    """Its secrets are named or told apart by a fingerprint, and never shown."""
    return _shown(await use.sources.get(slug), response)


@router.get("/{slug}/requests")
async def list_requests(
    slug: str,
    use: Use,
    result: views.ReceiptResult | None = None,
    reason_code: str | None = None,
    start: params.From = None,
    end: params.To = None,
    cursor: params.CursorText = None,
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[views.ReceiptOut]:
    """Every request that came for it, refused ones too, newest first. The newest 10,000 of each result are kept."""
    params.check_range(start, end)
    page = await use.sources.requests(
        slug,
        result=result,
        reason_code=reason_code,
        received_from=start,
        received_to=end,
        cursor=params.read_cursor(cursor),
        limit=limit,
    )
    return views.ListOf(items=[views.receipt(record) for record in page.items], next_cursor=page.next_cursor)


@router.put("/{slug}", openapi_extra=DOCUMENT, responses={201: {"model": SourceOut, "description": "Created"}})
async def put_source(
    slug: str, request: Request, response: Response, use: Use, if_match: params.IfMatch = None
) -> SourceOut:
    """Create or replace. Without `secrets`, those in force stay. Unchanged: 200, and no new revision."""
    params.refuse_if_none_match(request)
    expected = params.read_if_match(if_match)
    saved = await use.sources.put(slug, await bodies.read_json(request), if_match=expected)
    if saved.change == "created":
        response.status_code = 201
        response.headers["Location"] = f"/v1/sources/{saved.record.slug}"
    return await _saved(use, saved, response)


@router.delete("/{slug}", status_code=204)
async def delete_source(slug: str, request: Request, use: Use, if_match: params.IfMatch = None) -> Response:
    """Its webhooks are answered 404 within two seconds. Its events stay; its secrets are deleted."""
    params.refuse_if_none_match(request)
    await use.sources.delete(slug, if_match=params.read_if_match(if_match))
    return Response(status_code=204)


async def _saved(use: Services, saved: SavedSource, response: Response) -> SourceOut:
    return _shown(await use.sources.get(saved.record.slug), response)


def _shown(status: SourceStatus, response: Response) -> SourceOut:
    response.headers["ETag"] = f'"{status.record.revision}"'
    return _source(status)


def _source(status: SourceStatus) -> SourceOut:
    record = status.record
    return SourceOut(
        id=record.id,
        slug=record.slug,
        revision=record.revision,
        scheme=record.effective["scheme"],
        webhook_path=f"/v1/webhooks/{record.slug}",
        secrets=[
            SourceSecretOut(id=s.id, name=s.name, fingerprint=s.fingerprint, added_at=s.added_at)
            for s in status.secrets
        ],
        trouble=list(status.trouble),
        spec=record.spec,
        effective=record.effective,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
