"""The event rules under races and crashes: starts, ends and two routers at once, and routers and workers that are cut off."""

import asyncio
import uuid
from typing import Any

import pytest
import sqlalchemy

from activity_core.services.routing import Routing
from activity_core.store import event_rows, starts
from tests.services.conftest import Bench, working
from tests.services.ruled import Json, kind, on, rows, send, start_now
from tests.stack import eventually


async def test_i2_a_debounced_event_starts_or_is_merged_and_never_both(bench: Bench) -> None:
    """The start takes no ledger lock: it races with the next event of the group."""
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"seconds": 3600}})
    for number in range(12):
        await send(bench, event_type, f"x{number}")
        await start_now(bench, activity)
        await send(bench, event_type, f"y{number}", route=False)
        started, _ = await asyncio.gather(
            bench.parts.runs._pass_gate(activity, f"{event_type}-x{number}", f"execution-{number}"),
            bench.routing.route_batch(),
        )
        now = await rows(bench, activity)
        went = started[1].verdict == "go"
        assert now[f"x{number}"][0] == ("started" if went else "merged")
        assert now[f"y{number}"] == ("waiting", "debounce")
    assert all(outcome in ("started", "merged", "waiting") for outcome, _ in (await rows(bench, activity)).values())


async def test_i2_a_row_that_is_about_to_be_merged_does_not_start_meanwhile(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"seconds": 3600}})
    await send(bench, event_type, "1")
    await start_now(bench, activity)
    async with bench.database.begin() as connection:
        [head] = await event_rows.waiting_heads(connection, [(activity, "")])
        starting = asyncio.create_task(bench.parts.runs._pass_gate(activity, f"{event_type}-1", "execution"))
        await eventually(lambda: _somebody_waits_for_a_lock(bench))
        await event_rows.merge(connection, {head.id: uuid.uuid4()}, "for the test")
    assert (await starting)[1].verdict == "refused"
    assert await rows(bench, activity) == {"1": ("merged", "debounced")}


async def _somebody_waits_for_a_lock(bench: Bench) -> bool:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND query LIKE '%UPDATE occurrences%'"
    )
    return bool((await bench.sql(query))[0][0])


async def test_two_routers_leave_each_group_one_row_that_runs(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"key": "${ event.subject }", "seconds": 3600}})
    for subject in ("a", "b", "c"):
        await asyncio.gather(
            *(send(bench, event_type, f"{subject}{n}", route=False, subject=subject) for n in range(60))
        )
    routers = [Routing(bench.database, bench.definitions) for _ in range(2)]

    async def done() -> bool:
        return sum(await asyncio.gather(*(router.route_batch() for router in routers))) == 0

    await eventually(done)
    counted = await bench.sql(
        "SELECT group_key, outcome, count(*) FROM occurrences WHERE activity_id = $1 GROUP BY 1, 2 ORDER BY 1, 2",
        activity,
    )
    assert [tuple(row) for row in counted] == [
        (subject, outcome, count) for subject in "abc" for outcome, count in (("merged", 59), ("waiting", 1))
    ]
    newest = await bench.sql(
        "SELECT count(*) FROM occurrences w WHERE w.activity_id = $1 AND w.outcome = 'waiting' AND NOT EXISTS (SELECT 1 "
        "FROM occurrences o WHERE o.activity_id = $1 AND o.group_key = w.group_key AND o.due_at > w.due_at)",
        activity,
    )
    assert newest[0][0] == 3


async def test_i8_a_wake_that_was_lost_is_made_up_for(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k"})
    await send(bench, event_type, "1", "2")
    await bench.sql(
        "UPDATE occurrences SET outcome = 'skipped' WHERE activity_id = $1 AND reason_code = 'due'", activity
    )
    await bench.parts.reconcile.queues()
    assert (await rows(bench, activity))["2"] == ("waiting", "due")


async def test_i8_ends_and_routing_at_once_leave_no_place_empty_and_none_taken_twice(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "${ event.subject }", "limit": 2})
    total, begun = 16, 0
    for number in range(total):
        await send(bench, event_type, f"e{number:02}", route=False, subject="k")
    routers = [Routing(bench.database, bench.definitions) for _ in range(2)]
    await asyncio.gather(*(router.route_batch() for router in routers))
    while begun < total:
        due = [name for name, row in (await rows(bench, activity)).items() if row == ("waiting", "due")]
        open_runs = await bench.sql(
            "SELECT run_id, count(*) OVER () FROM activity_runs WHERE activity_id = $1 AND is_open", activity
        )
        assert len(due) + len(open_runs) == min(2, total - begun + len(open_runs))
        passed = await asyncio.gather(
            *(bench.parts.runs._pass_gate(activity, f"{event_type}-{name}", f"execution-{name}") for name in due),
            *(bench.parts.runs.end(row["run_id"], "failed", "for the test") for row in open_runs),
        )
        begun += len(due)
        assert all(answer[1].verdict == "go" for answer in passed[: len(due)] if answer is not None)
        if not due and not open_runs:
            raise AssertionError("stuck")


