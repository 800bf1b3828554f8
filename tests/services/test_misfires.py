"""What becomes of missed times: the policies at the gate, on a real Postgres, with no worker to be in the way."""

import asyncio
import json
import uuid
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from activity_core.domain import ids
from activity_core.domain.planner import MERGED
from activity_core.errors import InvalidInputError
from activity_core.services import poller as poller_module
from activity_core.services.poller import Poller
from activity_core.store import runs
from activity_core.worker.steps import FireStepsImpl
from activity_core.workflows.contracts import SettleInput
from tests import checker
from tests.services.conftest import Bench
from tests.stack import eventually

MINUTE = timedelta(minutes=1)


async def start(bench: Bench, activity: uuid.UUID, at: datetime) -> str:
    return (await bench.gate(activity, ids.time_key(at), f"execution-{at:%H:%M}")).verdict


async def end_run(bench: Bench, activity: uuid.UUID, at: datetime) -> None:
    await bench.parts.runs.end(ids.run_id(bench.workflow_id(activity, ids.time_key(at))), "failed", "for the test")


async def test_r15_a_block_of_missed_times_runs_once_and_the_window_covers_it(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=6, grace_seconds=61, rules={"misfire_policy": "compress"})
    head = await bench.settle(activity)
    assert head is not None and head >= minutes[3]
    passed = await bench.gate(activity, ids.time_key(head), "mine")
    assert passed.verdict == "go"
    rows = await bench.ledger(activity)
    covered = [row for row in rows if row["scheduled_for"] < head]
    assert {(row["outcome"], row["reason_code"]) for row in covered} == {(MERGED.outcome, MERGED.reason_code)}
    (started,) = [row for row in rows if row["scheduled_for"] == head]
    assert {row["merged_into"] for row in covered} == {started["id"]}
    assert (started["outcome"], started["reason_code"]) == ("started", "late")
    run = await bench.run(passed.run_id)
    assert (run["window_start"], run["window_end"]) == (minutes[0] - MINUTE, head)
    assert json.loads(run["covers"]) == {
        "first": ids.time_key(minutes[0]),
        "last": ids.time_key(head),
        "count": len(covered) + 1,
    }
    assert await start(bench, activity, minutes[0]) == "refused", "it is merged"
    assert await checker.broken(bench.database.dsn) == {}


async def test_r15_a_slow_start_covers_up_to_itself_and_the_rest_is_another_run(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=8, grace_seconds=61, rules={"misfire_policy": "compress"})
    assert await start(bench, activity, minutes[2]) == "go"
    rows = await bench.ledger(activity)
    assert [row["outcome"] for row in rows[:4]] == ["merged", "merged", "started", "waiting"]
    await end_run(bench, activity, minutes[2])
    head = await bench.settle(activity)
    assert head is not None
    passed = await bench.gate(activity, ids.time_key(head), "mine")
    assert (await bench.run(passed.run_id))["window_start"] == minutes[2]


async def test_r14_the_newest_are_caught_up_oldest_first_and_one_at_a_time(bench: Bench) -> None:
    rules = {"misfire_policy": "catchup", "catchup_limit": 3}
    activity, minutes = await bench.every_minute(due=40, grace_seconds=61, rules=rules)
    head = await bench.settle(activity)
    assert head is not None
    # the newest missed one is 38 or, for a second, 39 minutes after the first
    assert head in (minutes[35], minutes[36])
    rows = await bench.ledger(activity)
    assert {(row["outcome"], row["reason_code"]) for row in rows if row["scheduled_for"] < head} == {
        ("dropped", "over_limit")
    }
    for at in (head, head + MINUTE, head + 2 * MINUTE):
        assert await start(bench, activity, at + MINUTE) in ("later", "refused")
        assert await start(bench, activity, at) == "go"
        await end_run(bench, activity, at)
    late = [row["reason_code"] for row in await bench.ledger(activity) if row["outcome"] == "started"]
    assert late == ["late"] * 3
    assert await checker.broken(bench.database.dsn) == {}


