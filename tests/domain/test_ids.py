"""Ids are frozen formats: golden values, inverse parsers, and alphabets that cannot meet."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activity_core.domain import ids

ACTIVITY = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
texts = st.text(min_size=1, max_size=300).filter(lambda text: _accepted(text))


def _accepted(text: str) -> bool:
    try:
        ids.check_external_id(text)
    except ids.IdError:
        return False
    return True


def test_r2_cron_run_id_is_the_contracts() -> None:
    key = ids.time_key(NINE)
    assert (
        ids.run_workflow_id(ACTIVITY, key) == "activity-550e8400-e29b-41d4-a716-446655440000:2026-03-01T09:00:00+00:00"
    )


def test_r3_event_run_id_is_the_contracts() -> None:
    event_id = ids.event_identity(None, "evt_abc123", cloudevents=False)
    assert ids.run_workflow_id(ACTIVITY, event_id) == f"activity-{ACTIVITY}:evt_abc123"


@pytest.mark.parametrize(
    "spelling",
    ["2026-03-01T09:00:00Z", "2026-03-01T10:00:00+01:00", "2026-03-01T09:00:00.000000+00:00", "20260301T090000Z"],
)
def test_r4_spellings_of_one_instant_are_one_key(spelling: str) -> None:
    assert ids.time_key(ids.parse_nominal(spelling)) == "2026-03-01T09:00:00+00:00"


@pytest.mark.parametrize("spelling", ["2026-03-01T09:00:00", "2026-03-01T09:00:00.5Z", "nine o'clock", ""])
def test_r4_naive_and_fractional_times_are_refused(spelling: str) -> None:
    with pytest.raises(ids.IdError):
        ids.parse_nominal(spelling)


def test_r33_run_id_is_derived_and_pinned() -> None:
    workflow_id = ids.run_workflow_id(ACTIVITY, ids.time_key(NINE))
    assert ids.run_id(workflow_id) == uuid.uuid5(ids.NAMESPACE, workflow_id)
    assert str(ids.run_id(workflow_id)) == "22736c2e-839a-5285-b888-f48db137f302"


def test_r29_task_id_and_its_parser() -> None:
    run = uuid.UUID(int=7)
    task = ids.task_id(run, "send-digest", 12)
    assert task == "task-00000000-0000-0000-0000-000000000007:send-digest:12"
    assert ids.parse_task_id(task) == ids.TaskKey(run, "send-digest", 12)


@pytest.mark.parametrize("text", ["task-x:a:1", "task-00000000-0000-0000-0000-000000000007:A:1", "run", ""])
def test_what_is_no_task_id_is_refused(text: str) -> None:
    with pytest.raises(ids.IdError):
        ids.parse_task_id(text)


def test_r38_execution_id_differs_by_step_position_and_epoch_only() -> None:
    assert str(ids.activity_execution_id("task-a", "deliver")) == "8f7d7a81-5a57-578a-a4b7-b5543ce9818e"
    others = {
        ids.activity_execution_id("task-a", "deliver", position, epoch) for position in (0, 1) for epoch in (0, 1)
    } | {ids.activity_execution_id("task-a", "resolve"), ids.activity_execution_id("task-b", "deliver")}
    assert len(others) == 6


def test_r39_attempt_ids_differ_by_task_token() -> None:
    execution = ids.activity_execution_id("task-a", "deliver")
    assert len({ids.activity_attempt_id(execution, token) for token in (b"one", b"two", b"three")}) == 3


@given(texts)
def test_r9_keys_are_short_printable_ascii_and_parse_back(external_id: str) -> None:
    key = ids.canonical_key(external_id)
    workflow_id = ids.run_workflow_id(ACTIVITY, key)
    assert len(workflow_id) <= ids.MAX_WORKFLOW_ID_BYTES
    assert workflow_id.isascii() and workflow_id.isprintable()
    assert ids.parse_run_workflow_id(workflow_id) == ids.RunKey(ACTIVITY, "event", key)


@given(texts, texts)
def test_r9_different_ids_have_different_keys(one: str, other: str) -> None:
    assert (ids.canonical_key(one) == ids.canonical_key(other)) == (one == other)


@given(texts, st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=0)), texts)
def test_r9_cron_event_and_manual_keys_cannot_meet(event: str, at: datetime, manual: str) -> None:
    keys = [ids.canonical_key(event), ids.time_key(at), ids.manual_key(manual)]
    assert [ids.key_kind(key) for key in keys] == ["event", "time", "manual"]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("external_id", "verbatim"),
    [
        ("evt_abc123", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("2026-03-01T09:00:00+00:00", False),
        ("20260301T0900Z", False),
        ("2026-03-01", True),
        ("manual:x", False),
        ("~sha256." + "0" * 64, False),
        ("with space", False),
        ("-leading", False),
        ("größe", False),
        ("a/b:c@d+e=f.g-h_i", True),
    ],
)
def test_r9_which_ids_stay_verbatim(external_id: str, verbatim: bool) -> None:
    key = ids.canonical_key(external_id)
    assert (key == external_id) is verbatim
    if not verbatim:
        assert key.startswith("~sha256.") and len(key) == 72


@pytest.mark.parametrize("bad", ["", "a\nb", "a\x00", "\x85", "\ud800", "ü" * 513])
def test_r9_ids_that_can_not_be_kept_are_refused(bad: str) -> None:
    with pytest.raises(ids.IdError):
        ids.check_external_id(bad)


def test_r27_identity_is_source_and_id() -> None:
    identities = {
        ids.event_identity(None, "1", cloudevents=False),
        ids.event_identity("shop", "1", cloudevents=False),
        ids.event_identity("store", "1", cloudevents=False),
        ids.event_identity("/shop", "1", cloudevents=True),
        ids.event_identity("https://shop.example", "1", cloudevents=True),
    }
    assert len(identities) == 5
    assert "shop:1" in identities
    assert ids.event_identity("default", "1", cloudevents=False) == "1"


def test_r27_a_named_source_cannot_pose_as_a_cloudevents_source() -> None:
    with pytest.raises(ids.IdError, match="CloudEvents"):
        ids.event_identity("ce-0123456789abcdef", "1", cloudevents=False)


def test_nominal_keeps_the_instant_of_any_offset() -> None:
    assert ids.format_nominal(NINE.astimezone(timezone(timedelta(hours=5, minutes=45)))) == "2026-03-01T09:00:00+00:00"
