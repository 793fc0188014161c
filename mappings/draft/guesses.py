"""Guesses about the columns of a sample: their contents, their roles in an event, the row key, and the time zone."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import yaml

from mappings.draft.privacy import hidden_texts
from mappings.draft.times import ColumnTimes, find_clocks, find_epochs, find_lengths, find_times
from mappings.zones import zone_named


class Role(StrEnum):
    """The role of a column in an event. `ASIDE`: a column whose dates, links or names are not the event's."""

    ASIDE = "aside"
    ID = "id"
    IMAGE = "image"
    URL = "url"
    ZONE = "zone"
    POSTAL = "postal"
    CITY = "city"
    DISTRICT = "district"
    COUNTRY = "country"
    PRICE = "price"
    CATEGORY = "category"
    STATUS = "status"
    END = "end"
    LENGTH = "length"
    CLOCK = "clock"
    END_CLOCK = "end clock"
    START = "start"
    ADDRESS = "address"
    DESCRIPTION = "description"
    VENUE = "venue"
    TITLE = "title"


_WORDS: Mapping[Role, Sequence[str]] = {
    Role(role): words.split()
    for role, words in yaml.safe_load(Path(__file__).with_name("column_names.yaml").read_text("utf-8")).items()
}
_STEMS = [(word.removesuffix("*"), role) for role, words in _WORDS.items() for word in words if word.endswith("*")]
_GLUE = frozenset(
    {"of", "the", "de", "do", "da", "del", "della", "di", "des", "du", "dos", "von", "der", "die", "das", "a", "o", "le", "la"}
    | {"el", "en", "na", "og", "und", "and", "lista", "list", "iso", "c", "r"}
    | {"attributes", "properties", "fields", "field", "node", "value"}  # of nested records
)
_COUNTS = frozenset({"no", "num", "number", "numer", "nummer", "nr"})
"""Words that name an identifier only when they are the whole column name: "number sent" is not an identifier."""
_BOUNDS: Mapping[str, Role] = {
    **dict.fromkeys(("od", "da", "du", "fra", "van"), Role.START),
    **dict.fromkeys(("do", "a", "al", "au", "ate", "tot", "til", "till"), Role.END),
}
"""Words that mean start or end only after a word for a day or time, or alone; elsewhere some of them are prepositions."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SCRIPTS = re.compile(
    "(?<=[\u3041-\u30fe\u4e00-\u9fff])(?=[A-Za-z])|(?<=[A-Za-z])(?=[\u3041-\u30fe\u4e00-\u9fff])|(?<=イベント)(?=.)"
)
"""Word boundaries without a space: between the scripts of a Japanese name, and after a common Japanese prefix."""
_COMPOUNDS = re.compile(r"\b(start|begin|anfangs|event|ticket|end|eind|slut)(?=dat|tim|zeit|uhr|tid|tijd|tag|day|link|url)")
"""Compound words to split: Startdatum, endtime, Sluttid, Ticketlink."""
_BREAK = re.compile("(?:_|[^\\w\u0e00-\u0e7f])+")
"""What stands between words; Thai vowels are marks, which Python does not count among letters."""


def roles_by_name(name: str) -> dict[Role, float]:
    """Return the roles that a column name suggests, each with a weight: 1 if the name says nothing else, less if it has other
    words.
    """
    spaced = _SCRIPTS.sub(" ", _CAMEL.sub(" ", name.replace("ł", "l").replace("Ł", "L")))
    folded = unicodedata.normalize("NFKD", spaced)
    bare = unicodedata.normalize("NFC", "".join(char for char in folded if not 0x300 <= ord(char) < 0x370)).casefold()
    whole = tuple(word for word in _BREAK.split(_COMPOUNDS.sub(r"\1 ", bare.replace("_", " "))) if word)
    bound = _BOUNDS.get(whole[-1]) if whole else None
    if bound and not all(_roles_of(word) & {Role.START, Role.CLOCK} for word in whole[:-1]):
        bound = None  # the last word does not say that a day or a time begins or ends: `Data do` does, `Nome do` does not
    words = [word for word in (whole[:-1] if bound else whole) if word not in _GLUE or len(whole) == 1]
    found = Counter(role for word in words if len(words) == 1 or word not in _COUNTS for role in _roles_of(word))
    if bound:
        found[bound] += 1
    return {role: count / (len(words) + (bound is not None)) for role, count in found.items()}


def _roles_of(word: str) -> set[Role]:
    stem = word.rstrip("0123456789")
    known = {role for role, words in _WORDS.items() if word in words} or {role for role, words in _WORDS.items() if stem in words}
    return known | {role for start, role in _STEMS if stem.startswith(start)}


_URL = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_PICTURE = re.compile(r"\.(?:jpe?g|png|gif|webp|avif)(?:[?#]|$)", re.IGNORECASE)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[a-z]{2,}", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:\d[\d\s.,]*)")
_CODE = re.compile(r"(?=.*\d)[\w.:/-]{2,64}")
_JSON = re.compile(r'\[\s*\{|\{\s*"|\[[-\s\d.,]*\]\Z')
_WITH_DAY = re.compile(r"\d{4}[-/.]\d{1,2}\b|\b\d{1,2}[./]\d{1,2}(?:[./]|\b)")
_CLOCK = re.compile(r"(?<![\d.,])(?:[01]?\d|2[0-4])(?::|h|)[0-5]\d(?!\d)", re.IGNORECASE)
_COUNTED = re.compile(r"([A-Za-z]*)([0-9]{1,15})")
_CANCELLED = re.compile(
    r"(?:cancel|annul|abgesagt|entfällt|odwo[lł]an|storn|zruš|avlyst|aflyst|inställ|geannuleerd|afgelast|отмен)\w*|中止|취소|取消",
    re.IGNORECASE,
)
_MOSTLY = 0.8
_OFTEN = 0.3
_SEPARATORS = (";", "|", ",", "/")


@dataclass(frozen=True)
class Column:
    """One column of a sample: its name, and its cells from top to bottom.

    `joined_by`: the separator that the reader put between list items; `choices`: the texts that the source allows. `of`: the
    columns whose cells it joins, none for a column of the source.
    """

    name: str
    cells: tuple[str, ...]
    joined_by: str = ""
    choices: tuple[str, ...] = ()
    of: tuple[Column, ...] = ()

    @cached_property
    def filled(self) -> tuple[str, ...]:
        """The texts of the non-empty cells, trimmed."""
        return tuple(cell.strip() for cell in self.cells if cell.strip())

    @cached_property
    def counts(self) -> Counter[str]:
        """The different texts with their numbers of cells."""
        return Counter(self.filled)

    @cached_property
    def separator(self) -> str:
        """The separator of cells that are lists of recurring texts, "" if they are not lists."""
        return self.joined_by or next(filter(self._parts_texts, _SEPARATORS), "")

    def _parts_texts(self, separator: str) -> bool:
        with_several = sum(separator in text for text in self.filled)
        different = {part.strip() for text in self.counts for part in text.split(separator)}
        return with_several >= max(2, _OFTEN * len(self.filled)) and len(different) < len(self.counts)

    @cached_property
    def parts(self) -> Counter[str]:
        """The different list items (or cells) with their counts; allowed texts that do not occur count 0."""
        found = self.counts
        if self.separator:
            parts = (part.strip() for text in self.filled for part in text.split(self.separator.strip()))
            found = Counter(filter(None, parts))
        return Counter({**dict.fromkeys(self.choices, 0), **found})

    @cached_property
    def times(self) -> ColumnTimes | None:
        """The formats of dates or times that fit the cells, None if they are neither."""
        is_named = not self.roles.keys().isdisjoint({Role.START, Role.END})
        return find_times(self.filled) or (find_epochs(self.filled) if is_named else None)

    @cached_property
    def clocks(self) -> ColumnTimes:
        """The formats of the times of day in the cells, however few fit."""
        return self.times if self.times and _is_clock(self) else find_clocks(self.filled)

    @cached_property
    def end_clocks(self) -> ColumnTimes:
        """The formats of the times of day at which events end: 24:00 and midnight end their day."""
        by_words = find_clocks(self.filled, is_end=True)
        return self.clocks if self.clocks.fitting >= by_words.fitting else by_words

    @cached_property
    def lengths(self) -> ColumnTimes | None:
        """The way in which all cells say a length of time, None if they do not."""
        return find_lengths(self.name, self.filled)

    @cached_property
    def roles(self) -> Mapping[Role, float]:
        """The roles that the column's name suggests, with weights."""
        return roles_by_name((self.name.rpartition("#")[0] or self.name).replace("[0]", ""))

    @cached_property
    def hidden(self) -> tuple[str, ...]:
        """The texts of private or hidden events, if the column says which events are; else nothing."""
        return hidden_texts(self.name, list(self.counts))

    @property
    def is_nameless(self) -> bool:
        """Whether the header has no name for the column."""
        return self.name[:1] == "#" and self.name[1:].isdecimal()

    @property
    def is_full(self) -> bool:
        """Whether no cell is empty."""
        return bool(self.cells) and len(self.filled) == len(self.cells)

    @cached_property
    def urls(self) -> float:
        """The share of filled cells that are web addresses."""
        return self._share(_URL)

    @cached_property
    def pictures(self) -> int:
        """How many cells are addresses or paths of pictures."""
        return sum(" " not in text and _PICTURE.search(text) is not None for text in self.filled)

    @cached_property
    def is_text(self) -> bool:
        """Whether the cells are words, not addresses, numbers, dates, e-mail addresses or JSON."""
        return (
            not any(map(_JSON.match, self.counts))
            and max(self.urls, self._share(_EMAIL)) < _MOSTLY
            and not self.is_number
            and self.times is None
        )

    @cached_property
    def is_number(self) -> bool:
        """Whether nearly all cells are numbers."""
        return self._share(_NUMBER) >= _MOSTLY

    @cached_property
    def is_code(self) -> bool:
        """Whether the cells look like identifiers: short, no spaces, with digits, and not dates."""
        days = sum(_WITH_DAY.search(text) is not None for text in self.filled)
        return self._share(_CODE) >= _MOSTLY and self.times is None and days * 2 < len(self.filled)

    @cached_property
    def shows_clocks(self) -> bool:
        """Whether nearly all cells are short texts in which a time of day may stand, and no day: 1930, 19:30 CET."""
        shown = sum(len(text) < 20 and _CLOCK.search(text) is not None and not _WITH_DAY.search(text) for text in self.filled)
        return self.times is None and bool(self.filled) and shown >= _MOSTLY * len(self.filled)

    @cached_property
    def is_counting(self) -> bool:
        """Whether the cells number the rows: 0, 1, 2, ... or 1, 2, 3, ..., possibly after a word, as in CampaignRef1."""
        found = [match.groups() for text in self.filled if (match := _COUNTED.fullmatch(text))]
        if len(found) < 3 or len(found) < len(self.filled) or len({word for word, _ in found}) > 1:
            return False
        numbers = [int(digits) for _, digits in found]
        return numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    @property
    def has_entities(self) -> bool:
        """Whether cells contain HTML entities such as `&amp;`."""
        return any("&" in text and ";" in text for text in self.counts)

    def _share(self, pattern: re.Pattern[str]) -> float:
        return sum(pattern.fullmatch(text) is not None for text in self.filled) / len(self.filled) if self.filled else 0.0


