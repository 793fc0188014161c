"""How much of an unknown limit real workers use, and how often they meet it: `eventsync run` against the sandbox.

Counted over the minute that begins with the first request, from the sandbox's own log: `python benchmarks/pace.py`.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import publish
from rich.console import Console
from rich.table import Table

KEY = "benchmark-key-of-the-sandbox"
MINUTE_S = 60.0
PER_S = 20
ON_ITS_WAY_S = 0.1
"""How long after a 429 was written down a request may be that had left before it arrived."""
POSTGRES = [url for url in [os.environ.get("EVENTSYNC_BENCH_POSTGRES")] if url]
"""An empty database, as EVENTSYNC_STATE_URL takes it; without one that row is left out."""
BUCKET = {"rate_events": f"{PER_S}/s", "rate_burst": 5}
WINDOW = {"rate_events": f"{PER_S}/s", "rate_kind": "window"}
SLIDING = {"rate_events": f"{PER_S}/s", "rate_kind": "sliding"}
MINUTE = {"rate_events": f"{PER_S * 60}/m"}


@dataclass(frozen=True)
class Trial:
    """One minute: the sandbox's switches, how many workers there are, and how many tokens may be taken in it."""

    limit: str
    switches: dict[str, Any]
    allowed: int = PER_S * 60
    workers: int = 1
    in_flight: str = "8"
    state_url: str = ""
    more: dict[str, Any] = field(default_factory=dict)


TRIALS = (
    Trial("bucket, burst 5", BUCKET, 1205),
    Trial("bucket, burst 5", BUCKET, 1205, in_flight="auto"),
    *(Trial("bucket, burst 5", BUCKET, 1205, more={"retry_after": style}) for style in ("fraction", "date", "absent")),
    Trial("bucket, burst 5", BUCKET, 1205, more={"rate_headers": "x-ratelimit"}),
    Trial("bucket, burst 5", BUCKET, 1205, more={"rate_headers": "ratelimit"}),
    Trial("window of 1 s", WINDOW),
    Trial("window of 1 s", WINDOW, more={"rate_headers": "ratelimit"}),
    Trial("sliding 1 s", SLIDING),
    Trial("sliding 1 s", SLIDING, more={"retry_after": "fraction"}),
    Trial("window of 60 s", MINUTE | {"rate_kind": "window"}),
    Trial("sliding 60 s", MINUTE | {"rate_kind": "sliding"}),
    Trial("bucket, burst 5", BUCKET, 1205, workers=2),
    *(Trial("bucket, burst 5", BUCKET, 1205, workers=2, state_url=url) for url in POSTGRES),
)


@contextmanager
def running_sandbox(switches: dict[str, Any]) -> Iterator[str]:
    words = [word for name, value in switches.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "sandbox", "--key", KEY, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["base_url"]
        finally:
            server.terminate()


def log_of(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/_sandbox/requests") as told:
        return list(json.load(told)["requests"])


def prepare(folder: Path, trial: Trial) -> list[str]:
    """One feed for each worker, with more rows than pass in a minute."""
    (folder / "feeds").mkdir()
    text = publish.MAPPING.format(in_flight=trial.in_flight)
    rows = int(trial.allowed * 1.1 / trial.workers) + 20
    with (folder / "feeds" / "rows.csv").open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        writer.writerow(["id", "title", "day", "time", "city", "url", "venue"])
        writer.writerows(
            [f"r{number}", f"Event {number}", "2027-01-01", "08:00", "Lisboa", "https://t.example", "Hall"]
            for number in range(rows)
        )
    feeds = [f"load-{number}" for number in range(trial.workers)]
    for feed in feeds:
        (folder / "feeds" / f"{feed}.yaml").write_text(text.replace("feed: load", f"feed: {feed}"), encoding="utf-8")
    return feeds


def measured(trial: Trial) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch, running_sandbox(trial.switches | trial.more) as url:
        folder = Path(scratch)
        feeds = prepare(folder, trial)
        environ = {
            **os.environ,
            "EVENT_API_BASE_URL": url,
            "EVENT_API_KEY": KEY,
            "EVENTSYNC_FEEDS": str(folder / "feeds"),
            "EVENTSYNC_STATE_URL": trial.state_url or f"sqlite:///{folder / 'state.db'}",
        }

        def command(*words: str) -> list[str]:
            return [sys.executable, "-c", "from pipelines.cli.app import main; main()", "run", *words, "--no-dagster"]

        subprocess.run(command("--all", "--stage-only"), check=True, env=environ, capture_output=True)
        workers = [
            subprocess.Popen(command(feed, "--publish-only"), env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for feed in feeds
        ]
        for worker in workers:
            worker.wait()
        return figures(log_of(url), trial)


def figures(log: list[dict[str, Any]], trial: Trial) -> dict[str, float]:
    began = min(one["at"] for one in log)
    minute = [one for one in log if one["at"] <= began + MINUTE_S]
    passed = [one for one in minute if one["status"] == 201]
    met = [one for one in minute if one["status"] == 429]
    early = sum(1 for one in minute for hit in met if hit["at"] + ON_ITS_WAY_S < one["at"] < hit["at"] + least_wait_s(trial))
    keys = [one["idempotency_key"] for one in log if one["status"] == 201]
    return {
        "used": len(passed) / trial.allowed,
        "met": len(met) / len(minute),
        "429s": len(met),
        "early": early,
        "twice": len(keys) - len(set(keys)),
    }


def least_wait_s(trial: Trial) -> float:
    """What each 429 certainly asked for; where it named nothing, or a fraction, nothing is held against the worker."""
    return 1.0 - ON_ITS_WAY_S if trial.more.get("retry_after", "seconds") == "seconds" else 0.0


def main() -> None:
    wanted = sys.argv[1:]
    table = Table(title="The first minute under a limit of 20/s that the worker does not know")
    for heading in ("limit", "as told", "in flight", "workers", "state DB", "used", "answered 429", "sent in a pause", "twice"):
        table.add_column(heading)
    console = Console(width=150)
    for trial in TRIALS:
        told = " ".join(f"{value}" for value in trial.more.values())
        if wanted and not any(word in f"{trial.limit} {told} {trial.workers} workers" for word in wanted):
            continue
        one = measured(trial)
        kind = "PostgreSQL" if trial.state_url else "SQLite"
        cells = (f"{one['used']:.1%}", f"{one['met']:.1%} ({one['429s']:.0f})", f"{one['early']:.0f}", f"{one['twice']:.0f}")
        table.add_row(trial.limit, told or "whole seconds", trial.in_flight, str(trial.workers), kind, *cells)
        console.print(trial.limit, told, trial.in_flight, trial.workers, kind, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
