"""Expressions: Google's C++ CEL behind the few functions that the rest of the system uses.

Seen with cel-expr-python 0.1.3, and the reason for the shape of this module:
- An error is returned as a value, and a truthy one. `&&`, `||` and `?:` may swallow it, as CEL defines.
- Each evaluation converts every variable that is named, whole: 1.3 ms for `event.a` beside a list of 3,000 objects. So
  only the paths that the expression names are handed over, and one that is nothing but a path does without the library.
- A function written in Python leaks (600 bytes a call), and the map() macro takes 1.2 s for 6,000 items. So pluck() is
  worked out before the evaluation and handed over as a variable.
Evaluation has no clock, no I/O and no state; one compiled expression may be evaluated by many threads at once.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional

from activity_core.domain.cel.errors import ExpressionError, explain_compile_error, explain_error, shown_path
from activity_core.domain.cel.rules import MAX_PLUCKS, Reads, check
from activity_core.domain.cel.text import pluck_call
from activity_core.domain.cel.tree import Path
from activity_core.domain.cel.values import from_cel, to_cel, to_json
from activity_core.domain.json_values import JsonValue

__all__ = ["SCOPE", "Expression", "ExpressionError", "compile_condition", "compile_expression"]

SCOPE = frozenset(
    {
        *("event", "context", "window", "covers", "scheduled_for", "local"),
        *("activity", "run", "item", "index", "params"),
    }
)
MAX_EXPRESSION_BYTES = 1_024
MAX_MATCHED_BYTES = 8_192

_NAMES = {type(None): "null", str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
_BOOL = cel.Type.BOOL
_LIBRARY_ERRORS = (RuntimeError, TypeError, ValueError, SystemError, OverflowError)
# A root or key with the keys below it that are read; a text, the path as written, reads the whole value.
_Wanted = dict[str, "_Wanted | str"]


def compile_expression(text: str, *, variables: frozenset[str] = SCOPE) -> "Expression":
    """Compile once; the last 4,096 are kept. `variables` are the names that the expression may use.

    CEL without `+`, comprehension macros, bytes and message types; with `pluck(list, "name")`, `has()`, and
    `a.?b.orValue(c)`. At most 1,024 bytes of UTF-8. Raises ExpressionError.
    """
    return _compile(text, variables)


def compile_condition(text: str, *, variables: frozenset[str] = SCOPE) -> "Expression":
    """As `compile_expression`, and refuses what can't be a boolean, such as `1` or `size(context.items)`."""
    expression = _compile(text, variables)
    if expression.returns not in ("bool", "dyn"):
        raise ExpressionError(f"a condition must be true or false, this is of type {expression.returns}; compare it")
    return expression


class _Pluck(NamedTuple):
    """A variable that holds what one call of pluck() gives."""

    variable: str
    items: "Expression"
    key: str


class Expression:
    """A compiled expression. Its methods raise ExpressionError and nothing else, and never change their input.

    `text` is what was compiled, `returns` the type that CEL's checker found ("bool", "dyn", "list<dyn>", …).
    """

    __slots__ = ("_plucks", "_program", "_reads", "_wanted", "returns", "text")

    def __init__(self, text: str, program: cel.Expression, reads: Reads, plucks: tuple[_Pluck, ...]) -> None:
        self.text = text
        self.returns = program.return_type().name().lower()
        self._program = program
        self._reads = reads
        self._plucks = plucks
        self._wanted = _wanted(reads.paths)

    def evaluate(self, scope: Mapping[str, object]) -> JsonValue:
        """The value as JSON; times become RFC 3339 text in UTC and durations seconds ("90s"), as CEL's `string()` writes
        them. `scope` holds JSON values and aware datetimes, which are CEL timestamps. A name or key that is not there
        is an error, unless `has()`, `.?` or a decided `&&`, `||`, `?:` takes it."""
        return to_json(self._value(scope))

    def holds(self, scope: Mapping[str, object]) -> bool:
        """Whether the value is the boolean true. Anything but a boolean is an ExpressionError, never a match."""
        value = self._value(scope)
        if value is True or value is False:
            return value is True
        found = _NAMES.get(type(value), "something else")
        raise ExpressionError(f"a condition must be true or false, this is {found}")

    def _value(self, scope: Mapping[str, object]) -> object:
        try:
            if self._reads.is_path and not self._plucks:
                return to_cel(_at(scope, self._reads.paths[0]), self.text)
            return self._evaluated(scope)
        except ExpressionError:
            raise
        except RecursionError:
            raise ExpressionError("a value in the scope is nested too deeply") from None
        except _LIBRARY_ERRORS as error:
            raise ExpressionError(self._explain(str(error), scope)) from None

    def _evaluated(self, scope: Mapping[str, object]) -> object:
        failures: dict[str, ExpressionError] = {}
        if self._plucks:
            scope = dict(scope)
            for variable, items, key in self._plucks:
                try:
                    scope[variable] = _pluck(items._value(scope), key)
                except ExpressionError as error:
                    failures[variable] = error
        data = {name: _selected(scope[name], below) for name, below in self._wanted.items() if name in scope}
        for path in self._reads.matched:
            _check_matched(scope, path)
        value = self._program.eval(data=data)
        kind = value.type()
        if kind == _BOOL:
            return value.value()
        if kind == cel.Type.ERROR or kind == cel.Type.UNKNOWN:
            text = str(value.value())
            for variable, failure in failures.items():
                if f'"{variable}"' in text:
                    raise failure
            raise ExpressionError(self._explain(text, scope))
        return from_cel(value)

    def _explain(self, text: str, scope: Mapping[str, object]) -> str:
        return explain_error(text, self._reads.needed, self._reads.paths, scope)


