"""Options that several commands share, and the reading of JSON that is given on the command line."""

import json
import os
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from activity_core.commands.failure import MISUSED, CommandFailedError

DEFAULT_API_URL = "http://127.0.0.1:8080"


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


class OnOverlap(StrEnum):
    REFUSE = "refuse"
    WAIT = "wait"
    ALLOW = "allow"


class OnMisfire(StrEnum):
    POLICY = "policy"
    SKIP = "skip"
    CATCHUP = "catchup"
    COMPRESS = "compress"


class HeldEvents(StrEnum):
    RUN = "run"
    SKIP = "skip"


ApiUrl = Annotated[
    str, typer.Option("--api-url", envvar="ACTIVITY_CORE_API_URL", metavar="URL", help="Where the API is.")
]
OutputAs = Annotated[Output, typer.Option("--output", "-o", help="json: the API's answer, unchanged.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, metavar="N", help="How many, newest first.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="TEXT", help="Go on from an earlier answer's next_cursor.")
]
ActivityRef = Annotated[str, typer.Argument(metavar="REF", help="Slug or id of the activity.")]
NoteText = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Why, for those who find it.")]
From = Annotated[str | None, typer.Option("--from", metavar="INSTANT", help="With its offset, inclusive.")]
To = Annotated[str | None, typer.Option("--to", metavar="INSTANT", help="With its offset, exclusive.")]
Overlap = Annotated[
    OnOverlap | None,
    typer.Option("--on-overlap", help="While a run is open: refuse, wait for its end, or run beside it (allow)."),
]
WaitForRun = Annotated[bool, typer.Option("--wait", help="Until the run has ended; exit code 1 unless completed.")]
Timeout = Annotated[
    int | None, typer.Option("--timeout", min=1, metavar="SECONDS", help="Give up waiting then; the work goes on.")
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key", metavar="KEY", help="Repeating the command with the same key starts nothing new."
    ),
]


def given(**values: Any) -> dict[str, Any]:
    """The values that are not None, as fields of a body; `from_` is the field `from`."""
    return {name.rstrip("_"): value for name, value in values.items() if value is not None}


def json_argument(text: str, *, option: str, may_be_file: bool = False) -> Any:
    """The JSON value of an option. `@path` reads a file and `@-` standard input, where `may_be_file`."""
    if may_be_file and text.startswith("@"):
        text = _file(text[1:], option)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        hint = "; quote it for the shell: '{\"a\": 1}'" if text[:1] in ("{", "[") else ""
        raise CommandFailedError(f"error: {option} is not JSON: {error}{hint}", exit_code=MISUSED) from None


def _file(name: str, option: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise CommandFailedError(f"error: {option}: {name}: {reason}", exit_code=MISUSED) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def program() -> str:
    """How to call this program again, from here and without its environment being activated."""
    if Path(sys.argv[0]).name == "__main__.py":
        return f"{_shortest(sys.executable)} -m activity_core"
    return _shortest(sys.argv[0]) if os.sep in sys.argv[0] else "activity-core"


def _shortest(path: str) -> str:
    """The name alone where the shell finds it by that, else the path, from here if that is shorter."""
    name = Path(path).name
    found = shutil.which(name)
    if found is not None and Path(found).absolute() == Path(path).absolute():
        return name
    return min(path, os.path.relpath(path), key=len)
