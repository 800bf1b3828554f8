"""Deliveries: one key and one body whatever happens, an id for each attempt, and states that only go forwards."""

import asyncio
import random
import uuid
from collections import Counter

import pytest

from activity_core.domain import ids
from activity_core.services.deliveries import Attempt, RefusedDeliveryError, RetryDeliveryError
from activity_core.store import runs, tasks
from tests.checker import broken, shared_attempts, unlike_repeats
from tests.consumer import Answer, Consumer, consumer
from tests.services.conftest import Bench


def attempt(number: int = 1) -> Attempt:
    return Attempt(uuid.uuid4(), number, "test")


async def one_task(bench: Bench, name: str, to: Consumer | str, count: int = 1) -> tuple[uuid.UUID, list[str]]:
    """An activity with a run whose `count` tasks are planned and not spawned: (its id, their ids)."""
    slug = to if isinstance(to, str) else f"c-{uuid.uuid4().hex[:8]}"
    if not isinstance(to, str):
        await bench.consumers.create({"slug": slug, "type": "http", "url": to.url})
    planned = [{"task_type": "note", "consumer": slug, "params": {"n": n}} for n in range(count)]
    activity = await bench.create(trigger={"type": "event", "event_types": [name]}, tasks=planned)
    await bench.occur(name, name)
    run_id = (await bench.gate(activity, name, "x")).run_id
    async with bench.database.read() as connection:
        run = await runs.progress(connection, run_id)
    assert run is not None
    await bench.parts.runs._plan(run)
    return activity, [ids.task_id(run_id, "note", n) for n in range(count)]


async def attempts_of(bench: Bench, task_id: str) -> list[tuple[str | None, bool]]:
    async with bench.database.read() as connection:
        return [(one.outcome, one.late) for one in await tasks.attempts(connection, task_id)]


async def open_tasks(bench: Bench, activity: uuid.UUID) -> int:
    return int((await bench.sql("SELECT open_tasks FROM activity_runs WHERE activity_id = $1", activity))[0][0])


async def test_i6_what_is_sent_again_is_the_same_though_everything_else_changed(bench: Bench) -> None:
    async with consumer(lambda request, before: Answer(500)) as first, consumer() as second:
        activity, (task_id,) = await one_task(bench, "deliver.same", first)
        with pytest.raises(RetryDeliveryError):
            await bench.parts.deliveries.deliver_http(task_id, attempt(1))
        (task,) = await bench.sql("SELECT consumer FROM task_instances WHERE id = $1", task_id)
        await bench.consumers.put(task[0], {"slug": task[0], "type": "http", "url": second.url}, if_match=None)
        await bench.sql("UPDATE task_instances SET params = '{\"n\": 7}' WHERE id = $1", task_id)
        await bench.parts.deliveries.deliver_http(task_id, attempt(2))
        both = Consumer(lambda request, before: Answer())
        both.requests = [*first.requests, *second.requests]
        assert len(both.requests) == 2 and len(both.by_key()) == 1
        assert unlike_repeats(both) == [] and shared_attempts(both) == []
    assert await attempts_of(bench, task_id) == [("failed", False), ("delivered", False)]
    assert await bench.states(activity) == ["completed"]
    assert await open_tasks(bench, activity) == 0


async def test_r38_r40_the_key_is_the_execution_id_and_bodies_have_no_attempt_in_them(bench: Bench) -> None:
    async with consumer() as target:
        _, (task_id,) = await one_task(bench, "deliver.key", target)
        mine = attempt()
        await bench.parts.deliveries.deliver_http(task_id, mine)
        (request,) = target.requests
    assert request.key == str(ids.activity_execution_id(task_id, "deliver"))
    assert request.headers["activity-core-attempt-id"] == str(mine.attempt_id)
    assert request.headers["activity-core-task-id"] == task_id
    assert str(mine.attempt_id) not in request.body.decode()
    assert set(request.json) == {"type", "timestamp", "data", "task"}


