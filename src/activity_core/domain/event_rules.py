"""What holds an event back once it has matched: debounce, rate limit and concurrency. Pure: the group's state goes in,
what becomes of the event comes out.

The state of a group is in the rows of its events: its waiting row, the newest admitted ones, the open runs. A row has at
most one group key, because a debounce and a rate limit exclude each other.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from activity_core.domain.documents import Activity, Concurrency, Debounce, EventTrigger, RateLimit
from activity_core.domain.templates import Template, TemplateError, compile_template

MAX_KEY_BYTES = 200

Outcome = Literal["waiting", "merged", "rate_limited", "concurrency_dropped", "filter_error"]


class RuleKeyError(ValueError):
    """A key can't be made of this event; the text says why."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What groups the event. None: the activity has no such rule."""

    group: str | None = None
    concurrency: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The row that stands for a debounced group. `position` orders events: (accepted, id)."""

    position: tuple[datetime, str]
    waiting: bool
    # trailing: at the latest then it starts; leading: until then the others are merged into it
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Placed:
    """What becomes of an event by one rule. `not_before`: when it may start. `absorbs`: the head is merged into it;
    else, when it is `merged`, it is into the head. `head_until`: what the head's `until` becomes."""

    outcome: Outcome
    reason_code: str
    reason: str
    not_before: datetime | None = None
    until: datetime | None = None
    absorbs: bool = False
    head_until: datetime | None = None


def keys_of(activity: Activity, scope: Mapping[str, Any]) -> Keys:
    """The event's keys. Raises RuleKeyError."""
    trigger = activity.trigger
    if not isinstance(trigger, EventTrigger):
        return Keys()
    rule = trigger.debounce or trigger.rate_limit
    return Keys(
        None if rule is None else rendered_key(rule.key, scope),
        None if activity.concurrency is None else rendered_key(activity.concurrency.key, scope),
    )


def has_rules(activity: Activity) -> bool:
    trigger = activity.trigger
    if not isinstance(trigger, EventTrigger):
        return False
    return trigger.debounce is not None or trigger.rate_limit is not None or activity.concurrency is not None


def rendered_key(template: str, scope: Mapping[str, Any]) -> str:
    """A key as text of at most 200 bytes; a longer one is hashed. Raises RuleKeyError."""
    try:
        value = _compiled(template).render(scope)
    except TemplateError as error:
        raise RuleKeyError(str(error)[:500]) from error
    if isinstance(value, dict | list) or value is None:
        raise RuleKeyError("a key is a text or a number, and this one is neither")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    encoded = text.encode()
    return text if len(encoded) <= MAX_KEY_BYTES else f"~sha256.{hashlib.sha256(encoded).hexdigest()}"


@lru_cache(maxsize=4_096)
def _compiled(template: str) -> Template:
    return compile_template(template, variables=frozenset({"event", "activity"}))


def debounced(rule: Debounce, event: tuple[datetime, str], head: Head | None, now: datetime) -> Placed:
    """Trailing: the group runs as its last event, `seconds` after it came. Leading: as its first, at once; those that
    come until it has been quiet for `seconds` are merged into it."""
    return _leading(rule, event, head) if rule.edge == "leading" else _trailing(rule, event, head, now)


def _trailing(rule: Debounce, event: tuple[datetime, str], head: Head | None, now: datetime) -> Placed:
    accepted = event[0]
    if head is not None and not head.waiting:
        head = None  # it has started: this event begins a group of its own
    if head is not None and event < head.position:
        return Placed("merged", "debounced", "a later event of its debounce key came before it was routed")
    until = head.until if head is not None else _after(accepted, rule.max_wait_seconds)
    quiet = max(now, accepted) + timedelta(seconds=rule.seconds)
    start = quiet if until is None else min(quiet, until)
    reason = f"waits for {rule.seconds} s without another event of its debounce key"
    return Placed("waiting", "debounce", reason, not_before=start, until=until, absorbs=head is not None)


def _leading(rule: Debounce, event: tuple[datetime, str], head: Head | None) -> Placed:
    accepted = event[0]
    quiet = accepted + timedelta(seconds=rule.seconds)
    if head is None or head.until is None or not _within(rule, accepted, head, head.until):
        return Placed("waiting", "due", "matched, not started yet", until=quiet)
    latest = _after(head.position[0], rule.max_wait_seconds)
    wanted = max(head.until, quiet)
    reason = f"came within {rule.seconds} s of an event of its debounce key that runs for both"
    return Placed(
        "merged", "debounced", reason, head_until=wanted if latest is None else min(wanted, max(latest, head.until))
    )


def _within(rule: Debounce, accepted: datetime, head: Head, until: datetime) -> bool:
    latest = _after(head.position[0], rule.max_wait_seconds)
    # an event that is routed long after it came may be from before the group
    began = head.position[0] - timedelta(seconds=rule.seconds)
    return began < accepted < until and (latest is None or accepted < latest)


def _after(instant: datetime, seconds: int | None) -> datetime | None:
    return None if seconds is None else instant + timedelta(seconds=seconds)


def rate_limited(rule: RateLimit, accepted: datetime, nth: datetime | None, now: datetime) -> Placed:
    """`nth`: the slot of the `count`-th newest event of this key that was admitted. Each slot is `per_seconds` or more
    after that one, so that no window of that length holds more than `count` starts."""
    free = None if nth is None else nth + timedelta(seconds=rule.per_seconds)
    limit = f"{rule.count} in {rule.per_seconds} s of this key"
    if rule.on_exceed == "drop":
        # by when it came: that we were slow to look at it is not its sender's doing
        if free is not None and free > accepted:
            return Placed("rate_limited", "rate_limited", f"more than {limit}")
        return Placed("waiting", "due", "matched, not started yet", not_before=accepted)
    if free is None or free <= now:
        return Placed("waiting", "due", "matched, not started yet", not_before=now)
    reason = f"waits for its turn: no more than {limit} start"
    return Placed("waiting", "rate_limit", reason, not_before=free)


def admitted(rule: Concurrency, taken: int) -> Placed | None:
    """None when there is room beside the `taken` runs of this key that are open or about to start."""
    if taken < rule.limit:
        return None
    if rule.on_limit == "drop":
        open_ones = (
            "a run of its concurrency key was" if rule.limit == 1 else f"{rule.limit} runs of its concurrency key were"
        )
        return Placed("concurrency_dropped", "concurrency", f"{open_ones} open or about to start")
    return Placed("waiting", "concurrency", waits_for_room(rule.limit))


def waits_for_room(limit: int) -> str:
    if limit == 1:
        return "waits until no other run of its concurrency key is open"
    return f"waits until fewer than {limit} runs of its concurrency key are open"


def source_matches(patterns: tuple[str, ...], source: str) -> bool:
    """Whether a source is one of those, with `*` for any characters and `?` for one; none at all means every source."""
    return not patterns or any(_glob(pattern).fullmatch(source) for pattern in patterns)


@lru_cache(maxsize=4_096)
def _glob(pattern: str) -> re.Pattern[str]:
    pieces = {"*": ".*", "?": "."}
    # runs of stars are one: several would make the match take time that grows with their number
    simple = re.sub(r"\*+", "*", pattern)
    return re.compile("".join(pieces.get(character, re.escape(character)) for character in simple), re.DOTALL)
