"""Commands that operate one activity: pause, resume, rerun, next."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from activity_core.commands.api import Api, ProblemError
from activity_core.commands.options import (
    DEFAULT_API_URL,
    ActivityRef,
    ApiUrl,
    HeldEvents,
    IdempotencyKey,
    NoteText,
    OnMisfire,
    Output,
    OutputAs,
    Overlap,
    Timeout,
    WaitForRun,
    given,
    program,
)
from activity_core.commands.render import amount, instant, note, say, table
from activity_core.commands.runs import ask_for_run, show_run


class Revision(StrEnum):
    CURRENT = "current"
    ORIGINAL = "original"


def pause(
    ref: ActivityRef,
    note_text: NoteText = None,
    until: Annotated[
        str | None, typer.Option(metavar="INSTANT", help="Goes on by itself then. With its offset.")
    ] = None,
    events: Annotated[
        HeldEvents | None, typer.Option(help="What becomes of events that waited when --until ends it. Default: run.")
    ] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Hold an activity.

    Its due times and events wait until `resume`; runs that are open go on, and a trigger still runs. Pausing again
    replaces note, --until and --events. Applying a definition does not end a pause.

    \b
    Example:
      activity-core pause digest --note 'mail server is being moved'
      activity-core pause digest --until 2026-03-02T06:00:00+01:00
    """
    body = given(note=note_text, until=until, events=events)
    answer = Api(api_url).post("activities", ref, "pause", body=body)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    activity = answer.json
    state = activity["state"]
    ends = f" until {instant(state['until'])}" if state.get("until") else ""
    because = f": {state['note']}" if state.get("note") else ""
    say(f"{activity['slug']} is paused{ends}{because}")
    note(f"Its due times and events wait. Go on with `{program()} resume {ref}`.")


def resume(
    ref: ActivityRef,
    on_misfire: Annotated[
        OnMisfire | None,
        typer.Option(help="How the times that waited are decided; policy, the default: as the activity says."),
    ] = None,
    events: Annotated[
        HeldEvents | None, typer.Option(help="What becomes of the events that waited. Required if there are any.")
    ] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """End a pause.

    The times and events that waited are decided now. A freeze that holds the activity as well goes on holding it.

    \b
    Example:
      activity-core resume digest
      activity-core resume github-issues --on-misfire skip --events run
    """
    try:
        answer = Api(api_url).post("activities", ref, "resume", body=given(on_misfire=on_misfire, events=events))
    except ProblemError as problem:
        if any(fault.get("pointer") == "/events" for fault in problem.told_faults):
            problem.lines.append("Say what becomes of the events that waited: add --events run or --events skip.")
        raise
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    _say_resumed(answer.json, ref)


def _say_resumed(answer: Mapping[str, Any], ref: str) -> None:
    activity, times, events = answer["activity"], answer["times"], answer["events"]
    frozen = activity["state"].get("freezes")
    if times or events:
        waited = f"{amount(times, 'due time')}, {amount(events, 'event')}"
        fate = "goes on waiting" if frozen else "is decided now"
        say(f"{activity['slug']} is resumed; what waited {fate}: {waited}")
        note(f"See what became of them with `{program()} occurrences --activity {ref}`.")
    else:
        say(f"{activity['slug']} is not paused; nothing had waited")
    if frozen:
        note(f"It is still held, by freeze {', '.join(frozen)}: `{program()} freeze end {frozen[0]}`.")
    if not activity["state"]["enabled"]:
        note("It is disabled: nothing falls due until a definition with enabled: true is applied.")


def rerun(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="As `runs` lists it.")],
    revision: Annotated[
        Revision | None, typer.Option(help="Of the definition: the current one, the default, or that of the run.")
    ] = None,
    on_overlap: Overlap = None,
    wait: WaitForRun = False,
    timeout: Timeout = None,
    idempotency_key: IdempotencyKey = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Run again what a run was for.

    It is a run of its own, with the window, event and params of the first one, which stays as it is.

    \b
    Example:
      activity-core rerun 0d5c6c1e-e6f0-51f0-8000-000000000002 --wait
      activity-core rerun 0d5c6c1e-e6f0-51f0-8000-000000000002 --revision original --on-overlap wait
    """
    api = Api(api_url)
    body = given(revision=revision, on_overlap=on_overlap)
    started = ask_for_run(api, "runs", run_id, "rerun", body=body, idempotency_key=idempotency_key)
    activity = str(started.json.get("activity_id"))
    show_run(api, started, wait=wait, timeout=timeout, output=output, activity=activity)


def next_times(
    ref: ActivityRef,
    count: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="How many.")] = 5,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show the next due times.

    In UTC and in the trigger's zone, and with jitter when each is due.

    \b
    Example:
      activity-core next digest
      activity-core next digest --count 20
    """
    answer = Api(api_url).get("activities", ref, "next", count=count)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    _say_next(answer.json, ref)


def _say_next(answer: Mapping[str, Any], ref: str) -> None:
    say(answer["description"])
    items = answer["items"]
    jittered = any(item.get("due_at") not in (None, item["scheduled_for"]) for item in items)
    zone = answer["timezone"]
    columns = ["scheduled for", *([f"local ({zone})"] if zone else []), *(["due"] if jittered else [])]
    rows = [
        [item["scheduled_for"], *([item["local"]] if zone else []), *([item["due_at"]] if jittered else [])]
        for item in items
    ]
    if rows:
        say()
    table(columns, rows, empty="No due times are ahead.")
    if not answer["enabled"]:
        note("It is disabled: nothing falls due until a definition with enabled: true is applied.")
    elif answer.get("paused"):
        freezes = answer.get("freezes") or []
        held = f"It is frozen by {freezes[0]}" if freezes else "It is paused"
        way_out = f"freeze end {freezes[0]}" if freezes else f"resume {ref}"
        note(f"{held}: what falls due waits. Go on with `{program()} {way_out}`.")
