"""How much each measurement does: the whole bench, one of middling size that tries every part of it, and the quick one.

What is measured is in `measures/`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int
    million: int
    """Rows of the file that is staged and read again."""
    delivered: int
    """Rows of it that are published; the others are entered as delivered, because publishing all of them shows nothing more."""
    three_million: int
    """Rows that show whether memory grows."""
    published: int
    """Rows of a whole run of eventsync, and of what is sent of three million."""
    sent: int
    """Rows of a whole run of a peer; less for the slowest."""
    again: int
    """Rows of a run of ours that finds nothing changed."""
    mapped: int
    profiled: int
    seconds: float
    """How long throughput is measured under latency; a limit takes five times as long."""
    killed: int
    """Rows of the publish that is killed."""
    is_judged: bool = True
    """Whether so many rows say anything of the budgets."""
    is_quick: bool = False
    """Whether some contenders and limits are left out."""


WHOLE = Sizes(
    rounds=3,
    million=1_000_000,
    delivered=200_000,
    three_million=3_000_000,
    published=20_000,
    sent=6_000,
    again=10_000,
    mapped=20_000,
    profiled=20_000,
    seconds=8,
    killed=100_000,
)
MIDDLE = Sizes(
    rounds=2,
    million=40_000,
    delivered=12_000,
    three_million=100_000,
    published=2_000,
    sent=600,
    again=600,
    mapped=4_000,
    profiled=3_000,
    seconds=3,
    killed=12_000,
    is_judged=False,
)
QUICK = Sizes(
    rounds=1,
    million=10_000,
    delivered=3_000,
    three_million=30_000,
    published=1_000,
    sent=300,
    again=300,
    mapped=4_000,
    profiled=1_500,
    seconds=2,
    killed=4_000,
    is_judged=False,
    is_quick=True,
)
