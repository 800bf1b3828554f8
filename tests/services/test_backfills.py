"""Backfills that a user asks for: on a real Postgres and, where runs are to run, a real Temporal."""

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from temporalio.client import Client

from activity_core.domain import ids
from activity_core.domain.backfill import BEFORE_CREATION, WHILE_DISABLED
from activity_core.errors import (
    ActivityDisabledError,
    GoneError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    NotFoundError,
)
from activity_core.services.backfilling import Asked, Backfill, Backfilling, BackfillView
from activity_core.services.pausing import Pausing
from activity_core.workflows.contracts import RUN_WORKFLOW, RunInput
from tests.checker import broken, strangers
from tests.consumer import Answer, Request, consumer
from tests.services.conftest import Bench, working
from tests.stack import eventually

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
PAST = datetime(2025, 6, 2, tzinfo=UTC)
Json = dict[str, Any]


def backfilling(bench: Bench) -> Backfilling:
    return Backfilling(bench.database, bench.definitions)


async def ask(
    bench: Bench,
    activity: uuid.UUID,
    start: datetime,
    end: datetime,
    *,
    note: str | None = None,
    dry_run: bool = False,
    key: str | None = None,
) -> Backfill:
    return await backfilling(bench).backfill(str(activity), Asked(start, end, note, dry_run), idempotency_key=key)


async def begun(bench: Bench, activity: uuid.UUID, start: datetime, end: datetime) -> uuid.UUID:
    made = await ask(bench, activity, start, end)
    assert made.id is not None
    return made.id


def shown(made: Backfill) -> tuple[int, int, int]:
    """(reopen, add, leave)"""
    return made.counts["reopen"], made.counts["add"], made.counts["leave"]


def hourly(**rules: Any) -> Json:
    """Over, so that no hour that passes during a test is a time of it."""
    return {"type": "cron", "cron": "0 * * * *", "timezone": "UTC", "end_at": "2026-01-01T00:00:00Z", **rules}


# Due on the 29th of February: what was owed before is all there is.
RARE = {"type": "cron", "cron": "0 4 29 2 *", "timezone": "UTC", "misfire_policy": "skip", "misfire_grace_seconds": 1}


async def on_hours(bench: Bench, *, consumer: str | None = None, **rules: Any) -> uuid.UUID:
    """An hourly activity made just now, so that all of the past was never due."""
    tasks = [] if consumer is None else [{"task_type": "note", "consumer": consumer}]
    return await bench.create(trigger=hourly(**rules), tasks=tasks)


async def skipped_minutes(bench: Bench, due: int, **more: Any) -> tuple[uuid.UUID, list[datetime]]:
    """An activity that was minutely, and whose last minutes were skipped as late: (its id, those minutes)."""
    activity, minutes = await bench.every_minute(due=due, grace_seconds=1, **more)
    await bench.settle(activity)
    await bench.replace(activity, trigger=RARE)

    async def all_skipped() -> bool:
        await bench.settle(activity)
        return set(await bench.outcomes(activity)) == {("skipped", "late")}

    await eventually(all_skipped)
    return activity, minutes[:due]


@contextlib.asynccontextmanager
async def polling(bench: Bench) -> AsyncIterator[None]:
    """The worker's loops that look for heads and fire them."""

    async def poll() -> None:
        while True:
            await bench.parts.poller.settle_overdue()
            await bench.parts.poller.fire_heads()
            await asyncio.sleep(0.05)

    loop = asyncio.create_task(poll())
    try:
        yield
    finally:
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loop


async def runs_of(bench: Bench, activity: uuid.UUID) -> Sequence[asyncpg.Record]:
    """In the order in which they started."""
    return await bench.sql(
        "SELECT r.*, e.finished_at FROM activity_runs r LEFT JOIN activity_run_ends e USING (run_id) "
        "WHERE r.activity_id = $1 ORDER BY r.started_at",
        activity,
    )


async def until_ended(bench: Bench, activity: uuid.UUID, count: int, within: float = 30.0) -> None:
    async def all_ended() -> bool:
        return [status for status, _ in await bench.ends(activity)] == ["completed"] * count

    await eventually(all_ended, within=within, what=f"{count} runs have completed")


