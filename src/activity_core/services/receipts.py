"""Receipts of webhook requests: written in groups, before the answer goes out, and never in its way."""

import asyncio
from collections import Counter, deque

import structlog

from activity_core.errors import UnavailableError
from activity_core.store import receipts
from activity_core.store.database import Database
from activity_core.store.receipts import NewReceipt

BATCH = 500
# A flood of forged requests must cost neither memory nor disk without end: beyond this they are counted only.
MAX_QUEUED = 2_000
KEPT_PER_RESULT = 10_000
TRIM_BATCH = 5_000
COUNTER = "webhook_requests"

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class Receipts:
    """One per API process; `run` must be running."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: deque[tuple[NewReceipt, asyncio.Future[None]]] = deque()
        self._counts: Counter[str] = Counter()
        self._arrived = asyncio.Event()

    async def keep(self, source: str, receipt: NewReceipt) -> None:
        """Write the receipt, or at least count the request. Never raises: what is answered does not hang on it."""
        self._counts[f"{COUNTER}:{source}|{receipt.result}|{receipt.reason_code or ''}"] += 1
        self._arrived.set()
        if len(self._queue) >= MAX_QUEUED and receipt.result == "rejected":
            return
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((receipt, written))
        await written

    async def run(self) -> None:
        """Write what comes, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                await self._write([self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))])
            await self._write([])

    async def _write(self, batch: list[tuple[NewReceipt, asyncio.Future[None]]]) -> None:
        kept = [receipt for receipt, _ in batch]
        try:
            await self._commit(kept)
        except UnavailableError:
            log.warning("receipts.lost", count=len(batch))
        except Exception:
            log.exception("receipts.batch_failed", count=len(batch))
            await self._one_by_one(kept)
        for _, written in batch:
            if not written.done():
                written.set_result(None)

    async def _commit(self, batch: list[NewReceipt]) -> None:
        """The receipts, and what was counted since the last time; on failure the next commit adds it."""
        counts, self._counts = self._counts, Counter()
        if not batch and not counts:
            return
        try:
            async with self._database.begin() as connection:
                await receipts.write(connection, batch, counts)
        except BaseException:
            self._counts += counts
            raise

    async def _one_by_one(self, batch: list[NewReceipt]) -> None:
        """After a batch failed: only the receipt that broke it is lost, and not the count of its request."""
        for each in [[], *([receipt] for receipt in batch)]:
            try:
                await self._commit(each)
            except UnavailableError:
                log.warning("receipts.lost", count=len(each))
            except Exception:
                log.exception("receipts.lost", count=len(each))


class ReceiptJanitor:
    """Deletes what is beyond the newest ones of each result of a source, or too old; in every worker, harmlessly."""

    def __init__(self, database: Database, *, days: int) -> None:
        self._database = database
        self._days = days

    async def trim(self) -> int:
        """How many were deleted."""
        deleted = 0
        async with self._database.session() as connection:
            for source_id, result in await receipts.kinds(connection):
                while True:
                    gone = await receipts.trim(
                        connection, source_id, result, keep=KEPT_PER_RESULT, days=self._days, limit=TRIM_BATCH
                    )
                    deleted += gone
                    if gone < TRIM_BATCH:
                        break
        return deleted
