"""Rate limits, one meter per route and API key: token bucket, fixed window or sliding window."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final, Protocol, assert_never

from sandbox.answers import ApiError
from sandbox.switches import DateStyle, Rate, RateHeaders, RateKind, RetryAfterStyle, Switches

_NONSENSE: Final = {"garbage": "soon", "negative": "-1", "absurd": "31536000"}


@dataclass(frozen=True, slots=True)
class Policy:
    """One limit and how it is counted. `burst`: the tokens of a full bucket."""

    kind: RateKind
    rate: Rate
    burst: int


class Meter(Protocol):
    """Counts the requests of one route and key."""

    def take(self, now: float) -> float:
        """Return 0 if the request is admitted, otherwise the seconds until one would be."""

    def left(self, now: float) -> int:
        """Return how many requests would be admitted at once."""


class TokenBucket:
    """Fills steadily up to `burst` tokens; a request takes one."""

    def __init__(self, rate: Rate, burst: int) -> None:
        self._per_s = rate.count / rate.period_s
        self._burst = float(burst or max(1, math.floor(self._per_s)))
        self._tokens = self._burst
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._fill(now)
        if self._tokens >= 1:
            self._tokens -= 1
            return 0
        return (1 - self._tokens) / self._per_s

    def left(self, now: float) -> int:
        """Return the whole tokens in the bucket."""
        self._fill(now)
        return int(self._tokens)

    def _fill(self, now: float) -> None:
        # The tiny addition lets a client that waits exactly as long as asked find a whole token.
        passed = max(0.0, now - self._at) if self._at is not None else 0.0
        self._tokens = min(self._burst, self._tokens + passed * self._per_s + 1e-9)
        self._at = now


class FixedWindow:
    """`count` requests in each period of the clock; unused ones are lost when the next one begins."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._window = -1
        self._used = 0

    def take(self, now: float) -> float:
        """Return 0, or the seconds until the next window begins."""
        self._advance(now)
        if self._used < self._rate.count:
            self._used += 1
            return 0
        return (self._window + 1) * self._rate.period_s - now

    def left(self, now: float) -> int:
        """Return the requests left in this window."""
        self._advance(now)
        return self._rate.count - self._used

    def _advance(self, now: float) -> None:
        window = int(now // self._rate.period_s)
        if window != self._window:
            self._window, self._used = window, 0


class SlidingWindow:
    """`count` requests in any stretch of one period's length."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._taken: deque[float] = deque()

    def take(self, now: float) -> float:
        """Return 0, or the seconds until the oldest counted request is a period old."""
        self._forget(now)
        if len(self._taken) < self._rate.count:
            self._taken.append(now)
            return 0
        return self._taken[0] + self._rate.period_s - now

    def left(self, now: float) -> int:
        """Return the requests left at this instant."""
        self._forget(now)
        return self._rate.count - len(self._taken)

    def _forget(self, now: float) -> None:
        while self._taken and self._taken[0] <= now - self._rate.period_s:
            self._taken.popleft()


class Limiter:
    """All meters of a sandbox. A meter starts again when its policy is switched."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, str], tuple[Policy, Meter]] = {}

    def admit(self, route: str, key_name: str, rate: Rate | None, switches: Switches, now: float) -> tuple[tuple[str, str], ...]:
        """Count one request and return the rate limit headers. Raises ApiError 429 with `Retry-After`."""
        if rate is None:
            return ()
        meter = self._meter((route, key_name), Policy(switches.rate_kind, rate, switches.rate_burst))
        wait_s = meter.take(now)
        headers = _limit_headers(switches.rate_headers, rate, meter.left(now), wait_s)
        if wait_s <= 0:
            return headers
        refusal = ApiError(
            "rate_limited", f"The limit of {rate} on this route is used up. Wait, then send the same request again."
        )
        refusal.headers = (*headers, *retry_after(switches.retry_after, wait_s, now))
        raise refusal

    def reset(self) -> None:
        """Forget every count."""
        self._meters.clear()

    def _meter(self, slot: tuple[str, str], policy: Policy) -> Meter:
        held = self._meters.get(slot)
        if held is None or held[0] != policy:
            held = self._meters[slot] = (policy, _meter_of(policy))
        return held[1]


def _meter_of(policy: Policy) -> Meter:
    match policy.kind:
        case "bucket":
            return TokenBucket(policy.rate, policy.burst)
        case "window":
            return FixedWindow(policy.rate)
        case "sliding":
            return SlidingWindow(policy.rate)


def retry_after(style: RetryAfterStyle, wait_s: float, now: float) -> tuple[tuple[str, str], ...]:
    """Return the `Retry-After` header for a wait of `wait_s` seconds from `now`, as the switch says; () where it is absent."""
    match style:
        case "absent":
            return ()
        case "seconds":
            text = str(math.ceil(wait_s))
        case "fraction":
            text = f"{math.ceil(wait_s * 1000) / 1000:.3f}"
        case "date" | "rfc850_date" | "asctime_date":
            text = _date(style, math.ceil(now + wait_s))
        case "several":
            return (("Retry-After", "0"), ("Retry-After", str(math.ceil(wait_s))))
        case "garbage" | "negative" | "absurd":
            text = _NONSENSE[style]
        case _:
            assert_never(style)
    return (("Retry-After", text),)


def _date(style: DateStyle, at: int) -> str:
    """Return a time in one of the three forms of an HTTP date (RFC 9110, 5.6.7)."""
    match style:
        case "date":
            return formatdate(at, usegmt=True)
        case "rfc850_date":
            return time.strftime("%A, %d-%b-%y %H:%M:%S GMT", time.gmtime(at))
        case "asctime_date":
            return time.asctime(time.gmtime(at))


def _limit_headers(style: RateHeaders, rate: Rate, left: int, wait_s: float) -> tuple[tuple[str, str], ...]:
    reset_s = math.ceil(wait_s) or rate.period_s
    match style:
        case "none":
            return ()
        case "x-ratelimit":
            return (
                ("X-RateLimit-Limit", str(rate.count)),
                ("X-RateLimit-Remaining", str(left)),
                ("X-RateLimit-Reset", str(reset_s)),
            )
        case "ratelimit":  # draft-ietf-httpapi-ratelimit-headers
            return (
                ("RateLimit-Policy", f'"default";q={rate.count};w={rate.period_s}'),
                ("RateLimit", f'"default";r={left};t={reset_s}'),
            )
