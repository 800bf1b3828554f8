"""`make bench-routing`: what routing an event costs with 10,000 activities registered ÷ with ten, one of them matching.

Two databases, routed in turn by the router's own code in this process, round by round; medians.
"""

import argparse
import asyncio
import os
import platform
import statistics
import time
import uuid
from pathlib import Path

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


async def main(arguments: argparse.Namespace) -> None:
    cores, python = os.cpu_count(), platform.python_version()
    print(
        f"{cores} cores, {platform.machine()}, Python {python}; {arguments.rounds} rounds of {arguments.events} events"
    )
    with temporary_home() as home:
        servers = Servers(Path(home))
        await servers.start()
        databases = []
        try:
            for count in (10, arguments.activities):
                database = Database(await servers.migrated_database(), pool_size=5, application_name="bench")
                databases.append(database)
                await register(database, count)
                await routed(database, 200)  # warm
            rounds = [
                [await routed(database, arguments.events) for database in databases] for _ in range(arguments.rounds)
            ]
        finally:
            await asyncio.gather(*(database.close() for database in databases))
            await servers.stop()
    few, many = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(b / a for a, b in rounds)
    print(
        f"routing, µs per event: 10 activities {few * 1e6:.0f}, {arguments.activities:,} {many * 1e6:.0f}; ratio {ratio:.2f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--activities", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=7)
    asyncio.run(main(parser.parse_args()))
