"""Processes of their own that read a source into a state DB, and are killed with no word as soon as some rows are written.

Run as a program it reads jobs from its input, a line of JSON each, and forks for each of them, so that the modules are imported
once.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from contract.feeds_of_texts import EVENT
from contract.program import Program
from contract.source_kinds import in_no_time

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Access
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.spec.feed import FeedMapping
from mappings.spec.source import SourceSpec
from mappings.yaml.loader import parse_feed
from pipelines.run.options import Advance, RunOptions
from pipelines.run.stage import Staged, StageJob, plan_read, stage
from state.database import StateDb
from state.ledger.ledger import Ledger
from state.opening import open_database

DESTINATION = "https://events.example|account-1"
FEED = f"""\
feed: agenda
source: {{kind: csv, path: unused.csv}}
key: [ref]
event:
  channelId: 7
{EVENT}publish:
  brakes: {{rejected: off, shrink: off, new: off}}
"""


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # leases of two processes are told apart by the real time


@dataclass(frozen=True)
class SourceToRead:
    """Where rows stand, who we are there, and the state DB that they go into."""

    spec: SourceSpec
    base: Path
    access: Access
    state_url: str
    rules: str = ""
    """What the mapping file says besides."""

    @property
    def mapping(self) -> FeedMapping:
        return parse_feed(FEED + self.rules, self.base / "agenda.yaml").model_copy(update={"source": self.spec})

    def ledger(self, engine: StateDb) -> Ledger:
        return Ledger(engine, DESTINATION, self.mapping.feed, namespace="tests", now=now)

    def stage(self, engine: StateDb, run_id: str, advance: Advance, options: RunOptions | None = None) -> Staged:
        """Stage as a run does."""
        mapping, ledger, asked = self.mapping, self.ledger(engine), options or RunOptions()
        mapper = compile_feed(mapping, Directory(), now())
        plan = plan_read(mapping, mapper, "", now(), asked, ledger.bookmark())
        source = open_source(self.spec, self.base, mapper.columns, access=self.access, since=plan.since, clock=in_no_time())
        with ledger.acquire_lease(run_id) as lease:
            ledger.begin_run(run_id, launched_by="a test")
            return stage(StageJob(run_id, lease.token, mapping, source, mapper, ledger, asked, advance, plan))


@dataclass(frozen=True, slots=True)
class Killer:
    """The process that forks."""

    program: Program

    def kill(self, job: SourceToRead, folder: Path, environment: Mapping[str, str]) -> None:
        """Read in a process that is killed. `folder`: for the job and for what the process says."""
        (folder / "job").write_bytes(pickle.dumps(job))
        code = self.program.ask(folder=str(folder), env={**os.environ, **environment, "TMPDIR": tempfile.gettempdir()})
        assert code == -signal.SIGKILL, (folder / "said").read_text("utf-8")


def _serve() -> None:
    from contract import killed_read  # noqa: F401, PLC0415  # jobs are unpickled by this name

    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                _read_and_die(**json.loads(line))
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _read_and_die(folder: str, env: dict[str, str]) -> None:
    with Path(folder, "said").open("wb") as said:
        os.dup2(said.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(env)
    try:
        job = pickle.loads(Path(folder, "job").read_bytes())  # our own, from the test that asked
        job.stage(open_database(job.state_url), "killed", _die)
    except BaseException:
        traceback.print_exc()
        raise


def _die(_rows: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _serve()
