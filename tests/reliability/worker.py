"""The real worker in this process: `stage` and `publish` over a real state DB, against a service at an address.

Only its insistence is shorter than in production, so that a line of the matrix takes a second and not minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from connectors.retry import RetryPolicy
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.run.context import RunContext, open_context
from pipelines.run.feed_run import FeedRun, RunIdentity, RunResult
from pipelines.settings import Settings, read_settings
from state.ledger.standing import FeedScope, RowRecord
from state.queries import LedgerQueries, RowFilter

HASTY = RetryPolicy(attempts=5, budget_s=4.0, first_wait_s=0.02, longest_wait_s=0.2, attempt_s=0.35, at_work_s=0.35)


@dataclass
class Worker:
    """Runs the one feed of `folder`, as often as it is asked to."""

    folder: Path
    env: dict[str, str]
    runs: list[RunResult] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def run(self) -> RunResult:
        """Stage and publish once."""
        ticket = RunIdentity(f"reliability-{next(self._numbers)}", launched_by="the matrix")
        with self._workshop() as workshop:
            done = FeedRun(workshop, self.mapping, ticket).run()
        self.runs.append(done)
        return done

    def rows(self, which: RowFilter | None = None) -> list[RowRecord]:
        """Return the ledger's entries, or those among them that are asked for."""
        with self._workshop() as workshop:
            book = FeedScope(self.settings.destination, self.mapping.feed)
            return list(LedgerQueries(workshop.engine).every_row(book, which or RowFilter()))

    @property
    def mapping(self) -> FeedMapping:
        """The feed as its file says now."""
        return load_feed(self.settings.feeds / "town.yaml")

    @property
    def settings(self) -> Settings:
        """The settings of the commands that work in the same folder."""
        return read_settings(self.env, self.folder)

    @contextmanager
    def _workshop(self) -> Iterator[RunContext]:
        with open_context(self.settings, lambda _: None) as workshop:
            yield replace(workshop, retries=HASTY)
