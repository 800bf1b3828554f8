"""Backfills that a user asks for, on a real Postgres: what is planned and written, and what becomes of what waits."""

import asyncio
import uuid
from collections import Counter
from datetime import timedelta

import pytest

from activity_core.domain import ids
from activity_core.domain.backfill import BEFORE_CREATION, WHILE_DISABLED
from activity_core.errors import (
    ActivityDisabledError,
    GoneError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    NotFoundError,
)
from activity_core.services.pausing import Pausing
from tests.services.backfilled import (
    DAY,
    MINUTE,
    PAST,
    RARE,
    ask,
    backfilling,
    begun,
    cancelled,
    hourly,
    on_hours,
    shown,
    skipped_minutes,
    view,
)
from tests.services.conftest import Bench
from tests.stack import eventually


async def test_a_dry_run_tells_the_plan_and_writes_nothing(bench: Bench) -> None:
    activity = await on_hours(bench)
    before = await bench.ledger(activity)
    made = await ask(bench, activity, PAST, PAST + timedelta(hours=3), dry_run=True)
    assert (made.id, shown(made)) == (None, (0, 3, 0))
    assert [item.scheduled_for for item in made.items] == [PAST + timedelta(hours=n) for n in range(3)]
    assert {(item.action, item.outcome, item.reason) for item in made.items} == {("add", None, BEFORE_CREATION)}
    assert await bench.ledger(activity) == before
    assert (await backfilling(bench).listed(activity, cursor=None, limit=10)).items == []


async def test_r22_times_before_the_creation_are_added_with_a_window_each(bench: Bench) -> None:
    activity = await on_hours(bench)
    backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=3))
    rows = await bench.ledger(activity)
    assert [row["key"] for row in rows] == [f"2025-06-02T0{hour}:00:00+00:00" for hour in range(3)]
    for row in rows:
        assert (row["outcome"], row["reason_code"], row["triggered_by"]) == ("waiting", "due", "backfill")
        assert (row["plan_as"], row["backfill_id"], row["revision"], row["history"]) == ("run", backfill, 1, "[]")
        assert row["due_at"] == row["scheduled_for"]
        assert row["interval_start"] == row["scheduled_for"] - timedelta(hours=1)
    (state,) = await bench.sql(
        "SELECT next_due_at < now() - interval '2 s' AS looked_at, last_nominal FROM trigger_state WHERE activity_id = $1",
        activity,
    )
    assert state["looked_at"], "by the poller, at once"
    assert state["last_nominal"] is None, "the window of the next time due is what it was to be"


async def test_skipped_times_are_reopened_and_their_history_is_kept(bench: Bench) -> None:
    activity, minutes = await skipped_minutes(bench, 4)
    old = {row["scheduled_for"]: row for row in await bench.ledger(activity)}
    made = await ask(bench, activity, minutes[1], minutes[3])
    assert shown(made) == (2, 0, 0)
    assert [(item.scheduled_for, item.outcome, item.interval_start) for item in made.items] == [
        (minute, "skipped", minute - MINUTE) for minute in minutes[1:3]
    ]
    rows = {row["scheduled_for"]: row for row in await bench.ledger(activity)}
    assert {minute: rows[minute]["outcome"] for minute in minutes} == dict(
        zip(minutes, ("skipped", "waiting", "waiting", "skipped"), strict=True)
    )
    for minute in minutes[1:3]:
        row, was = rows[minute], old[minute]
        assert (row["plan_as"], row["backfill_id"], row["decided_at"], row["issued"]) == ("run", made.id, None, False)
        assert (row["revision"], row["interval_start"], row["id"], row["triggered_by"]) == (
            *(was["revision"], was["interval_start"], was["id"]),
            "schedule",
        )
        (query,) = await bench.sql(
            "SELECT history->0->>'outcome', history->0->>'reason_code', history->0->>'reason', "
            "(history->0->>'decided_at')::timestamptz, jsonb_array_length(history) FROM occurrences WHERE id = $1",
            row["id"],
        )
        assert tuple(query) == ("skipped", "late", was["reason"], was["decided_at"], 1)


