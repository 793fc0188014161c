"""One running sandbox, and the steps of every public request: API key, rate limit, idempotency key."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, Protocol

from starlette.requests import Request

from sandbox.answers import ApiError, Fault, Headers, Reply, Wire, draw_fault, invalid, new_request_id, retry_after
from sandbox.store import (
    ALL_SCOPES,
    CHANNELS,
    DEFAULT_KEY,
    OWNER,
    ApiKey,
    Attempt,
    Channel,
    Store,
    digest_of,
    make_key,
    open_database,
    seed_keys,
)
from sandbox.switches import Rate, RateHeaders, RateKind, Switches

HEADER: Final = "Idempotency-Key"
_KEY_MAX_CHARS: Final = 255
_SOON_S: Final = 0.2
RouteName = Literal["channels", "classifications", "events", "events_list", "media", "openapi"]
"""The public routes, by their names in limits, idempotency and audit; `events` is POST, `events_list` GET."""
Slot = tuple[str, str, str]
"""The scope of one idempotency key: the API key's name, the route, the key."""


def read_key(headers: Mapping[str, str]) -> str:
    """Return the request's idempotency key, "" without one. Raises ApiError 400 if it is blank or too long."""
    key = headers.get(HEADER)
    if key is not None and not key.strip():
        raise invalid(HEADER, "must not be blank")
    if key is not None and len(key) > _KEY_MAX_CHARS:
        raise invalid(HEADER, f"must not be longer than {_KEY_MAX_CHARS} characters")
    return key or ""


class Meter(Protocol):
    """Limits the requests of one key; `left`: how many more are admitted at once."""

    left: float

    def take(self, now: float) -> float:
        """Return 0 if the request is admitted, otherwise the seconds until one will be."""


class TokenBucket:
    """A token bucket: fills steadily up to `burst` tokens; a request takes one."""

    def __init__(self, rate: Rate, burst: int) -> None:
        self._per_s = rate.count / rate.period_s
        self._burst = self.left = float(burst or max(1, math.floor(self._per_s)))
        self._at = -math.inf

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        # The tiny addition admits a client that waits exactly as long as asked, in spite of rounding.
        self.left = min(self._burst, self.left + max(0.0, now - self._at) * self._per_s + 1e-9)
        self._at = now
        if self.left < 1:
            return (1 - self.left) / self._per_s
        self.left -= 1
        return 0


class FixedWindow:
    """A fixed window: `count` requests per period of the clock; unused ones are lost."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._window = -1
        self.left = 0.0

    def take(self, now: float) -> float:
        """Return 0, or the seconds until the next window begins."""
        window = int(now // self._rate.period_s)
        if window != self._window:
            self._window, self.left = window, self._rate.count
        if not self.left:
            return (window + 1) * self._rate.period_s - now
        self.left -= 1
        return 0


class SlidingWindow:
    """A sliding window: `count` requests within the length of any period."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._taken: deque[float] = deque()
        self.left = 0.0

    def take(self, now: float) -> float:
        """Return 0, or the seconds until the oldest counted request is a period old."""
        while self._taken and self._taken[0] <= now - self._rate.period_s:
            self._taken.popleft()
        if len(self._taken) == self._rate.count:
            self.left = 0
            return self._taken[0] + self._rate.period_s - now
        self._taken.append(now)
        self.left = self._rate.count - len(self._taken)
        return 0


METERS: Final[Mapping[RateKind, Callable[[Rate, int], Meter]]] = {
    "bucket": TokenBucket,
    "window": lambda rate, _: FixedWindow(rate),
    "sliding": lambda rate, _: SlidingWindow(rate),
}


def _limit_headers(style: RateHeaders, rate: Rate, left: int, wait_s: float) -> Headers:
    reset_s = math.ceil(wait_s) or rate.period_s
    if style == "x-ratelimit":
        values = {"Limit": rate.count, "Remaining": left, "Reset": reset_s}
        return tuple((f"X-RateLimit-{name}", str(value)) for name, value in values.items())
    if style == "ratelimit":  # draft-ietf-httpapi-ratelimit-headers
        policy = ("RateLimit-Policy", f'"default";q={rate.count};w={rate.period_s}')
        return policy, ("RateLimit", f'"default";r={left};t={reset_s}')
    return ()


@dataclass(frozen=True, slots=True)
class Environment:
    """The clock (seconds since the epoch) and the sleep (seconds) of a sandbox."""

    clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(slots=True)
class RequestContext:
    """One public request with its audit line and its rate limit headers, both filled in during its handling."""

    request: Request
    attempt: Attempt
    limit_headers: Headers = ()


