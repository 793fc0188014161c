"""How much each measurement does: the whole bench, and the quick one that only shows that all is well.

What is measured is in `measures/`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int
    million: int
    """Rows of the file that is staged, published once and read again."""
    ten_million: int
    """Rows that show whether memory grows."""
    published: int
    """Rows of a whole run of eventsync."""
    sent: int
    """Rows of a whole run of a peer; a tenth of it for the slowest."""
    mapped: int
    seconds: float
    """How long throughput is measured, under latency and under a limit."""
    killed: int
    """Rows of the publish that is killed."""
    is_quick: bool = False
    """Whether some contenders and limits are left out."""


WHOLE = Sizes(
    rounds=3, million=1_000_000, ten_million=10_000_000, published=100_000, sent=10_000, mapped=20_000, seconds=30, killed=100_000
)
QUICK = Sizes(
    rounds=1, million=10_000, ten_million=30_000, published=2_000, sent=500, mapped=4_000, seconds=2, killed=4_000, is_quick=True
)
