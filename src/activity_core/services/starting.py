"""Start the runs of event and manual rows that wait, and take up starts that were lost on the way.

"Already started" is success (R6), and nothing is written after a start: the gate turns `waiting` into `started`, and a
lease that runs out brings the row back.
"""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import timedelta

import structlog

from activity_core.domain import ids
from activity_core.errors import UnavailableError
from activity_core.services.gate import Gate
from activity_core.store import ledger, runs, starts
from activity_core.store.database import Database
from activity_core.store.starts import StartClaim
from activity_core.temporal.client import Temporal
from activity_core.workflows.contracts import RunInput

LEASE = timedelta(seconds=30)
CONCURRENT_STARTS = 50
RETRY_SECONDS = 2.0
MAX_RETRY_SECONDS = 300.0

log: structlog.stdlib.BoundLogger = structlog.get_logger()


# Open runs younger than this are taken to be at work: older ones wait for slow consumers, and hold up nobody.
AT_WORK_SECONDS = 60.0


class InFlight:
    """Runs that this process started and that have not begun. With those that have begun and not ended it bounds the
    starts: a flood waits in Postgres, where it costs nothing, and not in Temporal, where it takes the time of others."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._since: dict[str, float] = {}

    def room(self) -> int:
        now = asyncio.get_running_loop().time()
        # a start whose begin went to another worker is forgotten when its lease is over
        stale = [key for key, since in self._since.items() if now - since > LEASE.total_seconds()]
        for key in stale:
            del self._since[key]
        return self._limit - len(self._since)

    def add(self, workflow_id: str) -> None:
        self._since[workflow_id] = asyncio.get_running_loop().time()

    def done(self, workflow_id: str) -> None:
        self._since.pop(workflow_id, None)


class Starting:
    def __init__(self, database: Database, temporal: Temporal, gate: Gate, in_flight: InFlight) -> None:
        self._database = database
        self._temporal = temporal
        self._gate = gate
        self._in_flight = in_flight
        self._slots = asyncio.Semaphore(CONCURRENT_STARTS)

    async def start_batch(self) -> int:
        """Claim and start what waits, as far as there is room; how many rows were claimed.

        Raises UnavailableError when Temporal is not there: the claims are given back.
        """
        room = self._in_flight.room()
        if room <= 0:
            return 0
        await self._temporal.client()  # before claiming: without Temporal nothing is taken
        async with self._database.session() as connection:
            room = min(room - await runs.at_work(connection, AT_WORK_SECONDS), 2 * CONCURRENT_STARTS)
            if room <= 0:
                return 0
            claims = await starts.claim(connection, limit=room, lease_seconds=LEASE.total_seconds())
        if not claims:
            return 0
        outcomes = await asyncio.gather(*(self._start(claim) for claim in claims), return_exceptions=True)
        failed = [(claim, error) for claim, error in zip(claims, outcomes, strict=True) if error is not None]
        if failed:
            await self._give_back(failed)
        if any(isinstance(error, UnavailableError) for _, error in failed):
            raise UnavailableError("Temporal can't be reached")
        return len(claims)

    async def _give_back(self, failed: Sequence[tuple[StartClaim, BaseException]]) -> None:
        """Let failed starts be claimed again: soon when Temporal was away, else later and later, so that a start that
        can't succeed takes no place from others."""
        async with self._database.session() as connection:
            for claim, error in failed:
                passing = isinstance(error, UnavailableError)
                delay = (
                    RETRY_SECONDS
                    if passing
                    else min(RETRY_SECONDS * 2 ** min(claim.start_attempts, 10), MAX_RETRY_SECONDS)
                )
                await starts.release(connection, claim.id, delay)
                if not passing:
                    log.error("run.start_failed", key=claim.key, error=f"{type(error).__name__}: {error}")

    async def _start(self, claim: StartClaim) -> None:
        workflow_id = ids.run_workflow_id(claim.activity_id, claim.key)
        async with self._slots:
            self._in_flight.add(workflow_id)
            started = False
            try:
                started = await self._temporal.start_run(workflow_id, RunInput(str(claim.activity_id), claim.key))
            finally:
                if not started:
                    self._in_flight.done(workflow_id)
            if started:
                return
            # the row waited when it was claimed, so the workflow may have ended before the gate: rare enough to look
            verdict = await self.adopt(claim.activity_id, claim.key)
            log.info("run.already_started", workflow_id=workflow_id, verdict=verdict)

    async def adopt(self, activity_id: uuid.UUID, key: str) -> str:
        """Look into a row that waits although its workflow ID is used up. See `AdoptResult` for the verdicts."""
        workflow_id = ids.run_workflow_id(activity_id, key)
        execution = await self._temporal.execution(workflow_id)
        if execution is None:
            return "unknown"
        if execution.status == "running":
            return "running"
        async with self._database.read() as connection:
            occurrence = await ledger.by_key(connection, activity_id, key)
        if occurrence is None or occurrence.outcome != "waiting":
            return "decided"
        if execution.status == "completed":
            # it was refused by the gate, and the row was reopened since
            if ids.key_kind(key) != "time":
                await self._temporal.start_run(workflow_id, RunInput(str(activity_id), key), reuse_closed=True)
            return "restart"
        recorded = await self._gate.record_ended(
            activity_id,
            key,
            execution_run_id=execution.run_id,
            status=execution.status,
            finished_at=execution.closed_at,
        )
        return "adopted" if recorded else "decided"
