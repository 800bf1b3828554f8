"""Loads the examples into a running service and shows what becomes of them: `make demo`, or `python examples/demo.py`.

The service is the one at ACTIVITY_CORE_API_URL, or at http://127.0.0.1:8080, where `make run` puts it. Every step is a
command that you can type yourself.
"""

import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo_server import HOST, PORT, DemoServer

EXAMPLES = Path(__file__).parent
EVENT = EXAMPLES / "events" / "github_issue_opened.json"
# What GitHub sends as X-GitHub-Delivery, the same for every repetition.
EVENT_ID = "7f0c1c5e-e6f0-11f0-8000-000000000002"
WAIT_SECONDS = 60


def main() -> int:
    with demo_server() as server, definitions(server.port) as folder:
        title("Four documents: three activities and a consumer")
        show("apply", "-f", folder)
        show("get")

        title("An event, and the same event again: one run")
        send = ("events", "send", "github.issues.opened", "--event-id", EVENT_ID, "--data", f"@{relative(EVENT)}")
        show(*send)
        show(*send)
        task = waiting_task("github-issues")
        show("tasks", "--activity", "github-issues")

        title("A digest: orders over HTTP, one task for each customer, each delivered once")
        show("trigger", "digest", "--wait", "--timeout", str(WAIT_SECONDS))
        print(f"\nWhat the demo server at http://{HOST}:{server.port} took:")
        for delivery in server.deliveries():
            print(f"  {delivery['key']}  {json.dumps(delivery['data'])}  {delivery['times']} time(s)")

        title("What ran, and why")
        show("runs", "--limit", "5")
        show("why", "github-issues", "--event-id", EVENT_ID)
        title("Now you")
        if task is not None:
            print("The issue waits for a person. Complete its task:")
            print(f'  activity-core tasks complete {task["task_id"]} --output \'{{"label": "bug"}}\'')
        print("The heartbeat runs at the next full minute; see it with:")
        print("  activity-core runs --activity heartbeat")
    return 0


@contextmanager
def demo_server() -> Iterator[DemoServer]:
    """Running on its usual port, or on a free one when that is taken."""
    try:
        server = DemoServer(PORT, shows=False)
    except OSError:
        server = DemoServer(0, shows=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def definitions(port: int) -> Iterator[str]:
    """The folder to apply: the examples, with the demo server's port in them."""
    if port == PORT:
        yield relative(EXAMPLES)
        return
    with tempfile.TemporaryDirectory() as folder:
        for file in EXAMPLES.glob("*.yaml"):
            (Path(folder) / file.name).write_text(
                file.read_text("utf-8").replace(f"{HOST}:{PORT}", f"{HOST}:{port}"), "utf-8"
            )
        yield folder


def title(text: str) -> None:
    print(f"\n== {text} ==", flush=True)


def show(*arguments: str) -> None:
    """Run one of our commands where it can be seen. Ends the demo when it fails."""
    print(f"\n$ activity-core {shlex.join(arguments)}", flush=True)
    ended = subprocess.run(command(*arguments), check=False)
    if ended.returncode != 0:
        raise SystemExit(ended.returncode)


def waiting_task(activity: str) -> dict[str, Any] | None:
    """The newest task of `activity` that waits, once there is a task; None when all are ended, by an earlier demo."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        tasks = listed("tasks", "--activity", activity)
        if tasks and all(task["terminal"] for task in tasks):
            return None
        for task in tasks:
            if task["state"] == "waiting":
                return task
        time.sleep(0.2)
    raise SystemExit(f"no task of {activity} after {WAIT_SECONDS} s; is the worker running?")


def listed(*arguments: str) -> list[dict[str, Any]]:
    ended = subprocess.run(command(*arguments, "--output", "json"), check=True, stdout=subprocess.PIPE)
    items: list[dict[str, Any]] = json.loads(ended.stdout)["items"]
    return items


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "activity_core", *arguments]


def relative(path: Path) -> str:
    """Short, where it can be."""
    absolute = path.resolve()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


if __name__ == "__main__":
    sys.exit(main())
