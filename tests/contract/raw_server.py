"""A raw server on loopback with a behaviour for each request, and a client wired to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import aiohttp
from pydantic import SecretStr
from unit.connectors_api.wired import SECRET, intent
from virtual_time import EPOCH

from connectors.event_api.answers import Meaning
from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import ServiceHttp, open_http
from connectors.rate_limit import RateLimiter
from connectors.retry import RetryPolicy, Timing
from mappings.delivery import Verdict

T = TypeVar("T")
PATIENCE_S = 60.0
DOCUMENT = b'{"doc":{"id":41,"title":"An evening"}}'
CREATED = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(DOCUMENT), DOCUMENT)

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request; false ends the connection."""


@dataclass
class Seen:
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def server(*behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, Seen]]:
    """Behave as told for each request in turn, for ever as the last one says; with `tls` over it."""
    seen, script, open_writers = Seen(), list(behaviours), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        open_writers.append(writer)
        goes_on = True
        while goes_on and (request := await read_request(reader)):
            seen.requests.append(request)
            goes_on = await (script.pop(0) if len(script) > 1 else script[0])(writer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listening.sockets[0].getsockname()[1]}", seen
    finally:
        listening.close()
        for writer in open_writers:
            if tls:
                writer.transport.abort()
            else:
                writer.close()
        await asyncio.sleep(0)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0)
        return head + await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def says(answer: bytes, *, goes_on: bool = True) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> bool:
        writer.write(answer)
        await writer.drain()
        return goes_on

    return behave


IDS = count(42)


async def creates(writer: asyncio.StreamWriter) -> bool:
    """A new event each time."""
    body = DOCUMENT.replace(b"41", b"%d" % next(IDS))
    return await says(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))(writer)


def run(main: Callable[[], Awaitable[T]]) -> T:
    async def whole() -> T:
        result = await main()
        for _ in range(5):  # a connection over TLS takes a few turns to close
            await asyncio.sleep(0)
        return result

    return asyncio.run(whole())


def unanswered(found: object) -> Meaning:
    assert isinstance(found, Meaning)
    return found


def opened(url: str, *, silence_s: float = PATIENCE_S, **options: object) -> ServiceHttp:
    timeouts = aiohttp.ClientTimeout(sock_read=silence_s)
    return open_http(url, SecretStr(SECRET), timeouts=timeouts, **options)  # type: ignore[arg-type]


def wired(http: ServiceHttp, *, attempts: int = 2, attempt_s: float = 90.0) -> EventApi:
    timing = Timing(asyncio.get_running_loop().time, lambda _: asyncio.sleep(0), lambda: 0.0, lambda: EPOCH)
    return EventApi(http, limiter=RateLimiter(timing), policy=RetryPolicy(attempts=attempts, attempt_s=attempt_s))


async def asked_once(url: str, *, attempt_s: float = PATIENCE_S, **timeouts: float) -> object:
    async with open_http(url, SecretStr(SECRET), timeouts=aiohttp.ClientTimeout(**timeouts)) as http:
        request = http.request("POST", http.url("/events"), content=b"x" * 1_000_000)
        return await http.exchange(request, attempt_s=attempt_s)


def delivered(
    *behaviours: Behaviour,
    rows: int = 1,
    in_flight: int = 1,
    rest_s: float = 0.0,
    path: str = "",
    silence_s: float = PATIENCE_S,
    attempts: int = 2,
    attempt_s: float = 90.0,
    tls: ssl.SSLContext | None = None,
) -> tuple[list[Verdict], Seen]:
    """Deliver so many rows to a server that behaves so, at most `in_flight` at a time, with a rest after each such bunch."""

    async def main() -> tuple[list[Verdict], Seen]:
        verdicts: list[Verdict] = []
        async with (
            server(*behaviours, tls=tls) as (url, seen),
            opened(f"{url}{path}", silence_s=silence_s, in_flight=in_flight) as http,
        ):
            api = wired(http, attempts=attempts, attempt_s=attempt_s)
            for start in range(0, rows, in_flight):
                bunch = range(start, min(start + in_flight, rows))
                verdicts += await asyncio.gather(*(api.deliver(intent(number=number)) for number in bunch))
                await asyncio.sleep(rest_s)
            return verdicts, seen

    return run(main)
