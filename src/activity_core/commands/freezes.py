"""Commands about freezes: hold all activities that a selector matches."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from activity_core.commands.api import Api
from activity_core.commands.definitions import more
from activity_core.commands.failure import UNREACHABLE, CommandFailedError
from activity_core.commands.options import (
    DEFAULT_API_URL,
    ApiUrl,
    CursorOption,
    HeldEvents,
    Limit,
    NoteText,
    OnMisfire,
    Output,
    OutputAs,
    given,
    program,
)
from activity_core.commands.render import amount, instant, note, say, table

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def freeze() -> None:
    """Hold many activities, by their labels.

    Their due times and events wait, as in a pause, until the freeze ends.

    \b
    Example:
      activity-core freeze create --selector team=ops --until 2026-12-27T00:00:00+01:00
      activity-core freeze list
    """


@app.command()
def create(
    selector: Annotated[str, typer.Option(metavar="LABELS", help="Like team=ops,env!=dev: all must hold.")],
    start: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="With its offset; now if left out.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="With its offset; until `freeze end` if left out.")
    ] = None,
    note_text: NoteText = None,
    on_misfire: Annotated[
        OnMisfire | None,
        typer.Option(help="How times that waited are decided then; policy, the default: as each activity says."),
    ] = None,
    events: Annotated[HeldEvents | None, typer.Option(help="What becomes of events that waited. Default: run.")] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Freeze what a selector matches.

    Runs that are open go on, and a trigger still runs.

    \b
    Example:
      activity-core freeze create --selector team=ops --note 'stocktaking'
      activity-core freeze create --selector env=prod,team!=sre --from 2026-12-24T00:00:00Z --until 2026-12-27T00:00:00Z
    """
    body = given(selector=selector, from_=start, until=until, note=note_text, on_misfire=on_misfire, events=events)
    try:
        answer = Api(api_url).post("freezes", body=body)
    except CommandFailedError as error:
        if error.exit_code == UNREACHABLE:
            error.lines.append(f"It may have been created. See `{program()} freeze list` before asking again.")
        raise
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    created = answer.json
    say(f"freeze {created['id']} {_state(created)}; {created['selector']} matches {_matches(created)}")
    if not created["matches"]:
        note(f"No activity has these labels. Take it back with `{program()} freeze end {created['id']}`.")
    elif not created["until"]:
        note(f"It holds them until `{program()} freeze end {created['id']}`.")


@app.command("list")
def list_freezes(
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List freezes, newest first.

    \b
    Example:
      activity-core freeze list
    """
    answer = Api(api_url).get("freezes", limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (
            freeze["selector"],
            _state(freeze),
            instant(freeze["from"]),
            instant(freeze["ended_at"] or freeze["until"]),
            freeze["matches"],
            freeze["on_misfire"],
            freeze["events"],
            freeze["note"],
            freeze["id"],
        )
        for freeze in answer.items
    ]
    columns = ("selector", "state", "from", "until", "activities", "on misfire", "events", "note", "freeze")
    table(columns, rows, empty="No freezes.")
    more(answer.json)


@app.command()
def end(
    freeze_id: Annotated[str, typer.Argument(metavar="ID", help="As `freeze list` shows it.")],
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """End a freeze now.

    What waited is decided as the freeze says, except where a pause or another freeze holds it. Repeating it is harmless.

    \b
    Example:
      activity-core freeze end 0d5c6c1e-e6f0-41f0-8000-000000000002
    """
    answer = Api(api_url).delete("freezes", freeze_id)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    ended = answer.json
    say(f"freeze {ended['id']} ended; {ended['selector']} matches {_matches(ended)}")
    note(f"See what became of their times with `{program()} occurrences --selector '{ended['selector']}'`.")


def _matches(freeze: Mapping[str, Any]) -> str:
    return amount(freeze["matches"], "activity")


def _state(freeze: Mapping[str, Any]) -> str:
    if freeze["active"]:
        return "active"
    begins = datetime.fromisoformat(freeze["from"])
    return "planned" if not freeze["ended_at"] and begins > datetime.now(UTC) else "ended"
