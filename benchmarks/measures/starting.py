"""Budget 9: the CPU of starting, beside Python's own imports and Dagster's, and the peers' commands.

Ten rows are a whole run: stage, publish, settle.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import rows
from bench_room import Room
from contenders import DRT, is_there
from installing import PLACE, versions
from outcome import Details, Line, Result, Spread, at_most, spread, worst
from running import Cost, run, server
from worker import Worker

FEW = 10
HELP, ALONE, IN_DAGSTER = "eventsync --help", "eventsync run --no-dagster", "eventsync run"
SQLMODEL, EMPTY = "import sqlmodel", "an empty asset in Dagster"
EMPTY_ASSET = """
import dagster as dg

@dg.asset
def empty(): ...

with dg.DagsterInstance.get() as instance:
    dg.materialize([empty], instance=instance)
"""
FLOORS = {"python": "pass", "import dagster": "import dagster", SQLMODEL: "import sqlmodel", EMPTY: EMPTY_ASSET}


def measure(room: Room) -> Iterator[Result]:
    room.say("starting")
    floors = {name: _python(room, code) for name, code in FLOORS.items()}
    there = versions()
    helps = {"dlt --help": "dlt", "drt --help": "drt-core"}
    peers = {
        words: _taken(room, [str(PLACE / "bin" / words.split()[0]), "--help"]) for words, name in helps.items() if name in there
    }
    ours = _ours(room, peers)
    help_s, alone_s, in_dagster_s = (ours[name].median for name in (HELP, ALONE, IN_DAGSTER))
    sqlmodel_s, empty_s = floors[SQLMODEL].median, floors[EMPTY].median
    line = Line(
        "9",
        "`--help`; `run --no-dagster` of ten rows; the same through Dagster, CPU",
        f"{SQLMODEL}: {sqlmodel_s:.2f} s; {EMPTY}: {empty_s:.2f} s",
        f"{help_s:.2f} s; {alone_s:.2f} s; {in_dagster_s:.2f} s",
        f"{alone_s / sqlmodel_s:.1f} x; {in_dagster_s / empty_s:.1f} x",
        "0.35 s; 2.5 x; 1.3 x",
        worst([at_most(help_s, 0.35), at_most(alone_s / sqlmodel_s, 2.5), at_most(in_dagster_s / empty_s, 1.3)]),
    )
    cells = [(name, one.says("{:.2f}")) for name, one in (floors | peers).items()]
    cells += [(f"**{name}**", one.says("{:.2f}")) for name, one in ours.items()]
    yield Result((line,), (Details("Starting", ("command", "CPU s"), tuple(cells)),))


def _ours(room: Room, peers: dict[str, Spread]) -> dict[str, Spread]:
    found: dict[str, list[float]] = {HELP: [], ALONE: [], IN_DAGSTER: []}
    of_drt: list[float] = []
    with server() as service:
        for _ in range(room.sizes.rounds):
            for name, spent in found.items():
                spent.append(_fresh(room, service.url, _words(name)))
            if is_there(DRT):
                cost, folder = room.peer(DRT, service, FEW)
                of_drt.append(cost.cpu_s)
                shutil.rmtree(folder)
    if of_drt:
        peers["drt run"] = spread(of_drt)
    return {name: spread(spent) for name, spent in found.items()}


def _words(name: str) -> tuple[str, ...]:
    _, *words = name.split()
    return ("run", "bench", *words[1:]) if words[0] == "run" else tuple(words)


def _fresh(room: Room, url: str, words: Sequence[str]) -> float:
    """Return the CPU seconds of a command in a folder where only its rows were staged."""
    folder = room.folder("starting")
    worker = Worker(folder, url)
    worker.prepare()
    rows.write_rows(worker.source, FEW)
    if words[0] == "run":
        worker.sync("--stage-only")
    cost = worker.call(*words)
    shutil.rmtree(folder)
    return cost.cpu_s


def _python(room: Room, code: str) -> Spread:
    folder = room.folder("home")
    found = _taken(room, [sys.executable, "-c", code], {"DAGSTER_HOME": str(folder), "DAGSTER_DISABLE_TELEMETRY": "yes"}, folder)
    shutil.rmtree(folder)
    return found


def _taken(room: Room, command: Sequence[str], env: Mapping[str, str] | None = None, folder: Path | None = None) -> Spread:
    def once() -> Cost:
        return run(command, env, folder)

    if not room.sizes.is_quick:
        once()
    return spread([once().cpu_s for _ in range(room.sizes.rounds)])
