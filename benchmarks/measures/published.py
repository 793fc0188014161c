"""Budgets 5 and 5b: the whole way of a row, from the CSV to the service, ledger included; and the same run again.

Each contender's start-up is taken off by a run of ten rows. What the service got is counted and digested: all do the same job.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import rows
from bench_room import Room
from contenders import ALL, DLT, DLT_WAYS, QUICK, Contender, is_there
from outcome import Bar, Details, Line, Plot, Result, Spread, Standing, at_least, at_most, spread, worst
from running import HERE, Cost, Server, run, server
from worker import Worker

FEW = 10
NOISE_S = 0.2
"""Runs that differ by less say nothing of the rows."""
IN_FLIGHT = {8: 400, 32: 400, 128: 450}
"""Requests in flight, and the budget of each: CPU in us a row."""


@dataclass(slots=True)
class Runs:
    """What one contender took, round by round."""

    name: str
    is_ours: bool = False
    cpu_us: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)
    again_posts: int = 0

    def add(self, few: Cost, many: Cost, count: int) -> None:
        self.cpu_us.append((many.cpu_s - few.cpu_s) / (count - FEW) * 1e6)
        longer_s = many.wall_s - few.wall_s
        self.per_s.append((count - FEW) / longer_s if longer_s > NOISE_S else -1.0)
        self.peak_mb.append(many.peak_mb)

    @property
    def is_first(self) -> bool:
        """Whether this is the first round: the run again is taken in it alone."""
        return not self.cpu_us

    @property
    def cost(self) -> Spread:
        return spread(self.cpu_us)


def measure(room: Room) -> Iterator[Result]:
    numbers = (32,) if room.sizes.is_quick else tuple(IN_FLIGHT)
    ours = {number: Runs(f"**eventsync, {number} in flight**", is_ours=True) for number in numbers}
    asked = QUICK if room.sizes.is_quick else ALL
    there = [one for one in asked if is_there(one)]
    theirs = {one: Runs(one.name) for one in there}
    floors: dict[int, list[float]] = {number: [] for number in numbers}
    digests: dict[int, str] = {}
    with server() as service:
        for turn in range(room.sizes.rounds):
            for number in numbers:
                room.say(f"publishing, round {turn + 1}: eventsync, {number} in flight")
                floors[number].append(_raw(service, number, room.sizes.published))
                _eventsync(room, service, number, ours[number], digests)
            for one in there:
                room.say(f"publishing, round {turn + 1}: {one.name}")
                _peer(room, service, one, theirs[one], digests)
        small = _again(room, service)
    missing = [one.name for one in asked if one not in there]
    floor = {number: spread(found) for number, found in floors.items()}
    lines = (_cost_line(ours, theirs, floor), _dlt_line(ours, theirs), _again_line(room, small, theirs))
    yield Result(lines, (_details(ours, theirs, floor, missing),), (_plot(ours, theirs, floor),))


def _eventsync(room: Room, service: Server, in_flight: int, runs: Runs, digests: dict[int, str]) -> None:
    costs = []
    for count in (FEW, room.sizes.published):
        folder = room.folder("eventsync")
        worker = Worker(folder, service.url)
        worker.prepare(in_flight)
        rows.write_rows(worker.source, count)
        service.forget()
        costs.append(worker.sync())
        _check(service, count, digests, runs.name)
    if runs.is_first:
        runs.again_s.append(worker.sync().wall_s)
        runs.again_posts = service.posts() - count
    runs.add(*costs, count)
    shutil.rmtree(folder)


def _peer(room: Room, service: Server, contender: Contender, runs: Runs, digests: dict[int, str]) -> None:
    count = max(FEW * 20, int(room.sizes.sent * contender.share))
    service.forget()
    few, _ = room.peer(contender, service, FEW)
    _check(service, FEW, digests, contender.name)
    service.forget()
    many, folder = room.peer(contender, service, count)
    _check(service, count, digests, contender.name)
    if runs.is_first and not room.sizes.is_quick:
        again, _ = room.peer(contender, service, count, folder)
        runs.again_s.append(again.wall_s)
        runs.again_posts = service.posts() - count
    runs.add(few, many, count)
    shutil.rmtree(folder)


def _check(service: Server, count: int, digests: dict[int, str], name: str) -> None:
    """Every row once, each with a key of its own; and the same events as everybody else's."""
    account = service.account()
    assert (account["posts"], account["events"]) == (count, count), f"{name}: {account}"
    assert digests.setdefault(count, account["digest"]) == account["digest"], f"{name} sent other events: {account}"


def _raw(service: Server, in_flight: int, requests: int) -> float:
    command = [sys.executable, str(HERE / "client.py"), "raw streams", service.url]
    told = run([*command, "--in-flight", str(in_flight), "--requests", str(min(requests, 20_000))])
    return float(json.loads(told.out)["cpu_us"])


def _again(room: Room, service: Server) -> Spread:
    """Return the seconds of a run of as many rows as the peers', nothing changed."""
    folder = room.folder("again")
    worker = Worker(folder, service.url)
    worker.prepare(32)
    rows.write_rows(worker.source, room.sizes.again)
    worker.sync()
    found = spread(room.rounds(lambda: worker.sync().wall_s))
    shutil.rmtree(folder)
    return found


