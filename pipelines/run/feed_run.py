"""One run of one feed: hold its lease, stage, check the brakes, publish, and record the outcome in every case."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import structlog
from structlog.contextvars import bound_contextvars

from connectors.event_api.contract_check import MOST_PAYLOADS
from connectors.event_api.media import ImageFetcher
from connectors.sources.catalogue import open_source
from connectors.sources.contract import BadSourceError, MissingColumnsError, SourceRefusedError, SourceUnavailableError
from connectors.sources.files.choice import take_snapshot
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import ConfigError, SyncError
from mappings.examples import run_examples
from mappings.lint.warnings import OPEN_ZONE, has_open_zone
from mappings.row_key import RowKey
from mappings.spec.feed import FeedMapping
from pipelines.run.backfill import narrow_to
from pipelines.run.brakes import brake_error, pass_the_gate
from pipelines.run.context import ListMemory, RunContext, ServiceLists, note_headers
from pipelines.run.images import CoverImages
from pipelines.run.options import Advance, RunOptions
from pipelines.run.outcome import (
    STAGED,
    BrakeError,
    ExitCode,
    RunOutcome,
    WrittenBack,
    faults_as_errors,
    outcome_of,
    outcome_of_standing,
    unsent_line,
    with_copies,
)
from pipelines.run.preflight import Preflight
from pipelines.run.publish import (
    GRACE_S,
    Drain,
    PublishReport,
    SystemicFailure,
    outcome_of_publish,
    patience_with,
    publish,
)
from pipelines.run.signals import InterruptedRunError, raise_if_stopped, signals_deferred, signals_raised
from pipelines.run.stage import Staged, StageJob, plan_read, stage
from pipelines.run.write_back import write_back_rows
from state.enums import EntryState
from state.errors import HeldByAnotherError, LeaseLostError, StateBusyError, StateUnavailableError
from state.ledger.accounts import PublishAccount
from state.ledger.lease import LeaseKeeper
from state.ledger.outbox import Outbox, open_outbox
from state.ledger.standing import FeedScope, Standing
from state.notes import MediaMemory, add_notices, put_pace
from state.queries import LedgerQueries, RowFilter

_MISSING = "keys that are not in the source"
_AGAIN = "run it again to continue"
_SAY_WHY_NOT_SENT = (BrakeError, HeldByAnotherError, LeaseLostError, StateUnavailableError, StateBusyError)
"""Errors whose own text says why rows wait, or after which the state DB cannot be asked."""
_SOURCE_ERRORS = (SourceUnavailableError, SourceRefusedError, BadSourceError, MissingColumnsError, ConfigError)
"""Errors of opening and reading a source."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The run's id in the state DB, its launcher, and its id in Dagster, if it has one."""

    run_id: str
    launched_by: str
    dagster_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Watcher:
    """Callbacks for progress: rows read, rows owed, rows settled."""

    read: Advance = field(default=lambda _rows: None)
    owed: Advance = field(default=lambda _rows: None)
    settled: Advance = field(default=lambda _rows: None)