async def test_r13_catch_up_is_asked_of_the_schedule_once(bench: Bench) -> None:
    rules = {"misfire_policy": "catchup", "catchup_limit": 1000}
    activity, minutes = await bench.every_minute(due=700, grace_seconds=61, rules=rules)
    settled = await bench.parts.settler.settle(activity, issue=True)
    assert settled is not None and settled.planned.issue == tuple(minutes[:500]), "five hundred in one call"
    again = await bench.parts.settler.settle(activity, issue=True)
    assert again is not None and (again.planned.issue, again.head) == ((), minutes[0]), "what was asked for still waits"
    assert again.planned.issued == 500
    await bench.sql(
        "UPDATE occurrences SET outcome = 'dropped', decided_at = now() WHERE activity_id = $1 AND issued", activity
    )
    rest = await bench.parts.settler.settle(activity, issue=True)
    assert rest is not None and rest.planned.issue[0] == minutes[500]
    for policy in ("skip", "compress"):
        other, _ = await bench.every_minute(due=9, grace_seconds=61, rules={"misfire_policy": policy})
        settled = await bench.parts.settler.settle(other, issue=True)
        assert settled is not None and settled.planned.issue == ()


async def test_r10_times_that_wait_at_an_edit_of_the_policy_keep_the_old_one(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=5, grace_seconds=61, rules={"misfire_policy": "compress"})
    record = await bench.activities.get(str(activity))
    await bench.replace(activity, trigger={**record.spec["trigger"], "misfire_policy": "skip"})
    assert {row["outcome"] for row in await bench.ledger(activity)} == {"waiting"}
    head = await bench.settle(activity)
    assert head is not None and head >= minutes[2]
    assert await start(bench, activity, head) == "go"
    assert (await bench.ledger(activity))[0]["outcome"] == "merged"


async def test_an_edit_of_the_expression_makes_no_past_time_due(bench: Bench) -> None:
    """Case B04."""
    for policy in ("skip", "catchup", "compress"):
        activity, _ = await bench.every_minute(due=1, grace_seconds=86_400, rules={"misfire_policy": policy})
        record = await bench.activities.get(str(activity))
        await bench.settle(activity)
        count = len(await bench.ledger(activity))
        await bench.replace(activity, trigger={**record.spec["trigger"], "cron": "*/7 3 * * *"})
        await bench.settle(activity)
        assert len(await bench.ledger(activity)) - count <= 1, "a minute that began meanwhile"


async def test_overlapping_runs_are_allowed_when_the_definition_says_so(bench: Bench) -> None:
    rules = {"misfire_policy": "catchup", "overlap_policy": "allow_all"}
    activity, minutes = await bench.every_minute(due=3, grace_seconds=86_400, rules=rules)
    settled = await bench.parts.settler.settle(activity)
    assert settled is not None
    assert [head.scheduled_for for head in settled.planned.plan.heads][:3] == minutes
    for at in (minutes[2], minutes[0], minutes[1]):
        assert await start(bench, activity, at) == "go"
    assert [row["outcome"] for row in await bench.ledger(activity)][:3] == ["started"] * 3
    assert await checker.broken(bench.database.dsn) == {}


async def test_r5_jitter_delays_the_start_and_never_the_nominal_time(bench: Bench) -> None:
    rules = {"misfire_policy": "skip", "jitter_seconds": 59}
    activity, minutes = await bench.every_minute(due=30, grace_seconds=86_400, rules=rules)
    settled = await bench.parts.settler.settle(activity)
    rows = await bench.ledger(activity)
    delays = [(row["due_at"] - row["scheduled_for"]).total_seconds() for row in rows]
    assert all(0 <= delay <= 59 for delay in delays) and len(set(delays)) > 25
    assert [row["scheduled_for"] for row in rows[:30]] == minutes
    assert settled is not None and settled.planned.plan.head == minutes[0]
    if rows[-1]["due_at"] > settled.through:
        assert settled.planned.due_next == rows[-1]["due_at"]
        assert await start(bench, activity, rows[-1]["scheduled_for"]) == "later"


async def test_a_single_instant_runs_once_and_a_past_one_is_refused(bench: Bench) -> None:
    ((now,),) = await bench.sql("SELECT date_trunc('second', clock_timestamp())")
    trigger = {"type": "once", "at": (now + timedelta(hours=1)).isoformat()}
    activity = await bench.create(trigger=trigger)
    await bench.sql(
        "UPDATE activity_revisions SET effective = jsonb_set(effective, '{trigger,at}', to_jsonb($2::text)) "
        "WHERE activity_id = $1",
        activity,
        now.isoformat(),
    )
    await bench.sql("UPDATE trigger_state SET settled_through = $2 WHERE activity_id = $1", activity, now - MINUTE)
    assert await bench.settle(activity) == now
    assert await start(bench, activity, now) == "go"
    (row,) = await bench.ledger(activity)
    assert (row["scheduled_for"], row["interval_start"]) == (now, None)
    assert await bench.settle(activity) is None
    (state,) = await bench.sql("SELECT next_due_at FROM trigger_state WHERE activity_id = $1", activity)
    assert state[0] is None
    with pytest.raises(InvalidInputError) as refused:
        await bench.create(trigger={"type": "once", "at": (now - timedelta(hours=1)).isoformat()})
    assert [fault.pointer for fault in refused.value.faults] == ["/trigger/at"]


