"""Equal feeds under one limit that they do not know, with PostgreSQL some way away: `python benchmarks/pace_shared.py`.

From the sandbox's own log: the share of the limit that was used, the share of answers 429, how many times more the fastest feed
sent than the slowest, and the longest time from a 429 to one feed until the last request of another feed in that pause.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pace
import workers
from rich.console import Console

from state.opening import opened_database
from state.queries import LedgerQueries, RowFilter

SETTLED_S, PAUSE_S = 15.0, 0.95


def log_of(checkout: Path, state_url: str, feeds: int, per_s: int, seconds: float, latency_ms: int) -> list[dict[str, Any]]:
    """Publish from that many feeds at once; return the requests with their feeds."""
    switches = {"rate_events": f"{per_s}/s", "rate_burst": 10, "latency_ms": latency_ms}
    trial = pace.Trial("bucket", switches, int(per_s * seconds), feeds, state_url=state_url)
    with tempfile.TemporaryDirectory() as scratch, pace.running_sandbox(switches) as url:
        folder = Path(scratch)
        names = pace.prepare(folder, trial)
        for name in names:  # rows of its own: equal ones would be held as duplicates
            rows, mapping = folder / "feeds" / "rows.csv", folder / "feeds" / f"{name}.yaml"
            rows.with_name(f"{name}.csv").write_text(rows.read_text().replace("Event", name))
            mapping.write_text(mapping.read_text().replace("rows.csv", f"{name}.csv"))
        environ = {**os.environ, "EVENT_API_BASE_URL": url, "EVENT_API_KEY": pace.KEY, "PYTHONPATH": str(checkout)}
        environ |= {"EVENTSYNC_FEEDS": str(folder / "feeds"), "EVENTSYNC_STATE_URL": state_url}
        command = [*workers.COMMAND, "run", "--no-dagster"]
        subprocess.run([*command, "--all", "--stage-only"], check=True, env=environ, capture_output=True, cwd=scratch)
        quiet = {"env": environ, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": scratch}
        running = [subprocess.Popen([*command, name, "--publish-only"], **quiet) for name in names]
        for one in running:
            one.wait()
        log = [one for one in pace.log_of(url) if one["idempotency_key"]]
    with opened_database(state_url) as engine:
        queries = LedgerQueries(engine)
        feed_of = {row.key: book.feed for book in queries.known() for row in queries.every_row(book, RowFilter())}
    return [one | {"feed": feed_of[one["idempotency_key"]]} for one in sorted(log, key=lambda one: one["at"])]


def figures(log: list[dict[str, Any]], per_s: int) -> str:
    last_of = {one["feed"]: one["at"] for one in log}
    begin, end = log[0]["at"] + SETTLED_S, min(last_of.values())
    span = [one for one in log if begin <= one["at"] < end]
    passed = Counter(one["feed"] for one in span if one["status"] == 201)
    met = [one for one in log if one["status"] == 429]
    first = [one for before, one in zip([None, *met], met, strict=False) if before is None or one["at"] - before["at"] > PAUSE_S]
    late_s = [
        one["at"] - hit["at"]
        for hit in first
        for one in log
        if one["feed"] != hit["feed"] and 0 < one["at"] - hit["at"] < PAUSE_S
    ]
    used, ratio = passed.total() / per_s / (end - begin), max(passed.values()) / min(passed.values())
    refused = sum(one["status"] == 429 for one in span) / len(span)
    heard = f"{len(first)} pauses, heard after {1000 * max(late_s, default=0):.0f} ms"
    return f"used {used:.1%}, 429 {refused:.2%}, fastest / slowest {ratio:.2f} in {end - begin:.0f} s; {heard}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turns with this one")
    parser.add_argument("--feeds", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--per-s", type=int, nargs="*", default=[100, 20])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--away-ms", type=float, default=5)
    parser.add_argument("--latency-ms", type=int, default=50)
    chosen = parser.parse_args()
    checkouts = {"this": workers.HERE.parent} | ({"beside": chosen.beside.resolve()} if chosen.beside else {})
    console = Console(width=150)
    with workers.postgres_server() as server:
        for per_s, feeds, (name, checkout) in workers.product(chosen.per_s, chosen.feeds, checkouts.items()):
            with workers.distant(server, chosen.away_ms) as (state_url, trip_ms):
                log = log_of(checkout, state_url, feeds, per_s, chosen.seconds, chosen.latency_ms)
            console.print(f"{name}, {per_s}/s, {feeds} feeds, {trip_ms:.1f} ms away: {figures(log, per_s)}")
    console.print(f"load average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    sys.exit(main())
