"""All that is measured, in one run, nothing beside it: `make bench` writes docs/performance.md, `make bench-quick` only prints.

One module per measurement is in `measures/`; how to read what comes out is told in README.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import installing
import machine
import page
from bench_room import Room
from measures import latency, limited, mapped, million, published, resumed, starting, wire
from outcome import Line, Result, Standing, unjudged
from rich.console import Console
from running import HERE
from sizes import QUICK, WHOLE

MEASURES: dict[str, tuple[str, Callable[[Room], Result]]] = {
    "mapped": ("3", mapped.measure),
    "starting": ("9", starting.measure),
    "wire": ("5", wire.measure),
    "published": ("5", published.measure),
    "latency": ("6", latency.measure),
    "limited": ("7", limited.measure),
    "resumed": ("10", resumed.measure),
    "million": ("1", million.measure),
}


def measured(room: Room, name: str) -> Result:
    """Return what a measurement gives; one that breaks says so in its line, and the others go on."""
    number, measure = MEASURES[name]
    began = time.monotonic()
    try:
        result = measure(room)
    except (RuntimeError, AssertionError, OSError) as broken:
        room.say(f"{name} broke: {broken}")
        said = str(broken).replace("\n", " ")[:200]
        return Result((Line(number, name, "", "", f"broke: {said}", "", "", "", Standing.SHOWN),))
    room.say(f"{name} took {time.monotonic() - began:.0f} s")
    return unjudged(result) if room.sizes.is_quick else result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows and one round, printed only, no budget judged")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), help="these measurements alone")
    parser.add_argument("--page", type=Path, help="where performance.md and its plots go (docs; nowhere with --quick or --only)")
    chosen = parser.parse_args()
    installing.prepare()
    told = machine.described()
    is_whole = not chosen.quick and chosen.only == list(MEASURES)
    place = chosen.page or (HERE.parent / "docs" if is_whole else None)
    results = []
    with tempfile.TemporaryDirectory(prefix="eventsync-bench-") as scratch:
        room = Room(QUICK if chosen.quick else WHOLE, Path(scratch))
        for name in chosen.only:
            results.append(measured(room, name))
            if place is not None:
                room.say(f"written so far: {page.write(place, results, told)}")
    page.show(Console(width=180), results, told)


if __name__ == "__main__":
    main()
