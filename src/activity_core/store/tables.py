"""The schema, as SQLAlchemy Core tables. `alembic check` holds it and the migrations together."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _instant(name: str, *, nullable: bool = False, now: bool = False) -> Column[object]:
    # clock_timestamp() and not now(): what is written after a lock was waited for must not carry the time before it
    default = func.clock_timestamp() if now else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=default)


# One database serves one Temporal namespace (R7); this row says which.
deployment = Table(
    "deployment",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("database_id", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column("temporal_namespace", Text, nullable=False),
    _instant("created_at", now=True),
    CheckConstraint("id = 1", name="single_row"),
)

activities = Table(
    "activities",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("slug", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    # What the Temporal Schedule should be vs the last state that was written to Temporal.
    Column("generation", BigInteger, nullable=False, server_default="1"),
    Column("observed_generation", BigInteger, nullable=False, server_default="0"),
    Column("sync_error", Text),
    # Of the schedule as the server held it after the last write; another one means that somebody changed it.
    Column("schedule_fingerprint", Text),
    _instant("created_at", now=True),
    _instant("updated_at", now=True),
    _instant("deleted_at", nullable=True),
    Index("uq_activities_slug_live", "slug", unique=True, postgresql_where=text("deleted_at IS NULL")),
    Index("ix_activities_unsynced", "id", postgresql_where=text("observed_generation < generation")),
    Index("ix_activities_created_at_id", "created_at", "id"),
)

# Immutable, but for the instant at which the next revision (or the deletion) took over.
activity_revisions = Table(
    "activity_revisions",
    metadata,
    Column("activity_id", Uuid, ForeignKey("activities.id"), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("spec", JSONB, nullable=False),
    Column("effective", JSONB, nullable=False),
    _instant("in_force_from", now=True),
    _instant("in_force_until", nullable=True),
)

# The index by event type: one row per pattern of each revision of an event activity.
event_subscriptions = Table(
    "event_subscriptions",
    metadata,
    Column("pattern", Text, primary_key=True),
    Column("activity_id", Uuid, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    _instant("in_force_from"),
    _instant("in_force_until", nullable=True),
    ForeignKeyConstraint(
        ["activity_id", "revision"], ["activity_revisions.activity_id", "activity_revisions.revision"]
    ),
    Index("ix_event_subscriptions_activity_id", "activity_id"),
)

# The lock that every writer of an activity's ledger takes first, and how far its time rows are computed.
trigger_state = Table(
    "trigger_state",
    metadata,
    Column("activity_id", Uuid, ForeignKey("activities.id"), primary_key=True),
    _instant("settled_through"),
    _instant("last_nominal", nullable=True),
    _instant("next_due_at", nullable=True),
    # The pause or freeze that its waiting rows show, and when to look at those again.
    Column("held_by", Uuid),
    _instant("hold_changes_at", nullable=True),
    Index("ix_trigger_state_next_due_at", "next_due_at", postgresql_where=text("next_due_at IS NOT NULL")),
)

# Operator state beside the document: while one is open, times and events wait. Kept as evidence.
pauses = Table(
    "pauses",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("activity_id", Uuid, ForeignKey("activities.id"), nullable=False),
    Column("note", Text),
    _instant("from_at"),
    # When it ends by itself.
    _instant("until", nullable=True),
    _instant("ended_at", nullable=True),
    # What becomes of the times that waited (null: what their policy says) and of the events.
    Column("on_misfire", Text),
    Column("events", Text, nullable=False, server_default="run"),
    Index("uq_pauses_open", "activity_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index("ix_pauses_activity_id_from_at", "activity_id", "from_at"),
)

# A pause of every activity whose labels match, from an instant on.
freezes = Table(
    "freezes",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("selector", Text, nullable=False),
    Column("note", Text),
    _instant("from_at"),
    _instant("until", nullable=True),
    _instant("ended_at", nullable=True),
    Column("on_misfire", Text),
    Column("events", Text, nullable=False, server_default="run"),
    _instant("created_at", now=True),
    Index("ix_freezes_open", "from_at", postgresql_where=text("ended_at IS NULL")),
    Index("ix_freezes_created_at_id", "created_at", "id"),
)

# A user's request to run times that were skipped or dropped, or were never due: [from_at, to_at).
backfills = Table(
    "backfills",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("activity_id", Uuid, ForeignKey("activities.id"), nullable=False),
    _instant("from_at"),
    _instant("to_at"),
    Column("note", Text),
    _instant("requested_at", now=True),
    _instant("cancelled_at", nullable=True),
    Index("ix_backfills_activity_id_requested_at_id", "activity_id", "requested_at", "id"),
)

events = Table(
    "events",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("external_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text),
    _instant("time", nullable=True),
    Column("data", JSONB),
    Column("content_hash", LargeBinary, nullable=False),
    _instant("accepted_at", now=True),
    _instant("routed_at", nullable=True),
    Column("route_attempts", Integer, nullable=False, server_default="0"),
    _instant("route_after", now=True),
    Column("dead_letter_reason", Text),
    UniqueConstraint("event_id"),
    UniqueConstraint("source", "external_id"),
    Index("ix_events_unrouted", "route_after", postgresql_where=text("routed_at IS NULL")),
    Index("ix_events_accepted_at_id", "accepted_at", "id"),
    Index("ix_events_type_accepted_at_id", "type", "accepted_at", "id"),
)

# The ledger: one row per nominal time, per event of a matching activity, per manual request (R22).
occurrences = Table(
    "occurrences",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("activity_id", Uuid, ForeignKey("activities.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    # When it fell due: the nominal time, the event's acceptance, the manual request.
    _instant("due_at"),
    _instant("scheduled_for", nullable=True),
    _instant("interval_start", nullable=True),
    Column("event_uuid", Uuid, ForeignKey("events.id")),
    Column("params", JSONB),
    Column("triggered_by", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason_code", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("run_id", Uuid),
    _instant("created_at", now=True),
    _instant("decided_at", nullable=True),
    # Earlier decisions of a row that was reopened: [{outcome, reason_code, reason, decided_at}]
    Column("history", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    # How a waiting row is decided whatever the policy is by now: skip, catchup, compress or run; of a request: wait.
    Column("plan_as", Text),
    # The row whose run covers this time.
    Column("merged_into", Uuid),
    # Its catch-up was asked of the schedule.
    Column("issued", Boolean, nullable=False, server_default="false"),
    Column("backfill_id", Uuid),
    Column("rerun_of", Uuid),
    # The queue of starts for event and manual rows; `infinity` while a pause or freeze holds them.
    Column("start_attempts", Integer, nullable=False, server_default="0"),
    _instant("start_after", now=True),
    UniqueConstraint("activity_id", "key"),
    Index(
        "ix_occurrences_waiting_times",
        "activity_id",
        "scheduled_for",
        postgresql_where=text("outcome = 'waiting' AND kind = 'time'"),
    ),
    Index(
        "ix_occurrences_requests",
        "activity_id",
        "due_at",
        "id",
        postgresql_where=text("outcome = 'waiting' AND plan_as = 'wait'"),
    ),
    Index("ix_occurrences_waiting", "activity_id", postgresql_where=text("outcome = 'waiting'")),
    # What went otherwise than planned is looked for often, and is rare.
    Index("ix_occurrences_unusual", "due_at", "id", postgresql_where=text("outcome NOT IN ('started', 'filtered')")),
    Index(
        "ix_occurrences_waiting_starts",
        "start_after",
        postgresql_where=text("outcome = 'waiting' AND kind <> 'time'"),
    ),
    Index("ix_occurrences_activity_id_due_at_id", "activity_id", "due_at", "id"),
    Index("ix_occurrences_due_at_id", "due_at", "id"),
    Index("ix_occurrences_event_uuid", "event_uuid"),
    Index("ix_occurrences_merged_into", "merged_into", postgresql_where=text("merged_into IS NOT NULL")),
    Index("ix_occurrences_backfill_id", "backfill_id", postgresql_where=text("backfill_id IS NOT NULL")),
)

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
    _instant("scheduled_for", nullable=True),
    Column("event_uuid", Uuid, ForeignKey("events.id")),
    _instant("window_start", nullable=True),
    _instant("window_end", nullable=True),
    Column("covers", JSONB),
    _instant("started_at", now=True),
    _instant("planned_at", nullable=True),
    Column("plan_reason", Text),
    # Tasks of the wave under way that have not ended, and which wave that is.
    Column("open_tasks", Integer, nullable=False, server_default="0"),
    Column("wave", Integer, nullable=False, server_default="-1"),
    Column("waves", Integer, nullable=False, server_default="0"),
    # Lowered once, with the insert of the terminal fact: what is open must be found without reading all that ended.
    Column("is_open", Boolean, nullable=False, server_default="true"),
    UniqueConstraint("workflow_id"),
    UniqueConstraint("occurrence_id"),
    Index("ix_activity_runs_activity_id_started_at_run_id", "activity_id", "started_at", "run_id"),
    Index("ix_activity_runs_started_at_run_id", "started_at", "run_id"),
    Index("ix_activity_runs_event_uuid", "event_uuid"),
    Index("ix_activity_runs_open", "activity_id", "started_at", postgresql_where=text("is_open")),
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
    _instant("started_at"),
    _instant("finished_at", now=True),
    Index("ix_activity_run_ends_activity_id_finished_at", "activity_id", "finished_at"),
)

# The context a run saw, one row per source: the first answer is kept, and a repeated step reads it.
run_context = Table(
    "run_context",
    metadata,
    Column("run_id", Uuid, ForeignKey("activity_runs.run_id"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", JSONB),
    _instant("resolved_at", now=True),
)

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
    _instant("created_at", now=True),
    _instant("updated_at", now=True),
    _instant("ended_at", nullable=True),
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
    _instant("intended_at", now=True),
    _instant("spawned_at", nullable=True),
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
    _instant("created_at", now=True),
    _instant("delivered_at", nullable=True),
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
    _instant("started_at", now=True),
    _instant("ended_at", nullable=True),
    Column("outcome", Text),
    Column("late", Boolean, nullable=False, server_default="false"),
    Column("http_status", Integer),
    Column("error", Text),
    Index("ix_ops_attempts_activity_execution_id_started_at", "activity_execution_id", "started_at"),
)

consumers = Table(
    "consumers",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("slug", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("effective", JSONB, nullable=False),
    _instant("created_at", now=True),
    _instant("updated_at", now=True),
    _instant("deleted_at", nullable=True),
    Index("uq_consumers_slug_live", "slug", unique=True, postgresql_where=text("deleted_at IS NULL")),
)

# How often something rare happened, in any process: what /metrics shows beside what it can count.
counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# What a command with an Idempotency-Key was answered, so that its repeat gets the same answer.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", LargeBinary, nullable=False),
    Column("response", JSONB),
    _instant("created_at", now=True),
)
