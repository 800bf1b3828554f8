"""The invariants, checked from outside: Postgres, Temporal and the consumer's log, none of our code in between."""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

import asyncpg
from temporalio.client import Client

from tests.consumer import Consumer

# Where run ids live. Written out, so that a change of ours would be seen: it would make every old run a new one.
RUN_IDS = UUID("7e3f2c5a-9d41-5b8e-a6f0-1c2d3e4f5a6b")

# Each query returns the rows that break the rule it is named after.
BROKEN = {
    "I2 a started occurrence has exactly one run, and a run exactly one started occurrence": """
        SELECT o.key FROM occurrences o FULL JOIN activity_runs r ON r.occurrence_id = o.id
        WHERE (o.outcome = 'started') IS DISTINCT FROM (r.run_id IS NOT NULL) OR o.run_id IS DISTINCT FROM r.run_id
    """,
    "I2 the run's workflow ID says its activity and key": """
        SELECT r.workflow_id FROM activity_runs r JOIN occurrences o ON o.id = r.occurrence_id
        WHERE r.workflow_id <> 'activity-' || o.activity_id || ':' || o.key
    """,
    "I4 a nominal time has one row under its own key, and its window begins where the one before it ended": """
        SELECT key FROM (
          SELECT key, scheduled_for, interval_start,
                 lag(scheduled_for) OVER (PARTITION BY activity_id ORDER BY scheduled_for) AS before
          -- a time that was never due lies within the interval of the one after it
          FROM occurrences WHERE kind = 'time' AND triggered_by = 'schedule'
        ) times
        WHERE key <> to_char(scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')
           OR (before IS NOT NULL AND interval_start IS DISTINCT FROM before)
    """,
    "R15 a time is merged into a run that covers it, and a run covers the times that are merged into it": """
        SELECT r.workflow_id FROM activity_runs r JOIN occurrences o ON o.id = r.occurrence_id AND o.kind = 'time'
        LEFT JOIN LATERAL (
          SELECT count(*) AS count, min(m.scheduled_for) AS first FROM occurrences m WHERE m.merged_into = o.id
        ) merged ON true
        WHERE (r.covers->>'count')::int IS DISTINCT FROM merged.count + 1
           OR (r.covers->>'first')::timestamptz IS DISTINCT FROM coalesce(merged.first, o.scheduled_for)
           OR (r.covers->>'last')::timestamptz IS DISTINCT FROM o.scheduled_for
        UNION ALL
        SELECT m.key FROM occurrences m LEFT JOIN occurrences o ON o.id = m.merged_into
        WHERE (m.outcome = 'merged') <> (m.merged_into IS NOT NULL)
           OR (m.merged_into IS NOT NULL AND (o.outcome <> 'started' OR o.activity_id <> m.activity_id))
    """,
    "R15 the windows of two runs of an activity's times never overlap": """
        SELECT b.workflow_id FROM (
          SELECT r.workflow_id, r.window_start, r.window_end,
                 lag(r.window_end) OVER (PARTITION BY r.activity_id ORDER BY r.scheduled_for) AS before
          FROM activity_runs r JOIN occurrences o ON o.id = r.occurrence_id
          WHERE o.kind = 'time' AND o.triggered_by = 'schedule'
        ) b
        WHERE b.before > b.window_start
    """,
    "R9 a row's key is that of its kind": """
        SELECT o.key FROM occurrences o LEFT JOIN events e ON e.id = o.event_uuid
        WHERE (o.kind = 'time') IS DISTINCT FROM (o.scheduled_for IS NOT NULL)
           OR (o.kind = 'event') IS DISTINCT FROM (e.event_id IS NOT DISTINCT FROM o.key)
           OR (o.kind = 'manual') IS DISTINCT FROM starts_with(o.key, 'manual:')
    """,
    "I5 a task is one row each in task_instances, task_spawn_log and ops_runs": """
        SELECT t.id FROM task_instances t
        FULL JOIN task_spawn_log s ON s.task_id = t.id FULL JOIN ops_runs d ON d.task_id = t.id
        WHERE t.id IS NULL OR s.task_id IS NULL OR d.task_id IS NULL OR s.consumer_reference <> t.id
           OR t.id <> 'task-' || t.run_id || ':' || t.task_type || ':' || t.index
    """,
    "I5 a task has one delivery": "SELECT task_id FROM ops_runs GROUP BY task_id HAVING count(*) > 1",
    "R36 a run is open or has one end, and ended after it started": """
        SELECT r.run_id::text FROM activity_runs r LEFT JOIN activity_run_ends e ON e.run_id = r.run_id
        WHERE r.is_open = (e.run_id IS NOT NULL) OR e.finished_at < r.started_at
    """,
    "R36 an open run counts the tasks that hold it": """
        SELECT r.run_id::text FROM activity_runs r
        WHERE r.is_open AND r.planned_at IS NOT NULL AND r.open_tasks <> (
          SELECT count(*) FROM task_instances t
          WHERE t.run_id = r.run_id AND t.wave <= r.wave AND t.ended_at IS NULL
            AND NOT (t.detached AND t.state = 'waiting'))
    """,
    "R31 a delivery says what its task says": """
        SELECT t.id FROM task_instances t JOIN ops_runs d ON d.task_id = t.id
        WHERE (t.state = 'completed' AND d.state <> 'delivered')
           OR (t.ended_at IS NULL AND d.state IN ('failed', 'cancelled'))
           OR (t.state IN ('pending', 'delivering') AND d.state = 'delivered')
           OR (d.state = 'delivered') <> (d.delivered_at IS NOT NULL)
    """,
    "R41 an attempt has at most one outcome, and at most one attempt delivered its task in time": """
        SELECT d.task_id FROM ops_attempts a JOIN ops_runs d USING (activity_execution_id)
        GROUP BY d.task_id
        HAVING count(*) FILTER (WHERE a.outcome = 'delivered' AND NOT a.late) > 1
            OR bool_or((a.ended_at IS NULL) <> (a.outcome IS NULL))
    """,
    "I11 an ended task has an end and a reason when it did not go well": """
        SELECT id FROM task_instances
        WHERE (ended_at IS NOT NULL) <> (state IN ('completed', 'failed', 'cancelled'))
           OR (state IN ('failed', 'cancelled') AND reason IS NULL)
    """,
    "R22 every occurrence that is decided says when and why": """
        SELECT key FROM occurrences
        WHERE (decided_at IS NULL) <> (outcome = 'waiting') OR reason = '' OR reason_code = ''
    """,
    "R22 an event has a row for every activity that subscribed to it when it was accepted": """
        SELECT e.event_id FROM events e
        JOIN event_subscriptions s
          ON e.type ~ ('^' || replace(replace(replace(s.pattern, '.', '[.]'), '**', '.+'), '*', '[^.]+') || '$')
          AND s.in_force_from <= e.accepted_at AND (s.in_force_until IS NULL OR s.in_force_until > e.accepted_at)
        LEFT JOIN occurrences o ON o.event_uuid = e.id AND o.activity_id = s.activity_id
        WHERE o.id IS NULL AND e.routed_at IS NOT NULL AND e.dead_letter_reason IS NULL
    """,
    "a completed run has no task that holds it": """
        SELECT r.run_id::text FROM activity_runs r JOIN activity_run_ends e ON e.run_id = r.run_id
        JOIN task_instances t ON t.run_id = r.run_id
        WHERE e.status = 'completed' AND NOT t.detached AND t.ended_at IS NULL
    """,
}
UNFINISHED = {
    "I8 an event is routed": "SELECT event_id FROM events WHERE routed_at IS NULL",
    "I8 an occurrence is decided": "SELECT key FROM occurrences WHERE outcome = 'waiting'",
    "I8 a run has ended": "SELECT workflow_id FROM activity_runs WHERE is_open",
    "I8 a task has ended or waits for its report": "SELECT id FROM task_instances WHERE state IN ('pending', 'delivering')",
}
RUN_ID_RULE = "R33 a run's id is the uuid5 of its workflow ID"


