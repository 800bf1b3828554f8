"""From events to rows, by any number of routers, whatever breaks meanwhile."""

import asyncio
import random
import uuid

import pytest
from structlog.testing import capture_logs

from activity_core.services.routing import MAX_ATTEMPTS, Routing
from tests.services.conftest import Bench
from tests.stack import eventually


async def rows_by_event(bench: Bench, event_type: str) -> dict[str, int]:
    query = (
        "SELECT e.event_id, count(o.id) FROM events e LEFT JOIN occurrences o ON o.event_uuid = e.id "
        "WHERE e.type = $1 GROUP BY e.event_id"
    )
    return {row[0]: row[1] for row in await bench.sql(query, event_type)}


async def unrouted(bench: Bench, event_type: str) -> int:
    query = "SELECT count(*) FROM events WHERE type = $1 AND routed_at IS NULL"
    return int((await bench.sql(query, event_type))[0][0])


async def test_r26_routers_that_are_killed_at_any_point_leave_one_row_for_each_activity(bench: Bench) -> None:
    made = [await bench.on_event("route.kill") for _ in range(3)]
    await asyncio.gather(*(bench.send("route.kill", f"kill-{n}") for n in range(250)))
    chance = random.Random(7)
    routers = [Routing(bench.database, bench.definitions) for _ in range(3)]

    async def route(router: Routing) -> None:
        # cancelling closes the connection in the middle of the transaction, as a kill would
        routing = asyncio.create_task(router.route_batch())
        done, _ = await asyncio.wait([routing], timeout=chance.uniform(0.0, 0.04))
        if not done:
            routing.cancel()
            await asyncio.gather(routing, return_exceptions=True)

    for _ in range(15):
        await asyncio.gather(*(route(router) for router in routers))

    async def all_routed() -> bool:
        await asyncio.gather(*(router.route_batch() for router in routers))
        return await unrouted(bench, "route.kill") == 0

    await eventually(all_routed)
    assert await rows_by_event(bench, "route.kill") == {f"kill-{n}": len(made) for n in range(250)}
    for activity in made:
        assert set(await bench.outcomes(activity)) == {("waiting", "due")}


async def test_r26_a_failure_after_some_activities_leaves_all_or_nothing_and_resumes(bench: Bench) -> None:
    """One of the activities' ledgers is locked by somebody else: the event is routed to all of them, or not yet."""
    made = [await bench.on_event("route.lock") for _ in range(3)]
    other = await bench.on_event("route.free")
    await bench.send("route.lock", "lock-1")
    async with bench.database.begin() as connection:
        await connection.exec_driver_sql(
            f"SELECT 1 FROM trigger_state WHERE activity_id = '{sorted(made)[1]}' FOR UPDATE"
        )
        stuck = asyncio.create_task(bench.routing.route_batch())
        waits = (
            "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE NOT granted AND datname = current_database()"
        )
        await eventually(lambda: bench.sql(waits), what="the router waits for the lock")
        await bench.send("route.free", "free-1")
        await Routing(bench.database, bench.definitions).route_batch()
        assert await bench.outcomes(other) == [("waiting", "due")], "another router goes on with what is free"
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        assert await rows_by_event(bench, "route.lock") == {"lock-1": 0}
    await bench.routing.route_batch()
    assert await rows_by_event(bench, "route.lock") == {"lock-1": 3}
    assert await unrouted(bench, "route.lock") == 0


async def test_r26_i9_a_definition_that_can_not_be_read_is_no_trouble_for_the_others(bench: Bench) -> None:
    poison, sound = await bench.on_event("route.poison"), await bench.on_event("route.poison")
    await bench.sql("UPDATE activity_revisions SET effective = '{}' WHERE activity_id = $1", poison)
    with capture_logs() as logged:
        await bench.occur("route.poison", "poison-0", "poison-1")
    assert {line["event"] for line in logged} == {"definition.unreadable"}
    assert await bench.outcomes(sound) == [("waiting", "due")] * 2
    assert await bench.outcomes(poison) == [("dead_letter", "definition_unreadable")] * 2
    # mended and sent again, it runs
    await bench.sql(
        "UPDATE activity_revisions SET effective = (SELECT effective FROM activity_revisions WHERE activity_id = $2) "
        "WHERE activity_id = $1",
        poison,
        sound,
    )
    assert (await bench.send("route.poison", "poison-0")).duplicate
    await bench.routing.route_batch()
    assert sorted(await bench.outcomes(poison)) == [("dead_letter", "definition_unreadable"), ("waiting", "due")]


