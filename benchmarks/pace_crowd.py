"""How many requests are under way, and what that brings, without any limit: `python benchmarks/pace_crowd.py [ROWS]`.

The rows a second and the most under way are each run's own figures, start-up left out: the median of three runs of each cell.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import publish
from pace import KEY, running_sandbox
from rich.console import Console
from rich.table import Table

ROWS, ROUNDS = 600, 3
LATENCIES_MS = (5, 50, 200)
IN_FLIGHT = ("auto", "8", "32")


def pace_of(rows: int, latency_ms: int, in_flight: str) -> dict[str, float]:
    """The pace that one run reports of itself."""
    with tempfile.TemporaryDirectory() as scratch, running_sandbox({"latency_ms": latency_ms}) as url:
        folder = Path(scratch)
        publish.write_feed(folder / "feeds", rows, in_flight)
        environ = {
            **os.environ,
            "EVENT_API_BASE_URL": url,
            "EVENT_API_KEY": KEY,
            "EVENTSYNC_FEEDS": str(folder / "feeds"),
            "EVENTSYNC_STATE_URL": f"sqlite:///{folder / 'state.db'}",
        }
        command = [sys.executable, "-c", "from pipelines.cli.app import main; main()", "run", "load", "--no-dagster", "--json"]
        said = subprocess.run(command, check=True, env=environ, capture_output=True, text=True)
        (run,) = json.loads(said.stdout)["runs"]
        return dict(run["pace"])


def cell(rows: int, latency_ms: int, in_flight: str) -> str:
    runs = [pace_of(rows, latency_ms, in_flight) for _ in range(ROUNDS)]
    per_s = statistics.median(one["rows_per_s"] for one in runs)
    return f"{per_s:.0f} rows/s, up to {max(one['most_under_way'] for one in runs):.0f} under way"


def main() -> None:
    rows = int(sys.argv[1]) if sys.argv[1:] else ROWS
    found = {way: cell(rows, *way) for way in product(LATENCIES_MS, IN_FLIGHT)}
    table = Table(title=f"{rows} rows without any limit")
    for heading in ("latency", *IN_FLIGHT):
        table.add_column(heading)
    for latency_ms in LATENCIES_MS:
        table.add_row(f"{latency_ms} ms", *(found[latency_ms, in_flight] for in_flight in IN_FLIGHT))
    console = Console(width=150)
    console.print(table)
    console.print(f"load average while it ran: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
