"""The documents that users declare: one frozen model per kind, used as request body and as stored document.

`reading.py` takes what a user wrote and names every fault at once; `stored_activity` and `stored_consumer` read what the
database holds, where a field of a newer version is ignored (rolling upgrades).
"""

from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from activity_core.domain import cron as cron_dialect
from activity_core.domain.event_types import check_pattern
from activity_core.domain.ids import TASK_TYPE_PATTERN, check_slug
from activity_core.domain.instants import read_instant
from activity_core.domain.planner import Policy
from activity_core.domain.times import MAX_EVERY_SECONDS, Times, cron_times, interval_times, once_times

API_VERSION: Literal["activity-core/v1"] = "activity-core/v1"
BUILT_IN_CONSUMERS = ("inbox", "log")

SCOPE_ALWAYS = frozenset({"context", "activity", "run", "params"})
SCOPE_TIME = frozenset({"window", "covers", "scheduled_for", "local"})
SCOPE_EVENT = frozenset({"event"})
SCOPE_ITEM = frozenset({"item", "index"})


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _zone(name: str) -> str:
    cron_dialect.check_zone(name)
    return name


def _cron(text: str) -> str:
    cron_dialect.parse_cron(text)
    return text


def _consumer_name(slug: str) -> str:
    return slug if slug in BUILT_IN_CONSUMERS else check_slug(slug)


Slug = Annotated[str, AfterValidator(check_slug)]
# Expressions and placeholders are checked by `reading`, which knows what is in scope where.
Expression = str
Templated = Any  # a JSON value; strings in it may hold placeholders
TextTemplate = Annotated[str, Field(max_length=1_000)]  # a string that may hold placeholders
UrlTemplate = Annotated[str, Field(max_length=2048)]
Text = Annotated[str, Field(max_length=2000)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Seconds = Annotated[int, Field(ge=0, le=31_536_000)]
PositiveSeconds = Annotated[int, Field(ge=1, le=31_536_000)]

Instant = Annotated[datetime, BeforeValidator(read_instant), WithJsonSchema({"type": "string", "format": "date-time"})]


class TimeTrigger(Model):
    """What triggers with due times have in common. The misfire policy alone controls what becomes of missed ones (R10)."""

    misfire_policy: Policy = "compress"
    misfire_grace_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    catchup_limit: Annotated[int, Field(ge=1, le=1000)] = 10
    # None follows the misfire policy: skip skips what falls into an open run, the others let it wait.
    overlap_policy: Literal["allow_all"] | None = None
    late_after_seconds: PositiveSeconds = 300
    jitter_seconds: Annotated[int, Field(ge=0, le=3600)] = 0


class CronTrigger(TimeTrigger):
    type: Literal["cron"]
    cron: Annotated[str, AfterValidator(_cron)]
    timezone: Annotated[str, AfterValidator(_zone)]
    start_at: Instant | None = None
    end_at: Instant | None = None


class IntervalTrigger(TimeTrigger):
    """Due at `anchor + k * every_seconds`; the Unix epoch is the anchor if there is none."""

    type: Literal["interval"]
    every_seconds: Annotated[int, Field(ge=1, le=MAX_EVERY_SECONDS)]
    anchor: Instant | None = None
    start_at: Instant | None = None
    end_at: Instant | None = None


class OnceTrigger(TimeTrigger):
    type: Literal["once"]
    at: Instant
    misfire_policy: Policy = "catchup"


class Debounce(Model):
    """Events with the same key that come close together are one run."""

    key: TextTemplate = ""
    seconds: Annotated[int, Field(ge=1, le=86_400)]
    max_wait_seconds: PositiveSeconds | None = None
    edge: Literal["trailing", "leading"] = "trailing"


class RateLimit(Model):
    """At most `count` starts with the same key in any `per_seconds`."""

    key: TextTemplate = ""
    count: Annotated[int, Field(ge=1, le=10_000)]
    per_seconds: Annotated[int, Field(ge=1, le=86_400)]
    on_exceed: Literal["drop", "queue"] = "drop"


class Concurrency(Model):
    """At most `limit` runs with the same key are open at once."""

    key: TextTemplate = ""
    limit: Annotated[int, Field(ge=1, le=1_000)] = 1
    on_limit: Literal["queue", "drop"] = "queue"


class EventTrigger(Model):
    type: Literal["event"]
    event_types: Annotated[
        tuple[Annotated[str, AfterValidator(check_pattern)], ...], Field(min_length=1, max_length=50)
    ]
    sources: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=50)] = ()
    filter: Expression | None = None
    debounce: Debounce | None = None
    rate_limit: RateLimit | None = None


class ManualTrigger(Model):
    type: Literal["manual"]


Trigger = Annotated[
    CronTrigger | IntervalTrigger | OnceTrigger | EventTrigger | ManualTrigger, Field(discriminator="type")
]


