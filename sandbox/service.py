"""One running sandbox: its parts, and the steps that every public request goes through."""

from __future__ import annotations

import asyncio
import secrets
import time
import zoneinfo
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from starlette.requests import Request

from sandbox.answers import Answer, ApiError
from sandbox.faults import FaultPlan, Wire
from sandbox.idempotency import HEADER as KEY_HEADER
from sandbox.idempotency import IdempotencyKeys
from sandbox.limits import Limiter
from sandbox.store import (
    ALL_SCOPES,
    CHANNELS,
    DEFAULT_KEY,
    OWNER,
    ApiKey,
    Attempt,
    Channel,
    Keyring,
    Store,
    classifications,
    make_key,
    open_database,
    seed_keys,
)
from sandbox.switches import Rate, Switches
from sandbox.validation import Rules

RouteName = Literal["channels", "classifications", "events", "events_list", "media", "openapi"]
"""The public routes, as limits, idempotency and audit name them; `events` is POST, `events_list` GET."""

_SLUGS: Final = {
    "first": frozenset(one.slug for one in classifications("first")[1]),
    "revised": frozenset(one.slug for one in classifications("revised")[1]),
}


@dataclass(frozen=True, slots=True)
class Environment:
    """What a sandbox is given: clock (seconds since the epoch), sleep (seconds), request ids, connections."""

    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    new_request_id: Callable[[], str] = lambda: f"req_{secrets.token_hex(10)}"
    wire: Wire = field(default_factory=Wire)


@dataclass(slots=True)
class RequestContext:
    """One public request with its audit line and its rate limit headers, both filled in on the way."""

    request: Request
    route: RouteName
    attempt: Attempt
    limit_headers: tuple[tuple[str, str], ...] = ()


class Sandbox:
    """The parts of one sandbox. `switches` may be replaced while it runs; `api_key` is the default key's secret."""

    def __init__(self, store: Store, switches: Switches, api_key: str, environment: Environment) -> None:
        self.switches = switches
        self.api_key = api_key
        self.environment = environment
        self.store = store
        self.idempotency_keys = IdempotencyKeys(store)
        self.limiter = Limiter()
        self.fault_plan = FaultPlan()
        self.channels: dict[int, Channel] = {}
        self.keyring = Keyring(())
        self._zones = frozenset(zoneinfo.available_timezones())
        self._seed_if_new()

    @property
    def rules(self) -> Rules:
        """The rules for payloads under the switches of this moment."""
        return Rules(_SLUGS[self.switches.classification_list], self._zones, self.store.image_ids, self.switches)

    def begin(self, request: Request, route: RouteName) -> RequestContext:
        """Return the context of a request that has just come in."""
        attempt = Attempt(self.environment.clock(), self.environment.new_request_id(), route)
        attempt.idempotency_key = request.headers.get(KEY_HEADER, "")
        return RequestContext(request, route, attempt)

    def admit(self, context: RequestContext, scope: str) -> ApiKey:
        """Return the caller's key and count its request; `scope` "none" requires none. Raises ApiError 401, 403 or 429."""
        key = self.keyring.bearer(context.request.headers.get("authorization"), context.attempt.at)
        context.attempt.key_name = key.name
        if scope != "none" and scope not in key.scopes:
            raise ApiError(self.switches.missing_scope, f"This API key lacks the scope {scope}.")
        self.count(context)
        return key

    def count(self, context: RequestContext) -> None:
        """Count the request against its route's limit. Raises ApiError 429."""
        attempt, rate = context.attempt, _rate(context.route, self.switches)
        context.limit_headers = self.limiter.admit(attempt.route, attempt.key_name, rate, self.switches, attempt.at)

    def end(self, context: RequestContext, answer: Answer) -> None:
        """Write the request's audit line, unless it was written with its work."""
        attempt = context.attempt
        if attempt.outcome == "":
            attempt.outcome = "refused" if answer.code else "answered"
            self.record(attempt, answer)

    def record(self, attempt: Attempt, answer: Answer) -> None:
        """Write the audit line of a request with its answer."""
        attempt.status, attempt.code = answer.status, answer.code
        self.store.add_attempt(attempt)

    def channel_for(self, key: ApiKey, channel_id: int) -> Channel:
        """Return the channel, if the key's owner may use it now. Raises ApiError as the switches say."""
        channel = self.channels.get(channel_id)
        if channel is None:
            field = "channelId" if self.switches.channel_unknown == "invalid_request" else ""
            raise ApiError(
                self.switches.channel_unknown, f"There is no channel {channel_id}.", field=field, issue="no such channel"
            )
        if key.owner not in channel.owners:
            raise ApiError(self.switches.channel_denied, f"The owner of this API key has no access to channel {channel_id}.")
        return channel

    def channels_of(self, key: ApiKey) -> list[Channel]:
        """Return the channels that the key's owner may use now, by id."""
        return [channel for channel in self.channels.values() if key.owner in channel.owners]

    def read_access(self) -> None:
        """Read channels, access and API keys again, after they were changed."""
        self.channels = {channel.id: channel for channel in self.store.channels()}
        self.keyring = Keyring(self.store.api_keys())

    async def pause(self, wait_ms: int) -> None:
        """Wait as long as a switch says; 0 is no wait at all."""
        if wait_ms:
            await self.environment.sleep(wait_ms / 1000)

    def reset(self) -> None:
        """Delete what callers left, and restore the seed's keys and access. Switches and added keys stay."""
        with self.store.transaction():
            self.store.clear()
            self.store.clear_access()
            self._seed()
        self.limiter.reset()
        self.fault_plan.reset()
        self.read_access()

    def close(self) -> None:
        """Close the database; to do so twice is harmless."""
        self.store.close()

    def _seed_if_new(self) -> None:
        """Seed a new database; in an old one only replace the default key if its secret is another than last time."""
        default = make_key(DEFAULT_KEY, OWNER, self.api_key, ALL_SCOPES)
        known = {key.name: key for key in self.store.api_keys()}
        with self.store.transaction():
            if not known:
                self._seed()
            elif known[DEFAULT_KEY].digest != default.digest:
                self.store.put_key(default)
        self.read_access()

    def _seed(self) -> None:
        for channel in CHANNELS:
            self.store.add_channel(channel)
        for key in seed_keys(self.api_key):
            self.store.put_key(key)


def open_sandbox(
    state: Path | None, switches: Switches, api_key: str | None = None, environment: Environment | None = None
) -> Sandbox:
    """Open a sandbox on its state folder (None: in memory). Without an `api_key` the default key gets a new secret.

    Raises StateInUseError if another sandbox holds the folder.
    """
    secret = api_key or f"sandbox_{secrets.token_urlsafe(24)}"
    return Sandbox(Store(open_database(state)), switches, secret, environment or Environment())


def _rate(route: RouteName, switches: Switches) -> Rate | None:
    match route:
        case "events":
            return switches.rate_events
        case "media":
            return switches.rate_media
        case "openapi":
            return None
        case _:
            return switches.rate_lists
