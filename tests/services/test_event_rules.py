"""Debounce, rate limits, concurrency and sources, from the event to the run; and replay."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest

from activity_core.domain.envelopes import read_native
from activity_core.services.pausing import Pausing
from activity_core.services.replaying import Replaying
from activity_core.services.routing import Routing
from activity_core.store import runs
from tests.services.conftest import Bench
from tests.stack import eventually

Json = dict[str, Any]


def kind() -> str:
    """An event type of the test's own."""
    return f"rules.t{uuid.uuid4().hex[:10]}"


async def on(bench: Bench, event_type: str, trigger: Json | None = None, **more: Any) -> uuid.UUID:
    full = {"type": "event", "event_types": [event_type], **(trigger or {})}
    return await bench.create(trigger=full, tasks=[{"task_type": "note", "consumer": "log"}], **more)


async def send(bench: Bench, event_type: str, *names: str, route: bool = True, **more: Any) -> None:
    for name in names:
        envelope = {"event_id": f"{event_type}-{name}", "type": event_type, "data": {"n": name}, **more}
        await bench.acceptor.accept(read_native(envelope))
    if route:
        await bench.routing.route_batch()


async def rows(bench: Bench, activity_id: uuid.UUID) -> dict[str, tuple[str, str]]:
    """(outcome, reason_code) by the last part of the event's id."""
    query = "SELECT key, outcome, reason_code FROM occurrences WHERE activity_id = $1 ORDER BY due_at"
    return {row[0].rpartition("-")[2]: (row[1], row[2]) for row in await bench.sql(query, activity_id)}


async def begin(bench: Bench, activity_id: uuid.UUID, event_type: str, name: str) -> str:
    """What the gate says to the run of an event."""
    return (await bench.gate(activity_id, f"{event_type}-{name}", f"execution-{name}")).verdict


async def start_now(bench: Bench, activity_id: uuid.UUID) -> None:
    """As if the time that events of the activity wait for had passed."""
    await bench.sql(
        "UPDATE occurrences SET not_before = now() - interval '1 s', start_after = now() - interval '1 s' "
        "WHERE activity_id = $1 AND outcome = 'waiting' AND start_after < 'infinity'",
        activity_id,
    )


async def test_a_debounced_group_is_one_run_of_its_last_event_that_names_the_others(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"key": "${ event.subject }", "seconds": 3600}})
    await send(bench, event_type, "a1", "a2", route=False, subject="a")
    await send(bench, event_type, "b1", route=False, subject="b")
    await send(bench, event_type, "a3", subject="a")
    assert await rows(bench, activity) == {
        "a1": ("merged", "debounced"),
        "a2": ("merged", "debounced"),
        "a3": ("waiting", "debounce"),
        "b1": ("waiting", "debounce"),
    }
    assert await begin(bench, activity, event_type, "a3") == "later"  # it is not quiet yet
    assert await begin(bench, activity, event_type, "a1") == "refused"
    await start_now(bench, activity)
    assert await begin(bench, activity, event_type, "a3") == "go"
    merged = await bench.sql(
        "SELECT count(*) FROM occurrences m JOIN occurrences o ON o.id = m.merged_into "
        "WHERE o.activity_id = $1 AND o.key = $2",
        activity,
        f"{event_type}-a3",
    )
    assert merged[0][0] == 2
    await send(bench, event_type, "a4", subject="a")
    assert (await rows(bench, activity))["a4"] == ("waiting", "debounce")


async def test_expressions_see_how_many_events_were_merged(bench: Bench) -> None:
    event_type = kind()
    activity = await bench.create(
        trigger={"type": "event", "event_types": [event_type], "debounce": {"seconds": 3600}},
        tasks=[
            {
                "task_type": "note",
                "consumer": "log",
                "params": {"count": "${ event.merged.count }", "first": "${ event.merged.first_id }"},
            }
        ],
    )
    await send(bench, event_type, "1", "2", "3")
    await start_now(bench, activity)
    assert await begin(bench, activity, event_type, "3") == "go"
    run_id = (await bench.sql("SELECT run_id FROM activity_runs WHERE activity_id = $1", activity))[0][0]
    run = await bench.run(run_id)
    async with bench.database.read() as connection:
        progress = await runs.progress(connection, run["run_id"])
        assert progress is not None
        _, scope = await bench.parts.runs.definition_and_scope(connection, progress)
    assert scope["event"]["merged"] == {"count": 2, "first_id": f"{event_type}-1"}


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


