"""The router process: accepted events become ledger rows."""

import structlog

from activity_core.errors import UnavailableError
from activity_core.processes import run_until_stopped, watch_parent
from activity_core.services.definitions import Definitions
from activity_core.services.routing import BATCH, Routing
from activity_core.settings import Settings
from activity_core.store import deployment
from activity_core.store.database import Database
from activity_core.store.notify import EVENTS, Wakeup

POLL_SECONDS = 1.0
PAUSE_SECONDS = 1.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


async def serve(settings: Settings) -> None:
    """Route until SIGTERM. Raises ConfigurationError when the database can't be served."""
    watch_parent()
    database = Database(
        settings.asyncpg_url, pool_size=settings.database_pool_size, application_name="activity-core router"
    )
    try:
        await deployment.bind(database, settings.temporal_namespace)
        log.info("router.ready")
        await run_until_stopped(route_loop(database))
    finally:
        await database.close()


async def route_loop(database: Database) -> None:
    """Route batch after batch; wait for a wake-up or a second when there is nothing."""
    routing = Routing(database, Definitions())
    wakeup = Wakeup(database, EVENTS)
    try:
        while True:
            try:
                routed = await routing.route_batch()
            except UnavailableError as error:
                log.warning("router.waiting", error=error.detail)
                await wakeup.pause(PAUSE_SECONDS)
                continue
            except Exception:  # the outermost loop: a bug is logged, and the next batch tried
                log.exception("router.failed")
                await wakeup.pause(PAUSE_SECONDS)
                continue
            if routed < BATCH:
                await wakeup.wait(POLL_SECONDS)
    finally:
        await wakeup.close()
