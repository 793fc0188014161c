"""Feeds published by several workers with one PostgreSQL and one shared limit, while workers are killed: nothing lost, nothing
doubled (budgets 11 and 12).

`python benchmarks/kills.py --workers 4 --feeds 40 --rows 5000 --kill-every 10`; `--jobs 4` lets one command run all feeds.
A killed run is started again at once. Rows a second are those of the whole runs, start-up and staging included.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL

import psutil
from rows import write_rows, write_tables
from running import Server, server
from worker import COMMAND, Worker

from state.opening import opened_database
from state.queries import LedgerQueries

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from postgres import postgres_server  # the tests' own server

DONE = 0
AGAIN = {-9, 1}
"""How a run ends that was killed, or that lost a worker: rows stay pending."""


@dataclass
class Fleet:
    """Feeds that wait for a worker, and the processes at work."""

    place: Worker
    env: dict[str, str]
    words: tuple[str, ...]
    waiting: deque[str]
    at_work: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: int = 0
    broken: list[str] = field(default_factory=list)

    def work(self) -> None:
        """Run one feed after another; one whose run was killed goes to the end of the queue."""
        while self.waiting:
            feed = self.waiting.popleft()
            command = [*COMMAND, "run", feed, "--no-dagster", "--json", *self.words]
            with subprocess.Popen(
                command, cwd=self.place.folder, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as run:
                self.at_work[feed] = run
                _, trouble = run.communicate()
            del self.at_work[feed]
            if run.returncode in AGAIN:
                self.waiting.append(feed)
            elif run.returncode != DONE:
                self.broken.append(f"{feed} ended with {run.returncode}: {trouble.decode()[-2000:]}")

    def kill_one(self) -> None:
        """Kill one process of a run, or one of the workers of `--jobs`."""
        processes = [one for run in list(self.at_work.values()) for one in _family(run.pid)]
        if processes:
            os.kill(random.choice(processes), SIGKILL)
            self.kills += 1


def _children_s(times: os.times_result) -> float:
    return times.children_user + times.children_system


def _family(pid: int) -> list[int]:
    try:
        run = psutil.Process(pid)
        return [run.pid, *(child.pid for child in run.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def main() -> int:
    chosen = _options()
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        limit = ("--limit", chosen.limit) if chosen.limit else ()
        service = stack.enter_context(server("--delay-ms", str(chosen.latency_ms), *limit))
        state_url = postgres.fresh_url()
        fleet = _prepared(folder, service, state_url, chosen)
        began, cpu = time.monotonic(), os.times()
        workers = [threading.Thread(target=fleet.work) for _ in range(chosen.workers)]
        for worker in workers:
            worker.start()
        seen = 0
        while any(worker.is_alive() for worker in workers):
            time.sleep(chosen.kill_every or 0.1)  # noqa: TID251  # the workers are other processes
            if chosen.kill_every and service.posts() > seen:
                fleet.kill_one()
                seen = service.posts()
        took_s, after = time.monotonic() - began, os.times()
        return _judged(service, state_url, fleet, chosen, took_s, _children_s(after) - _children_s(cpu))


def _prepared(folder: Path, service: Server, state_url: str, chosen: argparse.Namespace) -> Fleet:
    place = Worker(folder, service.url)
    place.prepare(chosen.in_flight)
    template = (folder / "feeds" / "bench.yaml").read_text()
    (folder / "feeds" / "bench.yaml").unlink()
    write_tables(folder / "feeds")
    names = [f"bench-{number}" for number in range(chosen.feeds)]
    for number, name in enumerate(names):
        file = folder / "feeds" / f"{name}.csv"
        write_rows(file, chosen.rows)
        file.write_bytes(file.read_bytes().replace(b"EV-", b"EV%d-" % number).replace(b"number ", b"%d-" % number))
        text = template.replace("feed: bench", f"feed: {name}").replace("rows.csv", file.name)
        (folder / "feeds" / f"{name}.yaml").write_text(text)
    words = ("--jobs", str(chosen.jobs)) if chosen.jobs > 1 else ()
    env = {**os.environ, **place.env(), "EVENTSYNC_STATE_URL": state_url}
    return Fleet(place, env, words, deque(["--all"] if chosen.jobs > 1 else names))


def _judged(service: Server, state_url: str, fleet: Fleet, chosen: argparse.Namespace, took_s: float, cpu_s: float) -> int:
    rows, account = chosen.feeds * chosen.rows, service.account()
    with opened_database(state_url) as engine:
        counts = Counter[str]()
        for feed in LedgerQueries(engine).status():
            counts.update(feed.counts)
    found = counts.total() - counts["delivered"]
    fleet.broken += [f"{account[name]} {name} of {rows} rows" for name in ("events", "bodies") if account[name] != rows]
    fleet.broken += [f"{account['contradicted']} keys came with two bodies"] * bool(account["contradicted"])
    fleet.broken += [f"{found} entries are not delivered"] * (found != 0)
    per_s = account["events"] / account["span_s"]
    print(
        f"{chosen.workers} workers, {chosen.jobs} jobs, {chosen.feeds} feeds of {chosen.rows} rows, "
        f"{chosen.in_flight} in flight, {chosen.latency_ms} ms: {rows / took_s:.0f} rows/s in {took_s:.0f} s, "
        f"{per_s:.0f} from the first request to the last; "
        f"{cpu_s:.0f} s of CPU; {fleet.kills} kills; {account['events']} events, "
        f"{account['posts'] - account['events'] - account['refused']} sent again, "
        f"{account['refused'] / account['posts']:.2%} answered 429"
    )
    print("\n".join(fleet.broken) or "none lost, none doubled, one key and one body each")
    return 1 if fleet.broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4, help="how many feeds are at work at a time")
    parser.add_argument("--jobs", type=int, default=1, help="workers of one command that runs all feeds; then say --workers 1")
    parser.add_argument("--feeds", type=int, default=4)
    parser.add_argument("--rows", type=int, default=5_000, help="rows of each feed")
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--latency-ms", type=int, default=50)
    parser.add_argument("--limit", default="", help="of the service, as server.py has it: bucket:200:20")
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds between two kills; each waits for a request")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