async def test_a_leading_group_runs_at_once_and_the_rest_is_merged_into_that_run(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"seconds": 3600, "edge": "leading"}})
    await send(bench, event_type, "1")
    assert await begin(bench, activity, event_type, "1") == "go"
    await send(bench, event_type, "2", "3")
    assert await rows(bench, activity) == {
        "1": ("started", "on_time"),
        "2": ("merged", "debounced"),
        "3": ("merged", "debounced"),
    }


async def test_a_rate_limit_drops_with_a_row_or_gives_each_its_turn(bench: Bench) -> None:
    event_type = kind()
    limit = {"count": 2, "per_seconds": 3600}
    dropping = await on(bench, event_type, {"rate_limit": limit})
    queueing = await on(bench, event_type, {"rate_limit": {**limit, "on_exceed": "queue"}})
    await send(bench, event_type, "1", "2", "3", "4", "5")
    assert (
        list((await rows(bench, dropping)).values())
        == [("waiting", "due")] * 2 + [("rate_limited", "rate_limited")] * 3
    )
    turns = await bench.sql(
        "SELECT extract(epoch FROM start_after - min(start_after) OVER ())::int / 3600 FROM occurrences "
        "WHERE activity_id = $1 ORDER BY due_at",
        queueing,
    )
    assert [row[0] for row in turns] == [0, 0, 1, 1, 2]
    assert await begin(bench, queueing, event_type, "3") == "later"


async def test_a_key_that_can_not_be_made_is_an_outcome_and_a_redelivery_decides_it_anew(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"rate_limit": {"key": "${ event.data.who }", "count": 1, "per_seconds": 5}})
    await send(bench, event_type, "1")
    assert await rows(bench, activity) == {"1": ("filter_error", "key_error")}
    await bench.replace(
        activity,
        trigger={
            "type": "event",
            "event_types": [event_type],
            "rate_limit": {"key": "${ event.data.n }", "count": 1, "per_seconds": 5},
        },
    )
    await send(bench, event_type, "1")
    assert await rows(bench, activity) == {"1": ("waiting", "due")}


async def test_no_more_runs_of_a_key_are_open_than_its_limit_and_each_end_starts_the_next(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "${ event.subject }", "limit": 1})
    await send(bench, event_type, "1", "2", "3", subject="a")
    await send(bench, event_type, "4", subject="b")
    assert await rows(bench, activity) == {
        "1": ("waiting", "due"),
        "2": ("waiting", "concurrency"),
        "3": ("waiting", "concurrency"),
        "4": ("waiting", "due"),
    }
    assert await begin(bench, activity, event_type, "2") == "later"
    assert await begin(bench, activity, event_type, "1") == "go"
    first = bench.workflow_id(activity, f"{event_type}-1")
    run_id = (await bench.sql("SELECT run_id FROM activity_runs WHERE workflow_id = $1", first))[0][0]
    await bench.parts.runs.end(run_id, "failed", "for the test")
    assert (await rows(bench, activity))["2"] == ("waiting", "due")
    assert (await rows(bench, activity))["3"] == ("waiting", "concurrency")


