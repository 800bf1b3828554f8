"""`make bench`: what the record costs, as two ratios against baselines measured in the same run, round by round.

accepts  durable accepts/s of POST /v1/events ÷ a bare FastAPI POST that stores nothing
runs     runs/s from event to recorded end ÷ a hand-written Temporal workflow of the same shape with empty steps
"""

import argparse
import asyncio
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service, temporary_home

from activity_core.dev.child import Child, spawn
from activity_core.dev.ports import free_port
from activity_core.settings import environment_without_settings
from benchmarks.load import bodies, post_all

CALLERS = 32


async def start_bare_api() -> tuple[Child, int]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.baseline:bare_api"]
    options = ["--port", str(port), "--log-level", "error", "--no-access-log", "--loop", "uvloop"]
    child = await spawn("bare", [*command, *options], environment=environment_without_settings(), on_line=print)
    async with httpx.AsyncClient(trust_env=False) as client:

        async def up() -> bool:
            try:
                return (await client.get(f"http://127.0.0.1:{port}/docs")).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(up)
    return child, port


async def accepts(service: RunningService, rounds: int, count: int) -> list[tuple[float, float]]:
    """(ours, baseline) per round, in requests/s. No activity matches: routing is part of it, runs are not."""
    bare, port = await start_bare_api()
    found = []
    try:
        for number in range(rounds):
            baseline = count / await post_all(port, bodies("bench.accept", "bare", count), CALLERS)
            ours = count / await post_all(service.api.port, bodies("bench.accept", f"a{number}", count), CALLERS)
            found.append((ours, baseline))
    finally:
        await bare.stop()
    return found


async def our_runs(service: RunningService, count: int) -> float:
    """Seconds from the first event to the last recorded end."""
    slug = f"bench-{uuid4().hex[:8]}"
    task = {"task_type": "note", "consumer": "log", "params": {"n": "${ event.data.n }"}}
    trigger = {"type": "event", "event_types": [f"{slug}.paid"]}
    response = await service.client.post("/v1/activities", json={"slug": slug, "trigger": trigger, "tasks": [task]})
    activity_id = response.raise_for_status().json()["id"]
    query = "SELECT count(*) FROM activity_run_ends WHERE activity_id = $1 AND status = 'completed'"
    connection = await asyncpg.connect(service.database_url)

    async def all_ended() -> bool:
        return bool(await connection.fetchval(query, activity_id) >= count)

    try:
        began = time.monotonic()
        await post_all(service.api.port, bodies(f"{slug}.paid", slug, count), CALLERS)
        await eventually(all_ended, within=300)
        return time.monotonic() - began
    finally:
        await connection.close()


async def baseline_runs(address: str, count: int) -> float:
    lines: list[str] = []
    command = [sys.executable, "-m", "benchmarks.baseline", address, str(count)]
    child = await spawn("baseline", command, environment=environment_without_settings(), on_line=lines.append)
    if await child.wait() != 0:
        raise RuntimeError("\n".join(lines))
    return float(lines[-1])


async def runs(service: RunningService, rounds: int, count: int) -> list[tuple[float, float]]:
    """(ours, baseline) per round, in runs/s, on one server, taking turns."""
    await our_runs(service, 20)
    found = []
    for _ in range(rounds):
        baseline = count / await baseline_runs(service.temporal_address, count)
        found.append((count / await our_runs(service, count), baseline))
    return found


def show(name: str, rounds: list[tuple[float, float]]) -> None:
    ours, baseline = (statistics.median(side) for side in zip(*rounds, strict=True))
    ratios = [mine / other for mine, other in rounds]
    print(
        f"{name:<8} ours {ours:8.1f}/s   baseline {baseline:8.1f}/s   "
        f"ratio {statistics.median(ratios):.2f}  (rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)})"
    )


async def main(arguments: argparse.Namespace) -> None:
    cores = os.cpu_count()
    print(
        f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}; servers, ",
        end="",
    )
    print("service and load share them")
    with temporary_home() as home:
        servers = Servers(Path(home))
        try:
            await servers.start()
            service = await start_service(settings_for(servers, await servers.migrated_database(), LOG_FORMAT="json"))
            try:
                show("accepts", await accepts(service, arguments.rounds, arguments.events))
                show("runs", await runs(service, arguments.rounds, arguments.runs))
            finally:
                await stop_service(service)
        finally:
            await servers.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=3_000, help="requests a round")
    parser.add_argument("--runs", type=int, default=300, help="runs a round")
    asyncio.run(main(parser.parse_args()))
