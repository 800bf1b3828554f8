"""The checker must see what it is for: one planted violation for each of its rules, in a world where all is well."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4, uuid5

import asyncpg
import pytest
from temporalio.client import Client

from tests import checker
from tests.consumer import Answer, Consumer, Request
from tests.stack import Servers, eventually
from tests.watch import steps_seen, watch

ACTIVITY, OTHER = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
EVENT = "00000000-0000-4000-8000-00000000000e"
EVENT_ROW, TIME_ROW, NEXT_TIME_ROW = (f"00000000-0000-4000-8000-0000000000a{n}" for n in (1, 2, 3))
EVENT_RUN = str(uuid5(checker.RUN_IDS, f"activity-{ACTIVITY}:e-1"))
TIME_RUN = str(uuid5(checker.RUN_IDS, f"activity-{OTHER}:2026-03-01T09:00:00+00:00"))
EXECUTION = "00000000-0000-4000-8000-0000000000e1"

WORLD = f"""
INSERT INTO activities (id, slug, revision) VALUES ('{ACTIVITY}', 'by-event', 1), ('{OTHER}', 'by-time', 1);
INSERT INTO activity_revisions (activity_id, revision, spec, effective)
  VALUES ('{ACTIVITY}', 1, '{{}}', '{{}}'), ('{OTHER}', 1, '{{}}', '{{}}');
INSERT INTO event_subscriptions (pattern, activity_id, revision, in_force_from)
  VALUES ('shop.**', '{ACTIVITY}', 1, '2026-01-01Z');
INSERT INTO events (id, event_id, source, external_id, type, content_hash, routed_at)
  VALUES ('{EVENT}', 'e-1', 'default', 'e-1', 'shop.order.paid', '', now());
INSERT INTO occurrences (id, activity_id, kind, key, revision, due_at, scheduled_for, interval_start, event_uuid,
                         triggered_by, outcome, reason_code, reason, run_id, decided_at) VALUES
  ('{EVENT_ROW}', '{ACTIVITY}', 'event', 'e-1', 1, now(), NULL, NULL, '{EVENT}',
   'event', 'started', 'on_time', 'started', '{EVENT_RUN}', now()),
  ('{TIME_ROW}', '{OTHER}', 'time', '2026-03-01T09:00:00+00:00', 1, '2026-03-01 09:00Z', '2026-03-01 09:00Z',
   '2026-03-01 08:00Z', NULL, 'schedule', 'started', 'on_time', 'started', '{TIME_RUN}', now()),
  ('{NEXT_TIME_ROW}', '{OTHER}', 'time', '2026-03-01T10:00:00+00:00', 1, '2026-03-01 10:00Z', '2026-03-01 10:00Z',
   '2026-03-01 09:00Z', NULL, 'schedule', 'skipped', 'overlap', 'a run was open', NULL, now());
INSERT INTO activity_runs (run_id, workflow_id, activity_id, occurrence_id, revision, triggered_by,
                           owner_execution_run_id, planned_at, open_tasks, wave, waves, is_open) VALUES
  ('{EVENT_RUN}', 'activity-{ACTIVITY}:e-1', '{ACTIVITY}', '{EVENT_ROW}', 1, 'event', 'x', now(), 0, 0, 1, false),
  ('{TIME_RUN}', 'activity-{OTHER}:2026-03-01T09:00:00+00:00', '{OTHER}', '{TIME_ROW}', 1, 'schedule', 'x', now(),
   1, 0, 1, true);
UPDATE activity_runs SET scheduled_for = '2026-03-01 09:00Z', window_start = '2026-03-01 08:00Z',
  window_end = '2026-03-01 09:00Z',
  covers = '{{"first": "2026-03-01T09:00:00+00:00", "last": "2026-03-01T09:00:00+00:00", "count": 1}}'
  WHERE run_id = '{TIME_RUN}';
