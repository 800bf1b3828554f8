"""Servers of this package's own: Temporal is stopped and started here."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.stack import Servers, temporary_home


@pytest.fixture(scope="package")
async def own_servers() -> AsyncIterator[Servers]:
    with temporary_home() as home:
        servers = Servers(Path(home))
        try:
            await servers.start()
            yield servers
        finally:
            await servers.stop()
