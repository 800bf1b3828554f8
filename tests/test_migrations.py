"""Migrations: up, down, up again; alone, together, and in the way of somebody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from activity_core.dev.ports import LOOPBACK, free_port
from activity_core.errors import ConfigurationError, UnavailableError
from activity_core.settings import Settings
from activity_core.store import deployment, migrate
from activity_core.store.database import Database
from tests.stack import Processes, Servers, settings_for

DESCRIBE = """
SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' '
       || coalesce(column_default, '') FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'constraint ' || conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
"""


def settings_of(url: str) -> Settings:
    return Settings(database_url=url, temporal_address="127.0.0.1:9")


async def described(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    try:
        return {row[0] for row in await connection.fetch(DESCRIBE)}
    finally:
        await connection.close()


@asynccontextmanager
async def database(url: str) -> AsyncIterator[Database]:
    made = Database(url, pool_size=1, application_name="test")
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def locked(url: str, table: str) -> AsyncIterator[None]:
    """Somebody else's session that holds the table."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


async def test_down_to_nothing_and_up_again_gives_the_same_schema(servers: Servers) -> None:
    url = await servers.migrated_database()
    settings, before = settings_of(url), await described(url)
    await asyncio.to_thread(migrate.downgrade, settings, "base")
    left = await described(url)
    assert left and all("alembic_version" in line for line in left)
    async with database(url) as made:
        assert not await migrate.is_at_head(made)
    await asyncio.to_thread(migrate.migrate, settings)
    assert await described(url) == before
    async with database(url) as made:
        assert await migrate.is_at_head(made)


async def test_tables_and_migrations_say_the_same(servers: Servers) -> None:
    url = await servers.migrated_database()
    settings = settings_of(url)
    await asyncio.to_thread(migrate.check, settings)
    connection = await asyncpg.connect(url)
    await connection.execute("DROP INDEX ix_events_unrouted")
    await connection.close()
    with pytest.raises(Exception, match="ix_events_unrouted"):
        await asyncio.to_thread(migrate.check, settings)


async def test_two_migrations_at_once_wait_for_each_other(servers: Servers, empty_database_url: str) -> None:
    processes = Processes(settings_for(servers, empty_database_url))
    both = await asyncio.gather(processes.run("migrate"), processes.run("migrate"))
    assert len([process for process in both if "Running upgrade" in process.text]) == 1
    assert await described(empty_database_url) == await described(await servers.migrated_database())


async def test_a_migration_that_would_wait_for_a_lock_gives_up_soon_and_changes_nothing(servers: Servers) -> None:
    url = await servers.migrated_database()
    before = await described(url)
    async with locked(url, "occurrences"), asyncio.timeout(10):
        with pytest.raises(UnavailableError, match="holds a lock"):
            await asyncio.to_thread(migrate.downgrade, settings_of(url), "base")
    assert await described(url) == before


async def test_the_command_says_that_a_lock_was_in_its_way(servers: Servers) -> None:
    url = await servers.migrated_database()
    async with locked(url, "alembic_version"), asyncio.timeout(30):
        process = await Processes(settings_for(servers, url)).run("migrate", code=1)
    assert "holds a lock" in process.lines[-1]
    assert "Traceback" not in process.text


async def test_the_command_says_that_postgres_is_not_there(servers: Servers) -> None:
    url = f"postgresql://me:hunter2@{LOOPBACK}:{free_port()}/none"
    process = await Processes(settings_for(servers, url)).run("migrate", code=1)
    assert "Postgres can't be reached" in process.lines[-1]
    assert "Traceback" not in process.text and "hunter2" not in process.text


@pytest.mark.parametrize("wrong", ["password", "database"])
async def test_i12_a_refused_login_is_told_without_the_password(servers: Servers, wrong: str) -> None:
    url = servers.postgres.url("postgres")
    address, _, name = url.rpartition("/")
    given = f"{address}/not-there" if wrong == "database" else url.replace("activity_core:", "activity_core:hunter2", 1)
    assert name == "postgres"
    for command in ("migrate", "router"):
        process = await Processes(settings_for(servers, given)).run(command, code=1)
        assert "Postgres refuses the login" in process.lines[-1]
        assert "ACTIVITY_CORE_DATABASE_URL" in process.lines[-1]
        assert "Traceback" not in process.text and "hunter2" not in process.text


async def test_a_database_without_schema_is_refused_with_what_to_do(servers: Servers, empty_database_url: str) -> None:
    for name in ("api", "router", "worker"):
        process = await Processes(settings_for(servers, empty_database_url, API_PORT=0)).run(name, code=2)
        assert "activity-core migrate" in process.lines[-1]


async def test_r7_a_database_serves_one_namespace_and_says_so(servers: Servers, database_url: str) -> None:
    async with database(database_url) as made:
        bound = await deployment.bind(made, "default")
        assert await deployment.bind(made, "default") == bound
        with pytest.raises(ConfigurationError, match="serves the Temporal namespace 'default', not 'other'"):
            await deployment.bind(made, "other")
    settings = settings_for(servers, database_url, TEMPORAL_NAMESPACE="other", API_PORT=0)
    ended = await asyncio.gather(*(Processes(settings).run(n, code=2) for n in ("api", "router", "worker")))
    for process in ended:
        assert "serves the Temporal namespace 'default', not 'other'" in process.lines[-1]
        assert "ACTIVITY_CORE_TEMPORAL_NAMESPACE" in process.lines[-1]


async def test_r7_two_processes_that_bind_at_once_agree(servers: Servers) -> None:
    url = await servers.migrated_database()

    async def bind(namespace: str) -> str:
        async with database(url) as made:
            try:
                return (await deployment.bind(made, namespace)).temporal_namespace
            except ConfigurationError:
                return "refused"

    answers = await asyncio.gather(*(bind(namespace) for namespace in ("a", "b") * 5))
    (winner,) = set(answers) - {"refused"}
    assert answers.count(winner) == 5
