"""Lists: pages, filters, and what happens to a filter that was written wrongly."""

from urllib.parse import quote

import httpx
import pytest

from tests.api.conftest import Api
from tests.api.samples import event_activity, slug

LISTS = ("/v1/activities", "/v1/consumers", "/v1/events", "/v1/occurrences", "/v1/runs", "/v1/tasks")


@pytest.fixture(scope="module")
async def may_events(api: Api) -> list[str]:
    """Three events of 4 May 2026, at 07:59, 08:00 and 08:01 UTC."""
    found = []
    for time in ("07:59", "08:00", "08:01"):
        event_id = slug("may")
        await api.http.post("/v1/events", json={"event_id": event_id, "type": "may.day"})
        statement = "UPDATE events SET accepted_at = $2::text::timestamptz WHERE event_id = $1"
        await api.sql(statement, event_id, f"2026-05-04T{time}:00Z")
        found.append(event_id)
    return found


@pytest.mark.parametrize(
    "start",
    ["2026-05-04T10:00:00+02:00", "2026-05-04T10:00:00%2B02:00", "2026-05-04T08:00:00Z", "2026-05-04%2010:00:00+0200"],
)
async def test_f02_a_plus_that_arrived_as_a_space_is_understood(
    http: httpx.AsyncClient, may_events: list[str], start: str
) -> None:
    answer = await http.get(f"/v1/events?type=may.day&to=2026-05-05T00:00:00Z&from={start}")
    assert [item["event_id"] for item in answer.json()["items"]] == [may_events[2], may_events[1]]


async def test_time_filters_are_half_open(http: httpx.AsyncClient, may_events: list[str]) -> None:
    answer = await http.get("/v1/events?type=may.day&from=2026-05-04T07:59:00Z&to=2026-05-04T08:01:00Z")
    assert [item["event_id"] for item in answer.json()["items"]] == [may_events[1], may_events[0]]
    empty = await http.get("/v1/events?from=2026-05-04T08:00:00Z&to=2026-05-04T08:00:00Z")
    assert empty.json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    "instant",
    ["2026-05-04T10:00:00", "2026-05-04", "1777881600", "yesterday", "", "0001-01-01T00:00:00%2B14:00", "٢٠٢٦"],
)
async def test_r4_an_instant_without_an_offset_is_refused_with_advice(http: httpx.AsyncClient, instant: str) -> None:
    for path in ("/v1/events", "/v1/occurrences", "/v1/runs"):
        answer = await http.get(f"{path}?from={instant}")
        assert answer.status_code == 422, (path, answer.text)
        fault = answer.json()["errors"][0]
        assert (fault["pointer"], "2026-03-01T09:00:00Z" in fault["message"]) == ("/query/from", True)


async def test_a_range_that_ends_before_it_starts_is_refused(http: httpx.AsyncClient) -> None:
    for path in ("/v1/events", "/v1/occurrences", "/v1/runs"):
        answer = await http.get(f"{path}?from=2026-05-05T00:00:00Z&to=2026-05-04T00:00:00Z")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/to")


@pytest.mark.parametrize("path", LISTS)
async def test_unknown_and_repeated_parameters_are_refused(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(f"{path}?limt=5&selector=team%3Dops&limit=1&limit=2")
    messages = {fault["pointer"]: fault["message"] for fault in answer.json()["errors"]}

    assert answer.status_code == 422
    assert "did you mean 'limit'" in messages["/query/limt"]
    assert ("/query/selector" in messages) == (path not in ("/v1/activities", "/v1/occurrences"))
    assert messages["/query/limit"] == "is there twice"


async def test_parameters_are_refused_where_a_route_has_none(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/occurrences/8b0c3c55-0f3e-4d0e-9b7e-3f0f3a3f5b11?outcome=started")
    assert "there are none here" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "/query/limit"),
        ("limit=-1", "/query/limit"),
        ("limit=501", "/query/limit"),
        ("limit=ten", "/query/limit"),
        ("cursor=garbage", "/query/cursor"),
        ("cursor=%00", "/query/cursor"),
        ("cursor=" + quote("WyIyMDI2LTA1LTA0VDA4OjAwOjAwIiwgIngiXQ"), "/query/cursor"),
        ("cursor=bnVsbA", "/query/cursor"),
    ],
)
async def test_wrong_pages_are_refused(http: httpx.AsyncClient, path: str, query: str, pointer: str) -> None:
    answer = await http.get(f"{path}?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize(
    "query", ["/v1/occurrences?outcome=done", "/v1/runs?status=ok", "/v1/tasks?state=x", "/v1/tasks?run_id=7"]
)
async def test_wrong_values_of_filters_are_refused(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/query/")


@pytest.mark.parametrize(
    "query", ["/v1/runs?activity=nobody", "/v1/occurrences?activity=nobody", "/v1/tasks?activity=x"]
)
async def test_a_filter_by_an_activity_that_is_not_there_is_a_404(http: httpx.AsyncClient, query: str) -> None:
    assert (await http.get(query)).status_code == 404


@pytest.mark.parametrize("limit", [1, 7, 500])
async def test_f03_every_row_is_seen_once_though_all_are_of_one_instant(api: Api, limit: int) -> None:
    kind = slug("page")
    sent = [f"{kind}-{n}" for n in range(25)]
    for event_id in sent:
        await api.http.post("/v1/events", json={"event_id": event_id, "type": kind})
    await api.sql("UPDATE events SET accepted_at = now() WHERE type = $1", kind)

    seen: list[str] = []
    query = f"/v1/events?type={kind}&limit={limit}"
    cursor: str | None = ""
    while cursor is not None:
        page = (await api.http.get(query + (f"&cursor={cursor}" if cursor else ""))).json()
        seen += [item["event_id"] for item in page["items"]]
        cursor = page["next_cursor"]
        await api.http.post("/v1/events", json={"event_id": slug("newer"), "type": kind})
    assert sorted(event_id for event_id in seen if event_id in sent) == sorted(sent)
    assert len(seen) == len(set(seen))


async def test_ledger_is_filtered_by_activity_outcome_kind_and_time(api: Api) -> None:
    kind = slug("kind")
    documents = [event_activity(kind), event_activity(kind, filter="false"), event_activity(kind, enabled=False)]
    for document in documents:
        await api.http.post("/v1/activities", json=document)
    await api.http.post("/v1/events", json={"type": kind})
    await api.route()

    async def slugs(query: str) -> list[str]:
        answer = await api.http.get(f"/v1/occurrences?{query}")
        return [row["slug"] for row in answer.json()["items"] if row["slug"] in [d["slug"] for d in documents]]

    assert await slugs("outcome=filtered&limit=500") == [documents[1]["slug"]]
    assert await slugs("reason_code=disabled&limit=500") == [documents[2]["slug"]]
    assert await slugs(f"activity={documents[0]['slug']}") == [documents[0]["slug"]]
    assert await slugs(f"activity={documents[0]['slug']}&kind=time") == []
    assert await slugs(f"activity={documents[0]['slug']}&to=2020-01-01T00:00:00Z") == []
    own = (await api.http.get(f"/v1/activities/{documents[1]['slug']}/occurrences?outcome=filtered")).json()["items"]
    assert [row["slug"] for row in own] == [documents[1]["slug"]]
    one = (await api.http.get(f"/v1/occurrences/{own[0]['id']}")).json()
    assert one == own[0]
