"""Logs: one stream, one format, ids as fields. What libraries log through the standard library goes the same way.

Logs go to standard error, so that standard output holds what a command was asked for and nothing else.
"""

import logging
import re
import sys
from collections.abc import Sequence
from typing import Any, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from activity_core.settings import Settings

# At INFO these write a line per request or per poll, some of them with URLs that may hold a secret.
QUIET_LOGGERS = ("httpx", "httpcore", "asyncio", "uvicorn.access", "sqlalchemy", "alembic.runtime.plugins")
# Set up by their libraries with handlers of their own, which would write each line twice.
ADOPTED_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic", "temporalio", "temporalio_sdk_core")
# What Temporal's SDK attaches to a record; anything else that a library attaches may hold what must not be logged.
_TEMPORAL_EXTRAS = ("temporal_activity", "temporal_workflow")
_ID_FIELDS = ("workflow_id", "run_id", "activity_id", "activity_type", "workflow_type", "attempt", "task_queue")
_MIN_SECRET_LENGTH = 6
_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/@'\"]*):[^\s/@'\"]*@")


def configure_logging(settings: Settings, process: str, *, stream: TextIO | None = None) -> None:
    """Set up logging for this process; `process` (api, router, …) is a field of every JSON line. A repeat replaces it.

    The secrets of `settings`, and a password in any URL, are replaced by `***` wherever they would be written.
    """
    target = stream or sys.stderr
    chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        _RedactingFormatter(
            secrets=_secrets(settings),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(settings.log_format, process, colors=target.isatty()),
            ],
            foreign_pre_chain=[*chain, structlog.stdlib.ExtraAdder(allow=_TEMPORAL_EXTRAS), _flatten_temporal],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name in ADOPTED_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[*chain, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _renderers(log_format: str, process: str, *, colors: bool) -> list[Processor]:
    if log_format == "console":
        # The plain formatter: structlog's default one prints local variables, and these hold settings.
        return [
            structlog.dev.ConsoleRenderer(
                colors=colors,
                exception_formatter=structlog.dev.plain_traceback,
                # Quotes, and so escapes, strings that came from outside.
                repr_native_str=True,
            )
        ]

    def add_process(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    return [add_process, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]


def _json(event: EventDict, **_options: Any) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _flatten_temporal(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The SDK puts its ids into a dict, and the same dict into the message: make them fields, once."""
    for extra in _TEMPORAL_EXTRAS:
        details = event.pop(extra, None)
        if isinstance(details, dict):
            event["event"] = str(event["event"]).removesuffix(f" ({details})")
            for name in _ID_FIELDS:
                if name in details:
                    # Under a name of its own: our `run_id` and `activity_id` are other ids than Temporal's.
                    event[f"temporal_{name}"] = details[name]
    return event


def _secrets(settings: Settings) -> list[str]:
    """Longest first, so that one that holds another goes as a whole. Very short ones would mar every line."""
    secrets = {settings.temporal_api_key.get_secret_value()} if settings.temporal_api_key else set()
    _, at, _ = settings.database_url.get_secret_value().rpartition("@")
    if at:
        userinfo = settings.database_url.get_secret_value().partition("://")[2].rpartition("@")[0]
        secrets.add(userinfo.partition(":")[2])
    keys = settings.encryption_keys
    secrets |= set() if keys is None else {text.strip() for text in keys.get_secret_value().split(",")}
    return sorted((text for text in secrets if len(text) >= _MIN_SECRET_LENGTH), key=len, reverse=True)


class _RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """Works on the finished line: tracebacks and libraries' messages may quote a URL or a header too."""

    def __init__(self, *, secrets: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return _URL_PASSWORD.sub(r"\1:***@", line) if "://" in line else line
