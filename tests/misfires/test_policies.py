"""Each policy under each cause, on the running service: what the outage left in the ledger, ran, and asked of Temporal.

Of `overload` this is made: the workers are alive and the ticks come, but the ledger's locks are not to be had, so that
no step that decides gets through until they are. (The room for runs in flight would not do: it bounds events and
requests, never times. A worker without a processor is in `test_kills`, because what it held comes back only when its
tasks' timeouts are over: no single instant ends that outage.)
"""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from activity_core.domain.planner import Policy
from tests.misfires.outages import AFTER, HELD, MISSED, Observed, observed
from tests.misfires.support import LIMIT, POLICIES, Row, Run, alone, block, simulated
from tests.stack import Servers

pytestmark = pytest.mark.fault
CAUSES = [
    pytest.param("worker_down"),
    *(pytest.param(cause, marks=pytest.mark.slow) for cause in ("temporal_down", "overload", "paused", "overlap")),
]


@pytest.fixture(scope="module", params=CAUSES)
async def outage(own_servers: Servers, request: pytest.FixtureRequest) -> AsyncIterator[Observed]:
    async with observed(own_servers, request.param) as found:
        yield found


def expected(found: Observed, policy: Policy) -> tuple[list[Row], list[Run]]:
    """By the rules, R11 to R15, from which times were misfired when something could start again."""
    first, *times = (found.due(number) for number in range(AFTER + 1))
    resumed = found.resumed(policy)
    missed = [time for time in times if time + found.stage.pace.grace < resumed]
    assert missed == [found.due(number) for number in MISSED], "an outage that ended at another instant than meant"
    others = [first, *times[len(missed) :]]
    rows = [Row(time, "started", "on_time") for time in others]
    runs = [alone(time, found.stage.pace.period) for time in others]
    if policy == "skip":
        rows += [Row(time, "skipped", "late") for time in missed]
    elif policy == "catchup":
        rows += [Row(time, "dropped", "over_limit") for time in missed[:-LIMIT]]
        rows += [Row(time, "started", "late") for time in missed[-LIMIT:]]
        runs += [alone(time, found.stage.pace.period) for time in missed[-LIMIT:]]
    else:
        rows += [Row(time, "merged", "compressed", missed[-1]) for time in missed[:-1]]
        rows += [Row(missed[-1], "started", "late")]
        runs += [block(missed, found.stage.pace.period)]
    return sorted(rows, key=lambda row: row.scheduled_for), sorted(runs, key=lambda run: run.scheduled_for)


# Runs of 27 seconds, one after the other: a time each six seconds, misfired eight seconds later.
OVERLAP: dict[Policy, str] = {
    "skip": "started skipped skipped skipped skipped started skipped skipped",
    "catchup": "started dropped started dropped dropped dropped started waiting",
    "compress": "started merged merged started merged merged merged started",
}
OVERLAP_REASONS = {"skipped": "overlap", "dropped": "over_limit", "merged": "compressed", "waiting": "due"}


def expected_overlap(found: Observed, policy: Policy) -> tuple[list[Row], list[Run]]:
    outcomes = OVERLAP[policy].split()
    due = [found.due(number) for number in range(len(outcomes))]
    heads = [time for time, outcome in zip(due, outcomes, strict=True) if outcome == "started"]
    rows: list[Row] = []
    runs: list[Run] = []
    members: list[datetime] = []
    for time, outcome in zip(due, outcomes, strict=True):
        on_time = time == due[0] or policy == "skip"
        reason = OVERLAP_REASONS.get(outcome) or ("on_time" if on_time else "late")
        into = min(head for head in heads if head > time) if outcome == "merged" else None
        rows.append(Row(time, outcome, reason, into))
        members = [*members, time] if outcome in ("merged", "started") else []
        if outcome == "started":
            runs.append(block(members, found.stage.pace.period))
            members = []
    return rows, runs


@pytest.mark.parametrize("policy", POLICIES)
def test_r11_r12_r14_r15_what_the_policy_makes_of_the_cause(outage: Observed, policy: Policy) -> None:
    ledger = outage.ledgers[policy]
    rule = expected_overlap if outage.cause == "overlap" else expected
    assert (ledger.rows, ledger.runs) == rule(outage, policy)
    starts = [ledger.started[time] for time in sorted(ledger.started)]
    assert starts == sorted(starts), "oldest first"


@pytest.mark.parametrize("policy", POLICIES)
async def test_simulate_says_what_came_of_it(outage: Observed, policy: Policy) -> None:
    ledger, trigger = outage.ledgers[policy], outage.stage.activities[policy]["spec"]["trigger"]
    client = outage.stage.service.client
    times = {"from": outage.start.isoformat(), "to": outage.resumed(policy).isoformat()}
    to = outage.last + outage.stage.pace.period / 2
    more: dict[str, Any]
    if outage.cause == "overlap":
        more, to = {"run_seconds": int(HELD.total_seconds())}, outage.first + 2 * HELD + timedelta(seconds=1)
    elif outage.cause == "paused":
        more = {"pauses": [times]}
    else:
        more = {"outages": [{**times, "cause": outage.cause}]}
    said = await simulated(client, trigger, outage.first, outage.last, to=to, **more)
    assert (said.rows, said.runs) == (ledger.rows, ledger.runs)
    late = {time: ledger.started[time] - said.started[time] for time in said.started}
    assert all(timedelta(seconds=-0.5) < one < timedelta(seconds=4) for one in late.values()), late


async def test_r13_the_schedule_was_asked_for_what_is_caught_up(outage: Observed) -> None:
    """A fire bears the name of the time that it was asked for. Of the missed ones, those that the outage left no fire of
    have one afterwards, and only the handle's backfill() asks for past times."""
    resumed = outage.resumed("catchup")
    missed = [time for time in map(outage.due, range(1, AFTER)) if time + outage.stage.pace.grace < resumed]
    activity = outage.stage.activities["catchup"]["id"]
    # the runs of an overlap are so long that the second is dropped before its fire's turn comes
    caught_up = missed[-LIMIT:][: 1 if outage.cause == "overlap" else LIMIT]
    expected_fires = {f"fire-{activity}-{time:%Y-%m-%dT%H:%M:%S}Z" for time in caught_up}
    asked = {fire.id for fire in outage.fires if fire.start_time > resumed - timedelta(seconds=2)}
    assert expected_fires <= asked, asked


async def test_i2_i4_nothing_is_broken_and_temporal_knows_no_stranger(outage: Observed) -> None:
    assert outage.broken == {}
    assert outage.strangers == []
