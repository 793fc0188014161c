"""What every measurement is handed: how much to do, a scratch folder, and a place to say how far it is.

The measurements are in `measures/`; `bench.py` calls them.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import rows
from contenders import ENV, Contender
from outcome import Spread, spread
from running import HERE, Cost, Server, run
from sizes import Sizes


@dataclass(frozen=True, slots=True)
class Room:
    sizes: Sizes
    scratch: Path

    def say(self, words: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)

    def folder(self, name: str) -> Path:
        """Return an empty folder; whoever took it removes what is large."""
        found = self.scratch / f"{name}-{time.monotonic_ns()}"
        found.mkdir(parents=True)
        return found

    def floor(self, name: str, path: Path) -> Spread:
        """Return the CPU seconds of a floor on this file."""
        command = [sys.executable, str(HERE / "floors.py"), name, str(path)]
        return spread([float(json.loads(run(command).out)["cpu_s"]) for _ in range(self.sizes.rounds)])

    def peer(self, contender: Contender, server: Server, count: int, folder: Path | None = None) -> tuple[Cost, Path]:
        """Let a peer bring so many rows, in an empty folder unless one is handed over for another run."""
        place = folder or self.folder("peer")
        if folder is None:
            rows.write_rows(place / "rows.csv", count)
            rows.write_tables(place)
        return run(contender.command(server.url, place), ENV, place), place
