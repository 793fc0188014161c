"""Small feeds that are all due in one minute: how long Dagster takes from the tick until every row is an event.

`python benchmarks/due.py [--feeds 500] [--alone]`, with the webserver, the daemon and the sandbox on this machine and the state
on SQLite. `--alone` gives each feed a schedule and a run of its own. `--stay` leaves all of it running for a look at the UI.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pace import KEY, running_sandbox
from worker import COMMAND

ROWS = 10
FEED = """\
feed: feed-{number}
source: {{kind: csv, path: feed-{number}.csv}}
schedule: {{cron: "{cron}", timezone: UTC{alone}}}
key: [id]
event:
  channelId: "101"
  title: {{from: title}}
  startAt: {{at: {{day: {{from: day, do: [{{date: ["%Y-%m-%d"]}}]}}, clock: "19:00", zone: Europe/Lisbon}}}}
  timezone: Europe/Lisbon
  status: published
  classifications: [music]
  approxLocation: {{city: {{placeId: lisbon}}}}
publish:
  brakes: {{new: 100%}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--feeds", type=int, default=500)
    parser.add_argument("--latency-ms", type=int, default=50)
    parser.add_argument("--ready-min", type=int, default=2, help="minutes from now until the feeds are due")
    parser.add_argument("--port", type=int, default=3900)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--stay", action="store_true")
    chosen = parser.parse_args()
    due = (_now() + timedelta(minutes=chosen.ready_min)).replace(second=0, microsecond=0)
    with tempfile.TemporaryDirectory() as scratch:
        feeds = Path(scratch, "feeds")
        feeds.mkdir()
        for number in range(chosen.feeds):
            alone = ", alone: true" if chosen.alone else ""
            text = FEED.format(number=number, cron=f"{due.minute} {due.hour} * * *", alone=alone)
            (feeds / f"feed-{number}.yaml").write_text(text)
            rows = "".join(f"{one},Evening {one} of {number},2031-05-{one + 1:02}\n" for one in range(ROWS))
            (feeds / f"feed-{number}.csv").write_text(f"id,title,day\n{rows}")
        with running_sandbox({"latency_ms": chosen.latency_ms}) as url:
            env = {"EVENTSYNC_FEEDS": str(feeds), "EVENT_API_BASE_URL": url, "EVENT_API_KEY": KEY}
            env |= {"EVENTSYNC_STATE_URL": f"sqlite:///{scratch}/state.db", "DAGSTER_HOME": f"{scratch}/dagster"}
            ui = subprocess.Popen([*COMMAND, "ui", "--port", str(chosen.port)], env={**os.environ, **env}, cwd=scratch)
            try:
                _follow(url, chosen.feeds * ROWS, due, ui)
                if chosen.stay:
                    input("Enter ends it: ")
            finally:
                ui.terminate()
                ui.wait()


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # Dagster's schedules go by it


def _follow(url: str, rows: int, due: datetime, ui: subprocess.Popen[bytes]) -> None:
    """Print the number of events until all are there."""
    shown = -1
    while shown < rows:
        if ui.poll() is not None:
            raise RuntimeError("the UI has ended")
        time.sleep(1.0)  # noqa: TID251  # waits for other processes
        with urllib.request.urlopen(f"{url}/_sandbox", timeout=60) as answer:
            count = json.loads(answer.read())["events"]
        if count != shown:
            shown = count
            print(f"{(_now() - due).total_seconds():7.1f} s  {count} of {rows} events", flush=True)


if __name__ == "__main__":
    main()
