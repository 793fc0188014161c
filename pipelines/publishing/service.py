"""The way to the service for one run: an open client, and the lists that mappings are resolved against.

What is asked over it is `connectors.event_api`'s.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime

from connectors.crowding import Crowd
from connectors.errors import RequestRefusedError, ScopeMissingError
from connectors.event_api.client import EventApi
from connectors.event_api.http import Passage, open_http
from connectors.event_api.listing import Classifications
from connectors.event_api.watched import Seen
from connectors.pacing import OpenSharing, Pacer
from connectors.pauses import Patience
from connectors.retry import RetryPolicy
from connectors.surroundings import Surroundings
from mappings.engine import Directory
from mappings.errors import ConfigError, SyncError
from mappings.spec.feed import PublishPolicy
from pipelines.clock import monotonic_s, now
from pipelines.settings import Settings

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
    sharing: OpenSharing | None = None,
    manner: Manner = _USUAL,
) -> AsyncIterator[EventApi]:
    """Open a client of the configured service, with the feed's patience and number of requests in flight.

    Each request goes through `passage`, which may hold it back; `sharing` opens the pace that other workers share.
    It is insisted upon as `manner` says, but never beyond the feed's trust in the service's memory of keys.

    Raises:
        ConfigError: the address or the key is missing or cannot be used.
    """
    require_service(settings)
    async with open_http(settings.base_url, settings.api_key, in_flight=policy.most_in_flight) as http:
        http.passage = passage
        if manner.seen is not None:
            http.watch(manner.seen)
        patience = Patience(max_pause_s=policy.max_pause_s)
        crowd = Crowd(policy.most_in_flight, adapts=policy.in_flight == "auto")
        pacer = Pacer(
            Surroundings(monotonic_s, asyncio.sleep, random.random, manner.now), patience=patience, sharing=sharing, crowd=crowd
        )
        bounded = replace(manner.retries, key_memory_s=policy.key_memory_s, longest_probe_wait_s=policy.max_pause_s)
        try:
            yield EventApi(http, pacer=pacer, policy=bounded, now=manner.now, sleep=asyncio.sleep, random=random.random)
        finally:
            pacer.leave()


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
class Told:
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


async def ask_lists(api: EventApi) -> Told:
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
    return Told(Directory(channels=channels, classifications=told.slugs if told else None), told)


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
