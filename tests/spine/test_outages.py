"""What is accepted runs, once, whatever goes down meanwhile."""

import asyncio
import contextlib
import os
import random
import re
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from temporalio.client import Client

from activity_core.dev.child import spawn
from activity_core.settings import environment_without_settings
from tests.checker import broken, effects_unlike_tasks, quiescent, shared_attempts, strangers, unlike_repeats
from tests.consumer import Answer, Consumer, consumer
from tests.spine.support import create, ended_runs, event_activity, send
from tests.stack import Servers, eventually, settings_for, start_service, stop_service, temporary_home

EVENTS = 200
pytestmark = pytest.mark.fault


@pytest.fixture(scope="module", autouse=True)
async def killed_parts(servers: Servers) -> AsyncIterator["asyncio.Task[None]"]:
    """Begun before the other tests, because what a killed worker had claimed comes back when its lease is over."""
    running = asyncio.create_task(_kill_parts(servers))
    yield running
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def _kill_parts(servers: Servers) -> None:
    """Two routers and two workers, of which one each is killed (-9) again and again while events come."""
    settings = settings_for(servers, await servers.migrated_database())
    service = await start_service(settings)
    chance = random.Random(11)
    try:
        async with consumer(
            lambda request, before: Answer(503 if before == 0 and chance.random() < 0.1 else 200)
        ) as target:
            slug = "target"
            response = await service.client.post(
                "/v1/consumers", json={"slug": slug, "type": "http", "url": target.url}
            )
            assert response.status_code == 201, response.text
            document = event_activity("parts.paid", consumer=slug)
            document["tasks"][0]["attempt_timeout_seconds"] = 2
            activity = await create(service.client, document)
            for first in range(0, EVENTS, 40):
                doomed = await asyncio.gather(*(service.processes.start(name) for name in ("router", "worker")))
                before = len(target.requests)
                numbers = range(first, first + 40)
                answers = await asyncio.gather(*(send(service.client, "parts.paid", f"parts-{n}", n) for n in numbers))
                assert {answer.status_code for answer in answers} == {202}
                await eventually(partial(_more_than, target, before, chance), within=60)
                await asyncio.gather(*(process.sigkill() for process in doomed))
            await ended_runs(service.client, activity, EVENTS, within=120)
            await eventually(lambda: quiescent(service.database_url), within=60)
            assert await broken(service.database_url) == {}
            assert await effects_unlike_tasks(target, service.database_url) == []
            assert unlike_repeats(target) == [] and shared_attempts(target) == []
            assert len(target.by_key()) == EVENTS
            client = await Client.connect(servers.temporal.address)
            assert await strangers(client, settings["TASK_QUEUE"], service.database_url) == []
    finally:
        await stop_service(service)


def _more_than(target: Consumer, seen: int, chance: random.Random) -> bool:
    return len(target.requests) > seen + chance.randrange(20)


async def test_r28_events_sent_while_temporal_is_down_run_once_when_it_is_back(own_servers: Servers) -> None:
    settings = settings_for(own_servers, await own_servers.migrated_database())
    service = await start_service(settings)
    try:
        activity = await create(service.client, event_activity("down.paid"))
        await own_servers.temporal.stop()
        answers = await asyncio.gather(*(send(service.client, "down.paid", f"down-{n}", n) for n in range(EVENTS)))
        assert {answer.status_code for answer in answers} == {202}
        await own_servers.temporal.start(headless=True)
        runs = await ended_runs(service.client, activity, EVENTS, within=90)
        assert {run["event_id"] for run in runs} == {f"down-{n}" for n in range(EVENTS)}
        assert {run["status"] for run in runs} == {"completed"}
        assert await broken(service.database_url) == {}
    finally:
        await stop_service(service)


async def test_a_definition_saved_while_temporal_is_down_is_scheduled_when_it_is_back(own_servers: Servers) -> None:
    service = await start_service(settings_for(own_servers, await own_servers.migrated_database()))
    try:
        await own_servers.temporal.stop()
        trigger = {"type": "cron", "cron": "0 4 * * *", "timezone": "UTC", "misfire_policy": "skip"}
        activity = await create(service.client, {"slug": "later", "trigger": trigger})
        assert activity["schedule"]["sync"] == "pending"
        await own_servers.temporal.start(headless=True)

        async def in_sync() -> bool:
            found = (await service.client.get("/v1/activities/later")).json()
            return bool(found["schedule"]["sync"] == "in_sync")

        await eventually(in_sync, within=60)
    finally:
        await stop_service(service)


