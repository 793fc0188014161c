"""Budgets 1, 2, 4 and 8: one large file staged, published once, read again unchanged, and read again after an export.

The ledger holds every row as delivered when the file is read again, so that an edited row is one that the service has.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import rows
from bench_room import Room
from outcome import Bar, Details, Line, Plot, Result, Spread, at_most, spread, worst
from running import Cost, server
from worker import Worker, told

EDITED = 100
RUNS = {
    "staged": "staged",
    "published": "published, 128 in flight",
    "unchanged": "again, byte-identical",
    "kept": f"again, {EDITED} rows edited",
    "shuffled": "again, edited, in another order",
}


@dataclass(frozen=True, slots=True)
class Pass:
    """What the large file took: each cost is a whole run's, start-up included."""

    count: int
    size: int
    startup: Spread
    staged: Cost
    published: Cost
    unchanged: Spread
    kept: Spread
    shuffled: Spread
    peaks: dict[str, float]
    floors: dict[str, Spread]


@dataclass(frozen=True, slots=True)
class Grown:
    """Peaks of memory, by run, with many more rows."""

    count: int
    peaks: dict[str, float]


def measure(room: Room) -> Result:
    taken = _million(room)
    grown = Grown(room.sizes.ten_million, _grown(room))
    lines = (_unchanged(taken), _exported(taken), _staged(taken), _memory(taken, grown))
    return Result(lines, (_details(taken, grown),), (_plot(taken), _memory_plot(taken, grown)))


def _million(room: Room) -> Pass:
    count = room.sizes.million
    folder = room.folder("million")
    with server() as service:
        worker = Worker(folder, service.url)
        worker.prepare(128)
        rows.write_rows(worker.source, count)
        size = worker.source.stat().st_size
        floors = {name: room.floor(name, worker.source) for name in ("digest", "reader", "lookup", "stage")}
        room.say(f"staging {count:,} rows")
        staged = worker.sync("--stage-only")
        assert told(staged)["runs"][0]["read"]["new"] == count
        room.say(f"publishing {count:,} rows")
        published = worker.sync("--publish-only")
        assert service.account()["events"] == count
        room.say("reading them again")
        again = {"unchanged": [worker.sync() for _ in range(room.sizes.rounds)], "kept": [], "shuffled": []}
        for edition in range(1, room.sizes.rounds + 1):
            for name in ("kept", "shuffled"):
                mark = 2 * edition + (name == "shuffled")
                rows.write_rows(worker.source, count, edition=mark, edited=EDITED, is_shuffled=name == "shuffled")
                again[name].append(worker.sync())
                assert _edited(again[name][-1]) == EDITED, again[name][-1].out
        assert service.account()["posts"] == count
    shutil.rmtree(folder)
    peaks = {name: max(one.peak_mb for one in costs) for name, costs in again.items()}
    peaks |= {"staged": staged.peak_mb, "published": published.peak_mb}
    spent = {name: spread([one.cpu_s for one in costs]) for name, costs in again.items()}
    return Pass(count, size, startup(room), staged, published, **spent, peaks=peaks, floors=floors)


def _edited(cost: Cost) -> int:
    return int(told(cost)["runs"][0]["read"]["drifted"])


def startup(room: Room) -> Spread:
    """Return the CPU seconds of a run that finds ten rows unchanged."""
    folder = room.folder("startup")
    with server() as service:
        worker = Worker(folder, service.url)
        worker.prepare()
        rows.write_rows(worker.source, 10)
        worker.sync()
        found = spread([worker.sync().cpu_s for _ in range(room.sizes.rounds)])
    shutil.rmtree(folder)
    return found


def _grown(room: Room) -> dict[str, float]:
    """Return the peaks of memory with many more rows, of which only some are sent."""
    count = room.sizes.ten_million
    folder = room.folder("ten-million")
    room.say(f"staging {count:,} rows")
    with server() as service:
        worker = Worker(folder, service.url)
        worker.prepare(128)
        rows.write_rows(worker.source, count)
        staged = worker.sync("--stage-only")
        room.say("publishing some of them, and reading them again")
        published = worker.sync("--publish-only", "--limit", str(room.sizes.published))
        unchanged = worker.sync("--stage-only")
    shutil.rmtree(folder)
    return {"staged": staged.peak_mb, "published": published.peak_mb, "unchanged": unchanged.peak_mb}


