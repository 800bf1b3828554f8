"""Pauses, freezes and requests that wait, on a real Postgres."""

import asyncio
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest

from activity_core.domain import ids
from activity_core.errors import IdempotencyKeyReusedError, InvalidInputError
from activity_core.services.freezes import Freezes
from activity_core.services.pausing import Pausing
from activity_core.store import starts
from tests import checker
from tests.services.conftest import Bench


def pausing(bench: Bench) -> Pausing:
    return Pausing(bench.database, bench.definitions)


async def pause(bench: Bench, activity: uuid.UUID, **more: Any) -> None:
    await pausing(bench).pause(str(activity), **{"note": None, "until": None, "events": "run", **more})


async def claimed(bench: Bench) -> set[str]:
    async with bench.database.begin() as connection:
        return {claim.key for claim in await starts.claim(connection, limit=500, lease_seconds=0.0)}


async def clock(bench: Bench) -> datetime:
    ((now,),) = await bench.sql("SELECT clock_timestamp()")
    assert isinstance(now, datetime)
    return now


async def owe(bench: Bench, activity: uuid.UUID, minutes: int) -> None:
    """Let it be as if nobody had settled for so many minutes, and the pause or freeze had begun before."""
    for table, column in (("trigger_state", "settled_through"), ("pauses", "from_at")):
        await bench.sql(
            f"UPDATE {table} SET {column} = {column} - make_interval(mins => $2) WHERE activity_id = $1",
            activity,
            minutes,
        )


async def test_r22_times_under_a_pause_wait_and_resume_decides_them_by_their_policy(bench: Bench) -> None:
    for policy, outcomes in (
        ("skip", {("skipped", "late")}),
        ("catchup", {("dropped", "over_limit"), ("waiting", "due")}),
        ("compress", {("waiting", "due")}),
    ):
        rules = {"misfire_policy": policy, "catchup_limit": 2, "misfire_grace_seconds": 1}
        activity, _ = await bench.every_minute(due=0, rules=rules)
        await pause(bench, activity, note="moving house")
        await owe(bench, activity, 10)
        assert await bench.settle(activity) is None
        rows = await bench.ledger(activity)
        assert len(rows) >= 10 and {(row["outcome"], row["reason_code"]) for row in rows} == {("waiting", "paused")}
        assert "moving house" in rows[0]["reason"]
        resumed = await pausing(bench).resume(str(activity), on_misfire=None, events=None)
        assert (resumed.times, resumed.events) == (len(rows), 0)
        decided = [(row["outcome"], row["reason_code"]) for row in await bench.ledger(activity)][:10]
        assert set(decided) == outcomes, policy
        if policy != "skip":
            assert await bench.settle(activity) is not None
    assert await checker.broken(bench.database.dsn) == {}


async def test_resume_may_name_another_policy_for_what_waited(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=0, rules={"misfire_policy": "skip"}, grace_seconds=1)
    await pause(bench, activity)
    await owe(bench, activity, 5)
    await pausing(bench).resume(str(activity), on_misfire="compress", events=None)
    rows = await bench.ledger(activity)
    assert {row["outcome"] for row in rows[:5]} == {"waiting"}
    head = await bench.settle(activity)
    assert head is not None
    await bench.gate(activity, ids.time_key(head), "mine")
    assert {row["outcome"] for row in (await bench.ledger(activity))[:4]} == {"merged"}


async def test_a_pause_ends_by_itself_at_its_until(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=0, rules={"misfire_policy": "catchup"}, grace_seconds=1)
    until = await clock(bench) + timedelta(hours=1)
    await pause(bench, activity, until=until)
    await owe(bench, activity, 5)
    assert await bench.settle(activity) is None
    (state,) = await bench.sql(
        "SELECT next_due_at, hold_changes_at FROM trigger_state WHERE activity_id = $1", activity
    )
    assert state["hold_changes_at"] == until and state["next_due_at"] <= until
    past = await clock(bench) - timedelta(seconds=1)
    await bench.sql("UPDATE pauses SET until = $2 WHERE activity_id = $1", activity, past)
    assert await bench.settle(activity) is not None
    (ended,) = await bench.sql("SELECT ended_at FROM pauses WHERE activity_id = $1", activity)
    assert ended[0] == past
    assert {row["reason_code"] for row in await bench.ledger(activity)} == {"due"}
    with pytest.raises(InvalidInputError) as refused:
        await pause(bench, activity, until=past)
    assert [fault.pointer for fault in refused.value.faults] == ["/until"]


