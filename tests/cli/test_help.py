"""What a newcomer sees first: help, exit codes, and both at once."""

import shlex
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest
import typer.main

from activity_core.cli import app
from tests.cli.conftest import Call

COMMANDS = typer.main.get_command(app)


def _all_commands(above: Any = COMMANDS) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for name, command in getattr(above, "commands", {}).items():
        found.extend([name, *inner] for inner in _all_commands(command))
    return found


@pytest.mark.parametrize("command", _all_commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(call: Call, command: list[str]) -> None:
    shown = call(*command, "--help")
    assert shown.code == 0
    example = shown.out.partition("Example:\n")[2].splitlines()[0].strip()
    assert " ".join(["activity-core", *command]) in example
    # The first sentence is the line in the list of commands, where one that is too long would be cut.
    assert "..." not in shown.out.partition("Commands:")[2]


@pytest.mark.parametrize("command", [command for command in _all_commands() if command], ids=" ".join)
def test_every_line_of_an_example_is_a_command_that_exists(call: Call, command: list[str]) -> None:
    lines = call(*command, "--help").out.partition("Example:\n")[2].partition("\n\n")[0].splitlines()
    for line in lines:
        arguments = shlex.split(line)
        found = COMMANDS
        known = {option for parameter in found.params for option in parameter.opts}
        for argument in arguments[arguments.index("activity-core") + 1 :]:
            if inner := getattr(found, "commands", {}).get(argument):
                found = inner
                known = {option for parameter in found.params for option in parameter.opts}
            elif argument.startswith("-") and argument != "-":
                assert argument in known, line
        assert found is not COMMANDS, line


def test_exit_codes_are_documented(call: Call) -> None:
    text = call("--help").out.partition("Exit codes:")[2]
    assert [line.split()[0] for line in text.splitlines() if line.strip()] == ["0", "1", "2", "3"]


def test_version_is_that_of_the_package(call: Call) -> None:
    shown = call("--version")
    assert shown.code == 0
    try:
        number = version("activity-core")
    except PackageNotFoundError:
        number = "(not installed: run from its source)"
    assert shown.out == f"activity-core {number}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["rums"],
        ["runs", "--limit", "0"],
        ["apply"],
        ["why"],
        ["get", "--no-such"],
        ["backfill", "digest", "--from", "2026-03-01T00:00:00Z"],
        ["freeze", "create"],
        ["freeze", "thaw"],
        ["events", "test", "digest"],
        ["events", "types", "put", "order.paid"],
        ["sources", "get"],
        ["sources", "requests"],
    ],
)
def test_wrong_command_line_is_exit_code_2(call: Call, arguments: list[str]) -> None:
    ended = call(*arguments)
    assert ended.code == 2
    assert ended.err
    assert not ended.out


def test_help_loads_nothing_heavy() -> None:
    """What costs the start time, checked by name: a limit in seconds would fail on a busy machine."""
    heavy = {"temporalio", "sqlalchemy", "fastapi", "uvicorn", "httpx", "rich", "structlog", "alembic", "ruamel.yaml"}
    code = (
        "import sys\nfrom activity_core.cli import main\nsys.argv = ['activity-core', '--help']\n"
        "try: main()\nexcept SystemExit: pass\nprint('\\nLOADED', *sys.modules)"
    )
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.rpartition("LOADED")[2].split())
    assert "activity_core.cli" in loaded
    assert loaded & heavy == set(), f"{time.monotonic() - began:.2f} s"


def test_module_and_console_script_are_one_program() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "activity_core", "trigger", "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: activity-core trigger" in ended.stdout
