"""What a run is handed: settings, state DB, clock; and the feed's lease, kept by a heartbeat while the run works."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from math import inf
from types import TracebackType
from typing import Self

import structlog

from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import Passage
from connectors.retry import RetryPolicy
from mappings.errors import SyncError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines.clock import now
from pipelines.run.service import ServiceLists, ask_lists, open_api
from pipelines.run.signals import run_async, signals_deferred, signals_raised
from pipelines.settings import Settings
from pipelines.telemetry.tracing import NO_TELEMETRY, Telemetry, Wanted, wanted_of
from state.database import StateDb
from state.errors import HeldByAnotherError, LeaseLostError
from state.ledger.lease import LEASE_TTL_S, Lease, seconds_since_boot
from state.ledger.ledger import Ledger
from state.notes import ServiceNotes
from state.opening import opened_database

HEARTBEAT_S = LEASE_TTL_S / 6
"""How often the lease is renewed, so that several attempts may fail before it expires."""
FRESH_S = LEASE_TTL_S / 4
"""How long after a renewal a request may leave without another one. A process that was stopped for longer asks first."""
_LAST_BEAT_S = 0.5
"""How long leaving waits for a heartbeat that has begun."""
BACKFILL = "backfill"
SCHEDULE = "schedule"
"""Launchers of runs, at the end of a lease holder's name."""
PATIENCE_S = 2.0
"""How often a waiting run asks again for a feed that another run holds."""
_NOTE = "waited for: {}"
Report = Callable[[str], None]
"""Prints a sentence for the person who watches the run."""


