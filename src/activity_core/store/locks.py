"""Locks that one process holds across several transactions: advisory, of a session, gone when it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import bindparam, text

from activity_core.store.database import Connection

# The first half of the key: ours among other users of advisory locks in the same database.
_SPACE = 7_201
_TRY = text("SELECT pg_try_advisory_lock(:space, hashtext(:name))").bindparams(bindparam("space", _SPACE))
_UNLOCK = text("SELECT pg_advisory_unlock(:space, hashtext(:name))").bindparams(bindparam("space", _SPACE))

_XACT = text("SELECT pg_advisory_xact_lock(:space, hashtext(:name))").bindparams(bindparam("space", _SPACE))


async def one_at_a_time(connection: Connection, name: str) -> None:
    """Wait until no other transaction holds this name, and hold it to the end of this one. Waits up to a minute."""
    await connection.execute(text("SET LOCAL lock_timeout = '60s'"))
    await connection.execute(text("SET LOCAL statement_timeout = '90s'"))
    await connection.execute(_XACT, {"name": name})


_XACT_SHARED = text("SELECT pg_advisory_xact_lock_shared(:space, hashtext(:name))").bindparams(
    bindparam("space", _SPACE)
)


async def side_by_side(connection: Connection, name: str) -> None:
    """Wait for the transaction that is `one_at_a_time` under this name, and keep the next out to the end of this one."""
    await connection.execute(_XACT_SHARED, {"name": name})


@asynccontextmanager
async def try_lock(connection: Connection, name: str) -> AsyncIterator[bool]:
    """Whether this session got the lock, which it holds to the end of the block. `connection`: a `Database.session()`."""
    held = bool(await connection.scalar(_TRY, {"name": name}))
    try:
        yield held
    finally:
        # a session that Postgres dropped has lost its locks; to ask it for anything would hide what happened
        if held and not connection.invalidated:
            await connection.execute(_UNLOCK, {"name": name})
