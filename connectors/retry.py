"""One retry policy for everything that goes over the network: bounded in attempts and in time, full jitter between.

What deserves another attempt is the caller's knowledge; how requests of one route share its rate is `pacing`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_result

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
        """Tell whether attempt n was the last, or waiting for the next one would overrun the budget."""
        return attempt >= self.attempts or elapsed_s + next_wait_s > self.budget_s


async def ask_until(
    settled: Callable[[T], bool],
    ask: Callable[[], Awaitable[T]],
    *,
    wait_s: Callable[[int, T], float],
    is_spent: Callable[[int, float], bool],
    sleep: Sleep,
) -> T:
    """Await `ask` until its answer is `settled`, or until `is_spent`; returns the last answer either way.

    `wait_s(attempt, answer)` names the wait after an unsettled answer; `is_spent(attempt, next_wait_s)` ends the asking.
    """
    first = await ask()
    if settled(first):  # nearly always: one row in many thousands pays for the machinery below
        return first
    asked = [first]

    async def once() -> T:
        return asked.pop() if asked else await ask()

    retrying = AsyncRetrying(sleep=sleep, **_rules(settled, wait_s, is_spent))
    return await retrying(once)


def ask_again_until(
    settled: Callable[[T], bool],
    ask: Callable[[], T],
    *,
    wait_s: Callable[[int, T], float],
    is_spent: Callable[[int, float], bool],
    sleep: Callable[[float], None],
) -> T:
    """Do the same as `ask_until` where nobody else is kept waiting."""
    return Retrying(sleep=sleep, **_rules(settled, wait_s, is_spent))(ask)


def _rules(
    settled: Callable[[T], bool], wait_s: Callable[[int, T], float], is_spent: Callable[[int, float], bool]
) -> dict[str, Any]:
    """Say what both ways of asking have in common, as tenacity calls it."""
    return {
        "wait": lambda state: wait_s(state.attempt_number, _answer(state)),
        "stop": lambda state: is_spent(state.attempt_number, state.upcoming_sleep),
        "retry": retry_if_result(lambda answer: not settled(answer)),
        "retry_error_callback": _answer,
    }


def _answer(state: RetryCallState) -> Any:
    return state.outcome.result() if state.outcome is not None else None
