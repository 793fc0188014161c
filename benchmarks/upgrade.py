"""A run of an earlier version at work while this one comes: refused, then killed, ended or suspended, upgraded and run on.

`python benchmarks/upgrade.py OLD_CHECKOUT`, on SQLite and on PostgreSQL. Ends with 1 where a row was lost or doubled, where a key
came with two bodies, or where the earlier run sent anything after the upgrade.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import Any

import sqlalchemy as sa
from rows import write_rows
from running import Server, server
from worker import COMMAND, Worker

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from postgres import postgres_server  # the tests' own server

HERE = Path(__file__).parent
DATABASES = ("sqlite", "postgresql")
ROWS, IN_FLIGHT, LATENCY_MS = 20_000, 16, 5
PUBLISHED = 1_000
"""Rows that were sent when a publish is met."""
PATIENCE_S = 600.0
AFTER_S = 5.0
"""How long a suspended run is watched once it goes on."""


@dataclass
class Trial:
    """One feed, its state DB, and the runs of both versions on it."""

    place: Worker
    service: Server
    state_url: str
    old: Path

    def start(self, checkout: Path, *words: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, **self.place.env(), "EVENTSYNC_STATE_URL": self.state_url, "PYTHONPATH": str(checkout)}
        return subprocess.Popen(
            [*COMMAND, *words], cwd=self.place.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def new(self, *words: str) -> tuple[int, str]:
        with self.start(HERE.parent, *words) as process:
            out, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out.decode()

    def run(self) -> tuple[int, str]:
        return self.new("run", "bench", "--no-dagster", "--json")

    def is_unlocked(self) -> bool:
        """Return whether a writer may begin, which matters for SQLite alone."""
        if self.state_url.startswith("postgresql"):
            return True
        with closing(sqlite3.connect(self.place.ledger, timeout=0)) as connection, suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            return True
        return False

    def entries(self) -> int:
        """Count the rows in the ledger of the earlier version."""
        try:
            with closing(sa.create_engine(self.state_url).connect()) as connection:
                return int(connection.execute(sa.text("SELECT count(*) FROM ledger_entry")).scalar_one())
        except sa.exc.DBAPIError:
            return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout of the earlier version")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    chosen = parser.parse_args()
    old = chosen.old.resolve()
    broken = 0
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        for kind, phase, signal in product(chosen.databases, ("staging", "publishing"), (SIGKILL, SIGTERM, SIGSTOP)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            service = stack.enter_context(server("--delay-ms", str(LATENCY_MS)))
            url = postgres.fresh_url() if kind == "postgresql" else f"sqlite:///{folder / 'state.db'}"
            trial = Trial(Worker(folder, service.url), service, url, old)
            trial.place.prepare(IN_FLIGHT)
            write_rows(trial.place.source, ROWS)
            found = upgraded(trial, phase, signal)
            broken += bool(found["broken"])
            print(json.dumps({"db": kind, "met": phase, "signal": signal.name, **found}), flush=True)
    return 1 if broken else 0


def upgraded(trial: Trial, phase: str, signal: Signals) -> dict[str, Any]:
    run = trial.start(trial.old, "run", "bench", "--no-dagster", "--json")
    is_there: Callable[[], bool] = (
        (lambda: trial.entries() > 0) if phase == "staging" else (lambda: trial.service.posts() >= PUBLISHED)
    )
    while run.poll() is None and not is_there():
        time.sleep(0.01)  # noqa: TID251  # waits for another process
    met = trial.entries(), trial.service.posts()
    refused, said = trial.run()
    run.send_signal(signal)
    if signal is not SIGSTOP:
        run.wait(PATIENCE_S)
    else:
        while not trial.is_unlocked():  # a file that a stopped process has locked stays locked
            run.send_signal(SIGCONT)
            time.sleep(0.01)  # noqa: TID251  # lets another process go on
            run.send_signal(SIGSTOP)
    began = time.monotonic()
    while (first := trial.new("status"))[0] == refused and time.monotonic() - began < PATIENCE_S:
        time.sleep(0.5)  # noqa: TID251  # waits for the lease
    waited_s = time.monotonic() - began
    sent_late = 0
    if signal is SIGSTOP:
        before = trial.service.posts()
        run.send_signal(SIGCONT)
        time.sleep(AFTER_S)  # noqa: TID251  # watches another process
        sent_late = trial.service.posts() - before
    code, words = trial.run()
    if run.poll() is None:
        run.kill()
    old_words = run.communicate()[0].decode()
    account = trial.service.account()
    names = ("posts", "events", "bodies", "contradicted")
    came = {name: account[name] for name in names}
    broken = [f"{name}: {came[name]}" for name in ("events", "bodies") if came[name] != ROWS]
    broken += [f"{came['contradicted']} keys with two bodies"] * bool(came["contradicted"])
    broken += [f"{sent_late} requests of the earlier run after the upgrade"] * bool(sent_late)
    broken += [f"run: {code} {words[-600:]}"] * (code != 0) + [f"status: {first}"] * (first[0] != 0)
    return {
        "entries, posts": met,
        "refused": refused,
        "said": said[:600],
        "waited_s": round(waited_s, 1),
        "old": (run.returncode, old_words[-300:]),
        **came,
        "broken": broken,
    }


if __name__ == "__main__":
    sys.exit(main())
