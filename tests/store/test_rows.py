"""What the tables themselves guarantee, and how an error of Postgres is told."""

import itertools
import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text

from activity_core.dev.ports import LOOPBACK, free_port
from activity_core.errors import UnavailableError
from activity_core.store import deployment, runs, tasks
from activity_core.store.database import Database
from activity_core.store.tasks import RANKS, TERMINAL, NewTask
from tests.stack import Servers

RUN = "00000000-0000-4000-8000-0000000000f1"
WORLD = f"""
INSERT INTO activities (id, slug, revision) VALUES ('{RUN}', 'a', 1);
INSERT INTO activity_revisions (activity_id, revision, spec, effective) VALUES ('{RUN}', 1, '{{}}', '{{}}');
INSERT INTO trigger_state (activity_id, settled_through) VALUES ('{RUN}', now());
INSERT INTO occurrences (id, activity_id, kind, key, revision, due_at, triggered_by, outcome, reason_code, reason)
  VALUES ('{RUN}', '{RUN}', 'manual', 'manual:1', 1, now(), 'manual', 'started', 'on_time', 'x');
INSERT INTO activity_runs (run_id, workflow_id, activity_id, occurrence_id, revision, triggered_by, owner_execution_run_id)
  VALUES ('{RUN}', 'w', '{RUN}', '{RUN}', 1, 'manual', 'x');
"""


@pytest.fixture
async def database(servers: Servers) -> AsyncIterator[Database]:
    url = await servers.migrated_database()
    connection = await asyncpg.connect(url)
    await connection.execute(WORLD)
    await connection.close()
    made = Database(url, pool_size=2, application_name="test")
    try:
        yield made
    finally:
        await made.close()


def new_task(index: int, *, detached: bool = False, **more: object) -> NewTask:
    values = {
        "id": f"task-{RUN}:a:{index}",
        "uuid": uuid.uuid4(),
        "execution_id": uuid.uuid4(),
        "task_type": "a",
        "index": index,
        "wave": 0,
        "consumer": "log",
        "delivery": {},
        "params": {},
        "detached": detached,
    }
    return NewTask(**(values | more))  # type: ignore[arg-type]  # each is of its field's type


async def plan(database: Database, *new: NewTask) -> bool:
    async with database.session() as connection:
        planned = await tasks.record_plan(
            connection, uuid.UUID(RUN), reason=None, waves=1, open_tasks=len(new), tasks=new
        )
        return planned is not None


async def rows(database: Database, query: str) -> list[tuple[object, ...]]:
    async with database.read() as connection:
        return [tuple(row) for row in await connection.execute(text(query))]


async def state_of(database: Database, index: int) -> tuple[object, ...]:
    query = f"SELECT state, ended_at IS NOT NULL, reason FROM task_instances WHERE index = {index}"
    return (await rows(database, query))[0]


async def test_i11_no_pair_of_states_goes_backwards(database: Database) -> None:
    pairs = list(itertools.product(RANKS, RANKS))
    assert await plan(database, *(new_task(n, detached=bool(n % 2)) for n in range(len(pairs))))
    for index, (first, then) in enumerate(pairs):
        for state in (first, then):
            async with database.session() as connection:
                await tasks.move(connection, f"task-{RUN}:a:{index}", state, delivery="delivered", reason=state)
        forwards = RANKS[then] > RANKS[first]
        reached = then if forwards else first
        expected_reason = None if RANKS[reached] == 0 else reached
        assert await state_of(database, index) == (reached, reached in TERMINAL, expected_reason), (first, then)
    held = sum(
        not (max(RANKS[first], RANKS[then]) >= (2 if index % 2 else 3)) for index, (first, then) in enumerate(pairs)
    )
    assert await rows(database, "SELECT open_tasks FROM activity_runs") == [(held,)]


async def test_r31_r35_the_plan_is_recorded_once(database: Database) -> None:
    first = new_task(0, params={"n": 1})
    assert await plan(database, first)
    everything = (
        "SELECT to_jsonb(t) FROM task_instances t UNION ALL SELECT to_jsonb(s) FROM task_spawn_log s "
        "UNION ALL SELECT to_jsonb(d) FROM ops_runs d UNION ALL SELECT to_jsonb(r) FROM activity_runs r"
    )
    before = await rows(database, everything)
    assert not await plan(database, new_task(0, params={"n": 2}), new_task(1))
    assert await rows(database, everything) == before


