"""Retry with exponential backoff and full jitter; waits that answers ask for (`Retry-After`, HTTP dates); pauses of a route."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import inf
from time import monotonic
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception_type, retry_if_result

from connectors.errors import PausedError
from mappings.errors import TransientError

T = TypeVar("T")
Clock = Callable[[], float]
"""Returns seconds of a monotonic clock."""
Sleep = Callable[[float], Awaitable[None]]
"""Waits that many seconds without blocking other tasks."""
Random = Callable[[], float]
"""Returns a random number from 0 to less than 1."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Time and randomness. `clock`: monotonic seconds; `now`: the aware time of day, used only to name the time to come back."""

    clock: Clock
    sleep: Sleep
    random: Random
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of retrying. `attempts` includes the first; `budget_s` is the total time including waits.

    The wait after attempt n is random from 0 to `first_wait_s` times `growth` to the power n - 1, at most `longest_wait_s`
    (exponential backoff with full jitter). `attempt_s`: the most time for one attempt. `at_work_s`: how long an attempt without
    an answer may still be processed by the other side. `key_memory_s`: how long after the first unanswered request the other
    side remembers its key; no request is sent later. `longest_probe_wait_s`: the longest wait while the circuit breaker is
    open.
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
        """The policy of the probe while the circuit breaker is open: as many attempts, over a longer time."""
        return replace(self, growth=self.growth * 1.5, longest_wait_s=self.longest_probe_wait_s)

    def is_spent(self, attempt: int, elapsed_s: float, next_wait_s: float) -> bool:
        """Return whether this was the last attempt, or the next wait would exceed the budget."""
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
    """Repeat `ask` until its answer is conclusive or the policy is used up; return the last answer."""
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


def retry_on(
    passing: type[TransientError],
    request: Callable[[], T],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], None],
    random: Random,
    clock: Clock = monotonic,
) -> T:
    """Return what `request` returns; repeat it after a `passing` error, with the wait that the error names or a longer one.

    Raises:
        TransientError: the last one, once the policy is used up, or if it names a longer wait than the policy allows.
    """
    began = clock()

    def wait_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked_s = error.retry_after_s if isinstance(error, TransientError) else None
        return max(policy.wait_s(state.attempt_number, random), asked_s or 0.0)

    return Retrying(
        sleep=sleep,
        wait=wait_s,
        stop=lambda state: policy.is_spent(state.attempt_number, clock() - began, state.upcoming_sleep),
        retry=retry_if_exception_type(passing),
        reraise=True,
    )(request)


def http_date(text: str) -> datetime | None:
    """Parse a date to a moment in UTC, None if it is not one. A date without a zone is in UTC, as in HTTP."""
    try:
        found = parsedate_to_datetime(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_FAR_FUTURE_S = 366 * 86_400.0
_WITHIN_THE_SECOND = timedelta(seconds=1)


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds in `Retry-After`, None if it is absent, negative or invalid.

    Seconds may have a fraction. An HTTP date in any of its three forms (RFC 9110, 5.6.7) is measured from `now` if that agrees
    with the answer's own `Date` (in whole seconds), else from `Date`, so that a wrong clock on either side does not matter;
    without both it is ignored. Of several headers, joined by commas, the longest wait is used. Absurd values are cut to a year,
    which is never waited for.
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


_LONGEST_GUESS_S = 60.0  # The longest pause of our own choosing, where the service names none.
_LONGEST_DOUBT_S = 5.0  # The least pause in the end, where the service names shorter ones and then does not keep to them.


@dataclass(slots=True)
class Pause:
    """The pauses of one route in this worker. `resume_at`: the end of the last one; `count` and `total_s`: their number and
    sum.
    """

    timing: Timing
    max_pause_s: float
    resume_at: float = -inf
    is_doubtful: bool = False
    count: int = 0
    total_s: float = 0.0
    limits_in_a_row: int = 0
    limited_since: float | None = None

    def wait_s(self, asked_s: float | None) -> float:
        """Return the longest wait after the first 429 since a pause; `asked_s`: the wait that it named, if any.

        A named wait is used exactly, unless named waits were too short three times in a row. A guess is doubtful, and so is a
        wait after one that was too short.
        """
        self.limits_in_a_row += 1
        self.is_doubtful = asked_s is None or self.limits_in_a_row > 1
        ceiling = min(_LONGEST_GUESS_S, 2.0 ** min(self.limits_in_a_row - 1, 10))
        guess = ceiling * (0.5 + self.timing.random() / 2)
        if asked_s is None:
            return guess
        return max(asked_s, min(guess, _LONGEST_DOUBT_S)) if self.limits_in_a_row > 3 else asked_s

    def begin(self, now: float, until: float) -> PausedError | None:
        """Start a pause; return the error if it exceeds the feed's patience, else None."""
        if until <= self.resume_at:
            return None
        since = self.limited_since = now if self.limited_since is None else self.limited_since
        self.count += now >= self.resume_at
        self.total_s += until - max(now, self.resume_at)
        self.resume_at = until
        if until - since <= self.max_pause_s:
            return None
        resume_at = self.timing.now() + timedelta(seconds=until - now)
        so_far = f" after {now - since:.0f} s in which it let nothing through" if now > since else ""
        return PausedError(
            f"the service asks us to pause for {_in_words(until - now)}{so_far}: longer than this feed's patience "
            f"({_in_words(self.max_pause_s)})",
            hint=f"nothing is lost: run again after {resume_at:%Y-%m-%d %H:%M:%S %Z}, or raise max_pause; "
            "if that seems wrong, ask the service's support",
            resume_at=resume_at,
            retry_after_s=until - now,
        )


def _in_words(seconds: float) -> str:
    """Return a length of time for people: 45 s, 15 min, 2 h, 365 days."""
    units = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
    unit, name = next((one for one in units if seconds >= 2 * one[0]), units[-1])
    return f"{seconds / unit:.0f} {name}"
