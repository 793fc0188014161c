"""One run of one feed, phase by phase, with its lease and its page in the books; Dagster's assets and the command line share it.

What a phase does is `sync`'s; which real things it does it with is `wiring`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

import structlog
from structlog.contextvars import bound_contextvars

from mappings.errors import SyncError
from mappings.spec.feed import FeedMapping
from pipelines.garbage import seldom_looked_for
from pipelines.run.brakes import brake_error, pass_the_gate, raise_if_braked
from pipelines.run.context import Workshop
from pipelines.run.drain import Advance
from pipelines.run.lease import Hold
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode, Outcome, faults_as_errors, outcome_of
from pipelines.run.publish import Published, publish
from pipelines.run.sending import PublishJob
from pipelines.run.signals import InterruptedRunError, deferred, window
from pipelines.run.stage import Staged, stage
from pipelines.run.standing import outcome_of_publish, outcome_of_standing
from pipelines.run.write_back import mark_rows
from pipelines.telemetry.tracing import Telemetry, Work
from state.ledger.accounts import PublishAccount
from state.ledger.lease import LeaseLostError
from state.ledger.standing import Standing
from state.notes import put_pace
from state.views.books import Books

DONE = Outcome("done", ExitCode.DONE)
_MISSING = "keys that are not in the source"


@dataclass(frozen=True, slots=True)
class RunTicket:
    """Which run this is: its id in the books, who launched it, and its id in Dagster where it has one."""

    run_id: str
    launched_by: str
    dagster_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Watcher:
    """What the phases tell while they work: rows read, rows owed, rows settled. Silent by default."""

    read: Advance = field(default=lambda _rows: None)
    owed: Advance = field(default=lambda _rows: None)
    settled: Advance = field(default=lambda _rows: None)


SCHEDULED = RunOptions()
"""What a scheduled run is asked for: nothing in particular."""
SILENT = Watcher()


@dataclass(frozen=True, slots=True)
class FeedRun:
    """How one run of one feed went, for tables and for `--json`."""

    feed: str
    run_id: str
    outcome: Outcome
    staged: Staged | None = None
    published: Published | None = None


@dataclass(frozen=True, slots=True)
class _Grip:
    """The feed, held, and what was done with it so far, for people."""

    hold: Hold
    doing: list[str]


@dataclass(frozen=True, slots=True)
class FeedAtWork:
    """A feed, the run that works on it, and what a person asked of that run."""

    workshop: Workshop
    mapping: FeedMapping
    ticket: RunTicket
    options: RunOptions = SCHEDULED
    watcher: Watcher = SILENT

    def run(self) -> FeedRun:
        """Stage and publish as the options say, under one lease; every failure becomes the outcome, none is raised."""
        staged: Staged | None = None
        published: Published | None = None
        outcome = DONE
        try:
            with faults_as_errors(lambda: "at work", self.ticket.run_id), deferred(), self._held() as grip:
                if not self.options.publish_only:
                    staged = self._stage(grip)
                    raise_if_braked(staged.stopping, self.mapping.feed)
                    outcome = self._outcome_of_stage(staged)
                if not self.options.stage_only:
                    published = self._publish(grip)
                    outcome = outcome_of_publish(published, self.mapping)
        except SyncError as error:
            outcome = outcome_of(error)
        except KeyboardInterrupt as left:
            outcome = _why_left(left, "at work")
        return FeedRun(self.mapping.feed, self.ticket.run_id, outcome, staged, published)

    def stage(self) -> Staged:
        """Read, map and record what is to be said. COMMIT POINT 1 is inside.

        Raises:
            SyncError: as the source, the service's lists or the state DB fail.
        """
        with deferred(), self._held() as grip:
            return self._stage(grip)

    def publish(self) -> Published:
        """Send what is owed. COMMIT POINT 2 is inside.

        Raises:
            SyncError: a brake holds the feed, or the state DB fails.
        """
        with deferred(), self._held() as grip:
            return self._publish(grip)

    def _stage(self, grip: _Grip) -> Staged:
        with self._phase("stage"):
            return self._staged(grip)

    def _publish(self, grip: _Grip) -> Published:
        with self._phase("publish"):
            return self._published(grip)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        with self._telemetry.phase(name):
            try:
                yield
            except SyncError as error:
                outcome = outcome_of(error)
                self._telemetry.ended(outcome.name, int(outcome.exit_code))
                raise

    @property
    def _telemetry(self) -> Telemetry:
        return self.workshop.telemetry

    def _staged(self, grip: _Grip) -> Staged:
        self._begin_phase(grip, "staging")
        read = self._telemetry.reading(self.watcher.read)
        job = self.workshop.stage_job(self.mapping, self.ticket.run_id, grip.hold, self.options, read)
        staged = stage(job)
        self._telemetry.counted(asdict(staged.report.account))
        of_reading = [notice for notice in staged.notices if notice not in job.notices]
        self.workshop.tell_of_reading(self.mapping, self.ticket.run_id, of_reading)
        if staged.missing:
            told = f"{_MISSING}: {', '.join(staged.missing)}"
            self.workshop.put_down(self.mapping, self.ticket.run_id, [told])
        if staged.stopping or self.options.stage_only:
            mark_rows(self.workshop, self.mapping, self.ticket.run_id)
        self._close(self._unless_missing(self._outcome_of_stage(staged)))
        return staged

    def _published(self, grip: _Grip) -> Published:
        self._begin_phase(grip, "publishing")
        pass_the_gate(self.workshop.ledger(self.mapping), self.mapping, self.options, f"run {self.ticket.run_id}")
        settled = self._telemetry.settling(self.watcher.settled)
        job = self.workshop.publish_job(self.mapping, self.ticket.run_id, grip.hold, self.options, settled)
        self.watcher.owed(job.outbox.owed)
        published = self._drained(job)
        self.workshop.notice(self.mapping, self.ticket.run_id, published.outlook.notices)
        put_pace(self.workshop.engine, self.workshop.settings.destination, self.mapping.feed, self.ticket.run_id, published.pace)
        self._close(self._unless_missing(outcome_of_publish(published, self.mapping)), published.account)
        return published

    def _outcome_of_stage(self, staged: Staged) -> Outcome:
        """Judge a stage: by its brakes, and where the run ends with it also by what waits for a person."""
        if staged.stopping:
            return outcome_of(brake_error(staged.stopping, self.mapping.feed))
        hint = f"`eventsync run {self.mapping.feed} --publish-only` sends what is staged"
        outcome = Outcome("staged", ExitCode.DONE, "nothing was sent yet", hint)
        return outcome_of_standing(self._standing(), self.mapping, outcome) if self.options.stage_only else outcome

    def _standing(self) -> Standing:
        return self.workshop.ledger(self.mapping).standing(self.mapping.publish.key_memory_s)

    def _unless_missing(self, outcome: Outcome) -> Outcome:
        """Return the outcome, or that somebody has to look, where the run was asked for keys that the source does not have.

        The page of the run knows, also where another process staged.
        """
        if not self.options.keys or outcome.exit_code is not ExitCode.DONE:
            return outcome
        page = Books(self.workshop.engine).run(self.workshop.settings.destination, self.mapping.feed, self.ticket.run_id)
        told = [notice for notice in page.notices if notice.startswith(_MISSING)] if page else []
        hint = "row keys are spelt as `eventsync rows` and `eventsync preview` show them"
        return Outcome("needs attention", ExitCode.ATTENTION, told[-1], hint) if told else outcome

    def _drained(self, job: PublishJob) -> Published:
        """Drain the outbox and tell the source; where Dagster interrupts, what was settled until then still enters the books."""
        try:
            with faults_as_errors(lambda: "publishing", self.ticket.run_id):
                return replace(publish(job), written_back=mark_rows(self.workshop, self.mapping, self.ticket.run_id))
        except LeaseLostError:
            raise  # the other run writes by now: what is ours of the numbers cannot be told
        except BaseException as left:
            self._close_left(left, "publishing", _account_of(job))
            raise

    @contextmanager
    def _held(self) -> Iterator[_Grip]:
        """Hold the feed's lease and keep the run's page in the books, whatever ends the block.

        The page begins under the lease: an open page of another run, seen by whoever holds the feed, is a dead run's.
        """
        doing = ["waiting for the feed"]
        work = Work(self.mapping.feed, self.ticket.run_id, self.ticket.launched_by)
        with bound_contextvars(feed=work.feed, run_id=work.run_id), self._telemetry.run(work), seldom_looked_for():
            try:
                holder = f"run {self.ticket.run_id}, launched by {self.ticket.launched_by}"
                lease = self.workshop.lease(self.mapping, holder, is_patient=self.options.wait)
                with faults_as_errors(lambda: doing[-1], self.ticket.run_id), lease as hold:
                    yield _Grip(hold, doing)
            except BaseException as left:
                self._close_left(left, doing[-1])
                raise

    def _begin_phase(self, grip: _Grip, name: str) -> None:
        """Begin a phase, or leave before it where somebody has asked to stop."""
        with window():
            structlog.get_logger().info("phase begins", phase=name, launched_by=self.ticket.launched_by)
        grip.doing.append(name)
        self._begin()

    def _begin(self) -> None:
        self.workshop.ledger(self.mapping).begin_run(
            self.ticket.run_id, launched_by=self.ticket.launched_by, dagster_run_id=self.ticket.dagster_run_id
        )

    def _close_left(self, left: BaseException, phase: str, account: PublishAccount | None = None) -> None:
        """Write down why a phase was left; where the books take no more words, the cause itself is what is told."""
        try:
            self._begin()  # where the feed was never held, so that the books tell of the attempt
            self._close(_why_left(left, phase), account)
        except SyncError as problem:
            structlog.get_logger().warning("the end of the run could not be written down", problem=str(problem))

    def _close(self, outcome: Outcome, account: PublishAccount | None = None) -> None:
        counts = asdict(account) if account else {}
        log = structlog.get_logger()
        self._telemetry.ended(outcome.name, int(outcome.exit_code))
        self._telemetry.counted(counts)
        log.info("phase ended", outcome=outcome.name, exit_code=int(outcome.exit_code), message=outcome.message, **counts)
        self.workshop.ledger(self.mapping).finish_run(
            self.ticket.run_id,
            outcome=outcome.name,
            exit_code=int(outcome.exit_code),
            message=outcome.told,
            publish_account=account,
            standing=self._standing(),
        )


def _account_of(job: PublishJob) -> PublishAccount | None:
    """What was settled, unless requests are still under way in a thread that has not ended in time."""
    try:
        return job.outbox.account()
    except SyncError:
        return None


def _why_left(left: BaseException, phase: str) -> Outcome:
    if isinstance(left, SyncError):
        return outcome_of(left)
    return outcome_of(InterruptedRunError(f"interrupted while {phase}", hint="run again to go on"))
