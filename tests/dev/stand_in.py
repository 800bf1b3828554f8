"""A stand-in for one of our four commands, so that the supervisor can be tried without them.

    python stand_in.py NAME BEHAVIOUR DATA_DIR

Behaviours: `serve` (api: answers 200; others: wait for SIGTERM), `fail` (exit 3 with a line), `deaf` (ignores SIGTERM),
`fail-later` (exit 4 once the file DATA_DIR/fail exists).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from activity_core.processes import stop_event, watch_parent


async def serve(name: str, behaviour: str, data_dir: Path) -> int:
    with stop_event() as stop:
        if name == "api":
            host, port = os.environ["ACTIVITY_CORE_API_HOST"], os.environ["ACTIVITY_CORE_API_PORT"]
            await asyncio.start_server(_answer, host, int(port))
        print("stand-in serves", flush=True)
        while not stop.is_set():
            if behaviour == "fail-later" and (data_dir / "fail").exists():
                print("stand-in gives up", flush=True)
                return 4
            await asyncio.sleep(0.05)
        if behaviour == "deaf":
            await asyncio.Event().wait()
    print("stand-in ended in order", flush=True)
    return 0


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    await writer.drain()
    writer.close()


def main(arguments: list[str]) -> int:
    name, behaviour, data_dir = arguments
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    watch_parent()
    if behaviour == "fail":
        print("stand-in can't go on", flush=True)
        return 3
    if name == "migrate":
        return 0
    return asyncio.run(serve(name, behaviour, Path(data_dir)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
