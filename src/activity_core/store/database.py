"""The connection to Postgres: one engine per process, passed as a value.

A service opens `begin()` for a transaction (committed when the block ends well) or `read()` for reads, and passes the
connection to the store's functions. Errors that mean "Postgres is not there now" become `UnavailableError`; the outcome
of a transaction that fails so is unknown, and every write of ours may be repeated.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import orjson
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from activity_core.errors import UnavailableError

Connection = AsyncConnection

# SQLSTATE classes and codes that say "not now": connection, resources, operator intervention, lock and serialisation.
_PASSING = ("08", "53", "57", "55P03", "40", "25006")
# Wrong password, no such user or database: for whoever runs us to mend, and until then the same as not there.
_REFUSED = ("28", "3D")


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


class Database:
    """An engine and its pool. `dsn` is a plain `postgresql://` URL, used as it is for LISTEN connections."""

    def __init__(self, dsn: str, *, pool_size: int, application_name: str) -> None:
        self.dsn = dsn.replace("postgresql+asyncpg://", "postgresql://", 1)
        self.application_name = application_name
        self.engine: AsyncEngine = create_async_engine(
            self.dsn.replace("postgresql://", "postgresql+asyncpg://", 1),
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=10,
            # values of a failed statement would end in logs
            hide_parameters=True,
            json_serializer=_dumps,
            json_deserializer=orjson.loads,
            connect_args={
                "timeout": 5,
                "command_timeout": 60,
                "server_settings": {
                    "application_name": application_name,
                    "timezone": "UTC",
                    "statement_timeout": "30000",
                    "lock_timeout": "15000",
                    "idle_in_transaction_session_timeout": "60000",
                },
            },
        )
        self._autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        event.listen(self.engine.sync_engine, "handle_error", _discard_broken)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Connection]:
        """A transaction, committed when the block ends without an exception."""
        try:
            async with self.engine.begin() as connection:
                yield connection
        except (DBAPIError, PoolTimeoutError, OSError, TimeoutError) as error:
            if (unavailable := translated(error)) is error:
                raise  # `from error` would make it its own cause
            raise unavailable from error

    def read(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for reads: each statement for itself, because a transaction would cost two more round trips."""
        return self.session()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A connection where each statement commits by itself: for single writes, and locks that outlive transactions."""
        try:
            async with self._autocommit.connect() as connection:
                yield connection
        except (DBAPIError, PoolTimeoutError, OSError, TimeoutError) as error:
            if (unavailable := translated(error)) is error:
                raise
            raise unavailable from error

    async def listen_connection(self) -> asyncpg.Connection:
        """A connection of its own for LISTEN. The caller keeps a reference and closes it."""
        try:
            return await asyncpg.connect(
                self.dsn, timeout=5, server_settings={"application_name": self.application_name}
            )
        except (OSError, asyncpg.PostgresError, TimeoutError) as error:
            raise UnavailableError("Postgres can't be reached") from error

    async def close(self) -> None:
        await self.engine.dispose()


def _discard_broken(context: Any) -> None:
    # after a failover the server answers, but read-only: such a connection must not go back to the pool
    if getattr(context.original_exception, "sqlstate", None) == "25006":
        context.is_disconnect = True


def sqlstate(error: Exception) -> str:
    """The five characters by which Postgres says what went wrong; empty when it was not Postgres that spoke."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state if isinstance(state, str) else ""


def translated(error: Exception) -> Exception:
    """An UnavailableError when the error means that Postgres is not there now; else the error itself."""
    state = sqlstate(error)
    if state.startswith(_REFUSED):
        return UnavailableError(
            "Postgres refuses the login; check user, password and database in ACTIVITY_CORE_DATABASE_URL"
        )
    passing = state.startswith(_PASSING)
    lost = isinstance(error, (InterfaceError, OperationalError)) and not state
    gone = isinstance(error, DBAPIError) and error.connection_invalidated
    if passing or lost or gone or isinstance(error, (PoolTimeoutError, OSError, TimeoutError)):
        return UnavailableError("Postgres can't be reached or is too busy; the same request may be sent again")
    return error
