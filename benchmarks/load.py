"""A client that costs little: raw HTTP/1.1 over kept connections, so that the server is what is measured."""

import asyncio
import json
import time


async def post_all(port: int, bodies: list[bytes], callers: int) -> float:
    """POST every body to /v1/events with `callers` at a time; seconds. Raises when an answer is not 2xx."""
    queue = iter(bodies)

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in queue:
            writer.write(b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            if answer[9:10] != b"2":
                raise RuntimeError(answer.decode())
            length = next(
                int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
        writer.close()

    began = time.monotonic()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return time.monotonic() - began


def bodies(event_type: str, prefix: str, count: int) -> list[bytes]:
    """Events of about 600 bytes."""
    data = {
        "n": 1,
        "customer": {"id": 17, "name": "Ann Example"},
        "lines": [{"sku": f"sku-{n}", "qty": n} for n in range(14)],
    }
    return [json.dumps({"event_id": f"{prefix}-{n}", "type": event_type, "data": data}).encode() for n in range(count)]
