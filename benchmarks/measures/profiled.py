"""Where the time goes: each path of a row under a profile, its own time by kind of work.

No budget stands on it. A profile makes every call dearer, so that only shares are told, and what many small functions take is
overstated.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

import rows
from bench_room import Room
from kinds import ONCE, own_s
from outcome import Details, Result
from running import HERE, Server, run, server
from worker import Worker

FEW, EDITED = 10, 5
IN_FLIGHT = 32
LEAST_SHARE = 0.015
"""What takes less in each path is put together."""
PATHS = ("stage", "publish", "unchanged", "exported anew", "start-up")
Shares = Mapping[str, float]


def measure(room: Room) -> Iterator[Result]:
    room.say("where the time goes: under a profile")
    with server() as service:
        many = _profiles(room, service, room.sizes.profiled)
        few = {} if room.sizes.is_quick else _profiles(room, service, FEW)
    of_rows = {path: _of_rows(many[path], few.get(path, Counter())) for path in many if path != "unchanged"}
    found = of_rows | {"unchanged": many["unchanged"], "start-up": few.get("unchanged", many["unchanged"])}
    yield Result((), (_details({path: _shares(found[path]) for path in PATHS if path in found}),))


def _of_rows(many: Counter[str], few: Counter[str]) -> Counter[str]:
    """Return what the rows took, and no start."""
    return Counter({kind: spent for kind, spent in (many - few).items() if kind not in ONCE})


def _profiles(room: Room, service: Server, count: int) -> dict[str, Counter[str]]:
    """Return the seconds by kind of work, of each path that so many rows go."""
    folder = room.folder("profiled")
    worker = Worker(folder, service.url)
    worker.prepare(IN_FLIGHT)
    rows.write_rows(worker.source, count)
    found = {
        "stage": _profile(worker, "--stage-only"),
        "publish": _profile(worker, "--publish-only"),
        "unchanged": _profile(worker),
    }
    if not room.sizes.is_quick:
        rows.write_rows(worker.source, count, edition=1, edited=EDITED)
        found["exported anew"] = _profile(worker)
    shutil.rmtree(folder)
    return found


def _profile(worker: Worker, *words: str) -> Counter[str]:
    target = worker.folder / "profile"
    command = [sys.executable, str(HERE / "under_profile.py"), str(target), "run", "bench", "--no-dagster", "--json", *words]
    run(command, worker.env(), worker.folder)
    return own_s(target)


def _shares(seconds: Counter[str]) -> Shares:
    return {kind: spent / seconds.total() for kind, spent in seconds.items()}


def _details(paths: Mapping[str, Shares]) -> Details:
    kinds = sorted({kind for shares in paths.values() for kind, share in shares.items() if share >= LEAST_SHARE})
    cells = [(kind, *(_cell(shares.get(kind, 0.0)) for shares in paths.values())) for kind in kinds]
    rest = [sum(share for kind, share in shares.items() if kind not in kinds) for shares in paths.values()]
    cells.append(("the rest", *map(_cell, rest)))
    return Details("Where the time goes", ("kind of work", *paths), tuple(cells))


def _cell(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else ""
