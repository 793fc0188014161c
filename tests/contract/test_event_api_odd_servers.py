"""Odd but real servers on loopback, each for one delivery: what the worker makes of it, and that it asks the same again."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx
import pytest
from contract.raw_server import PATIENCE_S, unanswered
from contract.test_event_api_wire import DOCUMENT, Behaviour, Seen, creates, opened, run, says, server, wired
from unit.connectors_api.wired import SECRET, intent

from connectors.errors import RedirectRefusedError
from connectors.event_api.answers import Kind
from connectors.event_api.transport import Exchange
from mappings.delivery import Blocked, Postponed, Receipt, Refusal, Uncertain, Verdict

BODY = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(DOCUMENT), DOCUMENT)
CREATED = b"HTTP/1.1 201 Created\r\n" + BODY
CHUNKED = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n%b\r\n%x\r\n%b\r\n0\r\n%b\r\n"


@dataclass(frozen=True)
class Odd:
    """How the server answers the first request; the next one it answers well. What becomes of the row, and after how many."""

    behaves: Behaviour
    verdict: type[Verdict]
    requests: int = 1
    attempt_s: float = PATIENCE_S


def envelope(status: int, code: str, *headers: bytes) -> bytes:
    body = b'{"error":{"code":"%b","message":"so it is","requestId":"req_1"}}' % code.encode()
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %d X\r\n%bcontent-length: %d\r\n\r\n%b" % (status, lines, len(body), body)


def page(status: int, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %d X\r\n%bcontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>" % (status, lines)


async def huge(writer: asyncio.StreamWriter) -> bool:
    """Ten megabytes of a success: the id stands at its end."""
    blanks = b" " * (10 << 20)
    return await says(
        b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%b%b" % (len(blanks) + len(DOCUMENT), blanks, DOCUMENT)
    )(writer)


async def resets_amid_the_body(writer: asyncio.StreamWriter) -> bool:
    await says(CREATED[:-20])(writer)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


async def drips(writer: asyncio.StreamWriter) -> bool:
    """One byte at a time, for ever: no wait between two bytes is too long."""
    writer.write(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await asyncio.sleep(0.02)
    return False


async def drips_headers(writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 201 Created\r\nx-slow: ")
    while not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)
    return False


ODD = {
    "1xx before the answer": Odd(
        says(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + CREATED), Receipt
    ),
    "HTTP/1.0": Odd(says(CREATED.replace(b"HTTP/1.1", b"HTTP/1.0"), goes_on=False), Receipt),
    "HTTP/1.0 without a length": Odd(says(b"HTTP/1.0 201 Created\r\n\r\n" + DOCUMENT, goes_on=False), Receipt),
    "chunks with trailers": Odd(says(CHUNKED % (b"trailer: x-sum\r\n", len(DOCUMENT), DOCUMENT, b"x-sum: 1\r\n")), Receipt),
    "chunks with an extension": Odd(
        says((CHUNKED % (b"", len(DOCUMENT), DOCUMENT, b"")).replace(b"\r\n{", b";a=b\r\n{")), Receipt
    ),
    "folded words in the first line": Odd(says(CREATED.replace(b"201 Created", b"201")), Receipt),
    "a byte order mark": Odd(says(b"HTTP/1.1 201 X\r\ncontent-length: 41\r\n\r\n\xef\xbb\xbf" + DOCUMENT), Receipt),
    "no content type": Odd(says(CREATED.replace(b"content-type: application/json\r\n", b"")), Receipt),
    "204": Odd(says(b"HTTP/1.1 204 No Content\r\n\r\n"), Receipt, 2),
    "205": Odd(says(b"HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n"), Receipt, 2),
    "an encoding that nobody knows": Odd(
        says(CREATED.replace(b"\r\ncontent-l", b"\r\ncontent-encoding: x-none\r\ncontent-l")), Receipt
    ),
    "ten megabytes": Odd(huge, Receipt, 2),
    "two lengths": Odd(says(CREATED.replace(b"content-length", b"content-length: 3\r\ncontent-length")), Receipt, 2),
    "a header of a megabyte": Odd(says(b"HTTP/1.1 201 X\r\nx-long: " + b"x" * (1 << 20) + b"\r\n" + BODY), Receipt, 2),
    "a thousand headers": Odd(says(b"HTTP/1.1 201 X\r\n" + b"x-many: 1\r\n" * 1000 + BODY), Receipt, 2),
    "a header with a NUL": Odd(says(b"HTTP/1.1 201 X\r\nx-nul: a\x00b\r\n" + BODY), Receipt, 2),
    "a header without a colon": Odd(says(b"HTTP/1.1 201 X\r\nnonsense\r\n" + BODY), Receipt, 2),
    "reset amid the body": Odd(resets_amid_the_body, Receipt, 2),
    "a body that drips for ever": Odd(drips, Receipt, 2, attempt_s=1.0),
    "headers that drip for ever": Odd(drips_headers, Receipt, 2, attempt_s=1.0),
    **{
        f"{status} as a page": Odd(says(page(status)), Receipt, 2)
        for status in (407, 408, 421, 425, 499, 500, 501, 502, 504, 520, 599)
    },
    "503 with a pause": Odd(says(page(503, b"retry-after: 0.05")), Receipt, 2),
    "304": Odd(says(b"HTTP/1.1 304 Not Modified\r\n\r\n"), Postponed),
    "421 in the service's words": Odd(says(envelope(421, "misdirected")), Receipt, 2),
    "429": Odd(says(envelope(429, "rate_limited", b"retry-after: 0.05")), Receipt, 2),
    "451": Odd(says(envelope(451, "unavailable")), Refusal),
    "403 forbidden": Odd(says(envelope(403, "forbidden")), Blocked),
    "403 without a scope": Odd(says(envelope(403, "insufficient_scope")), Postponed),
    "401": Odd(says(envelope(401, "invalid_api_key")), Postponed),
    **{
        f"{status} leads elsewhere": Odd(says(page(status, b"location: http://127.0.0.1:9/x")), Postponed)
        for status in (300, 301, 302, 303, 305, 307, 308, 399)
    },
}


def delivered(*behaviours: Behaviour, attempt_s: float = PATIENCE_S) -> tuple[Verdict, Seen]:
    async def main() -> tuple[Verdict, Seen]:
        async with server(*behaviours) as (url, seen), opened(url) as http:
            return await wired(http, attempts=2, attempt_s=attempt_s).deliver(intent()), seen

    return run(main)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_each_odd_server_leads_to_its_verdict_and_is_asked_the_same_again(odd: Odd) -> None:
    verdict, seen = delivered(odd.behaves, creates, attempt_s=odd.attempt_s)
    assert isinstance(verdict, odd.verdict), verdict
    assert len(seen.requests) == odd.requests
    assert len(set(seen.requests)) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_takes_the_key_elsewhere(status: int) -> None:
    async def main() -> tuple[Verdict, Seen, Seen]:
        async with server(creates) as (other, there):
            redirect = says(page(status, b"location: %b/x?token=1#frag" % other.encode()))
            async with server(redirect) as (url, here), opened(url) as http:
                return await wired(http).deliver(intent()), here, there

    verdict, here, there = run(main)
    assert isinstance(verdict, Postponed)
    assert isinstance(verdict.cause, RedirectRefusedError)
    assert verdict.is_unanswered
    assert (len(here.requests), len(there.requests)) == (1, 0)
    assert "token" not in str(verdict.cause)
    assert SECRET not in str(verdict.cause)


def test_words_that_a_terminal_would_obey_are_not_kept() -> None:
    body = b'{"error":{"code":"invalid_request","message":"\\u001b[2J gone \\u0000 \\u202e","requestId":"a\\u0000b"}}'
    answer = b"HTTP/1.1 400 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    verdict, _ = delivered(says(answer))
    assert isinstance(verdict, Refusal)
    assert verdict.answer.message.isprintable()
    assert verdict.answer.request_id == "a\ufffdb"


def test_a_kept_connection_that_the_peer_closes_as_it_is_used_again_costs_the_row_nothing() -> None:
    async def closes_at_the_request(_: asyncio.StreamWriter) -> bool:
        return False

    async def main() -> tuple[list[Verdict], Seen]:
        async with server(creates, closes_at_the_request, creates) as (url, seen), opened(url) as http:
            api = wired(http)
            return [await api.deliver(intent(number=1)), await api.deliver(intent(number=2))], seen

    verdicts, seen = run(main)
    assert all(isinstance(verdict, Receipt) for verdict in verdicts)
    assert seen.requests[1] == seen.requests[2]


async def _accepts_only(main: Callable[[str], Awaitable[object]], scheme: str) -> object:
    """A host that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return await main(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize(
    ("scheme", "timeouts", "reached"),
    [
        ("http", httpx.Timeout(PATIENCE_S, read=0.2), Kind.LOST),
        ("https", httpx.Timeout(PATIENCE_S, connect=0.2), Kind.NOT_REACHED),
    ],
    ids=["no first byte", "no TLS handshake"],
)
def test_silence_is_told_apart_by_how_far_the_request_came(scheme: str, timeouts: httpx.Timeout, reached: Kind) -> None:
    async def ask(url: str) -> object:
        async with opened(url) as http:
            http.timeouts = timeouts
            exchange = Exchange(http, attempt_s=PATIENCE_S)
            return await exchange(exchange.request("POST", exchange.url("/events"), content=b"{}"))

    assert unanswered(run(lambda: _accepts_only(ask, scheme))).kind is reached


def test_a_peer_that_never_reads_is_given_up_within_the_time_of_an_attempt() -> None:
    async def ask(url: str) -> object:
        async with opened(url) as http:
            exchange = Exchange(http, attempt_s=1.0)
            return await exchange(exchange.request("POST", exchange.url("/events"), content=b"x" * 1_000_000))

    assert unanswered(run(lambda: _accepts_only(ask, "http"))).kind is Kind.LOST


def test_a_row_is_uncertain_where_every_answer_is_cut_short() -> None:
    verdict, seen = delivered(says(CREATED[:-5], goes_on=False))
    assert isinstance(verdict, Uncertain)
    assert len(seen.requests) == 2
