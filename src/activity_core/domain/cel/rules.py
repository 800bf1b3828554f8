"""What an expression may say, judged on the tree that the CEL parser built, and which parts of the scope it reads.

The library has no switch that takes away `+`, the comprehension macros or single functions, and its own limits leave
room for seconds of CPU. So what is allowed is listed here, and everything else is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from activity_core.domain.cel.errors import ExpressionError
from activity_core.domain.cel.regex_size import UnreadableRegexError, regex_size
from activity_core.domain.cel.tree import INDEX, OPTIONAL_STEPS, Node, Path, parse_tree

MAX_REGEX_BYTES = 256
MAX_REGEX_SIZE = 256  # over all patterns of an expression, as `regex_size` counts
MAX_PLUCKS = 4
MAX_COMPUTED_ENTRIES = 32  # of list and map literals: each may be a whole document
MAX_OPEN_COMPARISONS = 16  # with no constant beside: `event == event` takes 1.6 ms at 256 KB

_COMPARISONS = frozenset({"_==_", "_!=_"})
_SCANS = _COMPARISONS | {"@in"}
_OPTIONAL_ENDS = frozenset({"orValue", "hasValue"})
_ZONED = frozenset(
    {f"get{part}" for part in ("FullYear", "Month", "Date", "Hours", "Minutes", "Seconds", "Milliseconds")}
)
_ZONED |= frozenset({f"getDayOf{whole}" for whole in ("Year", "Month", "Week")})
_FUNCTIONS = frozenset({"size", "contains", "startsWith", "endsWith", "matches", "pluck", "type", "dyn"})
_FUNCTIONS |= frozenset({"string", "int", "uint", "double", "bool", "timestamp", "duration"}) | _OPTIONAL_ENDS | _ZONED
_OPERATORS = frozenset({"!_", "_&&_", "_||_", "_?_:_", "_<_", "_<=_", "_>_", "_>=_", "@in"})
_OPERATORS |= frozenset({"-_", "_-_", "_*_", "_/_", "_%_"}) | _COMPARISONS | INDEX | OPTIONAL_STEPS
_PLUCK = frozenset({"pluck"})
_TYPE_NAMES = frozenset({"bool", "int", "uint", "double", "string", "list", "map", "null_type"})
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,31}){0,2}|[+-]?\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Reads:
    """What an expression takes from its scope: `paths` cover everything that it can see; `needed` are those whose
    absence is an error (neither in `has()` nor after `.?`); texts at `matched` go into a regular expression.
    `patterns` and `zones` are constants that only the library can judge; `plucks` the outermost calls of pluck(), with
    the position of their parenthesis and the key. `is_path` says that the expression is nothing but its one path."""

    paths: tuple[Path, ...]
    needed: tuple[Path, ...]
    matched: tuple[Path, ...]
    patterns: tuple[str, ...]
    zones: tuple[str, ...]
    plucks: tuple[tuple[int, str], ...]
    is_path: bool


def check(serialized: bytes, text: str, variables: frozenset[str]) -> Reads:
    """Judge a parsed expression (`text` is what it was parsed from). Raises ExpressionError."""
    judge = _Judge(text, variables)
    tree = parse_tree(serialized)
    judge.visit(tree, None, 0, is_matched=False)
    path = tree.path()
    return Reads(
        paths=tuple(judge.paths),
        needed=tuple(judge.needed),
        matched=tuple(judge.matched),
        patterns=tuple(judge.patterns),
        zones=tuple(judge.zones),
        plucks=tuple(_outermost_plucks(tree)),
        is_path=path is not None and path[1] == len(path[0]) and path[0][0] in variables,
    )


def _outermost_plucks(node: Node) -> Iterator[tuple[int, str]]:
    if node.calls(_PLUCK):
        yield node.position, node.children[1].constant or ""
        return
    for child in node.children:
        yield from _outermost_plucks(child)


class _Judge:
    def __init__(self, text: str, variables: frozenset[str]) -> None:
        self.text = text
        self.variables = variables
        self.paths: dict[Path, None] = {}  # dicts, because sets have no order
        self.needed: dict[Path, None] = {}
        self.matched: dict[Path, None] = {}
        self.patterns: list[str] = []
        self.zones: list[str] = []
        self.plucks = 0
        self.regex_size = 0
        self.computed_entries = 0
        self.open_comparisons = 0

    def visit(self, node: Node, parent: Node | None, slot: int, *, is_matched: bool) -> None:
        self._check_place(node, parent, slot)
        path = node.path()
        if path is not None and path[0][0] in self.variables:
            self._read(path[0], path[1], is_matched=is_matched)
            return
        self._check(node)
        for index, child in enumerate(node.children):
            to_regex = node.calls(frozenset({"matches"})) and index == 0
            self.visit(child, node, index, is_matched=is_matched or to_regex)

    def _read(self, path: Path, needed: int, *, is_matched: bool) -> None:
        self.paths[path] = None
        self.needed[path[:needed]] = None
        if is_matched:
            self.matched[path] = None

    def _check_place(self, node: Node, parent: Node | None, slot: int) -> None:
        """Optionals and types must not become part of a value: converting an optional to Python crashes the process."""
        in_comparison = parent is not None and parent.calls(_COMPARISONS)
        if node.is_optional():
            users = OPTIONAL_STEPS | INDEX | _OPTIONAL_ENDS
            if parent is None or slot != 0 or not (parent.kind == "select" or parent.calls(users)):
                raise self._error(
                    node, "a value after `.?` may be missing: end it with .orValue(default) or .hasValue()"
                )
        elif parent is not None and parent.calls(_OPTIONAL_ENDS) and slot == 0:
            raise self._error(
                parent, f"write `.?` before what may be missing, as in `event.data.?name.{parent.name}(…)`"
            )
        if node.calls(frozenset({"type"})) and not in_comparison:
            raise self._error(node, "type() can only be compared, as in `type(event.data) == map`")
        if (
            node.kind == "ident"
            and node.name not in self.variables
            and not (in_comparison and node.name in _TYPE_NAMES)
        ):
            raise self._unknown_name(node)

    def _check(self, node: Node) -> None:
        if node.kind == "comprehension":
            raise self._comprehension(node)
        if node.kind == "bytes":
            raise self._error(node, "bytes are not available; write a string")
        if node.constant is not None and "\x00" in node.constant:
            raise self._error(node, "a string can't hold the character U+0000")
        if node.kind == "call":
            self._check_call(node)
        elif node.kind in ("list", "map"):
            if node.name:
                raise self._error(node, f"`{node.name}{{…}}` is not available; a map is written `{{'key': value}}`")
            self.computed_entries += sum(child.kind != "const" for child in node.children)
            if self.computed_entries > MAX_COMPUTED_ENTRIES:
                raise self._error(node, f"lists and maps may hold {MAX_COMPUTED_ENTRIES} computed values at most")

    def _check_call(self, node: Node) -> None:
        name = node.name
        if name == "_+_":
            join, move = "join strings as `${a}${b}` in a template", 'move times with `t - duration("-1h")`'
            raise self._error(node, f"`+` is not available; {join}, {move}")
        if name.startswith("optional.") or (node.has_target and node.children[0].name == "optional"):
            raise self._error(
                node, "optional values, optMap() and optFlatMap() are not available; use `.?` and orValue()"
            )
        if name not in _OPERATORS and name not in _FUNCTIONS:
            near = get_close_matches(name, _FUNCTIONS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(sorted(_FUNCTIONS))}"
            raise self._error(node, f"there is no function `{name}`; {hint}")
        if name in _SCANS and all(child.kind != "const" for child in node.children):
            self.open_comparisons += 1
            if self.open_comparisons > MAX_OPEN_COMPARISONS:
                raise self._error(
                    node, f"at most {MAX_OPEN_COMPARISONS} values may be compared with other than constants"
                )
        if name == "matches" and len(node.children) == 2:
            self._check_regex(node)
        elif name == "pluck":
            self._check_pluck(node)
        elif name in _ZONED and len(node.children) > 1:
            zone = node.children[1].constant
            # The library opens the name of a zone as a file, whatever it is (a FIFO blocks it), and keeps 45 KB of each.
            if zone is None or not _ZONE.fullmatch(zone):
                raise self._error(node, f'{name}() takes a zone written out, as in {name}("Europe/Berlin")')
            self.zones.append(zone)

    def _check_pluck(self, node: Node) -> None:
        self.plucks += 1
        if self.plucks > MAX_PLUCKS:
            raise self._error(node, f"pluck() may be used {MAX_PLUCKS} times at most in an expression")
        if len(node.children) != 2 or node.children[1].constant is None or node.has_target:
            raise self._error(node, 'pluck() takes a list and a key written out, as in pluck(context.mail.items, "id")')

    def _check_regex(self, node: Node) -> None:
        pattern = node.children[1].constant
        if pattern is None:
            raise self._error(node, "matches() takes a pattern written out: one made of data could cost seconds")
        if len(pattern.encode()) > MAX_REGEX_BYTES:
            raise self._error(node, f"a pattern may have {MAX_REGEX_BYTES} bytes at most")
        try:
            self.regex_size += regex_size(pattern)
        except UnreadableRegexError as error:
            raise self._error(node, str(error)) from None
        if self.regex_size > MAX_REGEX_SIZE:
            raise self._error(node, "the patterns cost too much: use smaller counted repetitions, like {1,20}")
        self.patterns.append(pattern)

    def _comprehension(self, node: Node) -> ExpressionError:
        macro = re.search(r"(\w+)\s*$", self.text[: node.position])
        name = f"{macro.group(1)}()" if macro else "this macro"
        advice = 'to look into a list of objects write `"x" in pluck(list, "name")`, to work on each item use for_each'
        return self._error(node, f"{name} is not available, as its cost has no bound; {advice}")

    def _unknown_name(self, node: Node) -> ExpressionError:
        if node.name == "secret":
            return self._error(node, "secrets are not available in this version")
        near = get_close_matches(node.name, self.variables, n=1)
        hint = f", did you mean `{near[0]}`?" if near else ""
        return self._error(
            node, f"there is no `{node.name}` here{hint} (in scope: {', '.join(sorted(self.variables))})"
        )

    def _error(self, node: Node, message: str) -> ExpressionError:
        return ExpressionError(f"{message} (at character {node.position + 1})")
