"""Alembic's environment: async engine, one transaction a migration, and a lock timeout so that a migration that would
have to wait for a long transaction fails fast instead of stopping everybody behind it."""

import asyncio

from alembic import context
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from activity_core.settings import load_settings
from activity_core.store.tables import metadata

LOCK_TIMEOUT = "3s"


def run(connection: Connection) -> None:
    # two `migrate` at once wait for each other here instead of failing half way, but not for ever
    connection.execute(text("SET lock_timeout = '60s'"))
    connection.execute(text("SELECT pg_advisory_lock(7200)"))
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
