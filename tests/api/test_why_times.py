"""`why` names what held, skipped, dropped, merged, started or repeated an occurrence, and what it advises works."""

import shlex
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from activity_core.domain import ids
from tests.api.asking import Json, backdate, command, commands, create, end, minute, readable, settle, start, why
from tests.api.conftest import Api
from tests.api.samples import cron_activity, event_activity, manual_activity, slug


def minutely(policy: str, **more: Any) -> Json:
    trigger = {"type": "cron", "cron": "* * * * *", "timezone": "Europe/Berlin", "misfire_policy": policy}
    return {**cron_activity(), "trigger": trigger | more}


def at(ago: int) -> str:
    return minute(ago).isoformat()


async def obey(api: Api, line: str) -> Json:
    """What the command line sends for a command that `why` advises."""
    name, *words = shlex.split(line)
    assert name == "activity-core"
    options = {word: value for word, value in pairwise(words) if word.startswith("--")}
    match words:
        case ["resume", ref, *_]:
            return await command(api, f"activities/{ref}/resume", {k[2:]: v for k, v in options.items()})
        case ["freeze", "end", freeze_id]:
            answer = await api.http.delete(f"/v1/freezes/{freeze_id}")
            assert answer.status_code == 200
            ended: Json = answer.json()
            return ended
        case ["backfill", ref, *_]:
            body = {"from": options["--from"], "to": options["--to"]}
            return await command(api, f"activities/{ref}/backfill", body)
        case ["rerun", run_id]:
            return await command(api, f"runs/{run_id}/rerun")
        case ["trigger", ref]:
            return await command(api, f"activities/{ref}/trigger", {"on_overlap": "allow"})
        case ["why", ref, "--at", instant]:
            return await why(api, {"id": ref}, at=instant)
        case ["tasks", "--run", run_id]:
            return (await api.http.get("/v1/tasks", params={"run_id": run_id})).raise_for_status().json()  # type: ignore[no-any-return]
    raise AssertionError(f"not a command that is advised: {line}")


async def test_r50_a_time_that_waits_names_the_pause_and_what_ends_it(api: Api) -> None:
    activity = await create(api, minutely("catchup"))
    await command(api, f"activities/{activity['slug']}/pause", {"note": "the mail server moves"})
    await backdate(api, activity, 5)
    assert await settle(api, activity) is None
    held = minute(3).isoformat()
    answer = await why(api, activity, at=held)

    assert (answer["outcome"], answer["reason_code"]) == ("waiting", "paused")
    assert "waits: the activity is paused since " in answer["sentence"]
    assert "(the mail server moves)" in answer["sentence"]
    assert "the pause began (the mail server moves)" in await readable(api, answer)
    assert commands(answer) == [f"activity-core resume {activity['slug']}"]

    assert (await obey(api, commands(answer)[0]))["times"] >= 5
    head = await settle(api, activity)
    assert head is not None
    await start(api, activity, ids.time_key(head))
    started = await why(api, activity, at=head.isoformat())
    assert (started["outcome"], started["reason_code"]) == ("started", "late")
    assert "was held by the pause from " in started["sentence"]
    assert "(the mail server moves), then started " in started["sentence"]
    assert " as a catch-up, after its grace, and is running." in started["sentence"]
    assert "the pause ended (times: policy, events: run)" in await readable(api, started)


async def test_a_time_skipped_after_a_pause_says_that_it_was_held(api: Api) -> None:
    activity = await create(api, minutely("catchup"))
    await command(api, f"activities/{activity['slug']}/pause")
    await backdate(api, activity, 5)
    await command(api, f"activities/{activity['slug']}/resume", {"on_misfire": "skip"})
    answer = await why(api, activity, at=at(3))

    assert (answer["outcome"], answer["reason_code"]) == ("skipped", "late")
    assert ", then was skipped: not started within its grace of 60 s." in answer["sentence"]
    assert "No worker looked at it until " in answer["sentence"]
    assert "the pause ended (times: skip, events: run)" in await readable(api, answer)


async def test_a_pause_that_ends_by_itself_is_told_before_and_after(api: Api) -> None:
    activity = await create(api, minutely("skip"))
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    await command(api, f"activities/{activity['slug']}/pause", {"until": until})
    await backdate(api, activity, 5)
    await settle(api, activity)
    assert f"until {until[:19]}" in (await why(api, activity, at=at(3)))["sentence"]

    await api.sql("UPDATE pauses SET until = now() - interval '1 s' WHERE activity_id = $1", UUID(activity["id"]))
    lapsed = await why(api, activity, at=at(3))
    assert (lapsed["reason_code"], commands(lapsed)) == ("due", [])
    assert "is not held any more" in lapsed["sentence"]
    await settle(api, activity)
    decided = await why(api, activity, at=at(3))
    assert "the pause ended by itself (times: policy, events: run)" in await readable(api, decided)