async def test_applying_the_definition_does_not_end_a_pause(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=0)
    await pause(bench, activity, note="n")
    await bench.replace(activity, name="another")
    await bench.replace(activity, enabled=False)
    await bench.replace(activity, enabled=True)
    record = await bench.activities.get(str(activity))
    held = (await pausing(bench).status([record]))[activity]
    assert held.pause is not None and held.pause.note == "n"


async def test_events_under_a_pause_wait_and_the_one_who_resumes_says_what_becomes_of_them(bench: Bench) -> None:
    for decision in ("run", "skip"):
        event_type = f"paused.{decision}"
        activity = await bench.on_event(event_type)
        await bench.occur(event_type, f"{decision}-before")
        await pause(bench, activity)
        await bench.occur(event_type, f"{decision}-1", f"{decision}-2")
        assert set(await bench.outcomes(activity)) == {("waiting", "paused")}
        keys = {f"{decision}-before", f"{decision}-1", f"{decision}-2"}
        assert not keys & await claimed(bench)
        for key in keys:
            assert (await bench.gate(activity, key, "x")).verdict == "later"
            begun = await bench.parts.runs.begin(activity, key, "x")
            assert begun.verdict == "later"
        with pytest.raises(InvalidInputError) as refused:
            await pausing(bench).resume(str(activity), on_misfire=None, events=None)
        assert [(fault.pointer, "3 events" in fault.message) for fault in refused.value.faults] == [("/events", True)]
        resumed = await pausing(bench).resume(str(activity), on_misfire=None, events=decision)
        assert resumed.events == 3
        if decision == "run":
            assert keys <= await claimed(bench)
        else:
            assert {row[0] for row in await bench.outcomes(activity)} == {"skipped"}
            assert (await bench.gate(activity, "skip-1", "x")).verdict == "refused"


async def test_manual_requests_run_while_paused(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=0)
    await pause(bench, activity)
    asked = await bench.triggering.trigger(str(activity), params=None, on_overlap=None, idempotency_key="now")
    assert "manual:now" in await claimed(bench)
    assert (await bench.gate(activity, "manual:now", "x")).verdict == "go"
    assert (await bench.run(asked.run_id))["triggered_by"] == "manual"


async def test_a_freeze_holds_whatever_its_selector_matches_also_what_is_made_or_labelled_later(bench: Bench) -> None:
    freezes = Freezes(bench.database)
    label = f"t{uuid.uuid4().hex[:8]}"
    event_type = f"frozen.{label}"
    held = await bench.on_event(event_type, labels={"team": label})
    free = await bench.on_event(event_type, labels={"team": "other"})
    await bench.occur(event_type, f"{label}-0")
    frozen = await freezes.create(
        f"team={label}", note="audit", from_at=None, until=None, on_misfire=None, events="run"
    )
    assert (frozen.active, frozen.matches) == (True, 1)
    later, _ = await bench.every_minute(due=0, labels={"team": label})
    await bench.replace(free, labels={"team": label})
    await bench.occur(event_type, f"{label}-1")
    for activity in (held, free):
        assert (await bench.outcomes(activity))[-1] == ("waiting", "frozen")
    assert (await bench.outcomes(held))[0] == ("waiting", "frozen")
    await owe(bench, later, 3)
    assert await bench.settle(later) is None
    assert {row["reason_code"] for row in await bench.ledger(later)} == {"frozen"}
    ended = await freezes.end(frozen.freeze.id)
    assert not ended.active and (await freezes.end(frozen.freeze.id)).freeze.ended_at == ended.freeze.ended_at
    for activity in (held, free, later):
        await bench.settle(activity)
    assert {f"{label}-0", f"{label}-1"} <= await claimed(bench)
    assert {row["reason_code"] for row in await bench.ledger(later)} <= {"due", "late", "compressed"}


