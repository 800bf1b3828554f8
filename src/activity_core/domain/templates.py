"""Templates: JSON documents and URLs whose strings may hold `${ CEL }`.

`$${` stands for a literal `${`. A string that is nothing but one placeholder becomes its value, of whatever JSON type; in
any other string values are written out, and only scalars can be. What is missing is an error, never an empty text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

import orjson
from typing_extensions import TypeAliasType

from activity_core.domain.cel.text import placeholder_end
from activity_core.domain.expressions import SCOPE, Expression, ExpressionError, compile_expression
from activity_core.domain.json_values import MAX_DEPTH, JsonValue, deeper_than, faults_of, pointer_step

T = TypeVar("T")

MAX_PLACEHOLDERS = 64  # in one document
MAX_OUTPUT_BYTES = 256 * 1024  # as compact JSON
MAX_URL_BYTES = 8_192

_URL_START = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+")
_NOT_IN_URL = re.compile(r'[^!-~]|["<>\\^`{|}]|%(?![0-9A-Fa-f]{2})')
_DOT_SEGMENT = re.compile(r"(?:\.|%2[eE]){1,2}")


class TemplateError(ValueError):
    """`faults` are all that was found: the JSON pointer of a string below the template's root ("" for the root itself),
    and a sentence."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer}: {message}" if pointer else message for pointer, message in faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class _Text:
    """A string with placeholders: literal texts and expressions."""

    parts: tuple[str | Expression, ...]
    pointer: str


_Compiled = TypeAliasType(
    "_Compiled", "_Text | bool | int | float | str | list[_Compiled] | dict[str, _Compiled] | None"
)


class Template:
    """A compiled JSON document."""

    __slots__ = ("_root", "has_placeholder")

    def __init__(self, root: _Compiled, *, has_placeholder: bool) -> None:
        self._root = root
        self.has_placeholder = has_placeholder

    def render(self, scope: Mapping[str, object]) -> JsonValue:
        """A new document, sharing nothing with the template or the scope; at most 256 KiB and 64 levels. `scope` is as
        for `Expression.evaluate`. Raises TemplateError with every placeholder that failed."""
        renderer = _Renderer(scope)
        result = renderer.render(self._root)
        if not renderer.faults and len(orjson.dumps(result)) > MAX_OUTPUT_BYTES:
            renderer.faults.append(("", _TOO_LARGE))
        if not renderer.faults and deeper_than(result, MAX_DEPTH):
            renderer.faults.append(("", f"the document would be nested deeper than {MAX_DEPTH} levels"))
        if renderer.faults:
            raise TemplateError(renderer.faults)
        return result


class UrlTemplate:
    """A compiled URL."""

    __slots__ = ("_text",)

    def __init__(self, text: _Text) -> None:
        self._text = text

    @property
    def has_placeholder(self) -> bool:
        return any(not isinstance(part, str) for part in self._text.parts)

    def render(self, scope: Mapping[str, object]) -> str:
        """The URL with all but the unreserved characters of RFC 3986 percent-encoded in values, so that a value stays
        inside its path segment or query value. Raises TemplateError, also for a path segment `.` or `..`."""
        renderer = _Renderer(scope)
        url = renderer.written_out(self._text, _percent_encoded)
        if not renderer.faults:
            renderer.faults.extend(("", message) for message in _rendered_url_faults(url))
        if renderer.faults:
            raise TemplateError(renderer.faults)
        return url


def compile_template(value: JsonValue, *, variables: frozenset[str] = SCOPE) -> Template:
    """Compile every string of a document; keys are not templates. At most 64 placeholders. Raises TemplateError."""
    faults = [(fault.pointer, fault.message) for fault in faults_of(value)]
    if faults:
        raise TemplateError(faults)
    compiler = _Compiler(variables)
    root = compiler.compile(value, "")
    if compiler.faults:
        raise TemplateError(compiler.faults)
    return Template(root, has_placeholder=compiler.placeholders > 0)


def compile_url(text: str, *, variables: frozenset[str] = SCOPE) -> UrlTemplate:
    """Compile a URL, whose scheme and authority are written out. Raises TemplateError, with "" for the pointers."""
    compiler = _Compiler(variables)
    parsed = compiler.text(text, "")
    compiled = parsed if isinstance(parsed, _Text) else _Text((parsed,), "")
    faults = compiler.faults or [("", message) for message in _url_faults(compiled)]
    if faults:
        raise TemplateError(faults)
    return UrlTemplate(compiled)


