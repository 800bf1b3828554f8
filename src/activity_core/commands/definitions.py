"""Commands about definitions: init, apply, get."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from activity_core.commands import sample
from activity_core.commands.api import Api, ProblemError
from activity_core.commands.failure import MISUSED, REFUSED, CommandFailedError
from activity_core.commands.files import FileDocument, fault_line, read_documents
from activity_core.commands.options import (
    DEFAULT_API_URL,
    ApiUrl,
    CursorOption,
    Limit,
    Output,
    OutputAs,
    given,
    program,
)
from activity_core.commands.render import amount, instant, note, say, table

MAX_TRIGGER_TEXT = 60
MAX_NOTE = 40
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
# The order in which people write a definition; what is stored has none.
FIELD_ORDER = (
    *("api_version", "kind", "slug", "name", "id", "task_type", "description", "owner", "labels", "enabled", "type"),
    *("trigger", "cron", "every_seconds", "anchor", "at", "timezone", "start_at", "end_at", "jitter_seconds"),
    *("misfire_policy", "misfire_grace_seconds", "catchup_limit", "overlap_policy", "late_after_seconds"),
    *("event_types", "filter", "context", "scheme", "signature", "credential", "topics"),
    *("url", "query", "timeout_seconds", "on_error", "rules", "tasks", "when", "reason", "for_each", "in", "consumer"),
    "params",
)
_DOCUMENT = re.compile(r"/documents/(\d+)(?=/|$|\W)")


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Made if it is not there.")] = Path(),
) -> None:
    """Write a sample definition.

    It is a heartbeat once a minute, with comments. A file that is there already is not overwritten.

    \b
    Example:
      activity-core init
      activity-core apply -f heartbeat.yaml
    """
    path = directory / sample.FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(sample.HEARTBEAT)
    except FileExistsError:
        raise CommandFailedError(f"error: {path} is there already; it was left as it is") from None
    except OSError as error:
        raise CommandFailedError(f"error: {path}: {error.strerror}") from None
    say(f"Wrote {path}: a heartbeat once a minute. Next, with the service running (`make run`):")
    say(f"  {program()} apply -f {path}")
    say(f"  {program()} runs --activity heartbeat     # after the next full minute")
    say(f"  {program()} why heartbeat")


def apply(
    files: Annotated[
        list[str],
        typer.Option("--file", "-f", metavar="FILE|DIR", help="YAML or JSON, a directory of such, or - . Repeatable."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and change nothing.")] = False,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """Create or replace what files define.

    Activities, consumers and sources: all of them, or none if anything is wrong. Faults are shown as
    file:line: pointer: message, and the exit code is then 1.

    \b
    Example:
      activity-core apply -f examples --dry-run
      activity-core apply -f heartbeat.yaml -f consumers.yaml
    """
    documents = read_documents(files)
    body = {"documents": [document.value for document in documents], "dry_run": dry_run}
    try:
        answer = Api(api_url).post("apply", body=body)
    except ProblemError as problem:
        raise _in_files(problem, documents) from None
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    applied = answer.json["documents"]
    rows = [(item["kind"], item["slug"], item["change"], item["revision"]) for item in applied]
    table(("kind", "slug", "change", "revision"), rows, empty="No documents.")
    for item in applied:
        for notice in item.get("notices", []):
            note(f"warning: {item['slug']}: {notice['pointer']}: {notice['message']}")
    if dry_run:
        note("Dry run: nothing was changed.")


def _in_files(problem: ProblemError, documents: Sequence[FileDocument]) -> CommandFailedError:
    """The problem with its `/documents/{n}/…` pointers turned into places in the files, in the order of the files."""
    faults = []
    for fault in problem.told_faults:
        found = _place(str(fault.get("pointer", "")), documents)
        if found is None:
            return problem
        number, pointer = found
        message = _DOCUMENT.sub(lambda match: _where(match[0], documents), str(fault.get("message")))
        line = documents[number].located.line_of(pointer)
        faults.append((number, line, fault_line(documents[number].path, line, pointer, message)))
    if not faults:
        return problem
    return CommandFailedError([*(text for _, _, text in sorted(faults)), "Nothing was applied."], exit_code=REFUSED)


def _place(pointer: str, documents: Sequence[FileDocument]) -> tuple[int, str] | None:
    """(number of the document, pointer inside it)."""
    match = _DOCUMENT.match(pointer)
    if match is None or int(match[1]) >= len(documents):
        return None
    return int(match[1]), pointer[match.end() :]


def _where(pointer: str, documents: Sequence[FileDocument]) -> str:
    place = _place(pointer, documents)
    return pointer if place is None else f"{documents[place[0]].path}:{documents[place[0]].located.line_of('')}"


def get(
    ref: Annotated[str | None, typer.Argument(metavar="[REF]", help="Slug or id; all if left out.")] = None,
    selector: Annotated[
        str | None, typer.Option(metavar="LABELS", help="Only those with these, like team=ops,env!=dev.")
    ] = None,
    limit: Limit = 50,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List activities, or show one definition.

    One is shown as YAML, as it can be applied again. A pause or freeze is no part of it, and told in a comment.

    \b
    Example:
      activity-core get --selector team=ops
      activity-core get heartbeat > heartbeat.yaml
    """
    if ref is not None and selector is not None:
        raise CommandFailedError("error: give REF or --selector, not both", exit_code=MISUSED)
    api = Api(api_url)
    query = given(selector=selector, limit=limit, cursor=cursor)
    answer = api.get("activities", **query) if ref is None else api.get("activities", ref)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    if ref is not None:
        _show(answer.json)
        return
    rows = [
        (
            activity["slug"],
            trigger_text(activity["effective"]["trigger"]),
            state_text(activity["state"]),
            activity["revision"],
            instant((activity.get("schedule") or {}).get("next")),
            activity["id"],
        )
        for activity in answer.items
    ]
    empty = f"No activities yet. Write a first one with `{program()} init`."
    if selector is not None:
        empty = "No activity has these labels."
    table(("slug", "trigger", "state", "revision", "next due", "id"), rows, empty=empty)
    more(answer.json)


