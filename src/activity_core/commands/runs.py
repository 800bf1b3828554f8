"""Commands about what happens: trigger, runs, occurrences, why."""

import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from activity_core.commands.api import Answer, Api, ProblemError
from activity_core.commands.definitions import more
from activity_core.commands.failure import MISUSED, UNREACHABLE, CommandFailedError
from activity_core.commands.options import (
    DEFAULT_API_URL,
    ApiUrl,
    CursorOption,
    Limit,
    Output,
    OutputAs,
    json_argument,
    program,
)
from activity_core.commands.render import cell_text, instant, note, precise_instant, say, table

POLL_SECONDS = (0.05, 1.0)
UNDECIDED = ("waiting", "started")

ActivityOption = Annotated[str | None, typer.Option("--activity", metavar="REF", help="Only this activity's.")]


def trigger(
    ref: Annotated[str, typer.Argument(metavar="REF", help="Slug or id of the activity.")],
    params: Annotated[str | None, typer.Option(metavar="JSON", help="What `params` is in expressions.")] = None,
    allow_overlap: Annotated[bool, typer.Option("--allow-overlap", help="Also while a run is open.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until the run has ended; exit code 1 unless completed.")
    ] = False,
    timeout: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="Give up waiting then; the run goes on.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Repeating the command with the same key starts nothing new.")
    ] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Run an activity now.

    \b
    Example:
      activity-core trigger digest --wait
      activity-core trigger digest --params '{"only": "north"}' --allow-overlap
    """
    api = Api(api_url)
    body: dict[str, Any] = {}
    if params is not None:
        body["params"] = json_argument(params, option="--params", may_be_file=True)
    if allow_overlap:
        body["on_overlap"] = "allow"
    key = idempotency_key or str(uuid.uuid4())
    try:
        answer = api.post("activities", ref, "trigger", body=body, idempotency_key=key)
    except CommandFailedError as error:
        if error.exit_code == UNREACHABLE and idempotency_key is None:
            error.lines.append(f"It may have started. To ask again without starting it twice: --idempotency-key {key}")
        raise
    started = answer.json
    if wait:
        answer = _ended(api, started, timeout)
    if output is Output.JSON:
        typer.echo(answer.body)
    elif wait:
        _say_end(answer.json)
    else:
        say(f"run {started['run_id']}")
        note(f"See it with `{program()} runs --activity {ref}`.")
    if wait and answer.json["status"] != "completed":
        raise typer.Exit(1)


def _ended(api: Api, started: Mapping[str, Any], timeout: int | None) -> Answer:
    """The run, once it has ended. Raises CommandFailedError when it never starts or `timeout` seconds have passed."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, longest = POLL_SECONDS
    while True:
        run = _run_if_any(api, started)
        if run is not None and run.json["status"] != "running":
            return run
        if deadline is not None and time.monotonic() > deadline:
            state = "is still running" if run is not None else "has not started yet"
            raise CommandFailedError(f"error: after {timeout} s, run {started['run_id']} {state}; it goes on")
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _run_if_any(api: Api, started: Mapping[str, Any]) -> Answer | None:
    try:
        return api.get("runs", started["run_id"])
    except ProblemError as problem:
        if problem.status != 404:
            raise
    # A run is recorded when it starts, and an occurrence that is decided otherwise never does.
    occurrence = api.get("occurrences", started["occurrence_id"]).json
    if occurrence["outcome"] not in UNDECIDED:
        raise CommandFailedError(f"error: it was not run: {occurrence['reason']} ({occurrence['outcome']})")
    return None


def _say_end(run: Mapping[str, Any]) -> None:
    counts = _counts(run["tasks"])
    because = f": {run['reason']}" if run.get("reason") else ""
    result = f" ({run['result']})" if run.get("result") else ""
    say(f"run {run['run_id']} {run['status']}{result}{because}; tasks: {counts or 'none'}")


