"""Asking whether to go on, for commands that show a plan first."""

import sys

import typer

from activity_core.commands.failure import MISUSED, CommandFailedError
from activity_core.commands.options import Output

DryRun = typer.Option("--dry-run", help="Show the whole plan and change nothing.")
Yes = typer.Option("--yes", "-y", help="Do not ask. Required where there is no terminal.")


def check_can_ask(output: Output) -> None:
    """Refuses, before anything is sent, to ask where nobody can answer."""
    if output is Output.JSON or not sys.stdin.isatty():
        why = "-o json asks nothing" if output is Output.JSON else "there is no terminal to ask on"
        raise CommandFailedError(
            f"error: {why}: add --yes to run it, or --dry-run to see what would run", exit_code=MISUSED
        )


def confirm(question: str) -> None:
    """Raises CommandFailedError for a no."""
    if not typer.confirm(question, err=True):
        raise CommandFailedError("Nothing was changed.")