INSERT INTO activity_run_ends (run_id, activity_id, status, started_at, finished_at)
  SELECT run_id, activity_id, 'completed', started_at, started_at + interval '1 s' FROM activity_runs WHERE NOT is_open;
INSERT INTO task_instances (id, uuid, run_id, activity_id, task_type, index, wave, consumer, delivery, params, detached,
                            state, state_rank, ended_at) VALUES
  ('task-{EVENT_RUN}:a:0', gen_random_uuid(), '{EVENT_RUN}', '{ACTIVITY}', 'a', 0, 0, 'target', '{{}}', '{{}}', false,
   'completed', 3, now()),
  ('task-{TIME_RUN}:a:0', gen_random_uuid(), '{TIME_RUN}', '{OTHER}', 'a', 0, 0, 'target', '{{}}', '{{}}', false,
   'delivering', 1, NULL),
  ('task-{TIME_RUN}:b:0', gen_random_uuid(), '{TIME_RUN}', '{OTHER}', 'b', 0, 0, 'inbox', '{{}}', '{{}}', true,
   'waiting', 2, NULL);
INSERT INTO task_spawn_log (consumer_reference, task_id, run_id, consumer)
  SELECT id, id, run_id, consumer FROM task_instances;
INSERT INTO ops_runs (activity_execution_id, idempotency_key, task_id, run_id, consumer, state, delivered_at)
  SELECT CASE WHEN run_id = '{EVENT_RUN}' THEN '{EXECUTION}'::uuid ELSE gen_random_uuid() END,
         CASE WHEN run_id = '{EVENT_RUN}' THEN 'key-1' ELSE id END, id, run_id, consumer,
         CASE WHEN state = 'delivering' THEN state ELSE 'delivered' END,
         CASE WHEN state <> 'delivering' THEN now() END FROM task_instances;
INSERT INTO ops_attempts (activity_attempt_id, activity_execution_id, temporal_attempt, worker, ended_at, outcome, late)
  VALUES (gen_random_uuid(), '{EXECUTION}', 1, 'w', now(), 'unknown', false),
         (gen_random_uuid(), '{EXECUTION}', 2, 'w', now(), 'delivered', false),
         (gen_random_uuid(), '{EXECUTION}', 1, 'w', now(), 'delivered', true);