async def test_r50_a_time_that_waits_names_the_freeze_and_what_ends_it(api: Api) -> None:
    team = slug("team")
    activity = await create(api, {**minutely("skip"), "labels": {"team": team}})
    other = await create(api, minutely("skip"))
    freeze = await command(api, "freezes", {"selector": f"team={team}", "note": "stocktaking"})
    for each in (activity, other):
        await backdate(api, each, 5)
    await api.sql("UPDATE freezes SET from_at = from_at - interval '5 min' WHERE id = $1", UUID(freeze["id"]))
    for each in (activity, other):
        await settle(api, each)
    answer = await why(api, activity, at=at(3))

    assert (answer["outcome"], answer["reason_code"]) == ("waiting", "frozen")
    assert f"the freeze of team={team} holds it since " in answer["sentence"]
    assert (await why(api, other, at=at(3)))["outcome"] == "skipped"
    assert f"/v1/freezes/{freeze['id']}" in {item["ref"] for item in answer["evidence"]}
    await readable(api, answer)
    assert commands(answer) == [f"activity-core freeze end {freeze['id']}"]
    assert (await obey(api, commands(answer)[0]))["active"] is False
    await settle(api, activity)
    decided = await why(api, activity, at=at(3))
    assert f"was held by the freeze of team={team} from " in decided["sentence"]
    assert "freeze" not in (await why(api, other, at=at(3)))["sentence"]


async def test_r50_events_of_a_pause_need_to_be_told_what_becomes_of_them(api: Api) -> None:
    kind = slug("kind")
    activities = [await create(api, event_activity(f"{kind}.*")) for _ in range(2)]
    for activity in activities:
        await command(api, f"activities/{activity['slug']}/pause")
    event = await command(api, "events", {"type": f"{kind}.a"})
    await api.route()
    running, skipping = activities
    held = await why(api, running, event_id=event["event_id"])
    assert (held["outcome"], held["reason_code"]) == ("waiting", "paused")
    assert commands(held) == [f"activity-core resume {running['slug']} --events run"]
    await obey(api, commands(held)[0])
    assert (await why(api, running, event_id=event["event_id"]))["reason_code"] == "due"

    await command(api, f"activities/{skipping['slug']}/resume", {"events": "skip"})
    skipped = await why(api, skipping, event_id=event["event_id"])
    assert (skipped["outcome"], skipped["reason_code"]) == ("skipped", "paused")
    assert ", then was skipped: that hold was ended with events: skip." in skipped["sentence"]
    assert commands(skipped) == ["POST /v1/events"]


async def test_r50_an_overlapped_time_names_the_run_that_was_open(api: Api) -> None:
    activity = await create(api, minutely("skip"))
    await command(api, f"activities/{activity['slug']}/trigger", key="k")
    run_id = await start(api, activity, "manual:k")
    await backdate(api, activity, 5)
    await settle(api, activity)
    answer = await why(api, activity, at=at(3))

    assert (answer["outcome"], answer["reason_code"]) == ("skipped", "overlap")
    assert f"was skipped: run {run_id}, open since " in answer["sentence"]
    assert f"/v1/runs/{run_id}" in {item["ref"] for item in answer["evidence"]}
    await readable(api, answer)

    await command(api, f"activities/{activity['slug']}/trigger", {"on_overlap": "wait"})
    waiting = await why(api, activity)
    assert (waiting["outcome"], waiting["reason_code"]) == ("waiting", "overlap")
    assert f"waits for run {run_id} of this activity, open since " in waiting["sentence"]
    await end(api, activity, run_id)
    assert (await why(api, activity))["reason_code"] == "due"


async def test_r50_a_dropped_time_says_how_many_were_caught_up_and_can_be_backfilled(api: Api) -> None:
    activity = await create(api, minutely("catchup", catchup_limit=3), minutes_ago=10)
    head = await settle(api, activity)
    assert head is not None
    oldest = minute(8)
    dropped = oldest.isoformat()
    answer = await why(api, activity, at=dropped)

    assert (answer["outcome"], answer["reason_code"]) == ("dropped", "over_limit")
    assert "no more than the newest 3 are caught up" in answer["sentence"]
    assert "Of the missed times after it, caught up: 0, still to start: 3." in answer["sentence"]
    assert (await obey(api, commands(answer)[0]))["counts"]["reopen"] == 1

    waiting = await why(api, activity, at=dropped)
    assert (waiting["outcome"], waiting["reason_code"]) == ("waiting", "due")
    assert "waits to be backfilled, as somebody asked for it at " in waiting["sentence"]
    while head is not None:
        await end(api, activity, await start(api, activity, ids.time_key(head)))
        head = await settle(api, activity)
    ran = await why(api, activity, at=dropped)
    assert (ran["outcome"], ran["reason_code"]) == ("started", "backfill")
    assert "was backfilled: somebody asked for it at " in ran["sentence"]
    assert any(what.startswith("somebody asked for a backfill of ") for what in await readable(api, ran))
    others = await why(api, activity, at=(oldest + timedelta(minutes=1)).isoformat())
    assert "caught up: 3." in others["sentence"]


