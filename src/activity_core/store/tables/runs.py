"""Runs and the context that they saw."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from activity_core.store.tables.base import instant, metadata

# The started fact of a run: inserted once, by the gate (R33, R34). Only the counters of its tasks move afterwards.
activity_runs = Table(
    "activity_runs",
    metadata,
    Column("run_id", Uuid, primary_key=True),
    Column("workflow_id", Text, nullable=False),
    Column("activity_id", Uuid, ForeignKey("activities.id"), nullable=False),
    Column("occurrence_id", Uuid, ForeignKey("occurrences.id"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("triggered_by", Text, nullable=False),
    Column("owner_execution_run_id", Text, nullable=False),
    instant("scheduled_for", nullable=True),
    Column("event_uuid", Uuid, ForeignKey("events.id")),
    instant("window_start", nullable=True),
    instant("window_end", nullable=True),
    Column("covers", JSONB),
    instant("started_at", now=True),
    instant("planned_at", nullable=True),
    Column("plan_reason", Text),
    # Tasks of the wave under way that have not ended, and which wave that is.
    Column("open_tasks", Integer, nullable=False, server_default="0"),
    Column("wave", Integer, nullable=False, server_default="-1"),
    Column("waves", Integer, nullable=False, server_default="0"),
    # Lowered once, with the insert of the terminal fact: what is open must be found without reading all that ended.
    Column("is_open", Boolean, nullable=False, server_default="true"),
    Column("concurrency_key", Text),
    UniqueConstraint("workflow_id"),
    UniqueConstraint("occurrence_id"),
    Index("ix_activity_runs_activity_id_started_at_run_id", "activity_id", "started_at", "run_id"),
    Index("ix_activity_runs_started_at_run_id", "started_at", "run_id"),
    Index("ix_activity_runs_event_uuid", "event_uuid"),
    Index("ix_activity_runs_open", "activity_id", "started_at", postgresql_where=text("is_open")),
    Index(
        "ix_activity_runs_concurrency",
        "activity_id",
        "concurrency_key",
        postgresql_where=text("is_open AND concurrency_key IS NOT NULL"),
    ),
)

# The terminal fact of a run (R36): inserted once, by the run or by reconcile.
activity_run_ends = Table(
    "activity_run_ends",
    metadata,
    Column("run_id", Uuid, ForeignKey("activity_runs.run_id"), primary_key=True),
    Column("activity_id", Uuid, nullable=False),
    Column("status", Text, nullable=False),
    Column("result", Text),
    Column("reason", Text),
    instant("started_at"),
    instant("finished_at", now=True),
    Index("ix_activity_run_ends_activity_id_finished_at", "activity_id", "finished_at"),
)

# The context a run saw, one row per source: the first answer is kept, and a repeated step reads it.
run_context = Table(
    "run_context",
    metadata,
    Column("run_id", Uuid, ForeignKey("activity_runs.run_id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", JSONB),
    instant("resolved_at", now=True),
)
