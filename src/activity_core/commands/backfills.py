"""Commands about backfills: run times of the past that did not run."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from activity_core.commands.api import Answer, Api
from activity_core.commands.asking import DryRun, Yes, check_can_ask, confirm
from activity_core.commands.definitions import more
from activity_core.commands.failure import MISUSED, UNREACHABLE, CommandFailedError
from activity_core.commands.options import (
    DEFAULT_API_URL,
    ActivityRef,
    ApiUrl,
    CursorOption,
    Limit,
    NoteText,
    Output,
    OutputAs,
    Timeout,
    given,
    program,
)
from activity_core.commands.render import amount, counts_text, instant, note, say, table
from activity_core.commands.waiting import polls

ROWS_BEFORE_ASKING = 20

BackfillId = Annotated[str, typer.Argument(metavar="ID", help="As `backfills` lists it.")]


def backfill(
    ref: ActivityRef,
    start: Annotated[str, typer.Option("--from", metavar="INSTANT", help="With its offset, inclusive.")],
    end: Annotated[str, typer.Option("--to", metavar="INSTANT", help="With its offset, exclusive.")],
    dry_run: Annotated[bool, DryRun] = False,
    yes: Annotated[bool, Yes] = False,
    note_text: NoteText = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until none of its times waits; exit code 1 unless all started.")
    ] = False,
    timeout: Timeout = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Run past times that did not run.

    Shows a plan, asks, and then runs: times that were skipped or dropped are reopened, times that were never due
    (before the activity was created, or while it was disabled) are added, and all others are left as they are, so
    that nothing runs twice. They run one at a time, after what is due now.

    \b
    Example:
      activity-core backfill digest --from 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z --dry-run
      activity-core backfill digest --from 2026-03-01T00:00:00Z --to 2026-03-08T00:00:00Z --yes --wait
    """
    if not (dry_run or yes):
        check_can_ask(output)
    if dry_run and wait:
        raise CommandFailedError("error: --dry-run starts nothing that --wait could wait for", exit_code=MISUSED)
    api = Api(api_url)
    body = given(from_=start, to=end, note=note_text)
    if dry_run or output is Output.TABLE:
        plan = api.post("activities", ref, "backfill", body=body | {"dry_run": True})
        _show_plan(plan, output, whole=dry_run)
        if dry_run or not _to_run(plan.json):
            return
        if not yes:
            confirm(f"Run {amount(_to_run(plan.json), 'time')} of {ref}?")
    answer = _begin(api, ref, body)
    if wait and answer.json["id"]:
        answer = _finished(api, answer.json["id"], ref, timeout)
    _show_begun(answer, output, ref, waited=wait)


def _to_run(answer: Mapping[str, Any]) -> int:
    return int(answer["counts"]["reopen"] + answer["counts"]["add"])


def _show_plan(plan: Answer, output: Output, *, whole: bool) -> None:
    if output is Output.JSON:
        typer.echo(plan.body)
        return
    answer = plan.json
    counts = answer["counts"]
    items = [item for item in answer["items"] if whole or item["action"] != "leave"]
    shown = items if whole else items[:ROWS_BEFORE_ASKING]
    _plan_table(shown)
    total = sum(counts.values()) if whole else _to_run(answer)
    if len(shown) < total:
        note(f"These are the first {len(shown)} of {total}." + ("" if whole else " --dry-run shows more."))
    say(f"{counts['reopen']} to reopen, {counts['add']} to add, {counts['leave']} to leave as they are")
    for notice in answer.get("notices", []):
        note(notice["message"])
    if not _to_run(answer):
        note("There is nothing to run.")
    elif whole:
        note("Dry run: nothing was changed.")


def _plan_table(items: Sequence[Mapping[str, Any]]) -> None:
    if not items:
        return
    overlapping = any(item["overlaps"] for item in items)
    columns = ["for", "action", "outcome", "reason", "window from", "window to", *(["overlaps"] if overlapping else [])]
    rows = [
        [
            item["scheduled_for"],
            item["action"],
            item["outcome"],
            item["reason"],
            instant(item["window"]["start"]) if item["window"] else None,
            instant(item["window"]["end"]) if item["window"] else None,
            *([instant(item["overlaps"])] if overlapping else []),
        ]
        for item in items
    ]
    table(columns, rows, empty="")
    if overlapping:
        note("A run of the time under OVERLAPS covers a part of the same window.")


def _begin(api: Api, ref: str, body: Mapping[str, Any]) -> Answer:
    try:
        return api.post("activities", ref, "backfill", body={**body, "dry_run": False})
    except CommandFailedError as error:
        if error.exit_code == UNREACHABLE:
            error.lines.append(
                f"It may have begun; see `{program()} backfills {ref}`. Asking again runs nothing twice."
            )
        raise


def _finished(api: Api, backfill_id: str, ref: str, timeout: int | None) -> Answer:
    """The backfill, once none of its times waits. Says on the way how many are left."""
    told, left = None, ""
    try:
        for _ in polls(timeout):
            answer = api.get("backfills", backfill_id)
            waiting, total = answer.json["counts"]["waiting"], answer.json["counts"]["total"]
            if not waiting:
                return answer
            left = f"{waiting} of {total} still to start"
            if left != told:
                note(left)
                told = left
    except CommandFailedError as error:
        if error.exit_code == UNREACHABLE:
            error.lines.append(f"The backfill goes on; see `{program()} backfills {ref}`.")
        raise
    goes_on = f"the backfill goes on; stop it with `{program()} cancel-backfill {backfill_id}`"
    raise CommandFailedError(f"error: after {timeout} s, {left}; {goes_on}")


def _show_begun(answer: Answer, output: Output, ref: str, *, waited: bool) -> None:
    """Raises Exit(1) when it was waited for and a time of it did not start."""
    begun = answer.json
    if output is Output.JSON:
        typer.echo(answer.body)
    elif not begun["id"]:
        say("nothing left to run")
    elif waited:
        say(f"backfill {begun['id']}: {counts_text(begun['counts']) or 'no times'}")
    else:
        say(f"backfill {begun['id']}: {amount(_to_run(begun), 'time')} to run")
        note(f"See how it goes with `{program()} backfills {ref}`.")
    if waited and begun["id"] and begun["counts"].get("started", 0) < begun["counts"]["total"]:
        raise typer.Exit(1)


def backfills(
    ref: ActivityRef,
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List an activity's backfills, newest first.

    \b
    Example:
      activity-core backfills digest
    """
    answer = Api(api_url).get("activities", ref, "backfills", limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (
            instant(item["requested_at"]),
            item["from"],
            item["to"],
            counts_text(item["counts"]),
            instant(item["cancelled_at"]),
            item["note"],
            item["id"],
        )
        for item in answer.items
    ]
    table(("requested", "from", "to", "times", "cancelled", "note", "backfill"), rows, empty="No backfills.")
    more(answer.json)


def cancel_backfill(
    backfill_id: BackfillId,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Stop a backfill.

    Its times that still wait go back to what they were; runs that started go on. Repeating it is harmless.

    \b
    Example:
      activity-core cancel-backfill 0d5c6c1e-e6f0-41f0-8000-000000000002
    """
    answer = Api(api_url).post("backfills", backfill_id, "cancel", body={})
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    cancelled = answer.json
    say(f"backfill {cancelled['id']} cancelled; {counts_text(cancelled['counts']) or 'no times'}")
