"""Whose clocks a partner's times are on, by evidence: the countries, cities, offsets, addresses and letters of a sample.

A column that names zones needs no guess; what is written of this one is `infer_file`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from babel import Locale

from mappings.draft.columns import ColumnSeen, Role
from mappings.draft.formats import LANGUAGES
from mappings.draft.roles import RoleGuess, Surety
from mappings.lookup_table import normaliser
from mappings.steps.countries import LOCAL, country_codes
from mappings.zones import find_zone, zone_table

_WHOLE_COUNTRY = re.compile(r"most of |.*\(mainland\)|Beijing Time")
_HOST = re.compile(r"https?://(?:[^/?#\s@]*@)?(?P<host>[^/?#\s:]+)", re.IGNORECASE)
_PLAYED = frozenset(["ai", "cc", "co", "eu", "fm", "gg", "gl", "io", "is", "la", "ly", "ma", "me", "nu", "sh", "to", "tv", "ws"])
"""Endings of addresses that stand for a word rather than for their country."""
_LETTERS: Mapping[str, re.Pattern[str]] = {
    "PL": re.compile("[ąęłńśźż]", re.IGNORECASE),
    "CZ": re.compile("[ěřů]", re.IGNORECASE),
    "HU": re.compile("[őű]", re.IGNORECASE),
    "RO": re.compile("[țș]", re.IGNORECASE),
    "TR": re.compile("[ğışİ]"),
    "UA": re.compile("[їєґ]", re.IGNORECASE),
    "IS": re.compile("[þð]", re.IGNORECASE),
    "GR": re.compile("[α-ω]", re.IGNORECASE),
    "IL": re.compile("[א-ת]"),
    "JP": re.compile("[\u3041-\u30ff]"),
    "KR": re.compile("[가-힣]"),
    "TH": re.compile("[\u0e01-\u0e4e]"),
}
"""Letters that a language has for itself, by the one country that mostly writes it."""
_COUNTRIES = Locale("en")
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
    guesses = [guess for look in (_by_country, _by_city, _by_address, _by_letters) for guess in look(columns, roles)]
    for guess in guesses:
        if guess.by_country or _keeps(guess.zone, offsets):
            return guess
    return _by_offset(offsets) or UNKNOWN


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


Roles = Mapping[Role, RoleGuess]
Look = Callable[[Sequence[ColumnSeen], Roles], Iterator[ZoneGuess]]


def _by_country(_columns: Sequence[ColumnSeen], roles: Roles) -> Iterator[ZoneGuess]:
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


def _by_city(_columns: Sequence[ColumnSeen], roles: Roles) -> Iterator[ZoneGuess]:
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


def _by_address(columns: Sequence[ColumnSeen], _roles: Roles) -> Iterator[ZoneGuess]:
    hosts = [host["host"] for column in columns if column.urls for text in column.filled if (host := _HOST.match(text))]
    ends = Counter(host.rpartition(".")[2].casefold() for host in hosts)
    (best, count), *_ = [*ends.most_common(1), ("", 0)]
    zone = "" if best in _PLAYED else zone_of_country({"uk": "GB"}.get(best, best.upper()))
    if zone and count >= 3 and count * 2 > len(hosts):
        yield ZoneGuess(zone, "", "unsure", f"{count:,} of {len(hosts):,} addresses end in .{best}")


def _by_letters(columns: Sequence[ColumnSeen], _roles: Roles) -> Iterator[ZoneGuess]:
    cells = [text for column in columns if column.is_text for text in column.filled[:_FIRST_CELLS]]
    found = {code: sum(letters.search(text) is not None for text in cells) for code, letters in _LETTERS.items()}
    code = max(found, key=lambda one: found[one])
    others = sum(count for each, count in found.items() if each != code)
    if found[code] >= 3 and found[code] * 20 >= len(cells) and others * 10 <= found[code]:
        zone = zone_of_country(code)
        yield ZoneGuess(
            zone, "", "unsure", f"{found[code]:,} of {len(cells):,} texts have letters that are {_COUNTRIES.territories[code]}'s"
        )


def _by_offset(offsets: Mapping[datetime, timedelta]) -> ZoneGuess | None:
    """Return what the offsets of moments alone say: one zone, if no other place has these clocks."""
    if not any(offsets.values()):
        return None
    shown = ", ".join(sorted({f"{moment:%z}" for moment in offsets}))
    fitting = [line.split("\t")[2] for line in zone_table("zonenow.tab") if _keeps(line.split("\t")[2], offsets)]
    if len(fitting) == 1:
        why = f"the offsets {shown} are those of {fitting[0]}, and of places that change their clocks as it does"
        return ZoneGuess(fitting[0], "", "unsure", why)
    told = f"the offsets {shown} are those of {_listed(fitting)}" if fitting else f"no single place has the offsets {shown}"
    return ZoneGuess("", "", "unsure", f"{told}: put the zone whose clocks the partner means")


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
    return {code: _main(listed) for code, listed in zones.items()}


def _main(listed: Sequence[tuple[str, str]]) -> str:
    if len(listed) == 1:
        return listed[0][0]
    return next((zone for zone, comment in listed if _WHOLE_COUNTRY.match(comment)), "")


@lru_cache(maxsize=1)
def _cities() -> Mapping[str, str]:
    """Return the zones that are called after a city, by its names in many languages; names of two cities are left out."""
    zones = {line.split("\t")[2] for line in zone_table("zone.tab")}
    found: dict[str, set[str]] = {}
    for name, zone in _city_names(zones):
        found.setdefault(_same(name), set()).add(zone)
    return {name: min(each) for name, each in found.items() if len(each) == 1}


def _city_names(zones: Iterable[str]) -> Iterator[tuple[str, str]]:
    for zone in zones:
        yield zone.rpartition("/")[2].replace("_", " "), zone
        for language in LANGUAGES:
            named = Locale.parse(language).time_zones.get(zone, {}).get("city")
            if named:
                yield named, zone


def _listed(texts: Iterable[str]) -> str:
    first, *others = [*texts]
    shown = ", ".join([first, *others[:3]])
    return f"{shown} and {len(others) - 3} more" if len(others) > 3 else shown
