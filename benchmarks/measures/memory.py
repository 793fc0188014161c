"""Budget 8: the peak memory of every run of a million rows, and of three million.

The runs of a million rows are those of `million.py`.
"""

from __future__ import annotations

from bench_room import Room
from large_file import RUNS, Passage, desk
from outcome import Details, Line, Result, at_most, worst


def measured(room: Room, taken: Passage) -> Result:
    grown = _grown(room)
    return Result((_line(taken, grown),), (_details(taken, grown),))


def _grown(room: Room) -> Passage:
    """Return what many more rows took."""
    grown = Passage(room.sizes.three_million, room.sizes.published)
    with desk(room, grown, "--stage-only") as place:
        place.stage()
        if not room.sizes.is_quick:
            place.publish()
            place.enter_the_rest()
            place.again()
            place.reexport("shuffled")
            place.reexport("kept")
            place.vanish()
    return grown


def _line(taken: Passage, grown: Passage) -> Line:
    few, many = (max(passage.peak_mb(name) or 0.0 for name in RUNS) for passage in (taken, grown))
    return Line(
        "8",
        f"peak memory of any stage, {taken.count:,} and {grown.count:,} rows",
        "",
        f"{few:.0f} MB, {many:.0f} MB",
        "",
        "200 MB, 300 MB",
        worst([at_most(few, 200), at_most(many, 300)]),
    )


def _details(taken: Passage, grown: Passage) -> Details:
    cells = []
    for name, what in RUNS.items():
        peaks = [f"{peak:.0f}" if (peak := passage.peak_mb(name)) else "" for passage in (taken, grown)]
        cells.append((what, f"{taken.rows_of(name):,}", taken.cpu(name).says("{:.2f}"), f"{taken.own_us(name):.2f}", *peaks))
    weights = ", ".join(f"{size:,.0f} {name}" for name, size in taken.row_bytes.items())
    cells.append((f"bytes of the state DB a row: {weights}", *[""] * 5))
    headings = ("run", "rows", "CPU s", "us a row, start-up apart", "peak MB", f"peak MB, {grown.count:,} rows")
    return Details(f"{taken.count:,} rows, run after run", headings, tuple(cells))
