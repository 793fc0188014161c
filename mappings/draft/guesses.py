"""What the columns of a sample say: which plays which part of an event, which identify a row, whose clocks its times are on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from babel import Locale

from mappings.draft.columns import Column, Role
from mappings.draft.times import LANGUAGES
from mappings.reasons import Refusal
from mappings.steps.lookups import LOCAL, country_codes, same_country
from mappings.steps.zones import read_zone
from mappings.zones import zone_table

Surety = Literal["sure", "likely", "unsure"]
_FEW = 40


@dataclass(frozen=True, slots=True)
class Guess:
    """One guess: what it is about, the columns it rests on, how sure it is, and the evidence."""

    about: str
    column: str
    surety: Surety
    why: str

    def __str__(self) -> str:
        """Write it as a comment of the file."""
        return f"# {self.surety}: {comment(self.why)}"


def comment(text: str) -> str:
    """Return a text that can stand behind `# `: on one line, nothing but printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@dataclass(frozen=True, slots=True)
class RoleGuess:
    """The column that seems to play a part, how sure that is, and why."""

    column: Column
    surety: Surety
    why: str


def _holds(*kinds: str) -> Callable[[Column], bool]:
    return lambda column: column.times is not None and column.times.kind in kinds


_is_clock = _holds("time", "clock", "clock_range")
_is_last_day = _holds("date", "datetime", "moment")
_is_day = _holds("date", "datetime", "moment", "dates", "date_range")


def _is_zone(column: Column) -> bool:
    """Whether the step `zone`, by which the draft reads the column, can read its cells."""
    try:
        return bool(column.filled) and all(read_zone(text) for text in list(column.counts)[:_FEW])
    except Refusal:
        return False


def _is_picture(column: Column) -> bool:
    return column.urls >= 0.5 and (Role.IMAGE in column.roles or column.pictures * 2 >= len(column.filled))


def _is_page(column: Column) -> bool:
    return column.urls >= 0.5 and column.pictures * 2 < len(column.filled)


def _is_words(column: Column) -> bool:
    return column.is_text and not column.is_counting


_FRIENDS = frozenset({Role.TITLE, Role.START, Role.CLOCK, Role.END, Role.VENUE})
"""Words that stand beside a telling one without speaking against it: event_url, end date, venue city."""
_PARTS: tuple[tuple[Role, frozenset[Role], Callable[[Column], bool]], ...] = (
    (Role.IMAGE, frozenset(), _is_picture),
    (Role.URL, frozenset(), _is_page),
    (Role.ZONE, frozenset(), _is_zone),
    (Role.END_CLOCK, frozenset({Role.END}), _is_clock),
    (Role.CLOCK, frozenset({Role.START}), _is_clock),
    (Role.END, frozenset(), _is_last_day),
    (Role.START, frozenset({Role.CLOCK}), _is_day),
    (Role.CITY, frozenset(), _is_words),
    (Role.COUNTRY, frozenset(), _is_words),
    *((role, frozenset(), lambda column: column.is_text and len(column.parts) <= _FEW) for role in (Role.CATEGORY, Role.STATUS)),
    (Role.PRICE, frozenset(), lambda column: bool(column.filled)),
    *((role, frozenset[Role](), _is_words) for role in (Role.DESCRIPTION, Role.VENUE, Role.ADDRESS, Role.TITLE)),
)
"""Each part, the other names that speak for it, and what its cells must look like, the clearest names first."""


def guess_roles(columns: Sequence[Column]) -> dict[Role, RoleGuess]:
    """Return the parts that are played, each by one column."""
    free = [column for column in columns if column.filled and Role.ASIDE not in column.roles]
    found: dict[Role, RoleGuess] = {}
    for role, other_names, fits in _PARTS:
        names = other_names | {role}
        named = [column for column in free if names & column.roles.keys() and fits(column)]
        if named:
            best = max(named, key=lambda column: _clearness(column, names))
            clear = sum(weight for named_role, weight in best.roles.items() if named_role in names | _FRIENDS)
            found[role] = RoleGuess(best, "sure" if clear >= 0.99 else "likely", f'"{best.name}" is called so')
            free.remove(best)
    words = sorted(filter(_is_words, free), key=lambda column: sum(map(len, column.counts)), reverse=True)
    pages = [column for column in free if column.urls >= 0.9 and not column.pictures]
    for role, fitting in ((Role.START, list(filter(_is_day, free))), (Role.TITLE, words), (Role.URL, pages)):
        if role not in found and fitting:
            why = f'no name says so, but the cells of "{fitting[0].name}" look like it'
            found[role] = RoleGuess(fitting[0], "unsure", why)
    return found


def _clearness(column: Column, names: frozenset[Role]) -> tuple[float, float]:
    """Return how clearly a name speaks for a part: other parts in the same name speak against it."""
    clear = max(weight for role, weight in column.roles.items() if role in names)
    other = max((weight for role, weight in column.roles.items() if role not in names), default=0.0)
    return clear - other / 4, len(column.filled) / len(column.cells)


def agreed_order(columns: Sequence[Column]) -> tuple[str, str]:
    """Return the order of day and month that the file's columns prove, and the proof in words; "" where they do not agree."""
    proofs = {column.times.order: column.name for column in columns if column.times is not None and column.times.proving}
    if len(proofs) != 1:
        return "", ""
    ((order, name),) = proofs.items()
    return order, f'"{name}" proves that this file is {order}-first'


_MOST_PARTS = 4
_DISTINGUISHING = (Role.START, Role.CLOCK, Role.VENUE, Role.CITY, Role.END, Role.TITLE, Role.URL)
"""What distinguishes rows where no identifier does, the best first."""


