"""README and docs name what is there: files, make targets, commands, settings, routes, problem codes, tests."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from activity_core.api.problems import STATUSES
from activity_core.cli import app
from activity_core.settings import PREFIX, Settings

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
# Read by the commands for people, not by our processes.
OF_COMMANDS = {f"{PREFIX}API_URL"}
README_LINES = 250

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MAKE = re.compile(r"(?:`|^\$? ?|&& )make ([a-z]+)\b", re.MULTILINE)
_SPAN = re.compile(r"`((?:\.venv/bin/)?activity-core [^`\n]+)`")
_TYPED = re.compile(r"^(?:\$ )?((?:\.venv/bin/)?activity-core .+)$", re.MULTILINE)
_TEST = re.compile(r"`(test_\w+)`")


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as renderers of Markdown make them."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (fragment and fragment not in anchors(file)):
            broken.append(target)
    return broken


def typed_commands(text: str) -> Iterator[list[str]]:
    """The words after each `activity-core` that is there to be typed: in backticks, and in blocks (where a block has
    prompts, only behind one: its other lines are output)."""
    blocks = _FENCE.findall(text)
    found = _SPAN.findall(_FENCE.sub("", text))
    for block in blocks:
        lines = [line for line in block.splitlines() if line.startswith("$ ")] or block.splitlines()
        found += [match[1] for line in lines if (match := _TYPED.match(line))]
    for command in found:
        yield shlex.split(command, comments=True)[1:]


def unknown_part(words: Sequence[str]) -> str | None:
    """The first word that the command line does not know; None when it knows all."""
    command = get_command(app)
    remaining = iter(words)
    for word in remaining:
        if word.startswith("-") and word != "-":
            options = {name: option for option in command.params for name in option.opts}
            if word not in options and word not in ("-h", "--help"):
                return word
            if not getattr(options.get(word), "is_flag", True):
                next(remaining, None)
        elif isinstance(command, TyperGroup):
            if word not in command.commands:
                return word
            command = command.commands[word]
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One thing\n[a](missing.md) [b](#one-thing) [c](#another) [d](page.md#one-thing) [e](https://example.org)\n"
    )
    assert broken_links(page) == ["missing.md", "#another"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(_MAKE.findall(page.read_text())) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    unknown = [(" ".join(words), unknown_part(words)) for words in typed_commands(page.read_text())]
    assert [pair for pair in unknown if pair[1] is not None] == []


def test_an_unknown_command_or_option_is_found() -> None:
    text = (
        "`activity-core tasks finish T`, as activity-core does\n"
        "```\n$ activity-core runs --activity a -o json\nactivity-core is output\n```\n"
        "```\nactivity-core why a --when b\n```\n"
    )
    assert [unknown_part(words) for words in typed_commands(text)] == ["finish", None, "--when"]


def test_settings_and_documented_variables_are_the_same() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    named = {name for page in PAGES for name in re.findall(rf"{PREFIX}[A-Z_]+[A-Z]", page.read_text())}
    # the secrets that documents name have variables of their own
    secrets = {name for name in named if name == f"{PREFIX}SECRET" or name.startswith(f"{PREFIX}SECRET_")}
    assert named - OF_COMMANDS - secrets <= known
    table = re.findall(rf"^\| `({PREFIX}[A-Z_]+)` \|", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    assert sorted(table) == sorted(known)


def test_problem_codes_are_documented_with_their_statuses() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ((?:`\w+`(?:, )?)+) \|", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    documented = {(code, int(status)) for status, codes in rows for code in re.findall(r"\w+", codes)}
    assert documented == {(code, status) for code, (status, _) in STATUSES.items()}


def test_tests_that_the_readme_points_at_exist() -> None:
    known = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    named = _TEST.findall((ROOT / "README.md").read_text())
    assert named
    assert set(named) <= known


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES
