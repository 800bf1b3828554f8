"""`why` has an answer for every instant, every event id, and for "what was last"."""

from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from activity_core.domain import ids
from activity_core.services.gate import log_run
from activity_core.store import runs, trigger_state
from tests.api.asking import create, minute, why
from tests.api.conftest import Api
from tests.api.samples import cron_activity, event_activity, manual_activity, slug

EVERY_MINUTE = {"type": "cron", "cron": "* * * * *", "timezone": "Europe/Berlin", "misfire_policy": "skip"}


async def test_r22_a_skipped_time_says_so_with_its_neighbours_and_what_to_do(api: Api) -> None:
    activity = await create(api, cron_activity(trigger=EVERY_MINUTE), minutes_ago=10)
    await api.settler.settle(UUID(activity["id"]), None)
    at = minute(5)
    answer = await why(api, activity, at=at.isoformat())

    assert (answer["outcome"], answer["reason_code"], answer["scheduled_for"]) == ("skipped", "late", at.isoformat())
    local = at.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M in Europe/Berlin")
    assert local in answer["sentence"] and "not started within its grace of 60 s" in answer["sentence"]
    assert answer["neighbours"] == {"previous": minute(6).isoformat(), "next": minute(4).isoformat()}
    assert [item["what"] for item in answer["evidence"]][:2] == ["revision 1 came into force", "it was due"]
    assert [action["command"] for action in answer["actions"]] == [
        f"activity-core backfill {activity['slug']} --from {at.isoformat()} --to {at.replace(second=1).isoformat()}",
        f"activity-core trigger {activity['slug']}",
    ]
    assert (await api.http.get(answer["evidence"][1]["ref"])).json()["outcome"] == "skipped"


async def test_r4_every_spelling_of_an_instant_asks_the_same(api: Api) -> None:
    activity = await create(api, cron_activity(trigger=EVERY_MINUTE), minutes_ago=10)
    await api.settler.settle(UUID(activity["id"]), None)
    at = minute(5)
    tokyo = at.astimezone(ZoneInfo("Asia/Tokyo")).isoformat()
    spelled = [at.isoformat(), at.isoformat().replace("+00:00", "Z"), tokyo, at.isoformat().replace("+", ".000000+")]
    answers = [await why(api, activity, at=spelling) for spelling in spelled]

    assert all(answer == answers[0] for answer in answers)
    naive = await api.http.get(f"/v1/activities/{activity['id']}/why?at={at.replace(tzinfo=None).isoformat()}")
    assert (naive.status_code, naive.json()["errors"][0]["pointer"]) == (422, "/query/at")


async def test_instants_that_are_no_due_time_say_why_not(api: Api) -> None:
    activity = await create(api, cron_activity(), minutes_ago=60 * 24 * 3)
    await api.settler.settle(UUID(activity["id"]), None)
    yesterday = (datetime.now(UTC) - timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)
    between = await why(api, activity, at=(yesterday + timedelta(hours=1)).isoformat())
    fraction = await why(api, activity, at=(yesterday + timedelta(microseconds=1)).isoformat())
    future = await why(api, activity, at=activity["schedule"]["next"])
    far = await why(api, activity, at="9998-01-01T09:00:00Z")
    before = await why(api, activity, at="2020-01-01T09:00:00Z")

    assert (between["outcome"], between["reason_code"]) == ("not_due", "no_due_time")
    assert between["neighbours"]["previous"] == yesterday.isoformat()
    assert between["neighbours"]["next"] == (yesterday + timedelta(days=1)).isoformat()
    assert yesterday.isoformat() in between["sentence"]
    assert fraction["reason_code"] == "no_due_time"
    assert (future["outcome"], future["reason_code"]) == ("not_due", "future")
    assert (far["outcome"], before["reason_code"]) == ("not_due", "before_creation")


async def test_a_due_time_that_is_not_in_the_ledger_yet_waits(api: Api) -> None:
    activity = await create(api, cron_activity(trigger=EVERY_MINUTE), minutes_ago=10)
    answer = await why(api, activity, at=minute(3).isoformat())

    assert (answer["outcome"], answer["reason_code"]) == ("waiting", "not_settled")
    assert "Is a worker running?" in answer["sentence"]


async def test_r22_while_disabled_no_time_was_owed(api: Api) -> None:
    activity = await create(api, cron_activity(trigger=EVERY_MINUTE, enabled=False), minutes_ago=10)
    answer = await why(api, activity, at=minute(3).isoformat())
    assert (answer["outcome"], answer["reason_code"]) == ("not_due", "was_disabled")
    assert answer["neighbours"] == {"previous": None, "next": None}
    last = await why(api, activity)
    assert (last["outcome"], "disabled" in last["sentence"]) == ("not_due", True)


