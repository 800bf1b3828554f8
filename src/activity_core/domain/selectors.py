"""Label selectors: `team=ops,env!=dev,tier,!legacy`, as Kubernetes writes equality selectors. All conditions must hold.

`key=value` (or `==`) and `key` ask for the label; `key!=value` and `!key` hold also where the label is absent.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

MAX_CONDITIONS = 50
MAX_SELECTOR_CHARACTERS = 8_000

Op = Literal["=", "!=", "exists", "absent"]

_CONDITION = re.compile(r"(?P<not>!?)\s*(?P<key>[^!=\s]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^!=\s]*))?")
_SET = re.compile(r"\s(?:not)?in\s*\(", re.IGNORECASE)
# As in the labels of documents, which a test holds these to.
_KEY, _VALUE = re.compile(r"[a-z0-9][a-z0-9._/-]{0,62}"), re.compile(r"[A-Za-z0-9._-]{0,63}")
_EXAMPLE = "'team=ops,env!=dev,tier,!legacy'"


class SelectorError(ValueError):
    """The text is no selector; `str()` says what to write."""


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One condition on a label. `value` is "" for `exists` and `absent`, and may be "" for the others too."""

    key: str
    op: Op
    value: str = ""

    @property
    def text(self) -> str:
        match self.op:
            case "exists":
                return self.key
            case "absent":
                return f"!{self.key}"
            case _:
                return f"{self.key}{self.op}{self.value}"

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.op:
            case "exists":
                return self.key in labels
            case "absent":
                return self.key not in labels
            case "=":
                return labels.get(self.key) == self.value
            case "!=":
                return labels.get(self.key) != self.value


@dataclass(frozen=True)
class Selector:
    """Conditions that all must hold, at least one, sorted and each once: selectors that ask for the same are equal."""

    requirements: tuple[Requirement, ...]

    @cached_property
    def text(self) -> str:
        """The canonical spelling, which reads as this same selector."""
        return ",".join(requirement.text for requirement in self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """The selector that a text means. Raises SelectorError."""
    if len(text) > MAX_SELECTOR_CHARACTERS:
        raise SelectorError(f"a selector may have {MAX_SELECTOR_CHARACTERS:,} characters at most")
    if not text.strip():
        raise SelectorError(f"write at least one condition, for example {_EXAMPLE}")
    if _SET.search(text):
        raise SelectorError(
            "'in (…)' and 'notin (…)' are not available; write 'key=value', or 'key!=value' for each value"
        )
    parts = text.split(",")
    if len(parts) > MAX_CONDITIONS:
        raise SelectorError(f"a selector may have {MAX_CONDITIONS} conditions at most")
    return Selector(tuple(sorted({_requirement(part.strip()) for part in parts})))


def _requirement(text: str) -> Requirement:
    if not text:
        raise SelectorError(f"a condition is missing beside a comma; write for example {_EXAMPLE}")
    match = _CONDITION.fullmatch(text)
    if match is None or (match["not"] and match["op"]):
        raise SelectorError(f"{_shown(text)} is no condition; write 'key=value', 'key!=value', 'key' or '!key'")
    key, value = match["key"], match["value"] or ""
    if not _KEY.fullmatch(key):
        raise SelectorError(
            f"{_shown(key)} is no label key; it begins with a-z or 0-9, holds these and . _ / -, and has 63 characters at most"
        )
    if not _VALUE.fullmatch(value):
        raise SelectorError(
            f"{_shown(value)} is no value of a label; it holds letters, digits and . _ -, and has 63 characters at most"
        )
    if match["op"] is None:
        return Requirement(key, "absent" if match["not"] else "exists")
    return Requirement(key, "!=" if match["op"] == "!=" else "=", value)


def _shown(text: str) -> str:
    return f"'{text if len(text) <= 100 else text[:99] + '…'}'"
