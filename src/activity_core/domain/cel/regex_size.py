"""How large a program a regular expression becomes, estimated from its text.

RE2 is linear in text × program, but the program may be large: `(x?){900}` took 4.3 s on 256 KB and 0.17 s on 8 KiB.
"""

import re

_COUNTED = re.compile(r"\{(\d{1,6})(,(\d{0,6}))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_UNICODE_CLASS = re.compile(r"\\[pP](?:\{[^}]*\}|.)")
_UNICODE_CLASS_SIZE = 32  # `\pL` 50 times took 53 ms to compile, `[ab]` next to nothing


class UnreadableRegexError(ValueError):
    """The pattern can't be sized; the text says what to write instead."""


def regex_size(pattern: str) -> int:
    """About the number of steps of the compiled program: counted repetitions are written out, `\\pL` counts 32.
    Raises UnreadableRegexError for `\\Q…\\E`. A pattern that RE2 refuses gets some number."""
    # one entry per open group: the size of what it holds so far, and of its last item, which a repetition multiplies
    groups = [[0, 0]]
    position = 0
    while position < len(pattern):
        rest, group = pattern[position:], groups[-1]
        if pattern[position] == "(":
            groups.append([0, 0])
            position += 1
        elif pattern[position] == ")" and len(groups) > 1:
            groups.pop()
            _add(groups[-1], group[0] + 1)
            position += 1
        elif counted := _COUNTED.match(rest):
            times = max(int(counted.group(1)) + bool(counted.group(2)), int(counted.group(3) or 0), 1)
            group[0] += group[1] * (times - 1)
            group[1] *= times
            position += counted.end()
        else:
            size, length = _item(rest)
            _add(group, size)
            position += length
    return sum(group[0] for group in groups)


def _add(group: list[int], size: int) -> None:
    group[0] += size
    group[1] = size


def _item(rest: str) -> tuple[int, int]:
    """The size and length of the character, escape or class that `rest` starts with."""
    if rest.startswith("\\Q"):
        raise UnreadableRegexError("`\\Q` is not available in patterns; escape the characters instead")
    if unicode_class := _UNICODE_CLASS.match(rest):
        return _UNICODE_CLASS_SIZE, unicode_class.end()
    if rest[0] == "[" and (found := _CLASS.match(rest)):
        body = found.group()
        return 2 + _UNICODE_CLASS_SIZE * len(_UNICODE_CLASS.findall(body)) + sum(c > "\x7f" for c in body), found.end()
    if rest[0] == "\\":
        return 2, 2
    if rest[0] == ".":  # some ranges of UTF-8 bytes
        return 2, 1
    return (1 if rest[0] <= "\x7f" else 4), 1
