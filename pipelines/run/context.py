"""The way to the service for one run: an open client, and the lists that mappings are resolved against.

What is asked over it is `connectors.event_api`'s.
"""

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
from connectors.sources.files.snapshot import take_snapshot
from mappings.compiler.mapper import Directory, RowMapper, compile_feed
from mappings.compiler.rows import is_unfolding
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
from state.notes import MediaMemory, ServiceNotes, add_notices
from state.pace import SharedRate

INSISTENCE = RetryPolicy()
"""How long a worker insists on one request."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a client goes about it: how long it insists, by which time of day, and who is told of each request, if anybody."""

    retries: RetryPolicy = INSISTENCE
    now: Callable[[], datetime] = now
    seen: Seen | None = None


_USUAL = Manner()


@asynccontextmanager
async def open_api(
    settings: Settings,
    policy: PublishPolicy,
    passage: Passage = nullcontext,
    sharing: Sharing | None = None,
    manner: Manner = _USUAL,
) -> AsyncIterator[EventApi]:
    """Open a client of the configured service, with the feed's patience and number of requests in flight.

    Each request goes through `passage`, which may hold it back; `sharing` opens the rate limit that other workers share.
    It is insisted upon as `manner` says, but never beyond the feed's trust in the service's memory of keys.

    Raises:
        ConfigError: the address or the key is missing or cannot be used.
    """
    require_service(settings)
    async with open_http(settings.base_url, settings.api_key, in_flight=policy.most_in_flight) as http:
        http.passage = passage
        http.seen = manner.seen
        concurrency = ConcurrencyLimit(policy.most_in_flight, adapts=policy.in_flight == "auto")
        timing = Timing(monotonic_s, asyncio.sleep, random.random, manner.now)
        limiter = RateLimiter(timing, max_pause_s=policy.max_pause_s, sharing=sharing, concurrency=concurrency)
        bounded = replace(manner.retries, key_memory_s=policy.key_memory_s, longest_probe_wait_s=policy.max_pause_s)
        try:
            yield EventApi(http, limiter=limiter, policy=bounded, now=manner.now, sleep=asyncio.sleep, random=random.random)
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
    """What the service told about itself: what mappings are resolved against, and its list of classifications, if it did."""

    directory: Directory
    classifications: Classifications | None

    @property
    def evidence(self) -> str:
        """Text that changes whenever the lists do; of channels, a list that the service does not tell counts as an empty one."""
        known = self.directory.channels
        channels = {} if known is None or isinstance(known, _Untold) else dict(known)
        slugs = self.directory.classifications
        return json.dumps([sorted(channels.items()), None if slugs is None else sorted(slugs)])


async def ask_lists(api: EventApi) -> ServiceLists:
    """Ask which channels and classifications there are.

    Where the key may not list its channels, the channels of the directory are a list that nobody may look into: a
    mapping that gives ids needs none, another one meets the refusal (a SyncError) when it looks a slug up.

    Raises:
        SyncError: the service cannot be reached, refuses the key, or is not the service.
    """
    channels: Mapping[str, int]
    try:
        channels = await api.channels()
    except (ScopeMissingError, RequestRefusedError) as refusal:
        channels = _Untold(refusal)
    told = await _classifications(api)
    return ServiceLists(Directory(channels=channels, classifications=told.slugs if told else None), told)


class _Untold(Mapping[str, int]):
    """A list that the service refused to tell: whoever looks into it meets the refusal."""

    def __init__(self, refusal: SyncError) -> None:
        self._refusal = refusal

    def __getitem__(self, slug: str) -> int:
        raise self._refusal

    def __iter__(self) -> Iterator[str]:
        raise self._refusal

    def __len__(self) -> int:
        raise self._refusal


