"""Every id of the system is built here and nowhere else, and each builder has a parser that inverts it.

The formats are frozen: changing one would start again what already ran (the workflow ID is what Temporal and the ledger
dedupe on), so they are pinned by golden tests.
"""

import hashlib
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

NAMESPACE = uuid.UUID("7e3f2c5a-9d41-5b8e-a6f0-1c2d3e4f5a6b")
MAX_WORKFLOW_ID_BYTES = 255
MAX_EVENT_ID_BYTES = 1024
DEFAULT_SOURCE = "default"

_NORMAL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,127}")
_ISO_DATETIME = re.compile(r"\d{4}-?\d{2}-?\d{2}[Tt]\d{2}.*")
_HASHED_KEY = re.compile(r"~sha256\.[0-9a-f]{64}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_CLOUDEVENTS_PREFIX = re.compile(r"ce-[0-9a-f]{16}")
_UUID_SHAPE = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TASK_ID = re.compile(r"task-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([a-z0-9-]{1,64}):(0|[1-9][0-9]{0,8})")
TASK_TYPE_PATTERN = r"^[a-z0-9-]{1,64}$"


class IdError(ValueError):
    """A name or id that can't be used; the text says what to write instead."""


def is_uuid(text: str) -> bool:
    """Whether a reference in a path is a UUID, hyphens and all; a slug or an id of another kind is not."""
    return _UUID.fullmatch(text) is not None


def check_slug(slug: str) -> str:
    """Return the slug, or raise IdError. A slug is 1–63 of a-z, 0-9 and inner hyphens, and is not shaped like a UUID."""
    if not _SLUG.fullmatch(slug):
        raise IdError("write 1 to 63 lower-case letters, digits and inner hyphens, for example 'daily-digest'")
    if _UUID_SHAPE.fullmatch(slug):
        raise IdError("a slug must not look like a UUID, because a path may hold either; add a word to it")
    return slug


def check_source_slug(slug: str) -> str:
    """A slug that names an event source; `ce-` and 16 hex digits are kept for free CloudEvents sources."""
    if _CLOUDEVENTS_PREFIX.fullmatch(slug):
        raise IdError("names of 'ce-' and 16 hex digits are kept for CloudEvents sources; choose another")
    return check_slug(slug)


def format_nominal(scheduled_for: datetime) -> str:
    """The one spelling of a nominal time: UTC, `+00:00`, whole seconds (R4). A naive or fractional instant is refused."""
    if scheduled_for.tzinfo is None:
        raise IdError("a time without an offset is ambiguous; add one, for example '+00:00'")
    utc = scheduled_for.astimezone(UTC)
    if utc.microsecond:
        raise IdError("a nominal time has whole seconds")
    return utc.isoformat()


def parse_nominal(text: str) -> datetime:
    """Read any ISO 8601 spelling of a nominal time into the UTC instant it means. Raises IdError."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise IdError(f"'{text}' is not an ISO 8601 time; write for example '2026-03-01T09:00:00+00:00'") from error
    return datetime.fromisoformat(format_nominal(parsed))


def check_external_id(external_id: str) -> str:
    """An event id or idempotency key as a sender may write it: 1–1,024 UTF-8 bytes without control characters (R9)."""
    if not external_id:
        raise IdError("an id must not be empty; leave it out to be given one")
    try:
        size = len(external_id.encode())
    except UnicodeEncodeError as error:
        raise IdError("an id must be valid Unicode; it holds a lone surrogate") from error
    if size > MAX_EVENT_ID_BYTES:
        raise IdError(f"an id may have {MAX_EVENT_ID_BYTES} bytes at most; this one has {size}")
    if _CONTROL.search(external_id):
        raise IdError("an id must not hold control characters")
    return external_id


def canonical_key(external_id: str) -> str:
    """The form that goes into workflow IDs (R9): verbatim when normal, else `~sha256.` and the hash of the UTF-8 bytes.

    Injective: `~` is outside the normal alphabet, so nobody can send an id that equals another one's hash.
    """
    if (
        _NORMAL_KEY.fullmatch(external_id)
        and not _ISO_DATETIME.fullmatch(external_id)
        and not external_id.startswith("manual:")
    ):
        return external_id
    return "~sha256." + hashlib.sha256(external_id.encode()).hexdigest()


def event_identity(source: str | None, external_id: str, *, cloudevents: bool) -> str:
    """The database-wide unique `event_id` of (source, id) (R27).

    No source or the default one: the id itself. A named source: `{slug}:{id}`. A free CloudEvents source:
    `ce-{16 hex of its sha256}:{id}`. The result is canonical (see `canonical_key`).
    """
    check_external_id(external_id)
    if cloudevents and source is not None:
        return canonical_key(f"ce-{hashlib.sha256(source.encode()).hexdigest()[:16]}:{external_id}")
    if source is None or source == DEFAULT_SOURCE:
        return canonical_key(external_id)
    return canonical_key(f"{check_source_slug(source)}:{external_id}")


def time_key(scheduled_for: datetime) -> str:
    return format_nominal(scheduled_for)


def manual_key(idempotency_key: str) -> str:
    return "manual:" + canonical_key(check_external_id(idempotency_key))


KeyKind = Literal["time", "event", "manual"]


@dataclass(frozen=True, slots=True)
class RunKey:
    """What a run workflow ID says: the activity and the one occurrence of it."""

    activity_id: uuid.UUID
    kind: KeyKind
    key: str


def key_kind(key: str) -> KeyKind:
    """Which kind an occurrence key is; the three alphabets are disjoint (R9)."""
    if key.startswith("manual:"):
        return "manual"
    return "time" if _ISO_DATETIME.fullmatch(key) else "event"


def run_workflow_id(activity_id: uuid.UUID | str, key: str) -> str:
    """`activity-{activity_id}:{key}` (R2, R3): at most 255 bytes of printable ASCII."""
    workflow_id = f"activity-{activity_id}:{key}"
    if len(workflow_id) > MAX_WORKFLOW_ID_BYTES or not workflow_id.isascii() or not workflow_id.isprintable():
        raise IdError(f"'{key}' is no canonical key")
    return workflow_id


def parse_run_workflow_id(workflow_id: str) -> RunKey:
    head, _, key = workflow_id.partition(":")
    if not head.startswith("activity-") or not key:
        raise IdError(f"'{workflow_id}' is no run workflow ID")
    kind = key_kind(key)
    if kind == "event" and not (_NORMAL_KEY.fullmatch(key) or _HASHED_KEY.fullmatch(key)):
        raise IdError(f"'{workflow_id}' is no run workflow ID")
    return RunKey(activity_id=uuid.UUID(head.removeprefix("activity-")), kind=kind, key=key)


def run_id(workflow_id: str) -> uuid.UUID:
    """Our run id (R33): derived from the workflow ID, so it survives retries, resets and Temporal's retention."""
    return uuid.uuid5(NAMESPACE, workflow_id)


def schedule_id(activity_id: uuid.UUID) -> str:
    return f"activity-{activity_id}"


def parse_schedule_id(text: str) -> uuid.UUID:
    if not text.startswith("activity-"):
        raise IdError(f"'{text}' is no schedule id of ours")
    return uuid.UUID(text.removeprefix("activity-"))


def fire_workflow_id(activity_id: uuid.UUID, head: datetime | None = None) -> str:
    """`fire-{activity_id}` for the schedule (which adds its own suffix), with the head for fires that the poller starts."""
    return f"fire-{activity_id}" if head is None else f"fire-{activity_id}:{format_nominal(head)}"


@dataclass(frozen=True, slots=True)
class TaskKey:
    run_id: uuid.UUID
    task_type: str
    index: int


def task_id(run: uuid.UUID, task_type: str, index: int) -> str:
    """`task-{run_id}:{task_type}:{index}` (R29): task id, task workflow ID and consumer reference in one."""
    return f"task-{run}:{task_type}:{index}"


def parse_task_id(text: str) -> TaskKey:
    match = _TASK_ID.fullmatch(text)
    if match is None:
        raise IdError(f"'{text}' is no task id; one reads 'task-<run id>:<task type>:<index>'")
    return TaskKey(run_id=uuid.UUID(match[1]), task_type=match[2], index=int(match[3]))


def activity_execution_id(owner: str, step: str, position: int = 0, epoch: int = 0) -> uuid.UUID:
    """One per logical step of a task or run (`owner` is its id), the same on every retry and reset (R38)."""
    return uuid.uuid5(NAMESPACE, f"{owner}|{step}|{position}|{epoch}")


def activity_attempt_id(execution_id: uuid.UUID, task_token: bytes) -> uuid.UUID:
    """One per attempt, never reused (R39): Temporal's task token differs per dispatch, its attempt number may restart."""
    return uuid.uuid5(execution_id, hashlib.sha256(task_token).hexdigest())
