"""The command line, called in this process, and an API that answers what the test says."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from activity_core.cli import app
from tests.cli.scripted import Script, scripted_api


class Ended:
    """How a command ended, and what it wrote."""

    def __init__(self, result: Any) -> None:
        unexpected = result.exception
        if unexpected is not None and not isinstance(unexpected, SystemExit):
            raise unexpected
        self.code: int = result.exit_code
        self.out: str = result.stdout
        self.err: str = result.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Ended]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Runs `activity-core …` in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACTIVITY_CORE_API_URL", raising=False)
    monkeypatch.setattr("sys.argv", ["activity-core"])

    def run(*arguments: str, stdin: str | bytes | None = None) -> Ended:
        return Ended(CliRunner().invoke(app, list(arguments), input=stdin, prog_name="activity-core"))

    return run


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, call: Call) -> Iterator[Script]:
    """A scripted API, which `call` talks to."""
    with scripted_api() as script:
        monkeypatch.setenv("ACTIVITY_CORE_API_URL", script.url)
        yield script
