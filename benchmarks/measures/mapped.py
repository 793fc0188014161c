"""Budget 3: a row to an event, beside the script by hand.

What it consists of is `mapping.py`'s, which measures and can be asked for its parts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from bench_room import Room
from outcome import Bar, Line, Plot, Result, at_most, spread
from running import HERE, run


def measure(room: Room) -> Iterator[Result]:
    command = [sys.executable, str(HERE / "mapping.py"), "--json", "--rows", str(room.sizes.mapped)]
    rounds = [dict(json.loads(run(command).out)) for _ in range(room.sizes.rounds)]
    reader, hand, ours = (spread([one[name] for one in rounds]) for name in ("csv.reader", "by hand", "eventsync"))
    line = Line(
        "3",
        "map, validate, canonical JSON: 12 fields, 2 dates, 2 lookups, 1 offer, CPU",
        f"a dict and orjson, by hand: {hand.says('{:.1f}')} us a row",
        "",
        f"{ours.says('{:.1f}')} us a row ({1e6 / ours.median:,.0f} rows/s)",
        f"{ours.median / hand.median:.1f} x by hand",
        "16 us",
        "10 us",
        at_most(ours.median, 16, 10),
    )
    bars = (
        Bar("csv.reader", reader.median),
        Bar("by hand: checks nothing, tells nothing", hand.median),
        Bar("eventsync", ours.median, is_ours=True),
    )
    yield Result((line,), (), (Plot("mapping", "A row to an event, CPU per row", "us", bars, budget=16),))
