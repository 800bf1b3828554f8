"""What a command with an Idempotency-Key was answered. Written in the command's own transaction."""

import hashlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert

from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.errors import IdempotencyKeyReusedError
from activity_core.store.database import Connection
from activity_core.store.tables import idempotency_keys


@dataclass(frozen=True, slots=True)
class Answered:
    """The command was carried out before; `response` is what it was answered."""

    response: Any


async def claim(connection: Connection, scope: str, key: str, request: JsonValue) -> Answered | None:
    """Take the key for this transaction, or return what the earlier request was answered.

    A concurrent request with the same key waits here until the first one ends. Raises IdempotencyKeyReusedError when
    the key came with another request.
    """
    request_hash = hashlib.sha256(canonical_json(request)).digest()
    statement = insert(idempotency_keys).values(scope=scope, key=key, request_hash=request_hash)
    if (await connection.execute(statement.on_conflict_do_nothing())).rowcount == 1:
        return None
    k = idempotency_keys.c
    row = (await connection.execute(select(k.request_hash, k.response).where(k.scope == scope, k.key == key))).one()
    if row.request_hash != request_hash:
        raise IdempotencyKeyReusedError("this Idempotency-Key was used for another request; choose a new one")
    return Answered(row.response)


async def keep_response(connection: Connection, scope: str, key: str, response: Any) -> None:
    k = idempotency_keys.c
    await connection.execute(update(idempotency_keys).where(k.scope == scope, k.key == key).values(response=response))
