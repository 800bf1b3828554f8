"""One service for all the tests that only talk to it, and what takes a minute begun before the first of them."""

from collections.abc import AsyncIterator

import httpx
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client

from tests.spine.support import Json, create, ended_runs, event_activity, items, send, unique
from tests.stack import RunningService, Servers, eventually, settings_for, start_service, stop_service


@pytest.fixture(scope="package")
async def running_service(servers: Servers) -> AsyncIterator[RunningService]:
    """API, router and worker for the whole package."""
    service = await start_service(settings_for(servers, await servers.migrated_database()))
    try:
        yield service
    finally:
        await stop_service(service)


@pytest.fixture(scope="package")
def client(running_service: RunningService) -> httpx.AsyncClient:
    """An HTTP client of the running service."""
    return running_service.client


@pytest.fixture(scope="package", autouse=True)
async def every_minute(client: httpx.AsyncClient) -> Json:
    """Made first, so that its minute passes while the other tests run."""
    return await create(
        client,
        {
            "slug": unique("every-minute"),
            "trigger": {"type": "cron", "cron": "* * * * *", "timezone": "Europe/Berlin", "misfire_policy": "skip"},
            "tasks": [{"task_type": "beat", "consumer": "log", "params": {"at": "${ scheduled_for }"}}],
        },
    )


@pytest.fixture(scope="package", autouse=True)
async def forgotten(client: httpx.AsyncClient, temporal_client: Client) -> Json:
    """An activity whose run Temporal is told to delete with all its history, which takes it twenty seconds."""
    activity = await create(client, event_activity("again.paid"))
    assert (await send(client, "again.paid", "again-1")).status_code == 202
    (run,) = await ended_runs(client, activity, 1)
    assert (await send(client, "again.paid", "again-1")).json()["status"] == "duplicate"
    await temporal_client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace="default", workflow_execution=WorkflowExecution(workflow_id=run["workflow_id"])
        )
    )
    return {"activity": activity, "workflow_id": run["workflow_id"]}


@pytest.fixture(scope="package", autouse=True)
async def cut_off(client: httpx.AsyncClient, temporal_client: Client) -> Json:
    """An activity whose only run was terminated behind our back while its consumer was away, and its task with it."""
    slug = unique("nobody")
    response = await client.post("/v1/consumers", json={"slug": slug, "type": "http", "url": "http://127.0.0.1:9/"})
    assert response.status_code == 201, response.text
    activity = await create(client, event_activity("cut.paid", consumer=slug))
    await send(client, "cut.paid", "cut-1")

    async def delivering() -> list[Json]:
        return await items(client, "/v1/tasks", activity=activity["id"], state="delivering")

    (task,) = await eventually(delivering, what="the first attempt")
    for workflow_id in (f"activity-{activity['id']}:cut-1", task["task_id"]):
        await temporal_client.get_workflow_handle(workflow_id).terminate("test")
    return activity
