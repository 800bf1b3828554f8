"""A small world of activities with short intervals, and all that can happen to it: what the torture does, at random."""

import asyncio
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import httpx
from temporalio.client import Client, ScheduleBackfill, ScheduleHandle, ScheduleOverlapPolicy
from temporalio.service import RPCError, RPCStatusCode

from tests.consumer import Answer, Consumer, Request, consumer
from tests.misfires.support import POLICIES, now, reached
from tests.spine.support import Json
from tests.stack import Process, Processes, Servers, settings_for

FLAVOURS = ("plain", "allow_all", "jitter", "long", "short_grace")
TEAMS = ("red", "blue")
EVENT_SLUGS = ("on-red-event", "on-blue-event")
# How long after a part came back a request may still find that it was away.
RECOVERY = timedelta(seconds=6)


class Script:
    """The consumer: tasks sent to /long are often refused until seconds later, those to /quick sometimes."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.calm = False
        self.taken: Counter[str] = Counter()

    def __call__(self, request: Request, before: int) -> Answer:
        chance = random.Random(f"{self._seed}{request.key}")
        if not self.calm and before == 0:
            if request.path == "/long" and chance.random() < 0.4:
                return Answer(503, headers={"Retry-After": str(chance.randint(3, 9))})
            if request.path == "/quick" and (lot := chance.random()) < 0.08:
                return (
                    Answer(503, headers={"Retry-After": str(chance.randint(2, 5))}) if lot < 0.06 else Answer(drop=True)
                )
        self.taken[request.key] += 1
        return Answer()


@dataclass
class Down:
    """Something was away, [began, ended]."""

    what: str
    began: datetime
    ended: datetime | None = None

    def covers(self, begun: datetime, answered: datetime) -> bool:
        return self.began <= answered and (self.ended is None or begun <= self.ended + RECOVERY)


@dataclass(frozen=True)
class Failed:
    """A request that got no answer, or a 5xx."""

    begun: datetime
    answered: datetime
    request: str
    status: int | None
    text: str


@dataclass
class World:
    """Two workers, API, router; `documents` by slug as they were sent last. `done` counts what happened."""

    servers: Servers
    settings: dict[str, str]
    chance: random.Random
    script: Script
    target: Consumer
    processes: Processes
    temporal: Client
    api: Process
    router: Process
    workers: list[Process]
    client: httpx.AsyncClient
    documents: dict[str, Json] = field(default_factory=dict)
    downs: list[Down] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    answers: dict[str, Counter[int | None]] = field(default_factory=lambda: defaultdict(Counter))
    story: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    backfills: list[str] = field(default_factory=list)
    freezes: list[str] = field(default_factory=list)
    outages: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    epilogue: bool = False

    @property
    def database_url(self) -> str:
        return self.settings["DATABASE_URL"]

    def tell(self, what: str, detail: object = "") -> None:
        self.done[what] += 1
        self.story.append(f"{now():%H:%M:%S.%f} {what} {detail}")

    async def ask(self, what: str, method: str, path: str, body: Any = None) -> httpx.Response | None:
        """None: no answer came. What is told of it counts as `what`."""
        begun = now()
        try:
            response = await self.client.request(method, path, json=body)
        except httpx.TransportError as error:
            self._note(what, Failed(begun, now(), f"{method} {path}", None, repr(error)))
            return None
        self.answers[what][response.status_code] += 1
        if method != "GET":
            shown = response.text[:200] if response.status_code >= 400 else ""
            self.story.append(f"{now():%H:%M:%S.%f}   {method} {path} {body} -> {response.status_code} {shown}")
        if response.status_code >= 500:
            failed = Failed(begun, now(), f"{method} {path}", response.status_code, response.text[:300])
            self._note(what, failed)
        return response

    def _note(self, what: str, failed: Failed) -> None:
        self.failed.append(failed)
        self.answers[what][failed.status] += failed.status is None

    @contextmanager
    def away(self, what: str) -> Iterator[None]:
        down = Down(what, now())
        self.downs.append(down)
        try:
            yield
        finally:
            down.ended = now()

    async def database(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.database_url, server_settings={"application_name": "torture"})
        try:
            return list(await connection.fetch(query, *arguments))
        finally:
            await connection.close()

    def some(self) -> str:
        """The slug of an activity."""
        return self.chance.choice(list(self.documents))

    def some_timed(self) -> str:
        return self.chance.choice([slug for slug, document in self.documents.items() if _timed(document)])


@asynccontextmanager
async def world(servers: Servers, seed: int) -> AsyncIterator[World]:
    chance, script = random.Random(seed), Script(seed)
    settings = settings_for(servers, await servers.migrated_database())
    processes = Processes(settings)
    try:
        async with consumer(script) as target:
            names = ("router", "worker", "worker", "api")
            router, first, second, api = await asyncio.gather(*(processes.start(name) for name in names))
            base_url = f"http://127.0.0.1:{api.port}"
            temporal = await Client.connect(servers.temporal.address)
            # a connection to an API that was killed must not be used again: what it says of the next one is noise
            limits = httpx.Limits(max_keepalive_connections=0)
            async with httpx.AsyncClient(base_url=base_url, trust_env=False, timeout=30, limits=limits) as client:
                yield World(
                    *(servers, settings, chance, script, target, processes, temporal, api, router, [first, second]),
                    client,
                )
    finally:
        await processes.stop()


async def populate(world: World) -> None:
    for path in ("quick", "long"):
        target = {"slug": path, "type": "http", "url": f"{world.target.url}/{path}"}
        response = await world.ask("consumer", "POST", "/v1/consumers", target)
        assert response is not None and response.status_code == 201, response
    for policy in POLICIES:
        for flavour in FLAVOURS:
            await _create(
                world, _timed_document(world.chance, f"{policy}-{flavour}".replace("_", "-"), policy, flavour)
            )
    for slug, team in zip(EVENT_SLUGS, TEAMS, strict=True):
        trigger = {"type": "event", "event_types": [f"torture.{team}", "torture.both"]}
        task = {"task_type": "note", "consumer": "quick", "params": {"n": "${ event.data.n }"}}
        await _create(world, {"slug": slug, "labels": {"team": team}, "trigger": trigger, "tasks": [task]})


async def _create(world: World, document: Json) -> None:
    response = await world.ask("create", "POST", "/v1/activities", document)
    assert response is not None and response.status_code == 201, response
    world.documents[document["slug"]] = document


def _timed(document: Json) -> bool:
    return document["slug"] not in EVENT_SLUGS


def _timed_document(chance: random.Random, slug: str, policy: str, flavour: str) -> Json:
    trigger: Json = {
        "type": "interval",
        "every_seconds": chance.randint(2, 5),
        "misfire_policy": policy,
        "misfire_grace_seconds": chance.randint(1, 2) if flavour == "short_grace" else chance.randint(4, 10),
        "catchup_limit": chance.choice((3, 5, 10, 50)),
    }
    if flavour == "allow_all":
        trigger["overlap_policy"] = "allow_all"
    if flavour == "jitter":
        trigger["jitter_seconds"] = chance.randint(1, trigger["every_seconds"] - 1)
    consumer_slug = "long" if flavour == "long" else "quick"
    task = {"task_type": "note", "consumer": consumer_slug, "params": {"at": "${ scheduled_for }"}}
    return {"slug": slug, "labels": {"team": chance.choice(TEAMS)}, "trigger": trigger, "tasks": [task]}


# Outages: one of a kind at a time, while everything else goes on.


def _outage(kind: str, work: Callable[[World], Awaitable[None]]) -> Callable[[World], Awaitable[None]]:
    async def begin(world: World) -> None:
        running = world.outages.get(kind)
        if running is None or running.done():
            world.tell(work.__name__.strip("_"))
            world.outages[kind] = asyncio.create_task(_as_coroutine(work(world)))

    begin.__name__ = work.__name__
    return begin


async def _as_coroutine(work: Awaitable[None]) -> None:
    await work


async def _pass(seconds: float) -> None:
    await reached(now() + timedelta(seconds=seconds))


async def _worker_killed(world: World) -> None:
    place = world.chance.randrange(2)
    await world.workers[place].sigkill()
    await _pass(world.chance.uniform(0, 8))
    world.workers[place] = await world.processes.start("worker")


async def _both_workers_killed(world: World) -> None:
    await asyncio.gather(*(worker.sigkill() for worker in world.workers))
    await _pass(world.chance.uniform(5, 20))
    world.workers = [await world.processes.start("worker") for _ in world.workers]


async def _worker_stalled(world: World) -> None:
    stalled = world.chance.choice(world.workers).child
    os.kill(stalled.pid, signal.SIGSTOP)
    await _pass(world.chance.uniform(2, 15))
    if not stalled.ended:
        os.kill(stalled.pid, signal.SIGCONT)


async def _front_killed(world: World) -> None:
    with world.away("front"):
        await asyncio.gather(world.api.sigkill(), world.router.sigkill())
        await _pass(world.chance.uniform(0, 4))
        world.router = await world.processes.start("router")
        world.api = await world.processes.start("api", API_PORT=str(world.api.port))


async def _temporal_stopped(world: World) -> None:
    with world.away("temporal"):
        world.servers.temporal.child.kill()
        await world.servers.temporal.stop()
        await _pass(world.chance.uniform(5, 20))
        await world.servers.temporal.start(headless=True)


async def _backends_terminated(world: World) -> None:
    with world.away("postgres"):
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name <> 'torture'"
        )
        world.tell("backends", len(await world.database(query)))


# What users do.


async def _paused(world: World) -> None:
    body: Json = {"events": world.chance.choice(("run", "skip"))}
    if world.chance.random() < 0.5:
        body["until"] = (now() + timedelta(seconds=world.chance.uniform(1, 15))).isoformat()
    await world.ask("pause", "POST", f"/v1/activities/{world.some()}/pause", body)


async def _resumed(world: World) -> None:
    held = [item["slug"] for item in await listed(world) if item["state"]["paused"]]
    if not held:
        return
    slug = world.chance.choice(held)
    body: Json = {}
    if world.chance.random() < 0.7:
        body["on_misfire"] = world.chance.choice(("policy", "skip", "catchup", "compress"))
    if slug in EVENT_SLUGS:
        body["events"] = world.chance.choice(("run", "skip"))
    await world.ask("resume", "POST", f"/v1/activities/{slug}/resume", body)


async def listed(world: World) -> list[Json]:
    response = await world.ask("list", "GET", "/v1/activities?limit=100")
    return list(response.json()["items"]) if response is not None and response.status_code == 200 else []


async def _frozen(world: World) -> None:
    if len(world.freezes) >= 2:
        return
    chance = world.chance
    body: Json = {"selector": f"team={chance.choice(TEAMS)}", "events": chance.choice(("run", "run", "skip"))}
    begins = now()
    if chance.random() < 0.4:
        begins += timedelta(seconds=chance.uniform(0.5, 5))
        body["from"] = begins.isoformat()
    if chance.random() < 0.5:
        body["until"] = (begins + timedelta(seconds=chance.uniform(2, 15))).isoformat()
    if chance.random() < 0.5:
        body["on_misfire"] = chance.choice(("policy", "skip", "catchup", "compress"))
    response = await world.ask("freeze", "POST", "/v1/freezes", body)
    if response is not None and response.status_code == 201:
        world.freezes.append(response.json()["id"])


async def _thawed(world: World) -> None:
    if world.freezes:
        freeze = world.freezes.pop(0)
        response = await world.ask("thaw", "DELETE", f"/v1/freezes/{freeze}")
        if response is None or response.status_code != 200:
            world.freezes.append(freeze)


async def _edited(world: World) -> None:
    """Another rule, or only another text."""
    chance, document = world.chance, world.documents[world.some()]
    trigger = dict(document["trigger"])
    changes: list[Json] = [{"description": f"edited at {now():%H:%M:%S.%f}"}]
    if _timed(document):
        changes += [{"trigger": trigger | change} for change in _changes(chance, document)]
    await _put(world, document | chance.choice(changes))


def _changes(chance: random.Random, document: Json) -> list[Json]:
    changes: list[Json] = [
        *({"misfire_policy": policy} for policy in POLICIES),
        *({"every_seconds": seconds} for seconds in (2, 3, 4, 5)),
        *({"misfire_grace_seconds": seconds} for seconds in (1, 5, 10)),
        *({"catchup_limit": limit} for limit in (3, 50)),
        {"every_seconds": 3, "anchor": f"2026-01-01T00:00:0{chance.randint(0, 2)}Z"},
    ]
    if document["trigger"].get("jitter_seconds"):
        # jitter must be smaller than the interval
        changes = [{"every_seconds": 5, "jitter_seconds": seconds} for seconds in (1, 2, 4)]
        changes += [{"misfire_policy": policy} for policy in POLICIES] + [{"every_seconds": 2, "jitter_seconds": 1}]
    return changes


async def _put(world: World, document: Json) -> None:
    world.documents[document["slug"]] = document
    await world.ask("put", "PUT", f"/v1/activities/{document['slug']}", document)


async def _enabled(world: World) -> None:
    disabled = [document for document in world.documents.values() if not document.get("enabled", True)]
    document = world.chance.choice(disabled) if len(disabled) > 1 else world.documents[world.some()]
    await _put(world, document | {"enabled": not document.get("enabled", True)})


async def _relabelled(world: World) -> None:
    await _put(world, world.documents[world.some()] | {"labels": {"team": world.chance.choice(TEAMS)}})


async def _replaced(world: World) -> None:
    """Deleted, and another one of the same slug made."""
    slug = world.some_timed()
    response = await world.ask("delete", "DELETE", f"/v1/activities/{slug}")
    if response is None or response.status_code not in (204, 404):
        return
    policy, _, flavour = slug.partition("-")
    document = _timed_document(world.chance, slug, policy, flavour.replace("-", "_"))
    world.documents[slug] = document
    await world.ask("create", "POST", "/v1/activities", document)


async def _backfilled(world: World) -> None:
    chance = world.chance
    start = now() - timedelta(seconds=chance.uniform(3, 150))
    end = min(
        start + timedelta(seconds=chance.uniform(2, 45)), now() - timedelta(seconds=chance.choice((0.0, 1.0, 10.0)))
    )
    body = {"from": start.isoformat(), "to": end.isoformat(), "dry_run": chance.random() < 0.1}
    if start >= end:
        return
    response = await world.ask("backfill", "POST", f"/v1/activities/{world.some_timed()}/backfill", body)
    if response is not None and response.status_code == 202 and response.json()["id"] is not None:
        world.backfills.append(response.json()["id"])


async def _backfill_cancelled(world: World) -> None:
    if world.backfills:
        backfill = world.chance.choice(world.backfills[-3:])
        await world.ask("cancel", "POST", f"/v1/backfills/{backfill}/cancel")


async def _triggered(world: World) -> None:
    overlap = world.chance.choice(("refuse", "wait", "allow"))
    await world.ask(f"trigger {overlap}", "POST", f"/v1/activities/{world.some()}/trigger", {"on_overlap": overlap})


async def _rerun(world: World) -> None:
    response = await world.ask("runs", "GET", "/v1/runs?limit=200")
    if response is None or response.status_code != 200 or not response.json()["items"]:
        return
    run = world.chance.choice(response.json()["items"])
    body = {
        "revision": world.chance.choice(("current", "original")),
        "on_overlap": world.chance.choice(("refuse", "wait", "allow")),
    }
    await world.ask("rerun", "POST", f"/v1/runs/{run['run_id']}/rerun", body)


# What somebody with the `temporal` CLI does.


def _behind_our_back(work: Callable[[World], Awaitable[None]]) -> Callable[[World], Awaitable[None]]:
    async def done(world: World) -> None:
        if any(down.what == "temporal" and down.ended is None for down in world.downs):
            return
        try:
            async with asyncio.timeout(5):
                await work(world)
        except (RPCError, RuntimeError, TimeoutError) as error:
            world.tell("no answer of temporal", getattr(error, "status", error))

    done.__name__ = work.__name__
    return done


async def _terminate(world: World, workflow: str, at_most: int) -> None:
    queue = world.settings["TASK_QUEUE"]
    query = f"TaskQueue = '{queue}' AND WorkflowType = '{workflow}' AND ExecutionStatus = 'Running'"
    running = [execution async for execution in world.temporal.list_workflows(query)]
    for execution in world.chance.sample(running, min(at_most, len(running))):
        try:
            handle = world.temporal.get_workflow_handle(execution.id, run_id=execution.run_id)
            await handle.terminate("torture")
            world.tell(f"terminated {workflow}", execution.id)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise


async def _fires_terminated(world: World) -> None:
    await _terminate(world, "FireActivityWorkflow", 3)


async def _runs_terminated(world: World) -> None:
    await _terminate(world, "RunActivityWorkflow", 2)


async def _schedule(world: World) -> tuple[str, ScheduleHandle]:
    slug = world.some_timed()
    query = "SELECT id FROM activities WHERE slug = $1 AND deleted_at IS NULL"
    found = await world.database(query, slug)
    return slug, world.temporal.get_schedule_handle(f"activity-{found[0][0] if found else 'none'}")


async def _schedule_deleted(world: World) -> None:
    slug, handle = await _schedule(world)
    await handle.delete()
    world.tell("a schedule deleted", slug)


async def _schedule_paused(world: World) -> None:
    slug, handle = await _schedule(world)
    await handle.pause()
    world.tell("a schedule paused", slug)


async def _schedule_backfilled(world: World) -> None:
    slug, handle = await _schedule(world)
    start = now() + timedelta(seconds=world.chance.uniform(-60, 20))
    end = start + timedelta(seconds=world.chance.uniform(1, 30))
    overlap = world.chance.choice((ScheduleOverlapPolicy.ALLOW_ALL, ScheduleOverlapPolicy.BUFFER_ALL))
    await handle.backfill(ScheduleBackfill(start_at=start, end_at=end, overlap=overlap))
    world.tell("a schedule backfilled", f"{slug} {start} {end} {overlap.name}")


async def _schedule_triggered(world: World) -> None:
    slug, handle = await _schedule(world)
    await handle.trigger(overlap=world.chance.choice(list(ScheduleOverlapPolicy)[1:]))
    world.tell("a schedule triggered", slug)


HAPPENINGS: list[tuple[int, Callable[[World], Awaitable[None]]]] = [
    (5, _outage("workers", _worker_killed)),
    (2, _outage("workers", _both_workers_killed)),
    (3, _outage("workers", _worker_stalled)),
    (2, _outage("front", _front_killed)),
    (2, _outage("temporal", _temporal_stopped)),
    (2, _backends_terminated),
    (10, _paused),
    (14, _resumed),
    (5, _frozen),
    (8, _thawed),
    (16, _edited),
    (8, _enabled),
    (5, _relabelled),
    (3, _replaced),
    (8, _backfilled),
    (4, _backfill_cancelled),
    (10, _triggered),
    (6, _rerun),
    (6, _behind_our_back(_fires_terminated)),
    (12, _behind_our_back(_runs_terminated)),
    (3, _behind_our_back(_schedule_deleted)),
    (2, _behind_our_back(_schedule_paused)),
    (4, _behind_our_back(_schedule_backfilled)),
    (4, _behind_our_back(_schedule_triggered)),
]


async def torture(world: World, seconds: float) -> None:
    """Let things happen for that long, then wait for the outages under way."""
    ends = now() + timedelta(seconds=seconds)
    async with asyncio.TaskGroup() as group:
        group.create_task(_send_events(world))
        while now() < ends:
            await _pass(world.chance.uniform(0.1, 1.0))
            weights = [weight for weight, _ in HAPPENINGS]
            _, happening = world.chance.choices(HAPPENINGS, weights)[0]
            await happening(world)
            for outage in world.outages.values():
                if outage.done():
                    outage.result()
        await asyncio.gather(*world.outages.values())
        world.epilogue = True


async def _send_events(world: World) -> None:
    """Some events a second; one whose outcome is unknown is sent again until it is known."""
    chance, number = random.Random(world.chance.random()), 0
    while not world.epilogue:
        number += 1
        kind = chance.choice(("torture.red", "torture.blue", "torture.both"))
        event = {"event_id": f"event-{number}", "type": kind, "data": {"n": number}}
        while True:
            response = await world.ask("event", "POST", "/v1/events", event)
            if response is not None and response.status_code < 500:
                assert response.status_code in (200, 202), response.text
                break
            await _pass(0.5)
        world.accepted.append(f"event-{number}")
        await _pass(chance.uniform(0.1, 1.0))


async def calm(world: World) -> None:
    """Nothing is held, no further time will be due, and what is asked of the consumer is done at once."""
    world.script.calm = True
    for freeze in (await _must(world, "GET", "/v1/freezes?limit=500")).json()["items"]:
        if freeze["ended_at"] is None:
            await _must(world, "DELETE", f"/v1/freezes/{freeze['id']}")
    for activity in (await _must(world, "GET", "/v1/activities?limit=100")).json()["items"]:
        if activity["state"]["paused"]:
            await _must(world, "POST", f"/v1/activities/{activity['id']}/resume", {"events": "run"})
    for slug, document in world.documents.items():
        if _timed(document):
            here = now().replace(microsecond=0)
            soon, far = here + timedelta(seconds=2), here + timedelta(days=100)
            # either has no time any more at once, or soon, or one that is far away
            bounds: list[Json] = [
                {"end_at": here.isoformat()},
                {"end_at": soon.isoformat()},
                {"every_seconds": 31_536_000, "anchor": far.isoformat()},
            ]
            trigger = document["trigger"] | world.chance.choice(bounds)
            await _must(world, "PUT", f"/v1/activities/{slug}", document | {"trigger": trigger})


async def _must(world: World, method: str, path: str, body: Any = None) -> httpx.Response:
    """A few times, as any client would; what came instead is in `failed`."""
    for _ in range(10):
        response = await world.ask("calm", method, path, body)
        if response is not None and response.status_code < 500:
            assert response.status_code < 300, (path, response.text)
            return response
        await _pass(1)
    raise AssertionError(f"no answer: {method} {path}: {world.failed[-1]}")
