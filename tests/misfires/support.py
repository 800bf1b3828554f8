"""What the tests of misfires share: reading a ledger from outside, and waiting for an instant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from activity_core.domain.planner import Policy
from tests.spine.support import Json, create, items, unique
from tests.stack import eventually

POLICIES: tuple[Policy, ...] = ("skip", "catchup", "compress")
LIMIT = 2


@dataclass(frozen=True)
class Pace:
    """How often times are due, and their grace."""

    period: timedelta
    grace: timedelta


# A head without a tick is fired two to three seconds after it is due: the grace is well above that.
QUICK = Pace(timedelta(seconds=6), timedelta(seconds=8))
# For when it takes up to twelve seconds until something starts: the SDK asks a server that was away again each ten.
SLOW = Pace(timedelta(seconds=15), timedelta(seconds=9))


@dataclass(frozen=True)
class Row:
    """A nominal time's row. `merged_into`: the nominal time of the run that covers it."""

    scheduled_for: datetime
    outcome: str
    reason_code: str
    merged_into: datetime | None = None


@dataclass(frozen=True)
class Run:
    """A run of nominal times: the window that it was given, and the first, last and number of the times it covers."""

    scheduled_for: datetime
    window: tuple[datetime, datetime]
    covers: tuple[datetime, datetime, int]


@dataclass(frozen=True)
class Ledger:
    """Rows and runs by nominal time, and when those runs started."""

    rows: list[Row]
    runs: list[Run]
    started: dict[datetime, datetime]


def now() -> datetime:
    return datetime.now(UTC)


async def reached(instant: datetime) -> None:
    """Returns when the clock is there."""
    left = (instant - now()).total_seconds()
    await eventually(lambda: now() >= instant, within=max(0.0, left) + 5, what=f"it is {instant}")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def read_ledger(client: httpx.AsyncClient, activity: Json, first: datetime, last: datetime) -> Ledger:
    """The rows and runs of the nominal times in [first, last]."""
    found = await items(client, f"/v1/activities/{activity['id']}/occurrences")
    by_id = {row["id"]: row for row in found}
    rows = [
        Row(
            instant(row["scheduled_for"]),
            row["outcome"],
            row["reason_code"],
            None if row["merged_into"] is None else instant(by_id[row["merged_into"]]["scheduled_for"]),
        )
        for row in found
    ]
    runs = await items(client, f"/v1/activities/{activity['id']}/runs")
    return _within(rows, [(read_run(run), instant(run["started_at"])) for run in runs], first, last)


async def simulated(
    client: httpx.AsyncClient, trigger: Json, first: datetime, last: datetime, *, to: datetime, **more: Any
) -> Ledger:
    """What POST /v1/simulate says of the nominal times in [first, last], as they stand at `to`."""
    asked = {"trigger": trigger, "from": first.isoformat(), "to": to.isoformat(), **more}
    response = await client.post("/v1/simulate", json=asked)
    assert response.status_code == 200, response.text
    answer = response.json()
    rows = [
        Row(
            instant(row["scheduled_for"]),
            row["outcome"],
            row["reason_code"],
            None if row["merged_into"] is None else instant(row["merged_into"]),
        )
        for row in answer["occurrences"]
    ]
    runs = [(read_run(run), instant(run["started_at"])) for run in answer["runs"]]
    return _within(rows, runs, first, last)


def read_run(run: Json) -> Run:
    """From a run as the API shows it, one that was simulated too."""
    covers = run["covers"]
    return Run(
        instant(run["scheduled_for"]),
        (instant(run["window"]["start"]), instant(run["window"]["end"])),
        (instant(covers["first"]), instant(covers["last"]), covers["count"]),
    )


def _within(rows: list[Row], runs: list[tuple[Run, datetime]], first: datetime, last: datetime) -> Ledger:
    mine = [(run, started) for run, started in runs if first <= run.scheduled_for <= last]
    return Ledger(
        sorted((row for row in rows if first <= row.scheduled_for <= last), key=lambda row: row.scheduled_for),
        sorted((run for run, _ in mine), key=lambda run: run.scheduled_for),
        {run.scheduled_for: started for run, started in mine},
    )


def alone(nominal: datetime, period: timedelta) -> Run:
    """The run of one time, for the interval that ends with it."""
    return block([nominal], period)


def block(members: Sequence[datetime], period: timedelta) -> Run:
    """The run of the last of these times, for all of their intervals."""
    first, last = members[0], members[-1]
    return Run(last, (first - period, last), (first, last, len(members)))


def interval_trigger(policy: Policy, pace: Pace) -> Json:
    return {
        "type": "interval",
        "every_seconds": int(pace.period.total_seconds()),
        "misfire_policy": policy,
        "misfire_grace_seconds": int(pace.grace.total_seconds()),
        "catchup_limit": LIMIT,
    }


async def create_each(client: httpx.AsyncClient, pace: Pace, *, consumer: str) -> dict[Policy, Json]:
    """An activity of each policy, with one task a run."""
    task = {"task_type": "note", "consumer": consumer}
    return {
        policy: await create(
            client, {"slug": unique(policy), "trigger": interval_trigger(policy, pace), "tasks": [task]}
        )
        for policy in POLICIES
    }


async def disable(client: httpx.AsyncClient, activity: Json) -> None:
    """From now on no time is due."""
    response = await client.put(f"/v1/activities/{activity['id']}", json={**activity["spec"], "enabled": False})
    assert response.status_code == 200, response.text
