"""Commands about what happens: trigger, runs, occurrences, why."""

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
    ActivityRef,
    ApiUrl,
    CursorOption,
    From,
    IdempotencyKey,
    Limit,
    OnOverlap,
    Output,
    OutputAs,
    Overlap,
    Timeout,
    To,
    WaitForRun,
    given,
    json_argument,
    program,
)
from activity_core.commands.render import cell_text, counts_text, instant, note, precise_instant, say, table
from activity_core.commands.waiting import polls

UNDECIDED = ("waiting", "started")

ActivityOption = Annotated[str | None, typer.Option("--activity", metavar="REF", help="Only this activity's.")]


def trigger(
    ref: ActivityRef,
    params: Annotated[str | None, typer.Option(metavar="JSON", help="What `params` is in expressions.")] = None,
    on_overlap: Overlap = None,
    allow_overlap: Annotated[bool, typer.Option("--allow-overlap", help="The same as --on-overlap allow.")] = False,
    wait: WaitForRun = False,
    timeout: Timeout = None,
    idempotency_key: IdempotencyKey = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Run an activity now.

    Also while it is paused or frozen. Without --on-overlap, an activity with due times is refused while a run of it is
    open.

    \b
    Example:
      activity-core trigger digest --wait
      activity-core trigger digest --params '{"only": "north"}' --on-overlap wait
    """
    if allow_overlap and on_overlap not in (None, OnOverlap.ALLOW):
        raise CommandFailedError("error: give --on-overlap or --allow-overlap, not both", exit_code=MISUSED)
    body: dict[str, Any] = {}
    if params is not None:
        body["params"] = json_argument(params, option="--params", may_be_file=True)
    body |= given(on_overlap=OnOverlap.ALLOW if allow_overlap else on_overlap)
    api = Api(api_url)
    started = ask_for_run(api, "activities", ref, "trigger", body=body, idempotency_key=idempotency_key)
    show_run(api, started, wait=wait, timeout=timeout, output=output, activity=ref)


def ask_for_run(api: Api, *path: str, body: Mapping[str, Any], idempotency_key: str | None) -> Answer:
    """POST what starts a run. A failure says how to ask again."""
    key = idempotency_key or str(uuid.uuid4())
    try:
        return api.post(*path, body=body, idempotency_key=key)
    except CommandFailedError as error:
        if isinstance(error, ProblemError) and error.problem_code == "run_open":
            error.lines.append("To run after it: --on-overlap wait. To run beside it: --on-overlap allow.")
        if error.exit_code == UNREACHABLE and idempotency_key is None:
            error.lines.append(f"It may have started. To ask again without starting it twice: --idempotency-key {key}")
        raise


def show_run(api: Api, answer: Answer, *, wait: bool, timeout: int | None, output: Output, activity: str) -> None:
    """Show the run that was asked for, with `wait` its end. Raises Exit(1) unless that is `completed`."""
    started = answer.json
    if wait:
        answer = _ended(api, started, timeout)
    if output is Output.JSON:
        typer.echo(answer.body)
    elif wait:
        _say_end(answer.json)
    else:
        say(f"run {started['run_id']}")
        note(f"See it with `{program()} runs --activity {activity}`.")
    if wait and answer.json["status"] != "completed":
        raise typer.Exit(1)


def _ended(api: Api, started: Mapping[str, Any], timeout: int | None) -> Answer:
    """The run, once it has ended. Raises CommandFailedError when it never starts or `timeout` seconds have passed."""
    run = None
    for _ in polls(timeout):
        run = _run_if_any(api, started)
        if run is not None and run.json["status"] != "running":
            return run
    state = "is still running" if run is not None else "has not started yet"
    raise CommandFailedError(f"error: after {timeout} s, run {started['run_id']} {state}; it goes on")


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
    counts = counts_text(run["tasks"])
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
            _runs_for(run),
            run["status"],
            run["result"],
            instant(run["started_at"]),
            _took(run),
            counts_text(run["tasks"]),
            run["run_id"],
        )
        for run in answer.items
    ]
    table(("activity", "for", "status", "result", "started", "took", "tasks", "run"), rows, empty="No runs.")
    more(answer.json)


def occasion(item: Mapping[str, Any]) -> str:
    """What it is for: a nominal time, an event, or somebody's request."""
    if item.get("rerun_of"):
        return f"rerun of {item['rerun_of']}"
    if item.get("scheduled_for"):
        return str(item["scheduled_for"])
    return f"event {item['event_id']}" if item.get("event_id") else str(item.get("triggered_by", "manual"))


def _runs_for(run: Mapping[str, Any]) -> str:
    """Its occasion, and the times or events that it covers besides."""
    covers = run.get("covers")
    if not covers or covers["count"] < 2:
        return occasion(run)
    first, scheduled_for = str(covers["first"]), str(run.get("scheduled_for"))
    day, minute = len("2026-03-01T"), len("2026-03-01T09:00")
    if first[:day] == scheduled_for[:day] and first[minute:] == scheduled_for[minute:]:
        first = first[day:minute]
    return f"{occasion(run)} (covers {covers['count']} from {first})"


def _took(run: Mapping[str, Any]) -> str | None:
    if not run.get("finished_at"):
        return None
    took = datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])
    return f"{took.total_seconds():.1f} s"


def occurrences(
    activity: ActivityOption = None,
    selector: Annotated[
        str | None, typer.Option(metavar="LABELS", help="Only of activities with these, like team=ops,env!=dev.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(metavar="OUTCOME", help="started, skipped, dropped, merged, waiting, filtered, disabled, …"),
    ] = None,
    reason_code: Annotated[
        str | None, typer.Option(metavar="CODE", help="on_time, late, overlap, over_limit, paused, frozen, …")
    ] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="time, event or manual.")] = None,
    start: From = None,
    end: To = None,
    merged_into: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those that the run of this occurrence covers.")
    ] = None,
    backfill: Annotated[str | None, typer.Option(metavar="ID", help="Only those of this backfill.")] = None,
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List the ledger, newest first.

    It has a row for every due time, event and request, with what became of it and why. --from and --to are about when
    they were due.

    \b
    Example:
      activity-core occurrences --activity heartbeat
      activity-core occurrences --selector team=ops --outcome skipped --from 2026-03-01T00:00:00Z
    """
    query = given(activity=activity, selector=selector, outcome=outcome, reason_code=reason_code, kind=kind)
    query |= given(from_=start, to=end, merged_into=merged_into, backfill_id=backfill, limit=limit, cursor=cursor)
    answer = Api(api_url).get("occurrences", **query)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (row["slug"], occasion(row), row["outcome"], row["reason_code"], row["reason"], _run_of(row), row["id"])
        for row in answer.items
    ]
    columns = ("activity", "for", "outcome", "reason code", "reason", "run", "occurrence")
    table(columns, rows, empty="No occurrences.")
    more(answer.json)


def _run_of(row: Mapping[str, Any]) -> str | None:
    """A merged row has no run of its own: it is told whose run covers it."""
    merged_into = row.get("merged_into")
    return f"that of occurrence {merged_into}" if merged_into else row["run_id"]


def why(
    ref: ActivityRef,
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
        _section("Run", [(run["run_id"], run["status"], run["result"], run["reason"], counts_text(run["tasks"]))])
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
