"""The first minute under a limit that nobody told, in virtual time: `python benchmarks/pace_grid.py [LIMIT...]`.

Each cell is the share of the limit that was used, and the share of requests that were answered 429: means of several
minutes that begin anywhere in a window, with other delays on the way. What real processes make of it is measured by `pace.py`.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from email.utils import format_datetime
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from connectors.rate_limit import Admitted, Closed, Crowd, Pacer, Surroundings
from connectors.rate_limit_state import Shared, Sharing
from connectors.retry import retry_after_s
from sandbox.limits import FixedWindow, Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from virtual_time import EPOCH, at_once, clock, now  # the tests' own clock

MINUTE_S = 60.0
MINUTES = 6
"""How many make a cell."""
STALL, STALL_S = 0.01, 0.015
"""So often a request is held up on its way, and for how long: no machine is idle."""
HEARD_S = 0.25
"""How long it takes until one worker knows of the pause that another was told of."""
STYLES = ("seconds", "fraction", "date", "absent")


@dataclass(frozen=True, slots=True)
class Way:
    """Requests in flight for each worker, the seconds that an answer takes, and how many workers share the limit."""

    in_flight: int
    latency_s: float
    workers: int = 1

    def __str__(self) -> str:
        shared = f"{self.workers} x " if self.workers > 1 else ""
        return f"{shared}{self.in_flight}, {self.latency_s * 1000:.0f} ms"


WAYS = (*(Way(in_flight, latency_s) for latency_s in (0.005, 0.1) for in_flight in (4, 8, 32)), Way(8, 0.005, workers=2))


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


@dataclass(frozen=True, slots=True)
class There:
    text: str = ""
    version: int = 0
    others: int = 0
    now_s: float = 0.0
    written_s: float = 0.0


class Board:
    """What the workers of a minute share, as the state DB keeps it."""

    def __init__(self) -> None:
        self.text, self.version, self.workers = "", 0, set[int]()

    def seen_by(self, worker: int) -> There:
        return There(self.text, self.version, len(self.workers - {worker}), clock())


@dataclass(frozen=True, slots=True)
class Place:
    board: Board
    worker: int

    def meet(self) -> Shared:
        self.board.workers.add(self.worker)
        return self.look()

    def look(self) -> Shared:
        return self.board.seen_by(self.worker)

    def change(self, turn: Callable[[Shared], str]) -> Shared:
        self.board.text = turn(self.look())
        self.board.version += 1
        return self.look()

    def leave(self) -> None:
        self.board.workers.discard(self.worker)


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a minute: requests that passed, that were refused, and that left during a pause."""

    passed: int
    refused: int
    early: int


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


