"""Envelopes: ours and CloudEvents, read into one form, with every fault named."""

from typing import Any

import pytest

from activity_core.domain.envelopes import Envelope, read_cloudevent, read_native
from activity_core.errors import InvalidInputError

NATIVE: dict[str, Any] = {"event_id": "evt_1", "type": "order.paid", "data": {"amount": 5}}
CLOUD: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1",
    "source": "https://shop.example/orders",
    "type": "order.paid",
    "time": "2026-03-01T10:00:00+01:00",
    "data": {"amount": 5},
}


def test_our_envelope_needs_a_type_only() -> None:
    assert read_native({"type": "order.paid"}) == Envelope(None, "default", "order.paid", None, None, None, False)


def test_a_cloudevent_keeps_its_free_source() -> None:
    envelope = read_cloudevent(CLOUD)
    assert (envelope.source, envelope.external_id, envelope.cloudevents) == (CLOUD["source"], "1", True)
    assert envelope.time is not None and envelope.time.isoformat() == "2026-03-01T09:00:00+00:00"
    assert envelope.event_id("1").startswith("ce-") and envelope.event_id("1").endswith(":1")


def test_r27_the_same_id_of_two_sources_is_two_events() -> None:
    other = read_cloudevent({**CLOUD, "source": "https://store.example"})
    assert read_cloudevent(CLOUD).event_id("1") != other.event_id("1")


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        ({}, {"/type"}),
        ({"type": 5}, {"/type"}),
        ({"type": ""}, {"/type"}),
        ({"type": "a", "event_id": ""}, {"/event_id"}),
        ({"type": "a", "event_id": "x" * 1025}, {"/event_id"}),
        ({"type": "a", "event_id": "a\nb"}, {"/event_id"}),
        ({"type": "a", "event_id": 7}, {"/event_id"}),
        ({"type": "a", "source": "Not A Slug"}, {"/source"}),
        ({"type": "a", "time": "2026-03-01T09:00:00"}, {"/time"}),
        ({"type": "a", "time": 5}, {"/time"}),
        ({"type": "a b", "payload": {}, "subject": 3}, {"/type", "/payload", "/subject"}),
        ([], {""}),
    ],
)
def test_faults_of_our_envelope(value: Any, pointers: set[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_native(value)
    assert {fault.pointer for fault in caught.value.faults} == pointers


@pytest.mark.parametrize("missing", ["specversion", "id", "source", "type"])
@pytest.mark.parametrize("absent", [None, ""])
def test_a_cloudevent_without_a_required_attribute_is_refused_by_its_name(missing: str, absent: str | None) -> None:
    """The error must name the attribute that is missing, and an event without id must not pass as something else.
    Source: cloudevents/sdk-python issues 303 and 143."""
    with pytest.raises(InvalidInputError) as caught:
        read_cloudevent({**CLOUD, missing: absent})
    assert {fault.pointer for fault in caught.value.faults} == {f"/{missing}"}


def test_content_hash_sees_everything_but_the_id_and_the_order_of_keys() -> None:
    one = read_native({**NATIVE, "data": {"a": 1, "b": 2}}).content_hash()
    assert read_native({**NATIVE, "event_id": "other", "data": {"b": 2, "a": 1}}).content_hash() == one
    changes: list[dict[str, Any]] = [{"type": "order.x"}, {"source": "shop"}, {"subject": "s"}, {"data": {"a": 1}}]
    for change in changes:
        assert read_native({**NATIVE, "data": {"a": 1, "b": 2}, **change}).content_hash() != one


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1899-12-31T23:59:59Z"])
def test_a_time_that_some_part_could_not_hold_is_refused(time: str) -> None:
    with pytest.raises(InvalidInputError, match="the year must be within"):
        read_native({"type": "a", "time": time})