async def nothing_broken(bench: Bench, client: Client) -> None:
    assert await broken(bench.database.dsn) == {}
    assert await strangers(client, bench.settings.task_queue, bench.database.dsn) == []


# What is planned and written


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
        "SELECT next_due_at = '-infinity' AS looked_at, last_nominal FROM trigger_state WHERE activity_id = $1",
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


async def test_what_waited_when_the_activity_was_disabled_is_reopened_and_what_was_never_due_is_added(
    bench: Bench,
) -> None:
    """Two minutes waited, were given up, two more came while it was disabled; then it was enabled by another cron."""
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
    await bench.replace(activity, enabled=True, trigger=hourly(end_at=None))
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
    assert coming is not None and coming > minutes[-1] and coming.minute == 0, "the next hour's window was to be theirs"
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


async def view(bench: Bench, backfill: uuid.UUID) -> dict[str, int]:
    return dict((await backfilling(bench).get(backfill)).counts)


async def cancelled(bench: Bench, backfill: uuid.UUID) -> BackfillView:
    return await backfilling(bench).cancel(backfill)


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
    await bench.sql(
        "UPDATE activity_runs SET started_at = $2 WHERE run_id = $1", passed.run_id, minutes[1] - timedelta(seconds=1)
    )
    assert await bench.settle(activity) is None, "a run is open"
    rows = {row["scheduled_for"]: row for row in await bench.ledger(activity)}
    assert rows[minutes[1]]["reason_code"] == "overlap"
    assert {rows[PAST + n * MINUTE]["outcome"] for n in range(2)} == {"waiting"}, "and these it does not overlap"
    await bench.parts.runs.end(passed.run_id, "completed", "for the test")
    assert (await bench.gate(activity, ids.time_key(PAST), "b")).verdict == "go"


# What runs


async def test_r16_backfilled_times_run_once_each_oldest_first_one_at_a_time(
    bench: Bench, temporal_client: Client
) -> None:
    activity, minutes = await skipped_minutes(bench, 4, tasks=[{"task_type": "note", "consumer": "log"}])
    start = minutes[0] - 3 * MINUTE
    async with working(bench), polling(bench):
        backfill = await begun(bench, activity, start, minutes[3])
        await until_ended(bench, activity, 6)
        runs = await runs_of(bench, activity)
        assert [run["scheduled_for"] for run in runs] == [start + n * MINUTE for n in range(6)]
        assert [(run["window_start"], run["window_end"]) for run in runs] == [
            (run["scheduled_for"] - MINUTE, run["scheduled_for"]) for run in runs
        ]
        assert {run["triggered_by"] for run in runs} == {"backfill"}
        assert all(earlier["finished_at"] <= later["started_at"] for earlier, later in pairwise(runs))
        rows = [row for row in await bench.ledger(activity) if row["backfill_id"] == backfill]
        assert [(row["outcome"], row["reason_code"]) for row in rows] == [("started", "backfill")] * 6
        assert await view(bench, backfill) == {"started": 6}

        again = await ask(bench, activity, start, minutes[3])
        assert (again.id, shown(again)) == (None, (0, 0, 6)), "a second backfill of what ran adds nothing"
        assert dict((await cancelled(bench, backfill)).counts) == {"started": 6}
        assert len(await runs_of(bench, activity)) == 6
    await nothing_broken(bench, temporal_client)


async def test_r16_many_backfills_at_once_while_they_run_start_each_time_once(
    bench: Bench, temporal_client: Client
) -> None:
    activity = await on_hours(bench)
    async with working(bench), polling(bench):
        ends = [PAST + timedelta(hours=n) for n in (3, 6, 9, 12)]
        made = await asyncio.gather(*(ask(bench, activity, PAST, end) for end in ends for _ in range(3)))
        assert sum(one.counts["add"] for one in made) == 12
        await until_ended(bench, activity, 12)
        await asyncio.gather(*(ask(bench, activity, PAST, end) for end in ends))
    runs = await runs_of(bench, activity)
    assert [run["scheduled_for"] for run in runs] == sorted({run["scheduled_for"] for run in runs})
    assert len(runs) == 12
    await nothing_broken(bench, temporal_client)


