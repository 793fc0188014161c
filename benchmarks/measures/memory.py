"""Budget 8: the peak memory of every run of a million rows, and of ten million; and what a row takes in the state DB.

The million rows' runs are `million.py`'s. Of ten million, whatever would not end in time is left out and said to be.
"""

from __future__ import annotations

from collections.abc import Callable

from bench_room import Room
from large_file import LEFT, RUNS, Desk, Passage, desk
from outcome import Bar, Details, Line, Plot, Result, at_most, worst

NEEDS = {"published": "staged", "unchanged": "staged", "shuffled": "unchanged", "kept": "unchanged", "vanished": "unchanged"}
SLOWER = 1.15
"""How much longer a run may take than its time of a million rows would let expect."""


def measured(room: Room, taken: Passage) -> Result:
    grown = _grown(room, taken)
    return Result((_line(taken, grown),), (_details(taken, grown),), (_plot(taken, grown),))


def _grown(room: Room, taken: Passage) -> Passage:
    """Return what many more rows took."""
    grown = Passage(_affordable(room, taken), room.sizes.published)
    with desk(room, grown, "--stage-only") as place:
        place.stage()
        for name, step in _steps(place).items():
            times = grown.rows_of(name) / taken.rows_of(name)
            needed_s = (taken.wall_s(name) + (taken.entered_s if name == "unchanged" else 0.0)) * times * SLOWER
            if needed_s > room.left_s() or NEEDS[name] not in grown.runs:
                grown.left_out[name] = "no time"
                room.say(f"left out, {needed_s:.0f} s and {room.left_s():.0f} s left: {grown.count:,} rows, {RUNS[name]}")
                continue
            try:
                step()
            except (RuntimeError, AssertionError) as broken:  # what was found before is worth telling
                grown.left_out[name] = "broke"
                room.say(f"broke: {broken!r}")
    return grown


def _affordable(room: Room, taken: Passage) -> int:
    """Return as many rows as there is time to stage, in whole multiples of the million; ten times as many at the most."""
    times = int(room.left_s() / (taken.wall_s("staged") * SLOWER))
    return min(room.sizes.ten_million, taken.count * max(2, times))


def _steps(place: Desk) -> dict[str, Callable[[], None]]:
    """Return what follows the staging of many more rows."""

    def unchanged() -> None:
        place.enter_the_rest()
        place.again()

    if place.room.sizes.is_quick:
        return {}
    return {
        "published": place.publish,
        "unchanged": unchanged,
        "shuffled": lambda: place.reexport("shuffled"),
        "kept": lambda: place.reexport("kept"),
        "vanished": place.vanish,
    }


def _line(taken: Passage, grown: Passage) -> Line:
    peaks = {name: (taken.peak_mb(name) or 0.0, grown.peak_mb(name)) for name in RUNS}
    most, most_grown = max(few for few, _ in peaks.values()), max((many or 0.0 for _, many in peaks.values()), default=0.0)
    growth = {name: many / few - 1 for name, (few, many) in peaks.items() if many}
    worst_name = max(growth, key=lambda name: growth[name], default="")
    standings = [at_most(most, 200, 150), at_most(most_grown, 300, 200)]
    return Line(
        "8",
        f"peak memory, any stage, {taken.count:,} and {grown.count:,} rows",
        "interpreter and libraries: 60 to 110 MB",
        "see the table of whole runs",
        f"{most:.0f} MB; {most_grown:.0f} MB" if growth else f"{most:.0f} MB",
        f"at most {growth[worst_name]:+.0%} ({RUNS[worst_name]})" if growth else "no time for more rows",
        "200 MB; 300 MB",
        "150 MB; 200 MB",
        worst(standings),
    )


def _details(taken: Passage, grown: Passage) -> Details:
    cells = []
    for name, what in RUNS.items():
        few, many = taken.peak_mb(name), grown.peak_mb(name)
        cost = (taken.cpu(name).says("{:.2f}"), f"{taken.own_us(name):.2f}", f"{few:.0f}" if few else "")
        cells.append((what, f"{taken.rows_of(name):,}", *cost, f"{many:.0f}" if many else grown.left_out.get(name, "")))
    headings = ("run", "rows", "CPU s", "us a row, start-up apart", "peak MB", f"peak MB, {grown.count:,} rows")
    weights = ", ".join(f"{size:,.0f} when {name}" for name, size in (taken.row_bytes | _apart(grown)).items())
    note = (
        f"Of {taken.count:,} rows {taken.sent:,} are published, of {grown.count:,} {grown.sent:,}: the memory of a publish "
        "is that of what is under way, and the others would only take an hour more. They are entered in the ledger as "
        f"delivered, by one statement of SQL, so that the runs after it find what they would find. The last run finds {LEFT}"
        f" rows in the file. Bytes of the state DB for each row: {weights}. Memory is the peak of what is resident, as the "
        "system tells of the whole process. Where nearly all rows vanish, what grows is mostly SQLite's index of its log: the "
        "end of a read is one transaction, however many rows it marks, so that it holds as a whole or not at all."
    )
    return Details(f"{taken.count:,} rows, run after run", headings, tuple(cells), note)


def _apart(grown: Passage) -> dict[str, float]:
    return {f"{name} ({grown.count:,} rows)": size for name, size in grown.row_bytes.items()}


def _plot(taken: Passage, grown: Passage) -> Plot:
    bars = [
        Bar(f"{what}: {one.count / 1e6:g} M", peak, is_ours=True)
        for name, what in RUNS.items()
        for one in (taken, grown)
        if (peak := one.peak_mb(name)) is not None
    ]
    return Plot("memory", "Peak memory of each run", "MB", tuple(bars), budget=200)
