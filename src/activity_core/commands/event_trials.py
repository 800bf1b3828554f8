"""The command events test: what would come of an event."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from activity_core.commands.api import Api, ProblemError
from activity_core.commands.failure import MISUSED, CommandFailedError
from activity_core.commands.files import FileDocument, fault_line, is_file_name, read_activity_document, read_document
from activity_core.commands.options import DEFAULT_API_URL, ApiUrl, Output, OutputAs
from activity_core.commands.render import compact, note, say, table

_REFUSED = ("filter_error", "dead_letter")


def test(
    what: Annotated[
        str, typer.Argument(metavar="FILE|REF", help="A definition file (- for standard input), or a slug or id.")
    ],
    event: Annotated[
        str, typer.Option("--event", metavar="FILE", help="The event as `POST /v1/events` takes it: {type, data, …}.")
    ],
    context: Annotated[
        str | None,
        typer.Option("--context", metavar="FILE", help="{name: value} for context that would be fetched by HTTP."),
    ] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Try an event on a definition.

    Says whether it would run, by the functions that decide it in earnest, and with which ids and tasks. Nothing is
    stored, and nothing is fetched. The exit code is 1 if the event would be refused, or the run fail when it is planned.

    \b
    Example:
      activity-core events test triage.yaml --event issue.json
      activity-core events test triage --event issue.json --context stock.json -o json
    """
    if [what, event, context].count("-") > 1:
        raise CommandFailedError("error: only one file can be standard input", exit_code=MISUSED)
    files = {"event": read_document(event)}
    body: dict[str, Any] = {"event": files["event"].value}
    if context is not None:
        files["context"] = read_document(context)
        body["context"] = files["context"].value
    if is_file_name(what):
        files["definition"] = read_activity_document(what)
        body["definition"] = files["definition"].value
    else:
        body["activity"] = what
    try:
        answer = Api(api_url).post("simulate", body=body)
    except ProblemError as problem:
        if problem.status == 422 and problem.told_faults:
            problem.lines = [_fault(str(f.get("pointer")), str(f.get("message")), files) for f in problem.told_faults]
        raise
    if output is Output.JSON:
        typer.echo(answer.body)
    else:
        _show(answer.json, what, files)
    tried = answer.json
    if tried["error"] or tried["invalid"] or tried["outcome"] in _REFUSED:
        raise typer.Exit(1)


def _fault(pointer: str, message: str, files: Mapping[str, FileDocument]) -> str:
    """One fault, where its cause was written."""
    _, name, *rest = [*pointer.split("/"), ""]
    if name not in files:
        return f"error: {pointer or '/'}: {message}"
    inside = "/".join(["", *rest[:-1]])
    return fault_line(files[name].path, files[name].located.line_of(inside), inside, message)


def _show(tried: Mapping[str, Any], what: str, files: Mapping[str, FileDocument]) -> None:
    runs = tried["outcome"] == "waiting"
    reason = "it would run" if runs else f"{tried['outcome']} ({tried['reason_code']}): {tried['reason']}"
    say(f"{tried['event_id']} on {what}: {reason}")
    if tried["invalid"]:
        fate = "refused" if tried["invalid"]["on_invalid"] == "refuse" else "accepted and kept back (quarantined)"
        note(f"But it would be {fate}, because the schema of its type does not allow it:")
        for error in tried["invalid"]["errors"]:
            note(_fault(error["pointer"], error["message"], files))
    if not runs:
        return
    for name, key in tried["keys"].items():
        if key is not None:
            say(f"{name.replace('_', ' ')} key: {key or '(empty: one for all)'}")
    made_up = " (of a made-up activity)" if tried["made_up_ids"] else ""
    say(f"run {tried['run_id']}, workflow {tried['workflow_id']}{made_up}")
    if tried["rules"]:
        say()
        rules = [(rule["id"], rule["holds"], None if rule["holds"] else rule["reason"]) for rule in tried["rules"]]
        table(("rule", "holds", "else"), rows=rules, empty="")
    _show_tasks(tried)


def _show_tasks(tried: Mapping[str, Any]) -> None:
    for name in tried["missing_context"]:
        note(f"Context '{name}' would be fetched; give a value for it with --context.")
    if tried["error"]:
        note(f"The run would fail when it is planned: {tried['error']}")
        return
    if not tried["tasks"]:
        say("no tasks")
        return
    say()
    rows = [(t["task_type"], t["index"], t["consumer"], compact(t["params"]), t["task_id"]) for t in tried["tasks"]]
    table(("task", "index", "consumer", "params", "id"), rows, empty="")
