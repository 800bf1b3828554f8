"""From a model's verdict to faults as a user reads them: where it is in what they wrote, and what to write instead."""

import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from activity_core.domain import documents as docs
from activity_core.domain.instants import InstantError, read_instant
from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.domain.webhooks import document as sources
from activity_core.errors import Fault

M = TypeVar("M", bound=BaseModel)

# Fields of the format whose behaviour is still to come: refused, so that nothing is accepted and then ignored.
LATER_FIELDS = {
    "": {"run_timeout_seconds", "notify"},
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


def read_model(model: type[M], value: JsonValue, place: str) -> tuple[M | None, list[Fault]]:
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
        return instant_fault(detail["input"]) or str(error)
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
    if kind in ("too_short", "too_long"):
        return "write at least one" if kind == "too_short" else f"write {limits['max_length']} at most"
    if kind in ("dict_type", "model_type", "tuple_type"):
        return "write a list" if kind == "tuple_type" else "write a JSON object"
    return str(detail["msg"])


def _seconds_message(value: object) -> str:
    written = re.fullmatch(r"(\d{1,9}) ?([smhd])?", value) if isinstance(value, str) else None
    if written:
        return f"write whole seconds as a number: {int(written[1]) * _UNITS[written[2] or 's']}"
    return "write whole seconds as a number, for example 300 for five minutes"


def _parent(path: list[int | str], place: str) -> str:
    names = [part for part in path[:-1] if isinstance(part, str)]
    within = "" if place == "consumer" else place
    return place if not names else f"{within}/{names[0]}"


def _unknown_type(detail: ErrorDetails, path: list[int | str]) -> str:
    names = "/" + "/".join(str(part) for part in path if isinstance(part, str))
    tag = detail.get("ctx", {}).get("tag", detail.get("input"))
    known = {"/trigger/type": "cron, interval, once, event or manual", "/context/type": "static or http"}.get(
        names, "http"
    )
    if isinstance(tag, str) and tag in LATER_TYPES.get(names, set()):
        return f"type '{tag}' is not available in this version; write {known}"
    return f"write {known}"


_RULES: dict[str, type[BaseModel]] = {
    "debounce": docs.Debounce,
    "rate_limit": docs.RateLimit,
    "concurrency": docs.Concurrency,
}
_FIELDS: dict[str, type[BaseModel]] = {
    "": docs.Activity,
    "consumer": docs.HttpConsumer,
    "/rules": docs.Rule,
    "/tasks": docs.TaskSpec,
    "source": sources.Source,
    "source/signature": sources.Signature,
    "source/credential": sources.Credential,
    "source/id": sources.From,
    "source/type": sources.From,
}


def _unknown_field(path: list[int | str], raw: dict[str, Any], place: str) -> str:
    name, parent = str(path[-1]), _parent(path, place)
    if name in LATER_FIELDS.get(parent, set()):
        return "this field is part of the format but not available in this version; leave it out"
    if parent == "/trigger" and len(path) == 2:
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
    elif (rule := next((part for part in path[:-1] if part in _RULES), None)) is not None:
        models = [_RULES[str(rule)]]
    elif "retry" in path:
        models = [docs.Retry]
    elif parent == "/context":
        models = [docs.StaticContext, docs.HttpContext]
    else:
        models = [_FIELDS.get(parent, docs.Activity)]
    return _names(models)


def _names(models: Sequence[type[BaseModel]]) -> list[str]:
    return sorted({field.alias or name for model in models for name, field in model.model_fields.items()})


def instant_fault(text: str) -> str | None:
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


def sorted_faults(faults: list[Fault]) -> list[Fault]:
    return sorted(set(faults), key=lambda fault: (fault.pointer, fault.message))
