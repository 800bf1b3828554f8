"""One service for all the tests that only talk to it, and what takes a minute begun before the first of them."""

from collections.abc import AsyncIterator

import httpx
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client

from tests.spine.support import Json, create, ended_runs, event_activity, send, unique
from tests.stack import RunningService, Servers, settings_for, start_service, stop_service


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
