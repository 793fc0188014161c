"""What a look at an org tells before anything is read: how many records there are, and what they cost of the day's requests.

How the look is taken is `salesforce_records`' matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

PAGE_ROWS = 2000
"""Records of a full page."""

CHUNK_ROWS = 50_000
"""Records of a full chunk of a job's results."""

_AROUND_A_JOB = 6


@dataclass(frozen=True, slots=True)
class OrgLook:
    """A look at what a feed reads. `records` is None where they cannot be counted; `left` of the `allowed` requests of a day.

    `stops_at`: how many of them must stay for others, 0 for none.
    """

    place: str
    columns: int
    records: int | None
    in_bulk: bool
    left: int
    allowed: int
    stops_at: int

    @property
    def requests(self) -> int | None:
        """About how many requests a whole reading takes."""
        if self.records is None:
            return None
        return ceil(self.records / CHUNK_ROWS) + _AROUND_A_JOB if self.in_bulk else max(1, ceil(self.records / PAGE_ROWS))

    @property
    def is_enough(self) -> bool:
        """Whether the day's requests suffice for it."""
        return not self.allowed or self.left - self.stops_at >= (self.requests or 1)

    def __str__(self) -> str:
        """Tell it in a line."""
        records = "" if self.records is None else f", {self.records} records, read in {'bulk' if self.in_bulk else 'pages'}"
        cost = "" if self.requests is None else f" by about {self.requests} requests"
        left = f"; the org has {self.left} of its {self.allowed} requests of the day left" if self.allowed else ""
        keeps = f", {self.stops_at} of which we leave to others (`stop_at`)" if self.allowed and self.stops_at else ""
        return f"{self.place}: {self.columns} columns{records}{cost}{left}{keeps}"
