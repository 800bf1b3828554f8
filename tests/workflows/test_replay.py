"""R45: workflow code makes the same decisions from the same history, on every later version.

The histories are of every released version, in a folder named by the schema revision it had (see `record.py`).
"""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from activity_core.workflows.fire import FireActivityWorkflow
from activity_core.workflows.run import RunActivityWorkflow
from activity_core.workflows.task import TaskWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*/*.json"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_r45_a_stored_history_replays(path: Path) -> None:
    replayer = Replayer(
        workflows=[FireActivityWorkflow, RunActivityWorkflow, TaskWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    text = path.read_text()
    workflow_id = f"replayed-{path.stem}"
    assert (await replayer.replay_workflow(WorkflowHistory.from_json(workflow_id, text))).replay_failure is None


def test_r45_there_are_histories_of_every_released_version() -> None:
    versions = {path.parent.name for path in HISTORIES}
    schemas = {path.name[:4] for path in (Path(__file__).parents[2] / "migrations" / "versions").glob("[0-9]*.py")}
    assert versions == schemas
    assert len(HISTORIES) >= 8 * len(versions)
