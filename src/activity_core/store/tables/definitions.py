"""Activities, their revisions and what subscribes them; consumers, and what holds an activity."""

from sqlalchemy import BigInteger, Column, ForeignKey, ForeignKeyConstraint, Index, Integer, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from activity_core.store.tables.base import instant, metadata

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
    instant("created_at", now=True),
    instant("updated_at", now=True),
    instant("deleted_at", nullable=True),
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
    instant("in_force_from", now=True),
    instant("in_force_until", nullable=True),
)

# The index by event type: one row per pattern of each revision of an event activity.
event_subscriptions = Table(
    "event_subscriptions",
    metadata,
    Column("pattern", Text, primary_key=True),
    Column("activity_id", Uuid, primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    instant("in_force_from"),
    instant("in_force_until", nullable=True),
    ForeignKeyConstraint(
        ["activity_id", "revision"], ["activity_revisions.activity_id", "activity_revisions.revision"]
    ),
    Index("ix_event_subscriptions_activity_id", "activity_id"),
)

consumers = Table(
    "consumers",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("slug", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("effective", JSONB, nullable=False),
    instant("created_at", now=True),
    instant("updated_at", now=True),
    instant("deleted_at", nullable=True),
    Index("uq_consumers_slug_live", "slug", unique=True, postgresql_where=text("deleted_at IS NULL")),
)

# Operator state beside the document: while one is open, times and events wait. Kept as evidence.
pauses = Table(
    "pauses",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("activity_id", Uuid, ForeignKey("activities.id"), nullable=False),
    Column("note", Text),
    instant("from_at"),
    # When it ends by itself.
    instant("until", nullable=True),
    instant("ended_at", nullable=True),
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
    instant("from_at"),
    instant("until", nullable=True),
    instant("ended_at", nullable=True),
    Column("on_misfire", Text),
    Column("events", Text, nullable=False, server_default="run"),
    instant("created_at", now=True),
    Index("ix_freezes_open", "from_at", postgresql_where=text("ended_at IS NULL")),
    Index("ix_freezes_created_at_id", "created_at", "id"),
)
