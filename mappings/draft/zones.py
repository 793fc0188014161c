"""Whose clocks a partner's times are on, by the countries, cities and web addresses of a sample."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from babel import Locale

from mappings.draft.columns import ColumnSeen, Role
from mappings.draft.formats import LANGUAGES
from mappings.draft.roles import RoleGuess, Surety
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


def guess_zone(columns: Sequence[ColumnSeen], roles: Mapping[Role, RoleGuess]) -> ZoneGuess:
    """Return the zone that the best evidence speaks for; evidence that the offsets of the sample contradict is none."""
    offsets = _offsets(columns)
    guesses = (*_by_country(roles), *_by_city(roles), *_by_address(columns))
    return next((guess for guess in guesses if guess.by_country or _keeps(guess.zone, offsets)), UNKNOWN)


def country_language(column: ColumnSeen) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the fewest languages in which most of a column's texts are countries, and the texts that are none in them."""
    best: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset(column.counts))
    for languages in (("en",), ("en", LOCAL), *(("en", language) for language in LANGUAGES[1:])):
        codes = country_codes(languages)
        unknown = frozenset(text for text in column.counts if _same(text) not in codes)
        if len(unknown) < len(best[1]):
            best = languages, unknown
    return best


def zone_of_country(code: str) -> str:
    """Return the zone of a whole country, or of all of it but some islands; "" where it has several."""
    return _countries().get(code, "")


def _by_country(roles: Mapping[Role, RoleGuess]) -> Iterator[ZoneGuess]:
    guess = roles.get(Role.COUNTRY)
    if guess is None:
        return
    column = guess.column
    languages, unknown = country_language(column)
    codes = country_codes(languages) if languages else {}
    zones = {text: zone_of_country(codes[_same(text)]) for text in column.counts if text not in unknown}
    known = {text: zone for text, zone in zones.items() if zone}
    count = sum(column.counts[text] for text in known)
    if known and len(set(known.values())) == 1 and count == len(column.filled):
        zone = next(iter(known.values()))
        yield ZoneGuess(zone, column.name, "likely", f'"{column.name}" is {_listed(known)} in {count:,} rows')
    elif known:
        open_ones = [text for text in column.counts if text not in known]
        why = f'"{column.name}" names {len(column.counts)} countries'
        told = f"{why}; no single zone is that of {_listed(open_ones)}" if open_ones else why
        yield ZoneGuess("", column.name, "unsure" if open_ones else "likely", told, known)


def _by_city(roles: Mapping[Role, RoleGuess]) -> Iterator[ZoneGuess]:
    guess = roles.get(Role.CITY)
    if guess is None:
        return
    column, cities = guess.column, _cities()
    known = {text: zone for text in column.counts if (zone := cities.get(_same(text.partition(",")[0]), ""))}
    zones = set(known.values())
    rows = sum(column.counts[text] for text in known)
    if len(zones) == 1 and rows * 20 >= len(column.filled):
        surety: Surety = "likely" if rows * 5 >= len(column.filled) else "unsure"
        why = f'"{column.name}" is {_listed(known)} in {rows:,} of {len(column.filled):,} rows'
        yield ZoneGuess(zones.pop(), column.name, surety, why)


def _by_address(columns: Sequence[ColumnSeen]) -> Iterator[ZoneGuess]:
    hosts = [host["host"] for column in columns if column.urls for text in column.filled if (host := _HOST.match(text))]
    ends = Counter(host.rpartition(".")[2].casefold() for host in hosts)
    (best, count), *_ = [*ends.most_common(1), ("", 0)]
    zone = "" if best in _PLAYED else zone_of_country({"uk": "GB"}.get(best, best.upper()))
    if zone and count >= 3 and count * 2 > len(hosts):
        yield ZoneGuess(zone, "", "unsure", f"{count:,} of {len(hosts):,} addresses end in .{best}")


def _offsets(columns: Sequence[ColumnSeen]) -> Mapping[datetime, timedelta]:
    """Return the moments of a sample that say an offset, with it; a file all in UTC says nothing of its place."""
    times = [column for column in columns if column.times is not None and "moment" in column.times.kinds]
    texts = [text for column in times for text in list(column.counts)[:_FIRST_CELLS]]
    moments = [moment for text in texts if (moment := _moment(text)) is not None]
    return {moment: offset for moment in moments if (offset := moment.utcoffset()) is not None}


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-"))
    except ValueError:
        return None


def _keeps(zone: str, offsets: Mapping[datetime, timedelta]) -> bool:
    """Whether clocks in the zone show these offsets then; UTC is anybody's."""
    rules = find_zone(zone)
    return rules is not None and all(
        not offset or moment.astimezone(rules).utcoffset() == offset for moment, offset in offsets.items()
    )


@lru_cache(maxsize=1)
def _countries() -> Mapping[str, str]:
    zones: dict[str, list[tuple[str, str]]] = {}
    for line in zone_table("zone.tab"):
        code, _, zone, *comment = line.split("\t")
        zones.setdefault(code, []).append((zone, "".join(comment)))
    main = {
        code: [zone for zone, comment in each if len(each) == 1 or _WHOLE_COUNTRY.match(comment)] for code, each in zones.items()
    }
    return {code: each[0] for code, each in main.items() if each}


@lru_cache(maxsize=1)
def _cities() -> Mapping[str, str]:
    """Return the zones that are called after a city, by its names in many languages; names of two cities are left out."""
    found: dict[str, set[str]] = {}
    for zone in {line.split("\t")[2] for line in zone_table("zone.tab")}:
        names = [Locale.parse(language).time_zones.get(zone, {}).get("city") for language in LANGUAGES]
        for name in [zone.rpartition("/")[2].replace("_", " "), *filter(None, names)]:
            found.setdefault(_same(name), set()).add(zone)
    return {name: min(each) for name, each in found.items() if len(each) == 1}


def _listed(texts: Iterable[str]) -> str:
    first, *others = [*texts]
    shown = ", ".join([first, *others[:3]])
    return f"{shown} and {len(others) - 3} more" if len(others) > 3 else shown
