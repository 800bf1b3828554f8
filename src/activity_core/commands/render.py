"""What commands print: tables, instants, and text of others made safe for a terminal."""

import json
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import typer

NOTHING = "-"
# Wider than any table: a line that is too long for the window is wrapped by it, and ids stay whole and can be copied.
_WIDTH = 10_000
_STYLES = {
    "completed": "green",
    "started": "green",
    "created": "green",
    "failed": "red",
    "terminated": "red",
    "timed_out": "red",
    "lost": "red",
    "dead_letter": "red",
    "filter_error": "red",
    "running": "yellow",
    "waiting": "yellow",
    "delivering": "yellow",
}


def visible(text: str) -> str:
    """The text with control and direction characters written out (`\\x1b`): titles and names come from strangers, and
    a terminal obeys what it is sent."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if _acts(character) else character for character in text)


def _acts(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    return (
        character.encode("unicode_escape").decode() if not "\ud800" <= character <= "\udfff" else repr(character)[1:-1]
    )


def say(text: str = "") -> None:
    """One line on standard output."""
    typer.echo(visible(text))


def note(text: str) -> None:
    """One line on standard error: what is not the answer itself."""
    typer.echo(visible(text), err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str) -> None:
    """A table on standard output, or `empty` on standard error when there are no rows."""
    if not rows:
        note(empty)
        return
    # here and not above: `--help` needs neither, and should come at once
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        shown.add_column(column.upper(), no_wrap=True)
    for row in rows:
        cells = [visible(cell_text(value)) for value in row]
        shown.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    console = Console(file=sys.stdout, width=_WIDTH, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(shown)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def cell_text(value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items()) or NOTHING
    return str(value)


def amount(count: int, noun: str) -> str:
    """`1 run`, `2 runs`, `2 activities`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def counts_text(counts: Mapping[str, int]) -> str:
    """`3 started, 1 waiting`, without what is none."""
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count and name != "total")


def instant(text: str | None) -> str | None:
    """An instant of the API to the second, for reading; `-o json` has the whole."""
    return None if text is None else _cut(text, 0)


def precise_instant(text: str) -> str:
    """An instant of the API to the millisecond, where the order of things is the point."""
    return _cut(text, 3)


def _cut(text: str, digits: int) -> str:
    head, _, fraction = text.removesuffix("+00:00").removesuffix("Z").partition(".")
    return f"{head}.{fraction[:digits].ljust(digits, '0')}Z" if digits else f"{head}Z"


def compact(value: Any, limit: int = 80) -> str:
    """A JSON value on one line, cut after `limit` characters."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return text if len(text) <= limit else text[: limit - 1] + "…"
