"""I11: a watch inside Postgres that notes every step backwards, also those that a look at the end would not show."""

import asyncpg

# Of an old and a new row, what must not be. A decision of the ledger may be taken again only into its history, and
# events are routed again only by a redelivery or a replay.
_BACKWARDS = {
    "events": "OLD.routed_at IS NOT NULL AND NEW.routed_at IS NULL AND NEW.route_as IS NULL",
    "occurrences": "OLD.outcome = 'started' AND (NEW.outcome, NEW.run_id) IS DISTINCT FROM (OLD.outcome, OLD.run_id) "
    "OR OLD.outcome <> 'waiting' AND NEW.outcome <> OLD.outcome AND NEW.history = OLD.history",
    "activity_runs": "NEW.is_open AND NOT OLD.is_open OR NEW.wave < OLD.wave "
    "OR OLD.planned_at IS NOT NULL AND NEW.planned_at IS DISTINCT FROM OLD.planned_at",
    "activity_run_ends": "true",
    "task_instances": "NEW.state_rank < OLD.state_rank OR OLD.ended_at IS NOT NULL AND NEW.state <> OLD.state",
    "task_spawn_log": "NEW.consumer_reference <> OLD.consumer_reference",
    "ops_runs": "OLD.state IN ('delivered', 'failed', 'cancelled') AND NEW.state <> OLD.state",
}
_WATCH = """
    CREATE FUNCTION note_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF TG_OP = 'DELETE' THEN
        INSERT INTO backward_steps VALUES ('{table}: ' || OLD::text || ' removed');
      ELSIF {condition} THEN
        INSERT INTO backward_steps VALUES ('{table}: ' || OLD::text || ' to ' || NEW::text);
      END IF;
      RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION note_{table}()
"""


async def watch(connection: asyncpg.Connection) -> None:
    """From now on, or from this transaction's commit."""
    await connection.execute("CREATE TABLE backward_steps (step text NOT NULL)")
    for table, condition in _BACKWARDS.items():
        await connection.execute(_WATCH.format(table=table, condition=condition))


async def steps_seen(connection: asyncpg.Connection) -> list[str]:
    """ "table: row to row", of each step backwards since `watch`."""
    return [row[0] for row in await connection.fetch("SELECT step FROM backward_steps")]
