"""Runs the benchmarks one after the other, nothing beside them, and prints a table of each at its end.

Each measurement is a process of its own (`client.py`) on one core, with the server (`server.py`) on another.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import publish
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROUNDS = 3
WHOLE_ROWS = 6000
IN_FLIGHT = (8, 32, 128)
CONTENDERS = (
    ("raw streams", "asyncio"),
    ("eventsync", "asyncio"),
    ("eventsync", "uvloop"),
    ("httpx over aiohttp", "asyncio"),
    ("httpx over aiohttp", "uvloop"),
    ("httpx over pyreqwest", "asyncio"),
    ("httpx over pyreqwest", "uvloop"),
    ("httpx as it comes", "asyncio"),
)
LATENCIES = ((20.0, 32), (100.0, 128))


@contextmanager
def running_server(delay_ms: float = 0.0) -> Iterator[str]:
    command = [sys.executable, str(HERE / "server.py"), "--delay-ms", str(delay_ms), "--core", str(cores()[0])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


def cores() -> tuple[int, int]:
    """The server's core and the client's: the same one where there is only one."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return known[0], known[-1]


def is_installed(contender: str, loop: str) -> bool:
    return not ("pyreqwest" in contender and find_spec("pyreqwest") is None) and not (
        loop == "uvloop" and find_spec("uvloop") is None
    )


def measured(contender: str, loop: str, url: str, in_flight: int, requests: int) -> dict[str, float]:
    command = [
        sys.executable,
        str(HERE / "client.py"),
        contender,
        url,
        "--in-flight",
        str(in_flight),
        "--requests",
        str(requests),
    ]
    command += ["--core", str(cores()[1]), *(["--uvloop"] if loop == "uvloop" else [])]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(told))


def median(contender: str, loop: str, url: str, in_flight: int, requests: int) -> dict[str, float]:
    rounds = [measured(contender, loop, url, in_flight, requests) for _ in range(ROUNDS)]
    return {figure: statistics.median(one[figure] for one in rounds) for figure in rounds[0]}


def client_cost(console: Console) -> None:
    """Budget 5, the client's share: CPU of one request, by requests in flight, no delay at the server."""
    table = Table(title="CPU per request in us (requests/s), one core, medians")
    for heading in ("client", "loop", *(f"{number} in flight" for number in IN_FLIGHT)):
        table.add_column(heading, justify="left" if heading in {"client", "loop"} else "right")
    with running_server() as url:
        for contender, loop in CONTENDERS:
            if is_installed(contender, loop):
                requests = 600 if contender == "httpx as it comes" else 3000
                figures = [median(contender, loop, url, number, requests) for number in IN_FLIGHT]
                table.add_row(contender, loop, *(f"{one['cpu_us']:.0f} ({one['per_s']:.0f})" for one in figures))
    console.print(table)


def latency(console: Console) -> None:
    """Budget 6: how much of in flight / latency is reached, beside what bytes alone reach on the same server."""
    table = Table(title="Throughput under latency, requests/s and share of in flight / latency")
    for heading in ("client", *(f"{delay_ms:.0f} ms x {number}" for delay_ms, number in LATENCIES)):
        table.add_column(heading, justify="left" if heading == "client" else "right")
    shares: dict[str, list[str]] = {"raw streams": [], "eventsync": []}
    for delay_ms, number in LATENCIES:
        with running_server(delay_ms) as url:
            for contender, cells in shares.items():
                rate = median(contender, "asyncio", url, number, 6000)["per_s"]
                cells.append(f"{rate:.0f} ({rate / (number / delay_ms * 1000):.0%})")
    for contender, cells in shares.items():
        table.add_row(contender, *cells)
    console.print(table)


def whole_way(console: Console) -> None:
    """Budgets 4 to 6, by `eventsync` as a user starts it against the sandbox: ledger, mapping and start-up included."""
    table = Table(title="The whole way of a row: us of CPU a row, requests/s (share of in flight / latency), seconds")
    for heading in ("latency", "in flight", "stage us", "publish us", "requests/s", "unchanged rerun s", "start-up s"):
        table.add_column(heading, justify="right")
    for delay_ms, number in ((0.0, 8), (0.0, 32), (0.0, 128), *LATENCIES):
        rounds = [publish.measured(WHOLE_ROWS, delay_ms, number, cores()) for _ in range(ROUNDS)]
        figures = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        share = f" ({figures['share']:.0%})" if delay_ms else ""
        rates = (f"{figures['stage_us']:.0f}", f"{figures['publish_us']:.0f}", f"{figures['per_s']:.0f}{share}")
        table.add_row(f"{delay_ms:.0f} ms", str(number), *rates, f"{figures['again_s']:.1f}", f"{figures['startup_s']:.1f}")
    console.print(table)


def mapping(_console: Console) -> None:
    """Budget 3: a row to an event, which pins itself and prints its own tables."""
    subprocess.run([sys.executable, str(HERE / "mapping.py")], check=True)


def main() -> None:
    console = Console()
    for benchmark in (mapping, client_cost, latency, whole_way):
        benchmark(console)


if __name__ == "__main__":
    main()