class _Compiler:
    def __init__(self, variables: frozenset[str]) -> None:
        self.variables = variables
        self.faults: list[tuple[str, str]] = []
        self.placeholders = 0

    def compile(self, value: JsonValue, pointer: str) -> _Compiled:
        if isinstance(value, str):
            return self.text(value, pointer)
        if isinstance(value, list):
            return [self.compile(item, pointer_step(pointer, index)) for index, item in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.compile(item, pointer_step(pointer, key)) for key, item in value.items()}
        return value

    def text(self, value: str, pointer: str) -> _Text | str:
        parts: list[str | Expression] = []
        literal, position = "", 0
        while (found := value.find("${", position)) >= 0:
            if found > position and value[found - 1] == "$":
                literal += value[position : found - 1] + "${"
                position = found + 2
                continue
            end = placeholder_end(value, found + 2)
            if end is None:
                self.faults.append((pointer, f"the placeholder at character {found + 1} is not closed; {_ESCAPE}"))
                return value
            literal += value[position:found]
            parts += [literal] if literal else []
            literal, position = "", end + 1
            if expression := self._placeholder(value[found + 2 : end].strip(), pointer):
                parts.append(expression)
        literal += value[position:]
        if not parts:
            return literal
        return _Text((*parts, literal) if literal else tuple(parts), pointer)

    def _placeholder(self, text: str, pointer: str) -> Expression | None:
        self.placeholders += 1
        if self.placeholders > MAX_PLACEHOLDERS:
            if self.placeholders == MAX_PLACEHOLDERS + 1:
                self.faults.append((pointer, f"at most {MAX_PLACEHOLDERS} placeholders may be in one document"))
            return None
        try:
            return compile_expression(text, variables=self.variables)
        except ExpressionError as error:
            self.faults.append((pointer, f"{_shown(text)}: {error}"))
            return None


class _Renderer:
    def __init__(self, scope: Mapping[str, object]) -> None:
        self.scope = scope
        self.faults: list[tuple[str, str]] = []
        self.bytes_left = MAX_OUTPUT_BYTES

    def render(self, node: _Compiled) -> JsonValue:
        if isinstance(node, _Text):
            if len(node.parts) == 1 and isinstance(node.parts[0], Expression):
                return self._value(node.parts[0], node.pointer, _same)
            return self.written_out(node, _same)
        if isinstance(node, list):
            return [self.render(item) for item in node]
        if isinstance(node, dict):
            return {key: self.render(item) for key, item in node.items()}
        return node

    def written_out(self, text: _Text, encode: Callable[[str], str]) -> str:
        """The text with each value in its place, after `encode`; of no use once there are faults."""
        written = [
            part if isinstance(part, str) else self._value(part, text.pointer, lambda value: encode(_scalar(value)))
            for part in text.parts
        ]
        return "".join(part or "" for part in written)

    def _value(self, expression: Expression, pointer: str, convert: Callable[[JsonValue], T]) -> T | None:
        """None after a fault. One that is too large ends the rendering at once."""
        try:
            value = expression.evaluate(self.scope)
            if deeper_than(value, MAX_DEPTH):
                raise ExpressionError(f"the value is nested deeper than {MAX_DEPTH} levels")
            converted = convert(value)
        except ExpressionError as error:
            self.faults.append((pointer, f"{_shown(expression.text)}: {error}"))
            return None
        self.bytes_left -= len(orjson.dumps(value))
        if self.bytes_left < 0:
            raise TemplateError([*self.faults, (pointer, f"{_shown(expression.text)}: {_TOO_LARGE}")])
        return converted


def _same(value: T) -> T:
    return value


def _scalar(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return orjson.dumps(value).decode()
    if value is None:
        raise ExpressionError('null can\'t stand in a text; write `a == null ? "none" : a`')
    what = "a list" if isinstance(value, list) else "an object"
    raise ExpressionError(f"{what} can't stand in a text; make the placeholder the whole string")


_ESCAPE = "end it with `}`, or write `$${` for a literal `${`"
_TOO_LARGE = f"the rendered document would be larger than {MAX_OUTPUT_BYTES} bytes"


def _shown(text: str) -> str:
    return f"`${{ {text if len(text) <= 80 else text[:79] + '…'} }}`"


def _percent_encoded(value: str) -> str:
    return quote(value, safe="")


def _url_faults(text: _Text) -> list[str]:
    start = text.parts[0] if text.parts else ""
    authority = _URL_START.match(start) if isinstance(start, str) else None
    is_whole = len(text.parts) == 1
    if authority is None or (authority.end() == len(str(start)) and not is_whole):
        return ["a URL begins with its scheme and host written out, as in https://example.org/${ … }"]
    if "@" in authority.group():
        return ["a URL must not hold a user name or password"]
    literals = [part for part in text.parts if isinstance(part, str)]
    if found := next(filter(None, map(_NOT_IN_URL.search, literals)), None):
        return [f"{found.group()!r} can't stand in a URL like this; percent-encode it"]
    return _rendered_url_faults("".join(part if isinstance(part, str) else "x" for part in text.parts))


def _rendered_url_faults(url: str) -> list[str]:
    if len(url.encode()) > MAX_URL_BYTES:
        return [f"the URL is longer than {MAX_URL_BYTES} bytes"]
    path = re.split("[?#]", url, maxsplit=1)[0]
    if any(_DOT_SEGMENT.fullmatch(segment) for segment in path.split("/")[3:]):
        return ["a segment of the path is `.` or `..`, which would lead elsewhere"]
    return []
