"""Time zones by IANA name, and when their offset from UTC changes.

The data is that of the pinned `tzdata` package, never the machine's own: every process that runs the same release gives
the same instants, whatever the age of its base image.
"""

import difflib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

FIRST_YEAR, LAST_YEAR = 1970, 9900
"""Years that can be enumerated. Before 1970 offsets had odd seconds and short lives; `datetime` ends in 9999."""

_DAY = 86_400
# What people write for a zone: an abbreviation names an offset, not a place, and most have several meanings.
_ABBREVIATIONS = {
    "AEST": "Australia/Sydney",
    "BST": "Europe/London",
    "CDT": "America/Chicago",
    "CEST": "Europe/Berlin",
    "CST": "America/Chicago",
    "EDT": "America/New_York",
    "EEST": "Europe/Helsinki",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "MDT": "America/Denver",
    "MSK": "Europe/Moscow",
    "PDT": "America/Los_Angeles",
    "PST": "America/Los_Angeles",
    "WEST": "Europe/Lisbon",
    "Z": "UTC",
}
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_POSIX = re.compile(r"(?:<[A-Za-z0-9+-]+>|[A-Za-z]{3,})[+-]?\d.*")


class Span(NamedTuple):
    """[start, end) in epoch seconds with one `offset`, in seconds east of UTC; `previous` held just before `start`."""

    start: int
    end: int
    offset: int
    previous: int


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """Every name that can be used."""
    listed = files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
    return frozenset(listed) - {"Factory"}


@lru_cache(maxsize=1024)
def load(name: str) -> ZoneInfo:
    """The zone called `name`, always the same object; KeyError unless it is one of `names()`."""
    if name not in names():  # before any path is made of it
        raise KeyError(name)
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


@lru_cache(maxsize=8192)
def spans(zone: ZoneInfo, year: int) -> tuple[Span, ...]:
    """The spans that make up one UTC year, ascending and without a hole."""
    start, end = year_start(year), year_start(year + 1)
    found = []
    offset = previous = _offset(zone, start - 1)
    for change in _changes(zone, start, end):
        if change > start:
            found.append(Span(start, change, offset, previous))
        start, previous, offset = change, offset, _offset(zone, change)
    return (*found, Span(start, end, offset, previous))


def year_start(year: int) -> int:
    """Epoch second of the year's first instant in UTC."""
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def _changes(zone: ZoneInfo, start: int, end: int) -> Iterator[int]:
    # No zone has had two changes within six days since 1970, so a probe a day sees each of them.
    before, offset = start - 1, _offset(zone, start - 1)
    while before < end - 1:
        after = min(before + _DAY, end - 1)
        if _offset(zone, after) != offset:
            low, high = before, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            yield high
            offset = _offset(zone, after)
        before = after


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    if offset is None:  # pragma: no cover - a ZoneInfo always knows, the type does not say so
        raise TypeError(f"{zone} has no offset")
    return offset.days * _DAY + offset.seconds


def refusal(name: str) -> str | None:
    """Why `name` is not a zone, and what to write instead; None if it is one."""
    if name in names():
        return None
    if not name.strip():
        return "a time zone is required; write an IANA name such as `Europe/Berlin`, or `UTC`"
    shown = ascii(name[:64])[1:-1]
    if name.lower() in ("local", "localtime", "system"):
        return f"`{shown}` means another zone on every machine; write an IANA name such as `Europe/Berlin`, or `UTC`"
    offset = _OFFSET.fullmatch(name)
    if offset:
        return f"`{shown}` is an offset, not a time zone; {_for_offset(*offset.groups())}"
    near = nearest(name)
    if near:
        return f"`{shown}` is not a known time zone; write {' or '.join(f'`{n}`' for n in near)}"
    if _POSIX.fullmatch(name):
        return f"`{shown}` looks like a POSIX rule, not a name; write an IANA name such as `America/New_York`"
    return f"`{shown}` is not a known time zone; write an IANA name such as `Europe/Berlin`, or `UTC`"


def _for_offset(sign: str, hours: str, minutes: str | None) -> str:
    if int(hours) == 0 and not int(minutes or 0):
        return "write `UTC`"
    fixed = f"Etc/GMT{'-' if sign == '+' else '+'}{int(hours)}"
    if int(minutes or 0) or fixed not in names():
        return "write the IANA name of a place that has it, such as `Asia/Kolkata`"
    return f"write the name of a place, such as `Europe/Berlin`, or `{fixed}` for that offset (its sign is inverted)"


def nearest(name: str) -> list[str]:
    """Up to three known names that `name` may stand for, the likeliest first."""
    if name.upper() in _ABBREVIATIONS:
        return [_ABBREVIATIONS[name.upper()]]
    wanted = _plain(name[:64])
    known = {_plain(n): n for n in sorted(names())}
    if wanted in known:
        return [known[wanted]]
    cities = [n for plain, n in known.items() if "/" in plain and plain.rpartition("/")[2] == wanted]
    if cities:
        return cities[:3]
    return [known[n] for n in difflib.get_close_matches(wanted, known, n=3, cutoff=0.8)]


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_")