async def _classifications(api: EventApi) -> Classifications | None:
    """Return the list; None where the service does not tell it: it then refuses unknown slugs itself."""
    try:
        return await api.classifications()
    except (ScopeMissingError, RequestRefusedError):
        return None


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
    """The open state DB and the settings that everything else is made from; `tell` reaches whoever watches the run.

    `leaves_traces`: sheets whose owners ask for it are told what became of their rows, and the next read finds what this one
    remembers of its source; a rehearsal leaves nothing behind. `now` is the time of day, for all that a run writes down.
    """

    settings: Settings
    engine: StateDb
    tell: Tell = _log
    insistence: RetryPolicy = INSISTENCE
    leaves_traces: bool = False
    telemetry: Telemetry = NO_TELEMETRY
    now: Callable[[], datetime] = now

    def ledger(self, mapping: FeedMapping) -> Ledger:
        """Return the ledger of one feed at the configured destination."""
        return Ledger(self.engine, self.settings.destination, mapping.feed, namespace=self.settings.namespace, now=self.now)

    @contextmanager
    def lease(self, mapping: FeedMapping, holder: str, *, is_patient: bool) -> Iterator[LeaseKeeper]:
        """Hold the feed for the length of the block, its lease renewed meanwhile. The patient wait for another run's end.

        Raises:
            HeldByAnotherError: another run holds it and we are not patient.
        """
        with signals_deferred(), LeaseKeeper(self._acquired(mapping, holder, is_patient=is_patient), seconds_since_boot) as lease:
            yield lease

    def stage_job(self, mapping: FeedMapping, run_id: str, lease: LeaseKeeper, options: RunOptions, advance: Advance) -> StageJob:
        """Wire one stage: the service is asked for its lists, the mapping compiled, the source found.

        Raises:
            SyncError: the service refuses us or cannot be reached, or the mapping names what it does not know.
        """
        mapper, told = self._compiled(mapping)
        change = None if told.classifications is None else ListMemory(self.notes).note(mapping, told.classifications)
        notices = () if change is None else (str(change),)
        self.notice(mapping, run_id, notices)
        ledger = self.ledger(mapping)
        known = ReadInputs(mapping, mapper, told.evidence, self.now())
        plan = plan_read(known, options, ledger.bookmark())
        source = self.source(within(mapping, options.window, mapper), mapper, since=plan.since)
        snapshot = partial(take_snapshot, mapping.source, mapping.path.parent)
        probe = ChangeProbe(snapshot, known.fit_today, known.began) if self.leaves_traces else None
        return StageJob(run_id, lease.token, mapping, source, mapper, ledger, options, advance, notices, plan, probe)

    def publish_job(
        self, mapping: FeedMapping, run_id: str, lease: LeaseKeeper, options: RunOptions, advance: Advance
    ) -> PublishJob:
        """Wire one drain: the outbox is opened, the client only when the drain begins."""
        outbox = self.ledger(mapping).open_outbox(
            run_id,
            lease.token,
            limit=options.limit,
            keys=[RowKey(key) for key in options.keys] or None,
            key_memory_s=mapping.publish.key_memory_s,
            row_parts=len(mapping.key_columns) if is_unfolding(mapping.rows) else None,
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
        """Return the client of the service, to be opened in an event loop; its pace is shared with all who use this state DB."""
        sharing = sharing_over(self.engine, self.settings, self.now)
        manner = Manner(self.insistence, self.now, self.telemetry.seen)
        return open_api(self.settings, mapping.publish, passage, sharing, manner)

    def covers(self, mapping: FeedMapping) -> CoverImages:
        """Return what fetches, checks and uploads the cover images of a feed."""
        limits = ImageLimits(allows_private=self.settings.allow_private_images)
        fetcher = ImageFetcher(limits, sleep=asyncio.sleep, random=random.random, in_flight=mapping.publish.most_in_flight)
        return CoverImages(fetcher, MediaMemory(self.engine, self.settings.destination), self.settings.namespace, self.now)

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

    def _compiled(self, mapping: FeedMapping) -> tuple[RowMapper, ServiceLists]:
        async def ask() -> ServiceLists:
            async with self.api(mapping) as api:
                return await ask_lists(api)

        told = run_async(ask)
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
            with signals_raised():
                time.sleep(PATIENCE_S)  # noqa: TID251  # a person asked to wait, and may interrupt


OpenContext = Callable[[], AbstractContextManager[RunContext]]
"""What opens a workshop for the length of a block; whoever is to do something later is given this."""


@contextmanager
def open_context(settings: Settings, tell: Tell = _log) -> Iterator[RunContext]:
    """Open the state DB for the length of the block. `tell` is given sentences for whoever watches, while a run works.

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
    """Return whom runs tell of themselves. What cannot be had is told once in the log, and costs no run anything."""
    wanted = wanted_of(settings.otel)
    if not wanted.is_any and not wanted.problems:
        return NO_TELEMETRY
    for name, value in settings.otel.items():
        os.environ.setdefault(name, value)  # its SDK reads the environment itself, and knows no `.env` file
    return _opened(wanted, settings.trace_requests)


@cache
def _opened(wanted: Wanted, trace_requests: float) -> Telemetry:
    """Open what is wanted once for each process: its threads and its connection serve every run."""
    for problem in wanted.problems:
        structlog.get_logger().warning("not everything is told to OpenTelemetry", problem=problem)
    if not wanted.is_any:
        return NO_TELEMETRY
    try:
        from pipelines.telemetry.otel import open_recorder  # noqa: PLC0415  # an extra, and half a second of imports
    except ModuleNotFoundError as missing:
        structlog.get_logger().warning("nothing is told to OpenTelemetry", problem=f"{missing}", hint=_INSTALL)
        return NO_TELEMETRY
    return open_recorder(wanted, trace_requests, random.random)
