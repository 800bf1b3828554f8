"""Which of Temporal's two implementations of schedules the session's server uses: what is said of it is true."""

import uuid
from datetime import timedelta

from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleIntervalSpec, ScheduleSpec

from tests.stack import eventually, with_chasm


async def test_schedules_are_made_of_the_implementation_that_was_asked_for(temporal_client: Client) -> None:
    """The first keeps each schedule in a workflow of its own, the second in none."""
    name = f"which-{uuid.uuid4()}"
    action = ScheduleActionStartWorkflow("Nothing", id=name, task_queue="nobody")
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=1))])
    handle = await temporal_client.create_schedule(name, Schedule(action=action, spec=spec))

    async def listed() -> bool:
        return name in [schedule.id async for schedule in await temporal_client.list_schedules()]

    await eventually(listed, what="the schedule is listed")
    found = await temporal_client.get_workflow_handle(f"temporal-sys-scheduler:{name}").describe()
    await handle.delete()
    # the second one leaves a stand-in under the workflow's ID, so that no first one can be there too
    assert found.workflow_type == ("temporal-sys-dummy-workflow" if with_chasm() else "temporal-sys-scheduler-workflow")
