"""What one run needs, made from the settings and the open state DB: ledger, lease, client, source and mapper of a feed."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from types import TracebackType
from typing import Protocol, Self

import structlog

from connectors.event_api.client import EventApi
from connectors.event_api.media import ImageFetcher, ImageLimits
from connectors.event_api.transport import Passage
from connectors.retry import RetryPolicy
from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from connectors.sources.files.choice import take_snapshot
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.compiler.rows import is_expanding
from mappings.errors import SyncError
from mappings.row_key import RowKey
from mappings.spec.feed import FeedMapping
from pipelines.clock import monotonic_s, now
from pipelines.run.backfill import PATIENCE_S, comes_between, say_waiting, within
from pipelines.run.images import CoverImages
from pipelines.run.options import RunOptions
from pipelines.run.publish import Advance, InFlight, OnLoss, PublishJob
from pipelines.run.service import ListMemory, ServiceLists, ask_lists, open_api, sharing_over
from pipelines.run.signals import run_async, signals_deferred, signals_raised
from pipelines.run.stage import ChangeProbe, ReadInputs, StageJob, plan_read
from pipelines.run.systemic_failure import Preflight, SystemicFailure, patience_with
from pipelines.settings import Settings
from pipelines.telemetry.tracing import NO_TELEMETRY, Telemetry, Wanted, wanted_of
from state.database import StateDb, open_database
from state.holders import HeldByAnotherError, LeaseLostError, seconds_since_boot
from state.ledger.lease import LEASE_TTL_S, Lease
from state.ledger.ledger import Ledger
from state.notes import MediaMemory, ServiceNotes, add_notices

HEARTBEAT_S = LEASE_TTL_S / 6
"""How often the lease is renewed, so that several attempts may fail before it expires."""
FRESH_S = LEASE_TTL_S / 4
"""How long after a renewal a request may leave without another one. A process that was stopped for longer asks first."""
_LAST_BEAT_S = 0.5
"""How long leaving waits for a heartbeat that is under way."""


class Renewable(Protocol):
    """A lease with its fencing token."""

    @property
    def token(self) -> int:
        """The fencing token."""
        ...

    def renew(self) -> None:
        """Extend the lease; raises `LeaseLostError`."""
        ...

    def release(self) -> None:
        """Give the lease up."""
        ...


class LeaseKeeper:
    """One lease, renewed by a thread every `beat_s` seconds for the length of a `with` block, which ends by releasing it.

    `clock_s` must go on while the process is stopped and the machine sleeps. A renewal that fails because the state DB
    is busy is tried again with the next beat; only another run's takeover loses the lease.
    """

    def __init__(self, lease: Renewable, clock_s: Callable[[], float], *, beat_s: float = HEARTBEAT_S) -> None:
        self._lease = lease
        self._clock_s = clock_s
        self._beat_s = beat_s
        self._renewed_at = clock_s()
        self._lost: LeaseLostError | None = None
        self._tell: OnLoss = lambda _lost: None
        self._over = threading.Event()
        self._asking = asyncio.Lock()
        begin = copy_context().run  # what is logged there names the same run and feed
        self._thread = threading.Thread(target=begin, args=(self._beat,), name="eventsync-heartbeat", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token that each transaction shows."""
        return self._lease.token

    def on_loss(self, tell: OnLoss) -> None:
        """Have `tell` called, in the heartbeat's thread, as soon as another run is known to have the feed."""
        self._tell = tell
        if self._lost is not None:
            tell(self._lost)

    async def assure(self) -> None:
        """Return if the lease was renewed a moment ago; after a longer time renew it first.

        Raises:
            LeaseLostError: another run has the feed; nothing may be sent any more.
            SyncError: the state DB cannot be asked, so that nothing may be sent either.
        """
        if self.is_fresh():
            return
        async with self._asking:
            if not self.is_fresh():
                await asyncio.to_thread(self._renew)

    def __enter__(self) -> Self:
        """Start the heartbeat."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the heartbeat and release the lease. One that cannot be released expires, or is taken from a dead process."""
        self._over.set()
        self._thread.join(_LAST_BEAT_S)
        try:
            self._lease.release()
        except SyncError as problem:
            structlog.get_logger().warning("the lease could not be released", problem=str(problem))

    def is_fresh(self) -> bool:
        """Whether the lease was renewed a moment ago."""
        return self._clock_s() - self._renewed_at <= FRESH_S

    def _renew(self) -> None:
        """Renew; the time of the request counts, not that of the answer."""
        if self._lost is not None:
            raise self._lost
        asked_at = self._clock_s()
        self._lease.renew()
        self._renewed_at = asked_at

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                self._renew()
            except LeaseLostError as lost:
                self._lose(lost)
                return
            except SyncError as problem:
                structlog.get_logger().warning("the lease could not be renewed; it is tried again", problem=str(problem))

    def _lose(self, lost: LeaseLostError) -> None:
        if not self._over.is_set():
            self._lost = lost
            self._tell(lost)


