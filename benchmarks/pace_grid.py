"""The first minute under a limit that nobody told, in virtual time: `python benchmarks/pace_grid.py [LIMIT...]`.

Each cell is the share of the limit that was used, and the share of requests that were answered 429: means of three
minutes with other delays on the way. What real processes make of it is measured by `pace.py`.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from connectors.crowding import Crowd
from connectors.event_api.retry_after import retry_after_s
from connectors.pacing import Closed, Pacer
from sandbox.limits import FixedWindow, Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from virtual_time import EPOCH, at_once, clock, now  # the tests' own clock

MINUTE_S = 60.0
WAYS = ((1, 0.005), (8, 0.005), (32, 0.005), (8, 0.1), (32, 0.5))
"""Requests in flight, and the seconds that an answer takes."""
STYLES = ("seconds", "fraction", "date", "absent")


class Tens(Rate):
    """A rate for a window of ten seconds."""

    @property
    def period_s(self) -> int:
        return 10


LIMITS: dict[str, tuple[Callable[[], Meter], int]] = {
    "bucket 20/s, burst 5": (lambda: TokenBucket(Rate(20), 5), 1205),
    "bucket 20/s, burst 20": (lambda: TokenBucket(Rate(20), 20), 1220),
    "bucket 20/s, burst 1": (lambda: TokenBucket(Rate(20), 1), 1201),
    "window 20 per 1 s": (lambda: FixedWindow(Rate(20)), 1200),
    "window 200 per 10 s": (lambda: FixedWindow(Tens(200)), 1200),
    "window 1200 per 60 s": (lambda: FixedWindow(Rate(1200, "m")), 1200),
    "sliding 20 per 1 s": (lambda: SlidingWindow(Rate(20)), 1200),
    "sliding 200 per 10 s": (lambda: SlidingWindow(Tens(200)), 1200),
    "sliding 1200 per 60 s": (lambda: SlidingWindow(Rate(1200, "m")), 1200),
}


def spelt(style: str, wait_s: float) -> dict[str, str]:
    match style:
        case "seconds":
            return {"retry-after": str(math.ceil(wait_s))}
        case "fraction":
            return {"retry-after": f"{math.ceil(wait_s * 1000) / 1000:.3f}"}
        case "date":
            until = EPOCH + timedelta(seconds=math.ceil(clock() + wait_s - 1e-9))
            return {"retry-after": format_datetime(until, usegmt=True), "date": format_datetime(now(), usegmt=True)}
        case _:
            return {}


def minute(meter: Meter, style: str, in_flight: int, latency_s: float, seed: int) -> tuple[int, int]:
    """How many requests passed, and how many were refused."""
    chance, counts = random.Random(seed), [0, 0]

    async def once(paced: Pacer) -> None:
        while True:
            admitted = await paced.admit()
            if isinstance(admitted, Closed):
                raise admitted.cause
            paced.crowd.sent()
            began = clock()
            await asyncio.sleep(latency_s * chance.uniform(0.4, 0.6))
            wait_s = meter.take(clock())
            counts[wait_s > 0] += clock() <= MINUTE_S
            headers = spelt(style, wait_s)
            await asyncio.sleep(latency_s * chance.uniform(0.4, 0.6))
            paced.crowd.back(clock() - began, is_well=wait_s <= 0)
            if wait_s <= 0:
                paced.passed()
                return
            paced.limited(admitted, retry_after_s(headers, now()))

    async def work(paced: Pacer) -> None:
        while clock() < MINUTE_S:
            await paced.crowd.enter()
            await once(paced)
            paced.crowd.leave()

    async def main() -> None:
        paced = Pacer(clock=clock, sleep=asyncio.sleep, random=chance.random, now=now, crowd=Crowd(in_flight))
        await asyncio.gather(*(work(paced) for _ in range(in_flight)))

    at_once(main)
    return counts[0], counts[1]


def cell(limit: str, style: str, in_flight: int, latency_s: float) -> str:
    make, allowed = LIMITS[limit]
    passed, met = zip(*(minute(make(), style, in_flight, latency_s, seed) for seed in range(3)), strict=True)
    return f"{sum(passed) / 3 / allowed:.0%} / {sum(met) / (sum(met) + sum(passed)):.1%}"


def main() -> None:
    table = Table(title="Share of the limit used / share answered 429, in the first minute")
    for heading in ("limit", "Retry-After", *(f"{in_flight} in flight, {delay * 1000:.0f} ms" for in_flight, delay in WAYS)):
        table.add_column(heading)
    for limit in [one for one in LIMITS if not sys.argv[1:] or any(word in one for word in sys.argv[1:])]:
        for style in STYLES:
            table.add_row(limit, style, *(cell(limit, style, *way) for way in WAYS))
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
