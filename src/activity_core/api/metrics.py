"""GET /metrics, in the text format of Prometheus."""

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from activity_core.api.services import Use
from activity_core.store.metrics import Metric, read

PREFIX = "activity_core_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(use: Use) -> PlainTextResponse:
    """What is open, waiting, recent and repaired, of all processes together: ask one API process, not each."""
    async with use.database.read() as connection:
        found = await read(connection)
    return PlainTextResponse("".join(line for metric in found for line in _lines(metric)), media_type=CONTENT_TYPE)


def _lines(metric: Metric) -> Iterator[str]:
    name = PREFIX + metric.name
    yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
    for sample in metric.samples:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
        yield f"{name}{{{labels}}} {sample.value:.15g}\n" if labels else f"{name} {sample.value:.15g}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
