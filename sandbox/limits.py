"""Rate limits, one meter per route and API key: token bucket, fixed window or sliding window."""

from __future__ import annotations

import math
import time
from collections import deque
from email.utils import formatdate
from typing import Protocol

from sandbox.answers import ApiError
from sandbox.switches import Rate, RateHeaders, RateKind, RetryAfterStyle, Switches


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
        self._meters: dict[tuple[str, str], tuple[tuple[RateKind, Rate, int], Meter]] = {}

    def admit(self, route: str, key_name: str, rate: Rate | None, switches: Switches, now: float) -> tuple[tuple[str, str], ...]:
        """Count one request and return the rate limit headers. Raises ApiError 429 with `Retry-After`."""
        if rate is None:
            return ()
        slot, policy = (route, key_name), (switches.rate_kind, rate, switches.rate_burst)
        if slot not in self._meters or self._meters[slot][0] != policy:
            self._meters[slot] = (policy, _new_meter(*policy))
        meter = self._meters[slot][1]
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


def _new_meter(kind: RateKind, rate: Rate, burst: int) -> Meter:
    match kind:
        case "bucket":
            return TokenBucket(rate, burst)
        case "window":
            return FixedWindow(rate)
        case "sliding":
            return SlidingWindow(rate)


def retry_after(style: RetryAfterStyle, wait_s: float, now: float) -> tuple[tuple[str, str], ...]:
    """Return the `Retry-After` header for a wait of `wait_s` seconds from `now`, as the switch says; () where it is absent."""
    seconds, at = math.ceil(wait_s), math.ceil(now + wait_s)
    texts: dict[RetryAfterStyle, tuple[str, ...]] = {
        "absent": (),
        "seconds": (str(seconds),),
        "fraction": (f"{math.ceil(wait_s * 1000) / 1000:.3f}",),
        "date": (formatdate(at, usegmt=True),),  # the three forms of an HTTP date (RFC 9110, 5.6.7)
        "rfc850_date": (time.strftime("%A, %d-%b-%y %H:%M:%S GMT", time.gmtime(at)),),
        "asctime_date": (time.asctime(time.gmtime(at)),),
        "several": ("0", str(seconds)),
        "garbage": ("soon",),
        "negative": ("-1",),
        "absurd": ("31536000",),
    }
    return tuple(("Retry-After", text) for text in texts[style])


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