async def test_case_e10_a_schedule_whose_end_has_passed_comes_back_with_a_later_end(bench: Bench) -> None:
    ((now,),) = await bench.sql("SELECT date_trunc('second', clock_timestamp())")
    trigger = {"type": "interval", "every_seconds": 3600, "end_at": (now - MINUTE).isoformat()}
    activity = await bench.create(trigger=trigger)
    schedules = bench.parts.schedules
    await schedules.sync_pending()
    assert await schedules.schedules.fingerprint(activity) is None
    await schedules.reconcile()
    record = await bench.activities.get(str(activity))
    assert record.observed_generation == record.generation
    later = {**trigger, "end_at": (now + timedelta(days=400)).isoformat()}
    await bench.replace(activity, trigger=later)
    await schedules.sync_pending()
    assert await schedules.schedules.fingerprint(activity) is not None
    for enabled in (False, True):
        await bench.replace(activity, enabled=enabled)
        await schedules.sync_pending()
    assert await schedules.schedules.fingerprint(activity) is not None


@pytest.mark.parametrize(
    ("rules", "overlap"),
    [
        ({"misfire_policy": "skip"}, "SKIP"),
        ({"misfire_policy": "catchup"}, "BUFFER_ONE"),
        ({"misfire_policy": "compress"}, "BUFFER_ONE"),
        ({}, "BUFFER_ONE"),
        ({"misfire_policy": "catchup", "overlap_policy": "allow_all"}, "ALLOW_ALL"),
    ],
)
async def test_r12_the_schedules_overlap_policy_follows_the_misfire_policy(
    bench: Bench, rules: dict[str, Any], overlap: str
) -> None:
    activity = await bench.create(trigger={"type": "interval", "every_seconds": 3600, **rules})
    await bench.parts.schedules.sync_pending()
    client = await bench.parts.temporal.client()
    described = await client.get_schedule_handle(ids.schedule_id(activity)).describe()
    assert described.schedule.policy.overlap.name == overlap
    assert described.schedule.spec.intervals[0].every == timedelta(hours=1)


async def test_i2_starts_at_once_from_everywhere_give_one_run_and_one_window(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=12, grace_seconds=61, rules={"misfire_policy": "compress"})
    keys = [ids.time_key(at) for at in minutes[:8] for _ in range(3)]
    passed = await asyncio.gather(*(bench.gate(activity, key, f"e-{n}") for n, key in enumerate(keys)))
    verdicts = Counter(one.verdict for one in passed)
    assert verdicts["go"] == 1, verdicts
    assert await checker.broken(bench.database.dsn) == {}


async def test_r22_a_long_outage_is_settled_in_parts_and_nothing_is_missing(bench: Bench) -> None:
    rules = {"misfire_policy": "compress"}
    activity, minutes = await bench.every_minute(due=25_000, grace_seconds=61, rules=rules)
    head = await bench.settle(activity)
    rows = await bench.ledger(activity)
    assert [row["scheduled_for"] for row in rows[:25_000]] == minutes
    assert head is not None and await start(bench, activity, head) == "go"
    assert (await bench.ledger(activity))[0]["outcome"] == "merged"


async def test_r10_an_edit_of_the_policy_drops_and_skips_nothing_that_the_old_rules_kept(bench: Bench) -> None:
    kept = {"misfire_policy": "catchup", "catchup_limit": 100}
    many, _ = await bench.every_minute(due=30, grace_seconds=61, rules=kept)
    patient, _ = await bench.every_minute(due=5, grace_seconds=3600)
    for activity in (many, patient):
        assert await bench.settle(activity) is not None
        record = await bench.activities.get(str(activity))
        trigger = {name: record.spec["trigger"][name] for name in ("type", "cron", "timezone")}
        await bench.replace(activity, trigger={**trigger, "misfire_policy": "compress", "misfire_grace_seconds": 30})
        await bench.settle(activity)
        assert {row["outcome"] for row in await bench.ledger(activity)} == {"waiting"}


