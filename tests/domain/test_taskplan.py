"""From a definition and what it knows to the tasks of a run."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activity_core.domain.reading import read_activity
from activity_core.domain.taskplan import PlanError, TaskPlan, plan_tasks, run_scope

NINE = datetime(2026, 3, 31, 7, tzinfo=UTC)
BASE: dict[str, Any] = {
    "slug": "digest",
    "labels": {"team": "ops"},
    "trigger": {"type": "cron", "cron": "0 9 * * *", "timezone": "Europe/Berlin", "misfire_policy": "skip"},
    "context": [{"name": "mail", "type": "static", "value": {"items": [{"id": n} for n in range(45)]}}],
}


DAY_BEFORE = NINE.replace(day=30)


def plan(
    tasks: list[dict[str, Any]],
    *,
    window: tuple[datetime | None, datetime] | None = (DAY_BEFORE, NINE),
    covers: dict[str, Any] | None = None,
    **more: Any,
) -> TaskPlan:
    document: dict[str, Any] = {**BASE, "tasks": tasks, **more}
    activity = read_activity(document)
    scope = run_scope(
        activity,
        activity_id="a",
        run_id="r",
        scheduled_for=NINE,
        window=window,
        event=None,
        params=None,
        covers=covers,
    )
    scope["context"]["mail"] = BASE["context"][0]["value"]
    return plan_tasks(activity, scope)


def test_local_is_in_the_triggers_zone() -> None:
    found = plan(
        [{"task_type": "a", "params": {"d": "${ local.date }", "t": "${ local.time }", "l": "${ local.last_day }"}}]
    )
    assert found.tasks[0].params == {"d": "2026-03-31", "t": "09:00:00", "l": True}


INTERVAL = {"type": "interval", "every_seconds": 86_400}
ONCE = {"type": "once", "at": NINE.isoformat()}


def params(text: str, **more: Any) -> Any:
    rendered = plan([{"task_type": "a", "params": {"x": text}}], **more).tasks[0].params
    assert isinstance(rendered, dict)
    return rendered["x"]


@pytest.mark.parametrize("trigger", [INTERVAL, ONCE])
def test_local_of_a_trigger_without_a_zone_is_utc(trigger: dict[str, Any]) -> None:
    assert params("${ local.date } ${ local.time } ${ local.weekday }", trigger=trigger) == "2026-03-31 07:00:00 TUE"


@pytest.mark.parametrize("trigger", [BASE["trigger"], INTERVAL])
def test_r15_window_and_scheduled_for_are_instants(trigger: dict[str, Any]) -> None:
    text = "${ window.start } ${ window.end } ${ string(window.end == scheduled_for) }"
    assert params(text, trigger=trigger) == "2026-03-30T07:00:00Z 2026-03-31T07:00:00Z true"
    assert params("${ window.end - window.start }", trigger=trigger) == "86400s"


def test_r15_the_window_of_once_has_no_start() -> None:
    window = (None, NINE)
    assert params("${ window.end }", trigger=ONCE, window=window) == "2026-03-31T07:00:00Z"
    assert params("${ has(window.start) }", trigger=ONCE, window=window) is False
    with pytest.raises(PlanError, match="/tasks/0/params/x"):
        params("${ window.start }", trigger=ONCE, window=window)
    with pytest.raises(PlanError, match="/tasks/0/when"):
        plan([{"task_type": "a", "when": "window.start < window.end"}], trigger=ONCE, window=window)


COVERS = "${ covers.count }: ${ covers.first } to ${ covers.last }"


def test_r15_a_run_that_covers_a_block_sees_it() -> None:
    stored = {"first": "2026-03-28T08:00:00+00:00", "last": NINE.isoformat(), "count": 4}
    assert params(COVERS, covers=stored) == "4: 2026-03-28T08:00:00Z to 2026-03-31T07:00:00Z"
    assert params("${ covers.count }", covers=stored) == 4
    assert (
        params("${ covers.last - covers.first > duration('24h') && covers.last == window.end }", covers=stored) is True
    )


@pytest.mark.parametrize("trigger", [BASE["trigger"], INTERVAL, ONCE])
def test_r15_a_run_of_one_time_covers_that(trigger: dict[str, Any]) -> None:
    assert params(COVERS, trigger=trigger) == "1: 2026-03-31T07:00:00Z to 2026-03-31T07:00:00Z"


def test_a_run_without_a_window_covers_nothing() -> None:
    with pytest.raises(PlanError, match="/tasks/0/params/x"):
        params("${ covers.count }", window=None)


def test_r29_index_counts_per_type_over_all_entries() -> None:
    found = plan([{"task_type": "a"}, {"task_type": "b"}, {"task_type": "a"}])
    assert [(task.task_type, task.index) for task in found.tasks] == [("a", 0), ("b", 0), ("a", 1)]


def test_fan_out_is_cut_into_waves_of_max_parallel() -> None:
    found = plan(
        [
            {
                "task_type": "a",
                "for_each": {"in": "context.mail.items", "max_parallel": 20},
                "params": {"n": "${ item.id }"},
            }
        ]
    )
    assert [task.params for task in found.tasks] == [{"n": n} for n in range(45)]
    assert [sum(task.wave == wave for task in found.tasks) for wave in range(found.waves)] == [20, 20, 5]


def test_when_of_a_fan_out_is_asked_per_item() -> None:
    entry = {
        "task_type": "a",
        "for_each": {"in": "context.mail.items"},
        "when": "item.id >= 43",
        "params": {"i": "${ index }"},
    }
    assert [task.params for task in plan([entry]).tasks] == [{"i": 43}, {"i": 44}]


def test_too_many_items_fail_or_are_cut_as_asked() -> None:
    entry: dict[str, Any] = {"task_type": "a", "for_each": {"in": "context.mail.items", "max_items": 3}}
    with pytest.raises(PlanError, match="45 items, over its max_items of 3"):
        plan([entry])
    entry["for_each"]["on_exceed"] = "truncate"
    assert len(plan([entry]).tasks) == 3


def test_a_rule_that_does_not_hold_means_no_work_with_its_reason() -> None:
    rules = [{"id": "x", "when": "context.mail.items.size() > 100", "reason": "not enough mail"}]
    assert plan([{"task_type": "a"}], rules=rules) == TaskPlan((), "not enough mail")


def test_an_error_in_a_condition_is_an_error_and_never_a_match() -> None:
    with pytest.raises(PlanError, match="/tasks/0/when"):
        plan([{"task_type": "a", "when": "context.mail.nothing > 1"}])
    with pytest.raises(PlanError, match="/tasks/0/when"):
        plan([{"task_type": "a", "when": "context.mail.items"}])


def test_a_missing_path_in_params_is_an_error_that_says_where() -> None:
    with pytest.raises(PlanError, match="/tasks/0/params/x"):
        plan([{"task_type": "a", "params": {"x": "${ context.mail.nope }"}}])


def test_what_is_no_list_can_not_be_fanned_out() -> None:
    with pytest.raises(PlanError, match="no list"):
        plan([{"task_type": "a", "for_each": {"in": "context.mail"}}])


def test_inbox_tasks_are_detached_and_have_no_deadline() -> None:
    found = plan([{"task_type": "a"}, {"task_type": "b", "consumer": "log"}]).tasks
    assert [(task.consumer, task.detached, task.deadline_seconds) for task in found] == [
        ("inbox", True, None),
        ("log", False, 86_400),
    ]
