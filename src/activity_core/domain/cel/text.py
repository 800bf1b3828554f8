"""The text of CEL expressions: where a `${ … }` ends, and where a call of pluck() is.

Only as much of CEL's lexer as that takes: string literals (raw, bytes, triple-quoted), comments, names and brackets.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]*)
  | (?P<string>
        [bB]?[rR] (?: '''.*?''' | \"\"\".*?\"\"\" | '[^'\r\n]*' | "[^"\r\n]*" )
      | [bB]? (?: '''(?:\\.|[^\\])*?''' | \"\"\"(?:\\.|[^\\])*?\"\"\" | '(?:\\.|[^\\'\r\n])*' | "(?:\\.|[^\\"\r\n])*" )
    )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]*)
  | (?P<open> [(\[{])
  | (?P<close> [)\]}])
  | (?P<comma> ,)
  | (?P<quote> ['"])  # of a string that does not end
  | (?P<other> .)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class PluckCall(NamedTuple):
    """`text[start:end]` is the call, `text[list_start:list_end]` its first argument."""

    start: int
    end: int
    list_start: int
    list_end: int


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """The tokens from `start` on; every character belongs to one."""
    for found in _TOKEN.finditer(text, start):
        yield Token(str(found.lastgroup), found.group(), found.start(), found.end())


def placeholder_end(text: str, start: int) -> int | None:
    """The position of the `}` that ends the placeholder whose expression starts at `start`; None if there is none.
    Braces of maps and those in strings and comments do not count."""
    depth = 0
    for token in tokens(text, start):
        if token.text == "{":
            depth += 1
        elif token.text == "}":
            if depth == 0:
                return token.start
            depth -= 1
        elif token.kind == "quote":
            return None
    return None


def pluck_call(text: str, parenthesis: int) -> PluckCall | None:
    """The call of pluck() whose opening parenthesis is there; None if there is none that can be read."""
    name = re.search(r"\bpluck\s*$", text[:parenthesis])
    depth, comma = 0, None
    for token in tokens(text, parenthesis) if name else ():
        depth += (token.kind == "open") - (token.kind == "close")
        if token.kind == "comma" and depth == 1 and comma is None:
            comma = token.start
        if depth == 0:
            return PluckCall(name.start(), token.end, parenthesis + 1, comma) if name and comma is not None else None
    return None
