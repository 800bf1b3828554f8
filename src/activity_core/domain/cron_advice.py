"""What to write instead of cron text that is not in our dialect.

People paste from Quartz, Jenkins, crontabs and web pages. Each of these is recognised, and the reason says what the
same wish looks like here. Nothing here decides whether text is valid: `cron.py` does, and checks every proposal.
"""

import difflib
import re
import unicodedata
from typing import NamedTuple


class Field(NamedTuple):
    """One of the five positions. Values run from `low` to `high`; `names` are the words for `low`, `low + 1`, …"""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day-of-month", 1, 31),
    Field("month", 1, 12, tuple(m[:3].upper() for m in MONTHS)),
    Field("day-of-week", 0, 6, tuple(d[:3].upper() for d in DAYS)),
)
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}

_LAYOUT = "five fields (minute hour day-of-month month day-of-week)"
_OTHER_MACROS = {"@midnight": "@daily", "@annually": "@yearly"}
_LOOK_ALIKES = str.maketrans({"‐": "-", "‑": "-", "‒": "-", "–": "-", "—": "-", "−": "-", "∗": "*", "⁎": "*", "•": "*"})
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?:\d{1,6}[smhd])+")
_ZONE_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S+)\s*(.*)")
_SCHEDULE_FIELD = re.compile(r"[0-9*?,/#LW-]+|(?:[0-9*,/#L-]|SUN|MON|TUE|WED|THU|FRI|SAT)+", re.IGNORECASE)
_ORDINALS = {"1": "first", "2": "second", "3": "third", "4": "fourth", "5": "fifth"}


class Advice(NamedTuple):
    """Why text is refused, and a replacement for it if there is one that means the same."""

    reason: str
    instead: str | None = None


def for_text(text: str) -> Advice | None:
    """Advice on what is foreign about the whole text; None if it is a macro of ours or five fields."""
    if not text:
        return Advice(f"is empty; write {_LAYOUT}, for example `0 9 * * MON-FRI`")
    strange = next((c for c in text if not c.isascii() or (not c.isprintable() and c not in "\t\r\n")), None)
    if strange:
        return _strange_character(text, strange)
    if "\n" in text or "\r" in text:
        return Advice("has more than one line; write one activity for each expression")
    prefix = _ZONE_PREFIX.fullmatch(text)
    if prefix:
        return Advice(f"can't carry a time zone; set `timezone: {prefix[1]}` beside it", prefix[2])
    if text.startswith("@"):
        return None if text in MACROS else _macro(text)
    fields = text.split()
    return None if len(fields) == len(FIELDS) else _field_count(fields)


def _strange_character(text: str, char: str) -> Advice:
    # The character itself is never repeated: it may be invisible, or one that no log or JSON can hold.
    name = unicodedata.name(char, "not a printable character")
    plain = unicodedata.normalize("NFKC", text.translate(_LOOK_ALIKES))
    plain = " ".join("".join(c for c in plain if unicodedata.category(c) != "Cf").split())
    reason = f"holds U+{ord(char):04X} ({name}) at position {text.index(char) + 1}; only plain ASCII is read"
    return Advice(reason, plain if plain.isascii() and plain.isprintable() else None)


def _macro(text: str) -> Advice:
    word = text.split()[0].lower()
    if word in MACROS or word in _OTHER_MACROS:
        return Advice(f"`{_short(text)}` is not one of {', '.join(MACROS)}", _OTHER_MACROS.get(word, word))
    if word == "@reboot":
        return Advice("`@reboot` names no time; use a trigger of type `once`, `event` or `manual`")
    if word == "@every":
        period = "".join(text.split()[1:])
        how = f" with `every_seconds: {_seconds(period)}`" if _DURATION.fullmatch(period) else ""
        return Advice(f"has no `@every`; use a trigger of type `interval`{how}")
    near = difflib.get_close_matches(word, MACROS, n=1)
    return Advice(f"`{_short(text)}` is not one of {', '.join(MACROS)}", near[0] if near else None)


def _seconds(duration: str) -> int:
    return sum(int(n) * _UNIT_SECONDS[unit] for n, unit in re.findall(r"(\d+)([smhd])", duration))


def _field_count(fields: list[str]) -> Advice:
    count = len(fields)
    has = f"takes {_LAYOUT}, this has {count}"
    if count < len(FIELDS):
        return Advice(f"{has}; write `*` for each that is missing, for example `0 9 * * *`")
    if not _SCHEDULE_FIELD.fullmatch(fields[5]):
        return Advice(f"{has}; a command does not belong here", " ".join(fields[:5]))
    if count == 6 and re.fullmatch(r"(?:19|20)\d\d.*", fields[5]):
        return Advice(f"{has}; for a year use the bounds `start_at` and `end_at`", " ".join(fields[:5]))
    if count > 7:
        return Advice(has)
    return _without_seconds(fields, has)


