"""Tasks and their deliveries."""

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from activity_core.store.tables.base import instant, metadata

task_instances = Table(
    "task_instances",
    metadata,
    Column("id", Text, primary_key=True),
    Column("uuid", Uuid, nullable=False),
    Column("run_id", Uuid, ForeignKey("activity_runs.run_id"), nullable=False),
    Column("activity_id", Uuid, nullable=False),
    Column("task_type", Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("wave", Integer, nullable=False),
    Column("consumer", Text, nullable=False),
    # How to deliver, frozen in the plan: {attempt_timeout_seconds, deadline_seconds, retry}
    Column("delivery", JSONB, nullable=False),
    Column("params", JSONB, nullable=False),
    Column("detached", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    # The rank of `state`: an update never lowers it, so states never go backwards (I11).
    Column("state_rank", SmallInteger, nullable=False),
    Column("reason", Text),
    Column("output", JSONB),
    instant("created_at", now=True),
    instant("updated_at", now=True),
    instant("ended_at", nullable=True),
    UniqueConstraint("uuid"),
    UniqueConstraint("run_id", "task_type", "index"),
    Index("ix_task_instances_created_at_id", "created_at", "id"),
    Index("ix_task_instances_activity_id_created_at_id", "activity_id", "created_at", "id"),
    Index("ix_task_instances_open", "state", "created_at", postgresql_where=text("ended_at IS NULL")),
)

# Intent to hand a task to a consumer, written before the consumer is called (R31).
task_spawn_log = Table(
    "task_spawn_log",
    metadata,
    Column("consumer_reference", Text, primary_key=True),
    Column("task_id", Text, ForeignKey("task_instances.id"), nullable=False),
    Column("run_id", Uuid, nullable=False),
    Column("consumer", Text, nullable=False),
    # What the consumer calls it; set once.
    Column("external_reference", Text),
    instant("intended_at", now=True),
    instant("spawned_at", nullable=True),
    UniqueConstraint("task_id"),
    Index("ix_task_spawn_log_run_id", "run_id"),
)

# One row per delivery: the logical hand-over of a task, unique by the key the consumer sees (R32).
ops_runs = Table(
    "ops_runs",
    metadata,
    Column("activity_execution_id", Uuid, primary_key=True),
    Column("idempotency_key", Text, nullable=False),
    Column("task_id", Text, ForeignKey("task_instances.id"), nullable=False),
    Column("run_id", Uuid, nullable=False),
    Column("consumer", Text, nullable=False),
    Column("state", Text, nullable=False),
    # The exact bytes that every attempt sends (I6).
    Column("body", LargeBinary),
    Column("http_status", Integer),
    Column("error", Text),
    instant("created_at", now=True),
    instant("delivered_at", nullable=True),
    UniqueConstraint("idempotency_key"),
    Index("ix_ops_runs_task_id", "task_id"),
    Index("ix_ops_runs_run_id", "run_id"),
)

ops_attempts = Table(
    "ops_attempts",
    metadata,
    Column("activity_attempt_id", Uuid, primary_key=True),
    Column("activity_execution_id", Uuid, ForeignKey("ops_runs.activity_execution_id"), nullable=False),
    Column("temporal_attempt", Integer, nullable=False),
    Column("worker", Text, nullable=False),
    instant("started_at", now=True),
    instant("ended_at", nullable=True),
    Column("outcome", Text),
    Column("late", Boolean, nullable=False, server_default="false"),
    Column("http_status", Integer),
    Column("error", Text),
    Index("ix_ops_attempts_activity_execution_id_started_at", "activity_execution_id", "started_at"),
)
