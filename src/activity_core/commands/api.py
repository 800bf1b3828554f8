"""A client of our own HTTP API, for commands: one request at a time, and every failure in words."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlsplit

from activity_core.commands.failure import MISUSED, REFUSED, UNREACHABLE, CommandFailedError

TIMEOUT_SECONDS = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Answer:
    """A 2xx answer of the API. `body` is what `-o json` prints, unchanged."""

    status: int
    body: bytes

    base_url: str

    @cached_property
    def json(self) -> dict[str, Any]:
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise _stranger(self.base_url, self.status)
        return value

    @property
    def items(self) -> list[dict[str, Any]]:
        """The rows of a list answer."""
        items = self.json.get("items")
        if not isinstance(items, list):
            raise _stranger(self.base_url, self.status)
        return items


class ProblemError(CommandFailedError):
    """The API refused; `problem` is its answer (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        # advice on how to write `+` in a URL is of no use in a command
        self.problem = {
            name: item.replace("%2B", "+") if isinstance(item, str) else item for name, item in problem.items()
        }
        self.problem_code = str(problem.get("code", status))
        lines = [f"error: {self._headline()} ({self.problem_code})"]
        lines += [f"  {fault.get('pointer') or '/'}: {fault.get('message')}" for fault in self.told_faults]
        super().__init__(lines, exit_code=UNREACHABLE if status in (502, 503, 504) else REFUSED)

    def _headline(self) -> str:
        detail, title = str(self.problem.get("detail") or ""), str(self.problem.get("title") or "refused")
        # The detail of wrong input is its faults in one line, and each of them is to get a line of its own.
        return title if not detail or any(str(fault.get("message")) in detail for fault in self.told_faults) else detail

    @property
    def told_faults(self) -> list[Mapping[str, Any]]:
        faults = self.problem.get("errors", [])
        found = [fault for fault in faults if isinstance(fault, dict)] if isinstance(faults, list) else []
        return [{**fault, "message": str(fault.get("message")).replace("%2B", "+")} for fault in found]


class Api:
    """The API at `base_url`."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CommandFailedError(
                f"error: --api-url must read like http://127.0.0.1:8080, and is {base_url}", exit_code=MISUSED
            )
        self.base_url = base_url.rstrip("/")
        # Loading the certificates takes longer than a request; nothing of them is used in the clear.
        self._verify = parts.scheme == "https"
        # A proxy of the environment can't reach this machine's loopback.
        self._trust_env = parts.hostname not in _LOOPBACK

    def get(self, *path: str, **query: Any) -> Answer:
        """GET /v1/{path}; parameters that are None are left out."""
        return self._send("GET", path, query=query)

    def post(self, *path: str, body: Any, idempotency_key: str | None = None) -> Answer:
        return self._send("POST", path, body=body, idempotency_key=idempotency_key)

    def put(self, *path: str, body: Any) -> Answer:
        return self._send("PUT", path, body=body)

    def delete(self, *path: str) -> Answer:
        return self._send("DELETE", path)

    def _send(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        # here and not above: it is half of the start time of `--help`, which sends nothing
        import httpx

        headers = {"Accept": "application/json"}
        content = None
        if method in ("POST", "PUT"):
            headers["Content-Type"] = "application/json"
            # Escaped, so that a lone surrogate reaches the API, which refuses it with its place.
            content = json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode()
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        try:
            with httpx.Client(trust_env=self._trust_env, verify=self._verify, timeout=TIMEOUT_SECONDS) as client:
                response = client.request(
                    method,
                    self.base_url + "/v1/" + "/".join(_segment(part) for part in path),
                    params={name: value for name, value in (query or {}).items() if value is not None},
                    headers=headers,
                    content=content,
                )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._unreachable(error) from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise CommandFailedError(
                f"error: the answer of {self.base_url} did not come ({_reason(error)})", exit_code=UNREACHABLE
            ) from None
        if response.is_success:
            return Answer(response.status_code, response.content, self.base_url)
        raise _problem(response.status_code, response.content, self.base_url)

    def _unreachable(self, error: Exception) -> CommandFailedError:
        return CommandFailedError(
            [
                f"error: nothing answers at {self.base_url} ({_reason(error)})",
                "Start the service with `make run`, or say where it is with --api-url or ACTIVITY_CORE_API_URL.",
            ],
            exit_code=UNREACHABLE,
        )


def _segment(text: str) -> str:
    if text in ("", ".", ".."):
        raise CommandFailedError(f"error: '{text}' names nothing", exit_code=MISUSED)
    return quote(text, safe="")


def _reason(error: Exception) -> str:
    """What the operating system said, without the layers that wrapped it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower() if cause.errno > 0 else str(cause.strerror).lower()
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _problem(status: int, body: bytes, base_url: str) -> CommandFailedError:
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if isinstance(problem, dict) and ("code" in problem or "detail" in problem):
        return ProblemError(status, problem)
    return _stranger(base_url, status)


def _stranger(base_url: str, status: int) -> CommandFailedError:
    return CommandFailedError(
        f"error: {base_url} answered {status} with something else than was asked for; is it activity-core?",
        exit_code=UNREACHABLE,
    )
