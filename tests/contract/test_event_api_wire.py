"""The wire itself: a real server on loopback that resets, cuts off, dawdles, talks nonsense or is merely odd."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import httpx
import pytest
from contract.raw_server import (
    CREATED,
    DOCUMENT,
    PATIENCE_S,
    Behaviour,
    Seen,
    asked_once,
    creates,
    delivered,
    opened,
    run,
    says,
    server,
    unanswered,
    wired,
)
from unit.connectors_api.wired import SECRET, intent

from connectors.errors import RedirectRefusedError
from connectors.event_api.answers import AnswerKind, HttpAnswer, Meaning
from connectors.event_api.transport import direct_wire, resolve_by_system
from mappings.delivery import Postponed, Receipt, Refusal, Uncertain, Verdict

HUGE = b" " * (10 << 20) + DOCUMENT
BODY = CREATED.partition(b"\r\n")[2]
PACKED = b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b"
PACKED_DOCUMENT = gzip.compress(DOCUMENT)
EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
ENDLESS = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNKED = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n%b\r\n%x\r\n%b\r\n0\r\n%b\r\n"


def resets(beginning: bytes = b"") -> Behaviour:
    """Say the beginning of an answer, then reset the connection."""

    async def behave(writer: asyncio.StreamWriter) -> bool:
        await says(beginning)(writer)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    return behave


async def hangs(_: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(2 * PATIENCE_S)
    return False


@dataclass(frozen=True)
class Odd:
    """How the server answers the first request; the next one it answers well. What becomes of the row, and after how many."""

    behaves: Behaviour
    verdict: type[Verdict]
    requests: int = 1
    attempt_s: float = PATIENCE_S
    silence_s: float = PATIENCE_S


def drips(head: bytes, drop: bytes, *, gap_s: float = 0.02) -> Behaviour:
    """Say the head, then the same few bytes for ever: no wait between two bytes is too long."""

    async def behave(writer: asyncio.StreamWriter) -> bool:
        writer.write(head)
        while not writer.is_closing():
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(gap_s)
        return False

    return behave


ODD = {
    "1xx before the answer": Odd(says(EARLY + CREATED), Receipt),
    "HTTP/1.0": Odd(says(CREATED.replace(b"HTTP/1.1", b"HTTP/1.0"), goes_on=False), Receipt),
    "HTTP/1.0 without a length": Odd(says(b"HTTP/1.0 201 Created\r\n\r\n" + DOCUMENT, goes_on=False), Receipt),
    "chunks with trailers": Odd(says(CHUNKED % (b"trailer: x-sum\r\n", len(DOCUMENT), DOCUMENT, b"x-sum: 1\r\n")), Receipt),
    "chunks with an extension": Odd(says((CHUNKED % (b"", 38, DOCUMENT, b"")).replace(b"\r\n{", b";a=b\r\n{")), Receipt),
    "folded words in the first line": Odd(says(CREATED.replace(b"201 Created", b"201")), Receipt),
    "a reason phrase in Latin-1": Odd(says(CREATED.replace(b"Created", b"Cr\xe9\xe9")), Receipt),
    "a header of 20 kilobytes": Odd(says(b"HTTP/1.1 201 X\r\nx-long: " + b"x" * 20_000 + b"\r\n" + BODY), Receipt),
    "no content type": Odd(says(CREATED.replace(b"content-type: application/json\r\n", b"")), Receipt),
    "204": Odd(says(b"HTTP/1.1 204 No Content\r\n\r\n"), Receipt, 2),
    "205": Odd(says(b"HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n"), Receipt, 2),
    "an unknown encoding": Odd(says(b"HTTP/1.1 201 X\r\ncontent-encoding: x-none\r\n" + BODY), Receipt),
    "ten megabytes": Odd(says(b"HTTP/1.1 201 X\r\ncontent-length: %d\r\n\r\n%b" % (len(HUGE), HUGE)), Receipt, 2),
    "two lengths": Odd(says(CREATED.replace(b"content-length", b"content-length: 3\r\ncontent-length")), Receipt, 2),
    "a header of a megabyte": Odd(says(b"HTTP/1.1 201 X\r\nx-long: " + b"x" * (1 << 20) + b"\r\n" + BODY), Receipt, 2),
    "a thousand headers": Odd(says(b"HTTP/1.1 201 X\r\n" + b"x-many: 1\r\n" * 1000 + BODY), Receipt, 2),
    "a header with a NUL": Odd(says(b"HTTP/1.1 201 X\r\nx-nul: a\x00b\r\n" + BODY), Receipt, 2),
    "a header without a colon": Odd(says(b"HTTP/1.1 201 X\r\nnonsense\r\n" + BODY), Receipt, 2),
    "reset after the request": Odd(resets(), Receipt, 2),
    "reset amid the body": Odd(resets(CREATED[:-20]), Receipt, 2),
    "closed after the request": Odd(says(b"", goes_on=False), Receipt, 2),
    "closed amid the headers": Odd(says(CREATED[:30], goes_on=False), Receipt, 2),
    "closed amid the body": Odd(says(CREATED[:-20], goes_on=False), Receipt, 2),
    "closed amid a chunk": Odd(says((CHUNKED % (b"", 99, DOCUMENT, b""))[:-9], goes_on=False), Receipt, 2),
    "no HTTP": Odd(says(b"220 mail.example.org ESMTP\r\n\r\n", goes_on=False), Receipt, 2),
    "silence": Odd(hangs, Receipt, 2, silence_s=1.0),
    "silence in the body": Odd(says(CREATED[:-20]), Receipt, 2, silence_s=1.0),
    "a broken content encoding": Odd(says(PACKED % (4, b"nope")), Receipt, 2),
    "a packed answer that was not asked for": Odd(says(PACKED % (len(PACKED_DOCUMENT), PACKED_DOCUMENT)), Receipt),
    "a body that drips for ever": Odd(drips(ENDLESS, b"1\r\n \r\n"), Receipt, 2, attempt_s=1.0),
    "headers that drip for ever": Odd(drips(b"HTTP/1.1 201 Created\r\nx-slow: ", b"x"), Receipt, 2, attempt_s=1.0),
    "304": Odd(says(b"HTTP/1.1 304 Not Modified\r\n\r\n"), Postponed),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_each_odd_server_leads_to_its_verdict_and_is_asked_the_same_again(odd: Odd) -> None:
    (verdict,), seen = delivered(odd.behaves, creates, attempt_s=odd.attempt_s, silence_s=odd.silence_s)
    assert isinstance(verdict, odd.verdict), verdict
    assert len(seen.requests) == odd.requests
    if isinstance(verdict, Receipt):
        assert verdict.copies == odd.requests
    assert len(set(seen.requests)) == 1


def test_an_answer_that_cannot_be_read_is_said_to_be_so_and_not_an_outage() -> None:
    (verdict,), seen = delivered(says(b"HTTP/1.1 201 X\r\nx-long: " + b"x" * (1 << 20) + b"\r\n" + BODY), attempts=2)
    assert isinstance(verdict, Uncertain)
    assert "its answer cannot be read: Got more than 65536 bytes" in verdict.answer.message
    assert (verdict.copies, len(seen.requests)) == (2, 2)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308, 399])
def test_no_redirect_takes_the_key_elsewhere(status: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nlocation: http://127.0.0.1:1/x?token=1#frag\r\ncontent-length: 0\r\n\r\n" % status
    (verdict,), seen = delivered(says(answer))
    assert isinstance(verdict, Postponed)
    assert isinstance(verdict.cause, RedirectRefusedError)
    assert (verdict.copies, len(seen.requests)) == (1, 1)
    assert [word in str(verdict.cause) for word in ("/x", "token", SECRET)] == [True, False, False]


def test_words_that_a_terminal_would_obey_are_not_kept() -> None:
    body = b'{"error":{"code":"invalid_request","message":"\\u001b[2J gone \\u0000 \\u202e","requestId":"a\\u0000b"}}'
    answer = b"HTTP/1.1 400 X\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    (verdict,), _ = delivered(says(answer))
    assert isinstance(verdict, Refusal)
    assert verdict.answer.message.isprintable()
    assert verdict.answer.request_id == "a\ufffdb"


@pytest.mark.parametrize(
    ("scheme", "limits", "reached"),
    [
        ("http", {"sock_read": 0.2}, AnswerKind.LOST),
        ("http", {"attempt_s": 1.0}, AnswerKind.LOST),
        ("https", {"sock_connect": 0.2}, AnswerKind.NOT_REACHED),
    ],
    ids=["no first byte", "a peer that never reads", "no TLS handshake"],
)
def test_silence_is_told_apart_by_how_far_the_request_came(scheme: str, limits: dict[str, float], reached: AnswerKind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it takes connections and never says a word
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        assert unanswered(run(lambda: asked_once(url, **limits))).kind is reached


def test_where_no_service_listens_it_is_not_reached() -> None:
    for url in ("http://127.0.0.1:9", "http://no.such.name.invalid.localhost:1"):
        assert unanswered(run(partial(asked_once, url))).kind is AnswerKind.NOT_REACHED


@pytest.mark.parametrize("breakage", [resets(), says(b"", goes_on=False)], ids=["reset", "close"])
@pytest.mark.parametrize("is_kept_alive", [False, True], ids=["fresh connection", "kept-alive connection"])
def test_no_request_is_repeated_behind_our_back(breakage: Behaviour, is_kept_alive: bool) -> None:
    (*before, last), seen = delivered(*[creates] * is_kept_alive, breakage, rows=1 + is_kept_alive, attempts=1)
    assert all(isinstance(verdict, Receipt) for verdict in before)
    assert isinstance(last, Uncertain)
    assert (last.attempts, len(seen.requests), seen.connections) == (1, 1 + is_kept_alive, 1)


def test_a_cancelled_delivery_leaves_the_client_usable() -> None:
    async def main() -> object:
        async with server(hangs, creates) as (url, _), opened(url, in_flight=1) as http:
            api = wired(http)
            task = asyncio.ensure_future(api.deliver(intent(number=1)))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await api.deliver(intent(number=2))

    assert isinstance(run(main), Receipt)


def test_a_request_that_may_leave_no_more_is_not_written_and_the_next_one_is() -> None:
    async def main() -> tuple[Seen, object]:
        async with server(creates) as (url, seen), opened(url) as http:
            request = http.request("POST", http.url("/events"), content=b"{}")
            assert await http.exchange(request, lambda: False) is None
            assert not seen.requests
            return seen, await http.exchange(request)

    seen, answer = run(main)
    assert len(seen.requests) == 1
    assert isinstance(answer, HttpAnswer)


def test_a_process_suspended_between_connecting_and_writing_writes_nothing() -> None:
    async def main() -> tuple[Seen, object, object]:
        now = [0.0]

        async def resolve_while_suspended(_host: str, _port: int) -> list[str]:
            now[0] += 60.0
            return ["127.0.0.1"]

        async with server(creates) as (url, seen):
            named = url.replace("127.0.0.1", "localhost")
            wire = direct_wire(httpx.URL(named), in_flight=1, resolve=resolve_while_suspended, clock_s=lambda: now[0])
            async with opened(named, wire=wire) as http:
                late, later = [await http.exchange(http.request("POST", http.url("/events"), content=b"{}")) for _ in range(2)]
        return seen, late, later

    seen, late, later = run(main)
    assert isinstance(late, Meaning)
    assert late.kind is AnswerKind.NOT_REACHED
    assert "suspended" in late.answer.message
    assert isinstance(later, HttpAnswer)
    assert len(seen.requests) == 1


def test_a_process_suspended_between_the_look_at_its_lease_and_the_request_writes_nothing() -> None:
    async def main() -> tuple[Seen, object]:
        now = [0.0]

        @asynccontextmanager
        async def look_and_be_suspended() -> AsyncIterator[None]:
            now[0] += 60.0
            yield

        async with server(creates) as (url, seen):
            wire = direct_wire(httpx.URL(url), in_flight=1, resolve=resolve_by_system, clock_s=lambda: now[0])
            async with opened(url, wire=wire) as http:
                http.passage = look_and_be_suspended
                return seen, await http.exchange(http.request("POST", http.url("/events"), content=b"{}"))

    seen, late = run(main)
    assert not seen.requests
    assert "suspended" in unanswered(late).answer.message


def test_the_request_on_the_wire_is_what_the_specification_asks_for() -> None:
    _, seen = delivered(creates, path="/events-service/")
    head, _, body = seen.requests[0].partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    assert (line, body) == ("POST /events-service/api/public/v1/events HTTP/1.1", intent(0).body)
    assert headers.pop("user-agent").startswith("eventsync/")
    assert "cookie" not in headers
    sent = [headers[name] for name in ("authorization", "idempotency-key", "content-type", "content-length")]
    assert sent == [f"Bearer {SECRET}", intent(0).key, "application/json", str(len(body))]


def test_the_environments_proxy_is_used_for_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Seen:
        async with server(creates) as (proxy, through):
            monkeypatch.setenv("http_proxy", proxy)
            async with opened("http://events.localhost:1") as http:
                await wired(http).deliver(intent())
            return through

    line = b"POST http://events.localhost:1/api/public/v1/events HTTP/1.1"
    assert [request.split(b"\r\n")[0] for request in run(main).requests] == [line]


async def answers_twice(writer: asyncio.StreamWriter) -> bool:
    await says(CREATED)(writer)
    await asyncio.sleep(0.02)
    return await says(CREATED)(writer)


@pytest.mark.parametrize(
    ("behaviours", "most"),
    [([says(CREATED + CREATED), creates], 3), ([answers_twice, creates], 3), ([says(CREATED), says(CREATED), creates], 2)],
    ids=["at once", "a little later", "after the next request has left"],
)
def test_a_second_copy_of_an_answer_is_not_believed_to_be_the_answer_to_the_next_request(
    behaviours: list[Behaviour], most: int
) -> None:
    """One that lies in a kept connection is read as the next answer; its event id shows whose it is, and it is asked again."""
    verdicts, seen = delivered(*behaviours, rows=2, rest_s=0.1)
    assert len({verdict.event_id for verdict in verdicts if isinstance(verdict, Receipt)}) == 2
    assert len(seen.requests) <= 3
    assert most == 3 or [verdict.copies for verdict in verdicts if isinstance(verdict, Receipt)] == [1, most]


async def answers_with_the_title_of(title: str, event_id: int, writer: asyncio.StreamWriter) -> bool:
    body = b'{"doc":{"id":%d,"title":"%b"}}' % (event_id, title.encode())
    return await says(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))(writer)


@pytest.mark.parametrize("is_believed", [False, True], ids=["the service then answers well", "the service always says so"])
def test_an_answer_with_the_title_of_another_row_is_asked_again_over_a_new_connection(*, is_believed: bool) -> None:
    """A service that changes titles says the same again, with the same id."""
    rows = [replace(intent(number=number), body=b'{"title":"%b"}' % title) for number, title in enumerate((b"Jazz", b"Blues"))]
    own, others = (partial(answers_with_the_title_of, *answer) for answer in (("Jazz", 71), ("Jazz", 72)))
    well = others if is_believed else partial(answers_with_the_title_of, "Blues", 73)

    async def main() -> tuple[list[Verdict], Seen]:
        async with server(own, others, well) as (url, seen), opened(url, in_flight=1) as http:
            api = wired(http, attempts=3)
            return [await api.deliver(row) for row in rows], seen

    verdicts, seen = run(main)
    assert [verdict.event_id for verdict in verdicts if isinstance(verdict, Receipt)] == [71, 72 if is_believed else 73]
    assert (len(seen.requests), seen.connections) == (3, 2)
