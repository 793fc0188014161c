"""The context of a run: settings, state DB, clock, the feed's lease, and the configured service.

Of the service: its client, the lists that mappings are compiled with, and how these lists change.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NoReturn, TypeVar

import structlog
from pydantic import TypeAdapter

from connectors.concurrency_limit import ConcurrencyLimit
from connectors.errors import RequestRefusedError, ScopeMissingError
from connectors.event_api.delivery import EventApi
from connectors.event_api.lists import Classifications
from connectors.event_api.transport import Passage, open_http
from connectors.rate_limit import RateLimiter, Sharing
from connectors.retry import RetryPolicy, Timing
from mappings.delivery import service_of
from mappings.errors import ConfigError, SyncError
from mappings.event import Directory
from mappings.outgoing import outgoing_of
from mappings.reasons import nearest
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, PublishPolicy
from pipelines.clock import monotonic_s, now
from pipelines.run.signals import run_async, signals_deferred, signals_raised
from pipelines.settings import Settings
from state.database import StateDb
from state.errors import HeldByAnotherError
from state.ledger.lease import Lease, LeaseKeeper, seconds_since_boot
from state.ledger.ledger import Ledger
from state.notes import ServiceNotes, SharedRate
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


T = TypeVar("T")
_SHOWN = 8
_LIST = TypeAdapter(Classifications)


@asynccontextmanager
async def open_api(  # a client has as many parts
    settings: Settings,
    policy: PublishPolicy,
    engine: StateDb,
    passage: Passage = nullcontext,
    *,
    retries: RetryPolicy | None = None,
    now: Callable[[], datetime] = now,
) -> AsyncIterator[EventApi]:
    """Open a client of the configured service; its rate limit is shared by all users of this state DB.

    Each request goes through `passage`, which may hold it back. Retries under one key are limited to the feed's `key_memory_s`.

    Raises:
        ConfigError: the address or the key is missing or cannot be used.
    """
    require_service(settings)
    destination = limited_together(settings)
    sharing = Sharing(lambda route: _InThread(SharedRate(engine, destination, route, now)), secrets.token_hex(4), _log_unshared)
    async with open_http(settings.base_url, settings.api_key, in_flight=policy.most_in_flight) as http:
        http.passage = passage
        concurrency = ConcurrencyLimit(policy.most_in_flight, adapts=policy.in_flight == "auto")
        timing = Timing(monotonic_s, asyncio.sleep, random.random, now)
        limiter = RateLimiter(timing, max_pause_s=policy.max_pause_s, sharing=sharing, concurrency=concurrency)
        bounded = replace(retries or RetryPolicy(), key_memory_s=policy.key_memory_s, longest_probe_wait_s=policy.max_pause_s)
        try:
            yield EventApi(http, limiter=limiter, policy=bounded)
        finally:
            await limiter.leave()


@dataclass(frozen=True, slots=True)
class _InThread:
    """Exchanges the shared state in a thread, so that the event loop never waits for the state DB."""

    rate: SharedRate

    async def exchange(self, write: Callable[[str, float], str | None]) -> None:
        await asyncio.to_thread(self.rate.exchange, write)


def require_service(settings: Settings) -> None:
    """Check that address and key of the service are set; report both problems at once.

    Raises:
        ConfigError: one of them is missing.
    """
    problems = []
    if not settings.base_url:
        problems.append("EVENT_API_BASE_URL is not set: the address of the service, for example https://events.example.org")
    if not settings.api_key.get_secret_value():
        problems.append("EVENT_API_KEY is not set (nor EVENT_API_KEY_FILE): the key that the service gave you")
    if problems:
        raise ConfigError("\n".join(problems), hint="`eventsync demo` needs neither: it starts a local service")


def limited_together(settings: Settings) -> str:
    """Return the name under which a rate limit is shared: service and key, without the namespace.

    The key appears as four bytes of a digest salted with the address: enough to distinguish a few keys, far too little to recover
    one.
    """
    service = service_of(settings.base_url)
    salt = hashlib.blake2b(service.encode(), digest_size=16).digest()
    key = settings.api_key.get_secret_value().encode()
    return f"{service} {hashlib.blake2b(key, digest_size=4, salt=salt).hexdigest()}"


def _log_unshared(trouble: SyncError) -> None:
    structlog.get_logger().warning("the rate limit is no longer shared with other runs", trouble=str(trouble))


@dataclass(frozen=True, slots=True)
class ServiceLists:
    """The service's lists that mappings are compiled with; `classifications` is None if the key may not read them."""

    directory: Directory
    classifications: Classifications | None

    @property
    def evidence(self) -> str:
        """A text that changes whenever the lists do; a list of channels that may not be read counts as empty."""
        known, slugs = self.directory.channels, self.directory.classifications
        channels = {} if known is None or isinstance(known, _ForbiddenList) else known
        return json.dumps([sorted(channels.items()), None if slugs is None else sorted(slugs)])