@dataclass(frozen=True, slots=True)
class FeedRun:
    """A run of one feed with its options; the default ones are those of a scheduled run."""

    context: RunContext
    mapping: FeedMapping
    identity: RunIdentity
    options: RunOptions = field(default_factory=RunOptions)
    watcher: Watcher = Watcher()

    def run(self) -> RunOutcome:
        """Stage and publish as the options select; return the outcome. Every error becomes an outcome."""
        try:
            with faults_as_errors("at work", self.identity.run_id), self._lease() as lease:
                if not self.options.publish_only:
                    staged, outcome = self._stage(lease)
                    if staged.stopping or self.options.stage_only:
                        return outcome
                return self._publish(lease)[1]
        except (SyncError, KeyboardInterrupt) as left:
            return _outcome_of_leaving(left, "at work")

    def stage(self) -> Staged:
        """Read and map the rows, and record what is to be sent.

        Raises:
            SyncError: the source, the service's lists or the state DB fail.
        """
        with self._lease() as lease:
            return self._stage(lease)[0]

    def publish(self) -> PublishReport:
        """Send all owed rows.

        Raises:
            SyncError: a brake holds the feed, or the state DB fails.
        """
        with self._lease() as lease:
            return self._publish(lease)[0]

    def open_outbox(self, lease: LeaseKeeper) -> Outbox:
        """Open the outbox with the rows that this run sends under its options."""
        return open_outbox(
            self.context.ledger(self.mapping).fence(self.identity.run_id, lease.token),
            limit=self.options.limit,
            keys=[RowKey(key) for key in self.options.keys] or None,
            key_memory_s=self.mapping.publish.key_memory_s,
            row_parts=self.mapping.key_parts if self.mapping.is_expanding else None,
        )

    @contextmanager
    def _lease(self) -> Iterator[LeaseKeeper]:
        """Hold the lease of the feed during the block, with signals deferred.

        The record of the run starts under the lease, so that an unfinished record of another run, seen by the lease's holder, is
        a dead run's.
        """
        run_id = self.identity.run_id
        holder = f"run {run_id}, launched by {self.identity.launched_by}"
        with signals_deferred(), bound_contextvars(feed=self.mapping.feed, run_id=run_id), ExitStack() as stack:
            with self._closed_if_left("waiting for the feed"):
                lease = stack.enter_context(self.context.lease(self.mapping, holder, is_patient=self.options.wait))
            # Otherwise the garbage collector scans the whole program every few thousand rows (budgets 2, 4, 5).
            gc.freeze()
            stack.callback(gc.unfreeze)
            yield lease

    @contextmanager
    def _closed_if_left(self, doing: str, account: Callable[[], PublishAccount | None] = lambda: None) -> Iterator[None]:
        """Record the outcome if the block raises; if the state DB cannot record it, only the error is raised."""
        try:
            with faults_as_errors(doing, self.identity.run_id):
                yield
        except BaseException as left:
            try:
                if isinstance(left, SyncError):
                    self._name_unsent(left)
                self._begin()  # records the attempt, even if the lease was never held
                outcome = _outcome_of_leaving(left, doing)
                # After another run took the feed over, the counts are no longer ours.
                sent = None if isinstance(left, LeaseLostError) else account()
                if sent is not None:
                    outcome = with_copies(outcome, self._standing(self.identity.run_id), self.mapping)
                self._close(outcome, sent)
            except SyncError as problem:
                structlog.get_logger().warning("the outcome of the run could not be recorded", problem=str(problem))
            raise

    def _name_unsent(self, error: SyncError) -> None:
        """Add to an error's hint how many staged rows wait, and what sends them."""
        if isinstance(error, _SAY_WHY_NOT_SENT):
            return
        count, gate = self._count_unsent(), self.context.ledger(self.mapping).gate()
        if unsent := unsent_line(count, gate, self.mapping.feed):
            error.hint = "; ".join(filter(None, (error.hint, unsent)))

    def _count_unsent(self) -> int:
        scope = FeedScope(self.context.settings.destination, self.mapping.feed)
        return LedgerQueries(self.context.engine).count(scope, RowFilter(frozenset({EntryState.PENDING})))

    def _stage(self, lease: LeaseKeeper) -> tuple[Staged, RunOutcome]:
        published: PublishReport | None = None
        with self._closed_if_left("staging", lambda: published.account if published else None):
            self._begin_phase("staging")
            _refuse_open_zone(self.mapping)
            lists = self.context.lists(self.mapping)
            mapper = compile_feed(self.mapping, lists.directory, self.context.as_of or self.context.now())
            try:
                staged = stage(self._stage_job(lease, lists, mapper))
            except _SOURCE_ERRORS:  # which do not hold back what an open gate has let out
                published = self._publish(lease)[0] if self._may_send_unread() else None
                raise
            is_of_now = not self.options.window  # a slice of the past may have had other headers
            headers = note_headers(self.context.notes, self.mapping.feed, staged.headers) if is_of_now else []
            staged = replace(staged, notices=(*staged.notices, *headers))
            for notice in staged.notices:
                structlog.get_logger().info("how the source was read", notice=notice)
            self._add_notices([*staged.notices, *([f"{_MISSING}: {', '.join(staged.missing)}"] if staged.missing else [])])
            if staged.stopping or self.options.stage_only:
                self._write_back()
            outcome = self._unless_missing(self._outcome_of_stage(staged))
            self._close(outcome)
            return staged, outcome

    def _may_send_unread(self) -> bool:
        """Return whether rows wait that this run may send without a read."""
        options, gate = self.options, self.context.ledger(self.mapping).gate()
        is_plain = not options.stage_only and options.status is None and options.window is None
        return is_plain and gate.is_open and not gate.brakes and self._count_unsent() > 0

    def _stage_job(self, lease: LeaseKeeper, lists: ServiceLists, mapper: RowMapper) -> StageJob:
        """Open the source for the stage."""
        context, mapping, options = self.context, self.mapping, self.options
        change = ListMemory(context.notes).note(mapping, lists.classifications) if lists.classifications else ""
        self._warn([change] if change else [])
        failed, command = {failure.number for failure in run_examples(mapping)}, f"`eventsync check {mapping.feed}`"
        untrue = f"{len(failed)} of {len(mapping.examples)} examples fail: {command} shows them" if failed else ""
        notices = tuple(filter(None, (change, untrue)))
        ledger = context.ledger(mapping)
        plan = plan_read(mapping, mapper, lists.evidence, context.now(), options, ledger.bookmark())
        spec, folder = narrow_to(mapping, options.window, mapper).source, mapping.path.parent
        with signals_raised():
            access, since, moment = context.settings.access, plan.since, context.as_of or context.now()
            source = open_source(spec, folder, mapper.columns, access=access, since=since, folders=mapping.folders, now=moment)
        snapshot = partial(take_snapshot, mapping.source, folder, folders=mapping.folders) if context.leaves_traces else None
        run_id, advance, as_of = self.identity.run_id, self.watcher.read, context.as_of
        return StageJob(run_id, lease.token, mapping, source, mapper, ledger, options, advance, plan, notices, snapshot, as_of)

    def _publish(self, lease: LeaseKeeper) -> tuple[PublishReport, RunOutcome]:
        context, mapping, run_id = self.context, self.mapping, self.identity.run_id
        settings, policy = context.settings, mapping.publish
        outbox: Outbox | None = None

        def account() -> PublishAccount | None:
            try:
                return outbox.account() if outbox else None
            except SyncError:
                return None

        def open_covers() -> CoverImages:
            allows_private = settings.allow_private_images
            fetcher = ImageFetcher(sleep=asyncio.sleep, random=random.random, allows_private=allows_private)
            return CoverImages(fetcher, MediaMemory(context.engine, settings.destination), settings.namespace, context.now)

        def first_bodies() -> list[bytes]:
            scope, pending = FeedScope(settings.destination, mapping.feed), RowFilter(frozenset({EntryState.PENDING}))
            return [row.body for row in LedgerQueries(context.engine).rows(scope, pending, limit=MOST_PAYLOADS)]

        with self._closed_if_left("publishing", account):
            self._begin_phase("publishing")
            pass_the_gate(context.ledger(mapping), mapping, self.options, f"run {run_id}")
            outbox = self.open_outbox(lease)
            self.watcher.owed(outbox.owed)
            drain = Drain(
                outbox,
                policy.most_in_flight,
                GRACE_S,
                self.watcher.settled,
                assure=lease.assure,
                systemic=SystemicFailure(patience_with(outbox.owed, policy.brakes.rejected), outbox.owed),
                report=lambda sentence: context.report(f"{mapping.feed}: {sentence}"),
            )
            published = publish(
                drain, partial(context.api, mapping), open_covers, Preflight(context.notes, mapping, first_bodies)
            )
            if published.cause is not None:
                self._name_unsent(published.cause)
            self._warn([*published.outlook.notices, *published.surprises])
            published = replace(published, written_back=self._write_back())
            put_pace(context.engine, settings.destination, mapping.feed, run_id, published.pace)
            outcome = self._unless_missing(outcome_of_publish(published, mapping))
            self._close(outcome, published.account)
            return published, outcome

    def _outcome_of_stage(self, staged: Staged) -> RunOutcome:
        """Return the outcome of a stage: from its brakes and, if the run ends with it, from what waits for a person."""
        if staged.stopping:
            return outcome_of(brake_error(staged.stopping, self.mapping.feed))
        hint = f"`eventsync run {self.mapping.feed} --publish-only` sends what is staged"
        outcome = RunOutcome(STAGED, ExitCode.DONE, "nothing was sent yet", hint)
        return outcome_of_standing(self._standing(), self.mapping, outcome) if self.options.stage_only else outcome

    def _standing(self, run_id: str | None = None) -> Standing:
        return self.context.ledger(self.mapping).standing(self.mapping.publish.key_memory_s, run_id)

    def _unless_missing(self, outcome: RunOutcome) -> RunOutcome:
        """Return the outcome, or `needs attention` if the source lacks row keys that the run was asked for.

        They are read from the run's record, because another process may have staged.
        """
        if not self.options.keys or outcome.exit_code is not ExitCode.DONE:
            return outcome
        page = LedgerQueries(self.context.engine).run(self.context.settings.destination, self.mapping.feed, self.identity.run_id)
        missing = [notice for notice in page.notices if notice.startswith(_MISSING)] if page else []
        hint = "copy row keys from `eventsync rows` or `eventsync preview`"
        return RunOutcome("needs attention", ExitCode.ATTENTION, missing[-1], hint) if missing else outcome

    def _write_back(self) -> WrittenBack:
        """Write the status of each row into the feed's sheet, if its mapping asks for it; a problem becomes a notice."""
        context = self.context
        queries = LedgerQueries(context.engine, context.now)
        written = write_back_rows(self.mapping, context.settings, queries) if context.leaves_traces else None
        if written is None:
            return WrittenBack()
        structlog.get_logger().info("written back", cells=written.cells, problem=written.problem)
        self._add_notices([written.notice] if written.problem else [])
        return written

    def _warn(self, notices: Collection[str]) -> None:
        """Log notices about the service, and add them to the run's record."""
        for sentence in notices:
            structlog.get_logger().warning("the service has changed", notice=sentence)
        self._add_notices(notices)

    def _add_notices(self, notices: Collection[str]) -> None:
        """Add notices to the run's record, each once."""
        if notices:
            add_notices(
                self.context.engine, self.context.settings.destination, self.mapping.feed, self.identity.run_id, tuple(notices)
            )

    def _begin_phase(self, name: str) -> None:
        """Begin a phase, unless a signal has asked to stop."""
        with signals_raised():
            raise_if_stopped()
        structlog.get_logger().info("phase begins", phase=name, launched_by=self.identity.launched_by)
        self._begin()

    def _begin(self) -> None:
        self.context.ledger(self.mapping).begin_run(
            self.identity.run_id, launched_by=self.identity.launched_by, dagster_run_id=self.identity.dagster_run_id
        )

    def _close(self, outcome: RunOutcome, account: PublishAccount | None = None) -> None:
        counts: Mapping[str, int] = asdict(account) if account else {}
        exit_code = int(outcome.exit_code)
        structlog.get_logger().info("phase ended", outcome=outcome.name, exit_code=exit_code, message=outcome.message, **counts)
        self.context.ledger(self.mapping).finish_run(
            self.identity.run_id,
            outcome=outcome.name,
            exit_code=exit_code,
            message=outcome.text,
            publish_account=account,
            standing=self._standing(),
        )


def _refuse_open_zone(mapping: FeedMapping) -> None:
    """Refuse a draft in which the zone is not filled in: its local times would be sent as UTC.

    Raises:
        ConfigError: the placeholder still stands.
    """
    if has_open_zone(mapping.let):
        hint = f"in the mapping file, write the partner's zone, such as Europe/Lisbon; if it is UTC, rename {OPEN_ZONE} to zone"
        raise ConfigError(
            f"the zone of the times is still open: {OPEN_ZONE} is UTC", hint=f"{hint}, also where ${OPEN_ZONE} is used"
        )


def _outcome_of_leaving(left: BaseException, doing: str) -> RunOutcome:
    if isinstance(left, SyncError):
        return outcome_of(left)
    return outcome_of(InterruptedRunError(f"interrupted while {doing}", hint=_AGAIN))
