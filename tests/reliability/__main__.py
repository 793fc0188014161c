"""`make reliability`: every line of the matrix, played anew, and docs/reliability.md written from what they came to.

How a line is played is `line`'s, how the page looks `page`'s.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import structlog
from integration.desk import WarmStart
from integration.service import serving
from reliability.line import Line, Stage, play
from reliability.troubles import every_place


def main() -> int:
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    lines = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        warm = stack.enter_context(closing(WarmStart()))
        service = stack.enter_context(serving(folder / "service"))
        import time

        for place in every_place():
            if only not in place.trouble.name + place.keys.name:
                continue
            t = time.time()
            l = play(place, Stage(folder, warm, service))
            print(
                place.trouble.name,
                "|",
                place.keys.said,
                "|",
                l.events,
                l.doubled,
                l.lost,
                l.keys,
                l.bodies,
                l.resent,
                l.told,
                l.waiting,
                l.owed,
                l.runs,
                "|",
                l.verdict,
                f"{time.time() - t:.1f}s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