async def test_r14_times_dropped_over_the_limit_are_reopened(bench: Bench) -> None:
    rules = {"misfire_policy": "catchup", "catchup_limit": 2}
    activity, minutes = await bench.every_minute(due=8, grace_seconds=1, rules=rules)

    async def dropped() -> bool:
        await bench.settle(activity)
        return Counter(await bench.outcomes(activity))[("dropped", "over_limit")] >= 6

    await eventually(dropped)
    made = await ask(bench, activity, minutes[0], minutes[4])
    assert shown(made) == (4, 0, 0)
    head = await bench.settle(activity)
    assert head is not None and head > minutes[4], "what is due now runs before what is backfilled"
    reopened = [row for row in await bench.ledger(activity) if row["backfill_id"] == made.id]
    assert [row["outcome"] for row in reopened] == ["waiting"] * 4, "no limit is theirs"
    assert made.id is not None
    await cancelled(bench, made.id)
    assert set((await bench.outcomes(activity))[:6]) == {("dropped", "over_limit")}


async def test_a_time_with_jitter_is_of_the_range_of_its_nominal_instant(bench: Bench) -> None:
    second = timedelta(seconds=1)
    activity, _ = await bench.every_minute(due=20, rules={"jitter_seconds": 59})
    await bench.settle(activity)
    await bench.replace(activity, trigger=RARE)
    rows = [row for row in (await bench.ledger(activity))[1:15] if row["due_at"] > row["scheduled_for"] + 2 * second]
    first, last = rows[0]["scheduled_for"], rows[-1]["scheduled_for"]
    assert first < last, "both are due seconds after their nominal instant"
    # as if the first one in the range had never been due
    await bench.sql("DELETE FROM occurrences WHERE activity_id = $1 AND scheduled_for = $2", activity, first + MINUTE)
    made = await ask(bench, activity, first + second, last + second, dry_run=True)
    expected = [first + n * MINUTE for n in range(1, int((last - first) / MINUTE) + 1)]
    assert [item.scheduled_for for item in made.items] == expected
    assert [item.action for item in made.items] == ["add", *["reopen"] * (len(expected) - 1)]
    assert [item.interval_start for item in made.items] == [time - MINUTE for time in expected]
    # the hole is no fault that the checker should find
    await bench.sql("DELETE FROM occurrences WHERE activity_id = $1", activity)


async def test_what_waited_when_the_activity_was_disabled_is_reopened_and_what_was_never_due_is_added(
    bench: Bench,
) -> None:
    """Two minutes waited and were given up, more came while it was disabled; then it was enabled again."""
    activity, minutes = await bench.every_minute(due=6, grace_seconds=86_400)
    await bench.settle(activity)
    await bench.replace(activity, enabled=False)
    # as if it had been disabled after the second of these minutes
    since = minutes[1] + timedelta(seconds=30)
    await bench.sql(
        "UPDATE activity_revisions SET in_force_from = $2 WHERE activity_id = $1 AND revision = 1",
        activity,
        since - DAY,
    )
    await bench.sql("DELETE FROM occurrences WHERE activity_id = $1 AND scheduled_for > $2", activity, since)
    await bench.sql(
        "UPDATE activity_revisions SET in_force_until = $2 WHERE activity_id = $1 AND revision = 1", activity, since
    )
    await bench.sql(
        "UPDATE activity_revisions SET in_force_from = $2 WHERE activity_id = $1 AND revision = 2", activity, since
    )
    await bench.sql("UPDATE trigger_state SET last_nominal = $2 WHERE activity_id = $1", activity, minutes[1])
    await bench.replace(activity, enabled=True)
    made = await ask(bench, activity, minutes[0], minutes[4])
    assert [(item.action, item.outcome, item.revision) for item in made.items] == [
        ("reopen", "disabled", None),
        ("reopen", "disabled", None),
        ("add", None, 2),
        ("add", None, 2),
    ]
    assert {item.reason for item in made.items[2:]} == {WHILE_DISABLED}
    assert [item.interval_start for item in made.items[2:]] == minutes[1:3], "each from the time before it"
    coming = made.items[2].overlaps
    assert coming is not None and coming > minutes[-1], "the window of the next one to come was to be theirs"
    assert {item.overlaps for item in made.items} == {None, coming}
    rows = {row["scheduled_for"]: row for row in await bench.ledger(activity)}
    assert [rows[minute]["revision"] for minute in minutes[:4]] == [1, 1, 2, 2]


