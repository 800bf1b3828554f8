"""Keyset pagination: newest first, by (instant, id), so that rows written meanwhile neither repeat nor hide others."""

import base64
import binascii
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

import orjson
from sqlalchemy import ColumnElement, Select, Uuid, literal, tuple_

from activity_core.errors import Fault, InvalidInputError

MAX_LIMIT = 500
T = TypeVar("T")
S = TypeVar("S", bound=Select[tuple[object, ...]])


@dataclass(frozen=True, slots=True)
class Cursor:
    at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: Sequence[T]
    next_cursor: str | None


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([cursor.at.isoformat(), cursor.id])).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """Read a `next_cursor`. Raises InvalidInputError for anything else."""
    try:
        at, row_id = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        cursor = Cursor(datetime.fromisoformat(at), str(row_id))
        if cursor.at.tzinfo is None or not cursor.id.isprintable():  # the database would refuse either
            raise ValueError("no cursor of ours")
        return cursor
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise InvalidInputError(
            [Fault("/query/cursor", "write the next_cursor of the page before, unchanged")]
        ) from error


def before(
    statement: S, at: ColumnElement[datetime], row_id: ColumnElement[object], cursor: Cursor | None, limit: int
) -> S:
    """Order newest first and go on behind the cursor; one row more than the page, to see whether there is a next one."""
    if cursor is not None:
        last_id = literal(_typed_id(cursor.id, row_id), row_id.type)
        statement = statement.where(tuple_(at, row_id) < tuple_(literal(cursor.at, at.type), last_id))
    return statement.order_by(at.desc(), row_id.desc()).limit(limit + 1)


def _typed_id(text: str, column: ColumnElement[object]) -> object:
    try:
        return uuid.UUID(text) if isinstance(column.type, Uuid) else text
    except ValueError as error:
        raise InvalidInputError(
            [Fault("/query/cursor", "write the next_cursor of the page before, unchanged")]
        ) from error


def page(rows: Sequence[T], limit: int, position: Callable[[T], Cursor]) -> Page[T]:
    items = rows[:limit]
    return Page(items, encode_cursor(position(items[-1])) if len(rows) > limit else None)