async def test_events_that_only_the_router_saw_under_a_freeze_are_let_go_after_it(bench: Bench) -> None:
    freezes = Freezes(bench.database)
    label = f"t{uuid.uuid4().hex[:8]}"
    activity = await bench.on_event(f"routed.{label}", labels={"team": label})
    ahead = await clock(bench) + timedelta(hours=1)
    frozen = await freezes.create(f"team={label}", note=None, from_at=ahead, until=None, on_misfire=None, events="run")
    await bench.sql("UPDATE freezes SET from_at = now() - interval '1 s' WHERE id = $1", frozen.freeze.id)
    await bench.sql("UPDATE trigger_state SET hold_changes_at = now() WHERE activity_id = $1", activity)
    await bench.occur(f"routed.{label}", f"{label}-1")
    assert await bench.outcomes(activity) == [("waiting", "frozen")]
    await freezes.end(frozen.freeze.id)
    await bench.settle(activity)
    assert f"{label}-1" in await claimed(bench)


async def test_a_freeze_to_come_begins_and_ends_at_its_instants(bench: Bench) -> None:
    freezes = Freezes(bench.database)
    label = f"t{uuid.uuid4().hex[:8]}"
    activity, _ = await bench.every_minute(
        due=0, labels={"team": label}, grace_seconds=1, rules={"misfire_policy": "compress"}
    )
    now = await clock(bench)
    frozen = await freezes.create(
        f"team={label}",
        note=None,
        from_at=now + timedelta(hours=1),
        until=now + timedelta(hours=2),
        on_misfire="skip",
        events="run",
    )
    assert not frozen.active
    await owe(bench, activity, 2)
    assert await bench.settle(activity) is not None, "it has not begun"
    (state,) = await bench.sql("SELECT hold_changes_at FROM trigger_state WHERE activity_id = $1", activity)
    assert state[0] == now + timedelta(hours=1)
    await bench.sql("UPDATE freezes SET from_at = now() - interval '1 h' WHERE id = $1", frozen.freeze.id)
    await bench.sql("UPDATE trigger_state SET hold_changes_at = now() WHERE activity_id = $1", activity)
    assert await bench.settle(activity) is None
    await bench.sql("UPDATE freezes SET until = now() - interval '1 s' WHERE id = $1", frozen.freeze.id)
    await bench.settle(activity)
    assert {(row["outcome"], row["reason_code"]) for row in (await bench.ledger(activity))[:2]} == {("skipped", "late")}
    with pytest.raises(InvalidInputError):
        await freezes.create("team", note=None, from_at=now, until=now, on_misfire=None, events="run")
    with pytest.raises(InvalidInputError) as refused:
        await freezes.create("team in (a)", note=None, from_at=None, until=None, on_misfire=None, events="run")
    assert [fault.pointer for fault in refused.value.faults] == ["/selector"]


async def test_i9_freezes_and_definitions_written_at_once_wait_for_each_other_and_none_is_missed(bench: Bench) -> None:
    freezes = Freezes(bench.database)
    label = f"t{uuid.uuid4().hex[:8]}"
    made = [await bench.on_event(f"race.{label}", labels={"team": "other"}) for _ in range(6)]

    async def freeze() -> None:
        for n in range(25):
            await freezes.create(
                f"team={label},!no{n}", note=None, from_at=None, until=None, on_misfire=None, events="run"
            )

    async def relabel(activity: uuid.UUID) -> None:
        for _ in range(8):
            await bench.replace(activity, labels={"team": "other"})
            await bench.replace(activity, labels={"team": label})

    await asyncio.gather(freeze(), *(relabel(activity) for activity in made))
    later = await bench.on_event(f"race.{label}", labels={"team": label})
    await bench.occur(f"race.{label}", f"{label}-1")
    for activity in (*made, later):
        assert await bench.outcomes(activity) == [("waiting", "frozen")]


async def test_a_pause_under_a_freeze_and_the_other_way_round_hold_until_both_have_ended(bench: Bench) -> None:
    freezes = Freezes(bench.database)
    label = f"t{uuid.uuid4().hex[:8]}"
    activity, _ = await bench.every_minute(due=0, labels={"team": label}, rules={"misfire_policy": "compress"})
    frozen = await freezes.create(label_of(label), note=None, from_at=None, until=None, on_misfire=None, events="run")
    await pause(bench, activity)
    await owe(bench, activity, 4)
    await bench.settle(activity)
    await pausing(bench).resume(str(activity), on_misfire=None, events=None)
    assert await bench.settle(activity) is None
    assert {row["reason_code"] for row in await bench.ledger(activity)} == {"frozen"}
    await freezes.end(frozen.freeze.id)
    assert await bench.settle(activity) is not None


