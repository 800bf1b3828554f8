"""/metrics: what is true of all processes together, in the text format of Prometheus."""

import re
from uuid import uuid4

from activity_core.store import metrics
from tests.api.conftest import Api
from tests.api.samples import cron_activity, event_activity
from tests.api.test_documents import created

LINE = re.compile(r'activity_core_[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[0-9.e+]+')


async def scraped(api: Api) -> dict[str, float]:
    answer = await api.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in lines), lines
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_every_metric_has_help_and_a_type_and_is_read_without_error(api: Api) -> None:
    text = (await api.http.get("/metrics")).text
    for name in ("settle_lag_seconds", "occurrences_waiting", "schedules_unsynced", "schedule_repairs_total"):
        assert re.search(
            rf"^# HELP activity_core_{name} \S.*\n# TYPE activity_core_{name} (gauge|counter)$", text, re.M
        )


async def test_activities_are_counted_by_what_they_are(api: Api) -> None:
    before = await scraped(api)
    activity = await created(api.http, cron_activity())
    await created(api.http, event_activity("never.sent", enabled=False))
    paused = await created(api.http, cron_activity())
    await api.http.post(f"/v1/activities/{paused['id']}/pause")
    after = await scraped(api)
    for state in ("enabled", "disabled", "paused"):
        name = f'activity_core_activities{{state="{state}"}}'
        assert after[name] - before.get(name, 0) == 1, name
    await api.http.delete(f"/v1/activities/{activity['id']}")
    name = 'activity_core_activities{state="enabled"}'
    assert (await scraped(api)).get(name, 0) == before.get(name, 0)


async def test_what_waits_is_counted_with_its_reason(api: Api) -> None:
    activity = await created(api.http, cron_activity())
    name = 'activity_core_occurrences_waiting{kind="manual",reason_code="due"}'
    before = (await scraped(api)).get(name, 0)
    await api.http.post(f"/v1/activities/{activity['id']}/trigger")
    assert (await scraped(api))[name] == before + 1


async def test_repairs_are_counted_over_processes_and_labels_are_escaped(api: Api) -> None:
    odd = f'by "hand"\\{uuid4().hex}'
    async with api.database.begin() as connection:
        for _ in range(2):
            await metrics.count(connection, "schedule_repairs", odd)
    text = (await api.http.get("/metrics")).text
    escaped = odd.replace("\\", "\\\\").replace('"', '\\"')
    assert f'activity_core_schedule_repairs_total{{what="{escaped}"}} 2\n' in text
