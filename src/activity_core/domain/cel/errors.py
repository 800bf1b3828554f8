"""The CEL library's error texts in the words of a user, who may never have heard of overloads."""

import re
from collections.abc import Iterable, Iterator, Mapping

from activity_core.domain.cel.tree import Path

MAX_MESSAGE_CHARACTERS = 300

_STATUS = re.compile(r"^(?:[A-Z_]+: )+|\s*\[[A-Z_]+\]$")
_COMPILE_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_STATIC_OVERLOAD = re.compile(r"found no matching overload for '(.*)' applied to '\((.*)\)'")
_OVERLOAD = re.compile(r"No matching overloads found : ([^\s(]+)(?:\((.*)\))?", re.DOTALL)
_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"', re.DOTALL)
_MISSING_NAME = re.compile(r'No value with name "(.*)" found in Activation')
_UNEXPECTED = re.compile(r"(?:mismatched|extraneous) input '(.*)'$|no viable alternative at input '(.*)'$")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAINER = {
    "<jump_condition>": "the condition before `?` is not true or false",
    "String to Timestamp conversion failed": "timestamp() takes RFC 3339 with a zone, as in 2026-03-01T09:00:00Z",
    "String to Duration conversion failed": "duration() takes hours, minutes and seconds, as in 24h or 1h30m or 90s",
    "recursion": "the expression is nested too deeply, 32 levels are taken",
}


class ExpressionError(ValueError):
    """The text says what is wrong, where (a character, counted from 1) and, where it can, what to write instead."""


def explain_compile_error(text: str) -> str:
    """One sentence from what `Env.compile` raised, with the place of the first fault."""
    found = _COMPILE_ERROR.search(text)
    if found is None or "recursion" in text:
        return _plain(text)
    line, column, message = int(found.group(1)), found.group(2), found.group(3)
    place = f"at character {column}" if line == 1 else f"in line {line}, at character {column}"
    return f"{_compile_message(message)} ({place})"


def _compile_message(message: str) -> str:
    message = re.sub(r" expecting .*", "", message).removeprefix("Syntax error: ").replace(" (in container '')", "")
    if found := _STATIC_OVERLOAD.search(message):
        hint = "; wrap one result in dyn() if their types differ" if found.group(1) == "_?_:_" else ""
        return _cannot_apply(found.group(1), found.group(2)) + hint
    if found := _UNEXPECTED.search(message):
        part = found.group(1) or found.group(2) or ""
        return "the expression ends too early" if part == "<EOF>" else f"`{_short(part)}` is not expected here"
    if message.startswith("token recognition error at: '"):
        return _short(f"`{message[29:-1]}` can't be read as CEL")
    if message.startswith("undeclared reference to '"):
        return f"`{message.split(chr(39))[1]}()` can't be called in this form"
    return _plain(message)


def explain_error(text: str, needed: Iterable[Path], paths: Iterable[Path], scope: Mapping[str, object]) -> str:
    """One sentence from the text of an error value. `paths` are what the expression reads, `needed` what it takes for
    given."""
    if found := _MISSING_NAME.search(text):
        return f"`{found.group(1)}` is not there in this run; there are: {', '.join(sorted(scope))}"
    if found := _MISSING_KEY.search(text):
        return _missing(found.group(1), needed, scope)
    if text.endswith(("Applying SELECT to non-message type", ": _[?_]")):
        for path, value in _dead_ends(paths, scope):
            if not isinstance(value, Mapping):
                return f"`{shown_path(path[:-1])}` is no object, so it has no `{path[-1]}`"
    if found := _OVERLOAD.search(text):
        return _plainer(text) or _cannot_apply(found.group(1), found.group(2))
    return _plain(text)


def shown_path(path: Path) -> str:
    """A path as one writes it in an expression."""
    return path[0] + "".join(f".{key}" if _IDENTIFIER.fullmatch(key) else f"[{key!r}]" for key in path[1:])


def _missing(key: str, needed: Iterable[Path], scope: Mapping[str, object]) -> str:
    for path, value in _dead_ends(needed, scope):
        if isinstance(value, Mapping) and path[-1] == key:
            step = f".?{key}" if _IDENTIFIER.fullmatch(key) else f"[?{key!r}]"
            advice = f"where it may be, write `{shown_path(path[:-1])}{step}.orValue(…)`"
            return _short(f"`{shown_path(path)}` is missing; {advice}")
    return _short(f"the key {key!r} is missing")


def _dead_ends(paths: Iterable[Path], scope: Mapping[str, object]) -> Iterator[tuple[Path, object]]:
    """For each path that leads nowhere: the part up to the first step that can't be made, and the value before it."""
    for path in paths:
        value: object = scope
        for depth, step in enumerate(path):
            if not isinstance(value, Mapping) or step not in value:
                yield path[: depth + 1], value
                break
            value = value[step]


def _cannot_apply(function: str, types: str | None) -> str:
    name = function.replace("@", "").strip("_").replace("_", " … ") or function
    return _short(f"`{name}` can't be applied to {f'({types})' if types else 'this type'}")


def _plainer(text: str) -> str | None:
    return next((sentence for part, sentence in _PLAINER.items() if part in text), None)


def _plain(text: str) -> str:
    return _plainer(text) or _short(_STATUS.sub("", text))


def _short(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARACTERS else f"{text[: MAX_MESSAGE_CHARACTERS - 1]}…"
