"""The rate of a route over time, as it follows from one estimate: a pure value, no clock and no waiting.

Where the estimate comes from is `pace_lesson`'s; who waits for what, `pacing`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cbrt

LOWEST_RATE = 1 / 3600
"""Requests per second that are always tried."""
_LOWEST_START = 0.1
"""However doubtful an estimate: one that is too high is found out sooner than one that is too low."""
GUESSED = 0.3
"""The doubt of a first guess."""
SURE = 0.05
"""A doubt that is none: an estimate is then held for its full time, and left no more slowly than that."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A rate over time: `doubt` (a share) under `limit` (requests per second) at first, at it after the plateau, then above."""

    limit: float
    since: float
    plateau_s: float
    doubt: float

    def rate_at(self, at: float) -> float:
        """Return the rate at a time on the clock of `since`, in requests per second."""
        distance = max(at - self.since, 0.0) / self.plateau_s - 1.0
        share = min(self.doubt, _LOWEST_START) if distance < 0 else max(self.doubt, SURE)
        more = share * distance**3
        return max(self.limit * (1.0 + (more if more < 1.0 else cbrt(more))), LOWEST_RATE)

    def shifted(self, by_s: float) -> Curve:
        """Return the same curve as a clock that is `by_s` ahead tells it."""
        return replace(self, since=self.since + by_s)

    def resting(self, seconds: float) -> Curve:
        """Return the curve after so many seconds in which the rate was not used, and so proves nothing."""
        return replace(self, since=self.since + seconds)

    def renewed(self, at: float, doubt: float) -> Curve:
        """Return the same estimate to begin with anew at a later time, held with less certainty."""
        return replace(self, since=at, doubt=max(self.doubt, doubt))