"""


def ok(request: Request, before: int) -> Answer:
    return Answer()


A_TASK = f"task-{EVENT_RUN}:a:0"
PLANTED = [
    ("I2 a started", f"UPDATE occurrences SET outcome = 'skipped' WHERE id = '{EVENT_ROW}'"),
    ("I2 a started", f"UPDATE occurrences SET outcome = 'started' WHERE id = '{NEXT_TIME_ROW}'"),
    ("I2 a started", f"UPDATE occurrences SET run_id = '{TIME_RUN}' WHERE id = '{EVENT_ROW}'"),
    ("I2 a started", f"UPDATE activity_runs SET occurrence_id = '{NEXT_TIME_ROW}' WHERE run_id = '{TIME_RUN}'"),
    ("I2 the run's", f"UPDATE occurrences SET key = 'e-2' WHERE id = '{EVENT_ROW}'"),
    ("R33", f"UPDATE activity_runs SET workflow_id = workflow_id || 'x' WHERE run_id = '{EVENT_RUN}'"),
    ("I4", f"UPDATE occurrences SET interval_start = '2026-03-01 09:30Z' WHERE id = '{NEXT_TIME_ROW}'"),
    ("I4", f"UPDATE occurrences SET scheduled_for = '2026-03-01 10:00:01Z' WHERE id = '{NEXT_TIME_ROW}'"),
    ("I4", f"UPDATE occurrences SET key = '2026-03-01T11:00:00+01:00' WHERE id = '{NEXT_TIME_ROW}'"),
    ("R15 a time", f"UPDATE occurrences SET outcome = 'merged' WHERE id = '{NEXT_TIME_ROW}'"),
    (
        "R15 a time",
        f"UPDATE occurrences SET outcome = 'merged', merged_into = '{TIME_ROW}' WHERE id = '{NEXT_TIME_ROW}'",
    ),
    (
        "R15 a time",
        f"UPDATE occurrences SET merged_into = '{NEXT_TIME_ROW}', outcome = 'merged' WHERE id = '{TIME_ROW}'",
    ),
    ("R15 a time", f"UPDATE activity_runs SET covers = NULL WHERE run_id = '{TIME_RUN}'"),
    ("R15 a time", f"UPDATE activity_runs SET covers = covers || '{{\"count\": 2}}' WHERE run_id = '{TIME_RUN}'"),
    (
        "R15 the windows",
        f"INSERT INTO activity_runs (run_id, workflow_id, activity_id, occurrence_id, revision, triggered_by, "
        f"owner_execution_run_id, scheduled_for, window_start, window_end) VALUES (gen_random_uuid(), 'w', '{OTHER}', "
        f"'{NEXT_TIME_ROW}', 1, 'schedule', 'x', '2026-03-01 10:00Z', '2026-03-01 08:59Z', '2026-03-01 10:00Z')",
    ),
    ("R9", f"UPDATE occurrences SET kind = 'manual' WHERE id = '{EVENT_ROW}'"),
    ("R9", "UPDATE events SET event_id = 'e-2'"),
    ("I5 a task is", f"DELETE FROM task_spawn_log WHERE task_id = '{A_TASK}'"),
    ("I5", f"DELETE FROM ops_runs WHERE task_id = 'task-{TIME_RUN}:a:0'"),
    ("I5", f"UPDATE task_instances SET index = 1 WHERE id = '{A_TASK}'"),
    ("I5", f"UPDATE task_spawn_log SET consumer_reference = 'other' WHERE task_id = '{A_TASK}'"),
    (
        "I5 a task has one",
        f"INSERT INTO ops_runs (activity_execution_id, idempotency_key, task_id, run_id, consumer, state, delivered_at) "
        f"VALUES (gen_random_uuid(), 'key-2', '{A_TASK}', '{EVENT_RUN}', 'target', 'delivered', now())",
    ),
    ("R36 a run is open", f"UPDATE activity_runs SET is_open = true WHERE run_id = '{EVENT_RUN}'"),
    ("R36 a run is open", f"DELETE FROM activity_run_ends WHERE run_id = '{EVENT_RUN}'"),
    ("R36 a run is open", "UPDATE activity_run_ends SET finished_at = '2026-01-01Z'"),
    ("R36 an open run", "UPDATE activity_runs SET open_tasks = 2 WHERE is_open"),
    ("R36 an open run", "UPDATE activity_runs SET open_tasks = 0 WHERE is_open"),
    ("R31", f"UPDATE ops_runs SET state = 'delivering', delivered_at = NULL WHERE task_id = '{A_TASK}'"),
    ("R31", "UPDATE ops_runs SET state = 'failed' WHERE state = 'delivering'"),
    ("R31", "UPDATE ops_runs SET state = 'delivered', delivered_at = now() WHERE state = 'delivering'"),
    ("R31", "UPDATE ops_runs SET delivered_at = now() WHERE state = 'delivering'"),
    ("R41", "UPDATE ops_attempts SET outcome = 'delivered' WHERE outcome = 'unknown'"),
    ("R41", "UPDATE ops_attempts SET outcome = NULL WHERE outcome = 'unknown'"),
    ("I11", f"UPDATE task_instances SET ended_at = NULL WHERE id = '{A_TASK}'"),
    ("I11", f"UPDATE task_instances SET state = 'failed' WHERE id = '{A_TASK}'"),
    ("I11", "UPDATE task_instances SET ended_at = now() WHERE state = 'waiting'"),
    ("R22 every", f"UPDATE occurrences SET decided_at = NULL WHERE id = '{NEXT_TIME_ROW}'"),
    ("R22 every", f"UPDATE occurrences SET outcome = 'waiting' WHERE id = '{NEXT_TIME_ROW}'"),
    ("R22 every", f"UPDATE occurrences SET reason = '' WHERE id = '{NEXT_TIME_ROW}'"),
    ("R22 an event", f"UPDATE occurrences SET event_uuid = NULL WHERE id = '{EVENT_ROW}'"),
    ("R22 an event", "UPDATE event_subscriptions SET activity_id = '00000000-0000-4000-8000-000000000002'"),
    ("R22 an event", "UPDATE event_subscriptions SET activity_id = '" + OTHER + "', pattern = 'shop.order.*'"),
    ("a completed run", f"UPDATE task_instances SET ended_at = NULL, state = 'pending' WHERE id = '{A_TASK}'"),
]
UNFINISHED = [
    ("I8 an event", "UPDATE events SET routed_at = NULL"),
    ("I8 an occurrence", f"UPDATE occurrences SET outcome = 'waiting' WHERE id = '{NEXT_TIME_ROW}'"),
    ("I8 a run", "SELECT 1"),  # one is open
    ("I8 a task", "SELECT 1"),  # one is being delivered
]


BACKWARDS = [
    ("events", "UPDATE events SET routed_at = NULL"),
    ("occurrences", f"UPDATE occurrences SET outcome = 'waiting' WHERE id = '{EVENT_ROW}'"),
    ("occurrences", f"UPDATE occurrences SET run_id = '{TIME_RUN}' WHERE id = '{EVENT_ROW}'"),
    ("occurrences", f"UPDATE occurrences SET outcome = 'waiting' WHERE id = '{NEXT_TIME_ROW}'"),
    ("activity_runs", f"UPDATE activity_runs SET is_open = true WHERE run_id = '{EVENT_RUN}'"),
    ("activity_runs", f"UPDATE activity_runs SET wave = -1 WHERE run_id = '{TIME_RUN}'"),
    ("activity_runs", f"UPDATE activity_runs SET planned_at = NULL WHERE run_id = '{TIME_RUN}'"),
    ("activity_run_ends", "UPDATE activity_run_ends SET status = 'failed'"),
    ("activity_run_ends", "DELETE FROM activity_run_ends"),
    ("task_instances", f"UPDATE task_instances SET state_rank = 0 WHERE id = 'task-{TIME_RUN}:a:0'"),
    ("task_instances", f"UPDATE task_instances SET state = 'failed' WHERE id = '{A_TASK}'"),
    ("task_spawn_log", f"UPDATE task_spawn_log SET consumer_reference = 'other' WHERE task_id = '{A_TASK}'"),
    ("task_spawn_log", f"DELETE FROM task_spawn_log WHERE task_id = '{A_TASK}'"),
    ("ops_runs", f"UPDATE ops_runs SET state = 'delivering' WHERE task_id = '{A_TASK}'"),
]


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A consistent ledger in a transaction that is rolled back."""
    connection = await asyncpg.connect(database_url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(WORLD)
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()


async def test_a_sound_ledger_breaks_no_rule(world: asyncpg.Connection) -> None:
    assert await checker.broken_rules(world) == {}


@pytest.mark.parametrize(("rule", "plant"), PLANTED)
async def test_a_planted_violation_is_seen(world: asyncpg.Connection, rule: str, plant: str) -> None:
    assert (await world.execute(plant)).split()[-1] not in ("0", "SELECT")
    found = await checker.broken_rules(world)
    assert [name for name in found if name.startswith(rule)], found


def test_every_rule_has_a_planted_violation() -> None:
    for rules, planted in (({**checker.BROKEN, checker.RUN_ID_RULE: ""}, PLANTED), (checker.UNFINISHED, UNFINISHED)):
        for rule in rules:
            assert any(rule.startswith(prefix) for prefix, _ in planted), rule


@pytest.mark.parametrize(("rule", "plant"), UNFINISHED)
async def test_what_is_on_its_way_is_seen(world: asyncpg.Connection, rule: str, plant: str) -> None:
    await world.execute(plant)
    found = await checker.broken_rules(world, checker.UNFINISHED)
    assert [name for name in found if name.startswith(rule)], found


@pytest.mark.parametrize(("table", "plant"), BACKWARDS)
async def test_i11_a_step_backwards_is_seen(world: asyncpg.Connection, table: str, plant: str) -> None:
    await watch(world)
    assert (await world.execute(plant)).split()[-1] != "0"
    assert {step.partition(":")[0] for step in await steps_seen(world)} == {table}


async def test_i11_a_step_forwards_is_none(world: asyncpg.Connection) -> None:
    await watch(world)
    await world.execute("UPDATE events SET routed_at = NULL, route_as = 'redelivery'")
    await world.execute(
        f"UPDATE occurrences SET outcome = 'waiting', history = history || '{{}}'::jsonb WHERE id = '{NEXT_TIME_ROW}'"
    )
    await world.execute(f"UPDATE occurrences SET outcome = 'dropped' WHERE id = '{NEXT_TIME_ROW}'")
    await world.execute("UPDATE activity_runs SET is_open = false, wave = wave + 1")
    await world.execute("UPDATE task_instances SET state = 'completed', state_rank = 3, ended_at = now()")
    await world.execute("UPDATE ops_runs SET state = 'delivered'")
    assert await steps_seen(world) == []


async def test_i1_a_lost_event_is_seen(database_url: str) -> None:
    assert await checker.lost_events(database_url, ["never-stored"]) == ["never-stored"]
    assert not await checker.broken(database_url)


def _request(key: str, *, body: bytes = b"{}", task: str = "t", attempt: str | None = None) -> Request:
    headers = {"idempotency-key": key, "activity-core-task-id": task}
    return Request("POST", "/", headers | {"activity-core-attempt-id": attempt or str(uuid4())}, body)


def test_i6_another_body_or_task_under_the_same_key_is_seen() -> None:
    consumer, first = Consumer(ok), _request("k")
    consumer.requests = [first, replace(first), _request("l", body=b"[]")]
    assert checker.unlike_repeats(consumer) == []
    consumer.requests = [first, _request("k", body=json.dumps({"at": 1}).encode()), _request("l")]
    assert checker.unlike_repeats(consumer) == ["k"]
    consumer.requests = [first, _request("k", task="u")]
    assert checker.unlike_repeats(consumer) == ["k"]


def test_r39_a_reused_attempt_id_is_seen() -> None:
    consumer = Consumer(ok)
    consumer.requests = [_request("k", attempt="a"), _request("k", attempt="b"), _request("l", attempt="a")]
    assert checker.shared_attempts(consumer) == ["a"]


async def test_i7_effects_without_a_task_and_tasks_without_an_effect_are_seen(servers: Servers) -> None:
    url = await servers.migrated_database()
    connection = await asyncpg.connect(url)
    await connection.execute(WORLD)
    await connection.close()
    consumer = Consumer(ok)
    assert await checker.effects_unlike_tasks(consumer, url) == ["key-1"]
    consumer.requests = [_request("key-1"), _request("key-1")]
    assert await checker.effects_unlike_tasks(consumer, url) == []
    consumer.requests.append(_request("key-7"))
    assert await checker.effects_unlike_tasks(consumer, url) == ["key-7"]


async def test_i2_i5_a_workflow_that_the_ledger_does_not_know_is_seen(
    temporal_client: Client, database_url: str, task_queue: str
) -> None:
    assert await checker.strangers(temporal_client, task_queue, database_url) == []
    for workflow in ("RunActivityWorkflow", "TaskWorkflow", "SomethingElse"):
        await temporal_client.start_workflow(workflow, id=f"{workflow}-{task_queue}", task_queue=task_queue)

    async def seen() -> bool:
        found = await checker.strangers(temporal_client, task_queue, database_url)
        return found == [f"{workflow}-{task_queue}" for workflow in ("RunActivityWorkflow", "TaskWorkflow")]

    await eventually(seen)
