"""What every measurement is handed: how much to do, a scratch folder, and a place to say how far it is.

The measurements are in `measures/`; `bench.py` calls them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import rows
from contenders import ENV, Contender
from running import HERE, Cost, Server, run
from sizes import Sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Room:
    sizes: Sizes
    scratch: Path

    def say(self, words: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {words}", file=sys.stderr, flush=True)

    def rounds(self, once: Callable[[], T], longest_s: float = 60.0) -> list[T]:
        """Return what each round gives: no further one begins when they have taken that long, and would exceed it."""
        began, found = time.monotonic(), [once()]
        while len(found) < self.sizes.rounds and (time.monotonic() - began) * (1 + 1 / len(found)) <= longest_s:
            found.append(once())
        return found

    def folder(self, name: str) -> Path:
        """Return an empty folder; whoever took it removes what is large."""
        found = self.scratch / f"{name}-{time.monotonic_ns()}"
        found.mkdir(parents=True)
        return found

    def floor(self, name: str, path: Path) -> float:
        """Return the CPU seconds of a floor on this file, once."""
        return float(json.loads(run([sys.executable, str(HERE / "floors.py"), name, str(path)]).out)["cpu_s"])

    def peer(self, contender: Contender, server: Server, count: int, folder: Path | None = None) -> tuple[Cost, Path]:
        """Let a peer bring so many rows, in an empty folder unless one is handed over for another run."""
        place = folder or self.folder("peer")
        if folder is None:
            rows.write_rows(place / "rows.csv", count)
            rows.write_tables(place)
        return run(contender.command(server.url, place), ENV, place), place