Tell = Callable[[str], None]


def _log(sentence: str) -> None:
    structlog.get_logger().info("told", sentence=sentence)


@dataclass(frozen=True, slots=True)
class RunContext:
    """The settings, the open state DB and the clock; `tell` prints a sentence for the person who watches the run.

    `leaves_traces`: rows are written back into sheets, and snapshots of sources are kept; a dry run leaves nothing behind.
    """

    settings: Settings
    engine: StateDb
    tell: Tell = _log
    retries: RetryPolicy | None = None
    leaves_traces: bool = False
    telemetry: Telemetry = NO_TELEMETRY
    now: Callable[[], datetime] = now

    def ledger(self, mapping: FeedMapping) -> Ledger:
        """Return the ledger of one feed at the configured destination."""
        return Ledger(self.engine, self.settings.destination, mapping.feed, namespace=self.settings.namespace, now=self.now)

    @contextmanager
    def lease(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Iterator[LeaseKeeper]:
        """Hold the feed's lease, with signals deferred; if `is_patient`, wait for the end of another run.

        Raises:
            HeldByAnotherError: another run holds it, and `is_patient` is false.
        """
        with signals_deferred(), LeaseKeeper(self._acquired(mapping, holder, is_patient=is_patient), seconds_since_boot) as lease:
            yield lease

    def stage_job(self, mapping: FeedMapping, run_id: str, lease: LeaseKeeper, options: RunOptions, advance: Advance) -> StageJob:
        """Prepare a stage: ask the service for its lists, compile the mapping, find the source.

        Raises:
            SyncError: the service refuses us or cannot be reached, or the mapping names what it does not know.
        """
        mapper, lists = self._compiled(mapping)
        change = None if lists.classifications is None else ListMemory(self.notes).note(mapping, lists.classifications)
        notices = () if change is None else (str(change),)
        self.notice(mapping, run_id, notices)
        ledger = self.ledger(mapping)
        known = ReadInputs(mapping, mapper, lists.evidence, self.now())
        plan = plan_read(known, options, ledger.bookmark())
        source = self.source(within(mapping, options.window, mapper), mapper, since=plan.since)
        snapshot = partial(take_snapshot, mapping.source, mapping.path.parent)
        probe = ChangeProbe(snapshot, known.fit_today, known.began) if self.leaves_traces else None
        return StageJob(run_id, lease.token, mapping, source, mapper, ledger, options, advance, notices, plan, probe)

    def publish_job(
        self, mapping: FeedMapping, run_id: str, lease: LeaseKeeper, options: RunOptions, advance: Advance
    ) -> PublishJob:
        """Prepare a drain: open the outbox; the client is opened when the drain begins."""
        outbox = self.ledger(mapping).open_outbox(
            run_id,
            lease.token,
            limit=options.limit,
            keys=[RowKey(key) for key in options.keys] or None,
            key_memory_s=mapping.publish.key_memory_s,
            row_parts=len(mapping.key_columns) if is_expanding(mapping.rows) else None,
        )
        requests = InFlight(lease.assure)
        return PublishJob(
            outbox=outbox,
            open_api=lambda: self.api(mapping, requests),
            open_covers=lambda: self.covers(mapping),
            requests=requests,
            on_loss=lease.on_loss,
            tell=lambda sentence: self.tell(f"{mapping.feed}: {sentence}"),
            is_traced=self.telemetry.seen is not None,
            in_flight=mapping.publish.most_in_flight,
            advance=advance,
            clock_s=monotonic_s,
            preflight=Preflight(self.notes, mapping),
            systemic=SystemicFailure(patience_with(outbox.owed, mapping.publish.brakes.rejected)),
        )

    def api(self, mapping: FeedMapping, passage: Passage = nullcontext) -> AbstractAsyncContextManager[EventApi]:
        """Return the client, to be opened in an event loop; its rate limit is shared with all that use this state DB."""
        sharing = sharing_over(self.engine, self.settings, self.now)
        return open_api(
            self.settings, mapping.publish, passage, sharing, retries=self.retries, now=self.now, seen=self.telemetry.seen
        )

    def covers(self, mapping: FeedMapping) -> CoverImages:
        """Return what fetches, checks and uploads the cover images of a feed."""
        limits = ImageLimits(allows_private=self.settings.allow_private_images)
        fetcher = ImageFetcher(limits, sleep=asyncio.sleep, random=random.random, in_flight=mapping.publish.most_in_flight)
        return CoverImages(fetcher, MediaMemory(self.engine, self.settings.destination), self.settings.namespace, self.now)

    def source(self, mapping: FeedMapping, mapper: RowMapper, *, since: str = "") -> Source:
        """Return the feed's source, not yet opened; from the cursor `since` on, if it has one."""
        return open_source(mapping.source, mapping.path.parent, mapper.columns, access=self.settings.access, since=since)

    def mapper(self, mapping: FeedMapping) -> RowMapper:
        """Compile the mapping against the lists of the service.

        Raises:
            SyncError: as `stage_job`.
        """
        return self._compiled(mapping)[0]

    @property
    def notes(self) -> ServiceNotes:
        """Notes about the configured service as a whole."""
        return ServiceNotes(self.engine, self.settings.destination, self.now)

    def notice(self, mapping: FeedMapping, run_id: str, notices: Sequence[str]) -> None:
        """Log what a run noticed of the service, and add it to the run's page."""
        for sentence in notices:
            structlog.get_logger().warning("the service has changed", feed=mapping.feed, run_id=run_id, notice=sentence)
        self.add_notices(mapping, run_id, notices)

    def add_notices(self, mapping: FeedMapping, run_id: str, notices: Sequence[str]) -> None:
        """Add sentences to the page of a run, each once."""
        if notices:
            add_notices(self.engine, self.settings.destination, mapping.feed, run_id, notices)

    def _compiled(self, mapping: FeedMapping) -> tuple[RowMapper, ServiceLists]:
        async def ask() -> ServiceLists:
            async with self.api(mapping) as api:
                return await ask_lists(api)

        lists = run_async(ask)
        return compile_feed(mapping, lists.directory, self.now()), lists

    def _acquired(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Lease:
        shown = ""
        while True:
            try:
                return self.ledger(mapping).acquire_lease(holder)
            except HeldByAnotherError as held:
                if not is_patient and not comes_between(holder, held.holder):
                    raise
                say_waiting(self.notes, mapping.feed, holder, self.now())
                if shown != held.holder:
                    self.tell(f"{mapping.feed}: waiting, {held}")
                    shown = held.holder
            with signals_raised():
                time.sleep(PATIENCE_S)  # noqa: TID251  # a person asked to wait, and may interrupt


OpenContext = Callable[[], AbstractContextManager[RunContext]]
"""Opens a run context for the length of a block."""


@contextmanager
def open_context(settings: Settings, tell: Tell = _log) -> Iterator[RunContext]:
    """Open the state DB for the length of the block. `tell` prints sentences while a run works.

    Raises:
        SyncError: it cannot be opened.
    """
    engine = open_database(settings.state_url)
    try:
        yield RunContext(settings, engine, tell, leaves_traces=True, telemetry=telemetry_of(settings))
    finally:
        engine.dispose()


_INSTALL = "pip install 'eventsync[otel]'"


def telemetry_of(settings: Settings) -> Telemetry:
    """Return where runs report spans and measurements. What cannot be had is logged once, and fails no run."""
    wanted = wanted_of(settings.otel)
    if not wanted.is_any and not wanted.problems:
        return NO_TELEMETRY
    for name, value in settings.otel.items():
        os.environ.setdefault(name, value)  # its SDK reads the environment itself, and knows no `.env` file
    return _opened(wanted, settings.trace_requests)


@cache
def _opened(wanted: Wanted, trace_requests: float) -> Telemetry:
    """Open the exporters once for each process."""
    for problem in wanted.problems:
        structlog.get_logger().warning("not everything is sent to OpenTelemetry", problem=problem)
    if not wanted.is_any:
        return NO_TELEMETRY
    try:
        from pipelines.telemetry.otel import open_recorder  # noqa: PLC0415  # an extra, and half a second of imports
    except ModuleNotFoundError as missing:
        structlog.get_logger().warning("nothing is sent to OpenTelemetry", problem=f"{missing}", hint=_INSTALL)
        return NO_TELEMETRY
    return open_recorder(wanted, trace_requests, random.random)
