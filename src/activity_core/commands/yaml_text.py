"""YAML 1.2 as JSON values with line numbers.

Built from the parser's events with the rules of the 1.2 core schema, because a YAML library's own constructors make
dates of strings, let a key stand twice, or lose the lines.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from activity_core.commands.located import MAX_DEPTH, Located, TextError, TextFault, child

# Aliases of aliases can stand for more values than a machine has room for.
MAX_VALUES = 1_000_000

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_PREFIX = "tag:yaml.org,2002:"


def read_yaml(text: str) -> list[Located]:
    """The documents of a YAML text; empty ones are left out. Raises TextError."""
    faults: list[TextFault] = []
    documents: list[Located] = []
    events = YAML(typ="safe", pure=True).parse(text)
    try:
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if event.version not in (None, (1, 2)):
                    faults.append(TextFault(event.start_mark.line + 1, "YAML 1.2 is read: leave the %YAML line out"))
                document = _Builder(events, faults).document()
                if document.value is not None:
                    documents.append(document)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f" {error.context}" if error.context and not error.problem else ""
        faults.append(TextFault(mark.line + 1 if mark else 1, f"not YAML: {error.problem or ''}{context}".strip()))
    except ReaderError as error:
        faults.append(TextFault(text[: error.position].count("\n") + 1, f"not YAML: {error.reason}"))
    except YAMLError as error:
        faults.append(TextFault(1, f"not YAML: {error}"))
    except _TooMuchError as error:
        faults.append(TextFault(error.line, str(error)))
    if faults:
        raise TextError(sorted(faults, key=lambda fault: fault.line))
    return documents


class _TooMuchError(Exception):
    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


class _Builder:
    """Builds one document from the events that follow its start."""

    def __init__(self, events: Iterator[Any], faults: list[TextFault]) -> None:
        self._events = events
        self._faults = faults
        self._lines: dict[str, int] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0

    def document(self) -> Located:
        return Located(self._value(next(self._events), "", 0), self._lines)

    def _value(self, event: Any, pointer: str, depth: int) -> Any:
        line = event.start_mark.line + 1
        self._lines.setdefault(pointer, line)
        if depth > MAX_DEPTH:
            raise _TooMuchError(line, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            return self._alias(event, pointer, line)
        before = self._count
        self._grow(1, line)
        if isinstance(event, ScalarEvent):
            value = self._scalar(event, pointer, line)
        elif isinstance(event, SequenceStartEvent):
            self._check_tag(event, "seq", pointer, line)
            value = self._sequence(pointer, depth)
        else:
            self._check_tag(event, "map", pointer, line)
            value = self._mapping(pointer, depth)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._count - before)
        return value

    def _grow(self, count: int, line: int) -> None:
        self._count += count
        if self._count > MAX_VALUES:
            raise _TooMuchError(line, f"more than {MAX_VALUES} values in one document")

    def _alias(self, event: AliasEvent, pointer: str, line: int) -> Any:
        # An anchor is known once its value is whole, so a value can't hold itself.
        if event.anchor not in self._anchors:
            self._fault(line, pointer, f"no '&{event.anchor}' ends above this '*{event.anchor}'")
            return None
        value, count = self._anchors[event.anchor]
        self._grow(count, line)
        return value

    def _sequence(self, pointer: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            items.append(self._value(event, child(pointer, len(items)), depth + 1))
        return items

    def _mapping(self, pointer: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._key(event, pointer, depth, line)
            place = child(pointer, key)
            if key in found:
                self._fault(line, place, f"the key '{key}' is there already")
            self._lines[place] = line
            found[key] = self._value(next(self._events), place, depth + 1)
        return found

    def _key(self, event: Any, pointer: str, depth: int, line: int) -> str:
        key = self._value(event, f"{pointer}/", depth + 1)
        self._lines.pop(f"{pointer}/", None)
        if isinstance(key, str):
            return key
        if isinstance(event, ScalarEvent):
            self._fault(line, pointer, f"the key {event.value} is not text: write it in quotes")
            return str(event.value)
        self._fault(line, pointer, "a key must be text")
        return ""

    def _scalar(self, event: ScalarEvent, pointer: str, line: int) -> Any:
        if event.tag is None:
            return self._plain(event.value, pointer, line) if event.implicit[0] else event.value
        if str(event.tag) not in ("!", f"{_PREFIX}str"):
            self._fault(line, pointer, f"the tag {_shown_tag(event.tag)} is not taken: write the value as JSON has it")
        return event.value

    def _plain(self, text: str, pointer: str, line: int) -> Any:
        """The value of an unquoted scalar by the core schema of YAML 1.2: `on`, `yes` and dates are text."""
        if text in _NULL:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        try:
            if _DECIMAL.fullmatch(text):
                return int(text)
            if _OCTAL.fullmatch(text):
                return int(text[2:], 8)
            if _HEXADECIMAL.fullmatch(text):
                return int(text[2:], 16)
            number = float(text) if _FLOAT.fullmatch(text) else None
        except ValueError as error:
            self._fault(line, pointer, f"not a number that can be taken: {error}")
            return None
        if (number is not None and math.isinf(number)) or _NOT_JSON.fullmatch(text):
            self._fault(line, pointer, f"{text} is no JSON number")
            return None
        return text if number is None else number

    def _check_tag(self, event: MappingStartEvent | SequenceStartEvent, name: str, pointer: str, line: int) -> None:
        if event.tag is not None and str(event.tag) not in ("!", _PREFIX + name):
            self._fault(line, pointer, f"the tag {_shown_tag(event.tag)} is not taken")

    def _fault(self, line: int, pointer: str, message: str) -> None:
        self._faults.append(TextFault(line, message, pointer))


def _shown_tag(tag: Any) -> str:
    return str(tag).replace(_PREFIX, "!!")
