"""The gate and settle, on a real Postgres: what lets a row become a run, and what does not."""

import asyncio
import uuid
from collections import Counter
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from activity_core.domain import ids
from tests.services.conftest import Bench


async def test_r6_one_execution_passes_and_every_other_is_refused(bench: Bench) -> None:
    activity = await bench.on_event("gate.race")
    await bench.occur("gate.race", "race-1")
    passed = await asyncio.gather(*(bench.gate(activity, "race-1", f"execution-{n}") for n in range(20)))
    assert Counter(one.verdict for one in passed) == {"go": 1, "refused": 19}
    assert {one.run_id for one in passed} == {ids.run_id(bench.workflow_id(activity, "race-1"))}
    assert await bench.outcomes(activity) == [("started", "on_time")]


async def test_r30_the_same_execution_passes_again_and_changes_nothing(bench: Bench) -> None:
    activity = await bench.on_event("gate.again")
    await bench.occur("gate.again", "again-1")
    assert (await bench.gate(activity, "again-1", "mine")).verdict == "go"
    before = await bench.sql("SELECT * FROM activity_runs WHERE activity_id = $1", activity)
    both = await asyncio.gather(*(bench.gate(activity, "again-1", "mine") for _ in range(5)))
    assert {one.verdict for one in both} == {"go"}
    assert (await bench.gate(activity, "again-1", "not mine")).verdict == "refused"
    assert await bench.sql("SELECT * FROM activity_runs WHERE activity_id = $1", activity) == before


async def test_r8_an_execution_without_a_row_is_refused(bench: Bench) -> None:
    activity = await bench.on_event("gate.none")
    assert (await bench.gate(activity, "never-came", "x")).verdict == "refused"
    assert (await bench.gate(activity, "manual:never-asked", "x")).verdict == "refused"
    assert (await bench.gate(uuid.uuid4(), "never-came", "x")).verdict == "refused"
    assert await bench.outcomes(activity) == []


@pytest.mark.parametrize(
    ("more", "outcome"), [({"enabled": False}, "disabled"), ({"filter": "event.data.size() > 5"}, "filtered")]
)
async def test_r6_a_row_that_was_decided_otherwise_is_refused(
    bench: Bench, more: dict[str, object], outcome: str
) -> None:
    event_type = f"gate.{outcome}"
    trigger = {"type": "event", "event_types": [event_type], **{k: v for k, v in more.items() if k == "filter"}}
    activity = await bench.create(trigger=trigger, enabled=more.get("enabled", True))
    await bench.occur(event_type, f"{outcome}-1")
    assert (await bench.gate(activity, f"{outcome}-1", "x")).verdict == "refused"
    assert await bench.outcomes(activity) == [(outcome, "disabled" if outcome == "disabled" else "filter_false")]
    assert await bench.ends(activity) == []


async def test_r9_a_time_that_is_no_nominal_one_is_refused(bench: Bench) -> None:
    activity, (minute,) = await bench.every_minute(due=1)
    for odd in (minute + timedelta(seconds=7), minute + timedelta(days=1)):
        assert (await bench.gate(activity, ids.time_key(odd), "x")).verdict == "refused"
    keys = await bench.sql("SELECT key FROM occurrences WHERE activity_id = $1", activity)
    assert all(key[0].endswith(":00+00:00") for key in keys)
    assert ids.time_key(minute + timedelta(days=1)) not in {key[0] for key in keys}


async def test_r12_late_times_are_skipped_and_the_next_runs(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=4, grace_seconds=61)
    head = await bench.settle(activity, None)
    waiting = [row for row in await bench.outcomes(activity) if row == ("waiting", "due")]
    assert len(waiting) in (1, 2), "the last minute, and the one before it for a second"
    assert set(await bench.outcomes(activity)) == {("skipped", "late"), ("waiting", "due")}
    assert head is not None and head >= minutes[-2]
    # the gate settles again: whichever is the head by now passes, a late one is refused
    assert (await bench.gate(activity, ids.time_key(minutes[0]), "x")).verdict == "refused"
    if head != minutes[-1]:
        assert (await bench.gate(activity, ids.time_key(minutes[-1]), "x")).verdict in ("later", "go")


async def test_i4_settles_at_once_write_each_time_once(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=50, grace_seconds=86_400)
    heads = await asyncio.gather(*(bench.settle(activity, None) for _ in range(20)))
    assert set(heads) == {minutes[0]}
    rows = await bench.sql(
        "SELECT scheduled_for, interval_start FROM occurrences WHERE activity_id = $1 ORDER BY scheduled_for", activity
    )
    times = [row[0] for row in rows]
    assert times[:50] == minutes and len(times) == len(set(times))
    assert [row[1] for row in rows] == [minutes[0] - timedelta(minutes=1), *times[:-1]]


