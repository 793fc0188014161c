"""The pauses of one route as this worker lives through them, and when it gives the route up.

What a pause teaches about the rate is `pace_lesson`'s; who waits for its end, `pacing`'s. Times are seconds on the worker's
own clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from connectors.errors import PausedError
from connectors.surroundings import Surroundings

_LONGEST_GUESS_S = 60.0
"""The longest pause of our own choosing, where the service names none."""
_LONGEST_DOUBT_S = 5.0
"""The least pause in the end, where the service names shorter ones and then does not keep to them."""
_FAR_FUTURE_S = 366 * 86_400.0
"""A pause that nobody will wait for; longer ones are read as this one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """When to give the whole route up: pauses longer than `max_pause_s`."""

    max_pause_s: float = 900.0


class Pauses:
    """Counts limits in a row. `resume_at` is the end of the last pause, `count` and `total_s` sum them up."""

    def __init__(self, patience: Patience, around: Surroundings, began: float) -> None:
        self._patience = patience
        self._around = around
        self.resume_at = began
        self.count = 0
        self.total_s = 0.0
        self.is_doubtful = False
        self._unbroken_limits = 0
        self._limited_since: float | None = None

    def passed(self, at: float) -> None:
        """An answer came that was no limit and no failure; during a pause it says nothing of the pause."""
        if at >= self.resume_at:
            self.is_doubtful = False
            self._unbroken_limits = 0
            self._limited_since = None

    def wait_s(self, asked_s: float | None) -> float:
        """Return how long to wait after the first 429 of a wave, which asked for `asked_s`, or named no wait.

        A named wait is obeyed exactly, until one turns out to be untrue three times in a row. Whether it is long enough is
        doubtful if it was guessed, or the one before was too short.
        """
        self._unbroken_limits += 1
        self.is_doubtful = asked_s is None or self._unbroken_limits > 1
        ceiling = min(_LONGEST_GUESS_S, 2.0 ** min(self._unbroken_limits - 1, 10))
        guess = ceiling * (0.5 + self._around.random() / 2)
        if asked_s is None:
            return guess
        return min(max(asked_s, min(guess, _LONGEST_DOUBT_S)) if self._unbroken_limits > 3 else asked_s, _FAR_FUTURE_S)

    def begin(self, now: float, until: float) -> PausedError | None:
        """Rest until then, and return why the route is given up if that is longer than anybody waits."""
        if until <= self.resume_at + 0.001:
            return None
        self._limited_since = now if self._limited_since is None else self._limited_since
        since = self._limited_since
        self.count += now >= self.resume_at
        self.total_s += until - max(now, self.resume_at)
        self.resume_at = until
        return self._paused(until - now, now - since) if until - since > self._patience.max_pause_s else None

    def _paused(self, wait_s: float, waited_s: float) -> PausedError:
        resume_at = self._around.now() + timedelta(seconds=wait_s)
        so_far = f" after {waited_s:.0f} s in which it let nothing through" if waited_s else ""
        return PausedError(
            f"the service asks us to pause for {_spoken(wait_s)}{so_far}: longer than this feed's patience "
            f"({_spoken(self._patience.max_pause_s)})",
            hint=f"nothing is lost: run again after {resume_at:%Y-%m-%d %H:%M:%S %Z}, or raise max_pause; "
            "if that cannot be meant, ask whoever runs the service",
            resume_at=resume_at,
            retry_after_s=wait_s,
        )


def _spoken(seconds: float) -> str:
    """Return a length of time as people say it: 45 s, 15 min, 2 h, 365 days."""
    for unit, name in ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
