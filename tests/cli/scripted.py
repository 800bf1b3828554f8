"""A stand-in for the API at the network edge: answers what a test says, and keeps what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Script:
    """What is answered to (method, path), in order; the last answer is given for ever. A bytes body goes as it is."""

    answers: dict[tuple[str, str], list[tuple[int, Any]]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def on(self, method: str, path: str, status: int, body: Any) -> None:
        self.answers.setdefault((method, path), []).append((status, body))

    def problem(self, method: str, path: str, status: int, code: str, detail: str, *errors: tuple[str, str]) -> None:
        faults = [{"pointer": pointer, "message": message, "code": "invalid"} for pointer, message in errors]
        body = {"title": "Refused", "status": status, "code": code, "detail": detail, "errors": faults}
        self.on(method, path, status, body)

    def answer(self, asked: Asked) -> tuple[int, bytes]:
        self.asked.append(asked)
        given = self.answers[asked.method, asked.path]
        status, body = given[0] if len(given) == 1 else given.pop(0)
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()


@contextmanager
def scripted_api() -> Iterator[Script]:
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            url = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(raw) if raw else None
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            status, answer = script.answer(Asked(self.command, url.path, query, headers, body))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        script.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