def guess_key(columns: Sequence[Column], roles: Mapping[Role, RoleGuess]) -> tuple[tuple[Column, ...], Guess]:
    """Return the columns of the best key that the sample allows, and why; there is always one to look at."""
    ids = sorted(filter(_is_id, columns), key=lambda column: (column.is_counting, -column.roles[Role.ID]))
    others = [column for column in columns if not (column.is_nameless or column.is_counting or Role.ASIDE in column.roles)]
    codes = [column for column in others if column.is_code and not column.is_number and not column.urls]
    pages = [column for column in others if column.urls >= 1 and Role.IMAGE not in column.roles and not column.pictures]
    for column in (*ids, *codes, *pages):
        if column.is_full and len(column.counts) == len(column.cells):
            return (column,), _single(column)
    # Rows that differ in nothing but a number that counts them are copies: one row.
    contents = [column.cells for column in columns if not column.is_nameless and not column.is_counting]
    rows = list({cells: position for position, cells in enumerate(zip(*contents, strict=True))}.values())
    played = {role: guess.column for role, guess in roles.items()}
    lasting = [column for column in ids if not column.is_counting]
    page = [column for role, column in played.items() if role is Role.URL and column.is_full]
    words = [played[role] for role in (Role.TITLE, Role.START) if role in played]
    bases = [[max(lasting, key=lambda column: len(column.counts))]] if lasting else [base for base in (page, words) if base]
    best = min(
        (_grown(tuple(base), played, rows) for base in bases),
        key=lambda parts: _clashes(parts, rows),
        default=(max(columns, key=lambda column: (not column.is_nameless, len(column.counts))),),
    )
    clashes = _clashes(best, rows)
    names = " and ".join(f'"{part.name}"' for part in best)
    different = f"the values of {names} are different in all {len(rows):,} rows"
    if clashes:
        why = f"{clashes:,} of {len(rows):,} different rows share {names} with another: ask the partner for an identifier"
    elif any(map(_is_id, best)):
        why = f"{different}, and not those of one column alone"
    else:
        why = f"no column is an identifier; {different}; where they are edited, the row looks new"
    return best, Guess("key", ", ".join(part.name for part in best), "unsure", why)


def _is_id(column: Column) -> bool:
    is_named_so = Role.ID in column.roles and Role.ASIDE not in column.roles and not column.is_nameless
    return is_named_so and column.times is None and bool(column.filled)


def _single(column: Column) -> Guess:
    if column.is_counting:
        why = f'the values of "{column.name}" are all different, but they count the rows: are they the partner\'s, for life?'
        return Guess("key", column.name, "unsure", why)
    why = f'all {len(column.cells):,} values of "{column.name}" are there and different'
    if column.urls:
        why = f"{why}; no identifier is: an address that changes makes the row look new"
    is_sure = len(column.cells) >= 3 and Role.ID in column.roles and not column.urls
    return Guess("key", column.name, "sure" if is_sure else "unsure", why)


def _grown(parts: tuple[Column, ...], played: Mapping[Role, Column], rows: Sequence[int]) -> tuple[Column, ...]:
    """Add one distinguishing column after the other, as long as the next makes more rows differ."""
    for role in _DISTINGUISHING:
        if role in played and len(parts) < _MOST_PARTS:
            longer = (*parts, played[role])
            parts = longer if _clashes(longer, rows) < _clashes(parts, rows) else parts
    return parts


def _clashes(parts: Sequence[Column], rows: Sequence[int]) -> int:
    """Return how many rows share their key with an earlier one."""
    return len(rows) - len({tuple(part.cells[row].strip() for part in parts) for row in rows})


_WHOLE_COUNTRY = re.compile(r"most of |.*\(mainland\)|Beijing Time")


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


def guess_zone(roles: Mapping[Role, RoleGuess]) -> ZoneGuess:
    """Return the zone that the countries of the rows speak for, or else their cities."""
    by_country = _by_country(roles[Role.COUNTRY].column) if Role.COUNTRY in roles else None
    by_city = _by_city(roles[Role.CITY].column) if Role.CITY in roles else None
    return by_country or by_city or UNKNOWN


def country_language(column: Column) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the fewest languages in which most of a column's texts are countries, and the codes of those that are."""
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
    others = [text for text in column.counts if text not in known]
    if not known:
        return None
    if len(set(known.values())) == 1 and not others:
        why = f'"{column.name}" is {_shortened(known)} in {len(column.filled):,} rows'
        return ZoneGuess(next(iter(known.values())), column.name, "likely", why)
    why = f'"{column.name}" names {len(column.counts)} countries'
    if others:
        why = f"{why}; no single zone is that of {_shortened(others)}"
    return ZoneGuess("", column.name, "unsure" if others else "likely", why, known)


def _by_city(column: Column) -> ZoneGuess | None:
    cities = _cities()
    known = {text: zone for text in column.counts if (zone := cities.get(same_country(text.partition(",")[0])))}
    rows = sum(column.counts[text] for text in known)
    if len(set(known.values())) != 1 or rows * 20 < len(column.filled):
        return None
    why = f'"{column.name}" is {_shortened(known)} in {rows:,} of {len(column.filled):,} rows'
    return ZoneGuess(next(iter(known.values())), column.name, "likely" if rows * 5 >= len(column.filled) else "unsure", why)


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
            found.setdefault(same_country(name), set()).add(zone)
    return {name: min(each) for name, each in found.items() if len(each) == 1}


def _shortened(texts: Iterable[str]) -> str:
    first, *others = texts
    shown = ", ".join([first, *others[:3]])
    return f"{shown} and {len(others) - 3} more" if len(others) > 3 else shown
