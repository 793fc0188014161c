"""dlt: a resource of the rows, and a custom destination that sends each item; `@dlt.destination`, its public way to an API.

Three ways to send: dlt's own requests session, as its documentation does it; the same by as many threads as there are in
flight; and aiohttp inside the destination, which is the most that can be made of it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import dlt
from dlt.sources.helpers import requests
from job import PATH, Cells, headers, mapping, read

PAGE = 1000


class Sender:
    """Brings items to the service, as it is told."""

    def __init__(self, way: str, url: str, folder: Path, in_flight: int) -> None:
        self.way = way
        self.url = url
        self.in_flight = in_flight
        self.to_event = mapping(folder)
        self.pool = ThreadPoolExecutor(in_flight)  # one for all batches: dlt's session, and its connection, is each thread's own

    def deliver(self, items: list[Cells]) -> None:
        if self.way == "aiohttp":
            asyncio.run(self._post_all(items))
        elif self.way == "threads":
            list(self.pool.map(self._post, items))
        else:
            for cells in items:
                self._post(cells)

    def _post(self, cells: Cells) -> None:
        requests.post(f"{self.url}{PATH}", json=self.to_event(cells), headers=headers(cells)).raise_for_status()

    async def _post_all(self, items: list[Cells]) -> None:
        slots = asyncio.Semaphore(self.in_flight)
        async with aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(limit=self.in_flight)) as http:

            async def send(cells: Cells) -> None:
                async with slots, http.post(PATH, json=self.to_event(cells), headers=headers(cells)) as answer:
                    answer.raise_for_status()
                    await answer.read()

            await asyncio.gather(*map(send, items))


def main(way: str, url: str, folder: Path, in_flight: int) -> None:
    sender = Sender(way, url, folder, in_flight)

    @dlt.resource(name="events", max_table_nesting=0)
    def events() -> Iterator[list[Cells]]:
        """Yield pages, as dlt's advice on performance has it: row by row, each would pass the extraction by itself."""
        found = read(folder)
        while page := list(islice(found, PAGE)):
            yield page

    def service(items: list[Cells], table: Any) -> None:  # noqa: ARG001  # dlt's signature
        sender.deliver(items)

    size = 1000 if way == "aiohttp" else 100
    destination = dlt.destination(service, name="service", batch_size=size, loader_file_format="typed-jsonl")
    pipeline = dlt.pipeline("bench", destination=destination, pipelines_dir=str(folder / "dlt"))
    pipeline.run(events()).raise_on_failed_jobs()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
