"""events"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "event_types",
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("schema", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("example", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("on_invalid", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("type", name=op.f("pk_event_types")),
    )
    op.create_table(
        "sources",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("effective", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sources")),
    )
    op.create_index(
        "uq_sources_slug_live", "sources", ["slug"], unique=True, postgresql_where=sa.text("deleted_at IS NULL")
    )
    op.create_table(
        "receipts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("source_id", sa.Uuid(), nullable=False),
        sa.Column(
            "received_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("conflict", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("event_uuid", sa.Uuid(), nullable=True),
        sa.Column("secret_id", sa.Uuid(), nullable=True),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("event_type", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=True),
        sa.Column("user_agent", sa.Text(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name=op.f("fk_receipts_source_id_sources")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receipts")),
    )
    op.create_index(
        "ix_receipts_event_uuid",
        "receipts",
        ["event_uuid"],
        unique=False,
        postgresql_where=sa.text("event_uuid IS NOT NULL"),
    )
    op.create_index(
        "ix_receipts_source_id_received_at_id", "receipts", ["source_id", "received_at", "id"], unique=False
    )
    op.create_index(
        "ix_receipts_source_id_result_received_at_id",
        "receipts",
        ["source_id", "result", "received_at", "id"],
        unique=False,
    )
    op.create_table(
        "source_secrets",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("source_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.SmallInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.CheckConstraint("(name IS NULL) <> (sealed IS NULL)", name=op.f("ck_source_secrets_named_or_sealed")),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name=op.f("fk_source_secrets_source_id_sources")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_source_secrets")),
        sa.UniqueConstraint("source_id", "fingerprint", name=op.f("uq_source_secrets_source_id_fingerprint")),
    )
    op.add_column("activity_runs", sa.Column("concurrency_key", sa.Text(), nullable=True))
    op.add_column("events", sa.Column("route_as", sa.Text(), nullable=True))
    op.add_column("events", sa.Column("route_activity_id", sa.Uuid(), nullable=True))
    op.add_column("events", sa.Column("quarantine_reason", sa.Text(), nullable=True))
    op.add_column("events", sa.Column("conflicts", sa.Integer(), server_default="0", nullable=False))
    op.add_column("events", sa.Column("causation_run_id", sa.Uuid(), nullable=True))
    op.add_column("events", sa.Column("depth", sa.SmallInteger(), server_default="0", nullable=False))
    op.add_column("occurrences", sa.Column("group_key", sa.Text(), nullable=True))
    op.add_column("occurrences", sa.Column("group_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("occurrences", sa.Column("not_before", sa.DateTime(timezone=True), nullable=True))
    op.add_column("occurrences", sa.Column("concurrency_key", sa.Text(), nullable=True))
    op.add_column("occurrences", sa.Column("concurrency_limit", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("occurrences", "concurrency_limit")
    op.drop_column("occurrences", "concurrency_key")
    op.drop_column("occurrences", "not_before")
    op.drop_column("occurrences", "group_until")
    op.drop_column("occurrences", "group_key")
    op.drop_column("events", "depth")
    op.drop_column("events", "causation_run_id")
    op.drop_column("events", "conflicts")
    op.drop_column("events", "quarantine_reason")
    op.drop_column("events", "route_activity_id")
    op.drop_column("events", "route_as")
    op.drop_column("activity_runs", "concurrency_key")
    op.drop_table("source_secrets")
    op.drop_index("ix_receipts_source_id_result_received_at_id", table_name="receipts")
    op.drop_index("ix_receipts_source_id_received_at_id", table_name="receipts")
    op.drop_index("ix_receipts_event_uuid", table_name="receipts", postgresql_where=sa.text("event_uuid IS NOT NULL"))
    op.drop_table("receipts")
    op.drop_index("uq_sources_slug_live", table_name="sources", postgresql_where=sa.text("deleted_at IS NULL"))
    op.drop_table("sources")
    op.drop_table("event_types")
