"""Budgets 1, 2 and 4: a million rows staged, published, read again as they are, and read again after an export.

The ledger holds every row as delivered when the file is read again, so that an edited row is one that the service has. Budget 8
is `memory.py`'s, from the same runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import rows
from bench_room import Room
from large_file import EDITED, LEFT, Desk, Passage, desk
from measures import memory
from outcome import Bar, Line, Plot, Result, Spread, at_most, spread, worst
from running import server
from worker import Worker

FLOORS = ("digest", "reader", "lookup", "stage")


def measure(room: Room) -> Iterator[Result]:
    idle, taken = startup(room), Passage(room.sizes.million, room.sizes.delivered)
    with desk(room, taken) as place:
        room.say(f"{taken.count:,} rows: the floors")
        taken.floors = {name: room.floor(name, place.worker.source) for name in FLOORS}
        place.stage()
        yield Result((_staged(taken, idle),))
        place.publish()
        place.enter_the_rest()
        _read_again(room, place)
        yield Result((_unchanged(taken, idle), _exported(taken, idle)), (), (_plot(taken, idle),))
        place.vanish()
        assert place.service.posts() == taken.sent, "a run that found nothing new sent something"
    yield memory.measured(room, taken, idle)


def startup(room: Room) -> Spread:
    """Return the CPU seconds of a run that finds ten rows unchanged."""
    folder = room.folder("startup")
    with server() as service:
        worker = Worker(folder, service.url)
        worker.prepare()
        rows.write_rows(worker.source, LEFT)
        worker.sync()
        found = spread(room.rounds(lambda: worker.sync().cpu_s))
    shutil.rmtree(folder)
    return found


def _read_again(room: Room, place: Desk) -> None:
    """Read the file again, as it is and in both ways in which it may come anew."""
    room.rounds(place.again)
    room.rounds(lambda: place.reexport("kept"))
    room.rounds(lambda: place.reexport("shuffled"))


def _unchanged(taken: Passage, idle: Spread) -> Line:
    floor, ours = taken.floors["digest"], taken.cpu("unchanged")
    own = taken.own_s("unchanged", idle) / floor.median
    return Line(
        "1",
        f"no-change run, the file byte-identical ({taken.size / 1e6:,.0f} MB), CPU",
        f"blake2b {floor.says('{:.2f}')} s",
        "see 5b: they read and post all",
        f"{ours.says('{:.2f}')} s, {idle.median:.2f} of it start-up",
        f"{own:.1f} x the digest, start-up apart",
        "1.5 x + start-up",
        "not read at all",
        at_most(own, 1.5, 0.1),
    )


def _exported(taken: Passage, idle: Spread) -> Line:
    reader, lookup = taken.floors["reader"], taken.floors["lookup"]
    kept, shuffled = taken.cpu("kept"), taken.cpu("shuffled")
    ratios = [taken.own_s(name, idle) / reader.median for name in ("kept", "shuffled")]
    return Line(
        "2",
        f"no-change run, the file exported anew: {taken.count:,} rows, {EDITED} differ, order kept / shuffled, CPU",
        f"csv.reader {reader.says('{:.2f}')} s; with digests and batched lookups {lookup.says('{:.2f}')} s",
        "see 5b: they post all",
        f"{kept.says('{:.2f}')} s / {shuffled.says('{:.2f}')} s, {idle.median:.2f} of it start-up",
        f"{ratios[0]:.1f} x / {ratios[1]:.1f} x csv.reader, start-up apart",
        "2.5 x",
        "1 x",
        worst([at_most(one, 2.5, 1.0) for one in ratios]),
    )


def _staged(taken: Passage, idle: Spread) -> Line:
    floor_us = taken.floors["stage"].median / taken.count * 1e6
    ours_us = taken.own_us("staged", idle)
    return Line(
        "4",
        f"stage {taken.count:,} new rows to SQLite, CPU",
        f"read, map by hand, insert: {floor_us:.1f} us a row",
        "",
        f"{ours_us:.1f} us a row",
        f"{ours_us / floor_us:.1f} x the floor",
        "35 us",
        "20 us",
        at_most(ours_us, 35, 20),
    )


def _plot(taken: Passage, idle: Spread) -> Plot:
    scale = 1e6 / taken.count
    bars = (
        Bar("blake2b of the file", taken.floors["digest"].median * scale),
        Bar("csv.reader", taken.floors["reader"].median * scale),
        Bar("csv.reader, digests, batched lookups", taken.floors["lookup"].median * scale),
        Bar("eventsync, byte-identical", taken.own_us("unchanged", idle), is_ours=True),
        Bar("eventsync, exported anew", taken.own_us("kept", idle), is_ours=True),
        Bar("eventsync, in another order", taken.own_us("shuffled", idle), is_ours=True),
    )
    return Plot("unchanged", "A run that finds nothing new, CPU per row, start-up apart", "us", bars)