async def broken(database_url: str) -> dict[str, list[str]]:
    """Rule → what breaks it; empty when all is well."""
    connection = await asyncpg.connect(database_url)
    try:
        return await broken_rules(connection)
    finally:
        await connection.close()


async def broken_rules(connection: asyncpg.Connection, rules: Mapping[str, str] = BROKEN) -> dict[str, list[str]]:
    found = {rule: [str(row[0]) for row in await connection.fetch(query)] for rule, query in rules.items()}
    runs = await connection.fetch("SELECT run_id, workflow_id FROM activity_runs")
    found[RUN_ID_RULE] = [run["workflow_id"] for run in runs if run["run_id"] != uuid5(RUN_IDS, run["workflow_id"])]
    return {rule: rows for rule, rows in found.items() if rows}


async def quiescent(database_url: str) -> bool:
    """Nothing is on its way any more."""
    connection = await asyncpg.connect(database_url)
    try:
        return not await broken_rules(connection, UNFINISHED)
    finally:
        await connection.close()


async def lost_events(database_url: str, accepted: Sequence[str]) -> list[str]:
    """I1: accepted event ids that the database does not hold."""
    connection = await asyncpg.connect(database_url)
    try:
        known = {row[0] for row in await connection.fetch("SELECT event_id FROM events")}
    finally:
        await connection.close()
    return [event_id for event_id in accepted if event_id not in known]


async def strangers(client: Client, task_queue: str, database_url: str) -> list[str]:
    """I2, I5: workflows that the ledger does not know, and runs or tasks that Temporal ran more than once."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT 'activity-' || activity_id || ':' || key FROM occurrences UNION ALL SELECT id FROM task_instances"
        )
    finally:
        await connection.close()
    known = {row[0] for row in rows}
    ours = "WorkflowType IN ('RunActivityWorkflow', 'TaskWorkflow')"
    listed = client.list_workflows(f"TaskQueue = '{task_queue}' AND {ours}")
    seen = Counter([execution.id async for execution in listed])
    return sorted(name for name, count in seen.items() if count > 1 or name not in known)


async def effects_unlike_tasks(consumer: Consumer, database_url: str) -> list[str]:
    """I7: keys that the consumer took and no completed task of an HTTP consumer has, and the other way round."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch(
            "SELECT d.idempotency_key FROM ops_runs d JOIN task_instances t ON t.id = d.task_id "
            "WHERE t.state = 'completed' AND t.consumer NOT IN ('log', 'inbox')"
        )
    finally:
        await connection.close()
    return sorted({row[0] for row in rows} ^ set(consumer.by_key()))


def unlike_repeats(consumer: Consumer) -> list[str]:
    """I6: keys whose requests differ in body or task."""
    return [
        key
        for key, requests in consumer.by_key().items()
        if len({(r.body, r.headers["activity-core-task-id"]) for r in requests}) > 1
    ]


def shared_attempts(consumer: Consumer) -> list[str]:
    """R39: attempt ids that more than one request carried."""
    name = "activity-core-attempt-id"
    seen = Counter(request.headers[name] for request in consumer.requests if name in request.headers)
    return sorted(attempt for attempt, count in seen.items() if count > 1)
