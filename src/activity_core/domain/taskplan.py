"""From a definition and the context of one run to the tasks it spawns. Pure, evaluated once per run and then recorded.

Errors of expressions are errors of the run (`PlanError`), never a condition that did not hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from activity_core.domain.cron import check_zone
from activity_core.domain.documents import Activity, CronTrigger, TaskSpec
from activity_core.domain.expressions import ExpressionError, compile_condition, compile_expression
from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.domain.templates import Template, TemplateError, compile_template

PLAIN_TASKS_PER_WAVE = 20
MAX_TASKS = 5_000
MAX_PARAMS_BYTES = 64 * 1024
# Of all tasks of a run: the plan is recorded in one statement.
MAX_PLAN_BYTES = 8 * 1024 * 1024


class PlanError(ValueError):
    """The run can't be planned: an expression failed or a limit was passed. The text names where."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    task_type: str
    index: int
    wave: int
    consumer: str
    params: JsonValue
    detached: bool
    attempt_timeout_seconds: int
    deadline_seconds: int | None
    retry: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """`reason` says why there is nothing to do, when there is not."""

    tasks: tuple[PlannedTask, ...]
    reason: str | None

    @property
    def waves(self) -> int:
        return 1 + max((task.wave for task in self.tasks), default=-1)


def run_scope(
    activity: Activity,
    *,
    activity_id: str,
    run_id: str,
    scheduled_for: datetime | None,
    window: tuple[datetime | None, datetime] | None,
    event: Mapping[str, Any] | None,
    params: JsonValue,
) -> dict[str, Any]:
    """What expressions of this run see, before its context is resolved. Absent names are errors when used."""
    scope: dict[str, Any] = {
        "activity": {"id": activity_id, "slug": activity.slug, "name": activity.name, "labels": activity.labels},
        "run": {"id": run_id},
        "context": {},
        "params": params if params is not None else {},
    }
    if event is not None:
        scope["event"] = event
    if window is not None:
        scope["window"] = {key: value for key, value in zip(("start", "end"), window, strict=True) if value}
    if scheduled_for is not None:
        scope["scheduled_for"] = scheduled_for
        if isinstance(activity.trigger, CronTrigger):
            scope["local"] = _local(scheduled_for.astimezone(check_zone(activity.trigger.timezone)))
    return scope


def _local(at: datetime) -> dict[str, Any]:
    tomorrow = at.date() + timedelta(days=1)
    return {
        "date": at.date().isoformat(),
        "time": at.strftime("%H:%M:%S"),
        "weekday": at.strftime("%a").upper(),
        "day": at.day,
        "last_day": tomorrow.day == 1,
    }


def plan_tasks(activity: Activity, scope: Mapping[str, Any]) -> TaskPlan:
    """Evaluate rules, then tasks. Raises PlanError."""
    for position, rule in enumerate(activity.rules):
        if not _holds(rule.when, scope, f"/rules/{position}/when"):
            return TaskPlan((), rule.reason)
    next_index: dict[str, int] = {}
    planned: list[PlannedTask] = []
    for position, spec in enumerate(activity.tasks):
        plain_wave = position // PLAIN_TASKS_PER_WAVE
        _plan_entry(spec, scope, f"/tasks/{position}", plain_wave, next_index, planned)
    size = sum(len(canonical_json(task.params)) for task in planned)
    if size > MAX_PLAN_BYTES:
        raise PlanError(
            f"/tasks: the params of all tasks have {size} bytes, over the limit of {MAX_PLAN_BYTES} for a run"
        )
    if not planned:
        return TaskPlan((), "no task is due" if activity.tasks else "the definition has no tasks")
    return TaskPlan(tuple(planned), None)


def _plan_entry(
    spec: TaskSpec,
    scope: Mapping[str, Any],
    where: str,
    plain_wave: int,
    next_index: dict[str, int],
    planned: list[PlannedTask],
) -> None:
    template = compile_template(spec.params)
    if spec.for_each is None:
        if spec.when is None or _holds(spec.when, scope, f"{where}/when"):
            params = _render(template, scope, where)
            planned.append(_task(spec, params, plain_wave, next_index))
        return
    kept = 0
    for position, item in enumerate(_items(spec, scope, where)):
        inner = {**scope, "item": item, "index": position}
        if spec.when is not None and not _holds(spec.when, inner, f"{where}/when"):
            continue
        params = _render(template, inner, f"{where} (item {position})")
        planned.append(_task(spec, params, kept // spec.for_each.max_parallel, next_index))
        kept += 1
        if len(planned) > MAX_TASKS:
            raise PlanError(f"{where}: a run may spawn {MAX_TASKS} tasks at most")


def _items(spec: TaskSpec, scope: Mapping[str, Any], where: str) -> Sequence[Any]:
    assert spec.for_each is not None  # noqa: S101 (the caller's branch)
    try:
        items = compile_expression(spec.for_each.in_).evaluate(scope)
    except ExpressionError as error:
        raise PlanError(f"{where}/for_each/in: {error}") from error
    if not isinstance(items, list):
        raise PlanError(f"{where}/for_each/in: is no list")
    limit = spec.for_each.max_items
    if len(items) > limit and spec.for_each.on_exceed == "fail":
        raise PlanError(f"{where}/for_each: {len(items)} items, over its max_items of {limit}")
    return items[:limit]


def _task(spec: TaskSpec, params: JsonValue, wave: int, next_index: dict[str, int]) -> PlannedTask:
    index = next_index.get(spec.task_type, 0)
    next_index[spec.task_type] = index + 1
    return PlannedTask(
        task_type=spec.task_type,
        index=index,
        wave=wave,
        consumer=spec.consumer,
        params=params,
        # a person's answer must not hold up the schedule
        detached=spec.consumer == "inbox",
        attempt_timeout_seconds=spec.attempt_timeout_seconds,
        deadline_seconds=spec.deadline(),
        retry=spec.retry.model_dump(mode="json"),
    )


def _holds(expression: str, scope: Mapping[str, Any], where: str) -> bool:
    try:
        return compile_condition(expression).holds(scope)
    except ExpressionError as error:
        raise PlanError(f"{where}: {error}") from error


def _render(template: Template, scope: Mapping[str, Any], where: str) -> JsonValue:
    try:
        params = template.render(scope)
    except TemplateError as error:
        raise PlanError("; ".join(f"{where}/params{suffix}: {message}" for suffix, message in error.faults)) from error
    size = len(canonical_json(params))
    if size > MAX_PARAMS_BYTES:
        raise PlanError(f"{where}/params: {size} bytes, over the limit of {MAX_PARAMS_BYTES}")
    return params