async def test_r50_merged_times_and_their_head_tell_of_one_run(api: Api) -> None:
    activity = await create(api, minutely("compress"), minutes_ago=10)
    head = await settle(api, activity)
    assert head is not None
    run_id = await start(api, activity, ids.time_key(head))
    merged = await why(api, activity, at=(head - timedelta(minutes=3)).isoformat())

    assert (merged["outcome"], merged["reason_code"]) == ("merged", "compressed")
    assert merged["run"]["run_id"] == run_id
    assert f"is covered by the run of {head.isoformat()}, one run for the " in merged["sentence"]
    await readable(api, merged)
    covering = await obey(api, commands(merged)[0])
    assert covering["run"]["run_id"] == run_id
    count, first = covering["run"]["covers"]["count"], covering["run"]["covers"]["first"]
    assert count > 5
    assert f" as one run for the {count} times from {first} to {head.isoformat()}" in covering["sentence"]


async def test_r50_a_failed_run_can_be_run_again_and_its_rerun_says_of_what(api: Api) -> None:
    activity = await create(api, manual_activity())
    await command(api, f"activities/{activity['slug']}/trigger", key="k")
    run_id = await start(api, activity, "manual:k")
    await end(api, activity, run_id, "failed")
    failed = await why(api, activity)
    assert commands(failed) == [f"activity-core tasks --run {run_id}", f"activity-core rerun {run_id}"]
    for line in commands(failed):
        await obey(api, line)
    again = await why(api, activity)
    assert again["sentence"].startswith(f"The rerun of run {run_id}, asked for at ")
    assert "the run to repeat started" in await readable(api, again)


async def test_r5_a_jittered_time_says_when_it_is_due(api: Api) -> None:
    trigger = {"type": "interval", "every_seconds": 60, "jitter_seconds": 50, "misfire_policy": "compress"}
    activity = await create(api, {**cron_activity(), "trigger": trigger}, minutes_ago=5)
    await settle(api, activity)
    query = "SELECT max(scheduled_for) FROM occurrences WHERE activity_id = $1"
    nominal: datetime = (await api.sql(query, UUID(activity["id"])))[0][0]
    due = datetime.now(UTC) + timedelta(minutes=5)
    statement = "UPDATE occurrences SET due_at = $2 WHERE activity_id = $1 AND scheduled_for = $3"
    await api.sql(statement, UUID(activity["id"]), due, nominal)
    answer = await why(api, activity, at=nominal.isoformat())

    assert (answer["outcome"], answer["scheduled_for"]) == ("waiting", nominal.isoformat())
    assert f"due at {due.isoformat(timespec='milliseconds')} by its jitter, waits for that" in answer["sentence"]
    after = await why(api, activity, at=(nominal + timedelta(seconds=20)).isoformat())
    assert (after["reason_code"], after["neighbours"]["previous"]) == ("no_due_time", nominal.isoformat())
    assert "up to 50 s after their nominal time (jitter_seconds): ask for that one." in after["sentence"]


async def test_instants_outside_of_start_and_end_say_so(api: Api) -> None:
    early, first, last, late = (at(ago) for ago in (8, 6, 3, 1))
    activity = await create(api, minutely("skip", start_at=first, end_at=last), minutes_ago=10)
    await settle(api, activity)
    found = [(await why(api, activity, at=instant))["reason_code"] for instant in (early, first, last, late)]
    assert found == ["before_start", "late", "late", "after_end"]


async def test_a_time_to_come_says_that_it_will_wait(api: Api) -> None:
    activity = await create(api, minutely("skip"))
    await command(api, f"activities/{activity['slug']}/pause")
    answer = await why(api, activity, at=(minute(-5)).isoformat())
    assert (answer["outcome"], answer["reason_code"]) == ("not_due", "future")
    assert "It will wait: the activity is paused since " in answer["sentence"]
    until = (datetime.now(UTC) + timedelta(minutes=3)).isoformat()
    await command(api, f"activities/{activity['slug']}/pause", {"until": until})
    assert "will wait" not in (await why(api, activity, at=(minute(-5)).isoformat()))["sentence"]


