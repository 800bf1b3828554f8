"""The poller beside others that decide what it found."""

import pytest

from activity_core.domain import ids
from activity_core.services.poller import Poller
from tests.services.conftest import Bench


async def test_what_became_of_a_head_while_its_fire_was_started_is_no_trouble(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run has begun meanwhile, and another settle has found that nothing more may start."""
    activity, [minute] = await bench.every_minute(due=1, grace_seconds=86_400)
    poller, temporal = Poller(bench.database, bench.parts.settler, bench.parts.temporal), bench.parts.temporal
    await poller.look(activity)
    start_fire, fired = temporal.start_fire, list[str]()

    async def slowly(workflow_id: str, activity_id: str) -> None:
        await start_fire(workflow_id, activity_id)
        assert (await bench.gate(activity, ids.time_key(minute), "mine")).verdict == "go"
        await poller.look(activity)
        fired.append(workflow_id)

    monkeypatch.setattr(temporal, "start_fire", slowly)
    await poller.fire_heads()
    await poller.fire_heads()
    assert fired == [ids.fire_workflow_id(activity, minute)]
