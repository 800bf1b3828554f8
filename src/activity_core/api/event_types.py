"""/v1/events/types: what is known and declared of event types."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from activity_core.api import bodies, params, views
from activity_core.api.services import Use
from activity_core.domain.documents import Model
from activity_core.domain.event_types import MAX_TYPE_LENGTH
from activity_core.services.event_types import Declaration
from activity_core.store.event_types import EventTypeRecord

router = APIRouter(prefix="/v1/events/types", tags=["events"])


class EventTypeIn(Model):
    """`schema`: JSON Schema 2020-12 of the data, without references to elsewhere. `on_invalid`: what becomes of an event
    that it does not allow: refused (422), or accepted and kept back until it is replayed."""

    description: Annotated[str, Field(max_length=2_000)] | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    example: Any = None
    on_invalid: Literal["refuse", "quarantine"] = "refuse"


class EventTypeOut(BaseModel):
    type: str
    revision: int
    description: str | None
    schema_: Annotated[views.Json, Field(serialization_alias="schema")]
    example: views.Json
    on_invalid: str
    created_at: views.Instant
    updated_at: views.Instant


class EventTypeItem(BaseModel):
    """`on_invalid` null: it is not declared."""

    type: str
    description: str | None
    on_invalid: str | None
    has_schema: bool
    count_24h: int
    last_accepted_at: views.Instant | None


@router.get("")
async def list_event_types(
    use: Use,
    prefix: Annotated[str, Query(max_length=MAX_TYPE_LENGTH)] = "",
    cursor: Annotated[str, Query(max_length=MAX_TYPE_LENGTH, description="`next_cursor` of the page before")] = "",
    limit: params.Limit = params.DEFAULT_LIMIT,
) -> views.ListOf[EventTypeItem]:
    """Types that are declared or were seen, by name."""
    rows, following = await use.event_types.listed(prefix=prefix, after=cursor, limit=limit)
    items = [
        EventTypeItem(
            type=row.type,
            description=row.description,
            on_invalid=row.on_invalid,
            has_schema=row.has_schema,
            count_24h=row.recent,
            last_accepted_at=row.last_accepted_at,
        )
        for row in rows
    ]
    return views.ListOf(items=items, next_cursor=following)


@router.get("/{event_type:path}")
async def get_event_type(event_type: str, response: Response, use: Use) -> EventTypeOut:
    """404 for a type that is not declared."""
    return _shown(await use.event_types.get(event_type), response)


@router.put(
    "/{event_type:path}",
    openapi_extra=bodies.body_of(EventTypeIn),
    responses={201: {"model": EventTypeOut, "description": "Created"}},
)
async def put_event_type(
    event_type: str, request: Request, response: Response, use: Use, if_match: params.IfMatch = None
) -> EventTypeOut:
    """Declare a type, or replace what is declared. In force at every door within two seconds, for what comes then."""
    params.refuse_if_none_match(request)
    asked = await bodies.read_model(request, EventTypeIn)
    declaration = Declaration(asked.description, asked.schema_, asked.example, asked.on_invalid)
    record, new = await use.event_types.put(event_type, declaration, if_match=params.read_if_match(if_match))
    if new:
        response.status_code = 201
    return _shown(record, response)


@router.delete("/{event_type:path}", status_code=204)
async def delete_event_type(event_type: str, request: Request, use: Use, if_match: params.IfMatch = None) -> Response:
    """Events of it are checked no more."""
    params.refuse_if_none_match(request)
    await use.event_types.delete(event_type, if_match=params.read_if_match(if_match))
    return Response(status_code=204)


def _shown(record: EventTypeRecord, response: Response) -> EventTypeOut:
    response.headers["ETag"] = f'"{record.revision}"'
    return EventTypeOut(
        type=record.type,
        revision=record.revision,
        description=record.description,
        schema_=record.schema,
        example=record.example,
        on_invalid=record.on_invalid,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
