"""The ledger, how far its time rows are computed, and requests to fill it again."""

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from activity_core.store.tables.base import instant, metadata

# The lock that every writer of an activity's ledger takes first, and how far its time rows are computed.
trigger_state = Table(
    "trigger_state",
    metadata,
    Column("activity_id", Uuid, ForeignKey("activities.id"), primary_key=True),
    instant("settled_through"),
    instant("last_nominal", nullable=True),
    instant("next_due_at", nullable=True),
    # The pause or freeze that its waiting rows show, and when to look at those again.
    Column("held_by", Uuid),
    instant("hold_changes_at", nullable=True),
    Index("ix_trigger_state_next_due_at", "next_due_at", postgresql_where=text("next_due_at IS NOT NULL")),
)

# A user's request to run times that were skipped or dropped, or were never due: [from_at, to_at).
backfills = Table(
    "backfills",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("activity_id", Uuid, ForeignKey("activities.id"), nullable=False),
    instant("from_at"),
    instant("to_at"),
    Column("note", Text),
    instant("requested_at", now=True),
    instant("cancelled_at", nullable=True),
    Index("ix_backfills_activity_id_requested_at_id", "activity_id", "requested_at", "id"),
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
    instant("due_at"),
    instant("scheduled_for", nullable=True),
    instant("interval_start", nullable=True),
    Column("event_uuid", Uuid, ForeignKey("events.id")),
    Column("params", JSONB),
    Column("triggered_by", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason_code", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("run_id", Uuid),
    instant("created_at", now=True),
    instant("decided_at", nullable=True),
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
    instant("start_after", now=True),
    # Of an event: its debounce or rate-limit key; of a debounce until when it goes on at most (leading: until when others
    # are merged into it); before when it does not start.
    Column("group_key", Text),
    instant("group_until", nullable=True),
    instant("not_before", nullable=True),
    # Of an event: no more than so many runs with this key are open at once.
    Column("concurrency_key", Text),
    Column("concurrency_limit", Integer),
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
    Index(
        "ix_occurrences_group",
        "activity_id",
        "group_key",
        "not_before",
        postgresql_where=text("group_key IS NOT NULL AND outcome IN ('waiting', 'started')"),
    ),
    Index(
        "ix_occurrences_group_waiting",
        "activity_id",
        "group_key",
        postgresql_where=text("group_key IS NOT NULL AND outcome = 'waiting'"),
    ),
    Index(
        "ix_occurrences_concurrency",
        "activity_id",
        "concurrency_key",
        "due_at",
        "id",
        postgresql_where=text("concurrency_key IS NOT NULL AND outcome = 'waiting'"),
    ),
    Index("ix_occurrences_backfill_id", "backfill_id", postgresql_where=text("backfill_id IS NOT NULL")),
)
