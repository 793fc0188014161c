"""What one run needs, made from the settings and the open state DB: ledger, lease, client, source and mapper of a feed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial

import structlog

from connectors.errors import RequestRefusedError, ScopeMissingError
from connectors.event_api.client import EventApi
from connectors.event_api.lists import Classifications
from connectors.event_api.media import ImageFetcher, ImageLimits
from connectors.event_api.transport import Passage, Seen, open_http
from connectors.rate_limit import ConcurrencyLimit, RateLimiter, Sharing, Timing
from connectors.retry import RetryPolicy
from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from connectors.sources.files.choice import take_snapshot
from mappings.compiler.mapper import Directory, RowMapper, compile_feed
from mappings.compiler.rows import is_expanding
from mappings.errors import ConfigError, SyncError
from mappings.row_key import RowKey
from mappings.spec.feed import FeedMapping, PublishPolicy
from pipelines.clock import monotonic_s, now
from pipelines.run.backfill import PATIENCE_S, comes_between, say_waiting, within
from pipelines.run.drain import Advance, InFlight
from pipelines.run.images import CoverImages
from pipelines.run.lease import LeaseKeeper
from pipelines.run.options import RunOptions
from pipelines.run.preflight import ListMemory, Preflight
from pipelines.run.publish import PublishJob
from pipelines.run.reading import ChangeProbe, ReadInputs, plan_read
from pipelines.run.signals import run_async, signals_deferred, signals_raised
from pipelines.run.stage import StageJob
from pipelines.run.systemic_failure import SystemicFailure, patience_with
from pipelines.settings import Settings
from pipelines.telemetry.tracing import NO_TELEMETRY, Telemetry, Wanted, wanted_of
from state.database import StateDb, open_database
from state.holders import HeldByAnotherError, seconds_since_boot
from state.ledger.lease import Lease
from state.ledger.ledger import Ledger
from state.notes import MediaMemory, ServiceNotes, SharedRate, add_notices


@asynccontextmanager
async def open_api(  # noqa: PLR0913  # a client has as many parts
    settings: Settings,
    policy: PublishPolicy,
    passage: Passage = nullcontext,
    sharing: Sharing | None = None,
    *,
    retries: RetryPolicy | None = None,
    now: Callable[[], datetime] = now,
    seen: Seen | None = None,
) -> AsyncIterator[EventApi]:
    """Open a client of the configured service.

    Each request goes through `passage`, which may hold it back; `sharing` shares the rate limit with other workers. `retries`
    are bounded by the feed's trust in the service's memory of keys. `seen` is called with each request.

    Raises:
        ConfigError: the address or the key is missing or cannot be used.
    """
    require_service(settings)
    async with open_http(settings.base_url, settings.api_key, in_flight=policy.most_in_flight) as http:
        http.passage = passage
        http.seen = seen
        concurrency = ConcurrencyLimit(policy.most_in_flight, adapts=policy.in_flight == "auto")
        timing = Timing(monotonic_s, asyncio.sleep, random.random, now)
        limiter = RateLimiter(timing, max_pause_s=policy.max_pause_s, sharing=sharing, concurrency=concurrency)
        bounded = replace(retries or RetryPolicy(), key_memory_s=policy.key_memory_s, longest_probe_wait_s=policy.max_pause_s)
        try:
            yield EventApi(http, limiter=limiter, policy=bounded, now=now, sleep=asyncio.sleep, random=random.random)
        finally:
            limiter.leave()


def require_service(settings: Settings) -> None:
    """Check that the service is configured at all, both problems at once.

    Raises:
        ConfigError: what is missing.
    """
    problems = []
    if not settings.base_url:
        problems.append("EVENT_API_BASE_URL is not set: the address of the service, for example https://events.example.org")
    if not settings.api_key.get_secret_value():
        problems.append("EVENT_API_KEY is not set (nor EVENT_API_KEY_FILE): the key that the service gave you")
    if problems:
        raise ConfigError("\n".join(problems), hint="`eventsync demo` needs neither: it brings a service of its own")


@dataclass(frozen=True, slots=True)
class ServiceLists:
    """The service's lists that mappings are resolved against; `classifications` is None where it does not show them."""

    directory: Directory
    classifications: Classifications | None

    @property
    def evidence(self) -> str:
        """Text that changes whenever the lists do; a list of channels that we may not read counts as an empty one."""
        known = self.directory.channels
        channels = {} if known is None or isinstance(known, _ForbiddenList) else dict(known)
        slugs = self.directory.classifications
        return json.dumps([sorted(channels.items()), None if slugs is None else sorted(slugs)])


async def ask_lists(api: EventApi) -> ServiceLists:
    """Ask which channels and classifications there are.

    Where the key may not list its channels, looking a slug up raises the refusal: a mapping that gives ids needs no list.

    Raises:
        SyncError: the service cannot be reached, refuses the key, or is not the service.
    """
    channels: Mapping[str, int]
    try:
        channels = await api.channels()
    except (ScopeMissingError, RequestRefusedError) as refusal:
        channels = _ForbiddenList(refusal)
    try:
        classifications = await api.classifications()
    except (ScopeMissingError, RequestRefusedError):
        classifications = None  # the service then refuses unknown slugs itself
    slugs = classifications.slugs if classifications else None
    return ServiceLists(Directory(channels=channels, classifications=slugs), classifications)


class _ForbiddenList(Mapping[str, int]):
    """A list that the key may not read: every access raises the refusal."""

    def __init__(self, refusal: SyncError) -> None:
        self._refusal = refusal

    def __getitem__(self, slug: str) -> int:
        raise self._refusal

    def __iter__(self) -> Iterator[str]:
        raise self._refusal

    def __len__(self) -> int:
        raise self._refusal


def sharing_over(engine: StateDb, settings: Settings, now: Callable[[], datetime] = now) -> Sharing:
    """Return how one open client shares the rate limits of the service's routes with all that use this state DB."""
    destination = limited_together(settings)
    return Sharing(lambda route: SharedRate(engine, destination, route, now), secrets.token_hex(4), _log_once)


def limited_together(settings: Settings) -> str:
    """Name what a limit is counted for, the service and the key: namespaces do not matter to it.

    The key appears as four bytes of a digest salted with the address: enough to tell a few keys apart, far too little to
    find one by.
    """
    service = settings.service_url
    salt = hashlib.blake2b(service.encode(), digest_size=16).digest()
    key = settings.api_key.get_secret_value().encode()
    return f"{service} {hashlib.blake2b(key, digest_size=4, salt=salt).hexdigest()}"


def _log_once(trouble: SyncError) -> None:
    structlog.get_logger().warning("the rate limit is not shared any more: this run goes on alone", trouble=str(trouble))


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
