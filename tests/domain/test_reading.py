"""What a user may write, and how every fault is named at once, by pointer, with what to write instead."""

import copy
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activity_core.domain import documents as docs
from activity_core.domain.reading import consumer_references, read_activity, read_consumer, read_document, read_trigger
from activity_core.errors import InvalidInputError

from .cron_reference import PHASES

CRON: dict[str, Any] = {
    "slug": "digest",
    "trigger": {"type": "cron", "cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "misfire_policy": "skip"},
    "context": [
        {"name": "mail", "type": "static", "value": {"items": [{"id": 1}], "count": 1}},
        {
            "name": "orders",
            "type": "http",
            "url": "https://example.org/orders",
            "query": {"since": "${ window.start }"},
        },
    ],
    "rules": [{"id": "has-mail", "when": "context.mail.count > 0", "reason": "nothing unread"}],
    "tasks": [
        {
            "task_type": "send",
            "for_each": {"in": "context.mail.items"},
            "params": {"to": "${ item.id }", "on": "${ local.date }"},
            "consumer": "log",
        }
    ],
}


def changed(path: str, value: object) -> dict[str, Any]:
    document: Any = copy.deepcopy(CRON)
    target = document
    *parents, last = path.strip("/").split("/")
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if isinstance(target, list):
        target[int(last)] = value
    else:
        target[last] = value
    assert isinstance(document, dict)
    return document


def faults(document: object) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        read_activity(document)  # type: ignore[arg-type]  # also what is no document at all
    return {fault.pointer: fault.message for fault in caught.value.faults}


def test_a_whole_document_is_read_and_its_defaults_are_filled_in() -> None:
    activity = read_activity(CRON)
    effective = docs.effective(activity)
    assert effective["trigger"]["misfire_grace_seconds"] == 60
    assert effective["tasks"][0]["for_each"] == {
        "in": "context.mail.items",
        "max_items": 1000,
        "max_parallel": 20,
        "on_exceed": "fail",
    }
    assert docs.stored_activity(effective) == activity


def test_stored_documents_of_a_newer_version_are_read() -> None:
    effective = docs.effective(read_activity(CRON))
    effective["from_the_future"] = {"x": 1}
    effective["trigger"]["also"] = True
    assert docs.stored_activity(effective) == read_activity(CRON)


@pytest.mark.parametrize(
    ("path", "value", "pointer", "says"),
    [
        ("/slug", "Has Capitals", "/slug", "lower-case"),
        ("/slug", "550e8400-e29b-41d4-a716-446655440000", "/slug", "UUID"),
        ("/trigger/cron", "0 0 12 * * ?", "/trigger/cron", "0 12 * * *"),
        ("/trigger/timezone", "Europe/Berln", "/trigger/timezone", "Europe/Berlin"),
        ("/trigger/misfire_policy", "foo", "/trigger/misfire_policy", "write 'skip', 'catchup' or 'compress'"),
        ("/trigger/misfire_policy", None, "/trigger/misfire_policy", "write 'skip', 'catchup' or 'compress'"),
        ("/trigger/misfire_grace_seconds", "5m", "/trigger/misfire_grace_seconds", "as a number: 300"),
        ("/trigger/misfire_grace_seconds", "90", "/trigger/misfire_grace_seconds", "as a number: 90"),
        ("/trigger/misfire_grace_seconds", "PT5M", "/trigger/misfire_grace_seconds", "300 for five minutes"),
        ("/trigger/misfire_grace_seconds", 1.5, "/trigger/misfire_grace_seconds", "300 for five minutes"),
        ("/trigger/misfire_grace_seconds", 0, "/trigger/misfire_grace_seconds", "write 1 or more"),
        ("/trigger/catchup_limit", 1001, "/trigger/catchup_limit", "write 1000 or less"),
        ("/trigger/catchup_limit", "10", "/trigger/catchup_limit", "without quotes"),
        ("/trigger/type", "crom", "/trigger/type", "write cron, interval, once, event or manual"),
        ("/trigger", "0 9 * * *", "/trigger", "write a JSON object"),
        ("/trigger/overlap_policy", "skip", "/trigger/overlap_policy", "follows misfire_policy"),
        ("/trigger/overlap_policy", "buffer_one", "/trigger/overlap_policy", "leave this out, or write 'allow_all'"),
        ("/trigger/timezon", "UTC", "/trigger/timezon", "did you mean 'timezone'"),
        ("/trigger/jitter", 30, "/trigger/jitter", "did you mean 'jitter_seconds'"),
        ("/trigger/late", 30, "/trigger/late", "did you mean 'late_after_seconds'"),
        ("/trigger/debounce", {}, "/trigger/debounce", "only a trigger of type event has it"),
        ("/concurrency", {"key": "a"}, "/concurrency", "is for activities with an event trigger"),
        ("/trigger/every_seconds", 60, "/trigger/every_seconds", "only a trigger of type interval has it; one of type"),
        ("/ownr", "me", "/ownr", "did you mean 'owner'"),
        ("/notify", [], "/notify", "not available in this version"),
        ("/context/1/headers", {}, "/context/1/headers", "not available in this version"),
        ("/context/1/type", "sql", "/context/1/type", "not available in this version"),
        ("/context/1/name", "mail", "/context/1/name", "there already"),
        ("/rules/0/when", "context.mail.count >", "/rules/0/when", ""),
        ("/rules/0/when", "event.data == 1", "/rules/0/when", "event"),
        ("/tasks/0/params", {"a": {"b": ["${ nope }"]}}, "/tasks/0/params/a/b/0", "nope"),
        ("/tasks/0/for_each/in", "item", "/tasks/0/for_each/in", "item"),
        ("/tasks/0/task_type", "Send Mail", "/tasks/0/task_type", ""),
        ("/tasks/0/detach", True, "/tasks/0/detach", "not available in this version"),
        ("/tasks/0/for_each/max_itms", 5, "/tasks/0/for_each/max_itms", "did you mean 'max_items'"),
    ],
)
def test_a_fault_is_named_where_it_is_with_what_to_write(path: str, value: object, pointer: str, says: str) -> None:
    found = faults(changed(path, value))
    assert pointer in found
    assert says in found[pointer]


def test_all_faults_are_named_at_once() -> None:
    document = changed("/trigger/cron", "61 * * * *")
    document["trigger"]["timezone"] = "Mars/Olympus"
    document["rules"][0]["when"] = "1 +"
    document["surprise"] = 1
    del document["slug"]
    assert set(faults(document)) == {"/slug", "/surprise", "/trigger/cron", "/trigger/timezone", "/rules/0/when"}


@pytest.mark.parametrize("value", [None, [], "text", 3, {}, {"trigger": 5}, {"tasks": {"a": 1}}, {"context": [1]}])
def test_whatever_is_sent_the_answer_is_a_list_of_faults(value: object) -> None:
    assert faults(value)


@pytest.mark.parametrize("policy", ["skip", "catchup", "compress"])
def test_r10_each_misfire_policy_is_taken(policy: str) -> None:
    assert (
        docs.effective(read_activity(changed("/trigger/misfire_policy", policy)))["trigger"]["misfire_policy"] == policy
    )


def test_r10_another_misfire_policy_is_refused() -> None:
    assert "/trigger/misfire_policy" in faults(changed("/trigger/misfire_policy", "later"))


def trigger_faults(trigger: dict[str, Any]) -> dict[str, str]:
    return faults({"slug": "x", "trigger": trigger})


def interval(**more: Any) -> dict[str, Any]:
    return {"type": "interval", "every_seconds": 900, **more}


def cron(text: str, zone: str = "Europe/Berlin", **more: Any) -> dict[str, Any]:
    return {"type": "cron", "cron": text, "timezone": zone, **more}


HANDLING = {
    "misfire_grace_seconds": 60,
    "catchup_limit": 10,
    "overlap_policy": None,
    "late_after_seconds": 300,
    "jitter_seconds": 0,
}
BOUNDS = {"start_at": None, "end_at": None}


@pytest.mark.parametrize(
    ("written", "filled_in"),
    [
        (cron("0 9 * * *"), {"misfire_policy": "compress", **BOUNDS, **HANDLING}),
        (interval(), {"misfire_policy": "compress", "anchor": None, **BOUNDS, **HANDLING}),
        ({"type": "once", "at": "2027-03-01T09:00:00Z"}, {"misfire_policy": "catchup", **HANDLING}),
        (
            {"type": "event", "event_types": ["order.paid"]},
            {"filter": None, "sources": [], "debounce": None, "rate_limit": None},
        ),
        ({"type": "manual"}, {}),
    ],
)
def test_each_type_of_trigger_is_read_and_its_defaults_are_filled_in(
    written: dict[str, Any], filled_in: dict[str, Any]
) -> None:
    activity = read_activity({"slug": "x", "trigger": written})
    effective = docs.effective(activity)
    assert effective["trigger"] == {**written, **filled_in}
    assert docs.stored_activity(effective) == activity


def test_r4_an_instant_is_stored_in_one_spelling_however_it_was_written() -> None:
    spellings = ["2027-03-01T09:00:00Z", "2027-03-01T10:00:00+01:00", "2027-03-01T09:00:00.000000+00:00"]
    triggers = [
        docs.effective(read_activity({"slug": "x", "trigger": interval(start_at=text, anchor=text)}))["trigger"]
        for text in spellings
    ]
    assert {(t["start_at"], t["anchor"]) for t in triggers} == {("2027-03-01T09:00:00Z", "2027-03-01T09:00:00Z")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2027-03-01T09:00:00", "a time without an offset is ambiguous"),
        ("2027-03-01", "a time without an offset is ambiguous"),
        ("2027-03-01T09:00:00.5Z", "whole seconds; write '2027-03-01T09:00:00Z'"),
        ("2027-03-01T09:00:00.0000001+01:00", "whole seconds; write '2027-03-01T09:00:00+01:00'"),
        ("2027-03-01T24:00:00Z", "midnight as T00:00:00 of the next day"),
        ("2027-02-29T09:00:00Z", "write an ISO 8601 time with an offset"),
        ("2027-03-01T09:00:00 Europe/Berlin", "write an ISO 8601 time with an offset"),
        ("9999-12-31T23:00:00-12:00", "the year must be within"),
        ("1969-12-31T23:59:59Z", "not in the years"),
        (1_800_000_000, "write an ISO 8601 time with an offset"),
        (None, "write an ISO 8601 time with an offset"),
    ],
)
def test_r4_an_instant_that_is_not_a_whole_second_with_an_offset_is_refused(text: object, says: str) -> None:
    triggers = {"at": {"type": "once", "at": text}}
    if text is not None:  # the others may be left out
        triggers |= {name: interval(**{name: text}) for name in ("anchor", "start_at", "end_at")}
        triggers["start_at"] = cron("0 9 * * *", start_at=text)
    for name, trigger in triggers.items():
        found = trigger_faults(trigger)
        assert set(found) == {f"/trigger/{name}"}
        assert says in found[f"/trigger/{name}"]
        assert "%" not in found[f"/trigger/{name}"]


