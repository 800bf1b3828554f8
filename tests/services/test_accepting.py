"""Whose turn it is at the front door: a flood of one source neither delays nor refuses the events of another (I9)."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from activity_core.domain.envelopes import Envelope
from activity_core.errors import OverloadedError, UnavailableError
from activity_core.services import accept
from activity_core.services.accept import Accepted, Acceptor
from activity_core.services.event_types import EventSchemas
from tests.services.conftest import Bench
from tests.stack import eventually

Answer = Accepted | BaseException


def envelope(source: str) -> Envelope:
    return Envelope(
        external_id=uuid4().hex, source=source, type="t", subject=None, time=None, data={"n": 1}, cloudevents=False
    )


def slug(name: str) -> str:
    return f"{name}-{uuid4().hex[:8]}"


def an_acceptor(bench: Bench) -> Acceptor:
    return Acceptor(bench.database, EventSchemas(bench.database), max_data_bytes=1_000)


@contextlib.asynccontextmanager
async def running(acceptor: Acceptor) -> AsyncIterator[None]:
    task = asyncio.create_task(acceptor.run())
    try:
        yield
    finally:
        task.cancel()


async def answer_of(acceptor: Acceptor, source: str) -> Answer:
    (answer,) = await asyncio.gather(acceptor.accept(envelope(source)), return_exceptions=True)
    return answer


def flood(acceptor: Acceptor, source: str, count: int) -> list[asyncio.Task[Answer]]:
    return [asyncio.create_task(answer_of(acceptor, source)) for _ in range(count)]


async def test_i9_the_event_of_a_quiet_source_goes_with_the_next_batch_whatever_waits_before_it(bench: Bench) -> None:
    acceptor, noisy, share = an_acceptor(bench), slug("noisy"), accept.MAX_QUEUED_PER_SOURCE
    before = flood(acceptor, noisy, share)
    await eventually(lambda: acceptor._queues.size == share)
    [late] = flood(acceptor, slug("quiet"), 1)
    await eventually(lambda: acceptor._queues.size == share + 1)
    async with running(acceptor):
        assert isinstance(await asyncio.wait_for(late, 30), Accepted)
        assert sum(task.done() for task in before) <= 2 * accept.BATCH
        answers = await asyncio.wait_for(asyncio.gather(*before), 60)
    assert all(isinstance(answer, Accepted) for answer in answers)
    assert (await bench.sql("SELECT count(*) FROM events WHERE source = $1", noisy))[0][0] == share


async def test_i9_beyond_its_share_a_source_is_refused_and_another_is_not(bench: Bench) -> None:
    acceptor, share, more = an_acceptor(bench), accept.MAX_QUEUED_PER_SOURCE, 100
    noisy = flood(acceptor, slug("noisy"), share + more)
    await eventually(lambda: sum(task.done() for task in noisy) == more)
    assert {type(task.result()) for task in noisy if task.done()} == {OverloadedError}
    others = flood(acceptor, slug("quiet"), 50)
    async with running(acceptor):
        answers = await asyncio.wait_for(asyncio.gather(*others), 30)
        assert all(isinstance(answer, Accepted) for answer in answers)
        await asyncio.wait_for(asyncio.gather(*noisy), 60)


async def test_what_all_sources_may_have_waiting_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accept, "MAX_QUEUED", 100)
    acceptor = an_acceptor(bench)
    tasks = [task for number in range(130) for task in flood(acceptor, slug(f"s{number}"), 1)]
    await eventually(lambda: sum(task.done() for task in tasks) == 30)
    assert {type(task.result()) for task in tasks if task.done()} == {UnavailableError}
    async with running(acceptor):
        answers = await asyncio.wait_for(asyncio.gather(*tasks), 30)
    assert sum(isinstance(answer, Accepted) for answer in answers) == 100


async def test_i9_beside_a_flood_a_quiet_source_is_answered_as_fast_as_a_batch_takes(bench: Bench) -> None:
    """200 senders that send again as soon as they are answered, and one that sends now and then."""
    acceptor, noisy, quiet = an_acceptor(bench), slug("noisy"), slug("quiet")
    over = asyncio.Event()
    answered = 0

    async def sender() -> None:
        nonlocal answered
        while not over.is_set():
            await acceptor.accept(envelope(noisy))
            answered += 1

    async with running(acceptor):
        senders = [asyncio.create_task(sender()) for _ in range(200)]
        await eventually(lambda: answered > 200)
        took = []
        for _ in range(30):
            began = time.monotonic()
            assert isinstance(await answer_of(acceptor, quiet), Accepted)
            took.append(time.monotonic() - began)
        meanwhile = answered
        over.set()
        await asyncio.gather(*senders)
    assert meanwhile > 600, "there was a flood"
    assert sorted(took)[15] < 1.0, took