def label_of(label: str) -> str:
    return f"team={label},!exempt"


async def test_a_request_may_wait_for_the_open_run_and_those_before_it(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=1, grace_seconds=86_400)
    running = await bench.gate(activity, ids.time_key(minutes[0]), "a")
    first, second = [
        await bench.triggering.trigger(str(activity), params=None, on_overlap="wait", idempotency_key=f"wait-{n}")
        for n in range(2)
    ]
    assert (await bench.gate(activity, "manual:wait-0", "b")).verdict == "later"
    await bench.parts.runs.end(running.run_id, "completed", "done")
    assert (await bench.gate(activity, "manual:wait-1", "c")).verdict == "later", "the first one first"
    assert (await bench.gate(activity, "manual:wait-0", "b")).verdict == "go"
    assert (await bench.gate(activity, "manual:wait-1", "c")).verdict == "later"
    await bench.parts.runs.end(first.run_id, "completed", "done")
    assert (await bench.gate(activity, "manual:wait-1", "c")).verdict == "go"
    assert (await bench.run(second.run_id))["window_end"] is not None


async def test_a_rerun_sees_the_window_of_the_original(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=6, grace_seconds=61, rules={"misfire_policy": "compress"})
    head = await bench.settle(activity)
    assert head is not None
    original = await bench.gate(activity, ids.time_key(head), "mine")
    await bench.parts.runs.end(original.run_id, "failed", "for the test")
    await bench.replace(activity, name="mended")
    for original_revision, revision in ((False, 2), (True, 1)):
        key = f"again-{revision}"
        asked = await bench.triggering.rerun(
            original.run_id, original_revision=original_revision, on_overlap="allow", idempotency_key=key
        )
        assert (await bench.gate(activity, f"manual:{key}", "x")).verdict == "go"
        run, first = await bench.run(asked.run_id), await bench.run(original.run_id)
        for name in ("window_start", "window_end", "covers"):
            assert run[name] == first[name], name
        assert (run["revision"], run["triggered_by"], run["scheduled_for"]) == (revision, "rerun", None)
    assert await checker.broken(bench.database.dsn) == {}


async def test_a_rerun_of_an_event_sees_the_event(bench: Bench) -> None:
    activity = await bench.on_event("rerun.me")
    await bench.occur("rerun.me", "rerun-1")
    original = await bench.gate(activity, "rerun-1", "a")
    asked = await bench.triggering.rerun(
        original.run_id, original_revision=False, on_overlap=None, idempotency_key="rerun-1-again"
    )
    assert (await bench.gate(activity, "manual:rerun-1-again", "b")).verdict == "go"
    run, first = await bench.run(asked.run_id), await bench.run(original.run_id)
    assert run["event_uuid"] == first["event_uuid"] is not None
    assert await checker.broken(bench.database.dsn) == {}


async def test_r22_a_freeze_that_nobody_saw_begin_nor_end_has_held_all_the_same(bench: Bench) -> None:
    label = f"t{uuid.uuid4().hex[:8]}"
    activity, _ = await bench.every_minute(
        due=0, labels={"team": label}, grace_seconds=1, rules={"misfire_policy": "catchup"}
    )
    now = await clock(bench)
    frozen = await Freezes(bench.database).create(
        f"team={label}",
        note=None,
        from_at=now + timedelta(hours=1),
        until=now + timedelta(hours=2),
        on_misfire="skip",
        events="run",
    )
    await bench.sql(
        "UPDATE freezes SET from_at = now() - interval '9 min', until = now() - interval '3 min' WHERE id = $1",
        frozen.freeze.id,
    )
    await bench.sql(
        "UPDATE trigger_state SET settled_through = now() - interval '10 min', hold_changes_at = now() - interval '9 min' "
        "WHERE activity_id = $1",
        activity,
    )
    assert await bench.settle(activity) is not None
    rows = await bench.ledger(activity)
    inside = [row for row in rows if row["scheduled_for"] <= now - timedelta(minutes=3, seconds=5)]
    after = [row for row in rows if row["scheduled_for"] > now - timedelta(minutes=3)]
    assert len(inside) >= 6 and {row["outcome"] for row in inside} == {"skipped"}
    assert after and {row["outcome"] for row in after} == {"waiting"}


