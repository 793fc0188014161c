"""All that is measured, in one run, nothing beside it: `make bench` writes docs/performance.md, `make bench-quick` only prints.

One module per measurement is in `measures/`; how to read what comes out is told in README.md.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import installing
import machine
import page
import running
from bench_room import Room
from keeper import kept
from measures import latency, limited, mapped, million, profiled, published, resumed, starting, wire
from outcome import Line, Result, Standing, unjudged
from rich.console import Console
from running import HERE
from sizes import MIDDLE, QUICK, WHOLE, Sizes


@dataclass(frozen=True, slots=True)
class Measure:
    """One of them: the first budget that it is about, what gives its results as they come, and the minutes it usually takes."""

    number: str
    results: Callable[[Room], Iterator[Result]]
    minutes: float


MEASURES = {
    "mapped": Measure("3", mapped.measure, 0.3),
    "starting": Measure("9", starting.measure, 1.0),
    "wire": Measure("5", wire.measure, 1.1),
    "profiled": Measure("5", profiled.measure, 1.0),
    "resumed": Measure("10", resumed.measure, 1.5),
    "limited": Measure("7", limited.measure, 3.0),
    "latency": Measure("6", latency.measure, 4.0),
    "published": Measure("5", published.measure, 5.0),
    "million": Measure("1", million.measure, 18.0),
}
"""What takes longest comes last; the page is written after each."""
READ = ("published", "million", "profiled", "latency", "limited", "resumed", "starting", "mapped", "wire")
"""The order in which the page tells them: what says most comes first."""
SIZES = {"whole": WHOLE, "middle": MIDDLE, "quick": QUICK}


def measured(room: Room, name: str) -> Iterator[Result]:
    """Yield what a measurement gives; one that breaks says so in its line, and the others go on."""
    measure, began = MEASURES[name], time.monotonic()
    try:
        for result in measure.results(room):
            yield result if room.sizes.is_judged else unjudged(result)
    except (RuntimeError, AssertionError, OSError, LookupError, ValueError, ArithmeticError) as broken:
        room.say(f"{name} broke: {broken!r}")
        said = str(broken).replace("\n", " ").replace("|", "/")[:200]
        yield Result((Line(measure.number, name, "", f"broke: {said}", "", "", Standing.SHOWN),))
    room.say(f"{name} took {time.monotonic() - began:.0f} s")


def bench(sizes: Sizes, names: list[str], place: Path | None) -> None:
    told, speed, results = machine.described(), machine.Speed(), {name: list[Result]() for name in READ}
    scratch = Path(tempfile.mkdtemp(prefix="eventsync-bench-"))
    with kept(scratch) as group:
        running.join(group)
        room = Room(sizes, scratch)
        for turn, name in enumerate(names):
            speed.take()
            room.say(f"{turn + 1} of {len(names)}: {name}{_left(names[turn:]) if sizes is WHOLE else ''}")
            for result in measured(room, name):
                results[name].append(result)
                speed.take()
                if place is not None:
                    room.say(f"written so far: {page.write(place, _as_read(results), (*told, speed.told()))}")
    page.show(Console(width=180), _as_read(results), (*told, speed.told()))


def _as_read(results: dict[str, list[Result]]) -> list[Result]:
    return [result for name in READ for result in results[name]]


def _left(names: list[str]) -> str:
    minutes = sum(MEASURES[name].minutes for name in names)
    return f"; it takes about {MEASURES[names[0]].minutes:.0f} minutes, and all that is left about {minutes:.0f}"


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_const", const="quick", dest="sizes", help="few rows, printed only, nothing judged"
    )
    parser.add_argument(
        "--sizes", choices=SIZES, help="middle: every part with few rows, to try the bench itself (default: whole)"
    )
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), help="these measurements alone")
    parser.add_argument("--page", type=Path, help="where performance.md and its plots go (docs; nowhere unless all is measured)")
    chosen = parser.parse_args()
    sizes = SIZES[chosen.sizes or "whole"]
    signal.signal(signal.SIGTERM, _stop)
    installing.compile_rooms()
    installing.prepare()
    is_whole = sizes is WHOLE and chosen.only == list(MEASURES)
    try:
        bench(sizes, chosen.only, chosen.page or (HERE.parent / "docs" if is_whole else None))
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


if __name__ == "__main__":
    main()
