"""Commands about sources: which senders of webhooks there are, and what became of their requests."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from activity_core.commands.api import Api
from activity_core.commands.definitions import more, yaml_of
from activity_core.commands.options import DEFAULT_API_URL, ApiUrl, CursorOption, From, Limit, Output, OutputAs, To
from activity_core.commands.render import amount, instant, note, say, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def sources() -> None:
    """Look at sources of webhooks, and at their requests.

    A source is defined by a document of kind Source, which `apply` takes.

    \b
    Example:
      activity-core sources list
      activity-core sources get github > github.yaml
      activity-core sources requests github --result rejected
    """


@app.command("list")
def list_sources(
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List sources, newest first.

    \b
    Example:
      activity-core sources list
    """
    answer = Api(api_url).get("sources", limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (
            item["slug"],
            item["scheme"],
            ", ".join(secret["name"] or secret["fingerprint"] for secret in item["secrets"]),
            item["revision"],
            item["webhook_path"],
        )
        for item in answer.items
    ]
    table(("slug", "scheme", "secrets", "revision", "webhooks"), rows, empty="No sources.")
    for item in answer.items:
        _tell_trouble(item)
    more(answer.json)


@app.command("get")
def get_source(
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="Of the source.")],
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show the document of a source.

    As YAML that can be applied again. Its secrets are not in it, and stay as they are when it is applied.

    \b
    Example:
      activity-core sources get github > github.yaml
    """
    answer = Api(api_url).get("sources", slug)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    source = answer.json
    secrets = ", ".join(secret["name"] or f"sealed {secret['fingerprint']}" for secret in source["secrets"])
    say(f"# id {source['id']}, revision {source['revision']}, webhooks to {source['webhook_path']}")
    say(f"# secrets, which stay when this is applied: {secrets or 'none'}")
    typer.echo(yaml_of(source["spec"]))
    _tell_trouble(source)


def _tell_trouble(source: Mapping[str, Any]) -> None:
    for trouble in source["trouble"]:
        note(f"warning: {source['slug']}: {trouble}")


@app.command()
def requests(
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="Of the source.")],
    result: Annotated[
        str | None, typer.Option(metavar="RESULT", help="accepted, duplicate, rejected or handshake.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="CODE", help="Only with this reason code.")] = None,
    start: From = None,
    end: To = None,
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List a source's requests, newest first.

    Every one that came, with what became of it and why.

    \b
    Example:
      activity-core sources requests github --result rejected
      activity-core sources requests stripe --reason bad_signature --from 2026-03-01T00:00:00Z
    """
    query = {"result": result, "reason_code": reason, "from": start, "to": end, "limit": limit, "cursor": cursor}
    answer = Api(api_url).get("sources", slug, "requests", **query)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (
            instant(item["received_at"]),
            item["result"],
            item["reason_code"],
            item["status"],
            item["event_type"],
            item["external_id"],
            amount(item["size_bytes"], "byte"),
            item["user_agent"],
            item["reason"],
        )
        for item in answer.items
    ]
    columns = ("received", "result", "reason code", "status", "type", "id", "size", "sender", "reason")
    table(columns, rows, empty="No requests.")
    more(answer.json)
