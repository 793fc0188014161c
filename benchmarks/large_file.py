"""One large file and what becomes of it: staged, published, read again as it is, exported anew, and gone.

What that says of the budgets is told in `measures/million.py` and `measures/memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from shutil import rmtree

import rows
from bench_room import Room
from outcome import Spread, spread
from running import Cost, Server, server
from worker import Worker, told

EDITED = 100
LEFT = 10
"""Rows of the file of which all others have vanished."""
RUNS = {
    "staged": "staged",
    "published": "published, 128 in flight",
    "unchanged": "again, byte-identical",
    "kept": f"again, {EDITED} edited",
    "shuffled": "again, edited, shuffled",
    "vanished": f"again, all but {LEFT} vanished",
}


@dataclass(slots=True)
class Passage:
    """What a large file took: each cost is a whole run's, start-up included; `sent`: rows that were really published."""

    count: int
    sent: int
    size: int = 0
    runs: dict[str, list[Cost]] = field(default_factory=dict)
    floors: dict[str, list[float]] = field(default_factory=dict)
    idle: list[float] = field(default_factory=list)
    """CPU seconds of runs that find ten rows unchanged: start-up."""
    row_bytes: dict[str, float] = field(default_factory=dict)
    """Bytes of the state DB, for each row."""

    def cpu(self, name: str) -> Spread:
        return spread([one.cpu_s for one in self.runs[name]])

    def floor(self, name: str) -> Spread:
        return spread(self.floors[name])

    @property
    def startup(self) -> Spread:
        return spread(self.idle)

    def own_us(self, name: str) -> float:
        """Return the CPU of each row that had to do with it, start-up apart; none where start-up is all there is."""
        return self.own_s(name) / self.rows_of(name) * 1e6

    def own_s(self, name: str) -> float:
        return max(0.0, self.cpu(name).median - self.startup.median)

    def peak_mb(self, name: str) -> float | None:
        return max((one.peak_mb for one in self.runs.get(name, ())), default=None)

    def rows_of(self, name: str) -> int:
        return self.sent if name == "published" else self.count


@dataclass(frozen=True, slots=True)
class Desk:
    """Where the file passes; `only` are words for every run, such as `--stage-only`."""

    room: Room
    worker: Worker
    service: Server
    taken: Passage
    only: tuple[str, ...] = ()

    def stage(self) -> None:
        staged = self._sync("staged", "--stage-only")
        assert _read(staged)["new"] == self.taken.count, staged.out
        self.taken.row_bytes["staged"] = self.worker.ledger_bytes() / self.taken.count

    def publish(self) -> None:
        """Publish some of the rows, and weigh what an answer adds to each of them."""
        before = self.worker.ledger_bytes()
        self._sync("published", "--publish-only", "--limit", str(self.taken.sent))
        account = self.service.account()
        assert account["events"] == self.taken.sent, account
        more = (self.worker.ledger_bytes() - before) / self.taken.sent
        self.taken.row_bytes["delivered"] = self.taken.row_bytes["staged"] + more

    def enter_the_rest(self) -> None:
        """Enter all other rows as delivered: publishing each of them would show nothing more, and take hours."""
        self.worker.enter_as_delivered()

    def again(self) -> None:
        same = self._sync("unchanged", *self.only)
        assert _read(same)["unchanged"] == self.taken.count, same.out

    def reexport(self, name: str) -> None:
        """Write the file anew, with some rows in another edition than ever before, and read it."""
        edition = 1 + sum(len(found) for found in self.taken.runs.values())
        self.write(edition, is_shuffled=name == "shuffled")
        cost = self._sync(name, *self.only)
        assert _read(cost)["drifted"] == EDITED, cost.out

    def vanish(self) -> None:
        rows.write_rows(self.worker.source, LEFT)
        gone = self._sync("vanished", "--accept", "shrink", *self.only)
        assert told(gone)["runs"][0]["vanished"] == self.taken.count - LEFT, gone.out

    def write(self, edition: int = 0, *, is_shuffled: bool = False) -> None:
        edited = EDITED if edition else 0
        rows.write_rows(self.worker.source, self.taken.count, edition=edition, edited=edited, is_shuffled=is_shuffled)
        self.taken.size = self.worker.source.stat().st_size

    def _sync(self, name: str, *words: str) -> Cost:
        self.room.say(f"{self.taken.count:,} rows: {RUNS[name]}")
        cost = self.worker.sync(*words)
        self.taken.runs.setdefault(name, []).append(cost)
        return cost


@contextmanager
def desk(room: Room, taken: Passage, *only: str) -> Iterator[Desk]:
    """Give a new file, its worker and its service a place; all of it goes afterwards."""
    folder = room.folder("large")
    with server() as service:
        worker = Worker(folder, service.url)
        worker.prepare(128)
        found = Desk(room, worker, service, taken, only)
        found.write()
        yield found
    rmtree(folder)


def _read(cost: Cost) -> dict[str, int]:
    return dict(told(cost)["runs"][0]["read"])