@pytest.mark.parametrize(
    ("trigger", "pointer", "says"),
    [
        (cron("0 9 * * *", start_at="2027-01-02T00:00Z", end_at="2027-01-01T00:00Z"), "/end_at", "is before start_at"),
        (
            cron("0 9 * * MON", start_at="2027-01-05T00:00Z", end_at="2027-01-10T00:00Z"),
            "/end_at",
            "the first one would be due at '2027-01-11T08:00:00Z', write that or later",
        ),
        (cron("0 0 * * *", start_at="9900-12-31T23:30Z"), "/start_at", "no time is left"),
        (interval(anchor="2027-01-01T00:07Z", end_at="1970-01-01T00:06:59Z"), "/end_at", "'1970-01-01T00:07:00Z'"),
        (interval(every_seconds=31_536_001), "/every_seconds", "write 31536000 or less"),
        (interval(every_seconds=0), "/every_seconds", "write 1 or more"),
        ({"type": "interval"}, "/every_seconds", "is required; write whole seconds"),
        ({"type": "once", "at": "2101-01-01T00:00Z"}, "/at", "not in the years 2000 to 2100"),
        ({"type": "once"}, "/at", "is required; write the instant with its offset"),
        ({"type": "cron", "cron": "0 9 * * *"}, "/timezone", "is required; write an IANA name"),
        (
            {"type": "once", "at": "2027-01-01T00:00Z", "end_at": "2028-01-01T00:00Z"},
            "/end_at",
            "type cron or interval",
        ),
        ({"type": "manual", "misfire_policy": "skip"}, "/misfire_policy", "of type cron, interval or once has it"),
    ],
)
def test_settings_that_leave_no_time_or_do_not_go_together_are_refused(
    trigger: dict[str, Any], pointer: str, says: str
) -> None:
    found = trigger_faults(trigger)
    assert set(found) == {f"/trigger{pointer}"}
    assert says in found[f"/trigger{pointer}"]


