"""Instants as others write them: with an offset, and within the years that every part of the system can hold."""

from datetime import UTC, datetime

# Postgres and Python both hold these in any zone; at the ends of Python's range an offset alone overflows.
FIRST_YEAR, LAST_YEAR = 1900, 9998
ADVICE = "write an ISO 8601 time with an offset, for example '2026-03-01T09:00:00Z'"


class InstantError(ValueError):
    """What was written is no instant that can be kept; the text says what to write."""


def read_instant(text: object) -> datetime:
    """The UTC instant that an ISO 8601 text with an offset means. Raises InstantError."""
    if not isinstance(text, str):
        raise InstantError(ADVICE)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InstantError(ADVICE) from None
    if parsed.tzinfo is None:
        raise InstantError(f"a time without an offset is ambiguous; {ADVICE} or '2026-03-01T10:00:00%2B01:00'")
    if not FIRST_YEAR <= parsed.year <= LAST_YEAR:
        raise InstantError(f"the year must be within {FIRST_YEAR} and {LAST_YEAR}; {ADVICE}")
    return parsed.astimezone(UTC)
