"""Temporal's dev server on a file, on loopback."""

import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from activity_core.dev.child import GENTLE, Child, OnSpawn, ignore_spawn, spawn_server
from activity_core.dev.ports import LOOPBACK
from activity_core.errors import ConfigurationError

# What our schedules and workflows are found and marked by; all keywords.
SEARCH_ATTRIBUTES = ("ActivityCoreSlug", "ActivityCoreOwner", "ActivityCoreSpecHash", "ActivityCoreDatabase")
READY_SECONDS = 60.0


class TemporalDevServer:
    """One server: its state in `home`/temporal.db, its log in `home`/logs. Ports: gRPC and web UI. `flags`: more of its own."""

    def __init__(
        self,
        home: Path,
        *,
        port: int,
        ui_port: int,
        namespace: str = "default",
        flags: Sequence[str] = (),
        on_spawn: OnSpawn = ignore_spawn,
    ) -> None:
        self._home = home
        self._port = port
        self._ui_port = ui_port
        self._namespace = namespace
        self._flags = tuple(flags)
        self._on_spawn = on_spawn
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        if self._child is None:
            raise ConfigurationError("Temporal was not started")
        return self._child

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    async def start(self, *, headless: bool = False) -> None:
        """Starts it and waits until it answers and knows our search attributes. Raises `ChildFailedError`."""
        command = [
            *(str(_binary()), "server", "start-dev", "--db-filename", str(database_file(self._home))),
            # 2.2 times the runs/s of SQLite's defaults, and still whole after kill -9.
            *("--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=1"),
            *("--ip", LOOPBACK, "--port", str(self._port), "--namespace", self._namespace, "--log-level", "error"),
            *self._flags,
            *(("--headless",) if headless else ("--ui-port", str(self._ui_port), "--ui-disable-news-fetch")),
        ]
        for name in SEARCH_ATTRIBUTES:
            command += ["--search-attribute", f"{name}=Keyword"]
        self._child = await spawn_server(
            "temporal",
            command,
            log=self._home / "logs" / "temporal.log",
            reach=self._home,
            stop_by=GENTLE,
            on_spawn=self._on_spawn,
        )
        await self._until_ready()

    @property
    def started(self) -> bool:
        return self._child is not None

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not await self.is_ready():
            if self.child.ended:
                raise self.child.failure()
            if time.monotonic() > deadline:
                raise self.child.failure(f"does not answer after {READY_SECONDS:.0f} s")
            await asyncio.sleep(0.05)

    async def is_ready(self) -> bool:
        """Whether it answers and knows our search attributes."""
        try:
            # First a plain connection: the client would wait for seconds on a port where nobody listens yet.
            _, writer = await asyncio.open_connection(LOOPBACK, self._port)
            writer.close()
            client = await Client.connect(self.address, namespace=self._namespace)
            found = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=self._namespace)
            )
        except (OSError, RuntimeError, RPCError):
            return False
        keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        return all(found.custom_attributes.get(name) == keyword for name in SEARCH_ATTRIBUTES)


def database_file(home: Path) -> Path:
    """Where the state of `home` lies. Absolute and without links: an orphan is known by it on its command line."""
    return home.resolve() / "temporal.db"


def _binary() -> Path:
    """The `temporal` that the pip package puts beside this Python, else the one on the path."""
    beside = Path(sys.executable).parent / "temporal"
    if beside.exists():
        return beside
    found = shutil.which("temporal")
    if found is None:
        raise ConfigurationError("the Temporal CLI is missing: install activity-core with its extra 'dev'")
    return Path(found)