@lru_cache(maxsize=4_096)
def times_of(trigger: Trigger) -> Times | None:
    """The due times of a trigger; None for triggers without. Raises TimesError for settings that don't go together."""
    match trigger:
        case CronTrigger():
            return cron_times(trigger.cron, trigger.timezone, trigger.start_at, trigger.end_at)
        case IntervalTrigger():
            return interval_times(trigger.every_seconds, trigger.anchor, trigger.start_at, trigger.end_at)
        case OnceTrigger():
            return once_times(trigger.at)
        case _:
            return None


def zone_of(trigger: Trigger) -> str:
    """The IANA zone in which the trigger's times are local: UTC unless it names one."""
    return trigger.timezone if isinstance(trigger, CronTrigger) else "UTC"


class StaticContext(Model):
    """A literal JSON value; placeholders in it are not filled."""

    name: Name
    type: Literal["static"]
    value: Any


class HttpContext(Model):
    """The JSON body of a GET; its `url` and `query` may hold placeholders."""

    name: Name
    type: Literal["http"]
    url: UrlTemplate
    query: Annotated[dict[str, Templated], Field(max_length=50)] = {}
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 10
    on_error: Literal["fail"] = "fail"


ContextSource = Annotated[StaticContext | HttpContext, Field(discriminator="type")]


class Rule(Model):
    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    when: Expression
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class ForEach(Model):
    in_: Annotated[Expression, Field(alias="in")]
    max_items: Annotated[int, Field(ge=1, le=5000)] = 1000
    max_parallel: Annotated[int, Field(ge=1, le=100)] = 20
    on_exceed: Literal["fail", "truncate"] = "fail"


class Retry(Model):
    maximum_attempts: Annotated[int, Field(ge=1, le=1000)] | None = None
    initial_interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 1
    backoff_coefficient: Annotated[float, Field(ge=1, le=10, strict=False)] = 2.0
    maximum_interval_seconds: PositiveSeconds = 300


class TaskSpec(Model):
    task_type: Annotated[str, Field(pattern=TASK_TYPE_PATTERN)]
    when: Expression | None = None
    for_each: ForEach | None = None
    params: dict[str, Templated] = {}
    consumer: Annotated[str, AfterValidator(_consumer_name)] = "inbox"
    attempt_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    retry: Retry = Retry()
    deadline_seconds: PositiveSeconds = 86_400

    def deadline(self) -> int | None:
        """Seconds from planning to giving up; None: never (a person may take as long as it takes)."""
        return None if self.consumer == "inbox" else self.deadline_seconds


class Activity(Model):
    api_version: Literal["activity-core/v1"] = API_VERSION
    kind: Literal["Activity"] = "Activity"
    slug: Slug
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    description: Text | None = None
    owner: Annotated[str, Field(max_length=200)] | None = None
    labels: Annotated[
        dict[
            Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._/-]{0,62}$")],
            Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,63}$")],
        ],
        Field(max_length=50),
    ] = {}
    enabled: bool = True
    trigger: Trigger
    context: Annotated[tuple[ContextSource, ...], Field(max_length=20)] = ()
    rules: Annotated[tuple[Rule, ...], Field(max_length=50)] = ()
    tasks: Annotated[tuple[TaskSpec, ...], Field(max_length=50)] = ()
    concurrency: Concurrency | None = None
    # Legacy metadata (R17): stored and returned, read by nothing.
    dedupe_key_strategy: Annotated[str, Field(max_length=200)] | None = None


class HttpConsumer(Model):
    """A named HTTP endpoint that tasks are POSTed to."""

    api_version: Literal["activity-core/v1"] = API_VERSION
    kind: Literal["Consumer"] = "Consumer"
    slug: Slug
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    description: Text | None = None
    type: Literal["http"]
    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s/?#@]+(?:[/?#]\S*)?$")]


Document = Activity | HttpConsumer


def scope_of(activity: Activity) -> frozenset[str]:
    """The names that this activity's expressions may use (without `item` and `index`)."""
    match activity.trigger:
        case TimeTrigger():
            return SCOPE_ALWAYS | SCOPE_TIME
        case EventTrigger():
            return SCOPE_ALWAYS | SCOPE_EVENT
        case _:
            return SCOPE_ALWAYS


def stored_activity(effective: dict[str, Any]) -> Activity:
    return Activity.model_validate(effective, strict=False, extra="ignore", by_alias=True)


def stored_consumer(effective: dict[str, Any]) -> HttpConsumer:
    return HttpConsumer.model_validate(effective, strict=False, extra="ignore")


def effective(document: Document) -> dict[str, Any]:
    """The document with every default filled in, as JSON values: frozen per revision."""
    return document.model_dump(mode="json", by_alias=True)
