"""Activities with a past, and what `why` says of it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from activity_core.services.gate import log_run
from activity_core.store import runs, trigger_state
from tests.api.conftest import Api

Json = dict[str, Any]

_PAST = (
    "UPDATE activities SET created_at = created_at - {ago} WHERE id = $1",
    "UPDATE activity_revisions SET in_force_from = in_force_from - {ago}, in_force_until = in_force_until - {ago} "
    "WHERE activity_id = $1",
    "UPDATE event_subscriptions SET in_force_from = in_force_from - {ago}, in_force_until = in_force_until - {ago} "
    "WHERE activity_id = $1",
    "UPDATE trigger_state SET settled_through = settled_through - {ago}, last_nominal = last_nominal - {ago} "
    "WHERE activity_id = $1",
    "UPDATE pauses SET from_at = from_at - {ago}, ended_at = ended_at - {ago} WHERE activity_id = $1",
    "UPDATE activity_runs SET started_at = started_at - {ago} WHERE activity_id = $1",
    "UPDATE activity_run_ends SET started_at = started_at - {ago}, finished_at = finished_at - {ago} "
    "WHERE activity_id = $1",
    # keys are unique at every moment, so they make room first
    "UPDATE occurrences SET key = 'moving:' || key WHERE activity_id = $1 AND kind = 'time' AND $2::int > 0",
    "UPDATE occurrences SET scheduled_for = scheduled_for - {ago}, interval_start = interval_start - {ago}, "
    "due_at = due_at - {ago}, created_at = created_at - {ago}, decided_at = decided_at - {ago} WHERE activity_id = $1",
    "UPDATE occurrences SET key = to_char(scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"+00:00\"') "
    "WHERE activity_id = $1 AND kind = 'time' AND $2::int > 0",
)


async def backdate(api: Api, activity: Json, minutes: int) -> None:
    """Let all of its past have been so much earlier: the times since are owed, and not settled."""
    for statement in _PAST:
        await api.sql(statement.format(ago="make_interval(mins => $2)"), UUID(activity["id"]), minutes)


async def create(api: Api, document: Json, *, minutes_ago: int = 0) -> Json:
    """An activity that has been in force, and not settled, for so long."""
    answer = await api.http.post("/v1/activities", json=document)
    assert answer.status_code == 201, answer.text
    created: Json = answer.json()
    if minutes_ago:
        await backdate(api, created, minutes_ago)
    return created


async def command(api: Api, path: str, body: Json | None = None, *, key: str | None = None) -> Json:
    """POST that succeeds."""
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await api.http.post(f"/v1/{path}", json=body or {}, headers=headers)
    assert answer.is_success, answer.text
    done: Json = answer.json()
    return done


async def settle(api: Api, activity: Json) -> datetime | None:
    """Settle, and what would run now."""
    settled = await api.settler.settle(UUID(activity["id"]))
    assert settled is not None
    return settled.planned.plan.head


async def start(api: Api, activity: Json, key: str) -> str:
    """Let the occurrence with this key pass the gate; the id of its run."""
    async with api.database.begin() as connection:
        passed = await log_run(connection, api.definitions, UUID(activity["id"]), key, "execution")
    assert passed.verdict == "go"
    return str(passed.run_id)


async def end(api: Api, activity: Json, run_id: str, status: str = "completed") -> None:
    async with api.database.begin() as connection:
        await trigger_state.lock(connection, UUID(activity["id"]))
        await runs.end(connection, UUID(run_id), status=status, result=None, reason=None)


async def why(api: Api, activity: Json, **question: str) -> Json:
    answer = await api.http.get(f"/v1/activities/{activity['id']}/why", params=question)
    assert answer.status_code == 200, answer.text
    body: Json = answer.json()
    assert body["outcome"] not in ("", "unknown") and body["reason_code"]
    assert body["sentence"][-1] in ".?"
    return body


async def readable(api: Api, answer: Json) -> list[str]:
    """What the evidence says; every reference in it can be read."""
    for ref in {item["ref"] for item in answer["evidence"]}:
        assert (await api.http.get(ref)).status_code == 200, ref
    return [item["what"] for item in answer["evidence"]]


def commands(answer: Json) -> list[str]:
    return [action["command"] for action in answer["actions"]]


def minute(ago: int) -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=ago)
