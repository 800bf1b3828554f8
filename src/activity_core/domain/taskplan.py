"""From a definition and the context of one run to the tasks it spawns. Pure, evaluated once per run and then recorded.

Errors of expressions are errors of the run (`PlanError`), never a condition that did not hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from activity_core.domain.cron import check_zone
from activity_core.domain.documents import Activity, ForEach, TaskSpec, TimeTrigger, zone_of
from activity_core.domain.expressions import ExpressionError, compile_condition, compile_expression
from activity_core.domain.instants import read_instant
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
    covers: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What expressions of this run see, before its context is resolved. Absent names are errors when used.

    `covers` as it is stored: {"first": ISO text, "last": ISO text, "count": int}; without it a run with a window covers
    its own time alone.
    """
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
        if isinstance(activity.trigger, TimeTrigger):
            scope["local"] = _local(scheduled_for.astimezone(check_zone(zone_of(activity.trigger))))
        if window is not None:
            scope["covers"] = _covers(covers, scheduled_for)
    return scope


def _covers(stored: Mapping[str, Any] | None, scheduled_for: datetime) -> dict[str, Any]:
    if stored is None:
        return {"first": scheduled_for, "last": scheduled_for, "count": 1}
    return {"first": read_instant(stored["first"]), "last": read_instant(stored["last"]), "count": stored["count"]}


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
    planning = _Planning(scope)
    for position, spec in enumerate(activity.tasks):
        if spec.for_each is None:
            planning.plain(spec, f"/tasks/{position}", wave=position // PLAIN_TASKS_PER_WAVE)
        else:
            planning.fan_out(spec, spec.for_each, f"/tasks/{position}")
    if not planning.tasks:
        return TaskPlan((), "no task is due" if activity.tasks else "the definition has no tasks")
    return TaskPlan(tuple(planning.tasks), None)


class _Planning:
    """The tasks of one run as they are added, within the limits of a run."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.tasks: list[PlannedTask] = []
        self._scope = scope
        self._next_index: dict[str, int] = {}
        self._bytes = 0

    def plain(self, spec: TaskSpec, where: str, *, wave: int) -> None:
        if spec.when is None or _holds(spec.when, self._scope, f"{where}/when"):
            self._add(spec, compile_template(spec.params), self._scope, where, wave)

    def fan_out(self, spec: TaskSpec, each: ForEach, where: str) -> None:
        template, kept = compile_template(spec.params), 0
        for position, item in enumerate(_items(each, self._scope, where)):
            scope = {**self._scope, "item": item, "index": position}
            if spec.when is None or _holds(spec.when, scope, f"{where}/when"):
                self._add(spec, template, scope, f"{where} (item {position})", kept // each.max_parallel)
                kept += 1

    def _add(self, spec: TaskSpec, template: Template, scope: Mapping[str, Any], where: str, wave: int) -> None:
        params, size = _render(template, scope, where)
        self._bytes += size
        if len(self.tasks) >= MAX_TASKS:
            raise PlanError(f"{where}: a run may spawn {MAX_TASKS} tasks at most")
        if self._bytes > MAX_PLAN_BYTES:
            raise PlanError(f"{where}: the params of a run's tasks may have {MAX_PLAN_BYTES} bytes in all")
        index = self._next_index.get(spec.task_type, 0)
        self._next_index[spec.task_type] = index + 1
        self.tasks.append(_task(spec, params, wave, index))


def _items(each: ForEach, scope: Mapping[str, Any], where: str) -> Sequence[Any]:
    try:
        items = compile_expression(each.in_).evaluate(scope)
    except ExpressionError as error:
        raise PlanError(f"{where}/for_each/in: {error}") from error
    if not isinstance(items, list):
        raise PlanError(f"{where}/for_each/in: is no list")
    limit = each.max_items
    if len(items) > limit and each.on_exceed == "fail":
        raise PlanError(f"{where}/for_each: {len(items)} items, over its max_items of {limit}")
    return items[:limit]


def _task(spec: TaskSpec, params: JsonValue, wave: int, index: int) -> PlannedTask:
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


def _render(template: Template, scope: Mapping[str, Any], where: str) -> tuple[JsonValue, int]:
    """The params and their size in bytes."""
    try:
        params = template.render(scope)
    except TemplateError as error:
        raise PlanError("; ".join(f"{where}/params{suffix}: {message}" for suffix, message in error.faults)) from error
    size = len(canonical_json(params))
    if size > MAX_PARAMS_BYTES:
        raise PlanError(f"{where}/params: {size} bytes, over the limit of {MAX_PARAMS_BYTES}")
    return params, size
