"""Our side of Temporal: one client per process, connected when it is first needed and there.

Every call is bounded, and an unreachable server is an `UnavailableError`: with the server down the SDK would block for
seconds, and a connect fails at once.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client, TLSConfig, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activity_core.errors import UnavailableError
from activity_core.settings import Settings
from activity_core.workflows import contracts as c

CALL_SECONDS = 10.0
# How long the local steps of a lost worker are waited for. Shorter, and a busy server's own waits would count as losses.
TASK_TIMEOUT = timedelta(seconds=10)
T = TypeVar("T")

_STATUS = {
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.TIMED_OUT: "timed_out",
    WorkflowExecutionStatus.CONTINUED_AS_NEW: "running",
}


@dataclass(frozen=True, slots=True)
class Execution:
    """What Temporal knows of a workflow. `run_id`: its first execution's, as `log_run` records it."""

    status: str
    run_id: str
    closed_at: datetime | None


class Temporal:
    """A lazily connected client. `task_queue` is where our workflows run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self.task_queue = settings.task_queue

    async def client(self) -> Client:
        """The client, connected. Raises UnavailableError."""
        if self._client is None:
            async with self._connecting:
                if self._client is None:
                    self._client = await self._connect()
        return self._client

    async def _connect(self) -> Client:
        s = self._settings
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await Client.connect(
                    s.temporal_address,
                    namespace=s.temporal_namespace,
                    api_key=s.temporal_api_key.get_secret_value() if s.temporal_api_key else None,
                    tls=_tls(s),
                )
        except (RuntimeError, RPCError, TimeoutError, OSError) as error:
            raise UnavailableError(f"Temporal can't be reached at {s.temporal_address}") from error

    async def ping(self) -> None:
        """Raise UnavailableError unless the server answers."""
        client = await self.client()
        try:
            await _bounded(client.service_client.check_health())
        except RPCError as error:
            raise UnavailableError("Temporal is not healthy") from error

    async def start_run(self, workflow_id: str, given: c.RunInput, *, reuse_closed: bool = False) -> bool:
        """Start a run under REJECT_DUPLICATE; False when the ID was used before, which is success too (R6).

        `reuse_closed` is for the one exception, guarded by the gate: a completed workflow that was refused, and whose
        row was reopened since.
        """
        reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if reuse_closed else WorkflowIDReusePolicy.REJECT_DUPLICATE
        return await self._start(c.RUN_WORKFLOW, given, workflow_id, reuse)

    async def start_task(self, given: c.TaskInput) -> bool:
        """Start a task's workflow; False when it was started before."""
        return await self._start(c.TASK_WORKFLOW, given, given.task_id, WorkflowIDReusePolicy.REJECT_DUPLICATE)

    async def _start(self, workflow: str, given: object, workflow_id: str, reuse: WorkflowIDReusePolicy) -> bool:
        client = await self.client()
        try:
            await _bounded(
                client.start_workflow(
                    workflow,
                    given,
                    id=workflow_id,
                    task_queue=self.task_queue,
                    id_reuse_policy=reuse,
                    task_timeout=TASK_TIMEOUT,
                    # starter and worker share process and client: the first task comes with the answer
                    request_eager_start=True,
                )
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def start_fire(self, workflow_id: str, activity_id: str) -> None:
        """Start a fire, or leave the one that runs."""
        client = await self.client()
        await _bounded(
            client.start_workflow(
                c.FIRE_WORKFLOW,
                c.FireInput(activity_id),
                id=workflow_id,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                task_timeout=TASK_TIMEOUT,
            )
        )

    async def signal_settled(self, workflow_id: str) -> bool:
        """Tell a run that the tasks holding it have ended; False when its workflow is closed or unknown."""
        client = await self.client()
        return await self._tolerate_missing(client.get_workflow_handle(workflow_id).signal(c.SETTLED_SIGNAL))

    async def cancel(self, workflow_id: str) -> bool:
        """Ask a workflow to cancel; False when it is closed or unknown."""
        client = await self.client()
        return await self._tolerate_missing(client.get_workflow_handle(workflow_id).cancel())

    async def _tolerate_missing(self, call: Awaitable[Any]) -> bool:
        try:
            await _bounded(call)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True

    async def execution(self, workflow_id: str) -> Execution | None:
        """The newest execution under this ID; None when Temporal knows none."""
        client = await self.client()
        try:
            found = await _bounded(client.get_workflow_handle(workflow_id).describe())
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        status = _STATUS[found.status] if found.status is not None else "running"
        first = found.raw_description.workflow_execution_info.first_run_id or found.run_id
        return Execution(status, first, found.close_time)


async def _bounded(call: Awaitable[T]) -> T:
    """Await a call within its time. `rpc_timeout` would bound each attempt only, not the whole."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await call
    except TimeoutError as error:
        raise UnavailableError("Temporal does not answer") from error
    except RPCError as error:
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise UnavailableError("Temporal can't be reached") from error
        raise


def _tls(settings: Settings) -> TLSConfig | bool:
    ca = settings.temporal_tls_server_ca_cert_path
    cert, key = settings.temporal_tls_client_cert_path, settings.temporal_tls_client_key_path
    if ca is None and cert is None:
        return settings.uses_tls
    return TLSConfig(server_root_ca_cert=_read(ca), client_cert=_read(cert), client_private_key=_read(key))


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