def test_bounds_are_inclusive_so_one_instant_may_be_both() -> None:
    nine = "2027-01-04T08:00:00Z"
    activity = read_activity({"slug": "x", "trigger": cron("0 9 * * *", start_at=nine, end_at=nine)})
    times = docs.times_of(activity.trigger)
    assert times is not None
    assert times.first() == times.last() == datetime(2027, 1, 4, 8, tzinfo=UTC)


def test_a_fault_elsewhere_hides_none_of_the_times() -> None:
    trigger = interval(
        start_at="2027-01-02T00:00Z", end_at="2027-01-01T00:00Z", misfire_policy="foo", jitter_seconds="1m"
    )
    found = faults({"trigger": trigger, "surprise": 1})
    assert set(found) == {
        *("/slug", "/surprise", "/trigger/end_at", "/trigger/jitter_seconds", "/trigger/misfire_policy"),
    }


@pytest.mark.parametrize(
    ("trigger", "most"),
    [
        (interval(every_seconds=60), 59),
        (interval(every_seconds=1), 0),
        (cron("* * * * *"), 59),
        (cron("*/15 * * * *"), 899),
        (cron("0,50 * * * *"), 599),
        # from the last time of a day to the first of the next
        (cron("0 0 * * *"), 3600),
        (cron("5 0,1,23 * * *"), 3599),
        (cron("0,55 0,23 * * *"), 299),
        # clocks change by half an hour there, and an hourly job follows elapsed time
        (cron("45 * * * *", "Australia/Lord_Howe"), 1799),
        (cron("45 * * * *", "UTC"), 3599),
        # 02:30 is skipped in spring and due at 03:00 then, ten minutes before the other one
        (cron("30,10 2,3 * * *", "Europe/Berlin"), 599),
        (cron("30,10 2,3 * * *", "UTC"), 1199),
        ({"type": "once", "at": "2027-03-01T09:00:00Z"}, 3600),
    ],
)
def test_jitter_stays_below_the_smallest_gap_between_times(trigger: dict[str, Any], most: int) -> None:
    read_activity({"slug": "x", "trigger": {**trigger, "jitter_seconds": most}})
    found = trigger_faults({**trigger, "jitter_seconds": most + 1})
    assert set(found) == {"/trigger/jitter_seconds"}
    assert (f"{most} at most" if 0 < most < 3600 else ("leave it out", "3600 or less")[most > 0]) in found.popitem()[1]