class Door:
    """A consumer takes as many tasks as it was let; others are sent again each second, and their runs stay open."""

    def __init__(self) -> None:
        self.room = 0
        self.taken: set[str] = set()

    def answer(self, request: Request, before: int) -> Answer:
        if request.key not in self.taken and len(self.taken) >= self.room:
            return Answer(503)
        self.taken.add(request.key)
        return Answer()


@contextlib.asynccontextmanager
async def behind_a_door(bench: Bench, hours: int, **rules: Any) -> AsyncIterator[tuple[uuid.UUID, uuid.UUID, Door]]:
    """(activity, backfill, door) of an hourly activity whose runs end as the door lets them; all loops run."""
    door, slug = Door(), f"door-{uuid.uuid4().hex[:8]}"
    async with consumer(door.answer) as target, working(bench), polling(bench):
        await bench.consumers.create({"slug": slug, "type": "http", "url": target.url})
        task = {"task_type": "note", "consumer": slug, "retry": {"backoff_coefficient": 1}}
        activity = await bench.create(trigger=hourly(**rules), tasks=[task])
        backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=hours))
        try:
            yield activity, backfill, door
        finally:
            door.room = 1_000


async def looked(bench: Bench, activity: uuid.UUID) -> None:
    """The poller has settled this activity once more."""
    await bench.sql("UPDATE trigger_state SET next_due_at = '-infinity' WHERE activity_id = $1", activity)

    async def has_looked() -> bool:
        query = "SELECT next_due_at IS DISTINCT FROM '-infinity' FROM trigger_state WHERE activity_id = $1"
        return bool((await bench.sql(query, activity))[0][0])

    await eventually(has_looked)


async def until(bench: Bench, backfill: uuid.UUID, **counts: int) -> None:
    async def reached() -> bool:
        return await view(bench, backfill) == counts

    await eventually(reached, what=f"its times are {counts}")


async def test_with_allow_all_ten_of_them_are_open_and_never_more(bench: Bench, temporal_client: Client) -> None:
    async with behind_a_door(bench, 14, overlap_policy="allow_all") as (activity, backfill, door):
        await until(bench, backfill, started=10, waiting=4)
        assert {run["scheduled_for"] for run in await runs_of(bench, activity)} == {
            PAST + timedelta(hours=n) for n in range(10)
        }
        for _ in range(3):
            await looked(bench, activity)
        assert await view(bench, backfill) == {"started": 10, "waiting": 4}
        door.room = 3
        await until(bench, backfill, started=13, waiting=1)
        await looked(bench, activity)
        assert await view(bench, backfill) == {"started": 13, "waiting": 1}
        door.room = 1_000
        await until_ended(bench, activity, 14)
        runs = await runs_of(bench, activity)
    for run in runs:
        others = [r for r in runs if r["started_at"] <= run["started_at"] < r["finished_at"]]
        assert len(others) <= 10
    await nothing_broken(bench, temporal_client)


async def test_cancelled_in_the_middle_what_runs_finishes_and_nothing_more_starts(
    bench: Bench, temporal_client: Client
) -> None:
    async with behind_a_door(bench, 5) as (activity, backfill, door):
        door.room = 1
        await until(bench, backfill, started=2, waiting=3)
        made = await cancelled(bench, backfill)
        assert dict(made.counts) == {"started": 2, "cancelled": 3}
        assert await bench.ends(activity) == [("completed", None), ("running", None)]
        door.room = 1_000
        await until_ended(bench, activity, 2)
        await looked(bench, activity)
        told = [(row["outcome"], row["reason_code"]) for row in await bench.ledger(activity)]
        assert told == [("started", "backfill")] * 2 + [("skipped", "backfill_cancelled")] * 3

        again = await begun(bench, activity, PAST, PAST + timedelta(hours=5))
        await until_ended(bench, activity, 5)
        assert (await view(bench, again), await view(bench, backfill)) == (
            {"started": 3},
            {"started": 2, "cancelled": 3},
        )
        runs = await runs_of(bench, activity)
        assert [run["scheduled_for"] for run in runs] == [PAST + timedelta(hours=n) for n in range(5)]
    await nothing_broken(bench, temporal_client)


