"""The API process."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import structlog
import uvicorn
import uvloop

from activity_core.api.app import create_app
from activity_core.api.protocol import DeadlineProtocol
from activity_core.api.services import Services
from activity_core.errors import ConfigurationError
from activity_core.processes import run_until_stopped, watch_parent
from activity_core.settings import Settings
from activity_core.store import deployment
from activity_core.store.database import Database
from activity_core.temporal.client import Temporal

KEEP_ALIVE_SECONDS = 75
DRAIN_SECONDS = 8
BACKLOG = 2_048

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's: uvicorn would raise them again after its drain, and so end it with a failure."""
        yield


def run(settings: Settings) -> None:
    """`serve` on uvloop."""
    uvloop.run(serve(settings))


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM, then answer what has come. Raises ConfigurationError when it can't be served so.

    Logs `api.listening` with the port: with `api_port` 0 it is a free one.
    """
    watch_parent()
    settings.refuse_open_api()
    database = Database(
        settings.asyncpg_url, pool_size=settings.database_pool_size, application_name="activity-core-api"
    )
    try:
        await deployment.bind(database, settings.temporal_namespace)
        app = create_app(settings, database, Temporal(settings))
        with listening_socket(settings.api_host, settings.api_port) as listener:
            server = _Server(_config(app))
            log.info("api.listening", host=settings.api_host, port=listener.getsockname()[1])
            await run_until_stopped(_serve(server, listener, app.state.services))
    finally:
        await database.close()


async def _serve(server: uvicorn.Server, listener: socket.socket, services: Services) -> None:
    """Serve until cancelled. What commits them outlives the requests: one that waits for its commit must get its answer.

    Raises what that died of.
    """
    committing = asyncio.create_task(services.run())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.wait([serving, committing], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        log.info("api.draining")
    finally:
        server.should_exit = True
        await serving
        committing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await committing


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # FastAPI's type of an ASGI application is its own
        http=DeadlineProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


@contextlib.contextmanager
def listening_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket. Raises ConfigurationError when the port is taken or the host is not this machine's."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"the API can't listen on {host}:{port} ({error.strerror or error}); "
            "set ACTIVITY_CORE_API_PORT (or --api-port) to a free one, 0 for any"
        ) from error
    with listener:
        listener.setblocking(False)
        yield listener