async def test_r32_r35_intents_written_again_keep_the_first_values(database: Database) -> None:
    assert await plan(database, new_task(0, params={"n": 1}))
    before = await rows(database, "SELECT params, state FROM task_instances")
    keys = await rows(database, "SELECT idempotency_key FROM ops_runs")
    await rows(database, "UPDATE activity_runs SET planned_at = NULL RETURNING 1")
    ((execution_id,),) = await rows(database, "SELECT activity_execution_id FROM ops_runs")
    assert await plan(database, new_task(0, params={"n": 2}, execution_id=execution_id))
    assert await rows(database, "SELECT params, state FROM task_instances") == before
    assert await rows(database, "SELECT idempotency_key FROM ops_runs") == keys
    assert await rows(database, "SELECT count(*) FROM task_spawn_log") == [(1,)]


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("task_spawn_log", "consumer_reference"),
        ("task_spawn_log", "task_id"),
        ("ops_runs", "idempotency_key"),
        ("ops_runs", "activity_execution_id"),
        ("task_instances", "id"),
        ("task_instances", "uuid"),
        ("activity_runs", "run_id"),
        ("activity_runs", "workflow_id"),
        ("activity_runs", "occurrence_id"),
        ("activity_run_ends", "run_id"),
    ],
)
async def test_r31_r32_r33_what_must_be_unique_is_unique_and_never_null(
    database: Database, table: str, column: str
) -> None:
    await plan(database, new_task(0), new_task(1))
    connection = await asyncpg.connect(database.dsn)
    try:
        unique = await connection.fetchval(
            "SELECT count(*) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indnatts = 1 AND i.indpred IS NULL "
            "AND a.attname = $2 AND a.attnotnull",
            table,
            column,
        )
        assert unique == 1
        if (table, column) == ("ops_runs", "idempotency_key"):
            with pytest.raises(asyncpg.UniqueViolationError):
                await connection.execute("UPDATE ops_runs SET idempotency_key = 'same'")
            with pytest.raises(asyncpg.NotNullViolationError):
                await connection.execute("UPDATE ops_runs SET idempotency_key = NULL")
    finally:
        await connection.close()


async def test_r31_the_consumers_own_reference_is_set_once(database: Database) -> None:
    await plan(database, new_task(0, detached=True))
    for state, reference in (("waiting", "first"), ("completed", "second"), ("completed", "third")):
        async with database.session() as connection:
            await tasks.move(
                connection, f"task-{RUN}:a:0", state, delivery="delivered", reference=reference, output={"is": state}
            )
    assert await rows(database, "SELECT external_reference FROM task_spawn_log") == [("first",)]
    assert await rows(database, "SELECT output ->> 'is' FROM task_instances") == [("completed",)]


async def test_r34_log_run_does_nothing_the_second_time(database: Database) -> None:
    before = await rows(database, "SELECT to_jsonb(r) FROM activity_runs r")
    values = {name: uuid.UUID(RUN) for name in ("run_id", "activity_id", "occurrence_id")}
    async with database.session() as connection:
        await runs.log_run(
            connection,
            {**values, "workflow_id": "other", "revision": 9, "triggered_by": "event", "owner_execution_run_id": "y"},
        )
    assert await rows(database, "SELECT to_jsonb(r) FROM activity_runs r") == before


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '53200'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '57P01'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '55P03'; END $$",
        "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '25006'; END $$",
        "SELECT pg_sleep(10)",
    ],
)
async def test_r25_what_passes_is_unavailable_and_the_next_request_is_served(
    database: Database, statement: str
) -> None:
    with pytest.raises(UnavailableError):
        async with database.begin() as connection:
            await connection.exec_driver_sql("SET LOCAL statement_timeout = 100")
            await connection.exec_driver_sql(statement)
    assert await rows(database, "SELECT 1") == [(1,)]


async def test_r25_a_connection_to_a_server_that_became_read_only_is_not_used_again(servers: Servers) -> None:
    """After a failover the old primary may still answer, as a standby."""
    one = Database(await servers.migrated_database(), pool_size=1, application_name="test")
    (before,) = await rows(one, "SELECT pg_backend_pid()")
    assert await rows(one, "SELECT pg_backend_pid()") == [before]
    with pytest.raises(UnavailableError):
        async with one.begin() as connection:
            await connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            await connection.exec_driver_sql("DELETE FROM events")
    assert await rows(one, "SELECT pg_backend_pid()") != [before]
    await one.close()


async def test_r25_nobody_there_is_unavailable() -> None:
    nowhere = Database(f"postgresql://me:x@{LOOPBACK}:{free_port()}/none", pool_size=1, application_name="test")
    for way in (nowhere.begin, nowhere.read, nowhere.session):
        with pytest.raises(UnavailableError, match="can't be reached"):
            async with way():
                raise AssertionError("there is nobody")
    with pytest.raises(UnavailableError):
        await deployment.bind(nowhere, "default")
    with pytest.raises(UnavailableError):
        await nowhere.listen_connection()
    await nowhere.close()


async def test_i12_a_bug_is_no_outage_and_shows_no_values(database: Database) -> None:
    with pytest.raises(Exception, match="does not exist") as caught:
        async with database.read() as connection:
            await connection.execute(text("SELECT nothing FROM events WHERE event_id = :secret"), {"secret": "hunter2"})
    assert not isinstance(caught.value, UnavailableError)
    assert "hunter2" not in str(caught.value)
