"""The wire itself: a real server on loopback that resets, cuts off, dawdles or talks nonsense."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct

import httpx
import pytest
from contract.raw_server import (
    CREATED,
    DOCUMENT,
    IDS,
    PATIENCE_S,
    Behaviour,
    Seen,
    creates,
    opened,
    run,
    says,
    server,
    unanswered,
    wired,
)
from unit.connectors_api.wired import SECRET, intent

from connectors.event_api.answers import HttpAnswer, Kind
from connectors.event_api.transport import LONGEST_BODY, Exchange
from mappings.delivery import Postponed, Receipt, Uncertain


async def resets(writer: asyncio.StreamWriter) -> bool:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


async def hangs(_: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(2 * PATIENCE_S)
    return False


closes = says(b"", goes_on=False)
BREAKAGES: dict[str, Behaviour] = {
    "reset after the request": resets,
    "closed after the request": closes,
    "body cut off": says(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n" + DOCUMENT[:20], goes_on=False),
    "chunk cut off": says(b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n20\r\n" + DOCUMENT[:20], goes_on=False),
    "no HTTP": says(b"220 mail.example.org ESMTP\r\n\r\n", goes_on=False),
    "silence": hangs,
    "silence in the body": says(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n" + DOCUMENT[:20]),
    "a header cut off": says(b"HTTP/1.1 201 Created\r\ncontent-le", goes_on=False),
    "a broken content encoding": says(b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope"),
}


def silence_s(breakage: str) -> float:
    """Return how long the client waits for the next byte: not long where the breakage is silence."""
    return 1.0 if "silence" in breakage else PATIENCE_S


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_answer_to_a_sent_request_is_lost_never_unreached(breakage: str) -> None:
    async def main() -> object:
        async with server(BREAKAGES[breakage]) as (url, _), opened(url, silence_s=silence_s(breakage)) as http:
            exchange = Exchange(http, attempt_s=PATIENCE_S)
            return await exchange(exchange.request("POST", exchange.url("/events"), content=b"{}"))

    assert unanswered(run(main)).kind is Kind.LOST


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_answer_is_asked_again_with_the_same_bytes(breakage: str) -> None:
    async def main() -> tuple[object, Seen]:
        behaviours = (BREAKAGES[breakage], creates)
        async with server(*behaviours) as (url, seen), opened(url, silence_s=silence_s(breakage)) as http:
            return await wired(http).deliver(intent()), seen

    verdict, seen = run(main)
    assert isinstance(verdict, Receipt)
    assert verdict.attempts == 2
    assert len(seen.requests) == 2
    assert seen.requests[0] == seen.requests[1]


@pytest.mark.parametrize("breakage", [resets, closes], ids=["reset", "close"])
@pytest.mark.parametrize("is_kept_alive", [False, True], ids=["fresh connection", "kept-alive connection"])
def test_no_request_is_repeated_behind_our_back(breakage: Behaviour, is_kept_alive: bool) -> None:  # a parameter
    async def main() -> tuple[object, Seen]:
        behaviours = (creates, breakage) if is_kept_alive else (breakage,)
        async with server(*behaviours) as (url, seen), opened(url) as http:
            api = wired(http, attempts=1)
            if is_kept_alive:
                assert isinstance(await api.deliver(intent(number=1)), Receipt)
            return await api.deliver(intent(number=2)), seen

    verdict, seen = run(main)
    assert isinstance(verdict, Uncertain)
    assert verdict.attempts == 1
    assert len(seen.requests) == 1 + is_kept_alive
    assert seen.connections == 1


def test_a_connection_closed_while_idle_is_not_used_again() -> None:
    async def main() -> tuple[object, int]:
        async with server(says(CREATED, goes_on=False), creates) as (url, seen), opened(url) as http:
            api = wired(http, attempts=1)
            await api.deliver(intent(number=1))
            await asyncio.sleep(0.05)
            return await api.deliver(intent(number=2)), seen.connections

    verdict, connections = run(main)
    assert isinstance(verdict, Receipt)
    assert connections == 2


def test_nobody_listening_means_not_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def main() -> tuple[object, object]:
            async with opened(url) as http:
                exchange = Exchange(http, attempt_s=PATIENCE_S)
                return await exchange(exchange.request("POST", exchange.url("/events"))), await wired(http).deliver(intent())

        reached, verdict = run(main)
    assert unanswered(reached).kind is Kind.NOT_REACHED
    assert isinstance(verdict, Postponed)


def test_a_name_that_nobody_knows_means_not_reached() -> None:
    async def main() -> object:
        async with opened("http://nobody.localhost.invalid.localhost:1") as http:
            exchange = Exchange(http, attempt_s=PATIENCE_S)
            return await exchange(exchange.request("POST", exchange.url("/events")))

    assert unanswered(run(main)).kind is Kind.NOT_REACHED


def test_a_redirect_is_not_followed_and_the_secret_stays() -> None:
    redirect = says(b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere?token=1\r\ncontent-length: 0\r\n\r\n")

    async def main() -> tuple[object, Seen]:
        async with server(redirect, creates) as (url, seen), opened(url) as http:
            return await wired(http).deliver(intent()), seen

    verdict, seen = run(main)
    assert isinstance(verdict, Postponed)
    assert "/elsewhere" in str(verdict.cause)
    assert "token" not in str(verdict.cause)
    assert len(seen.requests) == 1


def test_a_compressed_answer_is_understood_although_nobody_asked_for_it() -> None:
    body = gzip.compress(DOCUMENT)
    answer = b"HTTP/1.1 201 Created\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    async def main() -> object:
        async with server(says(answer)) as (url, _), opened(url) as http:
            return await wired(http).deliver(intent())

    assert isinstance(run(main), Receipt)


def test_an_endless_answer_is_read_up_to_a_bound() -> None:
    async def endless(writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()
            await asyncio.sleep(0)
        return False

    async def main() -> object:
        async with server(endless) as (url, _), opened(url) as http:
            exchange = Exchange(http, attempt_s=PATIENCE_S)
            return await exchange(exchange.request("GET", exchange.url("/channels")))

    answer = run(main)
    assert isinstance(answer, HttpAnswer)
    assert len(answer.body) == LONGEST_BODY


def test_there_are_never_more_connections_than_requests_in_flight() -> None:
    async def slowly(writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(0.01)
        return await creates(writer)

    async def main() -> tuple[list[object], int]:
        async with server(slowly) as (url, seen), opened(url, in_flight=3) as http:
            api = wired(http)
            verdicts = await asyncio.gather(*(api.deliver(intent(number=number)) for number in range(12)))
            return list(verdicts), seen.connections

    verdicts, connections = run(main)
    assert all(isinstance(verdict, Receipt) for verdict in verdicts)
    assert connections == 3


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
            exchange = Exchange(http, attempt_s=PATIENCE_S)
            request = exchange.request("POST", exchange.url("/events"), content=b"{}")
            assert await exchange(request, lambda: False) is None
            assert not seen.requests
            return seen, await exchange(request)

    seen, answer = run(main)
    assert isinstance(answer, HttpAnswer)
    assert (len(seen.requests), answer.status) == (1, 201)


def test_the_request_on_the_wire_is_what_the_specification_asks_for() -> None:
    async def main() -> bytes:
        async with server(creates) as (url, seen), opened(f"{url}/events-service/") as http:
            await wired(http).deliver(intent())
            return seen.requests[0]

    head, _, body = run(main).partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    assert line == "POST /events-service/api/public/v1/events HTTP/1.1"
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert headers["idempotency-key"] == intent().key
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("eventsync/")
    assert headers["content-length"] == str(len(intent().body))
    assert "cookie" not in headers
    assert body == intent().body


def test_a_server_without_tls_is_not_reached_over_https() -> None:
    async def main() -> object:
        async with server(creates) as (url, _), opened(url.replace("http://", "https://")) as http:
            http.timeouts = httpx.Timeout(PATIENCE_S, connect=0.3)  # the server waits for the rest of what it takes for a request
            exchange = Exchange(http, attempt_s=PATIENCE_S)
            return await exchange(exchange.request("POST", exchange.url("/events")))

    assert unanswered(run(main)).kind is Kind.NOT_REACHED


def test_the_environments_proxy_is_used_and_its_exceptions_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[Seen, Seen]:
        async with server(creates) as (proxy, through), server(creates) as (url, direct):
            monkeypatch.setenv("http_proxy", proxy)
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            async with opened("http://events.localhost:1") as http:
                await wired(http).deliver(intent())
            async with opened(url) as http:
                await wired(http).deliver(intent())
            return through, direct

    through, direct = run(main)
    assert [request.split(b"\r\n")[0] for request in through.requests] == [
        b"POST http://events.localhost:1/api/public/v1/events HTTP/1.1"
    ]
    assert len(direct.requests) == 1


def answered_twice(*, gap_s: float, is_copied: asyncio.Event) -> Behaviour:
    """An answer, and some time later the very same answer again."""
    told = DOCUMENT.replace(b"41", b"%d" % next(IDS))
    answer = b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told)

    async def behave(writer: asyncio.StreamWriter) -> bool:
        await says(answer)(writer)
        await asyncio.sleep(gap_s)
        await says(answer)(writer)
        is_copied.set()
        return True

    return behave


@pytest.mark.parametrize("gap_s", [0.0, 0.02])
def test_a_second_copy_of_an_answer_is_not_believed_to_be_the_answer_to_the_next_request(gap_s: float) -> None:
    """One that lies in a kept connection is read as the next answer; its event id shows whose it is, and it is asked again."""

    async def main() -> tuple[list[object], Seen]:
        is_copied = asyncio.Event()
        behaviours = (answered_twice(gap_s=gap_s, is_copied=is_copied), creates)
        async with server(*behaviours) as (url, seen), opened(url) as http:
            api = wired(http)
            first = await api.deliver(intent(number=1))
            await is_copied.wait()
            await asyncio.sleep(0.05)  # what has come in is read before the time is up
            return [first, await api.deliver(intent(number=2))], seen

    verdicts, seen = run(main)
    ids = [verdict.event_id for verdict in verdicts if isinstance(verdict, Receipt)]
    assert len(set(ids)) == 2
    assert len(seen.requests) <= 3


def test_a_copy_that_comes_after_the_next_request_has_left_is_known_by_its_id() -> None:
    async def late_copy(writer: asyncio.StreamWriter) -> bool:
        """The service is slow with this one: what arrives first is a copy of what the last one was told."""
        return await says(CREATED)(writer)

    async def main() -> tuple[list[object], Seen]:
        async with server(says(CREATED), late_copy, creates) as (url, seen), opened(url) as http:
            api = wired(http, attempts=2)
            return [await api.deliver(intent(number=1)), await api.deliver(intent(number=2))], seen

    (first, second), seen = run(main)
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert first.event_id != second.event_id
    assert second.copies == 2
    assert len(seen.requests) == 3