async def test_an_edited_cron_makes_no_past_time_due(bench: Bench) -> None:
    activity, minutes = await skipped_minutes(bench, 5)
    await bench.replace(activity, trigger=hourly())
    made = await ask(bench, activity, minutes[0], minutes[4], dry_run=True)
    assert shown(made) == (4, 0, 0)
    await bench.replace(activity, trigger={**hourly(), "cron": "*/2 * * * *"})
    assert shown(await ask(bench, activity, minutes[0], minutes[4], dry_run=True)) == (4, 0, 0)


async def test_nothing_to_run_is_no_backfill(bench: Bench) -> None:
    activity = await on_hours(bench)
    made = await ask(bench, activity, PAST + MINUTE, PAST + 2 * MINUTE)
    assert (made.id, shown(made), list(made.items)) == (None, (0, 0, 0), [])
    manual = await bench.create(trigger={"type": "manual"})
    assert (await ask(bench, manual, PAST, PAST + timedelta(days=1))).id is None
    assert (await backfilling(bench).listed(activity, cursor=None, limit=10)).items == []


async def test_only_past_times_are_backfilled_and_not_too_many(bench: Bench) -> None:
    activity = await on_hours(bench)
    ((now,),) = await bench.sql("SELECT clock_timestamp()")
    for start, end, word in (
        (PAST, PAST, "after"),
        (PAST, PAST - MINUTE, "after"),
        (PAST, now + MINUTE, "past"),
        (PAST - timedelta(days=417), PAST, "narrow"),
    ):
        with pytest.raises(InvalidInputError) as refused:
            await ask(bench, activity, start, end)
        (fault,) = refused.value.faults
        assert (fault.pointer, word in fault.message) == ("/to", True), fault.message
    assert await bench.ledger(activity) == []
    assert shown(await ask(bench, activity, PAST - timedelta(hours=9_999), PAST, dry_run=True)) == (0, 9_999, 0)


async def test_a_range_with_more_rows_than_a_backfill_takes_is_refused(bench: Bench) -> None:
    activity, minutes = await bench.every_minute(due=10_002)
    await bench.settle(activity)
    with pytest.raises(InvalidInputError, match="narrow"):
        await ask(bench, activity, minutes[0], minutes[-1])
    made = await ask(bench, activity, minutes[0], minutes[-10])
    assert shown(made) == (9_992, 0, 0)
    assert len(made.items) == 500 and made.items[0].scheduled_for == minutes[0]
    assert made.id is not None
    assert await view(bench, made.id) == {"waiting": 9_992}
    assert dict((await cancelled(bench, made.id)).counts) == {"cancelled": 9_992}


async def test_a_disabled_an_unknown_and_a_deleted_activity_are_refused(bench: Bench) -> None:
    activity = await on_hours(bench)
    await bench.replace(activity, enabled=False)
    for dry_run in (True, False):
        with pytest.raises(ActivityDisabledError):
            await ask(bench, activity, PAST, PAST + MINUTE, dry_run=dry_run)
    await bench.activities.delete(str(activity), if_match=None)
    with pytest.raises(GoneError):
        await ask(bench, activity, PAST, PAST + MINUTE)
    with pytest.raises(NotFoundError):
        await ask(bench, uuid.uuid4(), PAST, PAST + MINUTE)
    for call in (backfilling(bench).get, backfilling(bench).cancel):
        with pytest.raises(NotFoundError):
            await call(uuid.uuid4())


async def test_the_same_key_is_answered_as_before_and_begins_nothing_more(bench: Bench) -> None:
    activity, other = await on_hours(bench), await on_hours(bench)
    key, end = f"key-{uuid.uuid4()}", PAST + timedelta(hours=2)
    asked = await asyncio.gather(*(ask(bench, activity, PAST, end, key=key) for _ in range(5)))
    assert len({one.id for one in asked}) == 1 and asked[0].id is not None
    assert all(one == asked[0] for one in asked)
    assert len((await backfilling(bench).listed(activity, cursor=None, limit=10)).items) == 1
    with pytest.raises(IdempotencyKeyReusedError):
        await ask(bench, activity, PAST, end + MINUTE, key=key)
    with pytest.raises(IdempotencyKeyReusedError):
        await ask(bench, other, PAST, end, key=key)
    assert (await ask(bench, activity, PAST, end, dry_run=True, key=key)).counts["leave"] == 2, "a dry run acts not"