async def test_r12_while_a_run_is_open_the_next_times_wait_and_then_are_skipped_as_overlapped(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=3, grace_seconds=86_400)
    first, second = ids.time_key(minutes[0]), ids.time_key(minutes[1])
    assert (await bench.gate(activity, second, "b")).verdict == "later", "the oldest runs first"
    passed = await bench.gate(activity, first, "a")
    assert passed.verdict == "go"
    # times before the run began: they wait for its end
    assert (await bench.gate(activity, second, "b")).verdict == "later"
    await bench.sql(
        "UPDATE activity_runs SET started_at = $2 WHERE run_id = $1", passed.run_id, minutes[1] - timedelta(seconds=1)
    )
    assert await bench.settle(activity, None) is None
    assert (await bench.outcomes(activity))[1:3] == [("waiting", "due")] * 2, "its end may come to be known late"
    await bench.parts.runs.end(passed.run_id, "failed", "for the test")
    assert (await bench.gate(activity, second, "b")).verdict == "refused"
    assert (await bench.outcomes(activity))[:3] == [
        ("started", "on_time"),
        ("skipped", "overlap"),
        ("skipped", "overlap"),
    ]


async def test_the_end_of_a_run_lets_the_time_that_waited_run(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=2, grace_seconds=86_400)
    passed = await bench.gate(activity, ids.time_key(minutes[0]), "a")
    later = ids.time_key(minutes[1])
    assert (await bench.gate(activity, later, "b")).verdict == "later"
    await bench.sql("UPDATE trigger_state SET next_due_at = NULL WHERE activity_id = $1", activity)
    await bench.parts.runs.end(passed.run_id, "failed", "for the test")
    (due,) = await bench.sql("SELECT next_due_at <= now() FROM trigger_state WHERE activity_id = $1", activity)
    assert due[0], "the poller looks at once"
    assert (await bench.gate(activity, later, "b")).verdict == "go"
    assert (await bench.ends(activity))[0] == ("failed", "for the test")


async def test_r2_a_tick_that_the_cron_does_not_know_is_a_no_op(bench: Bench) -> None:
    activity = await bench.create(
        trigger={"type": "cron", "cron": "0 4 29 2 *", "timezone": "UTC", "misfire_policy": "skip"}
    )
    ((now,),) = await bench.sql("SELECT date_trunc('second', now())")
    for tick in (None, now, now + timedelta(seconds=3), now + timedelta(hours=1), now - timedelta(hours=1)):
        assert await bench.settle(activity, tick) is None
    assert await bench.outcomes(activity) == []
    (state,) = await bench.sql(
        "SELECT settled_through, next_due_at FROM trigger_state WHERE activity_id = $1", activity
    )
    assert now <= state[0] < now + timedelta(seconds=60), "an hour ahead is not believed, and time does not go back"
    assert state[1].strftime("%m-%d %H:%M") == "02-29 04:00"


async def test_r28_the_poller_completes_the_ledger_without_ticks(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=3, grace_seconds=1)
    await bench.sql("UPDATE trigger_state SET next_due_at = now() - interval '1 h' WHERE activity_id = $1", activity)
    await bench.parts.poller.settle_overdue()
    assert ("skipped", "late") in await bench.outcomes(activity)
    assert len(await bench.outcomes(activity)) >= 3


async def test_i9_a_definition_that_can_not_be_read_stops_nobody_elses_times(bench: Bench) -> None:
    made = [(await bench.every_minute(due=1))[0] for _ in range(3)]
    poison, *sound = made
    await bench.sql("UPDATE activity_revisions SET effective = '{}' WHERE activity_id = $1", poison)
    for age, activity in enumerate(reversed(made)):
        await bench.sql(
            "UPDATE trigger_state SET next_due_at = now() - make_interval(hours => 1 + $2) WHERE activity_id = $1",
            activity,
            age,
        )
    with capture_logs() as logged:
        await bench.parts.poller.settle_overdue()
    assert {line["event"] for line in logged} == {"activity.settle_failed"}
    for activity in sound:
        assert len(await bench.outcomes(activity)) >= 1
    await bench.sql("UPDATE trigger_state SET next_due_at = NULL WHERE activity_id = $1", poison)


async def test_the_poller_leaves_what_somebody_else_is_settling(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=1, grace_seconds=86_400)
    await bench.sql("UPDATE trigger_state SET next_due_at = now() - interval '1 h' WHERE activity_id = $1", activity)
    async with bench.database.begin() as connection:
        await connection.exec_driver_sql(f"SELECT 1 FROM trigger_state WHERE activity_id = '{activity}' FOR UPDATE")
        assert await bench.parts.settler.settle_overdue(activity, 0) is None
        assert await bench.outcomes(activity) == []
    assert await bench.parts.settler.settle_overdue(activity, 0) == minutes[0]
    assert await bench.parts.settler.settle_overdue(activity, 3_600) is None, "it is not overdue any more"


async def test_a_disabled_activity_owes_nothing_and_its_waiting_times_are_disabled(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=3, grace_seconds=86_400)
    await bench.replace(activity, enabled=False)
    assert {outcome for outcome, _ in await bench.outcomes(activity)} == {"disabled"}
    count = len(await bench.outcomes(activity))
    await bench.sql(
        "UPDATE trigger_state SET settled_through = now() - interval '1 h' WHERE activity_id = $1", activity
    )
    assert await bench.settle(activity, None) is None
    assert len(await bench.outcomes(activity)) == count


async def test_r6_manual_requests_with_one_key_are_one_occurrence(bench: Bench) -> None:
    activity = await bench.create(trigger={"type": "manual"})
    asked = await asyncio.gather(
        *(
            bench.triggering.trigger(str(activity), params={"n": 1}, on_overlap=None, idempotency_key="once")
            for _ in range(10)
        )
    )
    assert len({one.occurrence_id for one in asked}) == 1
    assert await bench.outcomes(activity) == [("waiting", "due")]
