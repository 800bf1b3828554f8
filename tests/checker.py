"""The invariants, checked from outside: Postgres, Temporal and the consumer's log, none of our code in between."""

from collections.abc import Sequence

import asyncpg

from tests.consumer import Consumer

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
    "I5 a task is one row each in task_instances, task_spawn_log and ops_runs": """
        SELECT t.id FROM task_instances t
        FULL JOIN task_spawn_log s ON s.task_id = t.id FULL JOIN ops_runs d ON d.task_id = t.id
        WHERE t.id IS NULL OR s.task_id IS NULL OR d.task_id IS NULL OR s.consumer_reference <> t.id
           OR t.id <> 'task-' || t.run_id || ':' || t.task_type || ':' || t.index
    """,
    "R36 a run is open or has one end, and ended after it started": """
        SELECT r.run_id::text FROM activity_runs r LEFT JOIN activity_run_ends e ON e.run_id = r.run_id
        WHERE r.is_open = (e.run_id IS NOT NULL) OR e.finished_at < r.started_at
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
        JOIN event_subscriptions s ON s.pattern = e.type
          AND s.in_force_from <= e.accepted_at AND (s.in_force_until IS NULL OR s.in_force_until > e.accepted_at)
        LEFT JOIN occurrences o ON o.event_uuid = e.id AND o.activity_id = s.activity_id
        WHERE o.id IS NULL AND e.dead_letter_reason IS NULL
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
}


async def broken(database_url: str, rules: dict[str, str] = BROKEN) -> dict[str, list[str]]:
    """Rule → what breaks it; empty when all is well."""
    connection = await asyncpg.connect(database_url)
    try:
        found = {rule: [str(row[0]) for row in await connection.fetch(query)] for rule, query in rules.items()}
    finally:
        await connection.close()
    return {rule: rows for rule, rows in found.items() if rows}


async def quiescent(database_url: str) -> bool:
    """Nothing is on its way any more."""
    return not await broken(database_url, UNFINISHED)


async def lost_events(database_url: str, accepted: Sequence[str]) -> list[str]:
    """I1: accepted event ids that the database does not hold."""
    connection = await asyncpg.connect(database_url)
    try:
        known = {row[0] for row in await connection.fetch("SELECT event_id FROM events")}
    finally:
        await connection.close()
    return [event_id for event_id in accepted if event_id not in known]


def unlike_repeats(consumer: Consumer) -> list[str]:
    """I6: keys whose requests differ in body or task."""
    return [
        key
        for key, requests in consumer.by_key().items()
        if len({(r.body, r.headers["activity-core-task-id"]) for r in requests}) > 1
    ]


def shared_attempts(consumer: Consumer) -> list[str]:
    """R39: attempt ids that more than one request carried."""
    seen = [r.headers["activity-core-attempt-id"] for r in consumer.requests if "activity-core-attempt-id" in r.headers]
    return sorted({attempt for attempt in seen if seen.count(attempt) > 1})
