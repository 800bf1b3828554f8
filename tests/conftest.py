"""Fixtures: the servers are one pair a session; a database, a task queue and a running service are one a module."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from hypothesis import settings
from temporalio.client import Client

from tests.stack import RunningService, Servers, settings_for, start_service, stop_service, temporary_home

# CI draws the same examples every time: what it refuses must be the change's doing. Elsewhere they differ by the run.
settings.register_profile("ci", derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
async def servers() -> AsyncIterator[Servers]:
    """A real Postgres and a real Temporal dev server."""
    with temporary_home() as home:
        servers = Servers(Path(home))
        try:
            await servers.start()
            yield servers
        finally:
            await servers.stop()


@pytest.fixture(scope="module")
async def own_servers() -> AsyncIterator[Servers]:
    """A pair that may be stopped without disturbing others."""
    with temporary_home() as home:
        servers = Servers(Path(home))
        try:
            await servers.start()
            yield servers
        finally:
            await servers.stop()


@pytest.fixture(scope="module")
async def database_url(servers: Servers) -> str:
    """`postgresql://…` of a fresh database at the newest revision."""
    return await servers.migrated_database()


@pytest.fixture
async def empty_database_url(servers: Servers) -> str:
    """`postgresql://…` of a fresh database without any table."""
    return await servers.empty_database()


@pytest.fixture(scope="module")
def service_settings(servers: Servers, database_url: str) -> dict[str, str]:
    """Settings (names without prefix) for processes of ours: the module's database and task queue."""
    return settings_for(servers, database_url)


@pytest.fixture(scope="module")
def task_queue(service_settings: dict[str, str]) -> str:
    return service_settings["TASK_QUEUE"]


@pytest.fixture(scope="session")
async def temporal_client(servers: Servers) -> Client:
    return await Client.connect(servers.temporal.address)


@pytest.fixture(scope="module")
async def running_service(service_settings: dict[str, str]) -> AsyncIterator[RunningService]:
    """API, router and worker as real processes, up against the module's database."""
    service = await start_service(service_settings)
    try:
        yield service
    finally:
        await stop_service(service)


@pytest.fixture(scope="module")
def client(running_service: RunningService) -> httpx.AsyncClient:
    """An HTTP client of the running service."""
    return running_service.client
