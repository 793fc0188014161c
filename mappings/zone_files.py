"""The time zone database that comes with the project's own packages: every machine has the same rules of summer time.

What is done with a zone is `zones`'s; which of several names is today's is the step `zone`'s.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from zoneinfo import ZoneInfo


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all zones, old ones included."""
    return frozenset(zone_table("zones"))


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo | None:
    """Return the IANA zone of that exact name, or None. Nothing of the machine's own database is read."""
    if name not in zone_names():
        return None
    with _folder().joinpath("zoneinfo", *name.split("/")).open("rb") as rules:
        return ZoneInfo.from_file(rules, key=name)


def zone_table(name: str) -> list[str]:
    """Return the lines of one of the database's own tables, without comments."""
    inside = () if name == "zones" else ("zoneinfo",)
    text = _folder().joinpath(*inside, name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _folder() -> Traversable:
    return resources.files("tzdata")
