"""Where the time goes: each path of a row under a profile, its own time by kind of work, and what the next factor would take.

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
NEXT = {
    "stage": (
        "mapping that is not a tree of functions, each called for each row, but code made for the feed; what is left then "
        "is SQLite, which writes a row, its two index entries and its mark, and the digests by which a row is known again."
    ),
    "publish": (
        "a client with less Python in it: most of a request is spent on objects for heads and answers, and in the event "
        "loop's calls. Those that are written in another language, and were tried, do not tell a connection that was never "
        "made from one that broke after the request had left, on which the promise of no second event rests. Commits cost "
        "less a row the more answers come at once."
    ),
    "unchanged": ("a faster start: the rows are neither read nor mapped; the file is digested once."),
    "exported anew": (
        "fewer rows that are parsed and mapped only to find that nothing is new in them: the fewer, the nearer it comes to "
        "`csv.reader`."
    ),
    "start-up": (
        "fewer libraries, and fewer classes made of them, for a run; nearly all of it is importing. A process that stays, "
        "like Dagster's, pays for it once."
    ),
}
"""What half the time would take: written by people, who look at it again when the shares have changed."""
Shares = Mapping[str, float]


def measure(room: Room) -> Iterator[Result]:
    room.say("where the time goes: under a profile")
    with server() as service:
        many = _profiles(room, service, room.sizes.profiled)
        few = {} if room.sizes.is_quick else _profiles(room, service, FEW)
    of_rows = {path: _of_rows(many[path], few.get(path, Counter())) for path in many if path != "unchanged"}
    found = of_rows | {"unchanged": many["unchanged"], "start-up": few.get("unchanged", many["unchanged"])}
    yield Result((), (_details(room, {path: _shares(found[path]) for path in NEXT if path in found}),))


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


def _details(room: Room, paths: Mapping[str, Shares]) -> Details:
    kinds = sorted({kind for shares in paths.values() for kind, share in shares.items() if share >= LEAST_SHARE})
    cells = [(kind, *(_cell(shares.get(kind, 0.0)) for shares in paths.values())) for kind in kinds]
    rest = [sum(share for kind, share in shares.items() if kind not in kinds) for shares in paths.values()]
    cells.append(("the rest", *map(_cell, rest)))
    first = (
        f"Shares of the own time under a profile, of {room.sizes.profiled:,} rows, {IN_FLIGHT} in flight; waiting is left "
        f"out. What a run of {FEW} rows takes is taken off, but for the unchanged file, which is not read row by row, and "
        "for start-up, which is such a run. A profile overstates what many small calls take.\n\nWhat half the time would "
        "take:\n"
    )
    return Details("Where the time goes", ("kind of work", *paths), tuple(cells), "\n".join([first, *_words()]))


def _words() -> Iterator[str]:
    for path, words in NEXT.items():
        yield f"* **{path}**: {words}"


def _cell(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else ""
