"""Workflow code decides from its history alone (R45, R46): checked without a server, on the code itself."""

import ast
import sys
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activity_core import workflows
from activity_core.workflows.fire import FireActivityWorkflow
from activity_core.workflows.run import RunActivityWorkflow
from activity_core.workflows.task import TaskWorkflow

WORKFLOWS = [FireActivityWorkflow, RunActivityWorkflow, TaskWorkflow]
FILES = sorted(Path(workflows.__file__).parent.glob("*.py"))
ALLOWED_IMPORTS = {
    *("asyncio", "contextlib", "dataclasses", "datetime", "temporalio", "typing"),
    *("activity_core.domain", "activity_core.workflows"),
}
# Clocks, environment, randomness, process-dependent hashing and order, threads, I/O: also what the sandbox lets through.
FORBIDDEN_CALLS = {
    *("open", "print", "input", "hash", "id", "set", "frozenset", "exec", "eval", "__import__", "getattr"),
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today", "asyncio.to_thread", "asyncio.wait"),
    *(
        "asyncio.get_event_loop",
        "asyncio.get_running_loop",
        "asyncio.create_subprocess_exec",
        "asyncio.open_connection",
    ),
}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def offences(source: str) -> list[str]:
    """What in this source could differ between two executions of one history."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [
                f"import {name}"
                for name in names
                if not any(name == allowed or name.startswith(allowed + ".") for allowed in ALLOWED_IMPORTS)
            ]
        elif isinstance(node, ast.Call) and dotted(node.func) in FORBIDDEN_CALLS:
            found.append(f"{dotted(node.func)}()")
        elif isinstance(node, ast.Set | ast.SetComp):
            found.append("a set")
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.append("state outside the workflow")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_r46_workflow_files_hold_nothing_that_differs_between_replays(path: Path) -> None:
    assert offences(path.read_text()) == []


@pytest.mark.parametrize(
    "planted",
    [
        "import random",
        "import os",
        "from time import time",
        "from datetime import datetime\ndatetime.now()",
        "hash('x')",
        "id(object())",
        "for x in {1, 2}: pass",
        "x = {n for n in (1, 2)}",
        "set([1])",
        "open('/etc/passwd')",
        "import secrets",
        "from activity_core.store import runs",
        "def f():\n    global x",
    ],
)
def test_the_check_sees_what_is_planted(planted: str) -> None:
    assert offences(planted)


@pytest.mark.parametrize("cls", WORKFLOWS, ids=lambda cls: cls.__name__)
async def test_r46_every_workflow_is_prepared_inside_the_sandbox(cls: type) -> None:
    runner: WorkflowRunner = SandboxedWorkflowRunner()
    definition = workflow._Definition.must_from_class(cls)
    before = set(sys.modules)
    runner.prepare_workflow(definition)
    heavy = {
        name
        for name in set(sys.modules) - before
        if name.split(".")[0] in ("sqlalchemy", "asyncpg", "httpx", "fastapi")
    }
    assert not heavy


def test_workflow_names_are_the_contracts() -> None:
    names = [workflow._Definition.must_from_class(cls).name for cls in WORKFLOWS]
    assert names == ["FireActivityWorkflow", "RunActivityWorkflow", "TaskWorkflow"]
