"""Where real things are wired: the state DB, a feed's ledger and source, the client of the service.

Everything is opened here and handed to `sync`; what the environment asks for is read by `settings`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from connectors.event_api.client import EventApi
from connectors.event_api.http import Passage
from connectors.event_api.media import ImageFetcher, ImageLimits
from connectors.retry import RetryPolicy
from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from connectors.sources.sights import look_at
from mappings.engine import RowMapper, compile_feed
from mappings.row_plan import is_unfolding
from mappings.spec.feed import FeedMapping
from mappings.vocabulary import RowKey
from pipelines.backfills.giving_way import PATIENCE_S, comes_between, say_waiting
from pipelines.backfills.windows import within
from pipelines.clock import monotonic_s, now
from pipelines.holding import Hold
from pipelines.options import RunOptions
from pipelines.publishing.covers import Covers
from pipelines.publishing.departures import Departures
from pipelines.publishing.drain import Advance
from pipelines.publishing.preflight import Preflight
from pipelines.publishing.row_log import watching_rows
from pipelines.publishing.sending import PublishJob
from pipelines.publishing.service import INSISTENCE, Manner, Told, ask_lists, open_api
from pipelines.publishing.shared_pace import sharing_over
from pipelines.publishing.slug_list import ListMemory
from pipelines.publishing.systemic_failure import SystemicFailure, patience_with
from pipelines.reading.approach import AtHand, approach_of
from pipelines.reading.sameness import Sameness
from pipelines.settings import Settings
from pipelines.stopping.interrupts import window
from pipelines.stopping.stoppable import cancel_all, run_stoppable
from pipelines.sync import StageJob
from pipelines.tracing.chosen import telemetry_of
from pipelines.tracing.telemetry import UNTOLD, Telemetry
from state.database import StateDb, open_database
from state.holders import HeldByAnotherError
from state.lease import Lease
from state.ledger import Ledger
from state.media import MediaMemory
from state.notes import ServiceNotes
from state.notices import add_notices
from state.pulse import seconds_since_boot

Tell = Callable[[str], None]


def _log(sentence: str) -> None:
    structlog.get_logger().info("told", sentence=sentence)


@dataclass(frozen=True, slots=True)
class Workshop:
    """The open state DB and the settings that everything else is made from; `tell` reaches whoever watches the run.

    `leaves_traces`: sheets whose owners ask for it are told what became of their rows, and the next read finds what this one
    remembers of its source; a rehearsal leaves nothing behind. `now` is the time of day, for all that a run writes down.
    """

    settings: Settings
    engine: StateDb
    tell: Tell = _log
    insistence: RetryPolicy = INSISTENCE
    leaves_traces: bool = False
    telemetry: Telemetry = UNTOLD
    now: Callable[[], datetime] = now

    def ledger(self, mapping: FeedMapping) -> Ledger:
        """Return the ledger of one feed at the configured destination."""
        return Ledger(self.engine, self.settings.destination, mapping.feed, namespace=self.settings.namespace, now=self.now)

    @contextmanager
    def lease(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Iterator[Hold]:
        """Hold the feed for the length of the block, its lease renewed meanwhile. The patient wait for another run's end.

        Raises:
            HeldByAnotherError: another run holds it and we are not patient.
        """
        with Hold(self._acquired(mapping, holder, is_patient=is_patient), seconds_since_boot) as hold:
            yield hold

    def stage_job(self, mapping: FeedMapping, run_id: str, lease: Hold, options: RunOptions, advance: Advance) -> StageJob:
        """Wire one stage: the service is asked for its lists, the mapping compiled, the source found.

        Raises:
            SyncError: the service refuses us or cannot be reached, or the mapping names what it does not know.
        """
        mapper, told = self._compiled(mapping)
        change = None if told.classifications is None else ListMemory(self.notes).note(mapping, told.classifications)
        notices = () if change is None else (str(change),)
        self.notice(mapping, run_id, notices)
        ledger = self.ledger(mapping)
        known = AtHand(mapping, mapper, told.evidence, self.now())
        approach = approach_of(known, options, ledger.bookmark())
        source = self.source(within(mapping, options.window, mapper), mapper, since=approach.since)
        look = partial(look_at, mapping.source, mapping.path.parent)
        sameness = Sameness(look, known.fit_today, known.began) if self.leaves_traces else None
        return StageJob(run_id, lease.token, mapping, source, mapper, ledger, options, advance, notices, approach, sameness)

    def publish_job(self, mapping: FeedMapping, run_id: str, lease: Hold, options: RunOptions, advance: Advance) -> PublishJob:
        """Wire one drain: the outbox is opened, the client only when the drain begins."""
        outbox = self.ledger(mapping).open_outbox(
            run_id,
            lease.token,
            limit=options.limit,
            keys=[RowKey(key) for key in options.keys] or None,
            key_memory_s=mapping.publish.key_memory_s,
            row_parts=len(mapping.key_columns) if is_unfolding(mapping.rows) else None,
        )
        departures = Departures(lease.assure, lease.is_fresh)
        return PublishJob(
            outbox=outbox,
            open_api=lambda: self.api(mapping, departures),
            open_covers=lambda: self.covers(mapping),
            departures=departures,
            on_loss=lease.on_loss,
            tell=lambda sentence: self.tell(f"{mapping.feed}: {sentence}"),
            watch=partial(watching_rows, is_traced=self.telemetry.seen is not None),
            in_flight=mapping.publish.most_in_flight,
            advance=advance,
            clock_s=monotonic_s,
            preflight=Preflight(self.notes, mapping),
            systemic=SystemicFailure(patience_with(outbox.owed, mapping.publish.brakes.rejected)),
        )

    def api(self, mapping: FeedMapping, passage: Passage = nullcontext) -> AbstractAsyncContextManager[EventApi]:
        """Return the client of the service, to be opened in an event loop; its pace is shared with all who use this state DB."""
        sharing = sharing_over(self.engine, self.settings, self.now)
        manner = Manner(self.insistence, self.now, self.telemetry.seen)
        return open_api(self.settings, mapping.publish, passage, sharing, manner)

    def covers(self, mapping: FeedMapping) -> Covers:
        """Return what fetches, checks and uploads the cover images of a feed."""
        limits = ImageLimits(allows_private=self.settings.allow_private_images)
        fetcher = ImageFetcher(limits, sleep=asyncio.sleep, random=random.random, in_flight=mapping.publish.most_in_flight)
        return Covers(fetcher, MediaMemory(self.engine, self.settings.destination), self.settings.namespace, self.now)

    def source(self, mapping: FeedMapping, mapper: RowMapper, *, since: str = "") -> Source:
        """Return the feed's source, not yet opened; to go on from the cursor `since`, if it has such."""
        return open_source(mapping.source, mapping.path.parent, mapper.columns, access=self.settings.access, since=since)

    def mapper(self, mapping: FeedMapping) -> RowMapper:
        """Compile the mapping against the lists of the service.

        Raises:
            SyncError: as `stage_job`.
        """
        return self._compiled(mapping)[0]

    @property
    def notes(self) -> ServiceNotes:
        """What is remembered of the configured service as a whole."""
        return ServiceNotes(self.engine, self.settings.destination, self.now)

    def notice(self, mapping: FeedMapping, run_id: str, told: Sequence[str]) -> None:
        """Tell what a run noticed of the service: in the log, and on the run's page."""
        log = structlog.get_logger().bind(feed=mapping.feed, run_id=run_id)
        for sentence in told:
            log.warning("the service has changed", notice=sentence)
        self.put_down(mapping, run_id, told)

    def tell_of_reading(self, mapping: FeedMapping, run_id: str, told: Sequence[str]) -> None:
        """Tell how the source was read, in the same places; that it is as it was is nothing to warn of."""
        log = structlog.get_logger().bind(feed=mapping.feed, run_id=run_id)
        for sentence in told:
            log.info("how the source was read", notice=sentence)
        self.put_down(mapping, run_id, told)

    def put_down(self, mapping: FeedMapping, run_id: str, told: Sequence[str]) -> None:
        """Add sentences to the page of a run, each once."""
        if told:
            add_notices(self.engine, self.settings.destination, mapping.feed, run_id, told)

    def _compiled(self, mapping: FeedMapping) -> tuple[RowMapper, Told]:
        async def ask() -> Told:
            async with self.api(mapping) as api:
                return await ask_lists(api)

        told = run_stoppable(ask, cancel_all)
        return compile_feed(mapping, told.directory, self.now()), told

    def _acquired(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Lease:
        told = ""
        while True:
            try:
                return self.ledger(mapping).acquire_lease(holder)
            except HeldByAnotherError as held:
                if not is_patient and not comes_between(holder, held.holder):
                    raise
                say_waiting(self.notes, mapping.feed, holder, self.now())
                if told != held.holder:
                    self.tell(f"{mapping.feed}: waiting, {held}")
                    told = held.holder
            with window():
                time.sleep(PATIENCE_S)  # noqa: TID251  # a person asked to wait, and may interrupt


OpenWorkshop = Callable[[], AbstractContextManager[Workshop]]
"""What opens a workshop for the length of a block; whoever is to do something later is given this."""


@contextmanager
def open_workshop(settings: Settings, tell: Tell = _log) -> Iterator[Workshop]:
    """Open the state DB for the length of the block. `tell` is given sentences for whoever watches, while a run works.

    Raises:
        SyncError: it cannot be opened.
    """
    engine = open_database(settings.state_url)
    try:
        yield Workshop(settings, engine, tell, leaves_traces=True, telemetry=telemetry_of(settings))
    finally:
        engine.dispose()
