"""One contender sends the same requests to the server and tells what each cost: one process, one core, one JSON line.

Which contenders are compared, and the table, are `measures/wire.py`'s; the server is `server.py`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import httpx
from pydantic import SecretStr

from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import open_http
from connectors.rate_limit import RateLimiter
from connectors.retry import RetryPolicy, Timing
from mappings.delivery import Intent, Receipt
from mappings.row_key import IdempotencyKey, RowKey

BODY = (
    b'{"approxLocation":{"city":{"countryCode":"DE","name":"Berlin","placeId":"ChIJAVkDPzdOqEcRcDteW0YgIQQ"}},"channelId":12,'
    b'"classifications":["music"],"startAt":"2026-09-01T19:00:00+02:00","status":"draft","timezone":"Europe/Berlin",'
    b'"title":"An evening of chamber music"}'
)
KEY = "sk_bench_0123456789abcdef"
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}

Send = Callable[[int], Awaitable[None]]
"""Creates one event, numbered."""


def idempotency_key(number: int) -> IdempotencyKey:
    return IdempotencyKey(f"es1-{number:032x}")


@asynccontextmanager
async def through_httpx(transport: httpx.AsyncBaseTransport, url: str) -> AsyncIterator[Send]:
    async with httpx.AsyncClient(transport=transport, base_url=url, headers=HEADERS, timeout=60) as http:

        async def send(number: int) -> None:
            answer = await http.post("/api/public/v1/events", content=BODY, headers={"idempotency-key": idempotency_key(number)})
            assert answer.json()["doc"]["id"]

        yield send


@asynccontextmanager
async def plain_httpx(url: str, in_flight: int) -> AsyncIterator[Send]:
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with through_httpx(httpx.AsyncHTTPTransport(limits=limits), url) as send:
        yield send


@asynccontextmanager
async def plain_aiohttp(url: str, in_flight: int) -> AsyncIterator[Send]:
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(url, connector=connector, headers=HEADERS) as http:

        async def send(number: int) -> None:
            headers = {"idempotency-key": idempotency_key(number)}
            async with http.post("/api/public/v1/events", data=BODY, headers=headers) as answer:
                assert (await answer.json(content_type=None))["doc"]["id"]

        yield send


@asynccontextmanager
async def over_pyreqwest(url: str, _in_flight: int) -> AsyncIterator[Send]:
    from pyreqwest.client import ClientBuilder  # noqa: PLC0415  # only a benchmark wants it installed
    from pyreqwest.compatibility.httpx import HttpxTransport  # noqa: PLC0415  # as above

    async with through_httpx(HttpxTransport(ClientBuilder().follow_redirects(False).build()), url) as send:
        yield send


@asynccontextmanager
async def eventsync(url: str, in_flight: int) -> AsyncIterator[Send]:
    """The worker's own client with all that it does: pace, retries, reading the answer, a verdict."""

    def now() -> datetime:
        return datetime.now(UTC)  # noqa: TID251  # the composition root of a benchmark

    limiter = RateLimiter(Timing(time.monotonic, asyncio.sleep, random.random, now))
    async with open_http(url, SecretStr(KEY), in_flight=in_flight) as http:
        api = EventApi(http, limiter=limiter, policy=RetryPolicy())

        async def send(number: int) -> None:
            verdict = await api.deliver(Intent(number, RowKey(str(number)), idempotency_key(number), BODY, channel_id=12))
            assert isinstance(verdict, Receipt)

        yield send


@asynccontextmanager
async def raw_streams(url: str, in_flight: int) -> AsyncIterator[Send]:
    """The floor: bytes over asyncio's streams, nothing looked at."""
    address = httpx.URL(url)
    idle = [await asyncio.open_connection(address.host, address.port) for _ in range(in_flight)]

    async def send(number: int) -> None:
        reader, writer = idle.pop()
        head = f"POST /api/public/v1/events HTTP/1.1\r\nhost: x\r\nidempotency-key: {idempotency_key(number)}\r\n"
        writer.write(head.encode() + b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY))
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(answer.partition(b"content-length:")[2].split(b"\r\n")[0]))
        idle.append((reader, writer))

    yield send
    for _, writer in idle:
        writer.close()


CONTENDERS = {
    "raw streams": raw_streams,
    "eventsync": eventsync,
    "aiohttp as it comes": plain_aiohttp,
    "httpx over pyreqwest": over_pyreqwest,
    "httpx as it comes": plain_httpx,
}


async def measure(contender: str, url: str, in_flight: int, requests: int) -> dict[str, float]:
    async with CONTENDERS[contender](url, in_flight) as send:
        await _drive(send, range(in_flight), in_flight)
        wall, cpu = time.perf_counter(), time.process_time()
        await _drive(send, range(in_flight, in_flight + requests), in_flight)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"cpu_us": cpu / requests * 1e6, "per_s": requests / wall}


async def _drive(send: Send, numbers: range, in_flight: int) -> None:
    left = iter(numbers)

    async def worker() -> None:
        for number in left:
            await send(number)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("url")
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--core", type=int)
    parser.add_argument("--uvloop", action="store_true")
    chosen = parser.parse_args()
    if chosen.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {chosen.core})
    runner = asyncio.run
    if chosen.uvloop:
        import uvloop  # noqa: PLC0415  # only one of the contenders' loops

        runner = uvloop.run
    print(json.dumps(runner(measure(chosen.contender, chosen.url, chosen.in_flight, chosen.requests))))


if __name__ == "__main__":
    main()
