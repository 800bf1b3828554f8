"""`activity-core dev` as it stands: our real processes, one start from nothing and one after kill -9 of everything."""

import contextlib
import os
import re
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from tests.dev.conftest import DevRun, Start, nothing_left, processes_of

pytestmark = pytest.mark.fault


def _address(run: DevRun, what: str) -> str:
    found = re.search(rf"^  {what} +(http://\S+)", run.text, re.MULTILINE)
    assert found, run.text
    return found[1]


async def test_the_whole_stack_serves_and_survives_kill_9_of_everything(start: Start, data_dir: Path) -> None:
    run = await start(real=True)
    await run.until_ready()
    async with httpx.AsyncClient(trust_env=False) as client:
        for what in ("API docs", "Console", "Temporal UI"):
            answer = await client.get(_address(run, what), follow_redirects=True)
            assert answer.status_code == 200, what
        ready = await client.get(_address(run, "API").replace("/v1", "/readyz"))
        assert ready.status_code == 200
        path = _address(run, "API") + "/sources/kept"
        source = {"slug": "kept", "scheme": "bearer", "secrets": ["a-secret"]}
        assert (await client.put(path, json=source)).status_code == 201
    await run.execute("CREATE TABLE mark AS SELECT 'kept' AS word")

    os.kill(run.child.pid, signal.SIGKILL)
    for process in processes_of(data_dir):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may just have ended with its parent
            process.kill()
    await run.ended()
    await nothing_left(data_dir)

    again = await start(real=True)
    await again.until_ready()
    assert await again.execute("SELECT word FROM mark") == "kept"
    async with httpx.AsyncClient(trust_env=False) as client:
        # the key is where it was
        assert (await client.get(_address(again, "API") + "/sources/kept")).json()["trouble"] == []
        sent = await client.post(
            _address(again, "API") + "/webhooks/kept", headers={"Authorization": "Bearer a-secret"}, content=b"{}"
        )
        assert sent.status_code == 202
    assert await again.stop(signal.SIGTERM) == 0
    assert not processes_of(data_dir)
    assert "Traceback" not in run.text + again.text