async def test_i8_a_wake_that_was_lost_is_made_up_for(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k"})
    await send(bench, event_type, "1", "2")
    await bench.sql(
        "UPDATE occurrences SET outcome = 'skipped' WHERE activity_id = $1 AND reason_code = 'due'", activity
    )
    await bench.parts.reconcile.queues()
    assert (await rows(bench, activity))["2"] == ("waiting", "due")


async def test_a_raised_limit_lets_those_that_wait_start(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k"})
    await send(bench, event_type, "1", "2", "3", "4")
    await bench.replace(activity, concurrency={"key": "k", "limit": 3})
    assert [code for _, code in (await rows(bench, activity)).values()] == ["due", "due", "due", "concurrency"]


async def test_concurrency_may_drop_and_says_so(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k", "on_limit": "drop"})
    await send(bench, event_type, "1", "2")
    assert (await rows(bench, activity))["2"] == ("concurrency_dropped", "concurrency")


@pytest.mark.parametrize("events", ["run", "skip"])
async def test_a_pause_holds_what_rules_hold_and_resume_goes_by_the_rules(bench: Bench, events: str) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k"})
    slow = await on(bench, event_type, {"debounce": {"seconds": 3600}})
    pausing = Pausing(bench.database, bench.definitions)
    await send(bench, event_type, "0")
    for paused in (activity, slow):
        await pausing.pause(str(paused), note=None, until=None, events="run")
    await send(bench, event_type, "1", "2")
    assert set((await rows(bench, activity)).values()) == {("waiting", "paused")}
    assert list((await rows(bench, slow)).values()) == [("merged", "debounced")] * 2 + [("waiting", "paused")]
    for paused in (activity, slow):
        await pausing.resume(str(paused), on_misfire=None, events=events)
    if events == "skip":
        assert {outcome for outcome, _ in (await rows(bench, activity)).values()} == {"skipped"}
        return
    assert [code for _, code in (await rows(bench, activity)).values()] == ["due", "concurrency", "concurrency"]
    assert await begin(bench, slow, event_type, "2") == "later"  # its quiet time is not over


async def test_an_activity_may_want_some_sources_alone(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"sources": ["shop-*"]})
    await send(bench, event_type, "1", source="shop-eu")
    await send(bench, event_type, "2", source="office")
    await send(bench, event_type, "3")
    keys = await bench.sql("SELECT key FROM occurrences WHERE activity_id = $1", activity)
    assert [row[0] for row in keys] == [f"shop-eu:{event_type}-1"]


async def test_r6_a_replay_decides_by_the_definitions_of_today_and_runs_nothing_twice(bench: Bench) -> None:
    event_type = kind()
    narrow = await on(bench, event_type, {"filter": "event.data.n == 'none'"})
    ran = await on(bench, event_type)
    await send(bench, event_type, "1", "2")
    assert await begin(bench, ran, event_type, "1") == "go"
    late = await on(bench, event_type)
    await bench.replace(narrow, trigger={"type": "event", "event_types": [event_type]})
    replaying = Replaying(bench.database)
    now = (await bench.sql("SELECT clock_timestamp()"))[0][0]
    asked: Json = {
        "start": now - timedelta(minutes=5),
        "end": now + timedelta(minutes=5),
        "event_type": event_type,
        "source": None,
        "activity": None,
        "limit": 100,
    }
    tried = await replaying.many(**asked, dry_run=True)
    assert (tried.events, [(row.activity_id, row.outcome, row.count) for row in tried.rows]) == (
        2,
        [(narrow, "filtered", 2)],
    )
    await bench.routing.route_batch()
    assert await rows(bench, late) == {}
    await replaying.many(**asked, dry_run=False)
    await bench.routing.route_batch()
    assert await rows(bench, narrow) == {"1": ("waiting", "due"), "2": ("waiting", "due")}
    assert await rows(bench, late) == {"1": ("waiting", "due"), "2": ("waiting", "due")}
    assert (await rows(bench, ran))["1"] == ("started", "on_time")
    history = await bench.sql("SELECT history FROM occurrences WHERE activity_id = $1", narrow)
    assert all('"filtered"' in row[0] for row in history)


async def test_a_replay_for_one_activity_leaves_the_others(bench: Bench) -> None:
    event_type = kind()
    await send(bench, event_type, "1")
    wanted, other = await on(bench, event_type), await on(bench, event_type)
    await Replaying(bench.database).one(f"{event_type}-1", activity=str(wanted), dry_run=False)
    await bench.routing.route_batch()
    assert await rows(bench, wanted) == {"1": ("waiting", "due")} and await rows(bench, other) == {}
