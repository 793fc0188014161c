"""What a sample's columns look like, each by itself: how full, how varied, addresses, dates, numbers, running numbers.

Which part of an event a column plays is `infer_roles`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from mappings.infer_times import TimesSeen, see_times
from mappings.infer_words import Role, roles_by_name

Rows = Sequence[Mapping[str, str]]

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
class ColumnSeen:
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

    @cached_property
    def parts(self) -> Counter[str]:
        """The different texts of the lists in the cells, or of the cells, and how often each stands there."""
        if not self.separator:
            return self.counts
        parts = (part.strip() for text in self.filled for part in text.split(self.separator.strip()))
        return Counter(filter(None, parts))

    def _parts_texts(self, separator: str) -> bool:
        with_several = [text for text in self.filled if separator in text]
        different = {part.strip() for text in self.counts for part in text.split(separator)}
        return len(with_several) >= max(2, _OFTEN * len(self.filled)) and len(different) < len(self.counts)

    @cached_property
    def times(self) -> TimesSeen | None:
        """What its cells say about dates or times, None where they are none."""
        return see_times(self.filled)

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

    @property
    def is_unique(self) -> bool:
        """True where every row has another text here."""
        return self.is_full and len(self.counts) == len(self.cells)

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
        return not self.is_mostly(_URL) and not self.is_mostly(_EMAIL) and not self.is_number and self.times is None

    @cached_property
    def is_number(self) -> bool:
        """True where nearly all cells are numbers."""
        return self.is_mostly(_NUMBER)

    @cached_property
    def is_code(self) -> bool:
        """True for identifiers: short, without spaces, with digits in them."""
        return self.is_mostly(_CODE) and self.times is None

    @cached_property
    def is_counting(self) -> bool:
        """True where the cells count the rows: 0, 1, 2, ... or 1, 2, 3, ..., also after one word, as in CampaignRef1."""
        counted = [_COUNTED.fullmatch(text) for text in self.filled]
        found = [match.groups() for match in counted if match is not None]
        if len(found) < 3 or len(found) < len(counted) or len({word for word, _ in found}) > 1:
            return False
        numbers = [int(digits) for _, digits in found]
        return numbers[0] in (0, 1) and all(later - earlier == 1 for earlier, later in pairwise(numbers))

    @cached_property
    def mean_length(self) -> float:
        """How long its texts are."""
        return sum(map(len, self.filled)) / len(self.filled) if self.filled else 0.0

    def is_mostly(self, pattern: re.Pattern[str]) -> bool:
        """Whether nearly all filled cells match the whole pattern."""
        return self._share(pattern) >= _MOSTLY

    def _share(self, pattern: re.Pattern[str]) -> float:
        return sum(pattern.fullmatch(text) is not None for text in self.filled) / len(self.filled) if self.filled else 0.0


def see_columns(names: Sequence[str], rows: Rows, joined: Mapping[str, str]) -> tuple[ColumnSeen, ...]:
    """Look at each column of a sample; rows whose cells are all blank say nothing. `joined`: columns of joined lists."""
    kept = [row for row in rows if any(not (text == "" or text.isspace()) for text in row.values())]
    return tuple(ColumnSeen(name, tuple(row.get(name, "") for row in kept), joined.get(name, "")) for name in names)
