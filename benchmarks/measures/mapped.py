"""Budget 3: a row to an event, beside the script by hand.

What it consists of is `mapping.py`'s, which measures and can be asked for its parts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from bench_room import Room
from outcome import Line, Result, at_most, spread
from running import HERE, run


def measure(room: Room) -> Iterator[Result]:
    command = [sys.executable, str(HERE / "mapping.py"), "--json", "--rows", str(room.sizes.mapped)]
    rounds = [dict(json.loads(run(command).out)) for _ in range(room.sizes.rounds)]
    hand, ours = (spread([one[name] for one in rounds]).median for name in ("by hand", "eventsync"))
    line = Line(
        "3",
        "map, validate and write 12 fields (2 moments, 2 lookups, 1 offer), CPU a row",
        f"a dict and orjson, by hand: {hand:.1f} us",
        f"{ours:.1f} us",
        f"{ours / hand:.1f} x",
        "2.2 x",
        at_most(ours / hand, 2.2),
    )
    yield Result((line,))
