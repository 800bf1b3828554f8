"""From what a user wrote to a document, or to the list of everything that is wrong with it."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from activity_core.domain import documents as docs
from activity_core.domain.expressions import ExpressionError, compile_condition, compile_expression
from activity_core.domain.instants import InstantError, read_instant
from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.domain.templates import TemplateError, compile_template, compile_url
from activity_core.domain.times import Times, TimesError
from activity_core.errors import Fault, InvalidInputError

M = TypeVar("M", bound=BaseModel)

# Fields of the format whose behaviour is still to come: refused, so that nothing is accepted and then ignored.
LATER_FIELDS = {
    "": {"run_timeout_seconds", "concurrency", "notify"},
    "/trigger": {"sources", "debounce", "rate_limit"},
    "/context": {"headers", "method", "body", "default", "max_bytes"},
    "/tasks": {
        *("idempotency", "on_deadline", "completion", "on_unknown_outcome", "assignee", "detach"),
    },
    "consumer": {"headers", "secrets", "max_concurrency", "rate_per_second", "disabled", "disable_on_410"},
}
LATER_VALUES = {"on_error": ("default", "skip_run")}
LATER_TYPES = {
    "/context/type": {"sql", "python", "previous_run"},
    "/type": {"python", "temporal", "event"},
}
TRIGGERS: dict[str, type[BaseModel]] = {
    "cron": docs.CronTrigger,
    "interval": docs.IntervalTrigger,
    "once": docs.OnceTrigger,
    "event": docs.EventTrigger,
    "manual": docs.ManualTrigger,
}
_SCOPES = {"event": docs.SCOPE_EVENT, "manual": frozenset[str]()} | dict.fromkeys(
    ("cron", "interval", "once"), docs.SCOPE_TIME
)
_INSTANTS = ("anchor", "at", "end_at", "start_at")


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


class _Triggered(docs.Model):
    trigger: docs.Trigger


def read_trigger(value: JsonValue, pointer: str) -> docs.Trigger:
    """A trigger alone, held to what one in a document is. Raises InvalidInputError; `pointer` is where it stands."""
    raw = {"trigger": value}
    found, faults = _read_model(_Triggered, raw, "")
    faults.extend(_activity_faults(raw))
    if faults or found is None:
        placed = [replace(fault, pointer=pointer + fault.pointer.removeprefix("/trigger")) for fault in faults]
        raise InvalidInputError(_sorted(placed))
    return found.trigger


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
    scope = docs.SCOPE_ALWAYS | _SCOPES.get(str(kind), docs.SCOPE_TIME | docs.SCOPE_EVENT)
    if isinstance(trigger, dict) and kind == "event":
        yield from _expression_fault("/trigger/filter", trigger.get("filter"), frozenset({"event", "activity"}))
    elif isinstance(trigger, dict):
        yield from _trigger_faults(trigger)
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


def _trigger_faults(raw: dict[str, Any]) -> Iterator[Fault]:
    """Instants as they were written, and what the fields of a trigger with times mean together."""
    model = TRIGGERS.get(str(raw.get("type")))
    if model is None:
        return
    written = {name: raw.get(name) for name in _INSTANTS if name in model.model_fields}
    faults = {name: _instant_fault(text) for name, text in written.items() if isinstance(text, str)}
    yield from (Fault(f"/trigger/{name}", fault) for name, fault in faults.items() if fault)
    if not any(faults.values()) and (trigger := _trigger_of(model, raw)) is not None:
        yield from _times_faults(trigger)


def _trigger_of(model: type[BaseModel], raw: dict[str, Any]) -> Any:
    """The trigger, None if it can't be read; a fault in how it is handled does not hide one in its times."""
    try:
        return model.model_validate_json(canonical_json(raw))
    except ValidationError as error:
        faulty = {detail["loc"][0] for detail in error.errors(include_url=False) if detail["loc"]}
    if faulty and faulty <= docs.TimeTrigger.model_fields.keys():
        return _trigger_of(model, {name: value for name, value in raw.items() if name not in faulty})
    return None


def _times_faults(trigger: Any) -> Iterator[Fault]:
    try:
        times = docs.times_of(trigger)
    except TimesError as error:
        yield Fault(f"/trigger/{error.field}", str(error))
        return
    if times is None:
        return
    if times.first() is None:
        yield _never_due(times)
    gap = times.smallest_gap() if trigger.jitter_seconds else None
    if gap is not None and trigger.jitter_seconds >= gap:
        most = f"write {gap - 1} at most" if gap > 1 else "leave it out"
        yield Fault("/trigger/jitter_seconds", f"must stay below the smallest gap between times, {gap} s; {most}")


def _never_due(times: Times) -> Fault:
    following = replace(times, end_at=None).first()
    if following is None:
        return Fault("/trigger/start_at", "no time is left from here on; write an earlier one")
    wanted = f"{following:%Y-%m-%dT%H:%M:%SZ}"
    return Fault(
        "/trigger/end_at", f"leaves no time at all; the first one would be due at '{wanted}', write that or later"
    )


