"""The one tree of expected errors. Each leaf has a stable `code`; the API maps codes to HTTP statuses in one table.

Anything raised that is not an `ActivityCoreError` is a bug.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an input. `pointer` is an RFC 6901 JSON pointer into the input as the user wrote it."""

    pointer: str
    message: str
    code: str = "invalid"


class ActivityCoreError(Exception):
    """Base of every error a caller can expect. `code` is part of the API and never changes its meaning."""

    code = "error"

    def __init__(self, detail: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.faults = list(faults)


class InvalidInputError(ActivityCoreError):
    """The input can't be taken; `faults` names everything that is wrong with it, each with a JSON pointer."""

    code = "invalid_input"

    def __init__(self, faults: list[Fault], detail: str | None = None) -> None:
        super().__init__(detail or "; ".join(f"{f.pointer or '/'}: {f.message}" for f in faults), faults)


class MalformedBodyError(ActivityCoreError):
    """The body is not the JSON (or media type) that it should be."""

    code = "malformed_body"


class UnsupportedMediaTypeError(ActivityCoreError):
    code = "unsupported_media_type"


class BodyTooLargeError(ActivityCoreError):
    code = "body_too_large"


class NotFoundError(ActivityCoreError):
    code = "not_found"


class GoneError(ActivityCoreError):
    """It existed and was deleted; its id is never used again."""

    code = "gone"


class SlugTakenError(ActivityCoreError):
    code = "slug_taken"


class RevisionMismatchError(ActivityCoreError):
    """`If-Match` names another revision than the one in force."""

    code = "revision_mismatch"


class InUseError(ActivityCoreError):
    code = "in_use"


class EventConflictError(ActivityCoreError):
    """The same event id was accepted before with other content."""

    code = "event_conflict"


class IdempotencyKeyReusedError(ActivityCoreError):
    """The same Idempotency-Key was used before for another request."""

    code = "idempotency_key_reused"


class RunOpenError(ActivityCoreError):
    code = "run_open"


class ActivityDisabledError(ActivityCoreError):
    code = "disabled"


class TaskNotOpenError(ActivityCoreError):
    """The task's state does not allow the command."""

    code = "task_not_open"


class UnavailableError(ActivityCoreError):
    """Postgres (or, where said, Temporal) can't be reached; the outcome may be unknown, and sending it again is safe."""

    code = "unavailable"


class OverloadedError(ActivityCoreError):
    """This sender sends faster than it may; the same request may be sent again after a while."""

    code = "overloaded"


class NotAuthenticError(ActivityCoreError):
    """Nothing proves that the request comes from the source that it names."""

    code = "not_authentic"


class ConfigurationError(ActivityCoreError):
    """A process can't start with what it was given."""

    code = "configuration"
