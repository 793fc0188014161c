"""One slice of a backfill as one run: by the engine alone, on a webserver that is there, or as Dagster's job in this process.

Which slices there are, and what their ends mean, is `slices`'.
"""

from __future__ import annotations

from dataclasses import dataclass

from mappings.spec.feed import FeedMapping
from pipelines.cli.output import Output
from pipelines.cli.run_report import RunReport, report_of
from pipelines.cli.running import Request, runner_of, watcher_of
from pipelines.clock import new_run_id, now
from pipelines.run.backfill import BACKFILL
from pipelines.run.context import open_context
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.run.options import RunOptions
from pipelines.settings import Settings


@dataclass(frozen=True, slots=True)
class SliceRuns:
    """How the slices of one feed are run, for whoever watches at `output`."""

    settings: Settings
    mapping: FeedMapping
    output: Output
    uses_dagster: bool

    def run(self, options: RunOptions, title: str) -> RunReport:
        """Run one slice to its end; how it ended is in the report, an interruption too."""
        return self._in_dagster(options) if self.uses_dagster else self._by_engine(options, title)

    def _by_engine(self, options: RunOptions, title: str) -> RunReport:
        with self.output.progress(title) as bar, open_context(self.settings, self.output.aside) as workshop:
            ticket = RunIdentity(new_run_id(now()), BACKFILL)
            result = FeedRun(workshop, self.mapping, ticket, options, watcher_of(bar)).run()
            return report_of(workshop, self.mapping, ticket.run_id, result.outcome)

    def _in_dagster(self, options: RunOptions) -> RunReport:
        words = (str(self.mapping.feed),)
        request = Request(
            words, options, is_all=False, is_dry=False, uses_dagster=True, as_json=self.output.is_json, launched_by=BACKFILL
        )
        (report,) = runner_of(request, self.settings, self.output)([self.mapping])
        return report