async def test_r41_an_answer_that_comes_after_another_attempt_won_is_late_and_changes_nothing(bench: Bench) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async with consumer(lambda request, before: Answer(body=b'{"reference": "%d"}' % before)) as target:
        activity, (task_id,) = await one_task(bench, "deliver.late", target)
        call = bench.parts.http.call

        async def slow(*arguments: object, **more: object) -> object:
            found = await call(*arguments, **more)  # type: ignore[arg-type]  # passed on as it came
            asked.set()
            await answer.wait()
            return found

        bench.parts.http.call = slow  # type: ignore[method-assign,assignment]  # the network's edge: an answer under way
        try:
            first = asyncio.create_task(bench.parts.deliveries.deliver_http(task_id, attempt(1)))
            await asked.wait()
        finally:
            bench.parts.http.call = call  # type: ignore[method-assign]
        await bench.parts.deliveries.deliver_http(task_id, attempt(2))
        before = await bench.sql("SELECT * FROM task_instances WHERE id = $1", task_id)
        answer.set()
        await first
    assert await attempts_of(bench, task_id) == [("delivered", True), ("delivered", False)]
    assert await bench.sql("SELECT * FROM task_instances WHERE id = $1", task_id) == before
    ((reference, error),) = await bench.sql(
        "SELECT s.external_reference, (SELECT error FROM ops_attempts WHERE late AND activity_execution_id = "
        "d.activity_execution_id) FROM task_spawn_log s JOIN ops_runs d USING (task_id) WHERE task_id = $1",
        task_id,
    )
    assert reference == "1" and "the effect may have happened" in error
    assert await open_tasks(bench, activity) == 0


async def test_r30_a_task_that_has_ended_is_not_sent_again(bench: Bench) -> None:
    async with consumer() as target:
        _, (task_id,) = await one_task(bench, "deliver.ended", target)
        await bench.parts.deliveries.deliver_http(task_id, attempt(1))
        await bench.parts.deliveries.deliver_http(task_id, attempt(2))
        assert len(target.requests) == 1
        _, (failed,) = await one_task(bench, "deliver.closed", target)
        await bench.parts.deliveries.close(failed, "failed", "by the test")
        await bench.parts.deliveries.deliver_http(failed, attempt(1))
        assert len(target.requests) == 1


async def test_a_delivery_to_a_consumer_that_is_gone_is_refused(bench: Bench) -> None:
    async with consumer() as target:
        _, (task_id,) = await one_task(bench, "deliver.gone", target)
        await bench.sql("UPDATE consumers SET deleted_at = now() WHERE effective ->> 'url' = $1", target.url)
        with pytest.raises(RefusedDeliveryError, match="does not exist any more"):
            await bench.parts.deliveries.deliver_http(task_id, attempt())
        assert target.requests == []
    assert await attempts_of(bench, task_id) == []  # nothing was tried


@pytest.mark.parametrize(
    ("answer", "error", "outcome"),
    [
        (Answer(400), RefusedDeliveryError, "refused"),
        (Answer(302, headers={"Location": "http://127.0.0.1:9/"}), RefusedDeliveryError, "refused"),
        (Answer(410), RefusedDeliveryError, "refused"),
        (Answer(408), RetryDeliveryError, "failed"),
        (Answer(503), RetryDeliveryError, "failed"),
        (Answer(drop=True), RetryDeliveryError, "unknown"),
    ],
)
async def test_what_an_answer_means(bench: Bench, answer: Answer, error: type[Exception], outcome: str) -> None:
    async with consumer(lambda request, before: answer) as target:
        name = f"deliver.answer-{uuid.uuid4().hex[:6]}"
        activity, (task_id,) = await one_task(bench, name, target)
        with pytest.raises(error):
            await bench.parts.deliveries.deliver_http(task_id, attempt())
    assert await attempts_of(bench, task_id) == [(outcome, False)]
    assert await bench.states(activity) == ["delivering"]


async def test_a_consumer_that_is_not_there_is_known_not_to_have_got_it(bench: Bench) -> None:
    async with consumer() as target:
        pass
    _, (task_id,) = await one_task(bench, "deliver.nobody", target)
    with pytest.raises(RetryDeliveryError):
        await bench.parts.deliveries.deliver_http(task_id, attempt())
    assert await attempts_of(bench, task_id) == [("not_sent", False)]