async def test_r16_backfills_at_once_ask_for_each_time_once(bench: Bench) -> None:
    activity, minutes = await skipped_minutes(bench, 6)
    start, end = minutes[0] - 4 * MINUTE, minutes[-1]
    made = await asyncio.gather(*(ask(bench, activity, start, end) for _ in range(8)))
    assert Counter(shown(one) for one in made) == {(5, 4, 0): 1, (0, 0, 9): 7}
    assert [one.id is not None for one in made].count(True) == 1
    (first,) = [one.id for one in made if one.id is not None]
    rows = [row for row in await bench.ledger(activity) if row["scheduled_for"] < end]
    assert [row["scheduled_for"] for row in rows] == [start + n * MINUTE for n in range(9)]
    assert {(row["outcome"], row["backfill_id"]) for row in rows} == {("waiting", first)}
    assert {len(row["history"]) > 2 for row in rows[4:]} == {True}


# What becomes of what waits


async def test_r22_cancelled_times_go_back_to_what_they_were_and_may_be_asked_for_again(bench: Bench) -> None:
    activity, minutes = await skipped_minutes(bench, 3)
    start, end = minutes[0] - 2 * MINUTE, minutes[2]
    before = await bench.ledger(activity)
    first = await begun(bench, activity, start, end)
    made = await cancelled(bench, first)
    assert dict(made.counts) == {"cancelled": 4} and made.record.cancelled_at is not None
    rows = await bench.ledger(activity)
    told = [(row["outcome"], row["reason_code"]) for row in rows if row["scheduled_for"] < end]
    assert told == [("skipped", "backfill_cancelled")] * 2 + [("skipped", "late")] * 2
    reasons = {row["scheduled_for"]: row["reason"] for row in before}
    assert all(row["reason"] == reasons[row["scheduled_for"]] for row in rows[2:])
    assert {row["decided_at"] for row in rows[:4]} == {made.record.cancelled_at}
    assert await cancelled(bench, first) == made, "cancelling twice is answered the same"

    second = await ask(bench, activity, start, end)
    assert shown(second) == (4, 0, 0)
    assert second.id is not None and await view(bench, second.id) == {"waiting": 4}
    assert await view(bench, first) == {"cancelled": 4}, "what the first one came to does not change"
    assert await cancelled(bench, first) == made, "and it cancels nothing of the second"
    assert await view(bench, second.id) == {"waiting": 4}
    await cancelled(bench, second.id)
    again = await bench.ledger(activity)
    assert [(row["outcome"], row["reason_code"], row["reason"]) for row in again] == [
        (row["outcome"], row["reason_code"], row["reason"]) for row in rows
    ]
    history = await bench.sql(
        "SELECT ARRAY(SELECT entry->>'outcome' FROM jsonb_array_elements(history) entry) FROM occurrences "
        "WHERE activity_id = $1 AND scheduled_for < $2 ORDER BY scheduled_for",
        *(activity, end),
    )
    added, reopened = ["waiting", "skipped", "waiting"], ["skipped", "waiting", "skipped", "waiting"]
    assert [row[0] for row in history] == [added, added, reopened, reopened]


async def test_what_waits_when_the_activity_ends_is_counted_as_what_it_became(bench: Bench) -> None:
    activity = await on_hours(bench)
    first = await begun(bench, activity, PAST, PAST + timedelta(hours=2))
    await bench.replace(activity, enabled=False)
    assert await view(bench, first) == {"disabled": 2}
    assert dict((await cancelled(bench, first)).counts) == {"disabled": 2}, "there is nothing left to give back"
    await bench.replace(activity, enabled=True)
    second = await begun(bench, activity, PAST, PAST + timedelta(hours=2))
    assert (await view(bench, first), await view(bench, second)) == ({"disabled": 2}, {"waiting": 2})
    await bench.activities.delete(str(activity), if_match=None)
    assert await view(bench, second) == {"deleted": 2}


async def test_backfills_are_listed_newest_first_and_in_pages(bench: Bench) -> None:
    activity = await on_hours(bench)
    made = [await begun(bench, activity, PAST + timedelta(hours=n), PAST + timedelta(hours=n + 1)) for n in range(3)]
    first = await backfilling(bench).listed(activity, cursor=None, limit=2)
    assert [item.record.id for item in first.items] == [made[2], made[1]] and first.next_cursor is not None
    assert [dict(item.counts) for item in first.items] == [{"waiting": 1}] * 2


