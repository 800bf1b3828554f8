"""What /metrics shows: counted in Postgres when it is asked for, so that it is true of all processes together."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import text

from activity_core.store.database import Connection


@dataclass(frozen=True, slots=True)
class Sample:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Metric:
    """`kind` as Prometheus has it: gauge or counter."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


# (name, help, label names, query whose columns are the labels and the value). Recent is the last five minutes: a count of
# the whole ledger would read all of it.
_GAUGES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "activities",
        "Activities that are not deleted, by what they are at the moment.",
        ("state",),
        """
        SELECT CASE WHEN NOT (r.effective->>'enabled')::boolean THEN 'disabled'
                    WHEN p.id IS NOT NULL THEN 'paused' WHEN f.id IS NOT NULL THEN 'frozen' ELSE 'enabled' END, count(*)
        FROM activities a
        JOIN activity_revisions r ON r.activity_id = a.id AND r.revision = a.revision
        JOIN trigger_state t ON t.activity_id = a.id
        LEFT JOIN pauses p ON p.id = t.held_by LEFT JOIN freezes f ON f.id = t.held_by
        WHERE a.deleted_at IS NULL GROUP BY 1
        """,
    ),
    (
        "settle_lag_seconds",
        "How long the activity that is the longest overdue has not been settled; above 10 no worker keeps up.",
        (),
        "SELECT greatest(0, extract(epoch FROM clock_timestamp() - min(next_due_at))) FROM trigger_state "
        "WHERE next_due_at IS NOT NULL",
    ),
    (
        "occurrences_waiting",
        "Ledger rows without an outcome yet.",
        ("kind", "reason_code"),
        "SELECT kind, reason_code, count(*) FROM occurrences WHERE outcome = 'waiting' GROUP BY 1, 2",
    ),
    (
        "occurrences_recent",
        "Ledger rows due within the last five minutes, by what became of them.",
        ("kind", "outcome", "reason_code"),
        "SELECT kind, outcome, reason_code, count(*) FROM occurrences "
        "WHERE due_at > clock_timestamp() - interval '5 minutes' GROUP BY 1, 2, 3",
    ),
    (
        "runs_recent",
        "Runs started within the last five minutes; late: later than late_after_seconds after they were due.",
        ("triggered_by", "late"),
        """
        SELECT r.triggered_by, CASE WHEN r.started_at - o.due_at
                 > make_interval(secs => coalesce((v.effective->'trigger'->>'late_after_seconds')::float8, 300))
               THEN 'true' ELSE 'false' END, count(*)
        FROM activity_runs r JOIN occurrences o ON o.id = r.occurrence_id
        JOIN activity_revisions v ON v.activity_id = r.activity_id AND v.revision = r.revision
        WHERE r.started_at > clock_timestamp() - interval '5 minutes' GROUP BY 1, 2
        """,
    ),
    ("runs_open", "Runs that have not ended.", (), "SELECT count(*) FROM activity_runs WHERE is_open"),
    (
        "schedules_unsynced",
        "Schedules that Temporal does not have as the definitions want them, with or without an error.",
        ("error",),
        "SELECT CASE WHEN sync_error IS NULL THEN 'false' ELSE 'true' END, count(*) FROM activities "
        "WHERE observed_generation < generation GROUP BY 1",
    ),
    (
        "events_unrouted",
        "Accepted events that have not been matched with activities yet.",
        (),
        "SELECT count(*) FROM events WHERE routed_at IS NULL AND quarantine_reason IS NULL",
    ),
    (
        "events_unrouted_age_seconds",
        "Age of the oldest of them.",
        (),
        "SELECT coalesce(extract(epoch FROM clock_timestamp() - min(accepted_at)), 0) FROM events "
        "WHERE routed_at IS NULL AND quarantine_reason IS NULL",
    ),
    (
        "events_dead_letters",
        "Events that could not be routed, or that make each other without end.",
        (),
        "SELECT count(*) FROM events WHERE dead_letter_reason IS NOT NULL",
    ),
    (
        "events_quarantined",
        "Events that their type's schema does not allow, kept back until somebody replays them.",
        (),
        "SELECT count(*) FROM events WHERE quarantine_reason IS NOT NULL",
    ),
    (
        "tasks_open",
        "Tasks that have not ended.",
        ("state",),
        "SELECT state, count(*) FROM task_instances WHERE ended_at IS NULL GROUP BY 1",
    ),
)

_ADD = text(
    "INSERT INTO counters (name, value) VALUES (:name, 1) ON CONFLICT (name) DO UPDATE SET value = counters.value + 1"
)
_COUNTERS = text("SELECT name, value FROM counters")
_COUNTED = {
    "schedule_repairs": ("Schedules that were not as they had been written, and were put right.", ("what",)),
    "webhook_requests": (
        "Webhook requests by source and what became of them; with the receipts that were not written.",
        ("source", "result", "reason_code"),
    ),
    "run_repairs": ("Runs whose workflow ended without us, by the end that was written for them.", ("status",)),
}


async def count(connection: Connection, name: str, label: str) -> None:
    """Count one of something rare: its row is locked until the transaction ends."""
    await connection.execute(_ADD, {"name": f"{name}:{label}"})


async def read(connection: Connection) -> list[Metric]:
    """All of them; but for the activities, each is a query over an index of what is open or recent."""
    found = []
    for name, told, labels, query in _GAUGES:
        rows = (await connection.execute(text(query))).all()
        samples = tuple(Sample(dict(zip(labels, row[:-1], strict=True)), float(row[-1] or 0)) for row in rows)
        found.append(Metric(name, "gauge", told, samples))
    counted = {row.name: row.value for row in await connection.execute(_COUNTERS)}
    for name, (told, labels) in _COUNTED.items():
        samples = tuple(
            Sample(dict(zip(labels, key.partition(":")[2].split("|"), strict=True)), float(value))
            for key, value in sorted(counted.items())
            if key.startswith(f"{name}:")
        )
        found.append(Metric(f"{name}_total", "counter", told, samples))
    return found
