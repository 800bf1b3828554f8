"""Activities with event rules, and what becomes of events by them."""

import uuid
from typing import Any

from activity_core.domain.envelopes import read_native
from tests.services.conftest import Bench

Json = dict[str, Any]


def kind() -> str:
    """An event type of the test's own."""
    return f"rules.t{uuid.uuid4().hex[:10]}"


async def on(bench: Bench, event_type: str, trigger: Json | None = None, **more: Any) -> uuid.UUID:
    full = {"type": "event", "event_types": [event_type], **(trigger or {})}
    return await bench.create(trigger=full, tasks=[{"task_type": "note", "consumer": "log"}], **more)


async def send(bench: Bench, event_type: str, *names: str, route: bool = True, **more: Any) -> None:
    for name in names:
        envelope = {"event_id": f"{event_type}-{name}", "type": event_type, "data": {"n": name}, **more}
        await bench.acceptor.accept(read_native(envelope))
    if route:
        await bench.routing.route_batch()


async def rows(bench: Bench, activity_id: uuid.UUID) -> dict[str, tuple[str, str]]:
    """(outcome, reason_code) by the last part of the event's id."""
    query = "SELECT key, outcome, reason_code FROM occurrences WHERE activity_id = $1 ORDER BY due_at"
    return {row[0].rpartition("-")[2]: (row[1], row[2]) for row in await bench.sql(query, activity_id)}


async def begin(bench: Bench, activity_id: uuid.UUID, event_type: str, name: str) -> str:
    """What the first step says to the run of an event: by the short way, or the gate."""
    _, passed = await bench.parts.runs._pass_gate(activity_id, f"{event_type}-{name}", f"execution-{name}")
    return passed.verdict


async def start_now(bench: Bench, activity_id: uuid.UUID) -> None:
    """As if the time that events of the activity wait for had passed."""
    await bench.sql(
        "UPDATE occurrences SET not_before = now() - interval '1 s', start_after = now() - interval '1 s' "
        "WHERE activity_id = $1 AND outcome = 'waiting' AND start_after < 'infinity'",
        activity_id,
    )
