"""Retry with exponential backoff and full jitter, and what answers say of waiting: `Retry-After` and HTTP dates."""

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
class Timing:
    """`clock` gives seconds and never goes back; `now` gives the aware time of day, only to say when to come back."""

    clock: Clock
    sleep: Sleep
    random: Random
    now: Callable[[], datetime]


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
