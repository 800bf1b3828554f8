"""Everything at once, at random, on a small world; then it must come to rest, and be whole.

ACTIVITY_CORE_TEST_SEED and ACTIVITY_CORE_TEST_SECONDS say what is drawn and for how long things happen.
"""

import csv
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from tests.checker import (
    UNFINISHED,
    broken,
    broken_rules,
    lost_events,
    quiescent,
    shared_attempts,
    strangers,
    unlike_repeats,
)
from tests.misfires import torture_check
from tests.misfires.support import now
from tests.misfires.torture import World, calm, populate, torture, world
from tests.stack import Servers, eventually

pytestmark = [pytest.mark.fault, pytest.mark.slow]

REST_SECONDS = 240


async def test_i2_i4_i7_i8_i11_whatever_happens_the_ledger_is_complete_and_nothing_runs_twice(
    own_servers: Servers,
) -> None:
    seed = int(os.environ.get("ACTIVITY_CORE_TEST_SEED") or random.randrange(1_000_000))
    seconds = float(os.environ.get("ACTIVITY_CORE_TEST_SECONDS", "180"))
    print(f"\nseed {seed}, {seconds:.0f} s")
    async with world(own_servers, seed) as tortured:
        await populate(tortured)
        try:
            await torture(tortured, seconds)
            await calm(tortured)
        except BaseException:
            await report(tortured)
            await keep(tortured, seed)
            raise
        began = now()
        found = []
        try:
            await eventually(lambda: quiescent(tortured.database_url), within=REST_SECONDS, what="all is at rest")
        except AssertionError:
            found += await unfinished(tortured)
        print(f"at rest after {(now() - began).total_seconds():.1f} s")
        await report(tortured)
        await keep(tortured, seed)
        found += await all_findings(tortured)
        print("\n".join(found))
        assert not found


async def all_findings(world: World) -> list[str]:
    url = world.database_url
    found = [f"broken: {rule}: {row}" for rule, rows in (await broken(url)).items() for row in rows]
    activities = await torture_check.read(url)
    found += torture_check.findings(activities)
    found += [f"an event is lost: {event}" for event in await lost_events(url, world.accepted)]
    found += await ran_twice(world)
    found += await unlike_effects(world)
    found += [f"a delivery repeated with another body: {key}" for key in unlike_repeats(world.target)]
    found += [f"an attempt of two requests: {attempt}" for attempt in shared_attempts(world.target)]
    found += [f"unanswered: {failed}" for failed in unexplained(world)]
    return found + [f"log: {text}" for text, count in tracebacks(world).items() if not EXPECTED.search(text)]


async def unfinished(world: World) -> list[str]:
    connection = await asyncpg.connect(world.database_url)
    try:
        left = await broken_rules(connection, UNFINISHED)
        states = await connection.fetch("SELECT * FROM trigger_state")
    finally:
        await connection.close()
    return [f"no rest: {rule}: {row}" for rule, rows in left.items() for row in rows] + [
        f"no rest: {dict(state)}" for state in states
    ]


async def ran_twice(world: World) -> list[str]:
    """Workflows that the ledger does not know, and IDs of more than one execution: a second is right only for a time that
    a backfill reopened, when the first one had been refused (R6)."""
    client = await Client.connect(world.servers.temporal.address)
    names = await strangers(client, world.settings["TASK_QUEUE"], world.database_url)
    rows = await world.database(
        "SELECT 'activity-' || activity_id || ':' || key FROM occurrences WHERE kind = 'time' AND history <> '[]'"
    )
    reopened = {row[0] for row in rows}
    found = []
    for name in names:
        executions = [one async for one in client.list_workflows(f"WorkflowId = '{name}'")]
        first = sorted(executions, key=lambda one: one.start_time)[:-1]
        if (
            name not in reopened
            or not first
            or any(one.status is None or one.status.name != "COMPLETED" for one in first)
        ):
            found.append(f"a stranger: {name}: {[(one.run_id, one.start_time, one.status) for one in executions]}")
    return found


