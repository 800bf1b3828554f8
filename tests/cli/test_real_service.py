"""The README's tour with the examples, against a running service."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from activity_core.settings import environment_without_settings
from tests.stack import RunningService, eventually

ROOT = Path(__file__).parents[2]
DELIVERY_ID = "7f0c1c5e-e6f0-11f0-8000-000000000002"


class Tour:
    """Runs commands in a directory of its own, as a person would type them."""

    def __init__(self, service: RunningService, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **environment_without_settings(),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "ACTIVITY_CORE_API_URL": f"http://127.0.0.1:{service.api.port}",
        }

    async def run(self, *command: str, code: int = 0) -> str:
        """Standard output of a command that ends with `code`; standard error if it is not 0."""

        def call() -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [sys.executable, *command],
                env=self.environment,
                cwd=self.directory,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )

        ended = await asyncio.to_thread(call)
        assert ended.returncode == code, f"{command}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout if code == 0 else ended.stderr

    async def call(self, *arguments: str, code: int = 0) -> str:
        return await self.run("-m", "activity_core", *arguments, code=code)

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.call(*arguments, "-o", "json"))


@pytest.fixture(scope="module")
def service_settings(service_settings: dict[str, str]) -> dict[str, str]:
    """With a key, as `dev` makes one."""
    return {**service_settings, "ENCRYPTION_KEYS": base64.b64encode(bytes(32)).decode()}


@pytest.fixture
def tour(running_service: RunningService, tmp_path: Path) -> Tour:
    return Tour(running_service, tmp_path)


async def test_demo_shows_what_it_promises(tour: Tour) -> None:
    shown = await tour.run(str(ROOT / "examples" / "demo.py"))
    assert f"event {DELIVERY_ID} accepted\n" in shown
    assert f"event {DELIVERY_ID} duplicate\n" in shown
    took = shown.partition(" took:\n")[2].partition("\n\n")[0].splitlines()
    assert len(took) == 3
    assert all(line.endswith("1 time(s)") for line in took)
    assert "completed (done); tasks: 3 completed" in shown
    assert "\x1b" not in shown

    runs = (await tour.json("runs", "--activity", "github-issues"))["items"]
    assert [run["event_id"] for run in runs] == [DELIVERY_ID]
    assert runs[0]["workflow_id"] == f"activity-{runs[0]['activity_id']}:{DELIVERY_ID}"

    [task] = (await tour.json("tasks", "--state", "waiting", "--activity", "github-issues"))["items"]
    assert task["params"] == {
        "repository": "example-org/widgets",
        "number": 42,
        "title": "Crash on \x1b[31m input",
        "reporter": "reporter-a",
    }
    assert "completed" in await tour.call("tasks", "complete", task["task_id"], "--output", '{"label": "bug"}')
    assert "task_not_open" in await tour.call("tasks", "fail", task["task_id"], "--reason", "no", code=1)


async def test_tour_from_init_to_why(tour: Tour) -> None:
    assert "apply -f heartbeat.yaml" in await tour.call("init")
    # of its own, whatever else this service runs
    file = tour.directory / "heartbeat.yaml"
    file.write_text(file.read_text().replace("slug: heartbeat", "slug: tour"))
    assert "created" in await tour.call("apply", "-f", "heartbeat.yaml", "--dry-run")
    assert "not_found" in await tour.call("get", "tour", code=1)
    assert "created" in await tour.call("apply", "-f", "heartbeat.yaml")
    assert "completed (done); tasks: 1 completed" in await tour.call("trigger", "tour", "--wait", "--allow-overlap")

    rows = (await tour.json("occurrences", "--activity", "tour"))["items"]
    assert [row["outcome"] for row in rows if row["kind"] == "manual"] == ["started"]
    assert "Outcome: " in await tour.call("why", "tour")
    # what is shown is what was applied
    (tour.directory / "again.yaml").write_text(await tour.call("get", "tour"))
    assert "unchanged" in await tour.call("apply", "-f", "again.yaml")


async def test_wrong_definitions_are_named_by_line_and_change_nothing(tour: Tour) -> None:
    (tour.directory / "wrong.yaml").write_text(
        "kind: Activity\nslug: wrong\ntrigger:\n  type: cron\n  cron: 61 * * * *\n  timezone: Mars/Base\n"
        "  misfire_policy: skip\ntasks:\n  - task_typ: x\n---\nkind: Consumer\nslug: fine-one\ntype: http\n"
        "url: http://127.0.0.1:9/x\n"
    )
    said = await tour.call("apply", "-f", "wrong.yaml", code=1)
    places = [line.split(": ")[:2] for line in said.splitlines()[:-1]]
    assert places == [
        ["wrong.yaml:5", "/trigger/cron"],
        ["wrong.yaml:6", "/trigger/timezone"],
        ["wrong.yaml:9", "/tasks/0/task_typ"],
        ["wrong.yaml:9", "/tasks/0/task_type"],
    ]
    assert said.splitlines()[-1] == "Nothing was applied."
    assert "not_found" in await tour.call("get", "wrong", code=1)


async def test_a_source_that_is_shown_and_applied_again_changes_nothing(
    tour: Tour, running_service: RunningService
) -> None:
    (tour.directory / "shop.yaml").write_text(
        "kind: Source\nslug: cli-shop\nscheme: hmac\nsecrets: [a-secret, '${ secret.NOT_SET_HERE }']\n"
        "signature: {header: X-Shop, prefix: 'sha256='}\nid: {template: '${ data.id }-${ header[\"x-n\"] }'}\n"
        "type: [{pointer: /kind}, {constant: shop.other}]\nrate_per_second: 50\n"
    )
    said = await tour.call("apply", "-f", "shop.yaml", code=1)
    assert said.startswith("shop.yaml:4: /secrets/1: set ACTIVITY_CORE_SECRET_NOT_SET_HERE for the API")
    text = (tour.directory / "shop.yaml").read_text()
    (tour.directory / "shop.yaml").write_text(text.replace(", '${ secret.NOT_SET_HERE }'", ""))
    assert "created" in await tour.call("apply", "-f", "shop.yaml", "--dry-run")
    assert "created" in await tour.call("apply", "-f", "shop.yaml")
    shown = await tour.call("sources", "get", "cli-shop")
    assert "a-secret" not in shown
    (tour.directory / "again.yaml").write_text(shown)
    for file in ("again.yaml", "shop.yaml"):
        assert "unchanged" in await tour.call("apply", "-f", file)
    assert len((await tour.json("sources", "get", "cli-shop"))["secrets"]) == 1
    assert "cli-shop" in await tour.call("sources", "list")
    told = {"X-Shop": "a-secret", "Authorization": "Bearer a-secret"}
    refused = await running_service.client.post("/v1/webhooks/cli-shop?key=a-secret", content=b"{}", headers=told)
    assert refused.status_code == 401
    for process in (running_service.api, running_service.router, running_service.worker):
        assert "a-secret" not in process.text


async def test_an_event_is_tried_kept_back_and_let_through(tour: Tour) -> None:
    (tour.directory / "type.yaml").write_text(
        "schema:\n  required: [order]\n  properties:\n    order: {type: integer}\non_invalid: quarantine\n"
    )
    (tour.directory / "pay.yaml").write_text(
        "kind: Activity\nslug: pay\ntrigger:\n  type: event\n  event_types: [cli.order.paid]\n"
        "tasks:\n  - task_type: pay\n    params: {order: '${ event.data.order }'}\n"
    )
    (tour.directory / "event.json").write_text('{"event_id": "cli-1", "type": "cli.order.paid", "data": {"order": 7}}')
    assert "revision 1" in await tour.call("events", "types", "put", "cli.order.paid", "-f", "type.yaml")
    assert "created" in await tour.call("apply", "-f", "pay.yaml")
    tried = await tour.call("events", "test", "pay", "--event", "event.json")
    assert "it would run" in tried and '{"order": 7}' in tried
    (tour.directory / "event.json").write_text('{"event_id": "cli-1", "type": "cli.order.paid", "data": {}}')
    said = await tour.call("events", "test", "pay.yaml", "--event", "event.json", code=1)
    assert "event.json:1: /data: " in said and "quarantined" in said
    assert "has_schema" in await tour.call("events", "types", "list", "--prefix", "cli.", "-o", "json")

    async def quarantined() -> bool:  # once the door knows of the schema
        await tour.call("events", "send", "cli.order.paid", "--data", "{}", "--source", "cli")
        listed = await tour.json("events", "list", "--status", "quarantined", "--type", "cli.order.paid")
        return bool(listed["items"])

    await eventually(quarantined)
    [event] = (await tour.json("events", "list", "--status", "quarantined", "--type", "cli.order.paid"))["items"]
    plan = await tour.call("events", "replay", event["id"], "--dry-run")
    assert "1 event to route again" in plan and "pay" in plan
    assert "1 event routed again" in await tour.call("events", "replay", event["id"], "--yes")

    async def routed() -> bool:
        rows = (await tour.json("occurrences", "--activity", "pay"))["items"]
        return event["event_id"] in [row["event_id"] for row in rows]

    await eventually(routed)
    assert (await tour.json("events", "list", "--event-id", event["event_id"]))["items"][0]["status"] == "routed"
