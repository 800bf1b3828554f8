"""/healthz and /readyz."""

import asyncio
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from activity_core.api.services import Services, Use
from activity_core.errors import ActivityCoreError
from activity_core.store import migrate

TEMPORAL_SECONDS = 1.0

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """`ready` needs Postgres and the schema. Temporal is told, not needed: what is accepted starts when it is back."""

    status: Literal["ready", "not_ready"]
    postgres: Literal["ok", "unreachable"]
    database_schema: Literal["at_head", "behind", "unknown"]
    temporal: Literal["ok", "unreachable", "not_asked"]


@router.get("/healthz")
async def healthz() -> Health:
    """The process is alive."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "Not ready"}})
async def readyz(response: Response, use: Use) -> Readiness:
    """Requests can be served: Postgres answers and has the schema of this version."""
    (postgres, schema), temporal = await asyncio.gather(_postgres(use), _temporal(use))
    ready = schema == "at_head"
    response.status_code = 200 if ready else 503
    return Readiness(
        status="ready" if ready else "not_ready", postgres=postgres, database_schema=schema, temporal=temporal
    )


async def _postgres(use: Services) -> tuple[Literal["ok", "unreachable"], Literal["at_head", "behind", "unknown"]]:
    try:
        return "ok", "at_head" if await migrate.is_at_head(use.database) else "behind"
    except ActivityCoreError:
        return "unreachable", "unknown"


async def _temporal(use: Services) -> Literal["ok", "unreachable", "not_asked"]:
    if use.temporal is None:
        return "not_asked"
    try:
        async with asyncio.timeout(TEMPORAL_SECONDS):
            await use.temporal.ping()
    except (ActivityCoreError, TimeoutError):
        return "unreachable"
    return "ok"
