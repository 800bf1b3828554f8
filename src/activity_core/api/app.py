"""The HTTP API as one ASGI application."""

from importlib.metadata import PackageNotFoundError, version

from fastapi import Depends, FastAPI

from activity_core.api import (
    activities,
    backfills,
    consumers,
    event_types,
    events,
    health,
    ledger,
    metrics,
    openapi,
    pausing,
    problems,
    replays,
    services,
    simulate,
    sources,
    tasks,
    webhooks,
)
from activity_core.api.middleware import BodyGuard, RequestGuard
from activity_core.api.params import check_url
from activity_core.console import pages
from activity_core.services import egress
from activity_core.services.egress import Fetch
from activity_core.settings import Settings
from activity_core.store.database import Database
from activity_core.temporal.client import Temporal


def create_app(
    settings: Settings, database: Database, temporal: Temporal | None = None, fetch: Fetch = egress.fetch
) -> FastAPI:
    """The application on a migrated database. `app.state.services.run()` must be running for POST /v1/events and webhooks.

    `temporal` is only asked by /readyz whether it is there.
    """
    app = FastAPI(
        title="activity-core",
        version=_version(),
        description="Recurring and event-driven work, exactly once in effect, with a record of why it did or did not happen.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services.build(settings, database, temporal, fetch)
    app.include_router(events.hot)
    app.include_router(webhooks.router)
    app.include_router(webhooks.consent)
    for router in (
        *(activities.router, consumers.router, consumers.apply_router, sources.router),
        *(event_types.router, replays.router, events.router),
        *(ledger.occurrences, ledger.runs, simulate.router, tasks.router, health.router, metrics.router),
        *(pausing.pausing, pausing.freezes, backfills.of_activity, backfills.router),
    ):
        app.include_router(router, dependencies=[Depends(check_url)])
    app.include_router(pages.router)
    problems.install(app)
    openapi.install(app)
    # the last one added is the outermost
    app.add_middleware(events.EventsDoor)
    app.add_middleware(BodyGuard, max_bytes=settings.max_request_bytes)
    app.add_middleware(RequestGuard)
    return app


def _version() -> str:
    try:
        return version("activity-core")
    except PackageNotFoundError:
        return "0"
