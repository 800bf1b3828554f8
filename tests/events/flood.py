"""A flood of events from senders that keep a log, while API, routers and Temporal are killed under them."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from activity_core.dev.ports import LOOPBACK, free_port
from tests.domain.webhooks.support import hex_mac
from tests.stack import Process, Processes, Servers

SECRET = "a secret of the flood"
TYPE = "flood.paid"
SOURCE = "flood"
SENDERS = 32
KILL_EVERY_SECONDS = 2.0
RETRY_SECONDS = 0.2


@dataclass
class Log:
    """What the senders saw: how often each answer came, and the ids that were answered 2xx."""

    answers: Counter[str] = field(default_factory=Counter)
    accepted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    @property
    def converged(self) -> set[str]:
        return self.unknown & self.accepted


@dataclass
class World:
    """Two API processes, two routers and two workers, of which the first two kinds are killed."""

    servers: Servers
    processes: Processes
    apis: list[Process] = field(default_factory=list)
    routers: list[Process] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)

    async def start(self) -> None:
        ports = [free_port(), free_port()]
        self.apis = list(await asyncio.gather(*(self.processes.start("api", API_PORT=str(port)) for port in ports)))
        self.routers = [await self.processes.start("router") for _ in range(2)]
        for _ in range(2):
            await self.processes.start("worker")

    async def kill_one(self, chance: random.Random) -> None:
        """kill -9 of an API or a router, and another one in its place."""
        # in turn: a chance that leaves one kind out proves nothing of it
        kind = (self.apis, self.routers)[self.kills.total() % 2]
        place = chance.randrange(2)
        name, port = kind[place].name, kind[place].port
        await kind[place].sigkill()
        self.kills[name] += 1
        more = {"API_PORT": str(port)} if name == "api" else {}
        kind[place] = await self.processes.start(name, **more)

    async def kill_until(self, stopped: asyncio.Event, chance: random.Random) -> None:
        while not stopped.is_set():
            began = time.monotonic()
            await self.kill_one(chance)
            try:
                async with asyncio.timeout(max(0.0, KILL_EVERY_SECONDS - (time.monotonic() - began))):
                    await stopped.wait()
            except TimeoutError:
                continue


async def send_all(world: World, names: Sequence[str], log: Log, chance: random.Random) -> None:
    """Send every event until it is answered 2xx, a tenth of them twice; every other one as a signed webhook."""
    waiting = [*names, *chance.sample(names, len(names) // 10)]
    chance.shuffle(waiting)
    queue = iter(waiting)
    async with httpx.AsyncClient(trust_env=False, timeout=10, limits=httpx.Limits(max_connections=SENDERS)) as client:

        async def sender(number: int) -> None:
            turn = number
            for name in queue:
                while not await _sent(client, world.apis[turn % 2].port, name, log):
                    turn += 1
                    await asyncio.sleep(RETRY_SECONDS)  # a sender's pause, not a wait for something

        await asyncio.gather(*(sender(number) for number in range(SENDERS)))


async def _sent(client: httpx.AsyncClient, port: int, name: str, log: Log) -> bool:
    url = f"http://{LOOPBACK}:{port}/v1"
    data = {"n": int(name.rpartition("-")[2])}
    try:
        if data["n"] % 2:
            body = json.dumps(data).encode()
            signature = {"X-Hub-Signature-256": f"sha256={hex_mac(SECRET, body)}"}
            headers = {**signature, "X-Event-Id": name, "Content-Type": "application/json"}
            answer = await client.post(f"{url}/webhooks/{SOURCE}", content=body, headers=headers)
        else:
            answer = await client.post(f"{url}/events", json={"event_id": name, "type": TYPE, "data": data})
    except httpx.TransportError:
        log.answers["unknown"] += 1
        log.unknown.add(name)
        return False
    log.answers[str(answer.status_code)] += 1
    if answer.status_code == 503:
        log.unknown.add(name)
        return False
    assert answer.status_code in (200, 202), answer.text
    log.accepted.add(name)
    return True


def event_id(name: str) -> str:
    """As it is stored."""
    return f"{SOURCE}:{name}" if int(name.rpartition("-")[2]) % 2 else name
