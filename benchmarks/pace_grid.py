"""Four minutes under an unknown limit, in virtual time (budget 7): `python benchmarks/pace_grid.py [LIMIT...]`.

Each cell is the share of the limit that was used and the share of requests that were answered 429, in the first minute and in
minutes 3 and 4: means of several runs that begin anywhere in a window, with other delays on the way. `pace.py` measures what
real processes make of it.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from email.utils import format_datetime
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from connectors.concurrency_limit import ConcurrencyLimit
from connectors.rate_limit import Permit, RateLimiter, Sharing
from connectors.retry import Timing, retry_after_s
from sandbox.service import FixedWindow, Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from virtual_time import EPOCH, Board, at_once, clock, now  # the tests' own clock

MINUTE_S, LATER_S, END_S = 60.0, 120.0, 240.0
RUNS = 3
"""How many make a cell."""
STALL, STALL_S = 0.01, 0.015
"""So often a request is held up on its way, and for how long: no machine is idle."""
HEARD_S = 0.25
"""How long it takes until one worker knows of the pause that another was told of."""
ROUND_TRIP_S = 0.005
"""How far away the state DB is."""
STYLES = ("seconds", "fraction", "absent")


@dataclass(frozen=True, slots=True)
class Way:
    """Requests in flight for each worker, the seconds that an answer takes, and how many workers share the limit."""

    in_flight: int
    latency_s: float
    workers: int = 1

    def __str__(self) -> str:
        shared = f"{self.workers} x " if self.workers > 1 else ""
        return f"{shared}{self.in_flight}, {self.latency_s * 1000:.0f} ms"


WAYS = (Way(8, 0.005), Way(32, 0.1), Way(8, 0.005, workers=2))


class Tens(Rate):
    """A rate for a window of ten seconds."""

    @property
    def period_s(self) -> int:
        return 10


LIMITS: dict[str, tuple[Callable[[], Meter], int]] = {
    "bucket 20/s, burst 5": (lambda: TokenBucket(Rate(20), 5), 1205),
    "window 20 per 1 s": (lambda: FixedWindow(Rate(20)), 1200),
    "window 200 per 10 s": (lambda: FixedWindow(Tens(200)), 1200),
    "sliding 20 per 1 s": (lambda: SlidingWindow(Rate(20)), 1200),
    "sliding 200 per 10 s": (lambda: SlidingWindow(Tens(200)), 1200),
    "bucket 20/s, burst 20": (lambda: TokenBucket(Rate(20), 20), 1220),
    "bucket 20/s, burst 1": (lambda: TokenBucket(Rate(20), 1), 1201),
    "bucket 50/s, burst 10": (lambda: TokenBucket(Rate(50), 10), 3010),
    "bucket 100/s, burst 10": (lambda: TokenBucket(Rate(100), 10), 6010),
    "bucket 6/s, burst 3": (lambda: TokenBucket(Rate(6), 3), 363),
    "window 35 per second": (lambda: FixedWindow(Rate(35)), 2100),
    "sliding 8 per second": (lambda: SlidingWindow(Rate(8)), 480),
    "window 70 per ten seconds": (lambda: FixedWindow(Tens(70)), 420),
    "window 1200 per 60 s": (lambda: FixedWindow(Rate(1200, "m")), 1200),
    "sliding 1200 per 60 s": (lambda: SlidingWindow(Rate(1200, "m")), 1200),
}


@dataclass(slots=True)
class Span:
    """What became of the requests of a stretch of time: how many passed, and how many were refused."""

    passed: int = 0
    refused: int = 0


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


class Run:
    """Four minutes of one way to ask; `seed` chooses its delays, and where in a window it begins."""

    def __init__(self, meter: Meter, style: str, way: Way, seed: int) -> None:
        self.meter, self.style, self.way = meter, style, way
        self.chance = random.Random(seed)
        self.begins_at = self.chance.uniform(0.0, 60.0)
        self.idle_s = self.chance.random()
        self.first, self.later, self.early = Span(), Span(), 0
        self.began = math.inf
        self.paused_from, self.paused_until = 0.0, 0.0

    def ended(self) -> Run:
        at_once(self._main)
        return self

    async def _main(self) -> None:
        await asyncio.sleep(self.idle_s)
        board = Board(away_s=ROUND_TRIP_S)
        limiters = [self._limiter(board, worker) for worker in range(self.way.workers)]
        await asyncio.gather(*(self._work(one) for one in limiters for _ in range(self.way.in_flight)))

    def _limiter(self, board: Board, worker: int) -> RateLimiter:
        timing = Timing(clock=clock, sleep=asyncio.sleep, random=self.chance.random, now=now)
        sharing = Sharing(lambda _route: board, str(worker), print) if self.way.workers > 1 else None
        return RateLimiter(timing, sharing=sharing, concurrency=ConcurrencyLimit(self.way.in_flight))

    async def _work(self, limiter: RateLimiter) -> None:
        while clock() < self.began + END_S:
            await limiter.concurrency.enter()
            while not await self._is_sent(limiter):
                pass
            limiter.concurrency.leave()

    async def _is_sent(self, limiter: RateLimiter) -> bool:
        permit = await limiter.acquire()
        if permit is None:
            raise limiter.closed or AssertionError
        limiter.concurrency.sent()
        left = clock()
        self.began = min(self.began, left)
        self.early += self.paused_from < left < self.paused_until - 1e-6
        await self._on_its_way()
        wait_s = self.meter.take(self.begins_at + clock())
        self._count(clock() - self.began, is_refused=wait_s > 0)
        headers = spelt(self.style, wait_s)
        await self._on_its_way()
        limiter.concurrency.back(clock() - left, is_well=wait_s <= 0)
        self._report(limiter, permit, retry_after_s(headers, now()) if wait_s > 0 else None, is_refused=wait_s > 0)
        return wait_s <= 0

    def _count(self, since_s: float, *, is_refused: bool) -> None:
        for span, begins_s, ends_s in ((self.first, 0.0, MINUTE_S), (self.later, LATER_S, END_S)):
            if begins_s <= since_s < ends_s:
                span.refused, span.passed = span.refused + is_refused, span.passed + (not is_refused)

    def _report(self, limiter: RateLimiter, permit: Permit, asked_s: float | None, *, is_refused: bool) -> None:
        if not is_refused:
            limiter.passed()
            return
        if clock() >= self.paused_until:
            self.paused_from = clock() + (HEARD_S if self.way.workers > 1 else 0.0)
        self.paused_until = max(self.paused_until, clock() + (asked_s or 0.0))
        limiter.limited(permit, asked_s)

    async def _on_its_way(self) -> None:
        stall_s = STALL_S if self.chance.random() < STALL else 0.0
        await asyncio.sleep(self.way.latency_s * self.chance.uniform(0.4, 0.6) + stall_s)


@dataclass(frozen=True, slots=True)
class Cell:
    """The means of a cell's runs: of the first minute, and of minutes 3 and 4."""

    used: float
    met: float
    used_later: float
    met_later: float
    early: int

    @property
    def is_within_budget(self) -> bool:
        return self.used >= 0.85 and self.used_later >= 0.93 and max(self.met, self.met_later) < 0.02 and self.early == 0

    def __str__(self) -> str:
        early = f" [red]{self.early} early[/]" if self.early else ""
        colour = "green" if self.is_within_budget else "yellow"
        return f"[{colour}]{self.used:.1%} / {self.met:.1%}, {self.used_later:.1%} / {self.met_later:.1%}[/]{early}"


