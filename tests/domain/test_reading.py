"""What a user may write, and how every fault is named at once, by pointer, with what to write instead."""

import copy
from typing import Any

import pytest

from activity_core.domain import documents as docs
from activity_core.domain.reading import consumer_references, read_activity, read_consumer, read_document
from activity_core.errors import InvalidInputError

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
        ("/trigger/misfire_policy", "catchup", "/trigger/misfire_policy", "not available in this version"),
        ("/trigger/misfire_policy", "whatever", "/trigger/misfire_policy", "skip"),
        ("/trigger/misfire_grace_seconds", "5m", "/trigger/misfire_grace_seconds", "300"),
        ("/trigger/type", "interval", "/trigger/type", "not available in this version"),
        ("/trigger/type", "crom", "/trigger/type", "cron, event or manual"),
        ("/trigger/overlap_policy", "allow_all", "/trigger/overlap_policy", "not available in this version"),
        ("/trigger/timezon", "UTC", "/trigger/timezon", "did you mean 'timezone'"),
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


def test_r10_another_misfire_policy_is_refused() -> None:
    assert "/trigger/misfire_policy" in faults(changed("/trigger/misfire_policy", "later"))


def test_r19_dedupe_key_strategy_is_kept_and_a_definition_without_it_is_whole() -> None:
    assert read_activity(changed("/dedupe_key_strategy", "skip")).dedupe_key_strategy == "skip"
    assert read_activity(CRON).dedupe_key_strategy is None


def test_window_is_no_name_of_event_activities() -> None:
    document = changed("/trigger", {"type": "event", "event_types": ["order.*"], "filter": "event.data.paid == true"})
    assert set(faults(document)) == {"/context/1/query/since", "/tasks/0/params/on"}


def test_consumers_are_read_and_built_in_names_refused() -> None:
    assert read_consumer({"slug": "mailer", "type": "http", "url": "http://127.0.0.1:9/x"}).url.endswith("/x")
    with pytest.raises(InvalidInputError, match="built-in"):
        read_consumer({"slug": "inbox", "type": "http", "url": "http://127.0.0.1:9/x"})
    with pytest.raises(InvalidInputError, match="not available in this version"):
        read_consumer({"slug": "mailer", "type": "temporal", "url": "http://127.0.0.1:9/x"})


def test_references_are_found_in_broken_documents_too() -> None:
    document: Any = {"tasks": [{"consumer": "mailer"}, {"consumer": 5}, 7, {"consumer": "log"}]}
    assert list(consumer_references(document)) == [("/tasks/0/consumer", "mailer")]


@pytest.mark.parametrize("kind", [None, "Source", "Pod", 3])
def test_a_document_needs_a_kind_we_know(kind: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_document({**CRON, "kind": kind})  # type: ignore[dict-item]  # what users write is not typed
    assert caught.value.faults[0].pointer == "/kind"