async def test_what_resume_says_holds_although_a_freeze_goes_on(bench: Bench) -> None:
    freezes = Freezes(bench.database)
    label = f"t{uuid.uuid4().hex[:8]}"
    timed, _ = await bench.every_minute(
        due=0, labels={"team": label}, grace_seconds=1, rules={"misfire_policy": "catchup"}
    )
    evented = await bench.on_event(f"both.{label}", labels={"team": label})
    for activity in (timed, evented):
        await pause(bench, activity)
    await owe(bench, timed, 5)
    await bench.settle(timed)
    await bench.occur(f"both.{label}", f"{label}-1")
    frozen = await freezes.create(f"team={label}", note=None, from_at=None, until=None, on_misfire=None, events="run")
    for activity in (timed, evented):
        await pausing(bench).resume(str(activity), on_misfire="skip", events="skip")
    await bench.occur(f"both.{label}", f"{label}-2")
    assert [row["outcome"] for row in await bench.ledger(timed)][:5] == ["waiting"] * 5, "the freeze holds them"
    await freezes.end(frozen.freeze.id)
    for activity in (timed, evented):
        await bench.settle(activity)
    assert {row["outcome"] for row in (await bench.ledger(timed))[:5]} == {"skipped"}
    assert [outcome for outcome, _ in await bench.outcomes(evented)] == ["skipped", "waiting"]
    assert await claimed(bench) & {f"{label}-1", f"{label}-2"} == {f"{label}-2"}


async def test_r22_rows_tell_of_the_pause_as_it_is_by_now(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=0)
    await pause(bench, activity, note="moving house")
    await owe(bench, activity, 3)
    await bench.settle(activity)
    await pause(bench, activity, note="flood", until=await clock(bench) + timedelta(hours=1))
    rows = await bench.ledger(activity)
    assert rows and all("flood" in row["reason"] and " until 20" in row["reason"] for row in rows)


async def test_a_freeze_asked_for_twice_with_one_key_is_one_freeze(bench: Bench) -> None:
    freezes = Freezes(bench.database)
    label = f"team=t{uuid.uuid4().hex[:8]}"
    asked: dict[str, Any] = {"note": "n", "from_at": None, "until": None, "on_misfire": None, "events": "run"}
    first, again = [await freezes.create(label, **asked, idempotency_key=label) for _ in range(2)]
    assert first.freeze == again.freeze
    with pytest.raises(IdempotencyKeyReusedError):
        await freezes.create(label, **{**asked, "events": "skip"}, idempotency_key=label)
    assert (await freezes.create(label, **asked)).freeze.id != first.freeze.id


async def test_i9_a_request_that_waits_takes_no_place_and_goes_before_what_is_due_after_it(bench: Bench) -> None:
    activity, _ = await bench.every_minute(due=0, grace_seconds=86_400, rules={"misfire_policy": "catchup"})
    running = await bench.triggering.trigger(str(activity), params=None, on_overlap=None, idempotency_key="r-0")
    assert (await bench.gate(activity, "manual:r-0", "a")).verdict == "go"
    for n in range(3):
        await bench.triggering.trigger(str(activity), params=None, on_overlap="wait", idempotency_key=f"w-{n}")
    mine = {f"manual:w-{n}" for n in range(3)}
    assert not mine & await claimed(bench)
    rows = [row for row in await bench.outcomes(activity) if row[0] == "waiting"]
    assert rows == [("waiting", "overlap")] * 3
    await bench.sql(
        "UPDATE occurrences SET due_at = due_at - interval '1 h' WHERE activity_id = $1 AND kind = 'manual'", activity
    )
    await owe(bench, activity, 3)
    await bench.parts.runs.end(running.run_id, "completed", "done")
    assert mine & await claimed(bench) == {"manual:w-0"}, "one at a time, the oldest first"
    assert await bench.settle(activity) is None, "times wait for it"
    (state,) = await bench.sql("SELECT next_due_at FROM trigger_state WHERE activity_id = $1", activity)
    assert state[0] is not None
    for n in range(3):
        assert (await bench.gate(activity, f"manual:w-{n}", "b")).verdict == "go"
        await bench.parts.runs.end(ids.run_id(bench.workflow_id(activity, f"manual:w-{n}")), "completed", "done")
    assert await bench.settle(activity) is not None
