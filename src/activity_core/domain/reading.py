"""From what a user wrote to a document, or to the list of everything that is wrong with it."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from activity_core.domain import documents as docs
from activity_core.domain.expressions import ExpressionError, compile_condition, compile_expression
from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.domain.templates import TemplateError, compile_template, compile_url
from activity_core.errors import Fault, InvalidInputError

M = TypeVar("M", bound=BaseModel)

# Fields of the format whose behaviour is still to come: refused, so that nothing is accepted and then ignored.
LATER_FIELDS = {
    "": {"run_timeout_seconds", "concurrency", "notify"},
    "/trigger": {
        *("catchup_limit", "overlap_policy", "late_after_seconds", "jitter_seconds", "start_at", "end_at"),
        *("sources", "debounce", "rate_limit"),
    },
    "/context": {"headers", "method", "body", "default", "max_bytes"},
    "/tasks": {
        *("idempotency", "on_deadline", "completion", "on_unknown_outcome", "assignee", "detach"),
    },
    "consumer": {"headers", "secrets", "max_concurrency", "rate_per_second", "disabled", "disable_on_410"},
}
LATER_VALUES = {"on_error": ("default", "skip_run")}
LATER_TYPES = {
    "/trigger/type": {"interval", "once"},
    "/context/type": {"sql", "python", "previous_run"},
    "/type": {"python", "temporal", "event"},
}


def read_document(value: JsonValue) -> docs.Document:
    """Any document, by its `kind` (required here: a file holds several kinds)."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "Activity":
        return read_activity(value)
    if kind == "Consumer":
        return read_consumer(value)
    if kind in ("Source", "Connection"):
        raise InvalidInputError([Fault("/kind", f"documents of kind {kind} are not available in this version")])
    raise InvalidInputError([Fault("/kind", "write 'Activity' or 'Consumer'")])


def read_activity(value: JsonValue) -> docs.Activity:
    """The activity document of a JSON value. Raises InvalidInputError naming every fault."""
    document, faults = _read_model(docs.Activity, value, "")
    if isinstance(value, dict):
        faults.extend(_activity_faults(value))
    if faults or document is None:
        raise InvalidInputError(_sorted(faults))
    return document


def read_consumer(value: JsonValue) -> docs.HttpConsumer:
    document, faults = _read_model(docs.HttpConsumer, value, "consumer")
    url = value.get("url") if isinstance(value, dict) else None
    if isinstance(url, str) and (fault := callable_url_fault(url)):
        faults.append(Fault("/url", fault))
    if isinstance(value, dict) and value.get("slug") in docs.BUILT_IN_CONSUMERS:
        faults.append(Fault("/slug", f"'{value['slug']}' is a built-in consumer; choose another slug"))
    if faults or document is None:
        raise InvalidInputError(_sorted(faults))
    return document


def callable_url_fault(url: str) -> str | None:
    """Why no call to this URL could be made; None when one could."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
        host.encode("idna")
        if host.startswith("xn--") or ".xn--" in host:
            host.encode().decode("idna")
    except (ValueError, UnicodeError):
        return "its host or port is no valid one; write for example 'https://mailer.example.org/tasks'"
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return "write an http or https URL with a host, for example 'https://mailer.example.org/tasks'"
    return None


def consumer_references(value: JsonValue) -> Iterator[tuple[str, str]]:
    """(pointer, slug) of each named consumer in a raw activity document, whatever else is wrong with it."""
    for pointer, task in _items(value, "tasks"):
        slug = task.get("consumer")
        if isinstance(slug, str) and slug not in docs.BUILT_IN_CONSUMERS:
            yield f"{pointer}/consumer", slug


def _sorted(faults: list[Fault]) -> list[Fault]:
    return sorted(set(faults), key=lambda fault: (fault.pointer, fault.message))


def _items(value: JsonValue, field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    items = value.get(field) if isinstance(value, dict) else None
    if isinstance(items, list):
        for position, item in enumerate(items):
            if isinstance(item, dict):
                yield f"/{field}/{position}", item


def _activity_faults(raw: dict[str, Any]) -> Iterator[Fault]:
    """What the model can't see: expressions against their scope, and names that must differ."""
    trigger = raw.get("trigger")
    kind = trigger.get("type") if isinstance(trigger, dict) else None
    scope = docs.SCOPE_ALWAYS
    if kind != "manual":
        scope |= {"cron": docs.SCOPE_TIME, "event": docs.SCOPE_EVENT}.get(str(kind), docs.SCOPE_TIME | docs.SCOPE_EVENT)
    if isinstance(trigger, dict) and kind == "event":
        yield from _expression_fault("/trigger/filter", trigger.get("filter"), frozenset({"event", "activity"}))
    yield from _doubled(raw, "context", "name")
    yield from _doubled(raw, "rules", "id")
    for pointer, source in _items(raw, "context"):
        if source.get("type") == "http":
            yield from _template_faults(f"{pointer}/url", source.get("url"), scope, url=True)
            yield from _template_faults(f"{pointer}/query", source.get("query"), scope)
    for pointer, rule in _items(raw, "rules"):
        yield from _expression_fault(f"{pointer}/when", rule.get("when"), scope)
    for pointer, task in _items(raw, "tasks"):
        inner = scope
        for_each = task.get("for_each")
        if isinstance(for_each, dict):
            yield from _expression_fault(f"{pointer}/for_each/in", for_each.get("in"), scope, condition=False)
            inner = scope | docs.SCOPE_ITEM
        yield from _expression_fault(f"{pointer}/when", task.get("when"), inner)
        yield from _template_faults(f"{pointer}/params", task.get("params"), inner)
        if task.get("consumer", "inbox") == "inbox" and "deadline_seconds" in task:
            yield Fault(
                f"{pointer}/deadline_seconds",
                "the deadline of an inbox task is not available in this version; leave it out",
            )