class Sandbox:
    """One sandbox. `switches` may be replaced while it runs; `api_key` is the default key's secret."""

    def __init__(self, store: Store, switches: Switches, api_key: str, environment: Environment) -> None:
        self.switches = switches
        self.api_key = api_key
        self.environment = environment
        self.store = store
        self.wire = Wire()
        self.in_progress: set[Slot | None] = set()  # in memory only: a crash ends this work
        self._attempts: Counter[str] = Counter()
        self.channels: dict[int, Channel] = {}
        self.keys: dict[str, ApiKey] = {}
        self._meters: dict[str, tuple[tuple[RateKind, Rate, int], Meter]] = {}
        # Seed a new database; in an existing one, replace the default key if its secret has changed.
        default = make_key(DEFAULT_KEY, OWNER, self.api_key, ALL_SCOPES)
        known = {key.name: key for key in self.store.api_keys()}
        with self.store.transaction():
            if not known:
                self._seed()
            elif known[DEFAULT_KEY].digest != default.digest:
                self.store.put_key(default)
        self.read_access()

    def begin(self, request: Request, route: RouteName) -> RequestContext:
        """Create the context of a new request."""
        key = request.headers.get(HEADER, "")
        attempt = Attempt(self.environment.clock(), new_request_id(), route, idempotency_key=key)
        return RequestContext(request, attempt)

    def admit(self, context: RequestContext, scope: str) -> ApiKey:
        """Return the caller's key and count its request; `scope` "none" needs no scope. Raises ApiError 401, 403 or 429."""
        scheme, _, secret = context.request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise ApiError("invalid_api_key", "Send the API key as `Authorization: Bearer <API_KEY>`.")
        key = self._by_digest.get(digest_of(secret.strip()))
        if key is None:
            raise ApiError("invalid_api_key", "This API key is not known.")
        if key.state != "active":
            raise ApiError("invalid_api_key", f"This API key is {key.state}.")
        context.attempt.key_name = key.name
        if scope != "none" and scope not in key.scopes:
            raise ApiError("insufficient_scope", f"This API key lacks the scope {scope}.")
        if context.attempt.route == "events":
            self._count(context)
        return key

    def _count(self, context: RequestContext) -> None:
        """Count the request against the limit of its key, with a new meter if the limit was switched. Raises ApiError 429."""
        attempt, switches = context.attempt, self.switches
        rate = switches.rate_events
        if rate is None:
            return
        name, policy = attempt.key_name, (switches.rate_kind, rate, switches.rate_burst)
        if name not in self._meters or self._meters[name][0] != policy:
            self._meters[name] = policy, METERS[switches.rate_kind](rate, switches.rate_burst)
        meter = self._meters[name][1]
        wait_s = meter.take(attempt.at)
        headers = _limit_headers(switches.rate_headers, rate, int(meter.left), wait_s)
        if wait_s > 0:
            message = f"The limit of {rate} on this route is used up. Wait, then send the same request again."
            raise ApiError("rate_limited", message, headers=(*headers, *retry_after(switches.retry_after, wait_s, attempt.at)))
        context.limit_headers = headers

    def stored_answer(self, slot: Slot, digest: bytes, now: float) -> Reply | None:
        """Return the answer that is stored under an idempotency key, None for a new key. Raises ApiError 409."""
        switches = self.switches
        if slot in self.in_progress:
            is_named = switches.in_progress == "retry_after"
            headers = retry_after(switches.retry_after, _SOON_S, now) if is_named else ()
            raise ApiError("conflict", "The first request with this Idempotency-Key is still in progress.", headers=headers)
        stored = self.store.stored_answer(slot)
        if stored is None or (switches.idempotency_memory_s and now - stored.at >= switches.idempotency_memory_s):
            return None
        if switches.idempotency == "refuse":
            raise ApiError("conflict", "This Idempotency-Key was used before.")
        if stored.digest != digest:
            raise ApiError("conflict", "This Idempotency-Key was used before with another body.")
        return stored.answer

    def draw_fault(self, name: str) -> Fault | None:
        """Return the fault of the next attempt of a request `name` (route, and idempotency key or digest of the body)."""
        if not self.switches.fault_per_mille:
            return None
        self._attempts[name] += 1
        return draw_fault(name, self._attempts[name], self.switches)

    def end(self, context: RequestContext, answer: Reply) -> None:
        """Write the request's audit line, unless it was written with its work."""
        attempt = context.attempt
        if attempt.outcome == "":
            attempt.outcome = "refused" if answer.code else "answered"
            self.record(attempt, answer)

    def record(self, attempt: Attempt, answer: Reply) -> None:
        """Write the audit line of a request with its answer."""
        attempt.status, attempt.code = answer.status, answer.code
        self.store.add_attempt(attempt)

    def check_channel(self, key: ApiKey, channel_id: int) -> None:
        """Check that the key's owner may use the channel. Raises ApiError 404 or 403."""
        channel = self.channels.get(channel_id)
        if channel is None:
            raise ApiError("not_found", f"There is no channel {channel_id}.")
        if key.owner not in channel.owners:
            raise ApiError("forbidden", f"The owner of this API key has no access to channel {channel_id}.")

    def channels_of(self, key: ApiKey) -> list[Channel]:
        """Return the channels that the key's owner may use, by id."""
        return [channel for channel in self.channels.values() if key.owner in channel.owners]

    def read_access(self) -> None:
        """Read access to channels and API keys again, after a change."""
        access = self.store.access()
        owners = {one.id: frozenset(owner for owner, channel_id in access if channel_id == one.id) for one in CHANNELS}
        self.channels = {one.id: replace(one, owners=owners[one.id]) for one in CHANNELS}
        self.keys = {key.name: key for key in self.store.api_keys()}
        self._by_digest = {key.digest: key for key in self.keys.values()}

    async def pause(self, wait_ms: int) -> None:
        """Wait for a switch's number of milliseconds; 0 does not wait."""
        if wait_ms:
            await self.environment.sleep(wait_ms / 1000)

    def reset(self) -> None:
        """Delete everything that callers created, and restore the seed's keys and access. Switches and added keys stay."""
        with self.store.transaction():
            self.store.clear()
            self._seed()
        self._meters.clear()
        self._attempts.clear()
        self.read_access()

    def close(self) -> None:
        """Close the database; may be called twice."""
        self.store.close()

    def _seed(self) -> None:
        for channel in CHANNELS:
            for owner in channel.owners:
                self.store.set_access(owner, channel.id, is_allowed=True)
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
