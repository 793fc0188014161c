"""Budget 9: what a person waits for before anything happens, beside Python itself and the peers' own commands.

Ten rows are a whole run: stage, publish, settle.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence

import rows
from bench_room import Room
from contenders import DRT, is_there
from installing import PLACE, versions
from outcome import Bar, Details, Line, Plot, Result, Spread, at_most, spread, worst
from running import run, server
from worker import Worker

FEW = 10
BUDGETS = ((0.3, 0.15), (2.0, 1.0), (8.0, 5.0))


def measure(room: Room) -> Iterator[Result]:
    room.say("starting")
    floors = {
        "python": _waits(room, [sys.executable, "-c", "pass"]),
        "import dagster": _waits(room, [sys.executable, "-c", "import dagster"]),
        "import sqlmodel": _waits(room, [sys.executable, "-c", "import sqlmodel"]),
    }
    there = versions()
    helps = {"dlt --help": "dlt", "drt --help": "drt-core"}
    peers = {
        words: _waits(room, [str(PLACE / "bin" / words.split()[0]), "--help"]) for words, name in helps.items() if name in there
    }
    ours = _ours(room, peers)
    line = Line(
        "9",
        "`eventsync --help` / `run --no-dagster` of ten rows / the same through Dagster, wall time",
        ", ".join(f"{name} {one.median:.2f} s" for name, one in floors.items()),
        ", ".join(f"{name} {one.median:.2f} s" for name, one in peers.items()) or "not installed",
        " / ".join(one.says("{:.2f}") for one in ours.values()) + " s",
        "",
        "0.3 / 2 / 8 s",
        "0.15 / 1 / 5 s",
        worst([at_most(one.median, *budget) for one, budget in zip(ours.values(), BUDGETS, strict=True)]),
    )
    cells = [(name, one.says("{:.2f}")) for name, one in (floors | peers).items()]
    cells += [(f"**{name}**", one.says("{:.2f}")) for name, one in ours.items()]
    bars = [Bar(name, one.median) for name, one in (floors | peers).items()]
    bars += [Bar(name, one.median, is_ours=True) for name, one in ours.items()]
    details = Details("Starting", ("command", "s"), tuple(cells))
    yield Result((line,), (details,), (Plot("starting", "Until it has started, or done ten rows", "s", tuple(bars)),))


def _ours(room: Room, peers: dict[str, Spread]) -> dict[str, Spread]:
    found: dict[str, list[float]] = {"eventsync --help": [], "eventsync run --no-dagster": [], "eventsync run": []}
    of_drt: list[float] = []
    with server() as service:
        for _ in range(room.sizes.rounds):
            for name, spent in found.items():
                spent.append(_fresh(room, service.url, _words(name)))
            if is_there(DRT):
                cost, folder = room.peer(DRT, service, FEW)
                of_drt.append(cost.wall_s)
                shutil.rmtree(folder)
    if of_drt:
        peers["drt run"] = spread(of_drt)
    return {name: spread(spent) for name, spent in found.items()}


def _words(name: str) -> tuple[str, ...]:
    _, *words = name.split()
    return ("run", "bench", *words[1:]) if words[0] == "run" else tuple(words)


def _fresh(room: Room, url: str, words: Sequence[str]) -> float:
    """Return the seconds of a command in a folder where nothing was run before but an empty ledger made."""
    folder = room.folder("starting")
    worker = Worker(folder, url)
    worker.prepare()
    rows.write_rows(worker.source, FEW)
    if words[0] == "run":
        worker.sync("--stage-only")
    waited = worker.call(*words).wall_s
    shutil.rmtree(folder)
    return waited


def _waits(room: Room, command: Sequence[str]) -> Spread:
    once: Callable[[], float] = lambda: run(command).wall_s  # noqa: E731  # named for the comprehension below
    if not room.sizes.is_quick:
        once()
    return spread([once() for _ in range(room.sizes.rounds)])