def _without_seconds(fields: list[str], has: str) -> Advice:
    seconds, rest = fields[0], fields[1:6]
    if "?" in fields:  # only Quartz has it, and Quartz counts days from 1 = Sunday
        rest[4] = re.sub(r"(?<![\d#/])[1-7](?!\d)", lambda m: str(int(m[0]) - 1), rest[4])
    every = re.fullmatch(r"(?:\*|0)/(\d{1,2})", seconds)
    if (every or seconds == "*") and set(rest) <= {"*", "?"}:
        period = every[1] if every else 1
        return Advice(f"{has}; for seconds use a trigger of type `interval` with `every_seconds: {period}`")
    dropped = "the seconds" if len(fields) == 6 else "the seconds and the year"
    return Advice(f"{has}; leave out {dropped}", " ".join("*" if f == "?" else f for f in rest))


def for_item(field: Field, item: str) -> Advice:
    """Advice on an item of a list that is none of `*`, a value, a range, each but the value with `/step`."""
    shown = _short(item)
    if not item:
        return Advice("has an empty item; remove the extra comma", "")
    if item == "?":
        return Advice("`?` is not used here", "*")
    upper = item.upper()
    if re.fullmatch(r"[HR](?:\(.*\))?(?:/\d+)?", upper):
        return Advice(f"`{shown}` asks for a random value; write the number you want")
    special = _calendar_word(field, upper)
    if special:
        return Advice(special)
    if re.fullmatch(r"\d+(?:-\d+)?(?:/\d+)?", item):
        return Advice(f"`{shown}` is out of range; {_range_words(field)}")
    named = re.sub(r"[A-Za-z]+", lambda m: _short_name(field, m[0]), item)
    if named != item:
        return Advice(f"`{shown}` is too long a name", named)
    elsewhere = next((f for f in FIELDS if f.names and upper[:3] in f.names), None)
    if elsewhere:
        return Advice(f"`{shown}` belongs to the field {elsewhere.name}")
    return Advice(f"`{shown}` is not a value, a range `a-b`, `*` or `*/n`")


def _calendar_word(field: Field, upper: str) -> str | None:
    nth = re.fullmatch(r"(\w+)#(\d+)", upper)
    if nth:
        which = _ORDINALS.get(nth[2], nth[2])
        return f"`{upper}` is not in this dialect; write `{nth[1]}` and a rule that keeps the {which} of the month"
    last = re.fullmatch(r"(\w+)L", upper)
    if field.name == "day-of-week" and last:
        return f"`{upper}` is not in this dialect; write `{last[1]}` and a rule that keeps the last of the month"
    if re.fullmatch(r"(?:\d+W|LW|WL)", upper):
        day = upper.strip("LW") or "28-31"
        return f"`{upper}` is not in this dialect; write `{day}`, or several days and a rule that keeps one"
    if re.fullmatch(r"L(?:-\d+)?", upper):
        return f"`{upper}` is not in this dialect; write `1` (the day after), or `28-31` and a rule that keeps the last"
    return None


def _range_words(field: Field) -> str:
    if field.name == "day-of-week":
        return "day-of-week runs from 0 to 7, both 0 and 7 are Sunday, or SUN to SAT"
    if field.name == "hour":
        return "hour runs from 0 to 23, midnight is 0"
    return f"{field.name} runs from {field.low} to {field.high}"


def _short_name(field: Field, word: str) -> str:
    full = MONTHS if field.name == "month" else DAYS if field.name == "day-of-week" else ()
    long = len(word) > 3 and any(f.upper().startswith(word.upper()) for f in full)
    return word[:3].upper() if long else word


def for_wrapped(field: Field, low: str, high: str, values: list[int], *, stepped: bool) -> Advice:
    """Advice on a range whose end comes before its start; `values` are what it would mean if it wrapped around."""
    reason = f"`{low}-{high}` ends before it starts"
    if stepped:
        return Advice(reason, ",".join(map(str, sorted(values))))
    first, last = (field.names[0], field.names[-1]) if low.isalpha() else (str(field.low), str(field.high))
    upper_part = low if values[0] == field.high else f"{low}-{last}"
    lower_part = high if values[-1] == field.low else f"{first}-{high}"
    return Advice(reason, f"{upper_part},{lower_part}")


def for_impossible_date(days: tuple[int, ...], months: tuple[int, ...], fields: list[str]) -> Advice:
    """Advice on days of the month that none of the months has."""
    where = " or ".join(MONTHS[m - 1] for m in months)
    last = 28 if 2 in months else 30
    which = f"day {days[0]}" if len(days) == 1 else f"days {days[0]} to {days[-1]}"
    reason = f"can never match, {where} has no {which}; the last that always comes is {last}"
    return Advice(reason, " ".join([*fields[:2], str(last), *fields[3:]]))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
