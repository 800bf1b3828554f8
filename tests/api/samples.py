"""Documents for the tests."""

from itertools import count
from typing import Any

_NUMBER = count(1)


def slug(stem: str = "thing") -> str:
    """One that no other test uses."""
    return f"{stem}-{next(_NUMBER)}"


def cron_activity(**more: Any) -> dict[str, Any]:
    trigger = {"type": "cron", "cron": "0 9 * * *", "timezone": "UTC", "misfire_policy": "skip"}
    return {"slug": slug("cron"), "trigger": trigger, "tasks": [{"task_type": "note", "consumer": "log"}], **more}


def event_activity(*event_types: str, **more: Any) -> dict[str, Any]:
    trigger: dict[str, Any] = {"type": "event", "event_types": list(event_types)}
    if "filter" in more:
        trigger["filter"] = more.pop("filter")
    return {"slug": slug("event"), "trigger": trigger, "tasks": [{"task_type": "note", "consumer": "log"}], **more}


def manual_activity(**more: Any) -> dict[str, Any]:
    return {"slug": slug("manual"), "trigger": {"type": "manual"}, "tasks": [{"task_type": "ask"}], **more}
