"""Budgets 1, 2 and 4: a million rows staged, published, read again as they are, and read again after an export.

The ledger holds every row as delivered when the file is read again, so that an edited row is one that the service has. Budget 8
is `memory.py`'s, from the same runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import rows
from bench_room import Room
from large_file import EDITED, LEFT, Desk, Passage, desk
from measures import memory
from outcome import Bar, Line, Plot, Result, at_most, worst
from running import server
from worker import Worker


def measure(room: Room) -> Iterator[Result]:
    taken = Passage(room.sizes.million, room.sizes.delivered)
    with idle_worker(room) as idle, desk(room, taken) as place:
        beside = Beside(place, idle)
        beside.take("lookup", "stage")
        place.stage()
        beside.take("lookup", "stage")
        yield Result((_staged(taken),))
        place.publish()
        place.enter_the_rest()
        _read_again(room, place, beside)
        yield Result((_unchanged(taken), _exported(taken)), (), (_plot(taken),))
        place.vanish()
        assert place.service.posts() == taken.sent, "a run that found nothing new sent something"
    yield memory.measured(room, taken)


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs are held against, taken right beside each of them: a minute later the machine may be slower by half."""

    place: Desk
    idle: Worker

    def take(self, *floors: str) -> None:
        """Take start-up, and the floors of these names on the file as it is."""
        room, taken, file = self.place.room, self.place.taken, self.place.worker.source
        taken.idle.append(self.idle.sync().cpu_s)
        for name in floors:
            room.say(f"{taken.count:,} rows: floor, {name}")
            taken.floors.setdefault(name, []).append(room.floor(name, file))


@contextmanager
def idle_worker(room: Room) -> Iterator[Worker]:
    """Give a worker that finds ten rows unchanged, however often it runs."""
    folder = room.folder("startup")
    with server() as service:
        worker = Worker(folder, service.url)
        worker.prepare()
        rows.write_rows(worker.source, LEFT)
        worker.sync()
        yield worker
    shutil.rmtree(folder)


def _read_again(room: Room, place: Desk, beside: Beside) -> None:
    """Read the file again, as it is and in both ways in which it may come anew."""

    def again() -> None:
        beside.take("digest")
        place.again()

    def anew(name: str) -> None:
        beside.take("reader")
        place.reexport(name)

    room.rounds(again)
    room.rounds(lambda: anew("kept"))
    room.rounds(lambda: anew("shuffled"))


def _unchanged(taken: Passage) -> Line:
    digest_s = taken.floor("digest").median
    ratio = taken.own_s("unchanged") / digest_s
    return Line(
        "1",
        f"run again, the same file of {taken.size / 1e6:,.0f} MB, CPU",
        f"blake2b of the file: {digest_s:.2f} s",
        f"{taken.cpu('unchanged').median:.2f} s, {taken.startup.median:.2f} of it start-up",
        f"{ratio:.1f} x, start-up apart",
        "1.5 x",
        at_most(ratio, 1.5),
    )


def _exported(taken: Passage) -> Line:
    reader_s = taken.floor("reader").median
    ratios = [taken.own_s(name) / reader_s for name in ("kept", "shuffled")]
    return Line(
        "2",
        f"run again, {EDITED} of {taken.count:,} rows edited: order kept, and shuffled, CPU",
        f"csv.reader: {reader_s:.2f} s; with digests and batched lookups: {taken.floor('lookup').median:.2f} s",
        f"{taken.cpu('kept').median:.2f} s, {taken.cpu('shuffled').median:.2f} s",
        f"{ratios[0]:.1f} x, {ratios[1]:.1f} x csv.reader, start-up apart",
        "4 x",
        worst([at_most(one, 4) for one in ratios]),
    )


def _staged(taken: Passage) -> Line:
    floor_us = taken.floor("stage").median / taken.count * 1e6
    ours_us = taken.own_us("staged")
    return Line(
        "4",
        f"stage {taken.count:,} new rows in SQLite, CPU a row",
        f"read, map by hand, insert: {floor_us:.1f} us",
        f"{ours_us:.1f} us",
        f"{ours_us / floor_us:.1f} x",
        "2.7 x",
        at_most(ours_us / floor_us, 2.7),
    )


def _plot(taken: Passage) -> Plot:
    scale = 1e6 / taken.count
    bars = (
        Bar("blake2b of the file", taken.floor("digest").median * scale),
        Bar("csv.reader", taken.floor("reader").median * scale),
        Bar("csv.reader, digests, batched lookups", taken.floor("lookup").median * scale),
        Bar("eventsync, byte-identical", taken.own_us("unchanged"), is_ours=True),
        Bar("eventsync, exported anew", taken.own_us("kept"), is_ours=True),
        Bar("eventsync, in another order", taken.own_us("shuffled"), is_ours=True),
    )
    return Plot("unchanged", "A run that finds nothing new, CPU per row, start-up apart", "us", bars)
