"""A JSON value together with the lines of the file that it came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class TextFault:
    """What is wrong with a text, with its line, counted from 1."""

    line: int
    message: str
    pointer: str = ""


class TextError(ValueError):
    """The text can't be read; `faults` is everything found wrong with it."""

    def __init__(self, faults: list[TextFault]) -> None:
        self.faults = faults
        super().__init__("; ".join(f"line {fault.line}: {fault.message}" for fault in faults))


@dataclass(frozen=True, slots=True)
class Located:
    """`lines` has, for the JSON pointer of each part of `value`, the line where it begins, counted from 1."""

    value: Any
    lines: Mapping[str, int]

    def line_of(self, pointer: str) -> int:
        """The line of what `pointer` names, or of the nearest thing above it that is there."""
        while pointer not in self.lines and pointer:
            pointer = pointer.rpartition("/")[0]
        return self.lines.get(pointer, 1)


def child(pointer: str, key: str | int) -> str:
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
