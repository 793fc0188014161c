"""Budget 6: how much of in flight / latency is reached, beside bytes alone and the asynchronous scripts by hand.

The rate is the server's count, from the first request to the last; of the script that has no pace of its own, too.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass

import rows
from bench_room import Room
from contenders import ASYNC_AIOHTTP, ASYNC_HTTPX, Contender, is_there
from outcome import Bar, Details, Line, Plot, Result, Spread, at_least, spread, worst
from running import HERE, Server, run, server
from worker import Worker

CASES = ((20, 32), (100, 128))
"""Milliseconds that an answer takes, and requests in flight."""


@dataclass(frozen=True, slots=True)
class Shares:
    delay_ms: int
    in_flight: int
    raw: Spread
    ours: Spread
    theirs: dict[str, Spread]

    @property
    def name(self) -> str:
        return f"{self.delay_ms} ms x {self.in_flight}"


def measure(room: Room) -> Result:
    found = [_case(room, delay_ms, in_flight) for delay_ms, in_flight in CASES]
    standing = worst([at_least(one.ours.median, 0.90, 0.97) for one in found])
    best = [f"{one.name}: {max((each.median for each in one.theirs.values()), default=0):.0%}" for one in found]
    line = Line(
        "6",
        "throughput under latency, share of in flight / latency",
        "; ".join(f"raw asyncio {one.name}: {one.raw.median:.0%}" for one in found),
        f"by hand, best: {'; '.join(best)}",
        "; ".join(f"{one.name}: {one.ours.says('{:.0%}')}" for one in found),
        "; ".join(f"{one.ours.median / one.raw.median:.2f} of raw" for one in found),
        "90 %",
        "97 %",
        standing,
    )
    return Result((line,), (_details(found),), (_plot(found),))


def _case(room: Room, delay_ms: int, in_flight: int) -> Shares:
    most = in_flight / delay_ms * 1000
    count = int(most * room.sizes.seconds)
    asked = (ASYNC_AIOHTTP,) if room.sizes.is_quick else (ASYNC_AIOHTTP, ASYNC_HTTPX)
    peers = [one for one in asked if is_there(one)]
    raw: list[float] = []
    ours: list[float] = []
    theirs: dict[str, list[float]] = {one.needs: [] for one in peers}
    with server("--delay-ms", str(delay_ms)) as service:
        for turn in range(room.sizes.rounds):
            room.say(f"{delay_ms} ms of latency, {in_flight} in flight, round {turn + 1}")
            raw.append(_raw(service, in_flight, count) / most)
            ours.append(_worker(room, service, in_flight, count) / most)
            for one in peers:
                theirs[one.needs].append(_peer(room, service, one.with_in_flight(in_flight), count) / most)
    return Shares(delay_ms, in_flight, spread(raw), spread(ours), {name: spread(each) for name, each in theirs.items()})


def _raw(service: Server, in_flight: int, count: int) -> float:
    command = [sys.executable, str(HERE / "client.py"), "raw streams", service.url]
    told = run([*command, "--in-flight", str(in_flight), "--requests", str(count)])
    return float(json.loads(told.out)["per_s"])


def _worker(room: Room, service: Server, in_flight: int, count: int) -> float:
    folder = room.folder("latency")
    worker = Worker(folder, service.url)
    worker.prepare(in_flight)
    rows.write_rows(worker.source, count)
    worker.sync("--stage-only")
    service.forget()
    worker.sync("--publish-only")
    shutil.rmtree(folder)
    return _rate(service, count, in_flight)


def _peer(room: Room, service: Server, contender: Contender, count: int) -> float:
    service.forget()
    fewer = max(200, int(count * contender.share))
    _, folder = room.peer(contender, service, fewer)
    shutil.rmtree(folder)
    return _rate(service, fewer, contender.in_flight or 1)


def _rate(service: Server, count: int, in_flight: int) -> float:
    """Return requests a second: of those that came in the span, not those with which it began."""
    account = service.account()
    assert account["events"] == count, account
    return float((count - in_flight) / account["span_s"])


def _details(found: list[Shares]) -> Details:
    cells = []
    for one in found:
        most = one.in_flight / one.delay_ms * 1000
        rows_of = [("raw asyncio", one.raw), ("**eventsync**", one.ours), *((f"by hand, {k}", v) for k, v in one.theirs.items())]
        cells += [(one.name, who, f"{each.median * most:,.0f}", each.says("{:.0%}")) for who, each in rows_of]
    return Details("Throughput under latency", ("latency x in flight", "who", "requests/s", "share"), tuple(cells))


def _plot(found: list[Shares]) -> Plot:
    bars = []
    for one in found:
        bars.append(Bar(f"{one.name}: raw asyncio", one.raw.median * 100))
        bars.append(Bar(f"{one.name}: eventsync", one.ours.median * 100, is_ours=True))
        bars += [Bar(f"{one.name}: by hand, {name}", each.median * 100) for name, each in one.theirs.items()]
    return Plot("latency", "Share of in flight / latency", "%", tuple(bars), budget=90)
