"""The time of day of a simulated month: it jumps from one happening to the next, and goes on by itself after each.

What happens when is `story`'s.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic


class MonthClock:
    """Hand out `now` wherever a clock is asked for; each jump is written into a file, for other processes."""

    def __init__(self, at: datetime, file: Path) -> None:
        self._file = file
        self.set(at)

    def set(self, at: datetime) -> None:
        """Jump to a moment."""
        self._at, self._since = at, monotonic()
        draft = self._file.with_suffix(".new")
        draft.write_text(at.isoformat(), "ascii")
        draft.replace(self._file)  # whoever reads it meanwhile finds one moment or the other

    def now(self) -> datetime:
        return self._at + timedelta(seconds=monotonic() - self._since)


def time_told_in(file: Path) -> datetime:
    """Return the moment to which the clock of another process has jumped last."""
    return datetime.fromisoformat(file.read_text("ascii"))
