"""Guesses the time zone of a sample: from its author's answer, the country of its rows, or their cities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from mappings.draft.guesses import Column, Role, RoleGuess, Surety
from mappings.steps.lookups import LOCAL, country_codes, same_country
from mappings.zones import LANGUAGES, same_place, zone_cities, zone_named, zone_table

SAID = "as you said"
_WHOLE_COUNTRY = re.compile(r"most of |.*\(mainland\)|Beijing Time")


@dataclass(frozen=True, slots=True)
class ZoneGuess:
    """The guessed zone of a sample, "" if unknown."""

    zone: str
    column: str
    surety: Surety
    why: str


_TO_DO = "write the partner's zone, such as Europe/Lisbon"
UNKNOWN = ZoneGuess("", "", "unsure", f"the file does not say the time zone: {_TO_DO}")


def guess_zone(roles: Mapping[Role, RoleGuess], columns: Iterable[Column], answer: str = "") -> ZoneGuess:
    """Return the zone that the author answered; else guess it from the country of the rows, else from their cities.

    An unknown zone rests on the column that is named for it, if there is one.
    """
    if answer:
        return ZoneGuess(answer, "", "sure", SAID)
    by_country = _by_country(roles[Role.COUNTRY].column) if Role.COUNTRY in roles else None
    by_city = _by_city(roles[Role.CITY].column) if Role.CITY in roles else None
    unread = ((one.name, text) for one in columns if one.roles.get(Role.ZONE) == 1 for text in one.counts if not zone_named(text))
    whys = ((name, f'"{name}" holds {text!r}, which is no certain time zone: {_TO_DO}') for name, text in unread)
    return by_country or by_city or next((ZoneGuess("", name, "unsure", why) for name, why in whys), UNKNOWN)


def country_language(column: Column) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the fewest languages in which most texts of a column are names of countries, and the codes of those names."""
    best: tuple[tuple[str, ...], Mapping[str, str]] = ((), {})
    for languages in (("en",), ("en", LOCAL), *(("en", language) for language in LANGUAGES[1:])):
        codes = country_codes(languages)
        known = {text: code for text in column.counts if (code := codes.get(same_country(text)))}
        if len(known) * 2 > len(column.counts) and len(known) > len(best[1]):
            best = languages, known
    return best


def _by_country(column: Column) -> ZoneGuess | None:
    zones = _countries()
    known = {text: zones[code] for text, code in country_language(column)[1].items() if code in zones}
    if not known:
        return None
    if len(set(known.values())) > 1 or len(known) < len(column.counts):
        return ZoneGuess("", column.name, "unsure", f'"{column.name}" names {len(column.counts)} countries: {_TO_DO}')
    why = f'"{column.name}" is {_shortened(known)} in {len(column.filled):,} rows'
    return ZoneGuess(next(iter(known.values())), column.name, "likely", why)


def _by_city(column: Column) -> ZoneGuess | None:
    cities = zone_cities()
    known = {text: zone for text in column.counts if (zone := cities.get(same_place(text.partition(",")[0])))}
    rows = sum(column.counts[text] for text in known)
    if len(set(known.values())) != 1 or rows * 20 < len(column.filled):
        return None
    why = f'"{column.name}" is {_shortened(known)} in {rows:,} of {len(column.filled):,} rows'
    return ZoneGuess(next(iter(known.values())), column.name, "likely" if rows * 5 >= len(column.filled) else "unsure", why)


@lru_cache(maxsize=1)
def _countries() -> Mapping[str, str]:
    """Return the zone of each country that has a single zone (apart from islands), by country code."""
    zones: dict[str, list[str]] = {}
    main: dict[str, str] = {}
    for line in zone_table("zone.tab"):
        code, _, zone, *comment = line.split("\t")
        zones.setdefault(code, []).append(zone)
        if _WHOLE_COUNTRY.match("".join(comment)):
            main.setdefault(code, zone)
    return {code: each[0] for code, each in zones.items() if len(each) == 1} | main


def _shortened(texts: Iterable[str]) -> str:
    first, *others = texts
    shown = ", ".join([first, *others[:3]])
    return f"{shown} and {len(others) - 3} more" if len(others) > 3 else shown