FIELD = st.sets(st.integers(0, 59), min_size=1, max_size=3).map(lambda values: ",".join(map(str, sorted(values))))
HOURS = st.one_of(
    st.sampled_from(["*", "*/2", "*/5"]),
    st.sets(st.integers(0, 23), min_size=1, max_size=4).map(lambda values: ",".join(map(str, sorted(values)))),
)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Antarctica/Troll", "Asia/Kolkata"]


@settings(max_examples=100, deadline=None, phases=PHASES)
@given(minutes=FIELD, hours=HOURS, days=st.sampled_from(["* *", "* SUN", "25-31 *"]), zone=st.sampled_from(ZONES))
def test_no_two_times_are_closer_than_the_gap_that_jitter_is_held_to(
    minutes: str, hours: str, days: str, zone: str
) -> None:
    day, weekday = days.split()
    trigger = read_trigger(cron(f"{minutes} {hours} {day} * {weekday}", zone), "")
    times = docs.times_of(trigger)
    assert times is not None
    due = times.between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
    smallest, claimed = min((b - a).total_seconds() for a, b in pairwise(due)), times.smallest_gap()
    assert claimed is not None
    assert claimed == smallest if days == "* *" else claimed <= smallest


def test_r19_dedupe_key_strategy_is_kept_and_a_definition_without_it_is_whole() -> None:
    assert read_activity(changed("/dedupe_key_strategy", "skip")).dedupe_key_strategy == "skip"
    assert read_activity(CRON).dedupe_key_strategy is None