async def test_r12_a_time_is_not_lost_to_a_run_whose_end_comes_to_be_known_late(bench: Bench) -> None:
    """It was terminated before the time was due, and reconcile finds out after it."""
    activity, minutes = await bench.every_minute(due=2, grace_seconds=86_400)
    passed = await bench.gate(activity, ids.time_key(minutes[0]), "x")
    began = minutes[1] - timedelta(seconds=30)
    await bench.sql("UPDATE activity_runs SET started_at = $2 WHERE run_id = $1", passed.run_id, began)
    assert await bench.settle(activity) is None
    async with bench.database.begin() as connection:
        await runs.end(
            connection,
            passed.run_id,
            status="terminated",
            result=None,
            reason="by hand",
            finished_at=minutes[1] - timedelta(seconds=5),
        )
    assert await bench.settle(activity) == minutes[1]


async def test_the_runs_of_events_that_an_activity_had_do_not_hold_up_its_times(bench: Bench) -> None:
    event_type = f"was.{uuid.uuid4().hex[:8]}"
    activity = await bench.on_event(event_type)
    await bench.occur(event_type, f"{event_type}-1")
    assert (await bench.gate(activity, f"{event_type}-1", "x")).verdict == "go"
    ((now,),) = await bench.sql("SELECT date_trunc('second', clock_timestamp())")
    trigger = {"type": "interval", "every_seconds": 86_400, "anchor": (now - timedelta(seconds=5)).isoformat()}
    await bench.replace(activity, trigger=trigger)
    await bench.sql(
        "UPDATE trigger_state SET settled_through = now() - interval '60 s' WHERE activity_id = $1", activity
    )
    assert await bench.settle(activity) == now - timedelta(seconds=5)


async def test_of_the_fires_that_catch_up_asked_for_each_runs_one(bench: Bench) -> None:
    rules = {"misfire_policy": "catchup", "catchup_limit": 3}
    activity, _ = await bench.every_minute(due=9, grace_seconds=61, rules=rules)
    steps = FireStepsImpl(bench.parts.settler, bench.parts.starting, bench.parts.schedules.schedules)
    ((now,),) = await bench.sql("SELECT date_trunc('second', clock_timestamp())")
    tick = ids.format_nominal(now)
    first = await steps.settle(SettleInput(str(activity), tick))
    assert len(first.issue) == 3
    again = await steps.settle(SettleInput(str(activity), tick))
    assert (again.issue, again.head, again.only_this) == ([], first.issue[0], True)
    by_poller = await steps.settle(SettleInput(str(activity), None))
    assert (by_poller.head, by_poller.only_this) == (first.issue[0], False), "that one runs them all"
    for time in first.issue[:2]:
        assert await start(bench, activity, ids.parse_nominal(time)) == "go"
        await end_run(bench, activity, ids.parse_nominal(time))
    last = await steps.settle(SettleInput(str(activity), tick))
    assert (last.head, last.only_this) == (first.issue[2], False)


async def test_the_poller_fires_a_head_once_and_not_too_many_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(await bench.every_minute(due=1, grace_seconds=86_400))[0] for _ in range(4)]
    poller = Poller(bench.database, bench.parts.settler, bench.parts.temporal)
    monkeypatch.setattr(poller_module, "MAX_FIRED", 3)

    async def fires() -> set[str]:
        client = await bench.parts.temporal.client()
        listed = client.list_workflows("WorkflowType = 'FireActivityWorkflow'")
        return {execution.id async for execution in listed if any(str(activity) in execution.id for activity in made)}

    async def fired(count: int) -> None:
        async def seen() -> bool:
            return len(await fires()) == count

        await eventually(seen, what=f"{count} fires")

    for activity in made:
        await poller.look(activity)
    for _ in range(3):
        await poller.fire_heads()
    await fired(3)
    names = await fires()
    waiting = next(activity for activity in made if not any(str(activity) in name for name in names))
    begun = next(activity for activity in made if activity != waiting)
    ((minute,),) = await bench.sql("SELECT min(scheduled_for) FROM occurrences WHERE activity_id = $1", begun)
    assert await start(bench, begun, minute) == "go"
    await poller.fire_heads()
    await fired(4)
