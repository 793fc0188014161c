"""dlt: a resource of the rows, and a custom destination that sends each item; `@dlt.destination`, its public way to an API.

Three ways to send: dlt's own requests session, as its documentation does it; the same by as many threads as there are in
flight; and aiohttp inside the destination, which is the most that can be made of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import dlt
from dlt.sources.helpers import requests
from job import PATH, Cells, headers, mapping, read


def main(way: str, url: str, folder: Path, in_flight: int) -> None:
    to_event = mapping(folder)

    @dlt.resource(name="events", max_table_nesting=0)
    def events() -> Iterator[Cells]:
        yield from read(folder)

    def post(cells: Cells) -> None:
        requests.post(f"{url}{PATH}", json=to_event(cells), headers=headers(cells)).raise_for_status()

    async def post_all(items: list[Cells]) -> None:
        slots = asyncio.Semaphore(in_flight)
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=in_flight)) as http:

            async def send(cells: Cells) -> None:
                async with slots, http.post(PATH, json=to_event(cells), headers=headers(cells)) as answer:
                    answer.raise_for_status()
                    await answer.read()

            await asyncio.gather(*map(send, items))

    def deliver(items: list[Cells], _table: Any) -> None:
        if way == "aiohttp":
            asyncio.run(post_all(items))
        elif way == "threads":
            with ThreadPoolExecutor(in_flight) as pool:
                list(pool.map(post, items))
        else:
            for cells in items:
                post(cells)

    size = 1000 if way == "aiohttp" else 100
    destination = dlt.destination(deliver, name="service", batch_size=size, loader_file_format="typed-jsonl")
    pipeline = dlt.pipeline("bench", destination=destination, pipelines_dir=str(folder / "dlt"))
    pipeline.run(events()).raise_on_failed_jobs()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
