"""The worker process: runs workflows and their steps, starts what waits, settles what is overdue, keeps Temporal's
schedules and the ends of runs true."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activity_core.errors import UnavailableError
from activity_core.processes import run_until_stopped, watch_parent
from activity_core.services.context import ContextResolver
from activity_core.services.definitions import Definitions
from activity_core.services.deliveries import Deliveries
from activity_core.services.gate import Gate
from activity_core.services.http_calls import HttpCaller
from activity_core.services.poller import Poller
from activity_core.services.receipts import ReceiptJanitor
from activity_core.services.reconcile import Reconcile
from activity_core.services.runs import Runs
from activity_core.services.schedules import ScheduleSync
from activity_core.services.settle import Settler
from activity_core.services.starting import InFlight, Starting
from activity_core.services.waiters import RunWaiters
from activity_core.settings import Settings
from activity_core.store import deployment
from activity_core.store.database import Database
from activity_core.store.notify import SCHEDULES, STARTS, Wakeup
from activity_core.temporal.client import Temporal
from activity_core.temporal.schedules import Schedules
from activity_core.worker.steps import FireStepsImpl, RunStepsImpl, TaskStepsImpl
from activity_core.workflows.fire import FireActivityWorkflow
from activity_core.workflows.run import RunActivityWorkflow
from activity_core.workflows.task import TaskWorkflow

GRACEFUL_SHUTDOWN = timedelta(seconds=8)
RETRY_SECONDS = 1.0
# Room for waiting steps: a limit near the number of runs in flight costs more than half of the throughput. What bounds
# the work is the number of runs in flight.
CONCURRENCY = 1_000

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parts:
    """The services of a worker process, wired once."""

    database: Database
    temporal: Temporal
    http: HttpCaller
    settler: Settler
    starting: Starting
    runs: Runs
    resolver: ContextResolver
    deliveries: Deliveries
    in_flight: InFlight
    poller: Poller
    schedules: ScheduleSync
    reconcile: Reconcile


async def build(settings: Settings, database: Database, http: HttpCaller, context_http: HttpCaller) -> Parts:
    """Wire the services. Raises ConfigurationError when the database can't be served."""
    served = await deployment.bind(database, settings.temporal_namespace)
    definitions, temporal, waiters = Definitions(), Temporal(settings), RunWaiters()
    settler = Settler(database, definitions)
    poller = Poller(database, settler, temporal)
    in_flight = InFlight(settings.max_runs_in_flight)
    runs = Runs(database, definitions, temporal, waiters)
    deliveries = Deliveries(database, temporal, waiters, http)
    return Parts(
        database=database,
        temporal=temporal,
        http=http,
        settler=settler,
        starting=Starting(database, temporal, Gate(database, definitions), in_flight),
        runs=runs,
        resolver=ContextResolver(database, runs, context_http),
        deliveries=deliveries,
        in_flight=in_flight,
        poller=poller,
        schedules=ScheduleSync(database, Schedules(temporal), served.database_id, poller, settler),
        reconcile=Reconcile(database, temporal, deliveries, runs.cancel_open_tasks),
    )


async def serve(settings: Settings) -> None:
    """Work until SIGTERM, then drain. Raises ConfigurationError when the database can't be served."""
    watch_parent()
    database = Database(
        settings.asyncpg_url, pool_size=settings.database_pool_size, application_name="activity-core-worker"
    )
    # context has connections of its own: a consumer that hangs must not keep runs from being planned
    http, context_http = HttpCaller(), HttpCaller()
    try:
        parts = await build(settings, database, http, context_http)
        starts, schedules = Wakeup(parts.database, STARTS), Wakeup(parts.database, SCHEDULES)
        await run_until_stopped(
            _steps(parts),
            _starting_loop(parts.starting, starts),
            _loop("schedules", parts.schedules.sync_pending, lambda: schedules.wait(5.0)),
            _loop("reconcile schedules", parts.schedules.reconcile, lambda: asyncio.sleep(60.0)),
            _loop("poller", parts.poller.settle_overdue, lambda: asyncio.sleep(0.5)),
            _loop("fires", parts.poller.fire_heads, lambda: asyncio.sleep(0.2)),
            _loop("reconcile runs", parts.reconcile.runs, lambda: asyncio.sleep(15.0)),
            _loop(
                "receipts", ReceiptJanitor(database, days=settings.receipt_days).trim, lambda: asyncio.sleep(3_600.0)
            ),
            _loop("reconcile queues", parts.reconcile.queues, lambda: asyncio.sleep(15.0)),
            _loop("reconcile tasks", parts.reconcile.tasks, lambda: asyncio.sleep(15.0)),
        )
    finally:
        await http.close()
        await context_http.close()
        await database.close()


async def _steps(parts: Parts) -> None:
    """The Temporal worker; connects when Temporal is there."""
    while True:
        try:
            client = await parts.temporal.client()
            break
        except UnavailableError as error:
            log.warning("worker.waiting", error=error.detail)
            await asyncio.sleep(RETRY_SECONDS)
    fire = FireStepsImpl(parts.settler, parts.starting, parts.schedules.schedules)
    run = RunStepsImpl(parts.runs, parts.resolver, parts.in_flight)
    task = TaskStepsImpl(parts.deliveries)
    worker = Worker(
        client,
        task_queue=parts.temporal.task_queue,
        workflows=[FireActivityWorkflow, RunActivityWorkflow, TaskWorkflow],
        activities=[
            *(fire.settle, fire.catch_up, fire.adopt),
            *(run.begin, run.resolve, run.advance, run.end_run),
            *(task.deliver, task.close_task),
        ],
        # determinism is checked where it belongs, in the tests: the sandbox costs a tenth to a third of the throughput
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_workflow_tasks=CONCURRENCY,
        max_concurrent_local_activities=CONCURRENCY,
        max_concurrent_activities=CONCURRENCY,
        graceful_shutdown_timeout=GRACEFUL_SHUTDOWN,
    )
    log.info("worker.ready")
    await worker.run()


async def _starting_loop(starting: Starting, wakeup: Wakeup) -> None:
    try:
        while True:
            try:
                claimed = await starting.start_batch()
            except UnavailableError as error:
                log.warning("starts.waiting", error=error.detail)
                await wakeup.pause(RETRY_SECONDS)
                continue
            except Exception:  # the outermost loop, see _loop
                log.exception("loop.failed", loop="starts")
                await wakeup.pause(RETRY_SECONDS)
                continue
            if not claimed:
                await wakeup.wait(1.0)
    finally:
        await wakeup.close()


async def _loop(name: str, work: Callable[[], Awaitable[object]], rest: Callable[[], Awaitable[None]]) -> None:
    """Do the work, rest, again. What can't be done now is done in a later pass."""
    while True:
        try:
            await work()
        except (UnavailableError, RPCError) as error:
            log.warning("loop.waiting", loop=name, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
        except Exception:  # the outermost loop: a bug in one of the duties must not end the others
            log.exception("loop.failed", loop=name)
            await asyncio.sleep(RETRY_SECONDS)
        await rest()