async def test_i9_an_event_that_can_not_be_routed_holds_up_no_other_and_ends_as_a_dead_letter(bench: Bench) -> None:
    broken, sound = await bench.on_event("route.stuck"), await bench.on_event("route.sound")
    (state,) = await bench.sql("DELETE FROM trigger_state WHERE activity_id = $1 RETURNING settled_through", broken)
    for n in range(3):
        await bench.send("route.stuck", f"stuck-{n}")
        await bench.send("route.sound", f"sound-{n}")
    with capture_logs() as logged:
        await bench.routing.route_batch()
    assert {line["event"] for line in logged} == {"events.route_failed", "event.route_failed"}
    assert await bench.outcomes(sound) == [("waiting", "due")] * 3
    assert await unrouted(bench, "route.stuck") == 3
    for _ in range(MAX_ATTEMPTS):
        await bench.sql("UPDATE events SET route_after = now() WHERE type = 'route.stuck'")
        with capture_logs():
            await bench.routing.route_batch()
    rows = await bench.sql("SELECT routed_at, dead_letter_reason FROM events WHERE type = 'route.stuck'")
    assert all(row[0] is not None and row[1] for row in rows)
    await bench.sql("INSERT INTO trigger_state (activity_id, settled_through) VALUES ($1, $2)", broken, state[0])
    assert (await bench.send("route.stuck", "stuck-0")).duplicate
    await bench.routing.route_batch()
    assert await bench.outcomes(broken) == [("waiting", "due")]


@pytest.mark.parametrize(
    ("first", "then", "outcomes"),
    [
        ({"enabled": False}, {"enabled": True}, ("disabled", "waiting")),
        ({"filter": "event.data.x > 1"}, {"filter": "event.data.size() == 0"}, ("filter_error", "waiting")),
        ({"filter": "event.data.x > 1"}, {"filter": "event.data.size() > 0"}, ("filter_error", "filtered")),
        ({"filter": "event.data.size() > 0"}, {"filter": "event.data.size() == 0"}, ("filtered", "filtered")),
        ({"enabled": True}, {"enabled": True, "name": "other"}, ("waiting", "waiting")),
        ({"enabled": False}, {"enabled": False, "name": "other"}, ("disabled", "disabled")),
    ],
)
async def test_r6_a_redelivery_decides_again_only_what_was_not_final(
    bench: Bench, first: dict[str, object], then: dict[str, object], outcomes: tuple[str, str]
) -> None:
    name = uuid.uuid4().hex[:8]

    def document(change: dict[str, object]) -> dict[str, object]:
        trigger = {"type": "event", "event_types": [f"again.{name}"]}
        more = {key: value for key, value in change.items() if key != "filter"}
        return {"trigger": {**trigger, **({"filter": change["filter"]} if "filter" in change else {})}, **more}

    activity = await bench.create(**document(first))
    await bench.occur(f"again.{name}", name)
    assert [outcome for outcome, _ in await bench.outcomes(activity)] == [outcomes[0]]
    await bench.replace(activity, **document(then))
    assert (await bench.send(f"again.{name}", name)).duplicate
    await bench.routing.route_batch()
    assert [outcome for outcome, _ in await bench.outcomes(activity)] == [outcomes[1]]
    ((history, revision),) = await bench.sql(
        "SELECT jsonb_array_length(history), revision FROM occurrences WHERE activity_id = $1", activity
    )
    assert (history, revision) == ((1, 2) if outcomes[0] != outcomes[1] else (0, 1))


async def test_r6_a_redelivery_for_one_activity_leaves_what_the_others_decided(bench: Bench) -> None:
    def trigger(**more: str) -> dict[str, object]:
        return {"type": "event", "event_types": ["again.mixed"], **more}

    asleep = await bench.create(trigger=trigger(), enabled=False)
    filtered = await bench.create(trigger=trigger(filter="event.data.size() > 0"))
    started, waiting = await bench.create(trigger=trigger()), await bench.create(trigger=trigger())
    await bench.occur("again.mixed", "mixed-1")
    assert (await bench.gate(started, "mixed-1", "x")).verdict == "go"
    await bench.replace(asleep, enabled=True)
    await bench.replace(filtered, trigger=trigger(filter="event.data.size() == 0"))
    for activity in (started, waiting):
        await bench.replace(activity, trigger=trigger(filter="event.data.size() > 0"))
    assert (await bench.send("again.mixed", "mixed-1")).duplicate
    await bench.routing.route_batch()
    assert await bench.outcomes(asleep) == [("waiting", "due")]
    assert await bench.outcomes(filtered) == [("filtered", "filter_false")]
    assert await bench.outcomes(started) == [("started", "on_time")]
    assert await bench.outcomes(waiting) == [("waiting", "due")]


async def test_r6_the_revision_in_force_at_acceptance_decides(bench: Bench) -> None:
    """A backlog is routed as if there had been none."""
    activity = await bench.on_event("route.revision")
    await bench.send("route.revision", "before-1")
    await bench.replace(activity, trigger={"type": "event", "event_types": ["route.elsewhere"]})
    late = await bench.on_event("route.revision")
    await bench.send("route.revision", "after-1")
    await bench.routing.route_batch()
    assert await bench.outcomes(activity) == [("waiting", "due")]
    keys = await bench.sql("SELECT key FROM occurrences WHERE activity_id = $1", late)
    assert [key[0] for key in keys] == ["after-1"], "nothing that was accepted before it existed"