def _cost_line(ours: dict[int, Runs], theirs: dict[Contender, Runs], floor: dict[int, Spread]) -> Line:
    dearest = max(ours.values(), key=lambda runs: runs.cost.median).cost
    cells = [f"{number}: {runs.cost.says()}" for number, runs in ours.items()]
    return Line(
        "5",
        "publish end to end, ledger included, CPU a row at 8, 32, 128 in flight",
        f"raw asyncio {', '.join(f'{one.median:.0f}' for one in floor.values())} us",
        _peers_say(theirs),
        f"{'; '.join(cells)} us",
        f"{dearest.median / max(one.median for one in floor.values()):.0f} x bytes alone",
        "; ".join(f"{number}: {IN_FLIGHT[number]}" for number in ours) + " us",
        "200 us",
        worst([at_most(runs.cost.median, IN_FLIGHT[number], 200) for number, runs in ours.items()]),
    )


def _dlt_line(ours: dict[int, Runs], theirs: dict[Contender, Runs]) -> Line:
    """The budget is the way that dlt documents; the two others are shown beside it."""
    dearest = max(runs.cost.median for runs in ours.values())
    ways = {one: theirs[one].cost.median / dearest for one in DLT_WAYS if one in theirs}
    return Line(
        "5a",
        "the same beside dlt's documented session; and beside two ways that its documentation does not show",
        "",
        "; ".join(f"{one.name}: {theirs[one].cost.says()}" for one in ways) + " us" if ways else "not installed",
        f"our dearest: {dearest:,.0f} us",
        "; ".join(f"{one.name}: {ratio:.1f} x ours" for one, ratio in ways.items()),
        "below the documented session",
        "3 x below",
        at_least(ways[DLT], 1, 3) if DLT in ways else Standing.SHOWN,
    )


def _peers_say(theirs: dict[Contender, Runs]) -> str:
    """Return the cheapest and the dearest; all of them are in the table of their own."""
    if not theirs:
        return "not installed"
    costs = sorted((runs.cost.median, one.name) for one, runs in theirs.items())
    least, most = (f"{cost:,.0f} ({name})" for cost, name in (costs[0], costs[-1]))
    return f"{least} to {most} us"


def _again_line(room: Room, ours: Spread, theirs: dict[Contender, Runs]) -> Line:
    posting = [f"{one.name}: {runs.again_posts:,}" for one, runs in theirs.items() if runs.again_posts]
    fastest = min((spread(runs.again_s).median for one, runs in theirs.items() if one.share == 1 and runs.again_s), default=0.0)
    return Line(
        "5b",
        f"the same run again, nothing changed: {room.sizes.again:,} rows, wall time, start-up included",
        "",
        f"posts again: {'; '.join(posting)}" if posting else "",
        f"0 requests, {ours.says('{:.2f}')} s",
        f"the fastest peer, {room.sizes.sent:,} rows: {fastest:.2f} s" if fastest else "",
        "0 requests, 1.5 s",
        "0.8 s",
        at_most(ours.median, 1.5, 0.8),
    )


def _details(ours: dict[int, Runs], theirs: dict[Contender, Runs], floor: dict[int, Spread], missing: Sequence[str]) -> Details:
    cells = [
        (f"raw asyncio streams, {number} in flight: bytes alone", one.says(), "", "", "", "") for number, one in floor.items()
    ]
    for runs in (*ours.values(), *theirs.values()):
        figures = (runs.cost.says(), spread(runs.per_s).says(), spread(runs.peak_mb).says(), _says(runs.again_s))
        cells.append((runs.name, *figures, f"{runs.again_posts:,}"))
    cells += [(name, "not installed", "", "", "", "") for name in missing]
    headings = ("who", "CPU, us a row", "rows/s", "peak MB", "again, s", "posts again")
    note = (
        "Medians, and from where to where the rounds went. Start-up is taken off the first two columns. Every contender's "
        "events were counted at the server and were the same, one for each row, each with its own key. The run again is the"
        " first round's. Our runs are longer than the peers', so that its seconds compare between peers only; 5b compares "
        "them with ours. dlt's three ways: `its requests session` is what its documentation shows for a destination of "
        "one's own; `in 32 threads` sends each of its batches by a pool of threads; `aiohttp inside` sends batches of a "
        "thousand over aiohttp, so that hardly anything of dlt is left on the way of a row. None of the three keeps a "
        "ledger."
    )
    return Details("The whole way of a row, beside the peers", headings, tuple(cells), note)


def _says(seconds: Sequence[float]) -> str:
    return spread(seconds).says("{:.1f}") if seconds else ""


def _plot(ours: dict[int, Runs], theirs: dict[Contender, Runs], floor: dict[int, Spread]) -> Plot:
    bars = [Bar(f"raw asyncio, {number} in flight", one.median) for number, one in floor.items() if number == 32]
    bars += [Bar(runs.name.strip("*"), runs.cost.median, is_ours=True) for runs in ours.values()]
    bars += [Bar(one.name, runs.cost.median) for one, runs in theirs.items()]
    return Plot("publishing", "From the CSV to the service, CPU per row", "us", tuple(bars), budget=400, is_logarithmic=True)
