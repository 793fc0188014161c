"""The columns of a sample: what their cells look like, and which parts of an event their names speak for."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import yaml

from mappings.draft.times import ColumnTimes, find_times


class Role(StrEnum):
    """The part that a column plays in an event. `ASIDE` is for columns whose dates, links and names are not the event's."""

    ASIDE = "aside"
    ID = "id"
    IMAGE = "image"
    URL = "url"
    ZONE = "zone"
    CITY = "city"
    COUNTRY = "country"
    PRICE = "price"
    CATEGORY = "category"
    STATUS = "status"
    END = "end"
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
    | {"el", "en", "na", "og", "und", "and", "lista", "list", "iso"}
)
_COUNTS = frozenset({"no", "num", "number", "numer", "nummer", "nr"})
"""Words that name an identifier when they stand alone: the number sent is none."""
_BOUNDS: Mapping[str, Role] = {
    **dict.fromkeys(("od", "da", "du", "fra", "van"), Role.START),
    **dict.fromkeys(("do", "a", "al", "au", "ate", "tot", "til", "till"), Role.END),
}
"""What stands behind the word for a day or a time, or alone, where it begins or ends: some of these words are glue elsewhere."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SCRIPTS = re.compile(
    "(?<=[\u3041-\u30fe\u4e00-\u9fff])(?=[A-Za-z])|(?<=[A-Za-z])(?=[\u3041-\u30fe\u4e00-\u9fff])|(?<=イベント)(?=.)"
)
"""Where a word ends without a space: between the scripts of a Japanese name, and after the word that many of them begin with."""
_BREAK = re.compile(r"[\W_]+")


def plain_words(name: str) -> tuple[str, ...]:
    """Return the words of a column's name: lower case, without accents, `startDate` and `START_DATE` alike."""
    spaced = _SCRIPTS.sub(" ", _CAMEL.sub(" ", name.replace("ł", "l").replace("Ł", "L")))
    folded = unicodedata.normalize("NFKD", spaced)
    bare = unicodedata.normalize("NFC", "".join(char for char in folded if not 0x300 <= ord(char) < 0x370)).casefold()
    return tuple(word for word in _BREAK.split(bare) if word)


def roles_by_name(name: str) -> dict[Role, float]:
    """Return the parts that a name speaks for, each with how clearly: 1 says nothing else, less is one word among others."""
    whole = plain_words(name)
    bound = _BOUNDS.get(whole[-1]) if whole else None
    if bound and not all(_roles_of(word) & {Role.START, Role.CLOCK} for word in whole[:-1]):
        bound = None  # the last word does not say that a day or a time begins or ends: `Data do` does, `Nome do` does not
    words = [word for word in (whole[:-1] if bound else whole) if word not in _GLUE]
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
_COUNTED = re.compile(r"([A-Za-z]*)([0-9]{1,15})")
_MOSTLY = 0.8
_OFTEN = 0.3
_SEPARATORS = (";", "|", ",", "/")


@dataclass(frozen=True)
class Column:
    """One column of a sample: its name, and its cells from top to bottom. `joined_by`: what the reader joined lists with."""

    name: str
    cells: tuple[str, ...]
    joined_by: str = ""

    @cached_property
    def filled(self) -> tuple[str, ...]:
        """The cells that hold something, trimmed."""
        return tuple(cell.strip() for cell in self.cells if cell.strip())

    @cached_property
    def counts(self) -> Counter[str]:
        """The different texts, and how often each stands there."""
        return Counter(self.filled)

    @cached_property
    def separator(self) -> str:
        """What stands between the texts of a cell, where cells are lists of texts that recur; "" where they are not."""
        return self.joined_by or next(filter(self._parts_texts, _SEPARATORS), "")

    def _parts_texts(self, separator: str) -> bool:
        with_several = sum(separator in text for text in self.filled)
        different = {part.strip() for text in self.counts for part in text.split(separator)}
        return with_several >= max(2, _OFTEN * len(self.filled)) and len(different) < len(self.counts)

    @cached_property
    def parts(self) -> Counter[str]:
        """The different texts of the lists in the cells, or of the cells, and how often each stands there."""
        if not self.separator:
            return self.counts
        parts = (part.strip() for text in self.filled for part in text.split(self.separator.strip()))
        return Counter(filter(None, parts))

    @cached_property
    def times(self) -> ColumnTimes | None:
        """What its cells say about dates or times, None where they are none."""
        return find_times(self.filled)

    @cached_property
    def roles(self) -> Mapping[Role, float]:
        """The parts that its name speaks for."""
        return roles_by_name(self.name)

    @property
    def is_nameless(self) -> bool:
        """True where the header has no name for it."""
        return self.name.startswith("#")

    @property
    def is_full(self) -> bool:
        """True where no cell is empty."""
        return bool(self.cells) and len(self.filled) == len(self.cells)

    @cached_property
    def urls(self) -> float:
        """The share of filled cells that are web addresses."""
        return self._share(_URL)

    @cached_property
    def pictures(self) -> int:
        """How many cells are addresses of pictures."""
        return sum(_URL.fullmatch(text) is not None and _PICTURE.search(text) is not None for text in self.filled)

    @cached_property
    def is_text(self) -> bool:
        """True for words: no addresses, numbers, dates, mails."""
        return max(self.urls, self._share(_EMAIL)) < _MOSTLY and not self.is_number and self.times is None

    @cached_property
    def is_number(self) -> bool:
        """True where nearly all cells are numbers."""
        return self._share(_NUMBER) >= _MOSTLY

    @cached_property
    def is_code(self) -> bool:
        """True for identifiers: short, without spaces, with digits in them."""
        return self._share(_CODE) >= _MOSTLY and self.times is None

    @cached_property
    def is_counting(self) -> bool:
        """True where the cells count the rows: 0, 1, 2, ... or 1, 2, 3, ..., also after one word, as in CampaignRef1."""
        found = [match.groups() for text in self.filled if (match := _COUNTED.fullmatch(text))]
        if len(found) < 3 or len(found) < len(self.filled) or len({word for word, _ in found}) > 1:
            return False
        numbers = [int(digits) for _, digits in found]
        return numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    @property
    def has_entities(self) -> bool:
        """True where cells are written as HTML: `&amp;`."""
        return any("&" in text and ";" in text for text in self.counts)

    def _share(self, pattern: re.Pattern[str]) -> float:
        return sum(pattern.fullmatch(text) is not None for text in self.filled) / len(self.filled) if self.filled else 0.0


def read_columns(names: Sequence[str], rows: Sequence[Mapping[str, str]], joined: Mapping[str, str]) -> tuple[Column, ...]:
    """Return each column of a sample; rows whose cells are all blank say nothing. `joined`: columns of joined lists."""
    filled = [row for row in rows if any(text and not text.isspace() for text in row.values())]
    return tuple(Column(name, tuple(row.get(name, "") for row in filled), joined.get(name, "")) for name in names)