def _instant_fault(text: str) -> str | None:
    """What is wrong with an instant of a trigger as it was written, and what to write; None if nothing is."""
    if re.search(r"[T ]24:?00", text):
        return "the hours of a day end with 23; write midnight as T00:00:00 of the next day"
    try:
        read_instant(text)
    except InstantError as error:
        return str(error).replace("%2B", "+")  # which is how a `+` is written in a URL, where such texts stand too
    if (fraction := re.search(r"[.,](\d+)", text)) and int(fraction[1]):
        return f"times are whole seconds; write '{text.replace(fraction[0], '', 1)}'"
    return None


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
    return Fault(pointer, _message(detail, path, raw, pointer, place), _code(detail["type"]))


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


_REQUIRED = {
    "/trigger/at": "write the instant with its offset, for example '2027-03-01T09:00:00Z'",
    "/trigger/cron": "write five fields, for example '0 9 * * MON-FRI'",
    "/trigger/every_seconds": "write whole seconds, for example 900 for a quarter of an hour",
    "/trigger/timezone": "write an IANA name such as 'Europe/Berlin', or 'UTC'",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_OVERLAP = (
    "what falls into an open run follows misfire_policy: skip skips it, catchup and compress let it wait; "
    "leave this out, or write 'allow_all' for runs side by side"
)


def _message(detail: ErrorDetails, path: list[int | str], raw: dict[str, Any], pointer: str, place: str) -> str:
    kind, error = detail["type"], detail.get("ctx", {}).get("error")
    if kind == "missing":
        return f"is required; {_REQUIRED[pointer]}" if pointer in _REQUIRED else "is required"
    if kind == "extra_forbidden":
        return _unknown_field(path, raw, place)
    if kind.startswith("union_tag") or (kind == "literal_error" and pointer == "/type"):
        return _unknown_type(detail, path)
    if isinstance(error, InstantError) and isinstance(detail["input"], str):
        return _instant_fault(detail["input"]) or str(error)
    return _value_message(detail, str(path[-1]) if path else "") if error is None else str(error)


def _value_message(detail: ErrorDetails, name: str) -> str:
    kind, value, limits = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind.startswith("int_"):
        return _seconds_message(value) if name.endswith("_seconds") else "write a whole number, without quotes"
    if name == "overlap_policy":
        return _OVERLAP
    if value in LATER_VALUES.get(name, ()):
        return f"'{value}' is not available in this version; write {limits.get('expected')}"
    if kind == "literal_error":
        return f"write {limits['expected']}"
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"write {limits['ge']} or more" if "ge" in limits else f"write {limits['le']} or less"
    return "write a JSON object" if kind in ("dict_type", "model_type") else str(detail["msg"])


def _seconds_message(value: object) -> str:
    written = re.fullmatch(r"(\d{1,9}) ?([smhd])?", value) if isinstance(value, str) else None
    if written:
        return f"write whole seconds as a number: {int(written[1]) * _UNITS[written[2] or 's']}"
    return "write whole seconds as a number, for example 300 for five minutes"


def _parent(path: list[int | str], place: str) -> str:
    names = [part for part in path[:-1] if isinstance(part, str)]
    return place if not names else "/" + names[0]


def _unknown_type(detail: ErrorDetails, path: list[int | str]) -> str:
    names = "/" + "/".join(str(part) for part in path if isinstance(part, str))
    tag = detail.get("ctx", {}).get("tag", detail.get("input"))
    known = {"/trigger/type": "cron, interval, once, event or manual", "/context/type": "static or http"}.get(
        names, "http"
    )
    if isinstance(tag, str) and tag in LATER_TYPES.get(names, set()):
        return f"type '{tag}' is not available in this version; write {known}"
    return f"write {known}"


_FIELDS: dict[str, type[BaseModel]] = {
    "": docs.Activity,
    "consumer": docs.HttpConsumer,
    "/rules": docs.Rule,
    "/tasks": docs.TaskSpec,
}


def _unknown_field(path: list[int | str], raw: dict[str, Any], place: str) -> str:
    name, parent = str(path[-1]), _parent(path, place)
    if name in LATER_FIELDS.get(parent, set()):
        return "this field is part of the format but not available in this version; leave it out"
    if parent == "/trigger":
        return _unknown_trigger_field(name, str(raw["trigger"].get("type")))
    return _did_you_mean(name, _known_fields(path, parent))


def _unknown_trigger_field(name: str, kind: str) -> str:
    known = _names([TRIGGERS[kind]])
    owners = [other for other, model in TRIGGERS.items() if name in _names([model])]
    if not owners:
        return _did_you_mean(name, known)
    types = " or ".join(part for part in (", ".join(owners[:-1]), owners[-1]) if part)
    return f"only a trigger of type {types} has it; one of type {kind} has {', '.join(known)}"


def _did_you_mean(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1) or [field for field in known if field.startswith(f"{name}_")]
    return f"unknown field; did you mean '{near[0]}'?" if near else f"unknown field; known are: {', '.join(known)}"


def _known_fields(path: list[int | str], parent: str) -> list[str]:
    models: list[type[BaseModel]]
    if "for_each" in path:
        models = [docs.ForEach]
    elif "retry" in path:
        models = [docs.Retry]
    elif parent == "/context":
        models = [docs.StaticContext, docs.HttpContext]
    else:
        models = [_FIELDS.get(parent, docs.Activity)]
    return _names(models)


def _names(models: Sequence[type[BaseModel]]) -> list[str]:
    return sorted({field.alias or name for model in models for name, field in model.model_fields.items()})
