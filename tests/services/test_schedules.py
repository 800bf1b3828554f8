"""Schedules that somebody changed behind our back are repaired, and nobody else's is touched (I10)."""

import uuid

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError

from activity_core.domain import ids
from tests.services.conftest import Bench


def cron_document(slug: str) -> dict[str, object]:
    trigger = {"type": "cron", "cron": "0 4 * * *", "timezone": "Europe/Berlin", "misfire_policy": "skip"}
    return {"slug": slug, "trigger": trigger, "tasks": [{"task_type": "a", "consumer": "log"}]}


async def made(bench: Bench, client: Client, slug: str) -> tuple[uuid.UUID, ScheduleHandle]:
    saved = await bench.activities.create(cron_document(slug), idempotency_key=None)  # type: ignore[arg-type]  # JSON
    await bench.parts.schedules.sync_pending()
    return saved.record.id, client.get_schedule_handle(ids.schedule_id(saved.record.id))


async def exists(handle: ScheduleHandle) -> bool:
    try:
        await handle.describe()
    except RPCError:
        return False
    return True


async def test_i10_a_schedule_deleted_by_hand_is_written_again(bench: Bench, temporal_client: Client) -> None:
    _, handle = await made(bench, temporal_client, "deleted-by-hand")
    await handle.delete()
    await bench.parts.schedules.reconcile()
    assert await exists(handle)


async def test_i10_a_schedule_paused_by_hand_is_resumed(bench: Bench, temporal_client: Client) -> None:
    _, handle = await made(bench, temporal_client, "paused-by-hand")
    await handle.pause(note="by hand")
    await bench.parts.schedules.reconcile()
    assert not (await handle.describe()).schedule.state.paused


async def test_i10_a_schedule_edited_by_hand_is_put_right(bench: Bench, temporal_client: Client) -> None:
    activity_id, handle = await made(bench, temporal_client, "edited-by-hand")
    before = await bench.parts.schedules.schedules.fingerprint(activity_id)

    async def every_minute(given: ScheduleUpdateInput) -> ScheduleUpdate:
        schedule = given.description.schedule
        schedule.spec = ScheduleSpec(cron_expressions=["* * * * *"])
        return ScheduleUpdate(schedule=schedule)

    await handle.update(every_minute)
    assert await bench.parts.schedules.schedules.fingerprint(activity_id) != before
    await bench.parts.schedules.reconcile()
    assert await bench.parts.schedules.schedules.fingerprint(activity_id) == before


async def test_a_pass_over_what_is_right_changes_nothing(bench: Bench, temporal_client: Client) -> None:
    activity_id, _ = await made(bench, temporal_client, "left-alone")
    before = (await bench.activities.get(str(activity_id))).generation
    await bench.parts.schedules.reconcile()
    await bench.parts.schedules.reconcile()
    assert (await bench.activities.get(str(activity_id))).generation == before


async def test_i10_a_schedule_of_a_deleted_activity_goes_and_stays_away(bench: Bench, temporal_client: Client) -> None:
    activity_id, handle = await made(bench, temporal_client, "deleted")
    await bench.activities.delete(str(activity_id), if_match=None)
    await bench.parts.schedules.sync_pending()
    assert not await exists(handle)
    await bench.parts.schedules.reconcile()
    assert not await exists(handle)


async def test_i10_a_schedule_that_is_not_ours_is_never_touched(bench: Bench, temporal_client: Client) -> None:
    """Neither one with a name of its own, nor one that is named as ours are, by somebody else."""
    await made(bench, temporal_client, "neighbour")
    foreign = [f"somebody-elses-{uuid.uuid4()}", ids.schedule_id(uuid.uuid4())]
    for name in foreign:
        action = ScheduleActionStartWorkflow("Theirs", id=name, task_queue="theirs")
        await temporal_client.create_schedule(
            name, Schedule(action=action, spec=ScheduleSpec(cron_expressions=["0 5 1 1 *"]))
        )
    described = [await temporal_client.get_schedule_handle(name).describe() for name in foreign]
    await bench.parts.schedules.reconcile()
    after = [await temporal_client.get_schedule_handle(name).describe() for name in foreign]
    assert [d.raw_description.schedule for d in after] == [d.raw_description.schedule for d in described]


async def test_a_time_that_fell_due_while_its_schedule_was_written_is_fired_at_once(
    bench: Bench, temporal_client: Client
) -> None:
    """Temporal never ticks for it, and it need not wait until the poller calls it overdue."""
    activity_id, [nominal] = await bench.every_minute(due=1, grace_seconds=3600)
    await bench.parts.schedules.sync_pending()
    await bench.parts.poller.fire_heads()
    fire = temporal_client.get_workflow_handle(ids.fire_workflow_id(activity_id, nominal))
    assert (await fire.describe()).status is not None
    await fire.terminate("test")
