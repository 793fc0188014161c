"""What a row costs as the ledger grows (budget 13): new rows of a feed, read, staged and published, beside ever more entries of
other feeds.

`python benchmarks/growth.py [--sizes 10000 100000 1000000]`, on SQLite and on PostgreSQL, whose processes' CPU is counted too.
Start-up is measured by a run of ten rows and taken off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import sqlalchemy as sa
from rows import write_rows, write_tables
from running import run, server
from worker import COMMAND, Worker

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from ledger_tables import enter_as_delivered
from postgres import postgres_server  # the tests' own server

DATABASES = ("sqlite", "postgresql")
ROWS, FEW, ROUNDS = 5_000, 10, 5


@dataclass
class Desk:
    """A state DB with the feeds that were run on it."""

    place: Worker
    state_url: str
    template: str
    server_pid: int | None
    feeds: int = 0

    def sync(self, rows: int, *words: str) -> float:
        """Run a new feed of new rows; return the CPU seconds, the database's included."""
        self.feeds += 1
        name, folder = f"bench-{self.feeds}", self.place.folder / "feeds"
        (folder / f"{name}.yaml").write_text(
            self.template.replace("feed: bench", f"feed: {name}").replace("rows.csv", f"{name}.csv")
        )
        file = folder / f"{name}.csv"
        write_rows(file, rows)
        file.write_bytes(file.read_bytes().replace(b"EV-", b"EV%d-" % self.feeds).replace(b"number ", b"%d-" % self.feeds))
        before = self._server_s()
        env = self.place.env() | {"EVENTSYNC_STATE_URL": self.state_url}
        cost = run([*COMMAND, "run", name, "--no-dagster", "--json", *words], env, self.place.folder)
        file.unlink()
        return cost.cpu_s + self._server_s() - before

    def _server_s(self) -> float:
        """CPU of the server and of its connections that have ended."""
        if self.server_pid is None:
            return 0.0
        times = psutil.Process(self.server_pid).cpu_times()
        return times.user + times.system + times.children_user + times.children_system

    def grow(self, rows: int) -> float:
        """Add a feed of so many delivered rows; return the CPU microseconds of staging one."""
        words = ("--stage-only", "--accept", "new", "--accept", "copies")
        spent = self.sync(rows, *words) - self.sync(FEW, *words)
        engine = sa.create_engine(self.state_url)
        enter_as_delivered(engine)
        if self.server_pid:  # else the rows measured next would pay for what this one statement left to clean
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(sa.text("VACUUM (ANALYZE)"))
        engine.dispose()
        return spent / rows * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        service = stack.enter_context(server())
        for kind in chosen.databases:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            place = Worker(folder, service.url)
            place.prepare(32)
            write_tables(folder / "feeds")
            mapping = folder / "feeds" / "bench.yaml"
            url = postgres.fresh_url() if kind == "postgresql" else f"sqlite:///{place.ledger}"
            pid = _postmaster(url) if kind == "postgresql" else None
            desk = Desk(place, url, mapping.read_text(), pid)
            mapping.unlink()
            entries = 0
            for size in chosen.sizes:
                staged_us = desk.grow(size - entries)
                entries = size
                spent = [(desk.sync(ROWS) - desk.sync(FEW)) / (ROWS - FEW) * 1e6 for _ in range(ROUNDS)]
                entries += ROUNDS * (ROWS + FEW)
                print(
                    f"{kind:12}{size:12,} entries: {statistics.median(spent):7.0f} us a row staged and published "
                    f"({min(spent):.0f} to {max(spent):.0f}); the feed before it was staged in {staged_us:.1f} us a row",
                    flush=True,
                )


def _postmaster(url: str) -> int:
    folder = Path(str(sa.make_url(url).query["host"]))
    return int((folder / "postmaster.pid").read_text().split()[0])


if __name__ == "__main__":
    main()
