"""Sources as their documents have them, for the senders of the domain's tests, and requests signed as of now."""

import re
import time
from typing import Any

import httpx

from tests.api.conftest import Api
from tests.domain.webhooks.support import SENDERS, Headers, Sender

Json = dict[str, Any]

DOCUMENTS: dict[str, Json] = {
    "hmac": {
        "signature": {
            "header": "X-Own-Signature",
            "algorithm": "sha512",
            "encoding": "base64",
            "prefix": "sig=",
            "signed": "{timestamp}|{id}|{body}",
            "timestamp_header": "X-Own-Time",
            "timestamp_unit": "milliseconds",
            "id_header": "X-Own-Id",
        }
    },
}
BY_NAME = {sender.name: sender for sender in SENDERS}


def document(sender: Sender, slug: str, **more: Any) -> Json:
    made = {"slug": slug, "scheme": sender.name, "secrets": [sender.secrets[0]]}
    return {**made, **DOCUMENTS.get(sender.name, {}), **more}


async def source(api: Api, value: Json) -> Json:
    """Create or replace it."""
    answer = await api.http.put(f"/v1/sources/{value['slug']}", json=value)
    assert answer.status_code in (200, 201), answer.text
    made: Json = answer.json()
    return made


async def post(api: Api, slug: str, headers: Headers, body: bytes) -> httpx.Response:
    return await api.http.post(f"/v1/webhooks/{slug}", headers=headers, content=body)


def signed(sender: Sender, *, offset: int = 0, secret: str | None = None, body: bytes | None = None) -> Headers:
    return sender.headers(at=int(time.time()) + offset, secret=secret, body=body)


async def receipts(api: Api, slug: str, **query: str) -> list[Json]:
    answer = await api.http.get(f"/v1/sources/{slug}/requests", params=query)
    assert answer.status_code == 200, answer.text
    found: list[Json] = answer.json()["items"]
    return found


def reason(answer: httpx.Response) -> str:
    errors = answer.json()["errors"]
    return str(errors[0]["code"]) if errors else ""


_COUNTED = re.compile(
    r'activity_core_webhook_requests_total\{source="([^"]*)",result="([^"]*)",reason_code="([^"]*)"\} (\d+)'
)


async def counted(api: Api, slug: str) -> dict[tuple[str, str], int]:
    """The requests of a source in /metrics, by (result, reason_code)."""
    text = (await api.http.get("/metrics")).text
    return {(result, why): int(n) for name, result, why, n in _COUNTED.findall(text) if name == slug}
