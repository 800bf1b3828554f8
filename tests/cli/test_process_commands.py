"""`activity-core api | router | worker | migrate | dev`, as a supervisor sees them: exit codes and one clear message."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from activity_core.settings import environment_without_settings
from tests.stack import Processes, eventually

PROCESSES = ("api", "router", "worker", "migrate")
# Discard ports on loopback: nobody listens, and connecting fails at once.
NOBODY = {
    "ACTIVITY_CORE_DATABASE_URL": "postgresql://me:hunter2-hunter2@127.0.0.1:9/none",
    "ACTIVITY_CORE_TEMPORAL_ADDRESS": "127.0.0.1:9",
}


def _run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-m", "activity_core", *arguments],
        env={**environment_without_settings(), "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("name", PROCESSES)
def test_missing_settings_are_all_named_in_one_line(name: str) -> None:
    ended = _run(name)
    assert ended.returncode == 2
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"activity-core {name}: ")
    assert "ACTIVITY_CORE_DATABASE_URL is not set" in line
    assert "ACTIVITY_CORE_TEMPORAL_ADDRESS is not set" in line


def test_i12_wrong_setting_is_named_without_its_value() -> None:
    ended = _run("worker", ACTIVITY_CORE_DATABASE_URL="mysql://me:hunter2@x", ACTIVITY_CORE_TEMPORAL_ADDRESS="x:1")
    assert ended.returncode == 2
    assert "ACTIVITY_CORE_DATABASE_URL is wrong" in ended.stderr
    assert "hunter2" not in ended.stderr


def test_api_that_would_be_open_to_other_machines_is_refused() -> None:
    ended = _run("api", **NOBODY, ACTIVITY_CORE_API_HOST="0.0.0.0")
    assert ended.returncode == 2
    assert "ACTIVITY_CORE_INSECURE_NO_AUTH" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_taken_port_is_a_message_and_not_a_traceback(tmp_path: Path) -> None:
    ended = _run("dev", "--data-dir", str(tmp_path), "--api-port", "1", "--temporal-port", "99999")
    assert ended.returncode == 2
    assert "--temporal-port" in ended.stderr


@pytest.mark.parametrize("name", ["router", "worker", "api"])
async def test_i13_sigterm_is_an_orderly_end(service_settings: Mapping[str, str], name: str) -> None:
    processes = Processes(service_settings)
    try:
        process = await processes.start(name)
        await eventually(lambda: "ready" in process.text or "listening" in process.text, within=30)
        assert await process.sigterm() == 0
    finally:
        await processes.stop()
    # the log, and nothing but the log: every line is JSON and says whose it is
    assert {json.loads(line)["process"] for line in process.lines} == {name}


async def test_migrate_can_be_repeated(service_settings: Mapping[str, str]) -> None:
    processes = Processes(service_settings)
    both = await asyncio.gather(processes.run("migrate"), processes.run("migrate"))
    assert not [process for process in both if "Running upgrade" in process.text]