@lru_cache(maxsize=4_096)
def _compile(text: str, variables: frozenset[str]) -> Expression:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ExpressionError("the expression holds half a surrogate pair") from None
    if "\x00" in text:
        raise ExpressionError("the expression holds the character U+0000")
    if size > MAX_EXPRESSION_BYTES:
        raise ExpressionError(f"the expression has {size} bytes, at most {MAX_EXPRESSION_BYTES} are taken")
    environment = _environment(variables)
    try:
        reads = check(environment.compile(text, disable_check=True).serialize(), text, variables)
        _try_constants(reads)
        if not reads.plucks:
            return Expression(text, environment.compile(text), reads, ())
        plucks, rewritten = _without_plucks(text, reads, variables)
        names = variables | {pluck.variable for pluck in plucks}
        reads = check(environment.compile(rewritten, disable_check=True).serialize(), rewritten, names)
        return Expression(text, environment.compile(rewritten), reads, plucks)
    except ExpressionError:
        raise
    except _LIBRARY_ERRORS as error:
        raise ExpressionError(explain_compile_error(str(error))) from None


@lru_cache(maxsize=64)
def _environment(variables: frozenset[str]) -> cel.Env:
    declared = dict.fromkeys(sorted(variables), cel.Type.DYN)
    declared |= {f"pluck_{number}": cel.Type.List(cel.Type.DYN) for number in range(MAX_PLUCKS)}
    return cel.NewEnv(variables=declared, extensions=[ext_optional.ExtOptional()])


def _try_constants(reads: Reads) -> None:
    """Patterns and zones are otherwise looked at in each evaluation, and never before."""
    probe = _environment(frozenset({"item"}))
    for pattern in reads.patterns:
        found = probe.compile('"".matches(item)').eval(data={"item": pattern})
        if found.type() == cel.Type.ERROR:
            raise ExpressionError(f"{explain_error(found.value(), (), (), {})} (in the pattern {pattern!r})")
    for zone in reads.zones:
        if probe.compile("timestamp(0).getHours(item)").eval(data={"item": zone}).type() == cel.Type.ERROR:
            raise ExpressionError(f"the zone {zone!r} is not known on this machine")


def _without_plucks(text: str, reads: Reads, variables: frozenset[str]) -> tuple[tuple[_Pluck, ...], str]:
    """The calls of pluck(), and the text with a variable in the place of each, padded so that positions stay."""
    plucks, rewritten = [], text
    for number, (parenthesis, key) in enumerate(reads.plucks):
        call = pluck_call(text, parenthesis)
        if call is None:
            raise ExpressionError('pluck() can\'t be read; write it plainly, as in pluck(context.mail.items, "id")')
        items = _compile(text[call.list_start : call.list_end], variables)
        variable = f"pluck_{number}"
        plucks.append(_Pluck(variable, items, key))
        rewritten = rewritten[: call.start] + variable.ljust(call.end - call.start) + rewritten[call.end :]
    return tuple(plucks), rewritten


def _pluck(items: object, key: str) -> list[object]:
    if not isinstance(items, list):
        raise ExpressionError("pluck() takes a list")
    for index, item in enumerate(items):
        if not isinstance(item, dict) or key not in item:
            raise ExpressionError(f"pluck(): item {index} of the list is no object with the key {key!r}")
    return [item[key] for item in items]


def _wanted(paths: tuple[Path, ...]) -> _Wanted:
    wanted: _Wanted = {}
    for path in paths:
        level: _Wanted | str = wanted
        for key in path[:-1]:
            level = level.setdefault(key, {}) if isinstance(level, dict) else level
        if isinstance(level, dict):
            level[path[-1]] = shown_path(path)
    return wanted


def _selected(value: object, wanted: _Wanted | str) -> object:
    if isinstance(wanted, str):
        return to_cel(value, wanted)
    if not isinstance(value, dict):
        return to_cel(value, f"the value before `{next(iter(wanted))}`")
    return {key: _selected(value[key], below) for key, below in wanted.items() if key in value}


def _at(scope: Mapping[str, object], path: Path) -> object:
    value: object = scope
    for depth, step in enumerate(path):
        if not isinstance(value, Mapping):
            raise ExpressionError(explain_error("Applying SELECT to non-message type", (), (path,), scope))
        if step not in value:
            kind = 'No value with name "{}" found in Activation' if depth == 0 else 'Key not found in map : "{}"'
            raise ExpressionError(explain_error(kind.format(step), (path,), (path,), scope))
        value = value[step]
    return value


def _check_matched(scope: Mapping[str, object], path: Path) -> None:
    value: object = scope
    for key in path:
        if not isinstance(value, Mapping):
            break
        value = value.get(key)
    if _has_longer_text(value, MAX_MATCHED_BYTES):
        raise ExpressionError(
            f"matches() takes texts of {MAX_MATCHED_BYTES} bytes at most, {shown_path(path)} is longer"
        )


def _has_longer_text(value: object, limit: int) -> bool:
    if isinstance(value, str):
        return len(value) > limit or (not value.isascii() and len(value.encode(errors="replace")) > limit)
    if isinstance(value, dict):
        return any(_has_longer_text(item, limit) for pair in value.items() for item in pair)
    return isinstance(value, list | tuple) and any(_has_longer_text(item, limit) for item in value)
