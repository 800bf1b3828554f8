"""What a process writes to its log, read as an operator's tools would: from its standard error."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

DATABASE_URL = "postgresql://writer:pass+word/%40secret@db.example:5432/app"
API_KEY = "temporal-key-0123456789"
KEYS = ["a" * 43 + "=", "b" * 42 + "A="]

PROGRAM = f"""
import logging, sys, uuid, warnings
import structlog
log = structlog.get_logger("activity_core.test")
early = structlog.get_logger("activity_core.early")
logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler(sys.stderr))
logging.getLogger("uvicorn.error").propagate = False
from activity_core.logging import configure_logging
from activity_core.settings import load_settings
settings = load_settings(log_format=sys.argv[1])
configure_logging(settings, "api")
configure_logging(settings, "api")
log.info("run.started", run_id=uuid.UUID(int=7), count=2)
log.debug("not.shown")
logging.getLogger("uvicorn.error").info("Started server process [%d]", 12)
logging.getLogger("alembic.runtime.migration").info("Running upgrade -> 0001")
logging.getLogger("httpx").info("HTTP Request: GET https://hooks.example/secret-path")
info = {{"workflow_id": "task-1", "attempt": 3, "namespace": "default"}}
logging.getLogger("temporalio.activity").warning(
    f"Completing activity as failed ({{info}})", extra={{"temporal_activity": info, "headers": "Bearer abcdef"}}
)
log.info("key.used", header="Bearer {API_KEY}", keys="{KEYS[1]} {KEYS[0]}")
warnings.warn("old thing", stacklevel=1)
try:
    password = "local-variable"
    raise OSError("can't connect to {DATABASE_URL}")
except OSError:
    log.exception("database.gone", url="https://user:hunter2@proxy.example/x")
log.info("stranger", name="\\x1b[2J gone")
"""


def _written(log_format: str) -> str:
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {
        "PYTHONPATH": paths,
        "ACTIVITY_CORE_DATABASE_URL": DATABASE_URL,
        "ACTIVITY_CORE_TEMPORAL_ADDRESS": "127.0.0.1:7233",
        "ACTIVITY_CORE_TEMPORAL_API_KEY": API_KEY,
        "ACTIVITY_CORE_ENCRYPTION_KEYS": ", ".join(KEYS),
    }
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, log_format], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout == ""
    return ended.stderr


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    """What is written as JSON, a line each."""
    return [json.loads(line) for line in _written("json").splitlines()]


def _one(lines: list[dict[str, Any]], event: str) -> dict[str, Any]:
    [line] = [line for line in lines if line["event"].startswith(event)]
    return line


def test_line_has_its_event_its_ids_and_where_it_comes_from(lines: list[dict[str, Any]]) -> None:
    line = _one(lines, "run.started")
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "run.started",
        "level": "info",
        "logger": "activity_core.test",
        "process": "api",
        "run_id": "00000000-0000-0000-0000-000000000007",
        "count": 2,
    }


def test_what_libraries_log_is_a_line_of_the_same_form_once(lines: list[dict[str, Any]]) -> None:
    assert _one(lines, "Started server process [12]")["logger"] == "uvicorn.error"
    assert _one(lines, "Running upgrade")["process"] == "api"
    warned = [line for line in lines if line["logger"] == "py.warnings"]
    assert len(warned) == 1
    assert not [line for line in lines if line["event"] == "not.shown" or line["logger"] == "httpx"]


def test_temporals_ids_are_fields_and_nothing_else_that_is_attached(lines: list[dict[str, Any]]) -> None:
    line = _one(lines, "Completing")
    assert line["event"] == "Completing activity as failed"
    assert (line["temporal_workflow_id"], line["temporal_attempt"]) == ("task-1", 3)
    assert "headers" not in line


def test_bug_keeps_its_traceback(lines: list[dict[str, Any]]) -> None:
    assert "OSError: can't connect to" in _one(lines, "database.gone")["exception"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_i12_no_secret_in_any_line(log_format: str) -> None:
    text = _written(log_format)
    assert "database.gone" in text
    for secret in ("pass+word", "%40secret", API_KEY, *KEYS, "hunter2", "secret-path", "local-variable\n", "abcdef"):
        assert secret not in text.replace('password = "local-variable"', "")
    # the rest of the address stays: it says which server is gone
    assert "db.example:5432" in text
    assert "user:***@proxy.example" in text


def test_console_is_for_reading_and_obeys_no_stranger() -> None:
    text = _written("console")
    assert "run.started" in text
    assert "\x1b" not in text
    assert "\\x1b[2J gone" in text