def runs(
    activity: ActivityOption = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="running, completed, failed, cancelled, terminated, timed_out or lost."),
    ] = None,
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List runs, newest first.

    \b
    Example:
      activity-core runs --activity heartbeat --limit 5
      activity-core runs --status failed -o json
    """
    answer = Api(api_url).get("runs", activity=activity, status=status, limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (
            run["slug"],
            occasion(run),
            run["status"],
            run["result"],
            instant(run["started_at"]),
            _took(run),
            _counts(run["tasks"]),
            run["run_id"],
        )
        for run in answer.items
    ]
    table(("activity", "for", "status", "result", "started", "took", "tasks", "run"), rows, empty="No runs.")
    more(answer.json)


def occasion(item: Mapping[str, Any]) -> str:
    """What it is for: a nominal time, an event, or somebody's request."""
    if item.get("scheduled_for"):
        return str(item["scheduled_for"])
    return f"event {item['event_id']}" if item.get("event_id") else str(item.get("triggered_by", "manual"))


def _took(run: Mapping[str, Any]) -> str | None:
    if not run.get("finished_at"):
        return None
    took = datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])
    return f"{took.total_seconds():.1f} s"


def _counts(tasks: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in tasks.items() if count and state != "total")


def occurrences(
    activity: ActivityOption = None,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="OUTCOME", help="started, skipped, waiting, filtered, disabled, dead_letter, …"),
    ] = None,
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List the ledger, newest first.

    It has a row for every due time, event and request, with what became of it and why.

    \b
    Example:
      activity-core occurrences --activity heartbeat
      activity-core occurrences --outcome skipped
    """
    answer = Api(api_url).get("occurrences", activity=activity, outcome=outcome, limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (row["slug"], occasion(row), row["outcome"], row["reason_code"], row["reason"], row["run_id"])
        for row in answer.items
    ]
    columns = ("activity", "for", "outcome", "reason code", "reason", "run")
    table(columns, rows, empty="No occurrences.")
    more(answer.json)


def why(
    ref: Annotated[str, typer.Argument(metavar="REF", help="Slug or id of the activity.")],
    at: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="A due time, with its offset. The last one if left out.")
    ] = None,
    event_id: Annotated[str | None, typer.Option(metavar="ID", help="An event instead of a time.")] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Say why something ran or did not run.

    For a due time or an event: the answer in a sentence, the evidence, and what can be done.

    \b
    Example:
      activity-core why heartbeat
      activity-core why heartbeat --at 2026-03-01T09:00:00Z
      activity-core why github-issues --event-id 7f0c1c5e-e6f0-11f0-8000-000000000002
    """
    if at is not None and event_id is not None:
        raise CommandFailedError("error: give --at or --event-id, not both", exit_code=MISUSED)
    answer = Api(api_url).get("activities", ref, "why", at=at, event_id=event_id)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    _say_why(answer.json)


def _say_why(answer: Mapping[str, Any]) -> None:
    say(answer["sentence"])
    say()
    say(f"Outcome: {answer['outcome']} ({answer['reason_code']})")
    evidence = [(precise_instant(item["at"]), item["what"], item["ref"]) for item in answer["evidence"]]
    _section("Evidence", evidence)
    if run := answer["run"]:
        _section("Run", [(run["run_id"], run["status"], run["result"], run["reason"], _counts(run["tasks"]))])
    _section("Attempts to hand over its tasks", [_attempt(item) for item in answer["attempts"]])
    around = answer["neighbours"]
    _section("Due times around it", [("before", around["previous"]), ("after", around["next"])])
    _section("What you can do", [(f"{item['label']}:", item["command"]) for item in answer["actions"]])


def _attempt(attempt: Mapping[str, Any]) -> tuple[Any, ...]:
    late = "late" if attempt["late"] else None
    status = f"HTTP {attempt['http_status']}" if attempt["http_status"] else None
    return (
        precise_instant(attempt["started_at"]),
        attempt["task_id"],
        attempt["outcome"] or "no report",
        late,
        status,
        attempt["error"],
    )


def _section(title: str, rows: list[tuple[Any, ...]]) -> None:
    """Lines below a title; a row with a single value has nothing to say."""
    shown = [[cell_text(value) for value in row if value not in (None, "")] for row in rows]
    shown = [cells for cells in shown if len(cells) > 1]
    if not shown:
        return
    say()
    say(f"{title}:")
    for cells in shown:
        say("  " + "  ".join(cells))