def _doubled(raw: dict[str, Any], field: str, name: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for pointer, item in _items(raw, field):
        value = item.get(name)
        if isinstance(value, str):
            if value in seen:
                yield Fault(f"{pointer}/{name}", f"'{value}' is there already; each {name} must differ")
            seen.add(value)


def _expression_fault(pointer: str, text: Any, scope: frozenset[str], *, condition: bool = True) -> Iterator[Fault]:
    compile_text = compile_condition if condition else compile_expression
    if isinstance(text, str):
        try:
            compile_text(text, variables=scope)
        except ExpressionError as error:
            yield Fault(pointer, str(error), "invalid_expression")


def _template_faults(pointer: str, value: Any, scope: frozenset[str], *, url: bool = False) -> Iterator[Fault]:
    if value is None or (url and not isinstance(value, str)):
        return
    try:
        if url:
            compile_url(value, variables=scope)
        else:
            compile_template(value, variables=scope)
    except TemplateError as error:
        for suffix, message in error.faults:
            yield Fault(pointer + suffix, message, "invalid_expression")


def _read_model(model: type[M], value: JsonValue, place: str) -> tuple[M | None, list[Fault]]:
    if not isinstance(value, dict):
        return None, [Fault("", "write a JSON object")]
    try:
        return model.model_validate_json(canonical_json(value)), []
    except ValidationError as error:
        return None, [_fault(detail, value, place) for detail in error.errors(include_url=False, include_context=True)]


def _fault(detail: ErrorDetails, raw: dict[str, Any], place: str) -> Fault:
    path = _user_path(detail["loc"], raw)
    if detail["type"].startswith("union_tag"):
        path = [*path, "type"]
    pointer = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return Fault(pointer, _message(detail, path, pointer, place), _code(detail["type"]))


def _user_path(loc: Sequence[int | str], raw: Any) -> list[int | str]:
    """The location without the union tags that pydantic puts into it."""
    path: list[int | str] = []
    for part in loc:
        is_tag = path == ["trigger"] or (len(path) == 2 and path[0] == "context")
        if is_tag and isinstance(part, str) and _at(raw, path, "type") == part and len(loc) > len(path) + 1:
            loc_tail = list(loc[len(path) + 1 :])
            return [*path, *loc_tail]
        path.append("in" if part == "in_" else part)
    return path


def _at(raw: Any, path: Sequence[int | str], key: str) -> Any:
    for part in path:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):
            return None
    return raw.get(key) if isinstance(raw, dict) else None


def _code(kind: str) -> str:
    return {"missing": "required", "extra_forbidden": "unknown_field"}.get(kind, "invalid")


def _message(detail: ErrorDetails, path: list[int | str], pointer: str, place: str) -> str:
    kind = detail["type"]
    if kind == "missing":
        return "is required; write 'skip'" if path[-1] == "misfire_policy" else "is required"
    if kind == "extra_forbidden":
        return _unknown_field(path, place)
    if kind.startswith("union_tag"):
        return _unknown_type(detail, path)
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind in ("int_type", "int_parsing", "int_from_float") and str(path[-1]).endswith("_seconds"):
        return "write whole seconds as a number, for example 300 for five minutes"
    if detail.get("input") in LATER_VALUES.get(str(path[-1]) if path else "", ()):
        return f"'{detail['input']}' is not available in this version; write {detail.get('ctx', {}).get('expected')}"
    if kind == "literal_error" and pointer == "/type":
        return _unknown_type(detail, path)
    return str(detail["msg"])


def _parent(path: list[int | str], place: str) -> str:
    names = [part for part in path[:-1] if isinstance(part, str)]
    return place if not names else "/" + names[0]


def _unknown_type(detail: ErrorDetails, path: list[int | str]) -> str:
    names = "/" + "/".join(str(part) for part in path if isinstance(part, str))
    tag = detail.get("ctx", {}).get("tag", detail.get("input"))
    known = {"/trigger/type": "cron, event or manual", "/context/type": "static or http"}.get(names, "http")
    if isinstance(tag, str) and tag in LATER_TYPES.get(names, set()):
        return f"type '{tag}' is not available in this version; write {known}"
    return f"write {known}"


_FIELDS: dict[str, type[BaseModel]] = {
    "": docs.Activity,
    "consumer": docs.HttpConsumer,
    "/rules": docs.Rule,
    "/tasks": docs.TaskSpec,
}


def _unknown_field(path: list[int | str], place: str) -> str:
    name, parent = str(path[-1]), _parent(path, place)
    if name in LATER_FIELDS.get(parent, set()):
        return "this field is part of the format but not available in this version; leave it out"
    known = _known_fields(path, parent)
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown field; did you mean '{near[0]}'?" if near else f"unknown field; known are: {', '.join(known)}"


def _known_fields(path: list[int | str], parent: str) -> list[str]:
    models: list[type[BaseModel]]
    if "for_each" in path:
        models = [docs.ForEach]
    elif "retry" in path:
        models = [docs.Retry]
    elif parent == "/trigger":
        models = [docs.CronTrigger, docs.EventTrigger, docs.ManualTrigger]
    elif parent == "/context":
        models = [docs.StaticContext, docs.HttpContext]
    else:
        models = [_FIELDS.get(parent, docs.Activity)]
    return sorted({field.alias or name for model in models for name, field in model.model_fields.items()})
