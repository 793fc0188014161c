"""The way to the service: certificates, proxies, connections that end while they are idle, and a key that nothing shows."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import traceback
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from contract.raw_server import Seen, asked_once, creates, delivered, opened, run, server, unanswered
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr
from unit.connectors_api.wired import SECRET, Scripted, Service, ask, intent, page, told

from connectors.errors import BaseUrlError, CertificateError, KeyFormatError, ProxyAddressError
from connectors.event_api.answers import AnswerKind, HttpAnswer
from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import check_base_url, open_http
from mappings.delivery import Postponed, Receipt

PASSWORD = "proxy+s3cret/word"
FOR_EVER = timedelta(days=36_500)
NOW = datetime.now(UTC)  # noqa: TID251  # certificates are judged by the machine's own clock


def server_tls(folder: Path, *names: x509.GeneralName, until: datetime = NOW + FOR_EVER) -> ssl.SSLContext:
    """Return what a server speaks TLS by, with a certificate signed by itself in `folder`/server.pem."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), NOW - timedelta(days=30), until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    return context


USAGE = x509.KeyUsage(True, *[False] * 4, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
"""What its key may do; from Python 3.13 on a certificate that leaves it open is refused (RFC 5280, 4.2.1.3)."""
LOOPBACK = x509.IPAddress(ip_address("127.0.0.1"))


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What a server on loopback speaks TLS by, whose certificate is the only one that this machine trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    return server_tls(tmp_path, LOOPBACK)


@dataclass
class Proxy:
    """A proxy that tunnels to wherever it is asked for, or answers `refusal` instead; it keeps what it was asked."""

    refusal: bytes = b""
    asked: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        asked = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(asked)
        if self.refusal:
            writer.write(self.refusal)
        else:
            host, _, port = asked.split(b" ")[1].decode().rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self.writers.append(far_writer)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        listening = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        finally:
            listening.close()
            for writer in self.writers:
                writer.transport.abort()
            await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
    writer.close()


@pytest.mark.parametrize(
    ("name", "until", "is_trusted", "says"),
    [
        (x509.DNSName("events.example.org"), NOW + FOR_EVER, True, "certificate is not valid for '127.0.0.1'"),
        (LOOPBACK, NOW - timedelta(days=1), True, "certificate has expired"),
        (LOOPBACK, NOW + FOR_EVER, False, "certificate verify failed: self-signed certificate"),
    ],
    ids=["of another name", "of yesterday", "untrusted"],
)
def test_a_wrong_certificate_is_refused_and_said_so(
    name: x509.GeneralName, until: datetime, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_trusted: bool
) -> None:
    tls = server_tls(tmp_path, name, until=until)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))

    async def main() -> tuple[object, Seen]:
        async with server(creates, tls=tls) as (url, seen):
            return await asked_once(url), seen

    told, seen = run(main)
    assert unanswered(told).kind is AnswerKind.UNTRUSTED
    assert says in unanswered(told).answer.message
    assert not seen.requests


def not_reached(told: object) -> str:
    """Return why nothing was reached."""
    assert unanswered(told).kind is AnswerKind.NOT_REACHED
    assert "proxysecretword" not in repr(told)
    return unanswered(told).answer.message


def through_proxy(
    tls: ssl.SSLContext, proxy: Proxy, env: pytest.MonkeyPatch, *, login: str = "", none_for: str = ""
) -> tuple[object, Seen]:
    async def main() -> tuple[object, Seen]:
        async with server(creates, tls=tls) as (url, seen), proxy.listening() as address:
            env.setenv("https_proxy", f"http://{login}{address}")
            env.setenv("no_proxy", none_for)
            return await asked_once(url), seen

    return run(main)


