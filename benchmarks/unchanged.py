"""A run that finds its file as it was, or exported anew: its rows all read, and passed over, in one run on one core.

`python benchmarks/unchanged.py [rows]`; the worker is called as a run calls it, without the service and the start-up.
"""

from __future__ import annotations

import csv
import hashlib
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from publish import pin, write_feed

from connectors.sources.catalogue import open_source
from connectors.sources.files.choice import take_snapshot
from mappings.compiler.mapper import compile_feed
from mappings.delivery import Answer, Receipt
from mappings.event import Directory
from mappings.yaml.loader import load_feed
from pipelines.run.options import RunOptions
from pipelines.run.stage import Staged, StageJob, plan_read, stage
from state.ledger.ledger import Ledger
from state.ledger.outbox import Settled, open_outbox
from state.opening import open_database

ROUNDS = 3
EDITED = 100
NOW = datetime(2027, 1, 1, tzinfo=UTC)


class Feed:
    """One feed in a folder, staged into a ledger as a run does it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mapping = load_feed(folder / "load.yaml")
        engine = open_database(f"sqlite:///{folder / 'state.db'}")
        self.ledger = Ledger(engine, "benchmark", self.mapping.feed, namespace="benchmark", now=lambda: NOW)
        self.lease = self.ledger.acquire_lease("benchmark")
        self.runs = 0

    def stage(self, *, is_plain: bool) -> Staged:
        self.runs += 1
        run_id = f"run-{self.runs}"
        self.ledger.begin_run(run_id, launched_by="benchmark")
        mapper = compile_feed(self.mapping, Directory(), NOW)
        plan = plan_read(self.mapping, mapper, "", NOW, RunOptions(), self.ledger.bookmark())
        snapshot = None if is_plain else partial(take_snapshot, self.mapping.source, self.folder)
        source = open_source(self.mapping.source, self.folder, mapper.columns)
        told = (self.mapping, source, mapper, self.ledger, RunOptions(), lambda _rows: None)
        return stage(StageJob(run_id, self.lease.token, *told, plan, (), snapshot))

    def deliver_all(self) -> None:
        outbox = open_outbox(self.ledger.fence("run-1", self.lease.token))
        settled: list[Settled] = []
        while intents := outbox.settle_and_claim(settled, 500):
            settled = [Settled(one, Receipt(one.entry_id, Answer(201))) for one in intents]


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The least CPU seconds of a few rounds."""
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def export(file: Path, edition: int) -> None:
    """Write the file anew, backwards, with the titles of some rows edited."""
    head, *rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
    rows.reverse()
    for place in range(edition, len(rows), len(rows) // EDITED):
        rows[place] = rows[place].replace(",", f",edition {edition} ", 1)
    file.write_text(head + "".join(rows), encoding="utf-8")


def exported_anew(feed: Feed, file: Path) -> float:
    """The least CPU seconds of a few runs that find their file exported anew."""
    spent = []
    for edition in range(ROUNDS):
        export(file, edition)
        spent.append(best(lambda: feed.stage(is_plain=False), rounds=1))
    return min(spent)


def csv_alone(file: Path) -> int:
    with file.open(newline="", encoding="utf-8") as source:
        return sum(1 for _ in csv.reader(source))


def digest_alone(file: Path) -> bytes:
    with file.open("rb") as source:
        return hashlib.file_digest(source, lambda: hashlib.blake2b(digest_size=16)).digest()


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    pin(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "feed"
        write_feed(folder, rows, 8)
        file, feed = folder / "rows.csv", Feed(folder)
        feed.stage(is_plain=False)
        feed.deliver_all()
        reader, digest = best(lambda: csv_alone(file)), best(lambda: digest_alone(file))
        plain = best(lambda: feed.stage(is_plain=True))
        feed.stage(is_plain=False)  # a run that reads leaves the evidence for the next
        young = best(lambda: feed.stage(is_plain=False))
        anew = exported_anew(feed, file)
        print(f"{rows} rows, {file.stat().st_size / 1e6:.1f} MB, CPU seconds")
        for what, seconds in (
            ("one pass of the digest", digest),
            ("csv.reader", reader),
            ("every row read", plain),
            ("passed over, its bytes digested", young),
            (f"exported anew, {EDITED} rows edited", anew),
        ):
            print(f"{what:34}{seconds:9.3f} s {plain / seconds:9.1f} x less than reading {seconds / reader:7.2f} x csv.reader")


if __name__ == "__main__":
    main()