class Minute:
    """One minute of one way to ask; `seed` chooses its delays, and where in a window it begins."""

    def __init__(self, meter: Meter, style: str, way: Way, seed: int) -> None:
        self.meter, self.style, self.way = meter, style, way
        self.chance = random.Random(seed)
        self.begins_at = self.chance.uniform(0.0, 60.0)
        self.idle_s = self.chance.random()
        self.ends_s = math.inf
        self.passed, self.refused, self.early = 0, 0, 0
        self.paused_until = 0.0

    def told(self) -> Told:
        at_once(self._main)
        return Told(self.passed, self.refused, self.early)

    async def _main(self) -> None:
        await asyncio.sleep(self.idle_s)
        board = Board()
        pacers = [self._pacer(board, worker) for worker in range(self.way.workers)]
        await asyncio.gather(*(self._work(paced) for paced in pacers for _ in range(self.way.in_flight)))

    def _pacer(self, board: Board, worker: int) -> Pacer:
        around = Surroundings(clock=clock, sleep=asyncio.sleep, random=self.chance.random, now=now)
        sharing = Sharing(Place(board, worker), clock, print) if self.way.workers > 1 else None
        return Pacer(around, sharing=lambda _route: sharing, crowd=Crowd(self.way.in_flight))

    async def _work(self, paced: Pacer) -> None:
        while clock() < self.ends_s:
            await paced.crowd.enter()
            while not await self._is_sent(paced):
                pass
            paced.crowd.leave()

    async def _is_sent(self, paced: Pacer) -> bool:
        admitted = await paced.admit()
        if isinstance(admitted, Closed):
            raise admitted.cause
        paced.crowd.sent()
        began = clock()
        self.ends_s = min(self.ends_s, began + MINUTE_S)
        self.early += began < self.paused_until - 1e-6 - (HEARD_S if self.way.workers > 1 else 0.0)
        await self._on_its_way()
        wait_s = self.meter.take(self.begins_at + clock())
        headers = spelt(self.style, wait_s)
        if clock() <= self.ends_s:
            self.refused, self.passed = self.refused + (wait_s > 0), self.passed + (wait_s <= 0)
        await self._on_its_way()
        paced.crowd.back(clock() - began, is_well=wait_s <= 0)
        self._tell(paced, admitted, retry_after_s(headers, now()) if wait_s > 0 else None, is_refused=wait_s > 0)
        return wait_s <= 0

    def _tell(self, paced: Pacer, admitted: Admitted, asked_s: float | None, *, is_refused: bool) -> None:
        if not is_refused:
            paced.passed()
            return
        self.paused_until = max(self.paused_until, clock() + (asked_s or 0.0))
        paced.limited(admitted, asked_s)

    async def _on_its_way(self) -> None:
        stall_s = STALL_S if self.chance.random() < STALL else 0.0
        await asyncio.sleep(self.way.latency_s * self.chance.uniform(0.4, 0.6) + stall_s)


@dataclass(frozen=True, slots=True)
class Cell:
    """The mean and the worst of a cell's minutes."""

    used: float
    met: float
    least_used: float
    early: int

    def __str__(self) -> str:
        early = f" [red]{self.early} early[/]" if self.early else ""
        colour = "green" if self.used >= 0.95 and self.met < 0.02 else "yellow"
        return f"[{colour}]{self.used:.1%}[/] / {self.met:.1%} ({self.least_used:.0%}){early}"


def cell(limit: str, style: str, way: Way) -> Cell:
    make, allowed = LIMITS[limit]
    minutes = [Minute(make(), style, way, seed).told() for seed in range(MINUTES)]
    passed, refused = sum(min(one.passed, allowed) for one in minutes), sum(one.refused for one in minutes)
    least = min(one.passed for one in minutes) / allowed
    return Cell(passed / allowed / MINUTES, refused / (passed + refused), least, sum(one.early for one in minutes))


def _wanted(words: list[str]) -> list[str]:
    """The limits whose name has one of the words, all where there is none. A word that names no limit ends the program."""
    nothing = [word for word in words if not any(word in one for one in LIMITS)]
    if nothing:
        sys.exit(f"no limit has {' or '.join(map(repr, nothing))} in its name; there are:\n  " + "\n  ".join(LIMITS))
    return [one for one in LIMITS if not words or any(word in one for word in words)]


def main() -> None:
    table = Table(title="Share of the limit used / share answered 429 (least used) in the first minute")
    for heading in ("limit", "Retry-After", *map(str, WAYS)):
        table.add_column(heading, no_wrap=True)
    rows = list(product(_wanted(sys.argv[1:]), STYLES))
    with ProcessPoolExecutor() as workers:
        found = list(workers.map(cell, *zip(*((*row, way) for row in rows for way in WAYS), strict=True), chunksize=2))
    for number, row in enumerate(rows):
        table.add_row(*row, *map(str, found[number * len(WAYS) : (number + 1) * len(WAYS)]))
    console = Console(width=220)
    console.print(table)
    good = sum(one.used >= 0.95 and one.met < 0.02 for one in found)
    used, met = sum(one.used for one in found) / len(found), sum(one.met for one in found) / len(found)
    console.print(f"{good} of {len(found)} cells have 95 % and less than 2 %; all: {used:.1%} / {met:.1%}")


if __name__ == "__main__":
    main()
