"""The script that is written second: asyncio, a semaphore, httpx or aiohttp, the same ledger; several requests in flight.

A row is read when there is a place for it, so that not every row is a task at once. It gives up at the first answer that is no
success, but for a 429: then each request waits as long as it is told, and asks again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import httpx
from books import Books, body_of
from job import PATH, Cells, headers, mapping, read

Answer = tuple[int, float, dict[str, dict[str, int]]]
Post = Callable[[bytes, Cells], Awaitable[Answer]]


@asynccontextmanager
async def over_httpx(url: str, in_flight: int) -> AsyncIterator[Post]:
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as http:

        async def post(body: bytes, cells: Cells) -> Answer:
            answer = await http.post(PATH, content=body, headers=headers(cells))
            return answer.status_code, float(answer.headers.get("retry-after", 1)), answer.json()

        yield post


@asynccontextmanager
async def over_aiohttp(url: str, in_flight: int) -> AsyncIterator[Post]:
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(url, connector=connector) as http:

        async def post(body: bytes, cells: Cells) -> Answer:
            async with http.post(PATH, data=body, headers=headers(cells)) as answer:
                return answer.status, float(answer.headers.get("retry-after", 1)), await answer.json()

        yield post


async def main(client: str, url: str, folder: Path, in_flight: int) -> None:
    to_event, books = mapping(folder), Books(folder)
    slots = asyncio.Semaphore(in_flight)
    async with {"httpx": over_httpx, "aiohttp": over_aiohttp}[client](url, in_flight) as post:

        async def send(cells: Cells, body: bytes, digest: str) -> None:
            status, wait_s, answer = await post(body, cells)
            while status == 429:
                await asyncio.sleep(wait_s)
                status, wait_s, answer = await post(body, cells)
            if status >= 300:
                raise SystemExit(f"{status}: {answer}")
            books.write(cells["id"], digest, answer["doc"]["id"])
            slots.release()

        async with asyncio.TaskGroup() as group:
            for cells in read(folder):
                body, digest = body_of(to_event(cells))
                if not books.has(cells["id"], digest):
                    await slots.acquire()
                    group.create_task(send(cells, body, digest))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