async def test_a_time_whose_revision_was_disabled_runs_by_that_revision(bench: Bench, temporal_client: Client) -> None:
    """Settle asks the revision in force what it owes; the run is the row's own revision's."""
    old = {"task_type": "old", "consumer": "log", "params": {"to": "${ window.end }"}}
    new = {"task_type": "new", "consumer": "log"}
    activity = await bench.create(trigger=hourly(), enabled=False, tasks=[old])
    await bench.replace(activity, enabled=True, tasks=[new])
    await bench.sql(
        "UPDATE activity_revisions SET in_force_from = $2 WHERE activity_id = $1 AND revision = 1",
        *(activity, PAST + timedelta(minutes=90)),
    )
    async with working(bench), polling(bench):
        made = await ask(bench, activity, PAST, PAST + timedelta(hours=4))
        assert [item.reason for item in made.items] == [BEFORE_CREATION] * 2 + [WHILE_DISABLED] * 2
        await until_ended(bench, activity, 4)
    assert {run["revision"] for run in await runs_of(bench, activity)} == {1}
    tasks = await bench.sql("SELECT task_type, params->>'to' FROM task_instances WHERE activity_id = $1", activity)
    assert sorted(tuple(row) for row in tasks) == [
        ("old", (PAST + timedelta(hours=n)).strftime("%Y-%m-%dT%H:%M:%SZ")) for n in range(4)
    ]
    await nothing_broken(bench, temporal_client)


async def test_times_of_a_trigger_that_is_gone_run_to_the_last(bench: Bench, temporal_client: Client) -> None:
    activity = await on_hours(bench, consumer="log")
    await bench.replace(activity, trigger={"type": "manual"})
    async with working(bench), polling(bench):
        backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=3))
        await until_ended(bench, activity, 3)
    assert await view(bench, backfill) == {"started": 3}
    assert {run["revision"] for run in await runs_of(bench, activity)} == {1}
    await nothing_broken(bench, temporal_client)


async def test_a_worker_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    bench: Bench, temporal_client: Client
) -> None:
    activity = await on_hours(bench, consumer="log")
    backfill = await begun(bench, activity, PAST, PAST + timedelta(hours=8))
    for least in (1, 4):
        async with working(bench), polling(bench):

            async def far_enough(least: int = least) -> bool:
                return (await view(bench, backfill)).get("started", 0) >= least

            await eventually(far_enough)
    async with working(bench), polling(bench):
        await until_ended(bench, activity, 8, within=60)
    runs = await runs_of(bench, activity)
    assert [run["scheduled_for"] for run in runs] == [PAST + timedelta(hours=n) for n in range(8)]
    await nothing_broken(bench, temporal_client)


# After this one Temporal has run a workflow ID twice, as `strangers` would say: it is the last of its kind.


async def test_r6_a_time_whose_workflow_was_refused_runs_once_when_it_is_reopened(
    bench: Bench, temporal_client: Client
) -> None:
    """The one exception to REJECT_DUPLICATE. A workflow that ended otherwise before the gate is a run with that end."""
    activity, minutes = await skipped_minutes(bench, 3, tasks=[{"task_type": "note", "consumer": "log"}])

    async def start(minute: datetime) -> Any:
        key = ids.time_key(minute)
        return await temporal_client.start_workflow(
            RUN_WORKFLOW,
            RunInput(str(activity), key),
            id=bench.workflow_id(activity, key),
            task_queue=bench.settings.task_queue,
        )

    await (await start(minutes[1])).terminate("by the test")
    refused = await start(minutes[0])
    async with working(bench), polling(bench):
        await refused.result()
        assert await bench.ends(activity) == []
        backfill = await begun(bench, activity, minutes[0], minutes[2])

        async def both_ended() -> bool:
            return sorted(status for status, _ in await bench.ends(activity)) == ["completed", "terminated"]

        await eventually(both_ended)
        await looked(bench, activity)
        assert await view(bench, backfill) == {"started": 2}
    runs = {run["scheduled_for"]: run for run in await runs_of(bench, activity)}
    assert set(runs) == {minutes[0], minutes[1]}
    description = await temporal_client.get_workflow_handle(
        bench.workflow_id(activity, ids.time_key(minutes[0]))
    ).describe()
    assert runs[minutes[0]]["owner_execution_run_id"] == description.run_id != refused.first_execution_run_id
    assert await bench.states(activity) == ["completed"]
    assert await broken(bench.database.dsn) == {}
