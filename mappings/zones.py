"""IANA time zones from the package tzdata, and 24:00 as the end of a day.

The machine's own zone database is never used.
"""

from __future__ import annotations

from datetime import time
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

_DATABASE = resources.files("tzdata")


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all zones, including old ones."""
    return frozenset(zone_table("zones"))


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo | None:
    """Return the IANA zone with exactly this name, None if there is none. The machine's own database is not used."""
    if name not in zone_names():
        return None
    with _DATABASE.joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


def zone_table(name: str) -> list[str]:
    """Return the lines of one of the database's own tables, without comments."""
    inside = () if name == "zones" else ("zoneinfo",)
    text = _DATABASE.joinpath(*inside, name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


class EndOfDay:
    """24:00, the midnight that ends a day: later than every time of that day."""

    __slots__ = ()

    def isoformat(self, timespec: str = "auto") -> str:
        """Return 24:00:00, as ISO 8601 writes it."""
        return "24:00" if timespec == "minutes" else "24:00:00"

    __str__ = isoformat

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not self


DAY_END = EndOfDay()
"""The only instance."""
TimeOfDay = time | EndOfDay
