"""`make bench-routing`: what routing an event costs with 10,000 activities registered ÷ with ten, one of them matching.

Two databases, routed in turn by the router's own code in this process, in many short rounds: what else the machine does
falls on both. The ratio is the median of the rounds' ratios.
"""

import argparse
import asyncio
import os
import platform
import statistics
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import asyncpg
from tests.stack import Servers, temporary_home

from activity_core.domain.envelopes import read_native
from activity_core.domain.json_values import JsonValue
from activity_core.services.accept import Acceptor
from activity_core.services.apply import Apply
from activity_core.services.definitions import Definitions
from activity_core.services.event_types import EventSchemas
from activity_core.services.routing import Routing
from activity_core.services.secrets import Secrets
from activity_core.store.database import Database

APPLIED_AT_ONCE = 500


async def register(database: Database, count: int) -> None:
    """`count` activities with types of their own, the first of which is sent."""
    apply = Apply(database, Definitions(), Secrets())
    documents: list[JsonValue] = [
        {
            "kind": "Activity",
            "slug": f"a-{number}",
            "trigger": {"type": "event", "event_types": [f"bench.n{number}.paid"], "filter": "event.data.n >= 0"},
            "tasks": [{"task_type": "note", "consumer": "log"}],
        }
        for number in range(count)
    ]
    for place in range(0, count, APPLIED_AT_ONCE):
        await apply.apply(documents[place : place + APPLIED_AT_ONCE], dry_run=False)


async def settle(url: str) -> None:
    """What Postgres would do by itself soon after so many new rows, at a moment when it is not measured."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def routed(database: Database, events: int) -> float:
    """Seconds per event, from the first batch to an empty queue."""
    acceptor = Acceptor(database, EventSchemas(database), max_data_bytes=1024)
    accepting = asyncio.create_task(acceptor.run())
    prefix = uuid.uuid4().hex[:8]
    sent = [
        read_native({"event_id": f"{prefix}-{n}", "type": "bench.n0.paid", "data": {"n": n}}) for n in range(events)
    ]
    await asyncio.gather(*(acceptor.accept(envelope) for envelope in sent))
    accepting.cancel()
    routing = Routing(database, Definitions())
    began = time.perf_counter()
    while await routing.route_batch():
        pass
    return (time.perf_counter() - began) / events


async def measure(databases: Sequence[Database], rounds: int, events: int) -> list[list[float]]:
    """Seconds per event of each database, by round; who is first changes from round to round."""
    found = []
    for number in range(rounds):
        order = range(len(databases)) if number % 2 == 0 else reversed(range(len(databases)))
        took = {place: await routed(databases[place], events) for place in order}
        found.append([took[place] for place in range(len(databases))])
    return found


async def main(arguments: argparse.Namespace) -> None:
    cores, python = os.cpu_count(), platform.python_version()
    print(
        f"{cores} cores, {platform.machine()}, Python {python}; {arguments.rounds} rounds of {arguments.events} events"
    )
    databases: list[Database] = []
    with temporary_home() as home:
        servers = Servers(Path(home))
        await servers.start()
        try:
            for count in (10, arguments.activities):
                url = await servers.migrated_database()
                databases.append(Database(url, pool_size=5, application_name="bench"))
                await register(databases[-1], count)
                await settle(url)
                await routed(databases[-1], arguments.events)  # warm
            rounds = await measure(databases, arguments.rounds, arguments.events)
        finally:
            await asyncio.gather(*(database.close() for database in databases))
            await servers.stop()
    few, many = (statistics.median(column) * 1e6 for column in zip(*rounds, strict=True))
    ratio = statistics.median(many / few for few, many in rounds)
    print(
        f"routing, µs per event: {few:.0f} with 10 activities, {many:.0f} with {arguments.activities:,}; ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--activities", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=61)
    asyncio.run(main(parser.parse_args()))
