"""GET for a sender: to public addresses alone, whatever the name resolves to, and bounded in every way."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from activity_core.services import egress
from activity_core.services.egress import EgressError, NotThereError, fetch

HOST = "sns.eu-west-1.amazonaws.com"


def resolves_to(*addresses: str) -> egress.Resolve:
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == (HOST, port)
        return list(addresses)

    return resolve


@pytest.mark.parametrize(
    "addresses", [("127.0.0.1",), ("169.254.169.254",), ("8.8.8.8", "10.0.0.1"), ("::1",), (), ("::ffff:127.0.0.1",)]
)
async def test_a_name_of_ours_is_not_called(addresses: tuple[str, ...]) -> None:
    with pytest.raises(EgressError, match="public addresses"):
        await fetch(f"https://{HOST}/x.pem", resolve=resolves_to(*addresses))


@pytest.mark.parametrize("url", ["http://sns.eu-west-1.amazonaws.com/", "https://u@sns.eu-west-1.amazonaws.com/", "x"])
async def test_only_plain_https_urls_are_called(url: str) -> None:
    with pytest.raises(EgressError, match="https"):
        await fetch(url, resolve=resolves_to("8.8.8.8"))


@pytest.mark.parametrize(("code", "final"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
async def test_a_host_that_is_not_there_will_not_be_and_a_resolver_that_is_away_may_come_back(
    code: int, final: bool
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(code, "as the resolver says")

    with pytest.raises(EgressError) as refused:
        await fetch(f"https://{HOST}/x.pem", resolve=resolve)
    assert isinstance(refused.value, NotThereError) is final


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = rsa.generate_private_key(65_537, 2_048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file


@contextlib.asynccontextmanager
async def serving(
    certificate: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTPS server on loopback, which for this once counts as public; (its URL, the hosts that were asked for)."""
    hosts: list[str] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            hosts.append(next(line for line in head.split("\r\n") if line.startswith("host:")))
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(egress, "is_public", lambda address: address == "127.0.0.1")
    try:
        yield f"https://{HOST}:{port}/SimpleNotificationService-1.pem", hosts
    finally:
        server.close()


def answer(head: str, body: bytes = b"") -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    return serve


async def get(url: str) -> bytes:
    return await fetch(url, resolve=resolves_to("127.0.0.1"), verify=False)


async def test_the_checked_address_is_called_by_its_name(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(certificate, answer("200 OK", b"pem"), monkeypatch) as (url, hosts):
        assert await get(url) == b"pem"
        assert hosts == [f"host: {HOST}"]


async def test_a_certificate_that_nobody_vouches_for_is_not_taken(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(certificate, answer("200 OK", b"pem"), monkeypatch) as (url, hosts):
        with pytest.raises(EgressError):
            await fetch(url, resolve=resolves_to("127.0.0.1"))
        assert hosts == []


@pytest.mark.parametrize(
    "head", ["302 Found\r\nlocation: https://127.0.0.1/", "404 Not Found", "500 Internal Server Error"]
)
async def test_nothing_but_a_200_counts_and_nothing_is_followed(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    async with serving(certificate, answer(head), monkeypatch) as (url, hosts):
        with pytest.raises(EgressError, match="answered"):
            await get(url)
        assert len(hosts) == 1


async def test_a_large_answer_is_cut(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(certificate, answer("200 OK", b"x" * 100_000), monkeypatch) as (url, _):
        with pytest.raises(EgressError, match="more than"):
            await get(url)


async def test_a_dripping_answer_is_cut(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)  # the drip itself

    monkeypatch.setattr(egress, "SECONDS", 0.3)
    async with serving(certificate, drip, monkeypatch) as (url, _):
        with pytest.raises(EgressError, match="no answer within"):
            await get(url)
