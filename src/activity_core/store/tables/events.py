"""Sources and what came from them, accepted events, and what is known of their types."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
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

events = Table(
    "events",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("external_id", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("subject", Text),
    instant("time", nullable=True),
    Column("data", JSONB),
    Column("content_hash", LargeBinary, nullable=False),
    instant("accepted_at", now=True),
    instant("routed_at", nullable=True),
    Column("route_attempts", Integer, nullable=False, server_default="0"),
    instant("route_after", now=True),
    Column("dead_letter_reason", Text),
    # How to decide it when it is routed again: `redelivery` or `replay`, of a replay for one activity alone which.
    Column("route_as", Text),
    Column("route_activity_id", Uuid),
    # Why its type's schema keeps it from being routed, until somebody lets it go.
    Column("quarantine_reason", Text),
    # How often its id came again with other content.
    Column("conflicts", Integer, nullable=False, server_default="0"),
    # The run that made it, and how many such steps lie behind it.
    Column("causation_run_id", Uuid),
    Column("depth", SmallInteger, nullable=False, server_default="0"),
    UniqueConstraint("event_id"),
    UniqueConstraint("source", "external_id"),
    Index("ix_events_unrouted", "route_after", postgresql_where=text("routed_at IS NULL")),
    Index("ix_events_accepted_at_id", "accepted_at", "id"),
    Index("ix_events_type_accepted_at_id", "type", "accepted_at", "id"),
    Index("ix_events_source_accepted_at_id", "source", "accepted_at", "id"),
    Index("ix_events_dead_letters", "accepted_at", "id", postgresql_where=text("dead_letter_reason IS NOT NULL")),
    Index("ix_events_quarantined", "accepted_at", "id", postgresql_where=text("quarantine_reason IS NOT NULL")),
)

sources = Table(
    "sources",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("slug", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    # Without the secrets.
    Column("spec", JSONB, nullable=False),
    Column("effective", JSONB, nullable=False),
    instant("created_at", now=True),
    instant("updated_at", now=True),
    instant("deleted_at", nullable=True),
    Index("uq_sources_slug_live", "slug", unique=True, postgresql_where=text("deleted_at IS NULL")),
)

# The secrets of a source, in the order in which they are tried: named, or sealed with a key that is not in the database.
source_secrets = Table(
    "source_secrets",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("source_id", Uuid, ForeignKey("sources.id"), nullable=False),
    Column("position", SmallInteger, nullable=False),
    Column("name", Text),
    Column("sealed", LargeBinary),
    # Tells two secrets apart, and is of no use without the key.
    Column("fingerprint", Text, nullable=False),
    instant("added_at", now=True),
    UniqueConstraint("source_id", "fingerprint"),
    CheckConstraint("(name IS NULL) <> (sealed IS NULL)", name="named_or_sealed"),
)

# One row per webhook request, whatever became of it; the oldest are deleted.
receipts = Table(
    "receipts",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("source_id", Uuid, ForeignKey("sources.id"), nullable=False),
    instant("received_at", now=True),
    # accepted, duplicate, rejected, handshake
    Column("result", Text, nullable=False),
    Column("reason_code", Text),
    Column("reason", Text),
    Column("status", SmallInteger, nullable=False),
    Column("conflict", Boolean, nullable=False, server_default="false"),
    # No foreign keys: a receipt outlives neither, and must not keep either.
    Column("event_uuid", Uuid),
    Column("secret_id", Uuid),
    Column("external_id", Text),
    Column("event_type", Text),
    Column("size_bytes", Integer, nullable=False),
    Column("content_type", Text),
    Column("user_agent", Text),
    Column("request_id", Text, nullable=False),
    Index("ix_receipts_source_id_received_at_id", "source_id", "received_at", "id"),
    Index("ix_receipts_source_id_result_received_at_id", "source_id", "result", "received_at", "id"),
    Index("ix_receipts_event_uuid", "event_uuid", postgresql_where=text("event_uuid IS NOT NULL")),
)

# What is declared of an event type; types without a row are as welcome.
event_types = Table(
    "event_types",
    metadata,
    Column("type", Text, primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("description", Text),
    Column("schema", JSONB),
    Column("example", JSONB),
    # refuse, quarantine
    Column("on_invalid", Text, nullable=False),
    instant("created_at", now=True),
    instant("updated_at", now=True),
)
