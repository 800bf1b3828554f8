"""From what a user wrote to a document, or to the list of everything that is wrong with it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from activity_core.domain import documents as docs
from activity_core.domain.expressions import ExpressionError, compile_condition, compile_expression
from activity_core.domain.ids import DEFAULT_SOURCE
from activity_core.domain.json_values import JsonValue, canonical_json
from activity_core.domain.reading_faults import TRIGGERS, instant_fault, read_model, sorted_faults
from activity_core.domain.templates import TemplateError, compile_template, compile_url
from activity_core.domain.times import Times, TimesError
from activity_core.domain.webhooks.document import Source, SourceError, compile_source
from activity_core.errors import Fault, InvalidInputError

_SCOPES = {"event": docs.SCOPE_EVENT, "manual": frozenset[str]()} | dict.fromkeys(
    ("cron", "interval", "once"), docs.SCOPE_TIME
)
# What is known of an event before it has a run.
_AT_THE_ROUTER = frozenset({"event", "activity"})
_INSTANTS = ("anchor", "at", "end_at", "start_at")


def read_document(value: JsonValue) -> docs.Document | Source:
    """Any document, by its `kind` (required here: a file holds several kinds)."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "Activity":
        return read_activity(value)
    if kind == "Consumer":
        return read_consumer(value)
    if kind == "Source":
        return read_source(value)
    if kind == "Connection":
        raise InvalidInputError([Fault("/kind", f"documents of kind {kind} are not available in this version")])
    raise InvalidInputError([Fault("/kind", "write 'Activity', 'Consumer' or 'Source'")])


def read_activity(value: JsonValue) -> docs.Activity:
    """The activity document of a JSON value. Raises InvalidInputError naming every fault."""
    document, faults = read_model(docs.Activity, value, "")
    if isinstance(value, dict):
        faults.extend(_activity_faults(value))
    if faults or document is None:
        raise InvalidInputError(sorted_faults(faults))
    return document


class _Triggered(docs.Model):
    trigger: docs.Trigger


def read_trigger(value: JsonValue, pointer: str) -> docs.Trigger:
    """A trigger alone, held to what one in a document is. Raises InvalidInputError; `pointer` is where it stands."""
    raw = {"trigger": value}
    found, faults = read_model(_Triggered, raw, "")
    faults.extend(_activity_faults(raw))
    if faults or found is None:
        placed = [replace(fault, pointer=pointer + fault.pointer.removeprefix("/trigger")) for fault in faults]
        raise InvalidInputError(sorted_faults(placed))
    return found.trigger


def read_consumer(value: JsonValue) -> docs.HttpConsumer:
    document, faults = read_model(docs.HttpConsumer, value, "consumer")
    url = value.get("url") if isinstance(value, dict) else None
    if isinstance(url, str) and (fault := callable_url_fault(url)):
        faults.append(Fault("/url", fault))
    if isinstance(value, dict) and value.get("slug") in docs.BUILT_IN_CONSUMERS:
        faults.append(Fault("/slug", f"'{value['slug']}' is a built-in consumer; choose another slug"))
    if faults or document is None:
        raise InvalidInputError(sorted_faults(faults))
    return document


def read_source(value: JsonValue) -> Source:
    """The source document of a JSON value, with all that its scheme asks for."""
    document, faults = read_model(Source, value, "source")
    if document is not None:
        try:
            compile_source(document)
        except SourceError as error:
            faults += [Fault(_as_written(pointer, value), message) for pointer, message in error.faults]
    if isinstance(value, dict) and value.get("slug") == DEFAULT_SOURCE:
        faults.append(Fault("/slug", f"'{DEFAULT_SOURCE}' names events that come without a source; choose another"))
    if faults or document is None:
        raise InvalidInputError(sorted_faults([_placed(fault, value) for fault in faults]))
    return document


def _placed(fault: Fault, value: JsonValue) -> Fault:
    return replace(fault, pointer=_as_written(fault.pointer, value))


def _as_written(pointer: str, value: JsonValue) -> str:
    """An id or a type alone may be written without a list around it."""
    for field in ("id", "type"):
        if isinstance(value, dict) and not isinstance(value.get(field), list) and pointer.startswith(f"/{field}/0"):
            return f"/{field}{pointer.removeprefix(f'/{field}/0')}"
    return pointer


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
        yield from _expression_fault("/trigger/filter", trigger.get("filter"), _AT_THE_ROUTER)
        yield from _rule_faults(trigger, raw)
    elif isinstance(trigger, dict):
        yield from _trigger_faults(trigger)
        if raw.get("concurrency") is not None:
            yield Fault(
                "/concurrency",
                "is for activities with an event trigger; runs of due times and requests follow "
                "overlap_policy and on_overlap",
            )
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


def _rule_faults(trigger: dict[str, Any], raw: dict[str, Any]) -> Iterator[Fault]:
    for pointer, rule in (
        ("/trigger/debounce", trigger.get("debounce")),
        ("/trigger/rate_limit", trigger.get("rate_limit")),
        ("/concurrency", raw.get("concurrency")),
    ):
        if isinstance(rule, dict):
            yield from _template_faults(f"{pointer}/key", rule.get("key"), _AT_THE_ROUTER)
    if trigger.get("debounce") is not None and trigger.get("rate_limit") is not None:
        yield Fault(
            "/trigger/rate_limit",
            "goes not together with debounce, which bounds the starts itself; leave one of them out",
        )


def _trigger_faults(raw: dict[str, Any]) -> Iterator[Fault]:
    """Instants as they were written, and what the fields of a trigger with times mean together."""
    model = TRIGGERS.get(str(raw.get("type")))
    if model is None:
        return
    written = {name: raw.get(name) for name in _INSTANTS if name in model.model_fields}
    faults = {name: instant_fault(text) for name, text in written.items() if isinstance(text, str)}
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
