"""A flood of events from senders that keep a log, while API and router processes are killed under them."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import httpx

from activity_core.dev.ports import LOOPBACK, free_port
from tests.domain.webhooks.support import hex_mac
from tests.stack import Process, Processes

SECRET = "a secret of the flood"
TYPE = "flood.paid"
SOURCE = "flood"
SENDERS = 32
KILL_EVERY_SECONDS = 2.0
RETRY_SECONDS = 0.2
# Of a process that ends at its start.
STARTS = 5

Outcome = Literal["ok", "duplicate", "unknown", "failed"]
"""`ok`: 202; `duplicate`: 200; `unknown`: 503, or the connection was lost; `failed`: it was never sent, or was refused."""


@dataclass(frozen=True, slots=True)
class Sending:
    """An event as its sender knows it. Every other one is a signed webhook."""

    number: int

    @property
    def name(self) -> str:
        return f"flood-{self.number}"

    @property
    def is_webhook(self) -> bool:
        return self.number % 2 == 1

    @property
    def event_id(self) -> str:
        """As it is stored."""
        return f"{SOURCE}:{self.name}" if self.is_webhook else self.name


@dataclass(frozen=True, slots=True)
class Attempt:
    """`status` 0: there was no answer."""

    sending: Sending
    port: int
    outcome: Outcome
    status: int


@dataclass
class Log:
    """Every attempt, in the order of the answers."""

    attempts: list[Attempt] = field(default_factory=list)

    def with_outcome(self, *outcomes: Outcome) -> set[Sending]:
        return {attempt.sending for attempt in self.attempts if attempt.outcome in outcomes}

    @property
    def accepted(self) -> set[Sending]:
        return self.with_outcome("ok", "duplicate")

    @property
    def counts(self) -> Counter[str]:
        return Counter(attempt.outcome for attempt in self.attempts)


def unconverged(log: Log) -> set[Sending]:
    """I3: whose outcome was unknown, and never became known."""
    return log.with_outcome("unknown") - log.accepted


def accepted_twice(log: Log) -> set[Sending]:
    """I2: that were new more than once."""
    new = Counter(attempt.sending for attempt in log.attempts if attempt.outcome == "ok")
    return {sending for sending, count in new.items() if count > 1}


def refused(log: Log) -> list[Attempt]:
    """Answered otherwise than a sound event ever should be."""
    return [attempt for attempt in log.attempts if attempt.outcome == "failed" and attempt.status]


class World:
    """Two API processes, two routers and two workers, of which the first two kinds are killed."""

    def __init__(self, processes: Processes) -> None:
        self.ports = [free_port(), free_port()]
        self.kills: Counter[str] = Counter()
        self._processes = processes
        self._up: dict[str, list[Process | None]] = {}
        self._turn: Counter[str] = Counter()
        self._replacing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._up["api"] = list(await asyncio.gather(*(self._start("api", place) for place in range(2))))
        for name in ("router", "worker"):
            self._up[name] = [await self._start(name, place) for place in range(2)]

    async def _start(self, name: str, place: int) -> Process:
        return await self._processes.start(name, **({"API_PORT": str(self.ports[place])} if name == "api" else {}))

    async def kill_until(self, stopped: asyncio.Event) -> None:
        """kill -9 of an API or a router, in turn, on every tick of the clock; another takes its place as fast as it can."""
        due = time.monotonic()
        names = itertools.cycle(("api", "router"))
        while not stopped.is_set():
            await self._kill_one(next(names))
            due += KILL_EVERY_SECONDS
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, due - time.monotonic())):
                    await stopped.wait()
            except TimeoutError:
                continue
        await asyncio.gather(*self._replacing)

    async def _kill_one(self, name: str) -> None:
        """The one whose turn it is, or else the other; none while neither is up."""
        places, turn = self._up[name], self._turn[name]
        for place in (turn % 2, (turn + 1) % 2):
            victim = places[place]
            if victim is not None:
                places[place] = None
                self._turn[name] = place + 1
                await victim.sigkill()
                self.kills[name] += 1
                replacing = asyncio.create_task(self._replace(name, place))
                self._replacing.add(replacing)
                return

    async def _replace(self, name: str, place: int) -> None:
        """As whatever supervises it would: one that ends at its start, for Postgres was too busy, is started again."""
        for started_before in itertools.count():
            try:
                self._up[name][place] = await self._start(name, place)
            except RuntimeError:
                if started_before == STARTS - 1:
                    raise
            else:
                return


async def send_all(
    ports: Sequence[int], sendings: Sequence[Sending], log: Log, chance: random.Random, *, pause_seconds: float
) -> None:
    """Send every event until it is answered 2xx, and a tenth of them again."""
    waiting = [*sendings, *chance.sample(sendings, len(sendings) // 10)]
    chance.shuffle(waiting)
    queue = iter(waiting)
    async with httpx.AsyncClient(trust_env=False, timeout=10, limits=httpx.Limits(max_connections=SENDERS)) as client:

        async def sender(turn: int) -> None:
            for sending in queue:
                while True:
                    attempt = await _attempt(client, ports[turn % 2], sending)
                    log.attempts.append(attempt)
                    if attempt.outcome in ("ok", "duplicate"):
                        break
                    turn += 1
                    await asyncio.sleep(RETRY_SECONDS)  # a sender's pause, not a wait for something
                await asyncio.sleep(pause_seconds)

        await asyncio.gather(*(sender(number) for number in range(SENDERS)))


async def _attempt(client: httpx.AsyncClient, port: int, sending: Sending) -> Attempt:
    try:
        answer = await _post(client, port, sending)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
        return Attempt(sending, port, "failed", 0)
    except httpx.TransportError:
        return Attempt(sending, port, "unknown", 0)
    known: dict[int, Outcome] = {202: "ok", 200: "duplicate", 503: "unknown"}
    return Attempt(sending, port, known.get(answer.status_code, "failed"), answer.status_code)


async def _post(client: httpx.AsyncClient, port: int, sending: Sending) -> httpx.Response:
    url, data = f"http://{LOOPBACK}:{port}/v1", {"n": sending.number}
    if not sending.is_webhook:
        return await client.post(f"{url}/events", json={"event_id": sending.name, "type": TYPE, "data": data})
    body = json.dumps(data).encode()
    headers = {
        "X-Hub-Signature-256": f"sha256={hex_mac(SECRET, body)}",
        "X-Event-Id": sending.name,
        "Content-Type": "application/json",
    }
    return await client.post(f"{url}/webhooks/{SOURCE}", content=body, headers=headers)
