"""The schema, as SQLAlchemy Core tables. `alembic check` holds it and the migrations together."""

from activity_core.store.tables.base import metadata
from activity_core.store.tables.definitions import (
    activities,
    activity_revisions,
    consumers,
    event_subscriptions,
    freezes,
    pauses,
)
from activity_core.store.tables.events import event_types, events, receipts, source_secrets, sources
from activity_core.store.tables.ledger import backfills, occurrences, trigger_state
from activity_core.store.tables.runs import activity_run_ends, activity_runs, run_context
from activity_core.store.tables.service import counters, deployment, idempotency_keys
from activity_core.store.tables.tasks import ops_attempts, ops_runs, task_instances, task_spawn_log

__all__ = [
    "activities",
    "activity_revisions",
    "activity_run_ends",
    "activity_runs",
    "backfills",
    "consumers",
    "counters",
    "deployment",
    "event_subscriptions",
    "event_types",
    "events",
    "freezes",
    "idempotency_keys",
    "metadata",
    "occurrences",
    "ops_attempts",
    "ops_runs",
    "pauses",
    "receipts",
    "run_context",
    "source_secrets",
    "sources",
    "task_instances",
    "task_spawn_log",
    "trigger_state",
]