def cell(limit: str, style: str, way: Way) -> Cell:
    make, allowed = LIMITS[limit]
    runs = [Run(make(), style, way, seed).ended() for seed in range(RUNS)]
    per_s = round(allowed / MINUTE_S, 0) if allowed > MINUTE_S else allowed / MINUTE_S
    allowed_later = per_s * (END_S - LATER_S)
    return Cell(
        sum(min(one.first.passed, allowed) for one in runs) / allowed / RUNS,
        _met([one.first for one in runs]),
        sum(min(one.later.passed, allowed_later) for one in runs) / allowed_later / RUNS,
        _met([one.later for one in runs]),
        sum(one.early for one in runs),
    )


def _met(spans: list[Span]) -> float:
    refused = sum(one.refused for one in spans)
    return refused / max(refused + sum(one.passed for one in spans), 1)


def _wanted(words: list[str]) -> list[str]:
    """The limits whose name has one of the words, all where there is none. A word that names no limit ends the program."""
    nothing = [word for word in words if not any(word in one for one in LIMITS)]
    if nothing:
        sys.exit(f"no limit has {' or '.join(map(repr, nothing))} in its name; there are:\n  " + "\n  ".join(LIMITS))
    return [one for one in LIMITS if not words or any(word in one for word in words)]


def run_grid(limits: Sequence[str]) -> dict[tuple[str, str], list[Cell]]:
    """Return the cells of each limit and each form of Retry-After, in the order of `WAYS`; on all cores."""
    rows = list(product(limits, STYLES))
    with ProcessPoolExecutor() as workers:
        found = list(workers.map(cell, *zip(*((*row, way) for row in rows for way in WAYS), strict=True), chunksize=2))
    return {row: found[number * len(WAYS) : (number + 1) * len(WAYS)] for number, row in enumerate(rows)}


def mean(cells: Sequence[Cell]) -> Cell:
    count = len(cells)
    return Cell(
        sum(one.used for one in cells) / count,
        sum(one.met for one in cells) / count,
        sum(one.used_later for one in cells) / count,
        sum(one.met_later for one in cells) / count,
        sum(one.early for one in cells),
    )


def main() -> None:
    table = Table(title="Share of the limit used / share answered 429: first minute, minutes 3 and 4")
    for heading in ("limit", "Retry-After", *map(str, WAYS)):
        table.add_column(heading, no_wrap=True)
    found = run_grid(_wanted(sys.argv[1:]))
    groups: dict[str, list[Cell]] = {}
    for (limit, style), cells in found.items():
        table.add_row(limit, style, *map(str, cells))
        kind = "bucket, burst 1" if limit.endswith("burst 1") else limit.split()[0]
        for way, one in zip(WAYS, cells, strict=True):
            for name in ("all", kind):
                groups.setdefault(f"{name}, {way.workers} workers", []).append(one)
    console = Console(width=220)
    console.print(table)
    for name, cells in groups.items():
        console.print(f"{name}: {mean(cells)}, {mean(cells).early} sent in a pause")


if __name__ == "__main__":
    main()
