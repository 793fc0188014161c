"""What one run has learned of a route's pace, and how it kept to it, in numbers. How they are told to people is the caller's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """What the pacer has learned and done. `rate_per_s` is None while no limit was ever met.

    `requests` left within `seconds`, `limited` of them were answered 429; `paused_s` counts the waits asked for.
    """

    rate_per_s: float | None
    limited: int
    pauses: int
    paused_s: float
    requests: int = 0
    seconds: float = 0.0
    workers: int = 1
    most_under_way: int = 0

    @property
    def used_share(self) -> float | None:
        """How much of the learned rate was used, 1.0 being all of it; None where no limit is known."""
        allowed = (self.rate_per_s or 0.0) * self.seconds
        return (self.requests - self.limited) / allowed if allowed else None
