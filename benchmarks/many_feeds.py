"""What it takes Dagster to load thousands of feeds, in seconds of CPU: a code server pays it at its start and at each reload (all
jobs resolved, then a snapshot of all for the webserver), and the process of each run pays for its own job.

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

NUMBERS = (10, 500, 2_000)
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
import json, resource, time
began = time.process_time()
from dagster._core.remote_representation.external_data import RepositorySnap
from pipelines.definitions import defs
times = [began, time.process_time()]
for load in (lambda: defs.asset_graph, defs.load_all_definitions, lambda: RepositorySnap.from_def(defs, defer_snapshots=True)):
    load()
    times.append(time.process_time())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
feeds = sum(name.startswith("sync_") for name in defs.job_names)
print(json.dumps([*(after - before for before, after in zip(times, times[1:])), peak, feeds]))
"""


def main() -> None:
    """Load as many feeds as the words say, each number in a process of its own, and print a table."""
    columns = ("imports s", "definitions s", "jobs s", "snapshot s", "peak MB", "job of a run s")
    print(f"{'feeds':>6} " + " ".join(f"{name:>14}" for name in columns))
    for number in map(int, sys.argv[1:] or NUMBERS):
        with TemporaryDirectory() as folder:
            for each in range(number):
                text = FEED.format(number=each, minute=each % 60)
                Path(folder, f"feed-{each}.yaml").write_text(text, encoding="utf-8")
            os.environ["EVENTSYNC_FEEDS"] = folder
            said = subprocess.run([sys.executable, "-c", MEASURED], check=True, capture_output=True, text=True).stdout
            *seconds, peak, feeds = json.loads(said)
            own = _of_a_run()
        assert feeds == number
        print(f"{number:>6} " + " ".join(f"{one:>14.2f}" for one in seconds) + f" {peak:>14} {own:>14.2f}")


def _of_a_run() -> float:
    """Return what the process of a run, spawned as a code server does it, takes to load its job."""
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
