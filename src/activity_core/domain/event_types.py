"""Event types and the patterns that subscribe to them.

A type is dotted segments: `order.paid`. A pattern is a type, or ends in `*` (exactly one more segment) or `**` (one or
more): `invoice.*`, `shop.**`. Because a wildcard stands only at the end, the patterns that match a type can be listed
without looking at any activity: they are the index keys.
"""

import re

_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:/@+-]*(?:\.[A-Za-z0-9_:/@+-]+)*")
MAX_TYPE_LENGTH = 256


class EventTypeError(ValueError):
    pass


def check_type(event_type: str) -> str:
    if len(event_type) > MAX_TYPE_LENGTH or not _TYPE.fullmatch(event_type):
        raise EventTypeError(
            f"an event type is dotted segments of letters, digits and _ : / @ + -, at most {MAX_TYPE_LENGTH} characters, "
            "for example 'order.paid'"
        )
    return event_type


def check_pattern(pattern: str) -> str:
    """Return the pattern, or raise EventTypeError saying where a wildcard may stand."""
    if pattern in ("*", "**"):
        return pattern
    head, _, last = pattern.rpartition(".")
    if last in ("*", "**"):
        if "*" not in head:
            check_type(head)
            return pattern
    elif "*" not in pattern:
        return check_type(pattern)
    raise EventTypeError(
        f"'{pattern}': a wildcard stands alone at the end: 'order.*' matches one more segment, 'order.**' one or more"
    )


def matching_patterns(event_type: str) -> list[str]:
    """Every pattern that matches this type, at most 2 + its number of segments."""
    segments = event_type.split(".")
    patterns = [event_type, "**"]
    patterns.append(".".join([*segments[:-1], "*"]))
    patterns.extend(".".join([*segments[:depth], "**"]) for depth in range(1, len(segments)))
    return patterns
