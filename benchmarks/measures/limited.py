"""Budget 7: how much of an unknown limit the worker uses, and how often it meets it.

First a grid of limits, forms of Retry-After and workers in virtual time, which the budget is about. Then three limits of real
servers, forty seconds from the first request, judged by their later half. They run side by side, each with a server of its own:
a hundred requests a second leave the machine idle.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pace_grid
import rows
from bench_room import Room
from contenders import ASYNC_AIOHTTP, is_there
from outcome import Details, Line, Result, Standing, at_least, at_most, spread, worst
from running import Server, server
from worker import Worker

PER_S = 100
BURST = 10
SECONDS = 5
"""How many times longer than under latency: the lesson has to be over in half of it."""
SHARE_OF_PEERS = 8
"""A script that learns nothing is as slow at the end as at the beginning: it need not take as long."""
LIMITS = {"bucket": f"bucket:{PER_S}:{BURST}", "fixed window": f"window:{PER_S}", "sliding window": f"sliding:{PER_S}"}


@dataclass(slots=True)
class Use:
    """Of one limit, round by round: the share that was used, and the share of answers that were 429; of the later half too."""

    limit: str
    used: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    later_used: list[float] = field(default_factory=list)
    later_refused: list[float] = field(default_factory=list)

    def add(self, account: Mapping[str, Any]) -> None:
        free, later = BURST if self.limit == "bucket" else 0, account["second_half"]
        self.used.append((account["events"] - free) / (PER_S * account["span_s"]))
        self.refused.append(account["refused"] / account["posts"])
        self.later_used.append(later["per_s"] / PER_S)
        self.later_refused.append(later["refused"] / (later["refused"] + later["admitted"]))

    @property
    def standing(self) -> Standing:
        used, refused = spread(self.later_used).median, spread(self.later_refused).median
        return worst([at_least(used, 0.93), at_most(refused, 0.02)])

    def says(self) -> str:
        return f"{self.limit}: {spread(self.later_used).median:.1%}, {spread(self.later_refused).median:.2%}"


def measure(room: Room) -> Iterator[Result]:
    names = list(LIMITS)[: 1 if room.sizes.is_quick else None]
    ours = {name: Use(name) for name in names}
    theirs = {name: Use(name) for name in names if is_there(ASYNC_AIOHTTP)}
    seconds = room.sizes.seconds * (1 if room.sizes.is_quick else SECONDS)
    for turn in range(room.sizes.rounds):
        room.say(f"unknown limits: {', '.join(names)}, {seconds:.0f} s, round {turn + 1}")
        _all_at_once(room, _worker, int(PER_S * seconds), ours)
        _all_at_once(room, _peer, int(PER_S * seconds) // SHARE_OF_PEERS, theirs)
    line = Line(
        "7",
        f"an unknown limit of {PER_S}/s, once it is known: share used, answers 429",
        f"by hand, aiohttp, waiting as asked: {'; '.join(one.says() for one in theirs.values())}" if theirs else "not installed",
        "; ".join(one.says() for one in ours.values()),
        "",
        "93 %, 2 %",
        worst([one.standing for one in ours.values()]),
    )
    yield Result((*_grid_lines(room), line), (_details(ours, theirs),))


def _grid_lines(room: Room) -> Iterator[Line]:
    if room.sizes.is_quick:
        return
    room.say(f"{len(pace_grid.LIMITS)} unknown limits in virtual time")
    cells = pace_grid.run_grid(list(pace_grid.LIMITS)).values()
    for number in sorted({way.workers for way in pace_grid.WAYS}):
        ways = [place for place, way in enumerate(pace_grid.WAYS) if way.workers == number]
        mean = pace_grid.mean([each[place] for each in cells for place in ways])
        yield Line(
            "7",
            f"an unknown limit, mean of {len(pace_grid.LIMITS)} limits in virtual time, workers: {number}",
            "the limit",
            f"first minute: {mean.used:.1%}, 429: {mean.met:.1%}; from the third: {mean.used_later:.1%}, {mean.met_later:.1%}",
            f"{mean.early} requests in a pause",
            "85 %, then 93 %; 429: 2 %; none in a pause",
            Standing.MET if mean.is_within_budget else Standing.MISSED,
        )


def _all_at_once(room: Room, what: Callable[[Room, Server, int], None], count: int, uses: Mapping[str, Use]) -> None:
    """Meet the limits side by side; a bench that is stopped meanwhile does not wait for the threads."""
    pool = ThreadPoolExecutor(len(LIMITS))
    with ExitStack() as stack:
        services = [stack.enter_context(server("--limit", LIMITS[name])) for name in uses]
        try:
            list(pool.map(what, [room] * len(uses), services, [count] * len(uses)))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        for use, service in zip(uses.values(), services, strict=True):
            account = service.account()
            assert account["events"] == count, account
            use.add(account)


def _worker(room: Room, service: Server, count: int) -> None:
    folder = room.folder("limited")
    worker = Worker(folder, service.url)
    worker.prepare(32)
    rows.write_rows(worker.source, count)
    worker.sync("--stage-only")
    worker.sync("--publish-only")
    shutil.rmtree(folder)


def _peer(room: Room, service: Server, count: int) -> None:
    _, folder = room.peer(ASYNC_AIOHTTP, service, count)
    shutil.rmtree(folder)


def _details(ours: Mapping[str, Use], theirs: Mapping[str, Use]) -> Details:
    cells = []
    for who, uses in (("**eventsync**", ours), ("by hand, asyncio, aiohttp, 32 in flight", theirs)):
        for one in uses.values():
            shares = [spread(each).says("{:.1%}") for each in (one.later_used, one.used)]
            refusals = [spread(each).says("{:.2%}") for each in (one.later_refused, one.refused)]
            cells.append((one.limit, who, shares[0], refusals[0], shares[1], refusals[1]))
    headings = ("limit", "who", "used", "answered 429", "used, lesson included", "429, lesson included")
    return Details(f"An unknown limit of {PER_S}/s", headings, tuple(cells))
