"""Fetch what a run's definition needs to know, once: the first answer is kept and a repeated step reads it."""

import asyncio
import uuid
from urllib.parse import urlencode

from activity_core.domain.documents import Activity, HttpContext
from activity_core.domain.json_values import JsonError, JsonValue, canonical_json, parse_json
from activity_core.domain.templates import TemplateError, compile_template, compile_url
from activity_core.services.http_calls import HttpCaller, HttpCallError, worth_retrying
from activity_core.services.runs import Runs
from activity_core.store import runs
from activity_core.store.database import Database

MAX_BYTES = 1024 * 1024


class ContextError(Exception):
    """The source did not answer with something usable. `retry`: another attempt may."""

    def __init__(self, detail: str, *, retry: bool) -> None:
        super().__init__(detail)
        self.retry = retry


class ContextResolver:
    def __init__(self, database: Database, runs_service: Runs, http: HttpCaller) -> None:
        self._database = database
        self._runs = runs_service
        self._http = http

    async def resolve(self, run_id: uuid.UUID, position: int, *, tries: int, pause_seconds: float) -> None:
        """Fetch one source and keep its value. Raises ContextError when the last of the tries failed."""
        async with self._database.read() as connection:
            run = await runs.progress(connection, run_id)
            if run is None or run.status is not None:
                return
            activity, scope = await self._runs.definition_and_scope(connection, run)
            source = activity.context[position]
            if not isinstance(source, HttpContext) or source.name in await runs.context(connection, run_id):
                return
        value = await self._try(activity, source, scope, tries, pause_seconds)
        async with self._database.begin() as connection:
            await runs.keep_context(connection, run_id, source.name, value)

    async def _try(
        self, activity: Activity, source: HttpContext, scope: dict[str, JsonValue], tries: int, pause_seconds: float
    ) -> JsonValue:
        for left in reversed(range(tries)):
            try:
                return await self._fetch(activity, source, scope)
            except ContextError as error:
                if not error.retry or not left:
                    raise
                await asyncio.sleep(pause_seconds)
        raise AssertionError("at least one try")

    async def _fetch(self, activity: Activity, source: HttpContext, scope: dict[str, JsonValue]) -> JsonValue:
        where = f"context '{source.name}'"
        try:
            url = compile_url(source.url).render(scope)
            query = compile_template(source.query).render(scope)
        except TemplateError as error:
            raise ContextError(f"{where}: {error}", retry=False) from error
        try:
            async with self._http.slot(url.partition("?")[0]):
                answer = await self._http.call(
                    "GET", with_query(url, query), deadline_seconds=source.timeout_seconds, max_bytes=MAX_BYTES
                )
        except HttpCallError as error:
            raise ContextError(f"{where}: {error}", retry=True) from error
        if not 200 <= answer.status < 300:
            retry = worth_retrying(answer.status)
            raise ContextError(f"{where}: the source answered {answer.status}", retry=retry)
        if answer.truncated:
            raise ContextError(f"{where}: the answer is over {MAX_BYTES} bytes", retry=False)
        try:
            return parse_json(answer.body)
        except JsonError as error:
            raise ContextError(f"{where}: the answer is no JSON we can keep: {error}", retry=False) from error


def with_query(url: str, query: JsonValue) -> str:
    """The URL with these parameters added; values that are no text are written as JSON, None is left out."""
    assert isinstance(query, dict)  # noqa: S101 (the document's type)
    pairs = [
        (name, value if isinstance(value, str) else canonical_json(value).decode())
        for name, value in query.items()
        if value is not None
    ]
    if not pairs:
        return url
    bare, hash_sign, fragment = url.partition("#")
    return f"{bare}{'&' if '?' in bare else '?'}{urlencode(pairs)}{hash_sign}{fragment}"
