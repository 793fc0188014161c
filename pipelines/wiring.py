"""Where real things are wired: the state DB, a feed's ledger and source, the client of the service.

Everything is opened here and handed to `sync`; what the environment asks for is read by `settings`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass

from connectors.event_api.client import EventApi
from connectors.event_api.media import ImageFetcher, ImageLimits
from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from mappings.engine import Directory, RowMapper, compile_feed
from mappings.schema import FeedMapping
from mappings.vocabulary import RowKey
from pipelines.clock import monotonic_s, now
from pipelines.covers import Covers
from pipelines.drain import Advance
from pipelines.options import RunOptions
from pipelines.service import open_api, read_directory
from pipelines.settings import Settings
from pipelines.sync import PublishJob, StageJob
from state.database import StateDb, open_database
from state.lease import HeldByAnotherError, Lease
from state.ledger import Ledger
from state.media import MediaMemory

PATIENCE_S = 2.0
"""How often a patient run asks again for a feed that another run holds."""
OFFLINE = Directory(channels=None, classifications=None)


@dataclass(frozen=True, slots=True)
class Workshop:
    """The open state DB and the settings that everything else is made from."""

    settings: Settings
    engine: StateDb

    def ledger(self, mapping: FeedMapping) -> Ledger:
        """Return the ledger of one feed at the configured destination."""
        return Ledger(self.engine, self.settings.destination, mapping.feed, namespace=self.settings.namespace, now=now)

    @contextmanager
    def lease(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Iterator[Lease]:
        """Hold the feed for the length of the block.

        Raises:
            HeldByAnotherError: another run holds it and we are not patient.
        """
        with self._acquired(mapping, holder, is_patient=is_patient) as lease:
            yield lease

    def stage_job(self, mapping: FeedMapping, run_id: str, lease: Lease, options: RunOptions, advance: Advance) -> StageJob:
        """Wire one stage: the service is asked for its lists, the mapping compiled, the source found.

        Raises:
            SyncError: the service refuses us or cannot be reached, or the mapping names what it does not know.
        """
        mapper = self.mapper(mapping)
        return StageJob(
            run_id, lease.token, mapping, self.source(mapping, mapper), mapper, self.ledger(mapping), options, advance
        )

    def publish_job(self, mapping: FeedMapping, run_id: str, lease: Lease, options: RunOptions, advance: Advance) -> PublishJob:
        """Wire one drain: the outbox is opened, the client only when the drain begins."""
        outbox = self.ledger(mapping).open_outbox(
            run_id,
            lease.token,
            limit=options.limit,
            keys=[RowKey(key) for key in options.keys] or None,
            key_memory_s=mapping.publish.key_memory_s,
        )
        return PublishJob(
            outbox=outbox,
            open_api=lambda: self.api(mapping),
            open_covers=lambda: self.covers(mapping),
            renew=lease.renew,
            in_flight=mapping.publish.in_flight,
            advance=advance,
            clock_s=monotonic_s,
        )

    def api(self, mapping: FeedMapping) -> AbstractAsyncContextManager[EventApi]:
        """Return the client of the service, to be opened in an event loop."""
        return open_api(self.settings, mapping.publish)

    def covers(self, mapping: FeedMapping) -> Covers:
        """Return what fetches, checks and uploads the cover images of a feed."""
        limits = ImageLimits(allows_private=self.settings.allow_private_images)
        fetcher = ImageFetcher(limits, sleep=asyncio.sleep, random=random.random, in_flight=mapping.publish.in_flight)
        return Covers(fetcher, MediaMemory(self.engine, self.settings.destination), self.settings.namespace, now)

    def source(self, mapping: FeedMapping, mapper: RowMapper) -> Source:
        """Return the feed's source, not yet opened."""
        return open_source(mapping.source, mapping.path.parent, mapper.columns)

    def mapper(self, mapping: FeedMapping) -> RowMapper:
        """Compile the mapping against the lists of the service.

        Raises:
            SyncError: as `stage_job`.
        """

        async def ask() -> RowMapper:
            async with self.api(mapping) as api:
                directory = await read_directory(api)
            return compile_feed(mapping, directory, now())

        return asyncio.run(ask())

    @contextmanager
    def _acquired(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Iterator[Lease]:
        while True:
            try:
                lease = self.ledger(mapping).acquire_lease(holder)
                break
            except HeldByAnotherError:
                if not is_patient:
                    raise
                time.sleep(PATIENCE_S)  # noqa: TID251  # a person asked to wait, and may interrupt
        with lease:
            yield lease


@contextmanager
def open_workshop(settings: Settings) -> Iterator[Workshop]:
    """Open the state DB for the length of the block.

    Raises:
        SyncError: it cannot be opened.
    """
    engine = open_database(settings.state_url)
    try:
        yield Workshop(settings, engine)
    finally:
        engine.dispose()
