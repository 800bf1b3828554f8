"""One row per webhook request, and how many there were."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import bindparam, insert, select, text
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, TEXT

from activity_core.store.database import Connection
from activity_core.store.paging import Cursor, Page, before, page
from activity_core.store.tables import receipts


@dataclass(frozen=True, slots=True)
class NewReceipt:
    """`result`: accepted, duplicate, rejected or handshake. Nothing in it comes from a body that was not verified."""

    id: uuid.UUID
    source_id: uuid.UUID
    result: str
    reason_code: str | None
    reason: str | None
    status: int
    size_bytes: int
    content_type: str | None
    user_agent: str | None
    request_id: str
    conflict: bool = False
    event_uuid: uuid.UUID | None = None
    secret_id: uuid.UUID | None = None
    external_id: str | None = None
    event_type: str | None = None


@dataclass(frozen=True, slots=True)
class ReceiptRecord:
    receipt: NewReceipt
    received_at: datetime


_NAMES = tuple(NewReceipt.__dataclass_fields__)
COLUMNS = [receipts.c[name] for name in (*_NAMES, "received_at")]

_COUNT = text(
    """
    INSERT INTO counters (name, value) SELECT name, value FROM unnest(:names, :counts) AS t(name, value) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value
    """
).bindparams(bindparam("names", type_=ARRAY(TEXT())), bindparam("counts", type_=ARRAY(BIGINT())))


async def write(connection: Connection, batch: Sequence[NewReceipt], counts: Mapping[str, int]) -> None:
    """The receipts, and what is added to the counters."""
    if batch:
        await connection.execute(insert(receipts), [asdict(receipt) for receipt in batch])
    if counts:
        await connection.execute(_COUNT, {"names": list(counts), "counts": list(counts.values())})


async def listed(
    connection: Connection,
    *,
    source_id: uuid.UUID | None = None,
    event_uuid: uuid.UUID | None = None,
    result: str | None = None,
    reason_code: str | None = None,
    received_from: datetime | None = None,
    received_to: datetime | None = None,
    cursor: Cursor | None,
    limit: int,
) -> Page[ReceiptRecord]:
    """Newest first; indexes ix_receipts_source_id_received_at_id, ix_receipts_source_id_result_received_at_id,
    ix_receipts_event_uuid."""
    r = receipts.c
    query = select(*COLUMNS)
    equal = {r.source_id: source_id, r.event_uuid: event_uuid, r.result: result, r.reason_code: reason_code}
    for column, value in equal.items():
        if value is not None:
            query = query.where(column == value)
    if received_from is not None:
        query = query.where(r.received_at >= received_from)
    if received_to is not None:
        query = query.where(r.received_at < received_to)
    query = before(query, r.received_at, r.id, cursor, limit)
    rows = [
        ReceiptRecord(NewReceipt(**dict(zip(_NAMES, row, strict=False))), row.received_at)
        for row in await connection.execute(query)
    ]
    return page(rows, limit, lambda record: Cursor(record.received_at, str(record.receipt.id)))


_KINDS = text("SELECT s.id, k.result FROM sources s CROSS JOIN unnest(:results) AS k(result)").bindparams(
    bindparam("results", type_=ARRAY(TEXT()))
)
_TRIM = text(
    """
    DELETE FROM receipts WHERE id IN (
      SELECT id FROM receipts r WHERE r.source_id = :source_id AND r.result = :result AND (
        r.received_at < clock_timestamp() - make_interval(days => :days) OR (r.received_at, r.id) < (
          SELECT k.received_at, k.id FROM receipts k WHERE k.source_id = :source_id AND k.result = :result
          ORDER BY k.received_at DESC, k.id DESC OFFSET :keep - 1 LIMIT 1))
      ORDER BY r.received_at, r.id LIMIT :limit
    )
    """
)
RESULTS = ("accepted", "duplicate", "rejected", "handshake")


async def kinds(connection: Connection) -> list[tuple[uuid.UUID, str]]:
    """Every (source, result) that receipts are kept for."""
    return [(row[0], row[1]) for row in await connection.execute(_KINDS, {"results": list(RESULTS)})]


async def trim(connection: Connection, source_id: uuid.UUID, result: str, *, keep: int, days: int, limit: int) -> int:
    """Delete up to `limit` of the oldest ones that are beyond what is kept; how many. Index
    ix_receipts_source_id_result_received_at_id."""
    values = {"source_id": source_id, "result": result, "keep": keep, "days": days, "limit": limit}
    return (await connection.execute(_TRIM, values)).rowcount