def more(answer: Mapping[str, Any]) -> None:
    """Say that the list goes on, and how to see the rest."""
    if answer.get("next_cursor"):
        note(f"There are more: --cursor {answer['next_cursor']}")


def trigger_text(trigger: Mapping[str, Any]) -> str:
    """A trigger in a few words."""
    if trigger["type"] == "cron":
        return f'cron "{trigger["cron"]}" {trigger["timezone"]}'
    if trigger["type"] == "interval":
        return _every(trigger["every_seconds"])
    if trigger["type"] == "once":
        return f"once {instant(trigger['at'])}"
    if trigger["type"] == "event":
        types = ", ".join(trigger["event_types"])
        return f"event {types if len(types) <= MAX_TRIGGER_TEXT else types[: MAX_TRIGGER_TEXT - 1] + '…'}"
    return str(trigger["type"])


def _every(seconds: int) -> str:
    size, unit = next(pair for pair in _UNITS if seconds % pair[0] == 0)
    return f"every {unit}" if seconds == size else f"every {amount(seconds // size, unit)}"


def state_text(state: Mapping[str, Any]) -> str:
    """`enabled`, or what keeps it from running: `paused until … (note), frozen`."""
    found = [] if state["enabled"] else ["disabled"]
    if state.get("paused"):
        until = f" until {instant(state['until'])}" if state.get("until") else ""
        because = f" ({_short(state['note'])})" if state.get("note") else ""
        found.append(f"paused{until}{because}")
    if state.get("freezes"):
        found.append("frozen")
    return ", ".join(found) or "enabled"


def _short(text: str) -> str:
    return text if len(text) <= MAX_NOTE else text[: MAX_NOTE - 1] + "…"


def yaml_of(spec: Mapping[str, Any]) -> str:
    """A document as people write it, to be applied again."""
    # here and not above: hardly a command writes YAML
    import io

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 100
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump(_in_order(spec), text)
    return text.getvalue().rstrip()


def _show(activity: Mapping[str, Any]) -> None:
    schedule = activity.get("schedule") or {}
    say(f"# id {activity['id']}, revision {activity['revision']}, schedule {schedule.get('sync') or 'none'}")
    state = activity["state"]
    if state.get("paused"):
        until = f" until {instant(state['until'])}" if state.get("until") else ""
        because = f": {state['note']}" if state.get("note") else ""
        say(f"# paused since {instant(state.get('paused_at'))}{until}{because}")
    if freezes := state.get("freezes"):
        say(f"# frozen by {', '.join(freezes)}")
    typer.echo(yaml_of(activity["spec"]))


def _in_order(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    known = [name for name in FIELD_ORDER if name in value]
    return {name: _in_order(value[name]) for name in [*known, *sorted(value.keys() - set(known))]}
