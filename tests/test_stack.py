"""The test bench itself: fresh databases, and a wait that fails when it should."""

import asyncpg
import httpx
import pytest
from temporalio.client import Client

from tests.stack import RunningService, Servers, eventually


async def test_empty_databases_are_apart(servers: Servers) -> None:
    first, second = await servers.empty_database(), await servers.empty_database()
    connection = await asyncpg.connect(first)
    await connection.execute("CREATE TABLE mark (id int)")
    await connection.close()

    connection = await asyncpg.connect(second)
    assert await connection.fetchval("SELECT to_regclass('mark')") is None
    await connection.close()


async def test_database_keeps_text_and_time_the_same_on_every_machine(empty_database_url: str) -> None:
    connection = await asyncpg.connect(empty_database_url)
    shown = await connection.fetchrow(
        "SELECT current_setting('TimeZone') AS zone, current_setting('server_encoding') AS encoding, "
        "current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit, "
        "(SELECT datlocale FROM pg_database WHERE datname = current_database()) AS locale, 'B' < 'a' AS by_code_point"
    )
    await connection.close()
    assert dict(shown) == {
        "zone": "UTC",
        "encoding": "UTF8",
        "fsync": "on",
        "commit": "on",
        "locale": "C.UTF-8",
        "by_code_point": True,
    }


async def test_temporal_answers(temporal_client: Client) -> None:
    assert await temporal_client.service_client.check_health()


async def test_eventually_fails_when_the_condition_never_holds() -> None:
    with pytest.raises(AssertionError, match="the moon"):
        await eventually(lambda: False, within=0.05, what="the moon is cheese")


async def test_running_service_is_ready_on_the_modules_database(
    client: httpx.AsyncClient, running_service: RunningService, database_url: str
) -> None:
    assert (await client.get("/readyz")).status_code == 200
    assert running_service.database_url == database_url
    assert not running_service.router.child.ended
    assert not running_service.worker.child.ended


async def test_processes_can_be_killed_and_ended(running_service: RunningService) -> None:
    processes = running_service.processes
    killed, ended = await processes.start("router"), await processes.start("router")
    await eventually(lambda: "router.ready" in killed.text and "router.ready" in ended.text)
    assert await killed.sigkill() == -9
    assert await ended.sigterm() == 0
