"""Whatever comes, no 5xx, and every answer is what /openapi.json says of it."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import closing

import asyncpg
import pytest

from activity_core.dev.ports import LOOPBACK
from tests.checker import BROKEN, broken_rules
from tests.events.made_up import Found, Fuzz
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service

# Replays give quarantined events to the activities of today, not to those of the day when they were accepted.
RULES = {
    rule: query.replace("s.in_force_until > e.accepted_at", "s.in_force_until > e.routed_at")
    for rule, query in BROKEN.items()
}
KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
async def fuzzed(servers: Servers) -> AsyncIterator[RunningService]:
    running = await start_service(settings_for(servers, await servers.migrated_database(), ENCRYPTION_KEYS=KEY))
    try:
        yield running
    finally:
        await stop_service(running)


async def test_no_made_up_request_is_answered_5xx_or_otherwise_than_described(fuzzed: RunningService) -> None:
    await _fuzz(fuzzed, at_least=1_000, per_round=8)


@pytest.mark.slow
async def test_no_request_of_twenty_thousand_is_answered_5xx_or_otherwise_than_described(
    fuzzed: RunningService,
) -> None:
    await _fuzz(fuzzed, at_least=20_000, per_round=50)


async def _fuzz(service: RunningService, *, at_least: int, per_round: int) -> None:
    def run() -> Found:
        with closing(Fuzz(f"http://{LOOPBACK}:{service.api.port}")) as fuzz:
            return fuzz.run(at_least=at_least, per_round=per_round)

    found = await asyncio.to_thread(run)
    print(f"\n{found}")
    for operation, statuses in found.by_operation.items():
        print(f"  {operation}: {dict(sorted(statuses.items()))}")
    assert not found.faults, "\n\n".join(f"{fault}\n{shown}" for fault, shown in found.faults.items())
    # the requests got through the door: each kind of answer was compared with its description
    assert all(found.statuses[status] for status in (200, 201, 202, 204, 404, 422)), found

    connection = await asyncpg.connect(service.database_url)

    async def sound() -> bool:
        assert await broken_rules(connection, RULES) == {}
        return True

    try:
        await eventually(sound, what="the ledger agrees with itself")
    finally:
        await connection.close()