async def test_i11_tasks_that_end_at_once_are_each_counted_once(bench: Bench) -> None:
    """Ten tasks, each ended by several at once in different ways: the count reaches nought, and no lower."""
    activity, task_ids = await one_task(bench, "deliver.count", "log", count=10)
    assert await open_tasks(bench, activity) == 10
    deliveries = bench.parts.deliveries
    for_each = [
        *(deliveries.deliver_to_log(task_id) for task_id in task_ids * 2),
        *(deliveries.close(task_id, state, "by the test") for task_id in task_ids for state in ("failed", "cancelled")),
    ]
    random.Random(5).shuffle(for_each)
    await asyncio.gather(*for_each)
    assert await open_tasks(bench, activity) == 0
    assert set(await bench.states(activity)) <= {"completed", "failed", "cancelled"}


async def test_i8_the_last_task_wakes_the_step_that_waits(bench: Bench) -> None:
    activity, task_ids = await one_task(bench, "deliver.wake", "log", count=3)
    ((run_id,),) = await bench.sql("SELECT run_id FROM activity_runs WHERE activity_id = $1", activity)
    with bench.parts.runs._waiters.waiting(run_id) as settled:
        for task_id in task_ids[:2]:
            await bench.parts.deliveries.deliver_to_log(task_id)
        assert not settled.is_set()
        await bench.parts.deliveries.deliver_to_log(task_ids[2])
        assert settled.is_set()
        settled.clear()
        # a repeat wakes again: whoever was woken first may have died
        await bench.parts.deliveries.deliver_to_log(task_ids[0])
        assert settled.is_set()
    assert await bench.parts.runs.advance(run_id)
    assert await bench.ends(activity) == [("completed", None)]


async def test_r31_r35_a_plan_is_recorded_once_and_its_repeat_changes_nothing(bench: Bench) -> None:
    activity, _ = await one_task(bench, "deliver.plan", "log", count=3)
    tables = ("task_instances", "task_spawn_log", "ops_runs", "activity_runs")
    query = " UNION ALL ".join(
        f"SELECT to_jsonb(t)::text FROM {t} t WHERE run_id IN (SELECT run_id FROM activity_runs WHERE activity_id = $1)"
        for t in tables
    )
    before = await bench.sql(query, activity)
    assert len(before) == 10
    async with bench.database.read() as connection:
        ((run_id,),) = await bench.sql("SELECT run_id FROM activity_runs WHERE activity_id = $1", activity)
        run = await runs.progress(connection, run_id)
    assert run is not None
    # an attempt that read the run before the other one recorded its plan
    stale = type(run)(**{name: getattr(run, name) for name in run.__slots__} | {"planned_at": None, "open_tasks": 0})
    await asyncio.gather(*(bench.parts.runs._plan(stale) for _ in range(4)))
    assert await bench.sql(query, activity) == before
    # even where the plan is forgotten, its intents stay what they are
    await bench.sql("UPDATE activity_runs SET planned_at = NULL, plan_reason = NULL WHERE run_id = $1", run_id)
    await bench.parts.runs._plan(stale)
    again = await bench.sql(query, activity)
    assert Counter(again[:9]) == Counter(before[:9])


async def test_i6_two_attempts_at_once_keep_one_body(bench: Bench) -> None:
    async with consumer() as target:
        _, (task_id,) = await one_task(bench, "deliver.twice", target)
        await asyncio.gather(*(bench.parts.deliveries.deliver_http(task_id, attempt(n)) for n in range(5)))
        assert 1 <= len(target.requests) <= 5
        assert unlike_repeats(target) == []
    outcomes = await attempts_of(bench, task_id)
    assert outcomes.count(("delivered", False)) == 1


async def test_an_inbox_task_does_not_hold_its_run_once_it_was_handed_over(bench: Bench) -> None:
    activity, (task_id,) = await one_task(bench, "deliver.inbox", "inbox")
    assert await open_tasks(bench, activity) == 1
    for _ in range(2):
        await bench.parts.deliveries.deliver_to_inbox(task_id)
        assert await open_tasks(bench, activity) == 0
        assert await bench.states(activity) == ["waiting"]
    await bench.parts.deliveries.close(task_id, "cancelled", "by the test")
    assert await open_tasks(bench, activity) == 0
    await bench.parts.deliveries.deliver_to_inbox(task_id)
    assert await bench.states(activity) == ["cancelled"], "it does not go back to waiting"


async def test_the_ledger_agrees_with_itself(bench: Bench) -> None:
    assert await broken(bench.settings.asyncpg_url) == {}