def test_window_is_no_name_of_event_activities() -> None:
    document = changed("/trigger", {"type": "event", "event_types": ["order.*"], "filter": "event.data.paid == true"})
    assert set(faults(document)) == {"/context/1/query/since", "/tasks/0/params/on"}


@pytest.mark.parametrize("trigger", [interval(), {"type": "once", "at": "2027-03-01T09:00:00Z"}, cron("0 9 * * *")])
def test_every_trigger_with_times_has_a_window_and_what_it_covers(trigger: dict[str, Any]) -> None:
    document = changed("/trigger", trigger)
    document["tasks"][0]["params"]["missed"] = "${ covers.count } from ${ covers.first } to ${ scheduled_for }"
    read_activity(document)
    document["rules"][0]["when"] = "event.data.paid == true"
    assert set(faults(document)) == {"/rules/0/when"}


@pytest.mark.parametrize("text", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_a_date_that_never_occurs_is_refused_by_the_name_of_its_field(text: str) -> None:
    found = trigger_faults(cron(text, "UTC"))
    assert set(found) == {"/trigger/cron"}
    assert found["/trigger/cron"].startswith("day-of-month")
    assert "never" in found["/trigger/cron"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("0 0 12 * * *", "0 12 * * *"), ("0 0 12 * * ?", "0 12 * * *"), ("0 6 2 2 * 2018", "five fields")],
)
def test_six_fields_are_refused_for_five(text: str, says: str) -> None:
    found = trigger_faults(cron(text, "UTC"))
    assert set(found) == {"/trigger/cron"}
    assert "five fields" in found["/trigger/cron"]
    assert says in found["/trigger/cron"]


@pytest.mark.parametrize("zone", ["PST", "CEST", "UTC+2", "Europe/Berln", "", "europe/berlin", "local"])
def test_what_is_no_zone_is_refused_where_it_stands(zone: str) -> None:
    found = trigger_faults(cron("0 9 * * 1", zone))
    assert set(found) == {"/trigger/timezone"}
    assert "write" in found["/trigger/timezone"]


@pytest.mark.parametrize(("zone", "hour"), [("EST", 14), ("America/New_York", 13)])
def test_est_is_a_zone_without_summer_time(zone: str, hour: int) -> None:
    times = docs.times_of(read_trigger(cron("0 9 * * 1", zone), ""))
    assert times is not None
    assert times.next_after(datetime(2026, 7, 1, 5, tzinfo=UTC)) == datetime(2026, 7, 6, hour, tzinfo=UTC)


def test_consumers_are_read_and_built_in_names_refused() -> None:
    assert read_consumer({"slug": "mailer", "type": "http", "url": "http://127.0.0.1:9/x"}).url.endswith("/x")
    with pytest.raises(InvalidInputError, match="built-in"):
        read_consumer({"slug": "inbox", "type": "http", "url": "http://127.0.0.1:9/x"})
    with pytest.raises(InvalidInputError, match="not available in this version"):
        read_consumer({"slug": "mailer", "type": "temporal", "url": "http://127.0.0.1:9/x"})


def test_references_are_found_in_broken_documents_too() -> None:
    document: Any = {"tasks": [{"consumer": "mailer"}, {"consumer": 5}, 7, {"consumer": "log"}]}
    assert list(consumer_references(document)) == [("/tasks/0/consumer", "mailer")]


@pytest.mark.parametrize("kind", [None, "Connection", "Pod", 3])
def test_a_document_needs_a_kind_we_know(kind: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_document({**CRON, "kind": kind})  # type: ignore[dict-item]  # what users write is not typed
    assert caught.value.faults[0].pointer == "/kind"
