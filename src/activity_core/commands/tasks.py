"""Commands about tasks: list them; complete or fail those that wait in the inbox."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from activity_core.commands.api import Api
from activity_core.commands.definitions import more
from activity_core.commands.options import (
    DEFAULT_API_URL,
    ApiUrl,
    CursorOption,
    Limit,
    Output,
    OutputAs,
    json_argument,
)
from activity_core.commands.render import compact, instant, say, table

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

TaskRef = Annotated[str, typer.Argument(metavar="TASK", help="Its id, as `tasks` lists it.")]


@app.callback()
def tasks(
    context: typer.Context,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Only this run's.")] = None,
    activity: Annotated[str | None, typer.Option(metavar="REF", help="Only this activity's.")] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="pending, delivering, waiting, completed, failed or cancelled."),
    ] = None,
    limit: Limit = 20,
    cursor: CursorOption = None,
    api_url: ApiUrl = DEFAULT_API_URL,
    output: OutputAs = Output.TABLE,
) -> None:
    """List tasks; complete or fail one.

    Those that wait in the inbox can be completed or failed.

    \b
    Example:
      activity-core tasks --state waiting
      activity-core tasks complete task-0d5c6c1e-…:triage:0 --output '{"label": "bug"}'
    """
    if context.invoked_subcommand is not None:
        return
    answer = Api(api_url).get("tasks", run_id=run, activity=activity, state=state, limit=limit, cursor=cursor)
    if output is Output.JSON:
        typer.echo(answer.body)
        return
    rows = [
        (
            task["slug"],
            task["task_type"],
            task["consumer"],
            task["state"],
            task["reason"],
            instant(task["created_at"]),
            task["task_id"],
            compact(task["params"]),
        )
        for task in answer.items
    ]
    columns = ("activity", "type", "consumer", "state", "reason", "created", "task", "params")
    table(columns, rows, empty="No tasks.")
    more(answer.json)


@app.command()
def complete(
    task: TaskRef,
    result: Annotated[
        str | None, typer.Option("--output", metavar="JSON", help="What came of it; @file reads a file.")
    ] = None,
    api_url: ApiUrl = DEFAULT_API_URL,
) -> None:
    """Complete a task of the inbox.

    Repeating it is harmless.

    \b
    Example:
      activity-core tasks complete task-0d5c6c1e-…:triage:0 --output '{"label": "bug"}'
    """
    value = None if result is None else json_argument(result, option="--output", may_be_file=True)
    _say(Api(api_url).post("tasks", task, "complete", body={} if result is None else {"output": value}).json)


@app.command()
def fail(
    task: TaskRef,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")],
    api_url: ApiUrl = DEFAULT_API_URL,
) -> None:
    """Fail a task of the inbox.

    Repeating it is harmless.

    \b
    Example:
      activity-core tasks fail task-0d5c6c1e-…:triage:0 --reason 'not reproducible'
    """
    _say(Api(api_url).post("tasks", task, "fail", body={"reason": reason}).json)


def _say(task: Mapping[str, Any]) -> None:
    reason = f": {task['reason']}" if task.get("reason") else ""
    say(f"{task['task_id']} {task['state']}{reason}")
