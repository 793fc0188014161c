"""The context of a run (settings, state DB, clock), and the feed's lease, renewed by a heartbeat while the run works."""

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
"""Interval of lease renewals; several may fail before the lease expires."""
FRESH_S = LEASE_TTL_S / 4
"""A request may be sent without a renewal for this long after the last one; a process that was suspended for longer renews first.
"""
_LAST_BEAT_S = 0.5
"""How long the release waits for a heartbeat that has begun."""
BACKFILL = "backfill"
SCHEDULE = "schedule"
"""Launchers of runs, as they end a lease holder's name."""
PATIENCE_S = 2.0
"""Interval at which a waiting run tries to acquire the lease."""
_NOTE = "waited for: {}"
Report = Callable[[str], None]
"""Print a sentence for the person who watches the run."""


class LeaseKeeper:
    """Keeps one lease during a `with` block: a thread renews it every `beat_s` seconds, and the end of the block releases it.

    `clock_s` must count while the process is suspended and the machine sleeps. If the state DB is busy, the next beat renews;
    only another run's takeover loses the lease.
    """

    def __init__(self, lease: Lease, clock_s: Callable[[], float], *, beat_s: float = HEARTBEAT_S) -> None:
        self._lease = lease
        self._clock_s = clock_s
        self._beat_s = beat_s
        self._renewed_at = clock_s()
        self._is_over = threading.Event()
        self._asking = asyncio.Lock()
        begin = copy_context().run  # its log lines have the same run and feed
        self._thread = threading.Thread(target=begin, args=(self._beat,), name="eventsync-heartbeat", daemon=True)

    @property
    def token(self) -> int:
        """The fencing token that every transaction is checked with."""
        return self._lease.token

    async def assure(self) -> None:
        """Make sure that the lease is fresh: renew it if the last renewal was too long ago.

        Raises:
            LeaseLostError: another run has the feed; nothing may be sent any more.
            SyncError: the state DB does not answer, so nothing may be sent either.
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
        """End the heartbeat and release the lease. A lease that cannot be released expires, or another run takes it from the dead
        process.
        """
        self._is_over.set()
        self._thread.join(_LAST_BEAT_S)
        try:
            self._lease.release()
        except SyncError as problem:
            structlog.get_logger().warning("the lease could not be released", problem=str(problem))

    def _is_fresh(self) -> bool:
        return self._clock_s() - self._renewed_at <= FRESH_S

    def _renew(self) -> None:
        """Renew the lease; its time counts from the request, not the answer."""
        asked_at = self._clock_s()
        self._lease.renew()
        self._renewed_at = asked_at

    def _beat(self) -> None:
        while not self._is_over.wait(self._beat_s):
            try:
                self._renew()
            except LeaseLostError as lost:
                self._renewed_at = -inf  # the next request renews first, and fails
                structlog.get_logger().warning("the lease was lost: no more requests are sent", problem=str(lost))
                return
            except SyncError as problem:
                structlog.get_logger().warning(
                    "the lease could not be renewed; the next heartbeat tries again", problem=str(problem)
                )


def _log(sentence: str) -> None:
    structlog.get_logger().info("report", sentence=sentence)


@dataclass(frozen=True, slots=True)
class RunContext:
    """The settings, the state DB, the clock and the other dependencies of a run; `report` prints a sentence for the person who
    watches.

    `leaves_traces`: write rows back into sheets and store snapshots of sources; false in a dry run. `as_of`: the time that
    decides what is past and what is within a horizon, if not the clock's.
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
        """Stored notes about the configured service."""
        return ServiceNotes(self.engine, self.settings.destination, self.now)

    def ledger(self, mapping: FeedMapping) -> Ledger:
        """Return the ledger of one feed at the configured destination."""
        return Ledger(self.engine, self.settings.destination, mapping.feed, namespace=self.settings.namespace, now=self.now)

    def api(self, mapping: FeedMapping, passage: Passage = nullcontext) -> AbstractAsyncContextManager[EventApi]:
        """Return the client of the service, to be opened in an event loop."""
        seen = self.telemetry.seen
        return open_api(self.settings, mapping.publish, self.engine, passage, retries=self.retries, now=self.now, seen=seen)

    def lists(self, mapping: FeedMapping) -> ServiceLists:
        """Ask the service for the channels and classifications that mappings are compiled with.

        Raises:
            SyncError: the service cannot be reached, refuses the key, or is not an Event Publishing service.
        """

        async def ask() -> ServiceLists:
            async with self.api(mapping) as api:
                return await ask_lists(api)

        return run_async(ask)

    @contextmanager
    def lease(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Iterator[LeaseKeeper]:
        """Hold the feed's lease during the block, with signals deferred; if `is_patient`, wait for another run to end.

        Raises:
            HeldByAnotherError: another run holds it, and `is_patient` is false.
        """
        with signals_deferred(), LeaseKeeper(self._acquire(mapping, holder, is_patient=is_patient), seconds_since_boot) as lease:
            yield lease

    def _acquire(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Lease:
        """Acquire the lease. A scheduled run always waits for a slice of a backfill; the backfill lets waiting runs go first."""
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
    """Return whether a lease holder's name ends with this launcher."""
    return holder.endswith(f"launched by {launched_by}")


def note_waiting(notes: ServiceNotes, feed: FeedName, holder: str, at: datetime) -> None:
    """Record that a run waits for the feed; a slice of a backfill is not recorded."""
    if not was_launched_by(holder, BACKFILL):
        notes.write(_NOTE.format(feed), at.isoformat())


def is_awaited(notes: ServiceNotes, feed: FeedName, at: datetime) -> bool:
    """Return whether a run waits for the feed now."""
    noted = notes.read(_NOTE.format(feed))
    return noted is not None and abs(at - datetime.fromisoformat(noted)) < timedelta(seconds=2.5 * PATIENCE_S)


OpenContext = Callable[[], AbstractContextManager[RunContext]]
"""Open a run context for a block."""


@contextmanager
def open_context(settings: Settings, report: Report = _log) -> Iterator[RunContext]:
    """Open the state DB and the telemetry for a block. `report` prints sentences while a run works.

    Raises:
        SyncError: the state DB cannot be opened.
    """
    with opened_database(settings.state_url) as engine:
        # An exporter that cannot be opened is logged once and fails no run.
        for name, value in settings.otel.items():
            os.environ.setdefault(name, value)  # the SDK reads the environment itself, but not the `.env` file
        telemetry = _open_recorder(wanted_of(settings.otel), settings.trace_requests)
        yield RunContext(settings, engine, report, leaves_traces=True, telemetry=telemetry)


@cache
def _open_recorder(wanted: Wanted, trace_requests: float) -> Telemetry:
    """Open the exporters that OTEL_* variables ask for, once per process."""
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