def _unchanged(taken: Pass) -> Line:
    floor, ours, startup_s = taken.floors["digest"], taken.unchanged, taken.startup.median
    own = ours.median - startup_s
    return Line(
        "1",
        f"no-change run, the file byte-identical ({taken.size / 1e6:,.0f} MB), CPU",
        f"blake2b {floor.says('{:.2f}')} s",
        "see 5b: they read and post all",
        f"{ours.says('{:.2f}')} s, {startup_s:.2f} of it start-up",
        f"{own / floor.median:.1f} x the digest, start-up apart",
        "1.5 x + start-up",
        "not read at all",
        at_most(own / floor.median, 1.5, 0.1),
    )


def _exported(taken: Pass) -> Line:
    reader, lookup, startup_s = taken.floors["reader"], taken.floors["lookup"], taken.startup.median
    ratios = [(one.median - startup_s) / reader.median for one in (taken.kept, taken.shuffled)]
    return Line(
        "2",
        f"no-change run, the file exported anew: {taken.count:,} rows, {EDITED} differ, order kept / shuffled, CPU",
        f"csv.reader {reader.says('{:.2f}')} s; with digests and batched lookups {lookup.says('{:.2f}')} s",
        "see 5b: they post all",
        f"{taken.kept.says('{:.2f}')} s / {taken.shuffled.says('{:.2f}')} s, {startup_s:.2f} of it start-up",
        f"{ratios[0]:.1f} x / {ratios[1]:.1f} x csv.reader, start-up apart",
        "2.5 x",
        "1 x",
        worst([at_most(one, 2.5, 1.0) for one in ratios]),
    )


def _staged(taken: Pass) -> Line:
    floor_us = taken.floors["stage"].median / taken.count * 1e6
    ours_us = (taken.staged.cpu_s - taken.startup.median) / taken.count * 1e6
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


def _memory(taken: Pass, grown: Grown) -> Line:
    most, most_grown = max(taken.peaks.values()), max(grown.peaks.values())
    growth = most_grown / max(taken.peaks[name] for name in grown.peaks) - 1
    standing = at_most(max(most, most_grown), 200, 150)
    return Line(
        "8",
        f"peak memory, any stage, {taken.count:,} and {grown.count:,} rows",
        "interpreter and libraries: 60 to 110 MB",
        "see the table of whole runs",
        f"{most:.0f} MB; {most_grown:.0f} MB",
        f"{growth:+.0%}",
        "200 MB, within 10 %",
        "150 MB",
        worst([standing, at_most(growth, 0.1, 0.1)]),
    )


def _details(taken: Pass, grown: Grown) -> Details:
    cpu_s = {"staged": taken.staged.cpu_s, "published": taken.published.cpu_s, "unchanged": taken.unchanged.median}
    cpu_s |= {"kept": taken.kept.median, "shuffled": taken.shuffled.median}
    cells = [
        (
            what,
            f"{cpu_s[name]:.2f}",
            f"{(cpu_s[name] - taken.startup.median) / taken.count * 1e6:.2f}",
            f"{taken.peaks[name]:.0f}",
            f"{grown.peaks[name]:.0f}" if name in grown.peaks else "",
        )
        for name, what in RUNS.items()
    ]
    headings = ("run", "CPU s", "us a row, start-up apart", "peak MB", f"peak MB, {grown.count:,} rows")
    return Details(f"{taken.count:,} rows, run after run", headings, tuple(cells))


def _plot(taken: Pass) -> Plot:
    startup_s, scale = taken.startup.median, 1e6 / taken.count
    bars = (
        Bar("blake2b of the file", taken.floors["digest"].median * scale),
        Bar("csv.reader", taken.floors["reader"].median * scale),
        Bar("csv.reader, digests, batched lookups", taken.floors["lookup"].median * scale),
        Bar("eventsync, byte-identical", (taken.unchanged.median - startup_s) * scale, is_ours=True),
        Bar("eventsync, exported anew", (taken.kept.median - startup_s) * scale, is_ours=True),
        Bar("eventsync, in another order", (taken.shuffled.median - startup_s) * scale, is_ours=True),
    )
    return Plot("unchanged", "A run that finds nothing new, CPU per row", "us", bars)


def _memory_plot(taken: Pass, grown: Grown) -> Plot:
    bars = [Bar(what, taken.peaks[name], is_ours=True) for name, what in RUNS.items()]
    bars += [Bar(f"{name}, {grown.count:,} rows", peak, is_ours=True) for name, peak in grown.peaks.items()]
    return Plot("memory", f"Peak memory, {taken.count:,} rows", "MB", tuple(bars), budget=200)
