"""24:00, the end of a day, as a time of day of its own. Which steps may give it is the author's choice; `at` carries it out."""

from __future__ import annotations

from datetime import time


class _DayEnd(time):
    """Midnight at the end of the day: it is later than every other time of that day."""

    __slots__ = ()

    def isoformat(self, timespec: str = "auto") -> str:
        """Write 24:00:00, as ISO 8601 does."""
        return "24:00" if timespec == "minutes" else "24:00:00"

    __str__ = isoformat

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __le__(self, other: object) -> bool:
        return other is self

    def __ge__(self, other: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return other is self

    def __ne__(self, other: object) -> bool:
        return other is not self

    def __hash__(self) -> int:
        return hash("24:00")


DAY_END = _DayEnd()
"""The only one of its kind."""