async def unlike_effects(world: World) -> list[str]:
    """Every completed task has its effect; an effect without one belongs to a task that was given up while it was sent."""
    rows = await world.database(
        "SELECT d.idempotency_key, t.state, t.reason, t.id FROM ops_runs d JOIN task_instances t ON t.id = d.task_id"
    )
    tasks = {row["idempotency_key"]: row for row in rows}
    found = [f"no task has the key {key}" for key in world.script.taken.keys() - tasks.keys()]
    for key, task in tasks.items():
        taken = key in world.script.taken
        if task["state"] == "completed" and not taken:
            found.append(f"completed and never sent: {dict(task)}")
        if task["state"] not in ("completed", "cancelled") and (taken or task["state"] != "failed"):
            found.append(f"its effect happened: {taken}: {dict(task)}")
    return found


def unexplained(world: World) -> Iterator[object]:
    """Requests without an answer, and 5xx: only a 503, or none at all, and only while something was away."""
    for failed in world.failed:
        away = [down.what for down in world.downs if down.covers(failed.begun, failed.answered)]
        if failed.status not in (None, 503) or not away or (failed.status is None and "front" not in away):
            yield failed


# What the log may say while something is away, or when a schedule is deleted by hand while it is written: all is tried again.
EXPECTED = re.compile(
    r"UnavailableError: (Postgres|Temporal) |schedule\.sync_failed: "
    r"|RPCError: Timeout expired|no_schedule: the activity has no"
)


def tracebacks(world: World) -> Counter[str]:
    """What processes of ours wrote that is an error, or has a traceback: process, event, last line."""
    found: Counter[str] = Counter()
    for process in world.processes.running:
        for line in process.lines:
            try:
                entry = json.loads(line)
            except ValueError:
                if "Traceback" in line or "panicked" in line:
                    found[f"{process.name}: not JSON: {line}"] += 1
                continue
            trace = str(entry.get("exception") or "").strip()
            if trace or entry.get("level") in ("error", "critical"):
                last = trace.splitlines()[-1] if trace else str(entry.get("error", ""))
                event = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\{.*\}|\d+", "…", str(entry.get("event")))
                found[f"{process.name}: {event}: {re.sub(r'[0-9a-f]{8}-[0-9a-f-]{27}', '…', last)[:160]}"] += 1
    return found


async def report(world: World) -> None:
    print("happened:", dict(sorted(world.done.items())))
    print("answers:", {name: dict(counts) for name, counts in sorted(world.answers.items())})
    rows = await world.database(
        "SELECT kind, outcome, reason_code, count(*) FROM occurrences GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    print("occurrences:", ", ".join(" ".join(str(value) for value in row) for row in rows))
    ends = await world.database("SELECT status, count(*) FROM activity_run_ends GROUP BY 1")
    print("runs:", dict(list(map(tuple, ends))), "tasks sent:", sum(world.script.taken.values()))
    print("away:", [f"{down.what} {down.began:%H:%M:%S} to {down.ended:%H:%M:%S}" for down in world.downs])
    for text, count in tracebacks(world).most_common():
        print(f"log: {count} × {text}")


async def keep(world: World, seed: int) -> None:
    """What is needed to find a cause, in a directory of ACTIVITY_CORE_TEST_KEEP."""
    home = os.environ.get("ACTIVITY_CORE_TEST_KEEP")
    if not home:
        return
    place = Path(home) / str(seed)
    place.mkdir(parents=True, exist_ok=True)
    (place / "story.txt").write_text("\n".join(world.story))
    for number, process in enumerate(world.processes.running):
        (place / f"{process.name}-{number}.log").write_text(process.text)
    connection = await asyncpg.connect(world.database_url)
    try:
        for row in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
            found_rows = await connection.fetch(f'SELECT * FROM "{row[0]}"')
            with (place / f"{row[0]}.csv").open("w") as file:
                writer = csv.writer(file)
                writer.writerows([list(found_rows[0].keys()), *map(list, found_rows)] if found_rows else [])
    finally:
        await connection.close()