async def test_after_its_deletion_it_owes_nothing_and_its_ledger_still_answers(api: Api) -> None:
    activity = await create(api, cron_activity(trigger=EVERY_MINUTE), minutes_ago=10)
    await api.http.delete(f"/v1/activities/{activity['id']}")

    after = await why(api, activity, at=(minute(0) + timedelta(minutes=2)).isoformat())
    assert (after["outcome"], after["reason_code"]) == ("not_due", "after_deletion")
    assert (await why(api, activity, at=minute(5).isoformat()))["outcome"] == "skipped"
    assert (await api.http.get(f"/v1/activities/{activity['slug']}/why")).status_code == 404


async def test_a_started_time_shows_its_run(api: Api) -> None:
    activity = await create(api, cron_activity(trigger=EVERY_MINUTE), minutes_ago=1)
    activity_id = UUID(activity["id"])
    settled = await api.settler.settle(activity_id)
    assert settled is not None
    head = settled.planned.plan.head
    assert head is not None
    async with api.database.begin() as connection:
        passed = await log_run(connection, api.definitions, activity_id, ids.time_key(head), "execution")
    running = await why(api, activity)
    assert (running["outcome"], running["run"]["status"], running["run"]["run_id"]) == (
        *("started", "running"),
        str(passed.run_id),
    )
    async with api.database.begin() as connection:
        await trigger_state.lock(connection, activity_id)
        await runs.end(connection, passed.run_id, status="failed", result=None, reason="1 of 1 tasks failed")
    failed = await why(api, activity, at=head.isoformat())
    assert "failed after" in failed["sentence"] and "1 of 1 tasks failed" in failed["sentence"]
    assert [action["command"] for action in failed["actions"]] == [
        f"activity-core tasks --run {passed.run_id}",
        f"activity-core rerun {passed.run_id}",
    ]


async def test_activities_without_times_say_so(api: Api) -> None:
    for document, word in ((manual_activity(), "manual"), (event_activity("a.b"), "event")):
        activity = await create(api, document, minutes_ago=10)
        answer = await why(api, activity, at=minute(1).isoformat())
        assert (answer["outcome"], answer["reason_code"]) == ("not_due", "no_times")
        assert f"'{word}'" in answer["sentence"]
        assert (await why(api, activity))["reason_code"] == "nothing_due_yet"


async def test_an_event_says_what_became_of_it_here(api: Api) -> None:
    kind = slug("kind")
    matching = await create(api, event_activity(f"{kind}.*"))
    filtering = await create(api, event_activity(f"{kind}.*", filter="event.data.n > 1"))
    failing = await create(api, event_activity(f"{kind}.*", filter="event.data.missing == 1"))
    others = [await create(api, event_activity("else.*")), await create(api, cron_activity())]
    event = (
        await api.http.post("/v1/events", json={"event_id": slug("e"), "type": f"{kind}.a", "data": {"n": 1}})
    ).json()

    early = await why(api, matching, event_id=event["event_id"])
    assert (early["outcome"], early["reason_code"]) == ("waiting", "not_routed")
    await api.route()
    late = await create(api, event_activity(f"{kind}.*"))
    await api.http.delete(f"/v1/activities/{others[1]['id']}")

    expected = [
        (matching, "waiting", "due"),
        (filtering, "filtered", "filter_false"),
        (failing, "filter_error", "filter_error"),
        (others[0], "not_matched", "type_unmatched"),
        (others[1], "not_matched", "no_event_trigger"),
        (late, "not_matched", "before_creation"),
    ]
    for activity, outcome, reason_code in expected:
        for name in (event["event_id"], event["id"]):
            answer = await why(api, activity, event_id=name)
            assert (answer["outcome"], answer["reason_code"]) == (outcome, reason_code), activity["slug"]
            assert answer["event_id"] == event["event_id"]
    missing = await why(api, matching, event_id="never sent")
    assert (missing["outcome"], "never sent" in missing["sentence"]) == ("no_such_event", True)


async def test_an_event_after_the_deletion_says_so(api: Api) -> None:
    activity = await create(api, event_activity("gone.*"))
    await api.http.delete(f"/v1/activities/{activity['id']}")
    event = (await api.http.post("/v1/events", json={"type": "gone.x"})).json()
    await api.route()
    answer = await why(api, activity, event_id=event["event_id"])
    assert (answer["outcome"], answer["reason_code"]) == ("not_matched", "after_deletion")


async def test_an_instant_and_an_event_at_once_are_refused(api: Api) -> None:
    activity = await create(api, manual_activity())
    answer = await api.http.get(f"/v1/activities/{activity['id']}/why?at=2026-01-01T00:00:00Z&event_id=x")
    assert answer.status_code == 422
