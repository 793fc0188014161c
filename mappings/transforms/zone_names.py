"""Steps about the names of time zones. Moving moments between zones is `moments`'s."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from babel.core import get_global
from pydantic import Field

from mappings.measures import Switch
from mappings.refusals import Refusal, did_you_mean
from mappings.transforms.step import Run, Shown, Step
from mappings.transforms.text import SPACES
from mappings.vocabulary import ReasonCode
from mappings.zone_files import zone_names, zone_table

_ABBREVIATIONS = frozenset({"EST", "MST", "HST", "CET", "EET", "MET", "WET"})
"""Names that the database keeps for old programs, and that mean one offset to some readers and two to others."""
_UTC = frozenset({"Etc/UTC", "Etc/GMT", "UTC", "GMT"})


class Zone(Step):
    """Read a zone's name: old names become today's, Windows' names IANA's; capitals do not count.

    Abbreviations (EST) and bare offsets (UTC+2) are refused: they say nothing about summer.
    """

    name: ClassVar[str] = "zone"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("zone", "US/Eastern", "America/New_York"),
        Shown("zone", "asia/calcutta ", "Asia/Kolkata"),
        Shown("zone", "Eastern Standard Time", "America/New_York"),
        Shown("zone", "EST", ReasonCode.NOT_A_ZONE),
        Shown("zone", "UTC+2", ReasonCode.NOT_A_ZONE),
    )
    switch: Switch = Field(default=True, alias="zone")

    def function(self) -> Run:
        """Return the step's function."""
        known = _known_names()

        def zone(text: str) -> str:
            found = known.get(_folded(text))
            if found is None:
                near = did_you_mean(text, zone_names()) if "/" in text else ""
                raise Refusal(ReasonCode.NOT_A_ZONE, near or "an IANA zone such as Europe/Lisbon would be accepted")
            return found

        return zone


def _folded(name: str) -> str:
    return name.strip(SPACES).casefold().replace(" ", "_")


@lru_cache(maxsize=1)
def _known_names() -> Mapping[str, str]:
    """Every name by its folded form, as today's name: a place that zone.tab lists keeps its own, other links are followed."""
    places = {line.split("\t")[2] for line in zone_table("zone.tab")}
    lines = [line.split() for line in zone_table("tzdata.zi")]
    links = {parts[2]: parts[1] for parts in lines if parts[0] == "L"}
    names = links.keys() | {parts[1] for parts in lines if parts[0] == "Z"}
    todays = {name: _todays(name, places, links) for name in names - _ABBREVIATIONS}
    windows = get_global("windows_zone_mapping")
    return {_folded(name): todays.get(iana, iana) for name, iana in windows.items()} | {
        _folded(name): today for name, today in todays.items()
    }


def _todays(name: str, places: set[str], links: Mapping[str, str]) -> str:
    while name not in places and name in links:
        name = links[name]
    return "UTC" if name in _UTC else name
