"""What is worth telling about a definition that is taken all the same."""

from datetime import datetime

from activity_core.api.views import Notice
from activity_core.domain import cron_lint
from activity_core.domain.cron import check_zone, parse_cron
from activity_core.domain.documents import Activity, CronTrigger, TimeTrigger, Trigger, times_of

DEPRECATED = Notice(
    code="deprecated_field",
    pointer="/dedupe_key_strategy",
    message="dedupe_key_strategy is legacy metadata: it is stored and returned, and nothing reads it; leave it out",
)


def of_activity(definition: Activity, now: datetime) -> list[Notice]:
    found = of_trigger(definition.trigger, now)
    return found if definition.dedupe_key_strategy is None else [*found, DEPRECATED]


def of_trigger(trigger: Trigger, now: datetime) -> list[Notice]:
    """An expression that means something else than it looks, or times that are all past."""
    found = cron_warnings(trigger, now, "/trigger")
    times = times_of(trigger)
    if times is not None and times.next_after(now) is None:
        message = "no due time is to come: all of them are past"
        found.append(Notice(code="no_times_left", pointer="/trigger", message=message))
    return found


def cron_warnings(trigger: Trigger | TimeTrigger, at: datetime, pointer: str) -> list[Notice]:
    """What may surprise in a cron expression, and on the nights after `at` when clocks change."""
    if not isinstance(trigger, CronTrigger):
        return []
    parsed = parse_cron(trigger.cron)
    texts = [*cron_lint.warnings(parsed), *cron_lint.clock_warnings(parsed, check_zone(trigger.timezone), at)]
    return [Notice(code="cron_warning", pointer=f"{pointer}/cron", message=text) for text in texts]