async def test_r50_a_time_that_was_never_due_can_be_backfilled(api: Api) -> None:
    activity = await create(api, {**minutely("skip"), "enabled": False}, minutes_ago=10)
    before, disabled = minute(20).isoformat(), minute(5).isoformat()
    off = await why(api, activity, at=disabled)
    assert (off["reason_code"], commands(off)[0]) == ("was_disabled", "activity-core apply -f FILE")
    assert (await why(api, activity, at=at(-5)))["reason_code"] == "disabled"

    on = await api.http.put(f"/v1/activities/{activity['slug']}", json={**activity["spec"], "enabled": True})
    assert on.status_code == 200
    for instant, code in ((before, "before_creation"), (disabled, "was_disabled")):
        answer = await why(api, activity, at=instant)
        assert answer["reason_code"] == code
        assert (await obey(api, commands(answer)[0]))["counts"]["add"] == 1
        added = await why(api, activity, at=instant)
        assert (added["outcome"], added["reason_code"]) == ("waiting", "due")
        assert "waits to be backfilled" in added["sentence"]
        await readable(api, added)


async def history(api: Api, policy: str, **more: Any) -> Json:
    """An activity of half an hour's past: a pause and a freeze that ended, edits, a while disabled, a run, a backfill."""
    team = slug("team")
    activity = await create(api, {**minutely(policy, **more), "labels": {"team": team}}, minutes_ago=12)
    path = f"activities/{activity['slug']}"
    await settle(api, activity)
    for document in ({"enabled": False}, {"trigger": {"type": "manual"}}, {}):
        changed = await api.http.put(f"/v1/{path}", json={**activity["spec"], **document})
        assert changed.status_code == 200, changed.text
    await command(api, f"{path}/pause", {"note": "first"})
    await backdate(api, activity, 12)
    await settle(api, activity)
    await command(api, f"{path}/resume")
    head = await settle(api, activity)
    if head is not None:
        await end(api, activity, await start(api, activity, ids.time_key(head)), "failed")
    freeze = await command(api, "freezes", {"selector": f"team={team}"})
    await backdate(api, activity, 6)
    await api.sql("UPDATE freezes SET from_at = from_at - interval '4 min' WHERE id = $1", UUID(freeze["id"]))
    await command(api, f"{path}/backfill", {"from": at(20), "to": at(18)})
    await settle(api, activity)
    await command(api, f"{path}/pause", {"note": "second"})
    return activity


@pytest.mark.parametrize(
    ("policy", "more", "deleted"),
    [
        ("skip", {}, False),
        ("catchup", {"catchup_limit": 2}, False),
        ("compress", {"jitter_seconds": 20}, True),
        ("catchup", {"overlap_policy": "allow_all"}, False),
    ],
)
async def test_r22_every_instant_has_an_answer(api: Api, policy: str, more: Json, deleted: bool) -> None:
    activity = await history(api, policy, **more)
    if deleted:
        assert (await api.http.delete(f"/v1/activities/{activity['slug']}")).status_code == 204
    edges = await api.sql(
        "SELECT in_force_from FROM activity_revisions WHERE activity_id = $1 UNION SELECT from_at FROM pauses "
        "WHERE activity_id = $1 UNION SELECT due_at FROM occurrences WHERE activity_id = $1",
        UUID(activity["id"]),
    )
    tiny = timedelta(microseconds=1)
    instants = [edge[0] + step for edge in edges for step in (-tiny, timedelta(0), tiny)]
    instants += [minute(35) + timedelta(seconds=30) * step for step in range(90)]
    asked = [await why(api, activity, at=instant.isoformat()) for instant in instants]

    through = (await api.sql("SELECT settled_through FROM trigger_state WHERE activity_id = $1", UUID(activity["id"])))[
        0
    ][0]
    settled = [answer for answer in asked if datetime.fromisoformat(answer["scheduled_for"]) <= through]
    assert not {"no_row", "not_settled"} & {answer["reason_code"] for answer in settled}
    for answer in asked:
        assert all(line.startswith(("activity-core ", "POST ")) for line in commands(answer))
    rows = await api.sql("SELECT scheduled_for FROM occurrences WHERE activity_id = $1", UUID(activity["id"]))
    told = {answer["scheduled_for"] for answer in settled if answer["outcome"] != "not_due"}
    assert told == {row[0].isoformat() for row in rows}
    await readable(api, {"evidence": [item for answer in asked for item in answer["evidence"] if not deleted]})
