"""Receipts: written in groups, bounded in every way, and every request counted whatever becomes of its receipt."""

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from activity_core.services import receipts
from activity_core.services.receipts import ReceiptJanitor, Receipts
from activity_core.store.receipts import NewReceipt
from tests.services.conftest import Bench
from tests.stack import eventually


async def source_of(bench: Bench) -> tuple[str, uuid.UUID]:
    """(slug, id) of a new source."""
    slug, source_id = f"s-{uuid.uuid4().hex[:8]}", uuid.uuid4()
    await bench.sql(
        "INSERT INTO sources (id, slug, revision, spec, effective) VALUES ($1, $2, 1, '{}', '{}')", source_id, slug
    )
    return slug, source_id


def receipt(source_id: uuid.UUID, result: str = "rejected", reason: str | None = None) -> NewReceipt:
    code = "bad_signature" if result == "rejected" else None
    made = NewReceipt(uuid.uuid4(), source_id, result, code, code, 401, 2, None, None, "r-1")
    return made if reason is None else replace(made, reason=reason)


async def kept(bench: Bench, source_id: uuid.UUID) -> int:
    return int((await bench.sql("SELECT count(*) FROM receipts WHERE source_id = $1", source_id))[0][0])


async def counted(bench: Bench, slug: str) -> Counter[str]:
    """By result."""
    found: Counter[str] = Counter()
    rows = await bench.sql("SELECT name, value FROM counters WHERE name LIKE $1", f"webhook_requests:{slug}|%")
    for name, value in rows:
        found[name.split("|")[1]] += value
    return found


@contextlib.asynccontextmanager
async def running(kept_by: Receipts) -> AsyncIterator[None]:
    task = asyncio.create_task(kept_by.run())
    try:
        yield
    finally:
        task.cancel()


def waiting(kept_by: Receipts, slug: str, batch: Sequence[NewReceipt]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(kept_by.keep(slug, each)) for each in batch]


async def test_i14_one_receipt_that_can_not_be_written_takes_no_other_with_it(bench: Bench) -> None:
    slug, source_id = await source_of(bench)
    kept_by = Receipts(bench.database)
    batch = [receipt(source_id) for _ in range(20)]
    batch[7] = receipt(source_id, reason="Postgres keeps no \x00")
    tasks = waiting(kept_by, slug, batch)
    async with running(kept_by):
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
    assert (await kept(bench, source_id), await counted(bench, slug)) == (19, Counter(rejected=20))


async def test_a_flood_of_refusals_costs_bounded_memory_and_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what may wait a refusal is answered at once; what was accepted waits for its receipt all the same."""
    monkeypatch.setattr(receipts, "MAX_QUEUED", 50)
    slug, source_id = await source_of(bench)
    kept_by = Receipts(bench.database)
    refusals = waiting(kept_by, slug, [receipt(source_id) for _ in range(300)])
    accepted = waiting(kept_by, slug, [receipt(source_id, "accepted")])
    await eventually(lambda: sum(task.done() for task in refusals) == 250)
    assert len(kept_by._queue) == 51 and not accepted[0].done()
    async with running(kept_by):
        await asyncio.wait_for(asyncio.gather(*refusals, *accepted), 30)
    assert await kept(bench, source_id) == 51
    assert await counted(bench, slug) == Counter(rejected=300, accepted=1)


async def test_a_receipt_of_a_source_that_is_gone_holds_up_no_answer(bench: Bench) -> None:
    kept_by, slug = Receipts(bench.database), f"gone-{uuid.uuid4().hex[:8]}"
    async with running(kept_by):
        await asyncio.wait_for(kept_by.keep(slug, receipt(uuid.uuid4())), 30)
    assert await counted(bench, slug) == Counter(rejected=1)


async def test_the_newest_of_each_result_of_a_source_are_kept_and_none_that_is_too_old(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "KEPT_PER_RESULT", 10)
    monkeypatch.setattr(receipts, "TRIM_BATCH", 4)
    slug, source_id = await source_of(bench)
    _, other_id = await source_of(bench)
    kept_by = Receipts(bench.database)
    async with running(kept_by):
        for result, count, of in (("rejected", 23, source_id), ("accepted", 10, source_id), ("rejected", 9, other_id)):
            await asyncio.gather(*waiting(kept_by, slug, [receipt(of, result) for _ in range(count)]))
    # each a second older than the next
    await bench.sql(
        "UPDATE receipts r SET received_at = received_at - make_interval(secs => n.nth) FROM "
        "(SELECT id, row_number() OVER (PARTITION BY source_id, result ORDER BY id) AS nth FROM receipts) n "
        "WHERE r.id = n.id AND source_id = ANY($1)",
        [source_id, other_id],
    )
    newest = await bench.sql(
        "SELECT id FROM receipts WHERE source_id = $1 AND result = 'rejected' ORDER BY received_at DESC LIMIT 10",
        source_id,
    )
    janitor = ReceiptJanitor(bench.database, days=30)
    everything = (await bench.sql("SELECT count(*) FROM receipts"))[0][0]
    gone = await janitor.trim()
    assert (await bench.sql("SELECT count(*) FROM receipts"))[0][0] == everything - gone
    left = await bench.sql("SELECT id FROM receipts WHERE source_id = $1 AND result = 'rejected'", source_id)
    assert {row[0] for row in left} == {row[0] for row in newest}
    assert (await kept(bench, source_id), await kept(bench, other_id)) == (20, 9)

    await bench.sql("UPDATE receipts SET received_at = now() - interval '31 days' WHERE source_id = $1", other_id)
    assert (await janitor.trim(), await kept(bench, other_id), await kept(bench, source_id)) == (9, 0, 20)
