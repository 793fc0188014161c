"""One run of one feed: hold its lease, stage, check the brakes, publish, and record how it ended, in every case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace

import structlog
from structlog.contextvars import bound_contextvars

from mappings.errors import SyncError
from mappings.spec.feed import FeedMapping
from pipelines.run.brakes import brake_error, pass_the_gate, raise_if_braked
from pipelines.run.context import LeaseKeeper, RunContext
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode, Outcome, faults_as_errors, outcome_of
from pipelines.run.publish import Advance, PublishJob, PublishReport, publish
from pipelines.run.signals import InterruptedRunError, signals_deferred, signals_raised
from pipelines.run.stage import Staged, stage
from pipelines.run.standing import outcome_of_publish, outcome_of_standing
from pipelines.run.write_back import WrittenBack, write_back_rows
from pipelines.telemetry.tracing import Work
from state.holders import LeaseLostError
from state.ledger.accounts import PublishAccount
from state.ledger.standing import Standing
from state.notes import put_pace
from state.queries import LedgerQueries

DONE = Outcome("done", ExitCode.DONE)
_MISSING = "keys that are not in the source"


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The run's id in the state DB, who launched it, and its id in Dagster where it has one."""

    run_id: str
    launched_by: str
    dagster_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks for progress: rows read, rows owed, rows settled."""

    read: Advance = field(default=lambda _rows: None)
    owed: Advance = field(default=lambda _rows: None)
    settled: Advance = field(default=lambda _rows: None)


SCHEDULED = RunOptions()
"""The options of a scheduled run."""
SILENT = Watcher()


@dataclass(frozen=True, slots=True)
class RunResult:
    """How one run of one feed ended, for tables and for `--json`."""

    feed: str
    run_id: str
    outcome: Outcome
    staged: Staged | None = None
    published: PublishReport | None = None


@dataclass(frozen=True, slots=True)
class FeedRun:
    """A run of a feed, with the options that a person gave it."""

    context: RunContext
    mapping: FeedMapping
    ticket: RunIdentity
    options: RunOptions = SCHEDULED
    watcher: Watcher = SILENT

    def run(self) -> RunResult:
        """Stage and publish as the options say, under one lease; every failure becomes the outcome, none is raised."""
        staged: Staged | None = None
        published: PublishReport | None = None
        outcome = DONE
        try:
            with faults_as_errors(lambda: "at work", self.ticket.run_id), self._held() as lease:
                if not self.options.publish_only:
                    staged = self._stage(lease)
                    raise_if_braked(staged.stopping, self.mapping.feed)
                    outcome = self._outcome_of_stage(staged)
                if not self.options.stage_only:
                    published = self._publish(lease)
                    outcome = outcome_of_publish(published, self.mapping)
        except SyncError as error:
            outcome = outcome_of(error)
        except KeyboardInterrupt as interrupt:
            outcome = _outcome_of_leaving(interrupt, "at work")
        return RunResult(self.mapping.feed, self.ticket.run_id, outcome, staged, published)

    def stage(self) -> Staged:
        """Read, map and record what is to be sent.

        Raises:
            SyncError: as the source, the service's lists or the state DB fail.
        """
        with self._held() as lease:
            return self._stage(lease)

    def publish(self) -> PublishReport:
        """Send what is owed.

        Raises:
            SyncError: a brake holds the feed, or the state DB fails.
        """
        with self._held() as lease:
            return self._publish(lease)

    @contextmanager
    def _held(self) -> Iterator[LeaseKeeper]:
        """Hold the feed's lease, with signals deferred.

        The run's page begins under the lease: an open page of another run, seen by who holds the feed, is a dead run's.
        """
        run_id = self.ticket.run_id
        work = Work(self.mapping.feed, run_id, self.ticket.launched_by)
        holder = f"run {run_id}, launched by {work.launched_by}"
        with (
            signals_deferred(),
            bound_contextvars(feed=work.feed, run_id=run_id),
            self.context.telemetry.run(work),
            ExitStack() as stack,
        ):
            with self._closed_if_left("waiting for the feed"):
                lease = stack.enter_context(self.context.lease(self.mapping, holder, is_patient=self.options.wait))
            yield lease

    @contextmanager
    def _closed_if_left(self, doing: str, account: Callable[[], PublishAccount | None] = lambda: None) -> Iterator[None]:
        """Write down why the block was left; where the state DB takes no more, the error itself is what is reported."""
        try:
            with faults_as_errors(lambda: doing, self.ticket.run_id):
                yield
        except BaseException as left:
            try:
                self._begin()  # where the feed was never held, so that the attempt is recorded
                # After another run took the feed over, the numbers are no longer ours.
                self._close(_outcome_of_leaving(left, doing), None if isinstance(left, LeaseLostError) else account())
            except SyncError as problem:
                structlog.get_logger().warning("the end of the run could not be written down", problem=str(problem))
            raise

    def _stage(self, lease: LeaseKeeper) -> Staged:
        with self.context.telemetry.phase("stage"), self._closed_if_left("staging"):
            self._begin_phase("staging")
            read = self.context.telemetry.reading(self.watcher.read)
            with signals_raised():
                job = self.context.stage_job(self.mapping, self.ticket.run_id, lease, self.options, read)
                staged = stage(job)
            self.context.telemetry.counted(asdict(staged.report.account))
            of_reading = [notice for notice in staged.notices if notice not in job.notices]
            for notice in of_reading:
                structlog.get_logger().info("how the source was read", notice=notice)
            self.context.add_notices(self.mapping, self.ticket.run_id, of_reading)
            if staged.missing:
                self.context.add_notices(self.mapping, self.ticket.run_id, [f"{_MISSING}: {', '.join(staged.missing)}"])
            if staged.stopping or self.options.stage_only:
                self._write_back()
            self._close(self._unless_missing(self._outcome_of_stage(staged)))
            return staged

    def _publish(self, lease: LeaseKeeper) -> PublishReport:
        job: PublishJob | None = None
        with self.context.telemetry.phase("publish"), self._closed_if_left("publishing", lambda: _account_of(job)):
            self._begin_phase("publishing")
            pass_the_gate(self.context.ledger(self.mapping), self.mapping, self.options, f"run {self.ticket.run_id}")
            settled = self.context.telemetry.settling(self.watcher.settled)
            job = self.context.publish_job(self.mapping, self.ticket.run_id, lease, self.options, settled)
            self.watcher.owed(job.outbox.owed)
            published = replace(publish(job), written_back=self._write_back())
            self.context.notice(self.mapping, self.ticket.run_id, published.outlook.notices)
            settings = self.context.settings
            put_pace(self.context.engine, settings.destination, self.mapping.feed, self.ticket.run_id, published.pace)
            self._close(self._unless_missing(outcome_of_publish(published, self.mapping)), published.account)
            return published

    def _outcome_of_stage(self, staged: Staged) -> Outcome:
        """Return the outcome of a stage: by its brakes and, where the run ends with it, by what waits for a person."""
        if staged.stopping:
            return outcome_of(brake_error(staged.stopping, self.mapping.feed))
        hint = f"`eventsync run {self.mapping.feed} --publish-only` sends what is staged"
        outcome = Outcome("staged", ExitCode.DONE, "nothing was sent yet", hint)
        return outcome_of_standing(self._standing(), self.mapping, outcome) if self.options.stage_only else outcome

    def _standing(self) -> Standing:
        return self.context.ledger(self.mapping).standing(self.mapping.publish.key_memory_s)

    def _unless_missing(self, outcome: Outcome) -> Outcome:
        """Return the outcome, or `needs attention` where the run was asked for keys that the source does not have.

        The run's page knows them, also where another process staged.
        """
        if not self.options.keys or outcome.exit_code is not ExitCode.DONE:
            return outcome
        page = LedgerQueries(self.context.engine).run(self.context.settings.destination, self.mapping.feed, self.ticket.run_id)
        missing = [notice for notice in page.notices if notice.startswith(_MISSING)] if page else []
        hint = "row keys are spelt as `eventsync rows` and `eventsync preview` show them"
        return Outcome("needs attention", ExitCode.ATTENTION, missing[-1], hint) if missing else outcome

    def _write_back(self) -> WrittenBack:
        """Write into the feed's sheet what became of its rows, if its owner asks for it; a problem becomes a notice."""
        context = self.context
        books = LedgerQueries(context.engine, context.now)
        written = write_back_rows(self.mapping, context.settings, books) if context.leaves_traces else None
        if written is None:
            return WrittenBack()
        structlog.get_logger().info("written back", cells=written.cells, problem=written.problem)
        context.add_notices(self.mapping, self.ticket.run_id, [written.notice] if written.problem else [])
        return written

    def _begin_phase(self, name: str) -> None:
        """Begin a phase, or leave before it where a signal has come."""
        with signals_raised():
            structlog.get_logger().info("phase begins", phase=name, launched_by=self.ticket.launched_by)
        self._begin()

    def _begin(self) -> None:
        self.context.ledger(self.mapping).begin_run(
            self.ticket.run_id, launched_by=self.ticket.launched_by, dagster_run_id=self.ticket.dagster_run_id
        )

    def _close(self, outcome: Outcome, account: PublishAccount | None = None) -> None:
        counts = asdict(account) if account else {}
        log = structlog.get_logger()
        self.context.telemetry.ended(outcome.name, int(outcome.exit_code))
        self.context.telemetry.counted(counts)
        log.info("phase ended", outcome=outcome.name, exit_code=int(outcome.exit_code), message=outcome.message, **counts)
        self.context.ledger(self.mapping).finish_run(
            self.ticket.run_id,
            outcome=outcome.name,
            exit_code=int(outcome.exit_code),
            message=outcome.told,
            publish_account=account,
            standing=self._standing(),
        )


def _account_of(job: PublishJob | None) -> PublishAccount | None:
    """Return what was settled, as far as it can be read."""
    try:
        return job.outbox.account() if job else None
    except SyncError:
        return None


def _outcome_of_leaving(left: BaseException, doing: str) -> Outcome:
    if isinstance(left, SyncError):
        return outcome_of(left)
    return outcome_of(InterruptedRunError(f"interrupted while {doing}", hint="run again to go on"))
