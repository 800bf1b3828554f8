"""The application in this process, on a real Postgres at the newest revision; no worker, no router, no Temporal."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import httpx
import pytest
from fastapi import FastAPI

from activity_core.api.app import create_app
from activity_core.services import egress
from activity_core.services.definitions import Definitions
from activity_core.services.egress import Fetch
from activity_core.services.routing import Routing
from activity_core.services.settle import Settler
from activity_core.settings import Settings
from activity_core.store.database import Database
from activity_core.store.migrate import migrate
from tests.stack import Servers

KEY = base64.b64encode(bytes(32)).decode()


@dataclass
class Api:
    """`http` talks to the application; the services do what router and worker would do."""

    http: httpx.AsyncClient
    app: FastAPI
    database: Database
    definitions: Definitions
    routing: Routing
    settler: Settler

    async def route(self) -> None:
        """Route everything that was accepted."""
        while await self.routing.route_batch():
            pass

    async def sql(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.database.dsn)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def application(settings: Settings, fetch: Fetch = egress.fetch) -> AsyncIterator[Api]:
    database = Database(settings.asyncpg_url, pool_size=5, application_name="test-api")
    app = create_app(settings, database, fetch=fetch)
    accepting = asyncio.create_task(app.state.services.run())
    transport = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as http:
            definitions = Definitions()
            yield Api(http, app, database, definitions, Routing(database, definitions), Settler(database, definitions))
    finally:
        accepting.cancel()
        await database.close()


@pytest.fixture(scope="module")
async def api_settings(servers: Servers) -> Settings:
    settings = Settings(
        database_url=await servers.empty_database(),
        temporal_address=servers.temporal.address,
        encryption_keys=KEY,
    )
    await asyncio.to_thread(migrate, settings)
    return settings


@pytest.fixture(scope="module")
async def api(api_settings: Settings) -> AsyncIterator[Api]:
    async with application(api_settings) as made:
        yield made


@pytest.fixture(scope="module")
def http(api: Api) -> httpx.AsyncClient:
    return api.http