@pytest.mark.parametrize("login", ["", f"feeds:{PASSWORD.replace('/', '%2F')}@"], ids=["without a login", "with a login"])
def test_a_proxy_tunnels_and_sees_its_own_login_but_neither_key_nor_body(
    login: str, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy()
    _, seen = through_proxy(trusted, proxy, monkeypatch, login=login)
    (asked,), (request,) = proxy.asked, seen.requests
    assert asked.startswith(b"CONNECT ")
    assert (SECRET.encode() in asked, SECRET.encode() in request) == (False, True)
    sent = re.findall(rb"proxy-authorization: (.*)\r\n", asked, re.IGNORECASE)
    assert sent == [b"Basic " + b64encode(f"feeds:{PASSWORD}".encode())] * bool(login)
    assert b"proxy-authorization" not in request.lower()


def test_a_host_that_no_proxy_names_is_asked_directly(trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    _, seen = through_proxy(trusted, proxy, monkeypatch, none_for="127.0.0.1")
    assert len(seen.requests) == 1
    assert not proxy.asked


@pytest.mark.parametrize("status", [b"403 Forbidden", b"407 Proxy Authentication Required", b"502 Bad Gateway"])
def test_a_proxy_that_refuses_means_not_reached_and_its_password_is_not_shown(
    status: bytes, trusted: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
    told, seen = through_proxy(trusted, proxy, monkeypatch, login="feeds:proxysecretword@")
    assert not_reached(told) == f"the proxy let nothing through: it answers {status[:3].decode()}"
    assert not seen.requests


def test_a_proxy_that_is_not_there_means_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://feeds:proxysecretword@127.0.0.1:9")

    async def main() -> object:
        return await asked_once("https://events.example.org")

    assert not_reached(run(main)).startswith("the proxy let nothing through: connect call failed")


@pytest.mark.parametrize("address", ["socks5://proxysecretword@127.0.0.1:9", "http://proxysecretword:x", "ftp://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", address)
    with pytest.raises(ProxyAddressError) as raised:
        open_http("https://events.example.org", SecretStr(SECRET))
    assert "set HTTPS_PROXY" in raised.value.hint
    assert "proxysecretword" not in f"{raised.value} {raised.value.hint}"


@pytest.mark.parametrize("content", [None, "no certificate"], ids=["missing", "not a certificate"])
def test_certificates_that_cannot_be_read_are_named_by_their_variable(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(CertificateError) as raised:
        open_http("https://events.example.org", SecretStr(SECRET))
    assert "SSL_CERT_FILE" in raised.value.hint


def test_a_certificate_that_is_not_accepted_stops_the_route_and_asks_for_a_person(tmp_path: Path) -> None:
    tls = server_tls(tmp_path, LOOPBACK)
    (verdict,), seen = delivered(creates, tls=tls)
    assert isinstance(verdict, Postponed)
    assert isinstance(verdict.cause, CertificateError)
    assert not seen.requests


def keys_of(seen: Seen) -> set[bytes]:
    return {re.findall(rb"idempotency-key: (.*)\r\n", request, re.IGNORECASE)[0] for request in seen.requests}


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "over TLS"])
def test_connections_are_used_again_for_as_many_requests_as_there_are(*, is_secure: bool, trusted: ssl.SSLContext) -> None:
    tls = trusted if is_secure else None
    verdicts, seen = delivered(creates, rows=120, in_flight=6, tls=tls)
    assert all(isinstance(verdict, Receipt) for verdict in verdicts)
    assert len(keys_of(seen)) == len(seen.requests) == 120
    assert seen.connections <= 6


@pytest.mark.parametrize("rest_s", [0.0, 0.01])
def test_a_server_that_ends_connections_between_requests_costs_no_row_and_doubles_none(rest_s: float) -> None:
    """Where it ends one in the very moment of our next request, that one is sent again under its key."""

    async def creates_and_leaves(writer: asyncio.StreamWriter) -> bool:
        await creates(writer)
        return False

    verdicts, seen = delivered(*[creates, creates_and_leaves] * 40, rows=40, in_flight=4, rest_s=rest_s, attempts=4)
    events = [verdict.event_id for verdict in verdicts if isinstance(verdict, Receipt)]
    assert len(set(events)) == 40
    assert len(keys_of(seen)) == 40


def test_a_body_that_is_refused_before_it_was_read_is_told_and_its_connection_left() -> None:
    """A server may answer 413 by the headers alone, and read no further."""
    refusal = b'{"error":{"code":"payload_too_large","message":"too large","requestId":"req_1"}}'
    answer = b"HTTP/1.1 413 Content Too Large\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"

    async def main() -> tuple[list[object], int]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer % (len(refusal), refusal))

        writers: list[asyncio.StreamWriter] = []
        listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
        async with opened(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", in_flight=1) as http:
            big = http.request("POST", http.url("/media"), content=b"x" * (8 << 20))
            told: list[object] = [await http.exchange(big), await http.exchange(big)]
        listening.close()
        for writer in writers:
            writer.transport.abort()
        return told, len(writers)

    told, connections = run(main)
    assert [one.status for one in told if isinstance(one, HttpAnswer)] == [413, 413]
    assert connections == 2


DETAILS = {"field": SECRET, "issue": SECRET}
ECHO = {"error": {"code": f"c {SECRET}", "message": f"Bearer {SECRET}", "requestId": SECRET, "details": DETAILS}}
BASIC = b64encode(f"user:{SECRET}".encode()).decode()
LEAKS: dict[str, list[Scripted]] = {
    "an envelope that repeats the key": [httpx.Response(400, json=ECHO)],
    "a page that repeats the key": [page(404, f"<p>{SECRET}</p>")],
    "a rejected key": [told(401, "invalid_api_key")],
    "a missing scope": [told(403, "insufficient_scope")],
    "a redirect with the key": [httpx.Response(302, headers={"location": f"https://x.example/?key={SECRET}"})],
    "an encoded echo": [page(400, f"{quote(SECRET)} {BASIC} {SECRET.encode().hex()}")],
    "a success that repeats the key": [httpx.Response(201, json={"doc": SECRET}, headers={"x-request-id": SECRET})],
    "a used key, in words that repeat it": [told(409, f"conflict {SECRET}")],
    "a status line that repeats the key": [httpx.RemoteProtocolError(f"no HTTP answer: Bearer {SECRET}")],
    "a proxy that repeats the key": [httpx.ProxyError(f"407 {SECRET}")],
    "silence": [httpx.ReadTimeout("silence")],
    "no connection": [httpx.ConnectError("refused")],
    "an unreadable success": [page(200)],
}


@pytest.mark.parametrize("says", LEAKS.values(), ids=LEAKS.keys())
def test_the_key_is_in_no_verdict_error_or_log(says: list[Scripted], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []

    async def asked(api: EventApi) -> None:
        verdict = await api.deliver(intent())
        texts.extend((repr(verdict), repr(api), repr(api.stopped)))
        if isinstance(verdict, Postponed):
            texts.extend((str(verdict.cause), verdict.cause.hint))
        try:
            await api.channels()
        except Exception as problem:  # noqa: BLE001  # whatever it is, its whole chain is looked through
            texts.append("".join(traceback.format_exception(problem)))

    ask(Service(says), asked)
    texts.append(repr(open_http("https://events.example.org", SecretStr(SECRET))))
    spellings = {SECRET, SECRET[-5:], quote(SECRET), b64encode(SECRET.encode())[:-4].decode(), SECRET.encode().hex()}
    assert not [text for text in [*texts, caplog.text] if any(one in text for one in spellings)]


@pytest.mark.parametrize("key", ["", "   ", "sk live", "sk\nlive-secret", "sk\r\nx: y", "schlüssel-geheim", "sk_\x00"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(KeyFormatError) as raised:
        open_http("https://events.example.org", SecretStr(key))
    assert not key.strip() or key.strip() not in str(raised.value)


GOOD = {
    "https://events.example.org": "https://events.example.org/",
    "https://events.example.org/": "https://events.example.org/",
    " https://events.example.org ": "https://events.example.org/",
    "HTTPS://Events.Example.org:8443/": "https://events.example.org:8443/",
    "https://example.org/events/": "https://example.org/events",
    "https://example.org/events/api/public/v1": "https://example.org/events",
    "https://example.org/api/public/v1/": "https://example.org/",
    "https://bücher.example": "https://xn--bcher-kva.example/",
    **{f"http://{host}": f"http://{host}/" for host in ("localhost:8080", "127.9.9.9", "[::1]:8080", "sandbox.localhost")},
}
BAD = [
    *("", "events.example.org", "ftp://localhost", "https://", "https://[::1", "https://events.example.org:notaport"),
    *("http://events.example.org", "http://10.0.0.1", "http://localhost.example.org", "http://127.0.0.1.example.org"),
    *("https://user:password@events.example.org", "https://events.example.org/?a=b", "https://events.example.org/#x"),
]


@pytest.mark.parametrize(("url", "opened"), GOOD.items(), ids=GOOD.keys())
def test_an_address_is_accepted_in_each_of_its_spellings(url: str, opened: str) -> None:
    assert str(check_base_url(url)) == str(httpx.URL(opened))


@pytest.mark.parametrize("url", BAD, ids=[repr(url) for url in BAD])
def test_an_address_that_would_give_the_key_away_is_refused(url: str) -> None:
    with pytest.raises(BaseUrlError) as raised:
        check_base_url(url)
    assert "password" not in str(raised.value) or "holds a user name" in str(raised.value)
    assert raised.value.hint
