"""Budget 6: how much of in flight / latency is reached, beside bytes alone and the asynchronous scripts by hand.

The rate is the server's count in the later half of the time. A worker finds out how many at once a service bears, and a script
opens its connections all at once: what such a beginning costs is told apart, as seconds lost against that rate.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import rows
from bench_room import Room
from contenders import ASYNC_AIOHTTP, ASYNC_HTTPX, Contender, is_there
from outcome import Details, Line, Result, Spread, at_least, spread, worst
from running import HERE, Server, run, server
from worker import Worker

CASES = ((20, 32, 0.80), (100, 128, 0.90))
"""Milliseconds that an answer takes, requests in flight, and the share of raw asyncio that is to be reached."""


@dataclass(slots=True)
class Rates:
    """Of one contender, round by round: the share of in flight / latency, once it goes; seconds lost until it did."""

    who: str
    is_ours: bool = False
    shares: list[float] = field(default_factory=list)
    lost_s: list[float] = field(default_factory=list)

    def add(self, service: Server, most_per_s: float) -> None:
        account = service.account()
        per_s = account["second_half"]["per_s"]
        self.shares.append(per_s / most_per_s)
        self.lost_s.append(max(0.0, account["span_s"] - account["events"] / per_s))

    @property
    def share(self) -> Spread:
        return spread(self.shares)


@dataclass(frozen=True, slots=True)
class Case:
    delay_ms: int
    in_flight: int
    budget: float

    @property
    def name(self) -> str:
        return f"{self.delay_ms} ms x {self.in_flight}"

    @property
    def most_per_s(self) -> float:
        return self.in_flight / self.delay_ms * 1000


def measure(room: Room) -> Iterator[Result]:
    found = {case: _rates(room, case) for case in (Case(*each) for each in CASES[: 1 if room.sizes.is_quick else None])}
    ours, raw = ({case: rates[place].share.median for case, rates in found.items()} for place in (1, 0))
    best = [(case, max((one.share.median for one in rates[2:]), default=0.0)) for case, rates in found.items()]
    ratios = {case: share / raw[case] for case, share in ours.items()}
    line = Line(
        "6",
        f"requests a second, {' and '.join(case.name for case in ours)} in flight",
        f"{_says('raw asyncio', raw.values())}; {_says('by hand, best', (share for _, share in best))}",
        ", ".join(f"{share:.0%} of in flight / latency" for share in ours.values()),
        f"{', '.join(f'{ratio:.2f} x' for ratio in ratios.values())} raw asyncio",
        ", ".join(f"{case.budget:.2f} x" for case in ours),
        worst([at_least(ratio, case.budget) for case, ratio in ratios.items()]),
    )
    yield Result((line,), (_details(found),))


def _says(who: str, shares: Iterable[float]) -> str:
    return f"{who}: {', '.join(f'{share:.0%}' for share in shares)}"


def _rates(room: Room, case: Case) -> list[Rates]:
    """Return the rates of bytes alone, of eventsync, of the scripts by hand."""
    count = int(case.most_per_s * room.sizes.seconds)
    asked = (ASYNC_AIOHTTP,) if room.sizes.is_quick else (ASYNC_AIOHTTP, ASYNC_HTTPX)
    peers = [one for one in asked if is_there(one)]
    raw, ours = Rates("raw asyncio"), Rates("eventsync", is_ours=True)
    theirs = [Rates(f"by hand, {one.needs}") for one in peers]
    with server("--delay-ms", str(case.delay_ms)) as service:
        for turn in range(room.sizes.rounds):
            room.say(f"{case.delay_ms} ms of latency, {case.in_flight} in flight, round {turn + 1}")
            _raw(service, case.in_flight, count)
            raw.add(service, case.most_per_s)
            _worker(room, service, case.in_flight, count)
            ours.add(service, case.most_per_s)
            for one, rates in zip(peers, theirs, strict=True):
                _peer(room, service, one.with_in_flight(case.in_flight), count)
                rates.add(service, case.most_per_s)
    return [raw, ours, *theirs]


def _raw(service: Server, in_flight: int, count: int) -> None:
    service.forget()
    command = [sys.executable, str(HERE / "client.py"), "raw streams", service.url]
    run([*command, "--in-flight", str(in_flight), "--requests", str(count)])


def _worker(room: Room, service: Server, in_flight: int, count: int) -> None:
    folder = room.folder("latency")
    worker = Worker(folder, service.url)
    worker.prepare(in_flight)
    rows.write_rows(worker.source, count)
    worker.sync("--stage-only")
    service.forget()
    worker.sync("--publish-only")
    shutil.rmtree(folder)
    assert service.account()["events"] == count, service.account()


def _peer(room: Room, service: Server, contender: Contender, count: int) -> None:
    """Httpx's pool goes at a tenth of the others' pace, and gets a tenth of their rows."""
    service.forget()
    fewer = max(200, int(count * (1.0 if contender.share == 1 else 0.1)))
    _, folder = room.peer(contender, service, fewer)
    shutil.rmtree(folder)
    assert service.account()["events"] == fewer, service.account()


def _details(found: dict[Case, list[Rates]]) -> Details:
    cells = []
    for case, rates in found.items():
        for one in rates:
            who = f"**{one.who}**" if one.is_ours else one.who
            per_s = f"{one.share.median * case.most_per_s:,.0f}"
            cells.append((case.name, who, per_s, one.share.says("{:.0%}"), spread(one.lost_s).says("{:.1f}")))
    headings = ("latency x in flight", "who", "requests/s", "share", "lost at the beginning, s")
    return Details("Throughput under latency", headings, tuple(cells))
