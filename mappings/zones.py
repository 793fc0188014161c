"""IANA time zones from the package tzdata, the other names that they have, and 24:00 as the end of a day.

The machine's own zone database is never used. Windows names and names of cities are those of Unicode's CLDR (babel).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from babel import Locale
from babel.core import get_global
from rapidfuzz import fuzz, process

from mappings.lookup_table import SPACES, normaliser, plain

LANGUAGES = ("en", "pt", "es", "fr", "de", "it", "pl", "nl", "cs", "sv", "da", "fi", "ja", "ko", "zh", "ru", "tr")
"""The languages whose names of cities, days and lengths of time are recognised where a mapping names no language."""
_DATABASE = resources.files("tzdata")
_ABBREVIATIONS = frozenset({"EST", "MST", "HST", "CET", "EET", "MET", "WET"})
"""Names that the database keeps for old programs; readers disagree whether they include summer time."""
_UTC = frozenset({"Etc/UTC", "Etc/GMT", "UTC", "GMT"})
_AREA = "(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Europe|Indian|Pacific)/"
_VENDOR = re.compile(rf"\A(?:tzone://microsoft/|posix/|right/|/(?:[^/]+/){{0,4}}?(?={_AREA}))", re.IGNORECASE)
"""What programs write before a zone's name: a globally unique identifier begins with a slash (RFC 5545, 3.8.3.1)."""
_OFFSET = r"(?:UTC|GMT)?\s?(?:(?P<sign>[+−-])(?P<hours>[0-9]{1,2})(?:[:.]?(?P<minutes>[0-9]{2}))?)"
_DISPLAYED = re.compile(rf"\((?:{_OFFSET}|UTC|GMT)\)\s*(?P<places>.+)", re.IGNORECASE)
"""The name that Windows shows: (UTC+01:00) Amsterdam, Berlin, Bern, Rome, Stockholm, Vienna."""
_EXPECTED = "expected an IANA zone such as Europe/Lisbon"
_ALIKE = 80
same_place = normaliser(("case", "accents", "punctuation", "spaces"))


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


@lru_cache(maxsize=1024)
def zone_named(text: str) -> str:
    """Return today's IANA name of a zone, "" if there is none.

    The zone may be named by an old name or a Windows name, or by the name that Windows shows for it, if the places of that name
    that have the shown offset have the same time all year. An offset alone names no zone.
    """
    name = _bare(text)
    known = _known_names().get(_folded(name), "")
    shown = None if known else _DISPLAYED.fullmatch(name)
    if shown is None:
        return known
    places = [shown["places"], *re.split("[,/:;]", shown["places"])]
    offset = timedelta(hours=int(shown["hours"] or 0), minutes=int(shown["minutes"] or 0))
    offset = offset if shown["sign"] in ("+", None) else -offset
    zones = [zone for zone in dict.fromkeys(filter(None, map(_zone_of_place, places))) if offset in _offsets(zone)]
    if len(set(map(_offsets, zones))) != 1:
        return ""
    defaults = [zone for zone in zones if zone in _windows_names().values()]
    return defaults[0] if len(defaults) == 1 else zones[0]


def zone_hint(text: str) -> str:
    """Return what to write instead of a name that is not an IANA zone: the zone that it resembles, if any."""
    name = _bare(text)
    if _DISPLAYED.fullmatch(name) and not zone_named(text):
        return f"its places are not known, or have different times: {_EXPECTED}"
    if re.match(_OFFSET, name, re.IGNORECASE):
        return f"an offset alone does not say when summer time begins: {_EXPECTED}"
    cities = zone_cities()
    place = same_place(name.rpartition("/")[2].partition(",")[0])
    near = zone_named(text) or cities.get(place, "")
    if not near and (alike := process.extractOne(place, list(cities), scorer=fuzz.ratio, score_cutoff=_ALIKE)):
        near = cities[alike[0]]
    return f'did you mean "{near}"?' if near else _EXPECTED


def _bare(text: str) -> str:
    return _VENDOR.sub("", plain(text).strip(f"{SPACES}\"':;"))


def _folded(name: str) -> str:
    return name.strip(SPACES).casefold().replace(" ", "_")


@lru_cache(maxsize=1)
def _windows_names() -> Mapping[str, str]:
    todays = _todays_names()
    return {name: todays.get(iana, iana) for name, iana in get_global("windows_zone_mapping").items()}


@lru_cache(maxsize=1)
def _todays_names() -> Mapping[str, str]:
    """Return today's zone for each name: a place listed in zone.tab keeps its own name, other links are followed."""
    places = {line.split("\t")[2] for line in zone_table("zone.tab")}
    lines = [line.split() for line in zone_table("tzdata.zi")]
    links = {parts[2]: parts[1] for parts in lines if parts[0] == "L"}
    todays: dict[str, str] = {}
    for name in links.keys() | {parts[1] for parts in lines if parts[0] == "Z"}:
        today = name
        while today not in places and today in links:
            today = links[today]
        todays[name] = "UTC" if today in _UTC else today
    return todays


@lru_cache(maxsize=1)
def _known_names() -> Mapping[str, str]:
    todays = {name: today for name, today in _todays_names().items() if name not in _ABBREVIATIONS}
    daylight = {name.replace(" Standard ", " Daylight "): today for name, today in _windows_names().items()}
    names = {**daylight, **_windows_names(), **todays, "Coordinated Universal Time": "UTC"}
    return {_folded(name): today for name, today in names.items()}


def _zone_of_place(place: str) -> str:
    """Return the zone of a city, or of a part of a country as Windows shows it: Eastern Time (US & Canada)."""
    words = re.sub(r"\(.*", "", place).strip()
    known = _known_names()
    part = known.get(_folded(f"{words.removesuffix(' Time')} Standard Time"), "")
    return zone_cities().get(same_place(words)) or known.get(_folded(words), "") or part


@lru_cache(maxsize=1024)
def _offsets(name: str) -> tuple[timedelta | None, ...]:
    """Return the offsets of a zone on each day of a late year, in which the rules of today apply."""
    zone, first = find_zone(name), datetime(2037, 1, 1, 12, tzinfo=UTC)
    return tuple((first + timedelta(days=day)).astimezone(zone).utcoffset() for day in range(365))


@lru_cache(maxsize=1)
def zone_cities() -> Mapping[str, str]:
    """Return the zones named after a city, by the city's normalised names; ambiguous names are left out."""
    shown = [Locale.parse(language).time_zones for language in LANGUAGES]
    found: dict[str, set[str]] = {}
    for name, today in _todays_names().items():
        if re.match(_AREA, name):
            names = (zones.get(name, {}).get("city") for zones in shown)
            for city in (name.rpartition("/")[2].replace("_", " "), *filter(None, names)):
                found.setdefault(same_place(city), set()).add(today)
    return {city: min(zones) for city, zones in found.items() if len(zones) == 1}


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
