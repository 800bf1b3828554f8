"""The command events replay: route events again."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from activity_core.commands.api import Answer, Api
from activity_core.commands.asking import DryRun, Yes, check_can_ask, confirm
from activity_core.commands.failure import MISUSED, UNREACHABLE, CommandFailedError
from activity_core.commands.options import DEFAULT_API_URL, ApiUrl, From, Output, OutputAs, To, given, program
from activity_core.commands.render import amount, note, say, table

MAX_EVENTS = 10_000


def replay(
    event: Annotated[
        str | None, typer.Argument(metavar="[EVENT]", help="Its id or event id; give --from and --to for many.")
    ] = None,
    start: From = None,
    end: To = None,
    event_type: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only of this type.")] = None,
    source: Annotated[str | None, typer.Option(metavar="SLUG", help="Only of this source.")] = None,
    activity: Annotated[str | None, typer.Option(metavar="REF", help="Only for this activity.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MAX_EVENTS, metavar="N", help=f"The oldest N; {MAX_EVENTS} at most.")
    ] = None,
    dry_run: Annotated[bool, DryRun] = False,
    yes: Annotated[bool, Yes] = False,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Route events again.

    One, or those accepted from --from on and before --to: as the definitions of now have it. Shows a plan, asks, and
    then replays. Events that were filtered out, refused, in quarantine or dead letters get another chance; ids are kept,
    so that what ran does not run again.

    \b
    Example:
      activity-core events replay order-17-paid --dry-run
      activity-core events replay --from 2026-03-01T00:00:00Z --to 2026-03-02T00:00:00Z --type order.paid --yes
    """
    path, body = _asked(event, start, end, given(type=event_type, source=source, limit=limit), activity)
    if not (dry_run or yes):
        check_can_ask(output)
    api = Api(api_url)
    if dry_run or output is Output.TABLE:
        plan = api.post(*path, body={**body, "dry_run": True})
        _show_plan(plan, output)
        if dry_run and output is Output.TABLE:
            note("Dry run: nothing was changed.")
        if dry_run or not plan.json["events"]:
            return
        if not yes:
            confirm(f"Route {amount(plan.json['events'], 'event')} again?")
    answer = _replayed(api, path, body)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    say(f"{amount(answer.json['events'], 'event')} routed again")
    where = f" --activity {activity}" if activity else ""
    note(f"See what became of them with `{program()} occurrences{where}`.")


def _asked(
    event: str | None, start: str | None, end: str | None, which: Mapping[str, Any], activity: str | None
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(path, body) of the request."""
    if event is None:
        if start is None or end is None:
            raise CommandFailedError("error: name an event, or give --from and --to", exit_code=MISUSED)
        return ("events", "replay"), given(from_=start, to=end, activity=activity, **which)
    if start is not None or end is not None or which:
        raise CommandFailedError("error: name an event, or say which with options, not both", exit_code=MISUSED)
    return ("events", event, "replay"), given(activity=activity)


def _show_plan(plan: Answer, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(plan.body)
        return
    answer = plan.json
    rows = [
        (item["slug"], item["starts"], item["reopened"], item["filtered"], item["left"])
        for item in answer["by_activity"]
    ]
    if rows:
        table(("activity", "starts", "of these reopened", "filtered", "left as they are"), rows, empty="")
    say(f"{amount(answer['events'], 'event')} to route again")
    if not rows and answer["events"]:
        note("No activity takes them.")
    if not answer["events"]:
        note("There is nothing to replay: what was not routed yet is left to the router.")


def _replayed(api: Api, path: tuple[str, ...], body: Mapping[str, Any]) -> Answer:
    try:
        return api.post(*path, body={**body, "dry_run": False})
    except CommandFailedError as error:
        if error.exit_code == UNREACHABLE:
            error.lines.append("It may have begun. Asking again runs nothing twice.")
        raise