class _ForbiddenList(Mapping[str, int]):
    """A list that the key may not read: every access raises the refusal. Mappings with channel ids do not access it."""

    def __init__(self, refusal: SyncError) -> None:
        self._refusal = refusal

    def _refuse(self, *_slug: str) -> NoReturn:
        raise self._refusal

    __getitem__ = __iter__ = __len__ = _refuse


async def ask_lists(api: EventApi) -> ServiceLists:
    """Ask the service for its channels and classifications.

    If the key may not list channels, only looking a slug up raises the refusal. Without the classifications, the service itself
    refuses unknown ones.

    Raises:
        SyncError: the service cannot be reached, refuses the key, or is not an Event Publishing service.
    """
    channels: Mapping[str, int]
    classifications: Classifications | None
    try:
        channels = await api.channels()
    except (ScopeMissingError, RequestRefusedError) as refusal:
        channels = _ForbiddenList(refusal)
    try:
        classifications = await api.classifications()
    except (ScopeMissingError, RequestRefusedError):
        classifications = None
    slugs = classifications.slugs if classifications else None
    return ServiceLists(Directory(channels=channels, classifications=slugs), classifications)


class ListMemory:
    """The classifications that runs at one destination have read: each version once, and the last list of each feed."""

    def __init__(self, notes: ServiceNotes) -> None:
        self._notes = notes

    def version(self, version: str) -> Classifications | None:
        """Return the list of a version, None if no run has read it."""
        return self._notes.read_as(f"classifications of {version}", _LIST)

    def last_read_by(self, feed: FeedName) -> Classifications | None:
        """Return the list that the feed's last run read, None if none did."""
        return self._notes.read_as(f"classifications told to {feed}", _LIST)

    def note(self, mapping: FeedMapping, now: Classifications) -> str:
        """Store the list of this run; return how it changed since the feed's last run, "" if it did not."""
        before = self.last_read_by(mapping.feed)
        if before == now:
            return ""
        for name in (f"classifications told to {mapping.feed}", f"classifications of {now.version}"):
            self._notes.write_as(name, _LIST, now)
        return "" if before is None else change_between(before, now, mapping)


def note_headers(notes: ServiceNotes, feed: FeedName, headers: Mapping[str, str]) -> list[str]:
    """Store the header text from which each column of a feed was read; return a sentence for each that has changed."""
    name, known = f"columns of {feed}", TypeAdapter(dict[str, str])
    before = notes.read_as(name, known) or {}
    if headers.items() <= before.items():
        return []
    notes.write_as(name, known, {**before, **headers})
    return [
        f'the column "{column}" is now read from "{text}", and was read from "{before[column]}": check that it means the same'
        for column, text in sorted(headers.items())
        if before.get(column, text) != text
    ]


def change_between(before: Classifications, now: Classifications, mapping: FeedMapping) -> str:
    """Return as a sentence how the classifications differ, and which slugs of a mapping no longer exist."""
    sent = outgoing_of(mapping).fields.get("classifications")
    named = {str(value) for value in (sent.item.values if sent and sent.item else ())}
    new = sorted(now.slugs - before.slugs)
    gone = [f"{slug} (now {near}?)" if (near := nearest(slug, new)) else slug for slug in sorted(before.slugs - now.slugs)]
    lost = sorted(named - now.slugs)
    version = (
        f"from {before.version} to {now.version}" if before.version != now.version else f"but kept the version {now.version}"
    )
    parts = (
        f"the list of classifications changed {version}",
        f"gone: {_first(gone)}" if gone else "",
        f"new: {_first(new)}" if new else "",
        f"this mapping uses {_first(lost)}: such rows are rejected until it is corrected" if lost else "",
    )
    return "; ".join(filter(None, parts))


def _first(slugs: Sequence[str]) -> str:
    more = [f"and {len(slugs) - _SHOWN} more"] if len(slugs) > _SHOWN else []
    return ", ".join([*slugs[:_SHOWN], *more])
