"""`make reliability`: every line of the matrix played anew, and the table of docs/reliability.md written from them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from time import monotonic

import structlog
from integration.desk import WarmStart
from integration.service import serving
from reliability.line import HEAD, TABLE, Stage, play
from reliability.troubles import every_place
from rich.console import Console
from rich.progress import track
from rich.table import Table


def main() -> int:
    parser = argparse.ArgumentParser(prog="make reliability", description=__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="lines with these words, shown and not written down")
    asked, console, began = parser.parse_args(), Console(stderr=True), monotonic()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    places = [place for place in every_place() if asked.only in f"{place.trouble.name}, {place.keys.said}"]
    with (
        tempfile.TemporaryDirectory(prefix="reliability-") as folder,
        closing(WarmStart()) as warm,
        serving(Path(folder, "service")) as service,
    ):
        stage = Stage(Path(folder), warm, service)
        lines = [play(place, stage) for place in track(places, "lines", console=console)]
    broken = [line for line in lines if line.breach]
    shown = ("what goes wrong", "the service", "events", "doubled", "lost", "resent", "runs", "result")
    table = Table(*shown)
    for line in lines if asked.only else broken:
        table.add_row(*(line.cells[name] for name in shown))
    console.print(table)
    console.print(f"{len(lines)} lines in {monotonic() - began:.0f} s, {len(broken)} broken")
    if not asked.only:
        TABLE.write(HEAD, (line.cells.values() for line in lines))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
