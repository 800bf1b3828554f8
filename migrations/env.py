"""Alembic's environment: async engine, one transaction a migration, and a lock timeout so that a migration that would
have to wait for a long transaction fails fast instead of stopping everybody behind it."""

import asyncio
import time

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from activity_core.settings import load_settings
from activity_core.store.tables import metadata

LOCK_TIMEOUT = "3s"
TURN_SECONDS = 60.0


def _wait_for_turn(connection: Connection) -> None:
    """Two `migrate` at once wait for each other here instead of failing half way, but not for ever. Asked again and again
    and not waited for in Postgres: an index that is built concurrently would wait for whoever waits so."""
    until = time.monotonic() + TURN_SECONDS
    while not connection.execute(text("SELECT pg_try_advisory_lock(7200)")).scalar():
        connection.commit()
        if time.monotonic() > until:
            raise TimeoutError("another migration has been under way for a minute")
        time.sleep(0.2)
    connection.commit()


def run(connection: Connection) -> None:
    _wait_for_turn(connection)
    connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.commit()
    context.configure(
        connection=connection, target_metadata=metadata, transaction_per_migration=True, compare_server_default=True
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_async() -> None:
    url = context.config.attributes.get("database_url") or load_settings().sqlalchemy_url
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


if context.is_offline_mode():
    raise SystemExit("offline SQL is not supported: run 'activity-core migrate' against the database")
asyncio.run(run_async())
