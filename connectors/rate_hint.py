"""What a service tells of its limit, beside refusing what goes beyond it, and the rate that follows.

How it is spelt on the wire is `event_api.rate_headers`'; what else the rate depends on is `route_pace`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

_SHARE = 0.98
"""How much of a limit that was told is used: the rest is for timers that are late, and requests that overtake others."""
_MOMENT_S = 1.0
"""A reset of so many seconds may be any moment, rounded up: the even pace bridges it."""


@dataclass(frozen=True, slots=True)
class RateHint:
    """`limit` requests in each window, of which `remaining` are left until `reset_s` from now; None where it is not told."""

    limit: float
    remaining: float | None
    reset_s: float | None
    window_s: float | None

    @property
    def rest_s(self) -> float:
        """How long to wait because nothing is left; 0.0 where something is, or where it is back in a moment."""
        return self.reset_s if self.reset_s is not None and self.remaining == 0 and self.reset_s > _MOMENT_S else 0.0


class Hints:
    """What the hints of one route add up to. A window whose length is not told is as long as the longest reset seen."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._limit = 0.0

    def rate(self, hint: RateHint) -> float:
        """Return the rate in requests per second that the hints so far allow."""
        if hint.limit != self._limit:
            self._limit, self._longest_s = hint.limit, 0.0
        self._longest_s = hint.window_s or max(self._longest_s, hint.reset_s or 0.0)
        return hint.limit / max(self._longest_s, 0.001) * _SHARE
