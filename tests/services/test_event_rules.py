"""Debounce, rate limits, concurrency and sources, from the event to the run; and replay."""

from datetime import timedelta

import pytest

from activity_core.services.pausing import Pausing
from activity_core.services.replaying import Replaying
from activity_core.store import runs
from tests.services.conftest import Bench
from tests.services.ruled import Json, begin, kind, on, rows, send, start_now


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
    assert (await bench.gate(activity, f"{event_type}-a3", "execution-a3")).verdict == "later"
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


async def test_what_a_rule_has_it_wait_for_is_no_delay(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"seconds": 3600}})
    await send(bench, event_type, "1")
    await bench.sql("UPDATE occurrences SET due_at = due_at - interval '1 h' WHERE activity_id = $1", activity)
    await start_now(bench, activity)
    await bench.parts.runs._pass_gate(activity, f"{event_type}-1", "execution")
    assert await rows(bench, activity) == {"1": ("started", "on_time")}


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
    replaying = Replaying(bench.database, bench.definitions)
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
    counted = {item.activity_id: (item.starts, item.reopened, item.left) for item in tried.by_activity}
    assert (tried.events, counted) == (2, {narrow: (2, 2, 0), late: (2, 0, 0), ran: (0, 0, 2)})
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
    await Replaying(bench.database, bench.definitions).one(f"{event_type}-1", activity=str(wanted), dry_run=False)
    await bench.routing.route_batch()
    assert await rows(bench, wanted) == {"1": ("waiting", "due")} and await rows(bench, other) == {}


async def test_a_lowered_limit_lets_none_start_that_has_not_and_a_lifted_one_all(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k", "limit": 3})
    await send(bench, event_type, "1", "2", "3", "4")
    assert await begin(bench, activity, event_type, "1") == "go"
    await bench.replace(activity, concurrency={"key": "k", "limit": 2})
    assert [code for _, code in (await rows(bench, activity)).values()] == [
        "on_time",
        "due",
        "concurrency",
        "concurrency",
    ]
    await bench.replace(activity, concurrency={"key": "k", "limit": 1})
    assert [code for _, code in (await rows(bench, activity)).values()] == ["on_time"] + ["concurrency"] * 3
    await bench.replace(activity, concurrency=None)
    assert [code for _, code in (await rows(bench, activity)).values()] == ["on_time"] + ["due"] * 3


async def test_a_backlog_of_events_from_before_an_edit_follows_the_limit_in_force(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, concurrency={"key": "k", "limit": 5})
    await send(bench, event_type, "1", "2", route=False)
    await bench.replace(activity, concurrency={"key": "k", "limit": 1})
    await send(bench, event_type, "3")
    assert [code for _, code in (await rows(bench, activity)).values()] == ["due", "concurrency", "concurrency"]


async def test_a_place_that_a_merged_event_leaves_is_given_to_the_next(bench: Bench) -> None:
    event_type = kind()
    activity = await on(
        bench,
        event_type,
        {"debounce": {"seconds": 3600}},
        concurrency={"key": "${ event.subject }"},
    )
    other = {"key": "${ event.subject }", "limit": 1}
    await send(bench, event_type, "1", subject="a")
    await bench.replace(activity, trigger={"type": "event", "event_types": [event_type]}, concurrency=other)
    await send(bench, event_type, "2", subject="a")
    assert (await rows(bench, activity))["2"] == ("waiting", "concurrency")
    await bench.replace(
        activity,
        trigger={"type": "event", "event_types": [event_type], "debounce": {"seconds": 3600}},
        concurrency=other,
    )
    await send(bench, event_type, "3", subject="b")
    assert (await rows(bench, activity))["1"] == ("merged", "debounced")
    await bench.parts.reconcile.queues()
    assert (await rows(bench, activity))["2"] == ("waiting", "due")


async def test_a_key_that_still_can_not_be_made_is_no_new_decision(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"key": "${ event.data.who }", "seconds": 5}})
    await send(bench, event_type, "1")
    await send(bench, event_type, "1")
    history = await bench.sql("SELECT outcome, history FROM occurrences WHERE activity_id = $1", activity)
    assert [tuple(row) for row in history] == [("filter_error", "[]")]


async def test_an_old_event_that_is_routed_late_is_not_of_the_group_of_today(bench: Bench) -> None:
    event_type = kind()
    activity = await on(bench, event_type, {"debounce": {"seconds": 60, "edge": "leading"}})
    await send(bench, event_type, "1", route=False)
    await bench.sql("UPDATE events SET routed_at = now() WHERE event_id = $1", f"{event_type}-1")
    await bench.sql(
        "UPDATE events SET accepted_at = accepted_at - interval '1 hour' WHERE event_id = $1", f"{event_type}-1"
    )
    await send(bench, event_type, "2")
    await Replaying(bench.database, bench.definitions).one(f"{event_type}-1", activity=None, dry_run=False)
    await bench.routing.route_batch()
    assert await rows(bench, activity) == {"1": ("waiting", "due"), "2": ("waiting", "due")}
