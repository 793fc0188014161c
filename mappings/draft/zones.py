"""Whose clocks a partner's times are on, by the countries, cities and web addresses of a sample."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from babel import Locale

from mappings.draft.columns import Column, Role
from mappings.draft.roles import RoleGuess, Surety
from mappings.draft.times import LANGUAGES
from mappings.lookup_table import normaliser
from mappings.steps.lookups import LOCAL, country_codes
from mappings.zones import find_zone, zone_table

_WHOLE_COUNTRY = re.compile(r"most of |.*\(mainland\)|Beijing Time")
_HOST = re.compile(r"https?://(?:[^/?#\s@]*@)?(?P<host>[^/?#\s:]+)", re.IGNORECASE)
_PLAYED = frozenset(["ai", "cc", "co", "eu", "fm", "gg", "gl", "io", "is", "la", "ly", "ma", "me", "nu", "sh", "to", "tv", "ws"])
"""Endings of addresses that stand for a word rather than for their country."""
_FIRST_CELLS = 400
_same = normaliser(("case", "accents", "punctuation", "spaces"))


@dataclass(frozen=True, slots=True)
class ZoneGuess:
    """The zone that a sample speaks for, "" for none; `by_country` the zones of a column's countries, where they are several."""

    zone: str
    column: str
    surety: Surety
    why: str
    by_country: Mapping[str, str] = field(default_factory=dict)


UNKNOWN = ZoneGuess(
    "", "", "unsure", "nothing tells the time zone: put the one whose clocks the partner means, such as Europe/Lisbon"
)


def guess_zone(columns: Sequence[Column], roles: Mapping[Role, RoleGuess]) -> ZoneGuess:
    """Return the zone that the best evidence speaks for; evidence that the offsets of the sample contradict is none."""
    offsets = _offsets(columns)
    guesses = [_by_country(roles[Role.COUNTRY].column)] if Role.COUNTRY in roles else []
    guesses += [_by_city(roles[Role.CITY].column)] if Role.CITY in roles else []
    guesses.append(_by_address(columns))
    return next((guess for guess in guesses if guess.by_country or _agrees(guess.zone, offsets)), UNKNOWN)


def country_language(column: Column) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the fewest languages in which most of a column's texts are countries, and the texts that are none in them."""
    best: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset(column.counts))
    for languages in (("en",), ("en", LOCAL), *(("en", language) for language in LANGUAGES[1:])):
        codes = country_codes(languages)
        unknown = frozenset(text for text in column.counts if _same(text) not in codes)
        if len(unknown) < len(best[1]):
            best = languages, unknown
    return best


def _by_country(column: Column) -> ZoneGuess:
    languages, unknown = country_language(column)
    codes = country_codes(languages) if languages else {}
    zones = _countries()
    known = {text: zones[code] for text in column.counts if text not in unknown and (code := codes[_same(text)]) in zones}
    others = [text for text in column.counts if text not in known]
    if not known:
        return UNKNOWN
    if len(set(known.values())) == 1 and not others:
        why = f'"{column.name}" is {_shortened(known)} in {len(column.filled):,} rows'
        return ZoneGuess(next(iter(known.values())), column.name, "likely", why)
    why = f'"{column.name}" names {len(column.counts)} countries'
    if not others:
        return ZoneGuess("", column.name, "likely", why, known)
    return ZoneGuess("", column.name, "unsure", f"{why}; no single zone is that of {_shortened(others)}", known)


def _by_city(column: Column) -> ZoneGuess:
    cities = _cities()
    known = {text: zone for text in column.counts if (zone := cities.get(_same(text.partition(",")[0])))}
    rows = sum(column.counts[text] for text in known)
    if len(set(known.values())) != 1 or rows * 20 < len(column.filled):
        return UNKNOWN
    why = f'"{column.name}" is {_shortened(known)} in {rows:,} of {len(column.filled):,} rows'
    return ZoneGuess(next(iter(known.values())), column.name, "likely" if rows * 5 >= len(column.filled) else "unsure", why)


def _by_address(columns: Sequence[Column]) -> ZoneGuess:
    hosts = [host["host"] for column in columns if column.urls for text in column.filled if (host := _HOST.match(text))]
    ends = Counter(host.rpartition(".")[2].casefold() for host in hosts)
    best, count = max(ends.items(), key=lambda one: one[1], default=("", 0))
    zone = "" if best in _PLAYED else _countries().get("GB" if best == "uk" else best.upper(), "")
    if not zone or count < 3 or count * 2 <= len(hosts):
        return UNKNOWN
    return ZoneGuess(zone, "", "unsure", f"{count:,} of {len(hosts):,} addresses end in .{best}")


def _offsets(columns: Sequence[Column]) -> Mapping[datetime, timedelta]:
    """Return the moments of a sample that say an offset, with it; a file all in UTC says nothing of its place."""
    offsets: dict[datetime, timedelta] = {}
    for column in columns:
        if column.times is not None and any(way.kind == "moment" for way in column.times.ways):
            for text in list(column.counts)[:_FIRST_CELLS]:
                with suppress(ValueError):
                    moment = datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-"))
                    if offset := moment.utcoffset():
                        offsets[moment] = offset
    return offsets


def _agrees(zone: str, offsets: Mapping[datetime, timedelta]) -> bool:
    """Whether clocks in the zone show these offsets then."""
    rules = find_zone(zone)
    return rules is not None and all(moment.astimezone(rules).utcoffset() == offset for moment, offset in offsets.items())


@lru_cache(maxsize=1)
def _countries() -> Mapping[str, str]:
    """Return the zone of each whole country, or of all of it but some islands, by its code; none for one of several."""
    zones: dict[str, list[str]] = {}
    main: dict[str, str] = {}
    for line in zone_table("zone.tab"):
        code, _, zone, *comment = line.split("\t")
        zones.setdefault(code, []).append(zone)
        if _WHOLE_COUNTRY.match("".join(comment)):
            main.setdefault(code, zone)
    return {code: each[0] for code, each in zones.items() if len(each) == 1} | main


@lru_cache(maxsize=1)
def _cities() -> Mapping[str, str]:
    """Return the zones that are called after a city, by its names in many languages; names of two cities are left out."""
    found: dict[str, set[str]] = {}
    for zone in {line.split("\t")[2] for line in zone_table("zone.tab")}:
        names = [Locale.parse(language).time_zones.get(zone, {}).get("city") for language in LANGUAGES]
        for name in [zone.rpartition("/")[2].replace("_", " "), *filter(None, names)]:
            found.setdefault(_same(name), set()).add(zone)
    return {name: min(each) for name, each in found.items() if len(each) == 1}


def _shortened(texts: Iterable[str]) -> str:
    first, *others = texts
    shown = ", ".join([first, *others[:3]])
    return f"{shown} and {len(others) - 3} more" if len(others) > 3 else shown
