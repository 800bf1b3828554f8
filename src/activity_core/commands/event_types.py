"""Commands about event types: which there are, and what is declared of them."""

from typing import Annotated, Any

import typer

from activity_core.commands.api import Api, ProblemError
from activity_core.commands.definitions import more
from activity_core.commands.files import FileDocument, fault_line, read_document
from activity_core.commands.options import DEFAULT_API_URL, ApiUrl, CursorOption, Output, OutputAs
from activity_core.commands.render import instant, say, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="For example order.paid.")]


@app.callback()
def types() -> None:
    """Declare what events look like.

    Events of a type that is declared with a schema are checked at every door; all others are as welcome as ever.

    \b
    Example:
      activity-core events types list
      activity-core events types put order.paid -f order-paid.yaml
    """


@app.command("list")
def list_types(
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Only those that begin so.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, metavar="N", help="How many, by name.")] = 50,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List types that are declared or were seen.

    \b
    Example:
      activity-core events types list --prefix order.
    """
    answer = Api(api_url).get("events", "types", prefix=prefix, limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (
            item["type"],
            item["has_schema"],
            item["on_invalid"],
            item["count_24h"],
            instant(item["last_accepted_at"]),
            item["description"],
        )
        for item in answer.items
    ]
    columns = ("type", "schema", "on invalid", "last 24 h", "last accepted", "description")
    table(columns, rows, empty="No events yet, and no types declared.")
    more(answer.json)


@app.command()
def get(event_type: TypeName, api_url: ApiUrl = DEFAULT_API_URL) -> None:
    """Show what is declared of a type, as JSON.

    \b
    Example:
      activity-core events types get order.paid
    """
    typer.echo(Api(api_url).get("events", "types", event_type).body)


@app.command()
def put(
    event_type: TypeName,
    file: Annotated[
        str,
        typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON: {description, schema, example, on_invalid}."),
    ],
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Declare a type, or replace what is declared.

    `schema` is a JSON Schema (2020-12) of the event's data; `on_invalid` says whether an event that it does not allow is
    refused (refuse), or accepted and kept back until it is replayed (quarantine).

    \b
    Example:
      activity-core events types put order.paid -f order-paid.yaml
    """
    document = read_document(file)
    try:
        answer = Api(api_url).put("events", "types", event_type, body=document.value)
    except ProblemError as problem:
        if problem.status == 422 and problem.told_faults:
            problem.lines = [_fault(fault, document) for fault in problem.told_faults]
        raise
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    declared = answer.json
    change = "declared" if answer.status == 201 else "is declared"
    say(f"event type {declared['type']} {change}, revision {declared['revision']}")


def _fault(fault: Any, document: FileDocument) -> str:
    pointer, message = str(fault.get("pointer")), str(fault.get("message"))
    if pointer.startswith("/path/"):
        return f"error: {message}"
    return fault_line(document.path, document.located.line_of(pointer), pointer, message)


@app.command()
def delete(event_type: TypeName, api_url: ApiUrl = DEFAULT_API_URL) -> None:
    """Take back what is declared.

    Events of the type are checked no more.

    \b
    Example:
      activity-core events types delete order.paid
    """
    Api(api_url).delete("events", "types", event_type)
    say(f"event type {event_type} is not declared any more")
