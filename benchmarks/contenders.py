"""The peers: what each is called, which library it needs, and the command that brings a folder's rows to an address.

The commands' scripts are in `peers/`; how a run of one is measured is `measures/published.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from installing import PYTHON, script, versions

ENV = {"RUNTIME__DLTHUB_TELEMETRY": "false", "DO_NOT_TRACK": "1"}
"""No peer tells its makers that it was run here."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do the job; `words` stand before the address and `in_flight` after the folder, where it has one."""

    name: str
    needs: str
    script: str
    words: tuple[str, ...] = ()
    in_flight: int | None = None
    share: float = 1.0
    """How many rows it gets, of those that the others get: the slowest need few to be measured."""

    def command(self, url: str, folder: Path) -> list[str]:
        last = [] if self.in_flight is None else [str(self.in_flight)]
        return [str(PYTHON), str(script(self.script)), *self.words, url, str(folder), *last]

    def with_in_flight(self, in_flight: int) -> Contender:
        return Contender(self.name, self.needs, self.script, self.words, in_flight, self.share)


BY_HAND = Contender("by hand, httpx, one at a time", "httpx", "by_hand.py")
ASYNC_HTTPX = Contender("by hand, asyncio, httpx, 32 in flight", "httpx", "by_hand_async.py", ("httpx",), 32, 0.2)
ASYNC_HTTPX_8 = Contender("by hand, asyncio, httpx, 8 in flight", "httpx", "by_hand_async.py", ("httpx",), 8, 0.3)
ASYNC_AIOHTTP = Contender("by hand, asyncio, aiohttp, 32 in flight", "aiohttp", "by_hand_async.py", ("aiohttp",), 32)
DLT = Contender("dlt, its requests session", "dlt", "through_dlt.py", ("requests",), 1)
DLT_THREADS = Contender("dlt, the same in 32 threads", "dlt", "through_dlt.py", ("threads",), 32)
DLT_AIOHTTP = Contender("dlt, aiohttp inside, 32 in flight", "dlt", "through_dlt.py", ("aiohttp",), 32)
SINGER = Contender("Singer SDK, tap and target", "singer-sdk", "through_singer.py")
DRT = Contender("drt, DuckDB to its REST destination", "drt-core", "through_drt.py")
ALL = (BY_HAND, ASYNC_HTTPX_8, ASYNC_HTTPX, ASYNC_AIOHTTP, DLT, DLT_THREADS, DLT_AIOHTTP, SINGER, DRT)
QUICK = (BY_HAND, ASYNC_AIOHTTP, DLT, SINGER, DRT)


def is_there(contender: Contender) -> bool:
    return contender.needs in versions()