@pytest.mark.parametrize(
    ("trigger", "more"),
    [
        ({"debounce": {"seconds": 3600}}, {}),
        ({"debounce": {"seconds": 3600, "edge": "leading"}}, {}),
        ({"rate_limit": {"count": 2, "per_seconds": 3600}}, {}),
        ({}, {"concurrency": {"limit": 2}}),
    ],
    ids=["trailing", "leading", "rate_limit", "concurrency"],
)
async def test_i1_a_router_that_is_cut_off_anywhere_leaves_all_to_the_next(
    bench: Bench, trigger: Json, more: Json
) -> None:
    """Cut off after each of its statements in turn, then done by another: as if nothing had happened."""
    event_type = kind()
    activity = await on(bench, event_type, trigger, **more)
    names = [f"e{number}" for number in range(5)]
    await send(bench, event_type, *names[:2])
    await send(bench, event_type, *names[2:], route=False)
    for cut in range(40):
        statements = 0
        routing = asyncio.create_task(bench.routing.route_batch())
        while not routing.done() and statements < cut:
            await asyncio.sleep(0)
            statements += 1
        routing.cancel()
        await asyncio.gather(routing, return_exceptions=True)
    await eventually(lambda: _routed(bench))
    outcomes = [outcome for outcome, _ in (await rows(bench, activity)).values()]
    expected = {
        "debounce": ["merged"] * 4 + ["waiting"],
        "rate_limit": ["waiting"] * 2 + ["rate_limited"] * 3,
    }.get(next(iter(trigger), ""), ["waiting"] * 5)
    if trigger.get("debounce", {}).get("edge") == "leading":
        expected = expected[::-1]
    assert outcomes == expected
    codes = [code for _, code in (await rows(bench, activity)).values()]
    assert codes.count("concurrency") == (3 if more else 0)


async def _routed(bench: Bench) -> bool:
    return await bench.routing.route_batch() == 0


async def test_i8_a_place_given_to_a_start_that_was_lost_is_not_lost(bench: Bench) -> None:
    """A worker claims the row and dies before its workflow begins: the row keeps its place and comes back."""
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k"})
    await send(bench, event_type, "1", "2")
    assert await _claims(bench, activity) == [f"{event_type}-1"]
    await bench.parts.reconcile.queues()
    assert (await rows(bench, activity))["2"] == ("waiting", "concurrency")
    assert await _claims(bench, activity) == []
    await start_now(bench, activity)  # its lease is over
    assert await _claims(bench, activity) == [f"{event_type}-1"]


async def _claims(bench: Bench, activity_id: uuid.UUID) -> list[str]:
    async with bench.database.session() as connection:
        claims = await starts.claim(connection, limit=1_000, lease_seconds=30)
    return [claim.key for claim in claims if claim.activity_id == activity_id]


async def test_events_without_rules_cost_no_query_more(bench: Bench) -> None:
    """The same number of statements for a batch of events whether or not other activities have rules."""

    async def statements(event_type: str) -> int:
        seen: list[str] = []
        engine = bench.database.engine.sync_engine

        def note(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            seen.append(statement)

        sqlalchemy.event.listen(engine, "before_cursor_execute", note)
        try:
            await bench.routing.route_batch()
        finally:
            sqlalchemy.event.remove(engine, "before_cursor_execute", note)
        assert any("INSERT INTO occurrences" in statement for statement in seen)
        # the acceptor sends notices of its own
        return sum("pg_notify" not in statement for statement in seen)

    counts = []
    for size in (1, 20):
        event_type = kind()
        await on(bench, event_type)
        await send(bench, event_type, "warm")
        await send(bench, event_type, *(f"n{n}" for n in range(size)), route=False)
        counts.append(await statements(event_type))
    assert counts == [6, 6]
    for trigger, more in (
        ({"debounce": {"key": "${ event.data.n }", "seconds": 60}}, {}),
        ({}, {"concurrency": {"key": "k"}}),
    ):
        event_type = kind()
        await on(bench, event_type, trigger, **more)
        await send(bench, event_type, "warm")
        await send(bench, event_type, *(f"n{n}" for n in range(20)), route=False)
        assert await statements(event_type) <= counts[0] + 3


async def test_a_queue_runs_one_by_one_to_its_end_on_real_workers(bench: Bench) -> None:
    """Each end of a run, written by its own workflow, lets the next one start."""
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "${ event.subject }"})
    names = [f"e{number}" for number in range(6)]
    await send(bench, event_type, *names, subject="k")

    async def all_ended() -> bool:
        await bench.parts.starting.start_batch()
        return [status for status, _ in await bench.ends(activity)] == ["completed"] * len(names)

    async with working(bench):
        await eventually(all_ended, what="all have run")
    beside = await bench.sql(
        "SELECT count(*) FROM activity_run_ends a JOIN activity_run_ends b ON a.run_id <> b.run_id "
        "AND a.started_at < b.finished_at AND b.started_at < a.finished_at "
        "WHERE a.run_id IN (SELECT run_id FROM activity_runs WHERE activity_id = $1) "
        "AND b.run_id IN (SELECT run_id FROM activity_runs WHERE activity_id = $1)",
        activity,
    )
    assert beside[0][0] == 0
    order = await bench.sql(
        "SELECT o.key FROM activity_runs r JOIN occurrences o ON o.id = r.occurrence_id WHERE r.activity_id = $1 "
        "ORDER BY r.started_at",
        activity,
    )
    assert [row[0] for row in order] == [f"{event_type}-{name}" for name in names]
