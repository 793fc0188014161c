"""How fast a Google sheet is read, in how many requests and how much memory: `python benchmarks/sheets.py [ROWS...]`.

The look-alike (`look_alikes.py`) is a process of its own, each reading another; one of a sheet of few rows tells
what the libraries alone take. Eight columns: texts, a number with its zeros, a date, a time, a price, a boolean.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Access, GoogleAccess
from mappings.spec.source import GoogleSheetsSource

TESTS = Path(__file__).parents[1] / "tests"
COLUMNS = frozenset({"Ref", "Title", "Day", "Time", "Price", "Postcode"})


def read_one(spreadsheet: str, url: str, credentials: str) -> None:
    """Read it once, and print what it took as one line of JSON."""
    spec = GoogleSheetsSource(kind="google_sheets", spreadsheet=spreadsheet, header={"row": 3})
    source = open_source(spec, Path(), COLUMNS, access=Access(google=GoogleAccess(Path(credentials), url)))
    began, cpu = time.perf_counter(), time.process_time()
    with source.read() as reading:
        rows = sum(1 for _ in reading.rows)
    took = {"rows": rows, "seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    print(json.dumps({**took, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def measured(rows: int, folder: str) -> dict[str, float]:
    credentials, log = f"{folder}/account.json", f"{folder}/asked.txt"
    command = [sys.executable, Path(__file__).with_name("look_alikes.py"), "sheets", str(rows), credentials, log]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TESTS)}) as server:
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            reader = [sys.executable, __file__, "--read", told["spreadsheet"], told["base_url"], credentials]
            found: dict[str, float] = json.loads(subprocess.run(reader, check=True, capture_output=True, text=True).stdout)
            asked = Path(log).read_text("utf-8").splitlines()
            return {**found, "requests": sum("/v4/" in line for line in asked)}
        finally:
            server.terminate()


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        read_one(*sys.argv[2:])
        return
    table = Table("rows", "s", "rows/s", "CPU of ours, us a row", "peak MB", "requests of the quota", title="Google Sheets")
    for rows in [int(word) for word in sys.argv[1:]] or [10, 5_000, 50_000, 200_000]:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(rows, folder)
        per_row = found["cpu"] / found["rows"] * 1e6
        shown = (
            f"{found['seconds']:.1f}",
            f"{found['rows'] / found['seconds']:,.0f}",
            f"{per_row:.0f}",
            f"{found['peak_mb']:.0f}",
        )
        table.add_row(f"{found['rows']:,}", *shown, f"{found['requests']}")
    Console().print(table)


if __name__ == "__main__":
    main()
