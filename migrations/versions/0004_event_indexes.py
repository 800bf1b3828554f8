"""event indexes

On tables that may be large, so without keeping anybody from writing to them. What an interrupted attempt left of an index is
of no use, and makes room.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

# (name, table, columns, predicate)
INDEXES: tuple[tuple[str, str, tuple[str, ...], str | None], ...] = (
    (
        "ix_occurrences_concurrency",
        "occurrences",
        (
            "activity_id",
            "concurrency_key",
            "due_at",
            "id",
        ),
        "concurrency_key IS NOT NULL AND outcome = 'waiting'",
    ),
    (
        "ix_occurrences_group_waiting",
        "occurrences",
        (
            "activity_id",
            "group_key",
        ),
        "group_key IS NOT NULL AND outcome = 'waiting'",
    ),
    (
        "ix_occurrences_group",
        "occurrences",
        (
            "activity_id",
            "group_key",
            "not_before",
        ),
        "group_key IS NOT NULL AND outcome IN ('waiting', 'started')",
    ),
    (
        "ix_events_dead_letters",
        "events",
        (
            "accepted_at",
            "id",
        ),
        "dead_letter_reason IS NOT NULL",
    ),
    (
        "ix_events_quarantined",
        "events",
        (
            "accepted_at",
            "id",
        ),
        "quarantine_reason IS NOT NULL",
    ),
    (
        "ix_events_source_accepted_at_id",
        "events",
        (
            "source",
            "accepted_at",
            "id",
        ),
        None,
    ),
    (
        "ix_activity_runs_concurrency",
        "activity_runs",
        (
            "activity_id",
            "concurrency_key",
        ),
        "is_open AND concurrency_key IS NOT NULL",
    ),
)


def upgrade() -> None:
    with op.get_context().autocommit_block():
        for name, table, columns, predicate in INDEXES:
            op.drop_index(name, table_name=table, if_exists=True, postgresql_concurrently=True)
            op.create_index(
                name,
                table,
                list(columns),
                postgresql_where=None if predicate is None else sa.text(predicate),
                postgresql_concurrently=True,
            )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        for name, table, _, _ in INDEXES:
            op.drop_index(name, table_name=table, if_exists=True, postgresql_concurrently=True)
