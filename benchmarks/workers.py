"""Several workers, one service, one key, one PostgreSQL that is some way away: rows a second beside one worker alone.

`python benchmarks/workers.py [--beside CHECKOUT]`; `--beside` measures another checkout of eventsync in the same run, in turns
with this one. Each worker is a process with a feed of its own. Rows a second are counted while all of them are at work: from
three tenths of the rows to eight tenths.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table
from rows import write_rows
from sqlalchemy import make_url
from worker import COMMAND, Worker

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from postgres import Postgres, postgres_server  # the tests' own server

HERE = Path(__file__).parent
WORKERS = (1, 2, 4, 8)
AWAY_MS = (0.1, 2.5, 5.0)
LATENCY_MS = 50
BEGIN, END = 0.3, 0.8
LOOK_S = 0.02
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Found:
    """Rows a second of all workers together, and transactions of the database for each row."""

    rows_per_s: float
    transactions: float


@contextmanager
def distant(server: Postgres, away_ms: float) -> Iterator[tuple[str, float]]:
    """Return the URL of a fresh database that is so far away, and the round trip as it was measured."""
    fresh = make_url(server.fresh_url())
    folder, added_ms = str(fresh.query["host"]), away_ms if away_ms >= 1 else 0.0
    command = [sys.executable, str(HERE / "distant.py"), f"{folder}/.s.PGSQL.5432", str(added_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout is not None
        try:
            url = fresh.set(host="127.0.0.1", port=int(relay.stdout.readline()), query={})
            yield url.render_as_string(hide_password=False), _round_trip_ms(url.set(drivername="postgresql"))
        finally:
            relay.terminate()


def _round_trip_ms(url: object) -> float:
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:  # type: ignore[attr-defined]
        return 1000 * statistics.median(_timed(connection) for _ in range(50))


def _timed(connection: psycopg.Connection) -> float:
    began = time.perf_counter()
    connection.execute("SELECT 1")
    return time.perf_counter() - began


def measured(checkout: Path, state_url: str, workers: int, rows: int, in_flight: int) -> Found:
    """Stage a feed for each worker, publish all of them at once, and count."""
    with tempfile.TemporaryDirectory() as scratch, service() as url:
        env = {"EVENTSYNC_STATE_URL": state_url, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
        places = [Worker(Path(scratch) / str(number), url) for number in range(workers)]
        for number, place in enumerate(places):
            place.prepare(in_flight)
            file = place.folder / "feeds" / "bench.yaml"
            file.write_text(file.read_text().replace("feed: bench", f"feed: bench-{number}"))
            write_rows(place.source, rows)
            place.source.write_bytes(
                place.source.read_bytes().replace(b"EV-", b"EV%d-" % number).replace(b"number ", b"%d-" % number)
            )
            _ended(_started(place, number, env, "--stage-only"))
        before = _transactions(state_url)
        running = [_started(place, number, env, "--publish-only") for number, place in enumerate(places)]
        rows_per_s = _rate(url, workers * rows, running)
        for one in running:
            _ended(one)
        time.sleep(1.0)  # noqa: TID251  # the server adds up what a connection did when it has ended
        return Found(rows_per_s, (_transactions(state_url) - before) / (workers * rows))


def _started(place: Worker, number: int, env: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "run", f"bench-{number}", "--no-dagster", "--json", *words]
    environ = {**os.environ, **place.env(), **env}
    return subprocess.Popen(command, cwd=place.folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _ended(process: subprocess.Popen[bytes]) -> None:
    _, trouble = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise RuntimeError(trouble.decode()[-4000:])


def _rate(url: str, rows: int, running: list[subprocess.Popen[bytes]]) -> float:
    """Return the requests a second between two shares of all rows."""
    seen: list[tuple[float, int]] = []
    while not seen or seen[-1][1] < rows * END:
        if all(one.poll() is not None for one in running):
            raise RuntimeError("every worker has ended, and rows are left")
        with urllib.request.urlopen(f"{url}/bench/posts", timeout=PATIENCE_S) as answer:
            posts = int(answer.read())
        if posts >= rows * BEGIN:
            seen.append((time.monotonic(), posts))
        time.sleep(LOOK_S)  # noqa: TID251  # waits for other processes
    (first_s, first), (last_s, last) = seen[0], seen[-1]
    return (last - first) / (last_s - first_s)


@contextmanager
def service() -> Iterator[str]:
    command = [sys.executable, str(HERE / "server.py"), "--delay-ms", str(LATENCY_MS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def _transactions(state_url: str) -> int:
    url = make_url(state_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert found is not None
    return int(found[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--rows", type=int, default=1500, help="rows of each worker")
    parser.add_argument("--in-flight", type=int, default=4)
    chosen = parser.parse_args()
    checkouts = {"this": HERE.parent} | ({"beside": chosen.beside.resolve()} if chosen.beside else {})
    table = Table(title=f"{LATENCY_MS} ms latency, {chosen.in_flight} in flight in each worker, {chosen.rows} rows each")
    for heading in ("code", "round trip ms", "workers", "rows/s", "x one", "transactions a row"):
        table.add_column(heading)
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server())
        alone: dict[tuple[str, float], float] = {}
        for away_ms, workers, (name, checkout) in product(AWAY_MS, WORKERS, checkouts.items()):
            with distant(server, away_ms) as (state_url, trip_ms):
                found = measured(checkout, state_url, workers, chosen.rows, chosen.in_flight)
            one = alone.setdefault((name, away_ms), found.rows_per_s)
            cells = (f"{trip_ms:.1f}", str(workers), f"{found.rows_per_s:.0f}", f"{found.rows_per_s / one:.2f}")
            table.add_row(name, *cells, f"{found.transactions:.2f}")
            print(name, *cells, f"{found.transactions:.2f}", file=sys.stderr, flush=True)
    console = Console(width=120)
    console.print(table)
    console.print(f"load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
