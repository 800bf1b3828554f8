"""GET from an address that a sender names: to the public internet alone, whatever its name resolves to.

The name is resolved once, every address it has is checked, and the connection goes to one of those: a second answer of
the resolver can't lead elsewhere.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import httpx

from activity_core.domain.addresses import is_public

MAX_BYTES = 64 * 1024
SECONDS = 5.0

Resolve = Callable[[str, int], Awaitable[list[str]]]
# (URL) -> body; raises EgressError
Fetch = Callable[[str], Awaitable[bytes]]


class EgressError(Exception):
    """Nothing usable came from there; the text says why."""


class NotThereError(EgressError):
    """It answered that there is no such thing, or the resolver that there is no such host: asking again changes nothing."""


async def resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


async def fetch(url: str, *, resolve: Resolve = resolve, verify: bool = True) -> bytes:
    """The body of an https URL that answers 200: at most 64 KiB, in five seconds, no redirects. Raises EgressError."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    if parts.scheme != "https" or not host or parts.username is not None:
        raise EgressError("not an https URL")
    try:
        async with asyncio.timeout(SECONDS):
            address = await _checked(host, port, resolve)
            return await _get(url, host, address, verify)
    except TimeoutError as error:
        raise EgressError(f"no answer within {SECONDS:g} s") from error
    except (httpx.HTTPError, OSError, ValueError) as error:
        raise EgressError(f"{type(error).__name__}") from error


async def _checked(host: str, port: int, resolve: Resolve) -> str:
    try:
        addresses = await resolve(host, port)
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            raise NotThereError("there is no such host") from error
        raise
    if not addresses or not all(is_public(address) for address in addresses):
        raise EgressError("its name does not resolve to public addresses alone")
    return addresses[0]


async def _get(url: str, host: str, address: str, verify: bool) -> bytes:
    target = httpx.URL(url).copy_with(host=address)
    headers = {"Host": host, "User-Agent": "activity-core", "Accept-Encoding": "identity"}
    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, verify=verify) as client,  # noqa: S113 (bounded by the caller)
        client.stream("GET", target, headers=headers, extensions={"sni_hostname": host}) as response,
    ):
        if 400 <= response.status_code < 500:
            raise NotThereError(f"answered {response.status_code}")
        if response.status_code != 200:
            raise EgressError(f"answered {response.status_code}")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_BYTES:
                raise EgressError(f"answered more than {MAX_BYTES} bytes")
        return bytes(body)
