"""The whole way of a row, ledger included: a CSV staged, published and run again, by `eventsync` as a user starts it.

The worker is pinned to one core, the server to another; start-up is measured by a run that finds nothing to do and taken off.
"""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAPPING = """\
feed: load
source: {{kind: csv, path: rows.csv}}
key: [id]
event:
  channelId: {{channel: city-agenda}}
  title: {{from: title, do: [trim]}}
  startAt:
    at:
      day: {{from: day, do: [{{date: "%Y-%m-%d"}}]}}
      clock: {{from: time, do: [{{time: "%H:%M"}}]}}
      zone: Europe/Lisbon
  timezone: Europe/Lisbon
  status: draft
  classifications: [music]
  approxLocation.city.placeId: {{from: city, do: [lower]}}
  approxLocation.city.name: {{from: city}}
  approxLocation.city.countryCode: PT
  locationName: {{from: venue}}
  offers:
    - {{name: Tickets, url: {{from: url, do: [url]}}, availability: available}}
publish: {{in_flight: {in_flight}}}
"""


@dataclass(frozen=True)
class Cost:
    wall_s: float
    cpu_s: float


def write_feed(folder: Path, rows: int, in_flight: int | str) -> None:
    folder.mkdir()
    (folder / "load.yaml").write_text(MAPPING.format(in_flight=in_flight), encoding="utf-8")
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target)
        writer.writerow(["id", "title", "day", "time", "city", "url", "venue"])
        for number in range(rows):
            day, clock = f"2027-{1 + number % 12:02d}-{1 + number % 28:02d}", f"{8 + number % 12:02d}:00"
            title, url = f"Event number {number}", f"https://tickets.example.org/{number}"
            writer.writerow([f"r{number}", title, day, clock, "Lisboa", url, f"Hall {number % 40}"])


@contextmanager
def running_sandbox(latency_ms: float, core: int) -> Iterator[str]:
    command = [sys.executable, "-m", "sandbox", "--key", "benchmark-key-of-the-sandbox", "--set", f"latency_ms={latency_ms:g}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: pin(core)) as server:  # noqa: PLW1509 - no threads here
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split('"base_url": "')[1].split('"')[0]
        finally:
            server.terminate()


def pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def run(folder: Path, url: str, core: int, *words: str) -> Cost:
    environ = {
        **os.environ,
        "EVENT_API_BASE_URL": url,
        "EVENT_API_KEY": "benchmark-key-of-the-sandbox",
        "EVENTSYNC_FEEDS": str(folder / "feeds"),
        "EVENTSYNC_STATE_URL": f"sqlite:///{folder / 'state.db'}",
    }
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", "from pipelines.cli.app import main; main()", "run", "load", "--no-dagster", *words]
    subprocess.run(command, check=True, env=environ, capture_output=True, preexec_fn=lambda: pin(core))
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    return Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measured(rows: int, latency_ms: float, in_flight: int, cores: tuple[int, int]) -> dict[str, float]:
    """Figures of one pass: stage and publish in us of CPU a row, requests a second, and the seconds of an unchanged rerun."""
    server_core, core = cores
    with tempfile.TemporaryDirectory() as scratch, running_sandbox(latency_ms, server_core) as url:
        folder = Path(scratch)
        write_feed(folder / "feeds", rows, in_flight)
        staged = run(folder, url, core, "--stage-only")
        published = run(folder, url, core, "--publish-only")
        idle = run(folder, url, core, "--publish-only")
        again = run(folder, url, core)
    wall_s = published.wall_s - idle.wall_s
    return {
        "stage_us": (staged.cpu_s - idle.cpu_s) / rows * 1e6,
        "publish_us": (published.cpu_s - idle.cpu_s) / rows * 1e6,
        "per_s": rows / wall_s,
        "share": rows / wall_s / (in_flight / latency_ms * 1000) if latency_ms else 0.0,
        "again_s": again.wall_s,
        "startup_s": idle.wall_s,
    }
