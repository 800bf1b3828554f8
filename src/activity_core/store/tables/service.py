"""What the service keeps of itself."""

from sqlalchemy import BigInteger, CheckConstraint, Column, LargeBinary, SmallInteger, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from activity_core.store.tables.base import instant, metadata

# One database serves one Temporal namespace (R7); this row says which.
deployment = Table(
    "deployment",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("database_id", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column("temporal_namespace", Text, nullable=False),
    instant("created_at", now=True),
    CheckConstraint("id = 1", name="single_row"),
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
    instant("created_at", now=True),
)
