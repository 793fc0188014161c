"""What it takes Dagster to load hundreds of feeds, in seconds of CPU: every code server pays it at its start and at each reload,
and the process of each run pays for its own job.

`python benchmarks/many_feeds.py [FEEDS]...`; judges no budget. What a run costs is told by the measurements of `bench.py`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository

NUMBERS = (10, 50, 200, 500)
FEED = """\
feed: feed-{number}
owner: agenda@example.org
source: {{kind: csv, path: events-{number}.csv}}
schedule: {{cron: "{minute} */2 * * *", timezone: Europe/Warsaw}}
key: [ID]
let:
  day: {{from: DAY, do: [{{date: ["%Y-%m-%d", "%d.%m.%Y"]}}]}}
rows:
  - skip: {{column: KIND, equals: closed}}
    because: closed
event:
  channelId: "7"
  title: {{from: TITLE, do: [collapse, trim, {{truncate: 120}}]}}
  startAt: {{at: {{day: $day, clock: {{from: HOUR, do: [{{time: ["%H:%M", "%H.%M"]}}]}}, zone: Europe/Warsaw}}}}
  timezone: Europe/Warsaw
  status: published
  classifications: {{from: GENRE, do: [{{map: {{concert: music, play: theatre, talk: talks}}}}]}}
  approxLocation: {{city: {{placeId: krk}}}}
publish:
  brakes: {{rejected: 20%}}
"""
MEASURED = """
import json, resource, sys, time
from pathlib import Path
began = time.process_time()
from pipelines.definitions import build_definitions
from pipelines.settings import read_settings
imported = time.process_time()
definitions = build_definitions(read_settings({"EVENTSYNC_FEEDS": sys.argv[1]}, Path.cwd()), lambda: None)
repository = definitions.get_repository_def()
built = time.process_time()
repository.load_all_definitions()
resolved = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
schedules = sum(one.name.startswith("sync_") for one in repository.schedule_defs)
print(json.dumps([imported - began, built - imported, resolved - built, peak, schedules]))
"""


def main() -> None:
    """Load as many feeds as the words say, each number in a process of its own, and print a table."""
    print(f"{'feeds':>6} {'imports s':>10} {'definitions s':>14} {'jobs resolved s':>16} {'peak MB':>8} {'job of a run s':>15}")
    for number in map(int, sys.argv[1:] or NUMBERS):
        with TemporaryDirectory() as folder:
            imports, definitions, jobs, peak, schedules = _measured(Path(folder), number)
            own = _of_a_run(Path(folder))
        assert schedules == number
        print(f"{number:>6} {imports:>10.2f} {definitions:>14.2f} {jobs:>16.2f} {peak:>8} {own:>15.2f}")


def _measured(folder: Path, number: int) -> tuple[float, float, float, int, int]:
    for each in range(number):
        (folder / f"feed-{each}.yaml").write_text(FEED.format(number=each, minute=each % 60), encoding="utf-8")
    said = subprocess.run([sys.executable, "-c", MEASURED, folder], check=True, capture_output=True, text=True).stdout
    imports, definitions, jobs, peak, schedules = json.loads(said)
    return imports, definitions, jobs, peak, schedules


def _of_a_run(folder: Path) -> float:
    """Return what the process of a run, spawned as a code server does it, takes to load its job."""
    os.environ["EVENTSYNC_FEEDS"] = str(folder)
    repository = ReconstructableRepository.for_module("pipelines.definitions", "defs", str(Path.cwd()))
    spawning = multiprocessing.get_context("spawn")
    seconds = spawning.SimpleQueue()
    process = spawning.Process(target=_load_job, args=[repository.get_reconstructable_job("sync_feed_0"), seconds])
    process.start()
    process.join()
    return float(seconds.get())


def _load_job(job: ReconstructableJob, seconds: Any) -> None:
    began = time.process_time()
    job.get_definition()
    seconds.put(time.process_time() - began)


if __name__ == "__main__":
    main()
