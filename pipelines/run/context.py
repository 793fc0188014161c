"""The context of a run (settings, state DB, clock), and the feed's lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from connectors.event_api.delivery import EventApi
from connectors.event_api.transport import Passage
from connectors.retry import RetryPolicy
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines.clock import now
from pipelines.run.service import ServiceLists, ask_lists, open_api
from pipelines.run.signals import run_async, signals_deferred, signals_raised
from pipelines.settings import Settings
from state.database import StateDb
from state.errors import HeldByAnotherError
from state.ledger.lease import Lease, LeaseKeeper, seconds_since_boot
from state.ledger.ledger import Ledger
from state.notes import ServiceNotes
from state.opening import opened_database

BACKFILL = "backfill"
SCHEDULE = "schedule"
"""Launchers of runs, as they end a lease holder's name."""
PATIENCE_S = 2.0
"""Interval at which a waiting run tries to acquire the lease."""
_NOTE = "waited for: {}"
Report = Callable[[str], None]
"""Print a sentence for the person who watches the run."""


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
        return open_api(self.settings, mapping.publish, self.engine, passage, retries=self.retries, now=self.now)

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
        """Hold the lease of the feed during the block, with signals deferred; wait for it if `is_patient`.

        Raises:
            HeldByAnotherError: another run holds it, and `is_patient` is false.
        """
        with (
            signals_deferred(),
            LeaseKeeper(self._acquire(mapping, holder, is_patient=is_patient), seconds_since_boot) as lease,
        ):
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
    """Open the state DB for a block. `report` prints sentences while a run works.

    Raises:
        SyncError: the state DB cannot be opened.
    """
    with opened_database(settings.state_url) as engine:
        yield RunContext(settings, engine, report, leaves_traces=True)
