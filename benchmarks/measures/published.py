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
from contenders import ALL, ASYNC_AIOHTTP, DLT, DRT, QUICK, Contender, is_there
from outcome import Bar, Details, Line, Plot, Result, Spread, Standing, at_most, spread, worst
from running import HERE, Cost, Server, run, server
from worker import Worker

FEW = 10
NOISE_S = 0.2
"""Runs that differ by less say nothing of the rows."""
IN_FLIGHT = (8, 32, 128)
JUDGED = 32
BUDGETS = {ASYNC_AIOHTTP: 1.8, DRT: 0.85, DLT: 0.45}
"""Our CPU a row at so many in flight, beside that of these."""


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
    numbers = (JUDGED,) if room.sizes.is_quick else IN_FLIGHT
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
    lines = (_cost_line(ours, theirs), _again_line(room, ours[JUDGED], small, theirs))
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


def _cost_line(ours: dict[int, Runs], theirs: dict[Contender, Runs]) -> Line:
    own = ours[JUDGED].cost.median
    beside = {one: theirs[one].cost.median for one in BUDGETS if one in theirs}
    return Line(
        "5",
        f"publish from a CSV, ledger included, {JUDGED} in flight, CPU a row",
        "; ".join(f"{one.name}: {cost:,.0f} us" for one, cost in beside.items()) or "not installed",
        f"{own:,.0f} us",
        "; ".join(f"{own / cost:.2f} x" for cost in beside.values()),
        "; ".join(f"{BUDGETS[one]} x" for one in beside),
        worst([at_most(own / cost, BUDGETS[one]) for one, cost in beside.items()]) if beside else Standing.SHOWN,
    )


def _again_line(room: Room, ours: Runs, again: Spread, theirs: dict[Contender, Runs]) -> Line:
    posting = [f"{one.name}: {runs.again_posts:,}" for one, runs in theirs.items() if runs.again_posts]
    return Line(
        "5b",
        "the same run again, nothing changed: requests",
        f"of {room.sizes.sent:,} rows: {'; '.join(posting)}" if posting else "",
        f"{ours.again_posts} ({room.sizes.again:,} rows, {again.median:.2f} s)",
        "",
        "0",
        at_most(ours.again_posts, 0),
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
        "Each sent the same events, one for each row, each with its own key, as the server counted and compared. Start-up is "
        "taken off the first two columns. `its requests session` is what dlt documents for a destination of one's own; `32 "
        "threads` and `aiohttp inside` are faster ways that it does not show. As set up here, none of the "
        "others keeps a ledger."
    )
    return Details("The whole way of a row, beside the peers", headings, tuple(cells), note)


def _says(seconds: Sequence[float]) -> str:
    return spread(seconds).says("{:.1f}") if seconds else ""


def _plot(ours: dict[int, Runs], theirs: dict[Contender, Runs], floor: dict[int, Spread]) -> Plot:
    bars = [Bar(f"raw asyncio, {number} in flight", one.median) for number, one in floor.items() if number == 32]
    bars += [Bar(runs.name.strip("*"), runs.cost.median, is_ours=True) for runs in ours.values()]
    bars += [Bar(one.name, runs.cost.median) for one, runs in theirs.items()]
    return Plot("publishing", "From the CSV to the service, CPU per row", "us", tuple(bars), is_logarithmic=True)
