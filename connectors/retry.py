"""Retry with exponential backoff and full jitter, and what answers say of waiting: `Retry-After`, HTTP dates, rate headers.

Every form is read or left, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import inf
from time import monotonic
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_result

T = TypeVar("T")
Clock = Callable[[], float]
"""Seconds on a clock that never goes back."""
Sleep = Callable[[float], Awaitable[None]]
"""Waits that many seconds without holding up other tasks."""
Random = Callable[[], float]
"""A number from 0 up to, not including, 1."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to insist. `attempts` counts all, the first included; `budget_s` bounds the whole, waits included.

    The wait before attempt n + 1 is drawn evenly from 0 to `first_wait_s` times `growth` to the power n - 1, at most
    `longest_wait_s` (exponential backoff with full jitter). `attempt_s` bounds one attempt from its first byte sent to
    its last byte read; `at_work_s` is how long after its start an attempt that we lost sight of may still be at work on the
    other side. `key_memory_s`: no request leaves later than that after the first one under its key that was not
    answered, as the other side may have forgotten the key by then. `longest_probe_wait_s` bounds a wait while the circuit
    breaker is open.
    """

    attempts: int = 6
    budget_s: float = 120.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    growth: float = 2.0
    longest_probe_wait_s: float = 900.0
    attempt_s: float = 90.0
    at_work_s: float = 20.0
    key_memory_s: float = inf

    def wait_s(self, attempt: int, random: Random) -> float:
        """Return the wait in seconds after the `attempt`-th attempt, counted from 1."""
        ceiling: float = min(self.longest_wait_s, self.first_wait_s * self.growth ** min(attempt - 1, 60))
        return ceiling * random()

    @property
    def probing(self) -> RetryPolicy:
        """The policy of the one row that is sent while the circuit breaker is open: as many attempts, over a longer time."""
        return replace(self, growth=self.growth * 1.5, longest_wait_s=self.longest_probe_wait_s)

    def is_spent(self, attempt: int, elapsed_s: float, next_wait_s: float) -> bool:
        """Return whether attempt n was the last, or waiting for the next one would overrun the budget."""
        return attempt >= self.attempts or elapsed_s + next_wait_s > self.budget_s


async def ask_until(
    is_settled: Callable[[T], bool],
    ask: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    sleep: Sleep,
    random: Random,
    clock: Clock = monotonic,
) -> T:
    """Await `ask` until its answer is settled or the policy is spent; return the last answer either way."""
    began = clock()

    def answer(state: RetryCallState) -> Any:
        return state.outcome.result() if state.outcome is not None else None

    async def once() -> T:  # tenacity awaits only what it knows to be a coroutine function
        return await ask()

    return await AsyncRetrying(
        sleep=sleep,
        wait=lambda state: policy.wait_s(state.attempt_number, random),
        stop=lambda state: policy.is_spent(state.attempt_number, clock() - began, state.upcoming_sleep),
        retry=retry_if_result(lambda result: not is_settled(result)),
        retry_error_callback=answer,
    )(once)


def http_date(text: str) -> datetime | None:
    """Return the instant that a date names, in UTC; None where it is none. One without a zone means UTC: HTTP knows no other."""
    try:
        found = parsedate_to_datetime(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_FAR_FUTURE_S = 366 * 86_400.0
_WITHIN_THE_SECOND = timedelta(seconds=1)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that `Retry-After` asks for, None where it is absent, negative or garbage.

    Seconds may have a fraction; an HTTP date in any of its three forms (RFC 9110, 5.6.7) is measured from `now` where that
    agrees with the answer's own `Date`, which knows whole seconds only, and else from that: a clock that is wrong, theirs
    or ours, does not matter. Where there is neither, a date says nothing. Of several headers, which arrive as one joined by
    commas, the longest wait counts. Absurd values are cut to a year, which is never waited for.
    """
    text = headers.get("retry-after", "").strip()
    seconds = [one.strip() for one in text.split(",")]
    if all(_SECONDS.fullmatch(one) for one in seconds):
        return min(max(map(float, seconds)), _FAR_FUTURE_S)
    until, dated = http_date(text), http_date(headers.get("date", "")) or now
    if until is None or dated is None:
        return None
    since = now if now is not None and dated <= now < dated + _WITHIN_THE_SECOND else dated
    return min(max((until - since).total_seconds(), 0.0), _FAR_FUTURE_S)