async def test_a_pause_holds_what_is_backfilled_and_resume_lets_it_run_whatever_it_says_of_misfires(
    bench: Bench,
) -> None:
    activity, minutes = await bench.every_minute(due=3, grace_seconds=1, rules={"misfire_policy": "compress"})
    pausing = Pausing(bench.database, bench.definitions)
    await pausing.pause(str(activity), note="moving house", until=None, events="run")
    made = await ask(bench, activity, PAST, PAST + 2 * MINUTE)
    assert shown(made) == (0, 2, 0)
    assert made.held is not None and "moving house" in made.held
    assert await bench.settle(activity) is None
    rows = (await bench.ledger(activity))[:2]
    assert [(row["backfill_id"], row["outcome"], row["reason_code"], row["reason"]) for row in rows] == [
        (made.id, "waiting", "paused", made.held)
    ] * 2
    await pausing.resume(str(activity), on_misfire="skip", events=None)
    await bench.replace(activity, trigger=RARE)
    rows = await bench.ledger(activity)
    assert [(row["outcome"], row["reason_code"], row["plan_as"]) for row in rows[:2]] == [("waiting", "due", "run")] * 2
    told = {row["scheduled_for"]: (row["outcome"], row["plan_as"]) for row in rows}
    assert {told[minute] for minute in minutes[:2]} == {("skipped", "skip")}, "as it says of what was missed"


async def test_a_backfill_that_waits_when_the_activity_is_paused_is_not_touched_by_resume_either(bench: Bench) -> None:
    activity = await on_hours(bench)
    backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=2))
    pausing = Pausing(bench.database, bench.definitions)
    for on_misfire in ("skip", "catchup", "compress", None):
        await pausing.pause(str(activity), note=None, until=None, events="run")
        assert {row["reason_code"] for row in await bench.ledger(activity)} == {"paused"}
        await pausing.resume(str(activity), on_misfire=on_misfire, events=None)
        rows = await bench.ledger(activity)
        assert {(row["plan_as"], row["outcome"], row["reason_code"]) for row in rows} == {("run", "waiting", "due")}
    assert await bench.settle(activity) == PAST
    assert await view(bench, backfill) == {"waiting": 2}


async def test_where_the_trigger_has_no_times_any_more_past_ones_run_by_the_revision_that_had_them(
    bench: Bench,
) -> None:
    activity, minutes = await skipped_minutes(bench, 2)
    await bench.replace(activity, trigger={"type": "event", "event_types": ["no.more"]})
    made = await ask(bench, activity, minutes[0] - MINUTE, minutes[1])
    assert shown(made) == (1, 1, 0)
    assert await bench.settle(activity) == minutes[0] - MINUTE
    (due,) = await bench.sql("SELECT next_due_at FROM trigger_state WHERE activity_id = $1", activity)
    assert due[0] is not None, "the poller sees to it"
    assert (await bench.gate(activity, ids.time_key(minutes[0] - MINUTE), "x")).verdict == "go"


async def test_overlap_is_judged_for_live_times_and_not_for_backfilled_ones(bench: Bench) -> None:
    """However long ago the backfilled ones are, the runs that ended since the oldest live one decide."""
    activity, minutes = await bench.every_minute(due=2, grace_seconds=86_400)
    await bench.settle(activity)
    passed = await bench.gate(activity, ids.time_key(minutes[0]), "a")
    assert passed.verdict == "go"
    await bench.replace(activity, trigger={**RARE, "misfire_grace_seconds": 86_400})
    await begun(bench, activity, PAST, PAST + 2 * MINUTE)
    # as if the run had begun before the second minute came, and ended after
    await bench.sql(
        "UPDATE activity_runs SET started_at = $2 WHERE run_id = $1", passed.run_id, minutes[1] - timedelta(seconds=1)
    )
    await bench.parts.runs.end(passed.run_id, "completed", "for the test")
    assert await bench.settle(activity) == PAST
    rows = {row["scheduled_for"]: row for row in await bench.ledger(activity)}
    assert (rows[minutes[1]]["outcome"], rows[minutes[1]]["reason_code"]) == ("skipped", "overlap")
    assert {rows[PAST + n * MINUTE]["outcome"] for n in range(2)} == {"waiting"}
    assert (await bench.gate(activity, ids.time_key(PAST), "b")).verdict == "go"