class LeaseKeeper:
    """One lease, renewed by a thread every `beat_s` seconds for the length of a `with` block, which ends by releasing it.

    `clock_s` must go on while the process is stopped and the machine sleeps. A renewal that fails because the state DB
    is busy is tried again with the next beat; only another run's takeover loses the lease.
    """

    def __init__(self, lease: Lease, clock_s: Callable[[], float], *, beat_s: float = HEARTBEAT_S) -> None:
        self._lease = lease
        self._clock_s = clock_s
        self._beat_s = beat_s
        self._renewed_at = clock_s()
        self._is_over = threading.Event()
        self._asking = asyncio.Lock()
        begin = copy_context().run  # what is logged there names the same run and feed
        self._thread = threading.Thread(target=begin, args=(self._beat,), name="eventsync-heartbeat", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token that each transaction shows."""
        return self._lease.token

    async def assure(self) -> None:
        """Return if the lease was renewed a moment ago; after a longer time renew it first.

        Raises:
            LeaseLostError: another run has the feed; nothing may be sent any more.
            SyncError: the state DB cannot be asked, so that nothing may be sent either.
        """
        if self._is_fresh():
            return
        async with self._asking:
            if not self._is_fresh():
                await asyncio.to_thread(self._renew)

    def __enter__(self) -> Self:
        """Start the heartbeat."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the heartbeat and release the lease. One that cannot be released expires, or is taken from a dead process."""
        self._is_over.set()
        self._thread.join(_LAST_BEAT_S)
        try:
            self._lease.release()
        except SyncError as problem:
            structlog.get_logger().warning("the lease could not be released", problem=str(problem))

    def _is_fresh(self) -> bool:
        return self._clock_s() - self._renewed_at <= FRESH_S

    def _renew(self) -> None:
        """Renew; the time of the request counts, not that of the answer."""
        asked_at = self._clock_s()
        self._lease.renew()
        self._renewed_at = asked_at

    def _beat(self) -> None:
        while not self._is_over.wait(self._beat_s):
            try:
                self._renew()
            except LeaseLostError as lost:
                self._renewed_at = -inf  # the next request asks, and learns who has the feed
                structlog.get_logger().warning("the lease was lost: nothing leaves any more", problem=str(lost))
                return
            except SyncError as problem:
                structlog.get_logger().warning("the lease could not be renewed; it is tried again", problem=str(problem))


def _log(sentence: str) -> None:
    structlog.get_logger().info("report", sentence=sentence)


@dataclass(frozen=True, slots=True)
class RunContext:
    """The settings, the open state DB and the clock; `report` prints a sentence for the person who watches the run.

    `leaves_traces`: rows are written back into sheets, and snapshots of sources are stored; a dry run leaves nothing behind.
    `as_of`: the moment by which rows are judged, where that is not the clock's: what is over, and what is within a horizon.
    """

    settings: Settings
    engine: StateDb
    report: Report = _log
    retries: RetryPolicy | None = None
    leaves_traces: bool = False
    telemetry: Telemetry = NO_TELEMETRY
    now: Callable[[], datetime] = now
    as_of: datetime | None = None

    @property
    def notes(self) -> ServiceNotes:
        """Notes about the configured service as a whole."""
        return ServiceNotes(self.engine, self.settings.destination, self.now)

    def ledger(self, mapping: FeedMapping) -> Ledger:
        """Return the ledger of one feed at the configured destination."""
        return Ledger(self.engine, self.settings.destination, mapping.feed, namespace=self.settings.namespace, now=self.now)

    def api(self, mapping: FeedMapping, passage: Passage = nullcontext) -> AbstractAsyncContextManager[EventApi]:
        """Return the client, to be opened in an event loop."""
        seen = self.telemetry.seen
        return open_api(self.settings, mapping.publish, self.engine, passage, retries=self.retries, now=self.now, seen=seen)

    def lists(self, mapping: FeedMapping) -> ServiceLists:
        """Ask the service for the lists that mappings are resolved against.

        Raises:
            SyncError: the service cannot be reached, refuses the key, or is not the service.
        """

        async def ask() -> ServiceLists:
            async with self.api(mapping) as api:
                return await ask_lists(api)

        return run_async(ask)

    @contextmanager
    def lease(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Iterator[LeaseKeeper]:
        """Hold the feed's lease, with signals deferred; if `is_patient`, wait for the end of another run.

        Raises:
            HeldByAnotherError: another run holds it, and `is_patient` is false.
        """
        with signals_deferred(), LeaseKeeper(self._acquire(mapping, holder, is_patient=is_patient), seconds_since_boot) as lease:
            yield lease

    def _acquire(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Lease:
        """Acquire the lease. A scheduled run always waits for a slice of a backfill, which gives way to runs that wait."""
        reported = ""
        while True:
            try:
                return self.ledger(mapping).acquire_lease(holder)
            except HeldByAnotherError as held:
                if not (is_patient or (was_launched_by(holder, SCHEDULE) and was_launched_by(held.holder, BACKFILL))):
                    raise
                note_waiting(self.notes, mapping.feed, holder, self.now())
                if reported != held.holder:
                    self.report(f"{mapping.feed}: waiting, {held}")
                    reported = held.holder
            with signals_raised():
                time.sleep(PATIENCE_S)  # noqa: TID251  # a person asked to wait, and may interrupt


def was_launched_by(holder: str, launched_by: str) -> bool:
    """Whether the holder of a lease was launched so."""
    return holder.endswith(f"launched by {launched_by}")


def note_waiting(notes: ServiceNotes, feed: FeedName, holder: str, at: datetime) -> None:
    """Record that a run waits for the feed, unless it is a slice of a backfill itself."""
    if not was_launched_by(holder, BACKFILL):
        notes.write(_NOTE.format(feed), at.isoformat())


def is_awaited(notes: ServiceNotes, feed: FeedName, at: datetime) -> bool:
    """Whether a run waits for the feed now."""
    noted = notes.read(_NOTE.format(feed))
    return noted is not None and abs(at - datetime.fromisoformat(noted)) < timedelta(seconds=2.5 * PATIENCE_S)


OpenContext = Callable[[], AbstractContextManager[RunContext]]
"""Opens a run context for the length of a block."""


@contextmanager
def open_context(settings: Settings, report: Report = _log) -> Iterator[RunContext]:
    """Open the state DB for the length of the block. `report` prints sentences while a run works.

    Raises:
        SyncError: it cannot be opened.
    """
    with opened_database(settings.state_url) as engine:
        # Open the exporters that OTEL_* variables ask for; what cannot be had is logged once, and fails no run.
        for name, value in settings.otel.items():
            os.environ.setdefault(name, value)  # the SDK reads the environment itself, and knows no `.env` file
        telemetry = _open_recorder(wanted_of(settings.otel), settings.trace_requests)
        yield RunContext(settings, engine, report, leaves_traces=True, telemetry=telemetry)


@cache
def _open_recorder(wanted: Wanted, trace_requests: float) -> Telemetry:
    """Open the exporters, once for each process."""
    for problem in wanted.problems:
        structlog.get_logger().warning("not everything is sent to OpenTelemetry", problem=problem)
    if wanted.traces == wanted.metrics == "none":
        return NO_TELEMETRY
    try:
        from pipelines.telemetry.otel import open_recorder  # noqa: PLC0415  # an extra, and half a second of imports
    except ModuleNotFoundError as missing:
        hint = "pip install 'eventsync[otel]'"
        structlog.get_logger().warning("nothing is sent to OpenTelemetry", problem=f"{missing}", hint=hint)
        return NO_TELEMETRY
    return open_recorder(wanted, trace_requests, random.random)