_MOMENT_S = 1.0
"""A reset of so many seconds may be any moment, rounded up: the even pace bridges it."""


@dataclass(frozen=True, slots=True)
class RateHint:
    """`limit` requests in each window, of which `remaining` are left until `reset_s` from now; None where it is not stated."""

    limit: float
    remaining: float | None
    reset_s: float | None
    window_s: float | None

    @property
    def rest_s(self) -> float:
        """How long to wait because nothing is left; 0.0 where something is, or where it is back in a moment."""
        return self.reset_s if self.reset_s is not None and self.remaining == 0 and self.reset_s > _MOMENT_S else 0.0


_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?")
_EPOCH_S = 1e9
"""A reset beyond it is a time of day in seconds since 1970, and beyond a thousand times it in milliseconds."""
_LONGEST_WINDOW_S = 86_400.0
_ROUNDED_S = 1.0
"""How far two ways to write one moment may be apart: each is cut or rounded up to whole seconds."""


def rate_hint(headers: Mapping[str, str], now: datetime) -> RateHint | None:
    """Return what the headers of one answer state, None where they state nothing, or nothing that makes sense.

    `headers` has lower-case names. Read are `RateLimit` with `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-08
    and later), its older form of `RateLimit-Limit`, `-Remaining` and `-Reset`, and the same three as `X-RateLimit-...`,
    whose reset may be a time of day. Of several limits the one with the lowest rate counts. A limit that is used up for longer
    than the same answer's `Retry-After` asks to wait makes no sense: `Retry-After` is obeyed as it is written.
    """
    if "ratelimit-policy" in headers or "ratelimit" in headers:
        hint = _structured(headers)
    else:
        prefixes = ("ratelimit-", "x-ratelimit-", "x-rate-limit-")
        prefix = next((one for one in prefixes if f"{one}limit" in headers), None)
        hint = _three(headers, prefix, now.timestamp()) if prefix else None
    asked_s = retry_after_s(headers, now) if hint is not None else None
    is_contradicted = hint is not None and asked_s is not None and hint.rest_s > asked_s + _ROUNDED_S
    return None if is_contradicted else hint


def _structured(headers: Mapping[str, str]) -> RateHint | None:
    """Read `RateLimit-Policy: "default";q=100;w=60` and `RateLimit: "default";r=50;t=30`."""
    policies = [item for item in _items(headers.get("ratelimit-policy", "")) if item[1].get("q") and item[1].get("w")]
    if not policies:
        return None
    name, policy = min(policies, key=lambda item: item[1]["q"] / item[1]["w"])
    left = dict(_items(headers.get("ratelimit", ""))).get(name, {})
    return _sane(policy["q"], left.get("r"), left.get("t"), policy["w"])


def _three(headers: Mapping[str, str], prefix: str, now_s: float) -> RateHint | None:
    """Read `RateLimit-Limit: 100, 100;w=60` with `-Remaining` and `-Reset`; what follows the first number may be left out."""
    limit, remaining, reset = (
        float(text) if _NUMBER.fullmatch(text) else None
        for text in (re.split("[,;]", headers.get(f"{prefix}{name}", ""))[0].strip() for name in ("limit", "remaining", "reset"))
    )
    window = next((one["w"] for _, one in _items(headers[f"{prefix}limit"]) if one.get("w")), None)
    if reset is not None and reset > _EPOCH_S:
        reset = max((reset / 1000 if reset > _EPOCH_S * 1000 else reset) - now_s, 0.0)
    return _sane(limit, remaining, reset, window)


def _items(text: str) -> list[tuple[str, dict[str, float]]]:
    """Return the items of a list with their numeric parameters (RFC 9651, 3.1)."""
    found = []
    for item in text.split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append((name, {key: float(value) for key, _, value in pairs if _NUMBER.fullmatch(value)}))
    return found


def _sane(limit: float | None, remaining: float | None, reset_s: float | None, window_s: float | None) -> RateHint | None:
    length_s = window_s or reset_s
    if not limit or limit < 1 or not length_s or length_s > _LONGEST_WINDOW_S or (remaining or 0) > limit:
        return None
    return RateHint(limit, remaining, None if reset_s is None else min(reset_s, _LONGEST_WINDOW_S), window_s)
