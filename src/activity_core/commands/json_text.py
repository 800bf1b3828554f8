"""JSON with line numbers, and with what JSON parsers let through refused: a key twice, NaN."""

import json
import math
import re
from bisect import bisect_right
from typing import Any

from activity_core.commands.located import MAX_DEPTH, Located, TextError, TextFault, child

_SPACE = re.compile(r"[ \t\r\n]*")


def read_json(text: str) -> list[Located]:
    """The documents of a JSON text: one, or those of an array. Raises TextError."""
    reader = _Reader(text)
    try:
        documents = reader.documents()
    except json.JSONDecodeError as error:
        reader.faults.append(TextFault(error.lineno, f"not JSON: {error.msg}"))
        documents = []
    if reader.faults:
        raise TextError(reader.faults)
    return documents


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        # raw_decode reads one string, number or word; containers are read here, for the sake of their lines
        self._scalar = json.JSONDecoder(parse_constant=self._constant, parse_float=self._float)
        self._lines: dict[str, int] = {}
        self.faults: list[TextFault] = []

    def documents(self) -> list[Located]:
        documents = []
        if self._peek() == "[":
            for _ in self._members("[", "]"):
                documents.append(self._document())
        else:
            documents.append(self._document())
        if self._peek():
            raise self._error("something follows after the end")
        return documents

    def _document(self) -> Located:
        self._lines = {}
        return Located(self._value("", 0), self._lines)

    def _value(self, pointer: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels")
        first = self._peek()
        self._lines.setdefault(pointer, self._line())
        if first == "{":
            return self._object(pointer, depth)
        if first == "[":
            return [self._value(child(pointer, n), depth + 1) for n, _ in enumerate(self._members("[", "]"))]
        return self._word()

    def _object(self, pointer: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in self._members("{", "}"):
            if self._peek() != '"':
                raise self._error("a key in double quotes is expected")
            line = self._line()
            key = self._word()
            if self._peek() != ":":
                raise self._error("':' is expected after a key")
            self._at += 1
            if key in found:
                self.faults.append(TextFault(line, f"the key '{key}' is there already", child(pointer, key)))
            self._lines[child(pointer, key)] = line
            found[key] = self._value(child(pointer, key), depth + 1)
        return found

    def _members(self, opening: str, closing: str) -> Any:
        """Stops before each member; what reads it must leave off right behind it."""
        self._at += len(opening)
        if self._peek() == closing:
            self._at += 1
            return
        while True:
            yield
            after = self._peek()
            if after not in (",", closing) or not after:
                raise self._error(f"',' or '{closing}' is expected")
            self._at += 1
            if after == closing:
                return

    def _word(self) -> Any:
        try:
            value, self._at = self._scalar.raw_decode(self._text, self._at)
        except json.JSONDecodeError:
            raise
        except ValueError as error:
            raise self._error(str(error)) from None
        return value

    def _float(self, digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            self._constant(digits)
        return number

    def _constant(self, name: str) -> Any:
        raise self._error(f"{name} is no JSON number")

    def _peek(self) -> str:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return bisect_right(self._newlines, self._at - 1) + 1

    def _error(self, message: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self._text, self._at)
