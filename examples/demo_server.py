"""The other side of `digest.yaml` and `consumers.yaml`: gives orders and takes messages. Python's own library only.

    python examples/demo_server.py [PORT]      8099 if left out

GET /orders lists orders, POST /deliveries takes a message, GET /deliveries lists the messages taken.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST, PORT = "127.0.0.1", 8099
MAX_BYTES = 1024 * 1024
ORDERS = [
    {"customer": "ada@example.org", "open_orders": 3},
    {"customer": "grace@example.org", "open_orders": 1},
    {"customer": "edsger@example.org", "open_orders": 0},
    {"customer": "barbara@example.org", "open_orders": 2},
]


class DemoServer(ThreadingHTTPServer):
    """Keeps one record for each key: a delivery that is repeated is counted, and has no second effect."""

    daemon_threads = True

    def __init__(self, port: int = PORT, *, shows: bool = True) -> None:
        super().__init__((HOST, port), _Handler)
        self._shows = shows
        self._lock = threading.Lock()
        self._records: dict[str, dict[str, Any]] = {}

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def take(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            record = self._records.setdefault(
                key,
                {"key": key, "times": 0, "reference": f"message-{len(self._records) + 1}", "data": body.get("data")},
            )
            record["times"] += 1
            if self._shows:
                print(f"{key}  {json.dumps(record['data'])}  {record['times']} time(s)", flush=True)
            return dict(record)

    def deliveries(self) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(record) for record in self._records.values()]


class _Handler(BaseHTTPRequestHandler):
    server: DemoServer
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/orders":
            self._answer(200, {"items": ORDERS})
        elif path == "/deliveries":
            self._answer(200, {"items": self.server.deliveries()})
        else:
            self._answer(404, {"error": "GET /orders or /deliveries"})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BYTES:
            self.close_connection = True
            self._answer(413, {"error": f"send at most {MAX_BYTES} bytes, with their Content-Length"})
            return
        raw = self.rfile.read(int(length))
        key = self.headers.get("Idempotency-Key", "")
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if self.path != "/deliveries" or not key or not isinstance(body, dict):
            self._answer(400, {"error": "POST a JSON object to /deliveries, with an Idempotency-Key"})
            return
        record = self.server.take(key, body)
        self._answer(201 if record["times"] == 1 else 200, {"reference": record["reference"]})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_arguments: Any) -> None:
        """Quiet: what matters is printed above."""


def main() -> None:
    server = DemoServer(int(sys.argv[1]) if len(sys.argv) > 1 else PORT)
    print(f"Orders at http://{HOST}:{server.port}/orders, messages at /deliveries. Stop with Ctrl-C.", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
