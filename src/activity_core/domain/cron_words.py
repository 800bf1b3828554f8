"""Cron fields in plain English, for previews and lists."""

from collections.abc import Callable

from activity_core.domain.cron_advice import DAYS, MONTHS

_MAX_CLOCK_TIMES = 4  # more than these are shorter as minutes and hours
_MAX_LISTED = 6


def times(minutes: tuple[int, ...], hours: tuple[int, ...]) -> str:
    """`at 09:00 and 17:00`, `every 15 minutes`, `at minute 5 of every hour`, …"""
    hour_step, minute_step = _cycle(hours, 24), _cycle(minutes, 60)
    every = "every minute" if minute_step == 1 else f"every {minute_step} minutes"
    if minute_step and hour_step == 1:
        return every
    if len(minutes) * len(hours) <= _MAX_CLOCK_TIMES:
        return "at " + _join([f"{h:02}:{m:02}" for h in hours for m in minutes])
    if minute_step and hours[-1] - hours[0] == len(hours) - 1:
        return f"{every} from {hours[0]:02}:00 to {hours[-1]:02}:{minutes[-1]:02}"
    of = _some("hour", "hours", hours)
    if hour_step:
        of = "every hour" if hour_step == 1 else f"every {_ordinal(hour_step)} hour"
    if not minute_step:
        every = f"at {_some('minute', 'minutes', minutes)}"
    return f"{every} of {of}"


def days(dates: tuple[int, ...], months: tuple[int, ...], weekdays: tuple[int, ...], *, either: bool) -> str:
    """`on Monday to Friday`, `on day 13 of the month or on Friday`, `in May on days 1 to 7`, …; empty for every day."""
    seasonal = len(months) < 12
    parts = [f"in {_spoken(months, lambda m: MONTHS[m - 1])}"] if seasonal else []
    by_date = "" if len(dates) == 31 else "on " + _some("day", "days", dates) + ("" if seasonal else " of the month")
    by_weekday = "" if len(weekdays) == 7 else _week(weekdays)
    if either:
        if by_date and by_weekday:  # an alternative that always holds leaves nothing to say
            parts.append(f"{by_date} or on {by_weekday}")
    elif by_date:
        parts.append(by_date + (f" if it is {by_weekday}" if by_weekday else ""))
    elif by_weekday:
        parts.append(f"on {by_weekday}")
    return " ".join(parts)


def _week(weekdays: tuple[int, ...]) -> str:
    monday_first = tuple(sorted(weekdays, key=lambda d: (d - 1) % 7))
    ranked = tuple((d - 1) % 7 for d in monday_first)
    return _spoken(ranked, lambda rank: DAYS[(rank + 1) % 7])


def _some(one: str, many: str, values: tuple[int, ...]) -> str:
    return f"{one if len(values) == 1 else many} {_spoken(values, str)}"


def _spoken(values: tuple[int, ...], word: Callable[[int], str]) -> str:
    step = values[1] - values[0] if len(values) > _MAX_LISTED else 1
    if step > 1 and values == tuple(range(values[0], values[-1] + 1, step)):
        return f"{', '.join(map(word, values[:3]))} … {word(values[-1])}"
    parts: list[str] = []
    start = 0
    for at in range(1, len(values) + 1):
        if at < len(values) and values[at] == values[at - 1] + 1:
            continue
        run = values[start:at]
        parts += [f"{word(run[0])} to {word(run[-1])}"] if len(run) > 2 else map(word, run)
        start = at
    return _join(parts)


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _cycle(values: tuple[int, ...], size: int) -> int | None:
    """The step if the values go round the clock evenly (`*/15`), else None."""
    step = size // len(values)
    return step if len(values) > 1 and values == tuple(range(0, size, step)) and size % step == 0 else None


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")