class DevStack:
    """`activity-core dev` in a process group of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.lines: list[str] = []

    async def start(self) -> httpx.AsyncClient:
        self.lines.clear()
        arguments = ["--data-dir", str(self.home), "--api-port", "0", "--temporal-port", "0", "--temporal-ui-port", "0"]
        self.child = await spawn(
            "dev",
            [sys.executable, "-m", "activity_core", "dev", *arguments],
            environment=environment_without_settings(),
            on_line=self.lines.append,
        )

        def address() -> str | None:
            assert not self.child.ended, "\n".join(self.lines)
            found = re.search(r"http://127\.0\.0\.1:\d+", "\n".join(self.lines))
            return found[0] if found else None

        return httpx.AsyncClient(base_url=await eventually(address, within=60), trust_env=False, timeout=10)


async def kill_tree(pid: int) -> None:
    """kill -9 of a process and all its descendants, the parents first, so that none can tidy up."""
    tree = [pid]
    for parent in tree:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended by itself
                tree += [int(child) for child in task.read_text().split()]
    for member in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, 9)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the whole tree")
async def test_i1_i2_i6_kill_9_of_the_whole_tree_in_the_middle_of_events_loses_and_doubles_nothing() -> None:
    with temporary_home() as home:
        stack = DevStack(Path(home))
        client = await stack.start()
        async with consumer(lambda request, before: Answer()) as target:
            try:
                slug = "target"
                response = await client.post("/v1/consumers", json={"slug": slug, "type": "http", "url": target.url})
                assert response.status_code == 201, response.text
                activity = await create(client, event_activity("kill.paid", consumer=slug))
                accepted = await _send_until(client, lambda: len(target.requests) >= 30)
                await kill_tree(stack.child.pid)
                await stack.child.wait()
                await client.aclose()

                client = await stack.start()
                # unknown outcomes converge: whatever had no answer is sent again
                answers = await asyncio.gather(*(send(client, "kill.paid", f"kill-{n}", n) for n in range(EVENTS)))
                assert {answer.status_code for answer in answers} <= {200, 202}, answers[0].text
                duplicates = sum(answer.status_code == 200 for answer in answers)
                assert duplicates >= len(accepted)
                runs = await ended_runs(client, activity, EVENTS, within=120)
                assert {run["status"] for run in runs} == {"completed"}
                assert len({run["event_id"] for run in runs}) == EVENTS
                by_key = target.by_key()
                assert len(by_key) == EVENTS
                assert {requests[0].json["data"]["n"] for requests in by_key.values()} == set(range(EVENTS))
                assert unlike_repeats(target) == [] and shared_attempts(target) == []
                repeated = sum(len(requests) - 1 for requests in by_key.values())
                print(f"accepted before the kill {len(accepted)}, repeated deliveries {repeated}")
            finally:
                await client.aclose()
                await stack.child.stop()


async def _send_until(client: httpx.AsyncClient, enough: Callable[[], bool]) -> list[str]:
    """Send all events a few at a time until enough were delivered; the ids that were accepted."""
    accepted: list[str] = []

    async def one(n: int) -> None:
        try:
            if (await send(client, "kill.paid", f"kill-{n}", n)).status_code in (200, 202):
                accepted.append(f"kill-{n}")
        except httpx.HTTPError:
            pass

    async def all_of_them() -> None:
        for first in range(0, EVENTS, 10):
            await asyncio.gather(*(one(n) for n in range(first, first + 10)))

    sending = asyncio.create_task(all_of_them())
    await eventually(enough, within=60, what="deliveries under way")
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    return accepted


async def test_r26_i1_i2_i5_i6_i7_routers_and_workers_killed_again_and_again_lose_and_double_nothing(
    killed_parts: "asyncio.Task[None]",
) -> None:
    await killed_parts
