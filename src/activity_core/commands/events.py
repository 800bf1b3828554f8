"""Commands about events: send one, list what was accepted. Those of other files join them here."""

import uuid
from typing import Annotated, Any

import typer

from activity_core.commands import event_trials, event_types, replays
from activity_core.commands.api import Api
from activity_core.commands.definitions import more
from activity_core.commands.failure import UNREACHABLE, CommandFailedError
from activity_core.commands.options import (
    DEFAULT_API_URL,
    ApiUrl,
    CursorOption,
    From,
    Limit,
    Output,
    OutputAs,
    To,
    json_argument,
)
from activity_core.commands.render import instant, note, say, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def events() -> None:
    """Send, list, test and replay events; declare types.

    \b
    Example:
      activity-core events send order.paid --data '{"order": 17}'
      activity-core events list --status dead_letter
      activity-core events test triage.yaml --event issue.json
    """


app.command()(event_trials.test)
app.command()(replays.replay)
app.add_typer(event_types.app, name="types")


@app.command()
def send(
    event_type: Annotated[str, typer.Argument(metavar="TYPE", help="For example order.paid.")],
    data: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="What `event.data` is; @file reads a file, @- the input.")
    ] = None,
    event_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The same id again is a duplicate and runs nothing.")
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="SLUG", help="Ids are unique for each source.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="What the event is about.")] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Send an event.

    When the command has answered, the event is stored and will be handled.

    \b
    Example:
      activity-core events send order.paid --data '{"order": 17}' --event-id order-17-paid
      activity-core events send order.paid --data @order.json
    """
    # An id of ours when none was given, so that the same event can be sent again after an answer that got lost.
    chosen = event_id or f"evt_{uuid.uuid4().hex}"
    body = {"event_id": chosen, "type": event_type, "source": source, "subject": subject}
    body = {name: value for name, value in body.items() if value is not None}
    if data is not None:
        body["data"] = json_argument(data, option="--data", may_be_file=True)
    try:
        answer = Api(api_url).post("events", body=body)
    except CommandFailedError as error:
        if error.exit_code == UNREACHABLE:
            error.lines.append(f"It may have been stored. To send the same event again: --event-id {chosen}")
        raise
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    sent = answer.json
    say(f"event {sent['event_id']} {sent['status']}")
    if sent.get("quarantined"):
        note("It is kept back, because the schema of its type does not allow it; `events replay` lets it through.")


@app.command("list")
def list_events(
    event_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only of this type.")] = None,
    event_id: Annotated[str | None, typer.Option(metavar="ID", help="Only this one.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="accepted, routed, dead_letter or quarantined.")
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="SLUG", help="Only of this source.")] = None,
    start: From = None,
    end: To = None,
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List accepted events, newest first.

    \b
    Example:
      activity-core events list --type github.issues.opened
      activity-core events list --status quarantined --from 2026-03-01T00:00:00Z
    """
    which = {"type": event_type, "event_id": event_id, "status": status, "source": source, "from": start, "to": end}
    answer = Api(api_url).get("events", **which, limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows: list[tuple[Any, ...]] = [
        (
            event["type"],
            event["source"],
            event["subject"],
            event["status"],
            instant(event["accepted_at"]),
            event["event_id"],
            event["dead_letter_reason"] or event["quarantine_reason"],
        )
        for event in answer.items
    ]
    columns = ["type", "source", "subject", "status", "accepted", "event id", "reason"]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    table(columns, rows, empty="No events.")
    more(answer.json)
