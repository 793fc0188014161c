"""The time of day of a simulated month: it jumps from one happening to the next, and goes on by itself after each.

What happens when is `story`'s.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from time import monotonic


class MonthClock:
    """Hand out `now` wherever a clock is asked for."""

    def __init__(self, at: datetime) -> None:
        self.set(at)

    def set(self, at: datetime) -> None:
        """Jump to a moment."""
        self._at, self._since = at, monotonic()

    def now(self) -> datetime:
        return self._at + timedelta(seconds=monotonic() - self._since)
