"""Names of columns: which column of a source each name of a mapping means.

A name means one column. Where several answer to it, none is preferred.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

MOST_COLUMNS = 16_384
"""The most columns of a source, as many as a sheet may have."""
LINK = ".link"
"""The suffix of a column with the links behind another column's texts: `Title.link`."""
NO_LINKS = "only Google Sheets and .xlsx have links behind a text: ask for one of these, or for a column with the addresses"
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_DROP_INVISIBLE = str.maketrans(dict.fromkeys(_INVISIBLE))
_POSITION = re.compile(r"#(?:(\d{1,6})|([A-Z]{1,3}))", re.ASCII)


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """The columns that a feed needs from its source: all must exist except the `optional`; `aliases` are their other names."""

    columns: frozenset[str]
    optional: frozenset[str] = frozenset()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def has_links(self) -> bool:
        """Whether a name may stand for the links behind a column's texts."""
        return any(name.endswith(LINK) for name in (*self.columns, *chain.from_iterable(self.aliases.values())))

    def without(self, columns: Collection[str], *, also: Iterable[str] = ()) -> ColumnRequest:
        """Return the request without some columns, which come from elsewhere, and with additional ones."""
        return ColumnRequest(self.columns.difference(columns).union(also), self.optional, self.aliases)

    def speller(self) -> Callable[[str], str]:
        """Return a function that spells a source's column as the mapping does, and leaves one alone that it does not use.

        A column answers to a name if it has that name or one of its aliases, whatever the case, spaces and Unicode form. One
        with exactly a requested name answers to that name only.
        """
        own = {folded(name): name for name in sorted(self.columns, reverse=True)}
        others = {folded(alias): name for name in sorted(self.columns, reverse=True) for alias in self.aliases.get(name, ())}
        by_fold = others | own

        @lru_cache(MOST_COLUMNS)
        def spell(column: str) -> str:
            return column if column in self.columns else by_fold.get(folded(column), column)

        return spell


@dataclass(frozen=True, slots=True)
class MatchedColumns:
    """A table's columns by their unique names, in the mapping's spelling if it uses them.

    `missing`: the names without a column; `absent`: the optional ones. `repeated`: the names with several columns, at these
    positions from 0.
    """

    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    repeated: Mapping[str, Sequence[int]] = field(default_factory=dict)


def matched(texts: Sequence[str], asked: ColumnRequest) -> MatchedColumns:
    """Match the requested names with the texts of a table's header.

    Beside the columns with its name, `#3` or `#C` means the third column, and `Name#2` the second of those called `Name`.
    """
    spell, names = asked.speller(), column_names(texts)
    answers: defaultdict[str, set[int]] = defaultdict(set)
    for place, (text, name) in enumerate(zip(texts, names, strict=True)):
        answers[spell(text)].add(place)
        answers[spell(name)].add(place)
    by_position = {name: column_position(name, len(texts)) for name in asked.columns}
    for name, position in by_position.items():
        answers[name].update(() if position is None else (position,))
    claimed: dict[int, str] = {}
    # Of two names for one column the one by position is missing.
    for name in sorted(asked.columns, key=lambda name: (by_position[name] is not None, name)):
        for place in answers[name] if len(answers[name]) == 1 else ():
            claimed.setdefault(place, name)
    repeated = {name: sorted(answers[name]) for name in sorted(asked.columns) if len(answers[name]) > 1}
    missing = asked.columns.difference(claimed.values(), repeated)
    spelt = tuple(claimed.get(place, name) for place, name in enumerate(names))
    return MatchedColumns(spelt, tuple(sorted(missing - asked.optional)), tuple(sorted(missing & asked.optional)), repeated)


def header_texts(header: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of a header, trimmed of all Unicode spaces and invisible characters."""
    return tuple(unicodedata.normalize("NFC", cell).strip(_INVISIBLE).strip().strip(_INVISIBLE).strip() for cell in header)


def column_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return a unique name for each column of a header.

    A nameless column is named after its position, `#3`. Columns whose names differ only in case, spaces or Unicode form are
    numbered: `Name#1`, `NAME#2`.
    """
    wished = [text or f"#{position}" for position, text in enumerate(texts, start=1)]
    counts = Counter(map(folded, wished))
    taken, numbers, found = set(counts), Counter[str](), list[str]()
    for name in wished:
        unique, fold = name, folded(name)
        while counts[fold] > 1 and (unique == name or folded(unique) in taken):
            numbers[fold] += 1
            unique = f"{name}#{numbers[fold]}"
        taken.add(folded(unique))
        found.append(unique)
    return tuple(found)


def is_place(name: str) -> bool:
    """Return whether a name may be a column's letter, such as `C`, or position, `#3` or `#C`."""
    return _POSITION.fullmatch(f"#{name.removeprefix('#')}") is not None and not name.isdecimal()


def column_position(name: str, count: int) -> int | None:
    """Return the index of the column, from 0, for `#3` or `#C`; None if there are not so many."""
    match = _POSITION.fullmatch(name)
    if match is None:
        return None
    number = int(match[1]) if match[1] else column_number(match[2])
    return number - 1 if 0 < number <= count else None


def folded(name: str) -> str:
    """Return a column name folded for comparison, without case, spaces and Unicode form."""
    return "".join(unicodedata.normalize("NFC", name).translate(_DROP_INVISIBLE).casefold().split())


def column_number(letters: str) -> int:
    """Return the number of a sheet's column, from 1: `A` is 1, `AA` 27."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number


def column_letters(number: int) -> str:
    """Return the letters of a sheet's column, from 1."""
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