def read_columns(
    names: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    joined: Mapping[str, str],
    choices: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[Column, ...]:
    """Return the columns of a sample, without rows whose cells are all blank.

    `joined`: the separators of columns with joined lists; `choices`: the texts that the source allows in a column.
    """
    filled = [row for row in rows if any(text and not text.isspace() for text in row.values())]
    return tuple(
        Column(name, tuple(row.get(name, "") for row in filled), joined.get(name, ""), tuple(choices.get(name, ())))
        for name in names
    )


Surety = Literal["sure", "likely", "unsure"]
_FEW = 40


@dataclass(frozen=True, slots=True)
class Guess:
    """One guess: its subject, the columns it rests on, its surety, and the evidence."""

    about: str
    column: str
    surety: Surety
    why: str

    def __str__(self) -> str:
        """Return the guess as a comment of the mapping file."""
        return f"# {self.surety}: {comment(self.why)}"


def comment(text: str) -> str:
    """Return a text as one line of printable characters, for a comment."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@dataclass(frozen=True, slots=True)
class RoleGuess:
    """The column guessed for a role, its surety and the evidence."""

    column: Column
    surety: Surety
    why: str


def _holds(*kinds: str) -> Callable[[Column], bool]:
    return lambda column: column.times is not None and column.times.kind in kinds


_is_clock = _holds("time", "clock", "clock_range")


def _is_named_clock(column: Column) -> bool:
    """Return whether a column's name speaks of a time of day, and of nothing but an event's, and its cells not of days alone."""
    is_named = column.roles.get(Role.CLOCK, 0) >= 0.5 and not column.roles.keys() - _FRIENDS
    return is_named and not (column.times is not None and column.times.kind in {"date", "dates", "date_range"})


def _is_unread_clock(column: Column) -> bool:
    """Return whether a column is named for a beginning or an end, and seems to hold times of day that cannot be read."""
    return column.shows_clocks and not column.roles.keys() - _FRIENDS


_is_list_of_days = _holds("dates")
_is_last_day = _holds("date", "datetime", "moment")
_is_day = _holds("date", "datetime", "moment", "dates", "date_range")


def _is_zone(column: Column) -> bool:
    """Return whether the step `zone` can read the cells."""
    return bool(column.filled) and all(map(zone_named, list(column.counts)[:_FEW]))


def _is_picture(column: Column) -> bool:
    return column.urls >= 0.5 and (Role.IMAGE in column.roles or column.pictures * 2 >= len(column.filled))


def _is_page(column: Column) -> bool:
    is_of_event = not {Role.VENUE, Role.IMAGE} & column.roles.keys()
    return is_of_event and column.urls >= 0.5 and column.pictures * 2 < len(column.filled)


def _is_words(column: Column) -> bool:
    return column.is_text and not column.is_counting


def _is_town(column: Column) -> bool:
    with_digits = sum(count for text, count in column.counts.items() if any(map(str.isdigit, text)))
    roles = column.roles
    # `place` is a word for a town too, but `place.name` names a venue, and `place town name` a town.
    is_place_name = {Role.VENUE, Role.TITLE} <= roles.keys() and sum(roles.values()) > 1 and roles.get(Role.CITY, 0) <= 0.5
    return _is_words(column) and with_digits * 2 < len(column.filled) and not is_place_name


def cancelling_word(text: str) -> str:
    """Return the word for cancelled at the beginning of a title or a remark, "" if there is none."""
    found = _CANCELLED.search(text)
    return found[0].casefold() if found and not any(map(str.isalnum, text[: found.start()])) else ""


def says_cancelled(column: Column) -> Callable[[str], object]:
    """Return the test for a cell of a cancelled event: the word anywhere in a status, or at the beginning of a remark."""
    return _CANCELLED.search if Role.STATUS in column.roles else cancelling_word


def _has_cancelled(column: Column) -> bool:
    return (column.is_text or Role.STATUS in column.roles) and any(map(says_cancelled(column), column.counts))


_FRIENDS = frozenset({Role.TITLE, Role.START, Role.CLOCK, Role.END, Role.VENUE})
"""Roles whose words may appear beside another role's word in a name: event_url, end date, venue city."""
_PARTS: tuple[tuple[Role, frozenset[Role], Callable[[Column], bool]], ...] = (
    (Role.IMAGE, frozenset(), _is_picture),
    (Role.URL, frozenset(), _is_page),
    (Role.ZONE, frozenset(), _is_zone),
    (Role.LENGTH, frozenset(), lambda column: column.lengths is not None),
    (Role.END_CLOCK, frozenset({Role.END}), _is_clock),
    (Role.CLOCK, frozenset({Role.START}), _is_clock),
    (Role.END, frozenset(), _is_last_day),
    (Role.START, frozenset({Role.CLOCK}), _is_day),
    (Role.END_CLOCK, frozenset({Role.CLOCK}), lambda column: _is_named_clock(column) and Role.END in column.roles),
    (Role.CLOCK, frozenset(), lambda column: _is_named_clock(column) and Role.END not in column.roles),
    (Role.END_CLOCK, frozenset({Role.END}), _is_unread_clock),
    (Role.CLOCK, frozenset({Role.START}), _is_unread_clock),
    (Role.CITY, frozenset(), _is_town),
    (Role.DISTRICT, frozenset(), _is_town),
    (Role.COUNTRY, frozenset(), _is_words),
    (Role.CATEGORY, frozenset(), lambda one: one.is_text and len(one.parts) <= _FEW and Role.PRICE not in one.roles),
    (Role.STATUS, frozenset(), lambda column: len(column.parts) <= _FEW and _has_cancelled(column)),
    (Role.PRICE, frozenset(), lambda column: bool(column.filled)),
    (Role.DESCRIPTION, frozenset(), _is_words),
    (Role.VENUE, frozenset(), lambda column: _is_words(column) and Role.ID not in column.roles),
    *((role, frozenset[Role](), _is_words) for role in (Role.ADDRESS, Role.TITLE)),
)
"""Each role with other roles whose names also suggest it, and a test of the cells; the clearest roles first.

A column that is named for times, and holds none that can be read, plays its role all the same: its times must not be lost.
"""


def _suits(column: Column, role: Role) -> float:
    """Rate how well the cells of a column with a usual name suit a role, 0 to 1: every event has a title, categories differ."""
    if role is Role.CATEGORY:
        return float(len(column.counts) > 1)
    worded = 0.5 if role in _WORDED and column.is_code else 1.0
    return worded * round(len(column.filled) / len(column.cells), 1) if role is Role.TITLE else worded


def guess_roles(columns: Sequence[Column], items: str = "") -> dict[Role, RoleGuess]:
    """Assign to each role at most one column. `items`: a list whose items are the events, if they have titles of their own."""
    shown = (one for one in columns if one.filled and (not one.hidden or Role.STATUS in one.roles))
    usable = (one for one in shown if not one.name.endswith((".@type", ".@id")))
    free = [column for column in usable if not {Role.ASIDE, Role.POSTAL} & column.roles.keys()]
    found: dict[Role, RoleGuess] = {}
    for role, other_names, fits in _PARTS:
        names = other_names | {role}
        named = [column for column in free if names & column.roles.keys() and fits(column)]
        if role is Role.TITLE and items:
            titles = (one for one in named if one.name.startswith(f"{items}.") and len(one.counts) * 2 > len(one.filled))
            named = list(titles) or named
        if named and role not in found:
            best = max(
                named, key=lambda column: (_suits(column, role), *_clearness(column, names), column.name.casefold() != "date")
            )
            clear = sum(weight for named_role, weight in best.roles.items() if named_role in names | _FRIENDS)
            has_rival = role is Role.URL and any(_is_page(column) for column in free if column is not best)
            is_sure = clear >= 0.99 and _suits(best, role) == 1 and not has_rival and "[0]" not in best.name
            found[role] = RoleGuess(best, "sure" if is_sure else "likely", f'"{best.name}" is a usual name for it')
            if NUMBERED.search(best.name) and not best.is_nameless:
                found[role] = RoleGuess(best, "unsure", f"{found[role].why}, and that of another column")
            free.remove(best)
    city = found.get(Role.CITY)
    if city and Role.VENUE in city.column.roles and sum(city.column.roles.values()) > 1 and Role.VENUE not in found:
        # `Ort` is the town beside a venue, or behind a postal code; alone it is the venue.
        before = columns[max(0, columns.index(city.column) - 1)]
        if Role.POSTAL not in before.roles:
            found[Role.VENUE] = found.pop(Role.CITY)
    if Role.CITY not in found and Role.DISTRICT in found:
        found[Role.CITY] = replace(found.pop(Role.DISTRICT), surety="likely")
    words = [column for column in free if _is_words(column) and not column.roles.keys() - _TITLED]
    words.sort(key=lambda column: sum(map(len, column.counts)), reverse=True)
    pages = [column for column in free if column.urls >= 0.9 and not column.pictures and _is_page(column)]
    days = list(filter(_is_day, free))
    clocks = [column for column in free if _is_clock(column) or (column.shows_clocks and column.is_text and not column.roles)]
    title = found[Role.TITLE].column if Role.TITLE in found else next(iter(words), None)
    off = [column for column in columns if _has_cancelled(column) and column is not title]
    halls = [
        column
        for column in free
        if column.name.startswith("#key") and _is_town(column) and len(column.counts) < len(column.filled)
    ]
    fits_by_cells = (
        *((Role.START, days), (Role.CLOCK, clocks), (Role.STATUS, off), (Role.TITLE, words), (Role.URL, pages)),
        (Role.VENUE, halls),
    )
    for role, fitting in fits_by_cells:
        if role not in found and fitting:
            why = f'the cells of "{fitting[0].name}" look like it, its name does not'
            found[role] = RoleGuess(fitting[0], "unsure", why)
    return found


_WORDED = frozenset({Role.TITLE, Role.VENUE, Role.CITY})
"""Roles whose cells are words: where they look like identifiers, the name may mislead."""
_TITLED = frozenset({Role.TITLE, Role.DESCRIPTION, Role.VENUE})
"""Roles that a column's name may suggest which is the title for its cells."""
NUMBERED = re.compile(r"#\d+\Z")
"""The number of a column among those with one name: `Name#2`."""


def _clearness(column: Column, names: frozenset[Role]) -> tuple[float, float]:
    """Rate how clearly a column's name suggests one of these roles: words of other roles lower the rating."""
    clear = max(weight for role, weight in column.roles.items() if role in names)
    other = max((weight for role, weight in column.roles.items() if role not in names), default=0.0)
    return clear - other / 4, len(column.filled) / len(column.cells)


def agreed_order(columns: Sequence[Column]) -> tuple[str, str]:
    """Return the order of day and month that the columns prove, with the evidence; "" if they prove none or disagree."""
    proofs = {column.times.order: column.name for column in columns if column.times is not None and column.times.proving}
    if len(proofs) != 1:
        return "", ""
    ((order, name),) = proofs.items()
    return order, f'"{name}" proves that this file is {order}-first'


_MOST_PARTS = 4
_OF_ROW = frozenset({Role.ID, Role.TITLE, Role.URL})
"""Roles that an identifier's name may also suggest; an identifier of a venue, picture or day does not identify the row."""
_DISTINGUISHING = (Role.START, Role.CLOCK, Role.VENUE, Role.CITY, Role.END, Role.TITLE, Role.URL)
"""Roles whose columns distinguish rows if there is no identifier, the best first."""


def guess_key(columns: Sequence[Column], roles: Mapping[Role, RoleGuess]) -> tuple[tuple[Column, ...], Guess]:
    """Return the columns of the best key for the sample, with the evidence; there is always a result."""
    ids = sorted(filter(is_id, columns), key=lambda column: (column.is_counting, -column.roles[Role.ID]))
    others = [column for column in columns if not (column.is_nameless or column.is_counting or column.roles.keys() - _OF_ROW)]
    codes = [column for column in others if column.is_code and not (column.is_number or column.urls or column.pictures)]
    pages = [column for column in others if column.urls >= 1 and not column.pictures]
    for column in (*ids, *codes, *pages):
        if column.is_full and len(column.counts) == len(column.cells):
            return (column,), _single(column)
    # Rows that differ in nothing but a number that counts them are copies: one row.
    contents = [[*map(str.strip, column.cells)] for column in columns if not column.is_nameless and not column.is_counting]
    rows = list({cells: position for position, cells in enumerate(zip(*contents, strict=True))}.values())
    played = {role: guess.column for role, guess in roles.items() if not _is_list_of_days(guess.column)}
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
    elif any(map(is_id, best)):
        why = f"{different}; no single column identifies a row"
    else:
        why = f"no column is an identifier; {different}; where they are edited, the row looks new"
    columns_of = tuple(one for part in best for one in part.of or (part,))
    return columns_of, Guess("key", ", ".join(part.name for part in best), "unsure", why)


def is_id(column: Column) -> bool:
    """Return whether a column is named as an identifier of its row."""
    is_of_row = Role.ID in column.roles and not column.roles.keys() - _OF_ROW
    return is_of_row and not column.is_nameless and column.times is None and bool(column.filled)


def _single(column: Column) -> Guess:
    if column.is_counting:
        why = (
            f'the values of "{column.name}" are all different, but they only number the rows: does the partner ever change them?'
        )
        return Guess("key", column.name, "unsure", why)
    why = f'all {len(column.cells):,} values of "{column.name}" are filled and different'
    if column.urls:
        why = f"{why}; no other column is an identifier: if an address changes, the row looks new"
    is_sure = len(column.cells) >= 3 and Role.ID in column.roles and not column.urls
    return Guess("key", column.name, "sure" if is_sure else "unsure", why)


def _grown(parts: tuple[Column, ...], played: Mapping[Role, Column], rows: Sequence[int]) -> tuple[Column, ...]:
    """Extend a key by one distinguishing column at a time, while that makes more rows differ."""
    for role in _DISTINGUISHING:
        if role in played and len(parts) < _MOST_PARTS:
            longer = (*parts, played[role])
            parts = longer if _clashes(longer, rows) < _clashes(parts, rows) else parts
    return parts


def _clashes(parts: Sequence[Column], rows: Sequence[int]) -> int:
    """Return how many rows have the same key as an earlier row."""
    return len(rows) - len({tuple(part.cells[row].strip() for part in parts) for row in rows})


def over_guess(column: str, count: int, latest: date, as_of: datetime) -> Iterator[Guess]:
    """Yield what the window does to a sample of `count` events if the `latest` day is over, in whatever zone."""
    if date.min < latest < as_of.date() - timedelta(days=1):
        every = f"all {count:,} events of the sample are over, the last" if count > 1 else "the only event of the sample is over,"
        yield Guess(
            "window",
            column,
            "unsure",
            f"{every} on {latest}: a run would send none; to send them, write `past: keep` in `window`",
        )
