"""Finding the header among a source's first rows, and making names of it.

How those rows are read is the source's own matter, which columns the mapping wants `names`'s.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.sources.errors import BadSourceError, EmptySourceError, MissingColumnsError
from connectors.sources.row_checks import MOST_COLUMNS
from mappings.patterns import compile_pattern
from mappings.spec.source import AnySource
from mappings.spec.source_words import Header

_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_DROP_INVISIBLE = str.maketrans(dict.fromkeys(_INVISIBLE))
_POSITION = re.compile(r"#(?:(\d{1,6})|([A-Z]{1,3}))", re.ASCII)


@dataclass(frozen=True, slots=True)
class Asked:
    """The columns that a feed asks of its source: all must be there but the `optional`; `aliases` are their other names."""

    columns: frozenset[str]
    optional: frozenset[str] = frozenset()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: AnySource, columns: Iterable[str]) -> Asked:
        """Return what the mapping's `columns` and the source's own words ask for together."""
        return cls(frozenset(columns).union(spec.required), frozenset(spec.optional), spec.columns)

    def without(self, columns: Collection[str], *, also: Iterable[str] = ()) -> Asked:
        """Return the same without some columns, which come from elsewhere, and with others."""
        return Asked(self.columns.difference(columns).union(also), self.optional, self.aliases)

    def allowing(self, columns: Iterable[str]) -> Asked:
        """Return the same, with columns that may be absent besides those that the feed says so of."""
        return Asked(self.columns, self.optional.union(columns), self.aliases)


@dataclass(frozen=True, slots=True)
class Matched:
    """The source's columns spelt as the mapping spells them; the wanted ones that are `missing`, or `absent` by leave."""

    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def folded(name: str) -> str:
    """Return what two spellings of one column name share: neither case nor spaces nor Unicode form count."""
    return "".join(unicodedata.normalize("NFC", name).translate(_DROP_INVISIBLE).casefold().split())


def column_names(header: Sequence[str]) -> tuple[str, ...]:
    """Name every column, each name once.

    Names are trimmed of all Unicode spaces and invisible characters. A nameless column is called after its position,
    `#3`; of several with one name the first keeps it and the later ones become `Name#2`, `Name#3`.
    """
    wished = [_trimmed(cell) or f"#{position}" for position, cell in enumerate(header, start=1)]
    reserved, taken = set(wished), set[str]()
    counts: defaultdict[str, int] = defaultdict(lambda: 1)
    names = []
    for name in wished:
        free = name
        while free in taken or (free != name and free in reserved):
            counts[name] += 1
            free = f"{name}#{counts[name]}"
        taken.add(free)
        names.append(free)
    return tuple(names)


def matched(names: Sequence[str], asked: Asked) -> Matched:
    """Find the wanted columns among a source's names.

    A wanted name means the column of exactly that name; else the one column that differs only in case, spaces or
    Unicode form; else, in the same two ways, the first of its aliases that is there; else, spelt `#3` or `#C`, the third
    column. Two columns that differ only in spelling are not guessed between.
    """
    search = _Search(names)
    for name in sorted(asked.columns):
        search.exactly(name, name)
    for name in sorted(asked.columns):
        search.alike(name, name)
    for name in sorted(asked.columns):
        for alias in asked.aliases.get(name, ()):
            search.exactly(name, alias)
            search.alike(name, alias)
        search.at_position(name)
    missing = asked.columns - search.found.keys()
    return Matched(search.spelt(), tuple(sorted(missing - asked.optional)), tuple(sorted(missing & asked.optional)))


class _Search:
    """Which wanted name was found at which position; a position answers to one name only."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._by_name = {name: position for position, name in enumerate(names)}
        self._by_fold: defaultdict[str, list[int]] = defaultdict(list)
        for position, name in enumerate(names):
            self._by_fold[folded(name)].append(position)
        self.found: dict[str, int] = {}
        self._claimed: set[int] = set()

    def exactly(self, wanted: str, name: str) -> None:
        self._claim(wanted, self._by_name.get(name))

    def alike(self, wanted: str, name: str) -> None:
        free = [position for position in self._by_fold.get(folded(name), ()) if position not in self._claimed]
        self._claim(wanted, free[0] if len(free) == 1 else None)

    def at_position(self, wanted: str) -> None:
        if match := _POSITION.fullmatch(wanted):
            position = int(match[1]) if match[1] else column_number(match[2])
            self._claim(wanted, position - 1 if 0 < position <= len(self._names) else None)

    def spelt(self) -> tuple[str, ...]:
        spelt = {position: wanted for wanted, position in self.found.items()}
        return tuple(spelt.get(position, name) for position, name in enumerate(self._names))

    def _claim(self, wanted: str, position: int | None) -> None:
        if position is not None and wanted not in self.found and position not in self._claimed:
            self.found[wanted] = position
            self._claimed.add(position)


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


def _trimmed(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip(_INVISIBLE).strip().strip(_INVISIBLE).strip()


FARTHEST = 1000
"""Rows among which a header is looked for."""
_LIKE_CONTENT = re.compile(r"https?://|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|(?<!\S)(?:\S++\s){5}")
_WHOLE_FILE = "ask the partner for the whole file"
NextRow = Callable[[], Sequence[str] | None]
"""Gives the next row's cells, None at the end."""


def read_header(header: Header, name: str, next_row: NextRow, *, hint: str = "") -> tuple[str, ...]:
    """Read rows up to and with the header and return the columns' names; row 0 reads nothing.

    `name` is what people call the source; `hint` what may help if there are far too many columns.

    Raises:
        EmptySourceError: there are no rows at all.
        BadSourceError: the source ends before the header, or nothing or far too much stands in it.
    """
    in_file = _found(header, name, next_row) if header.row else []
    if len(in_file) > MOST_COLUMNS:
        raise BadSourceError(name, f"the header has {len(in_file)} columns; more than {MOST_COLUMNS} are never meant", hint=hint)
    return column_names(header.names or in_file)


def wanted_columns(present: Sequence[str], asked: Asked, name: str, advice: str = "") -> Matched:
    """Match a source's columns with those asked for.

    Raises:
        MissingColumnsError: columns are missing that may not be.
    """
    found = matched(present, asked)
    if found.missing:
        taken = [name for name, spelt in zip(present, found.names, strict=True) if spelt in asked.columns]
        raise MissingColumnsError(name, found.missing, present, taken=taken, advice=advice or _overwritten(present, taken))
    return found


def _found(header: Header, name: str, next_row: NextRow) -> list[str]:
    passed, finds = 0, compile_pattern(header.matches).finds if header.matches is not None else None
    for cells in _rows(header, name, next_row):
        passed += 1
        is_it = passed == header.row if finds is None else any(map(finds, cells))
        if is_it:
            return _joined([cells, *(_next(next_row, name, passed) for _ in range(header.rows - 1))], name, passed)
    message = f'no cell of the first {passed} rows matches "{header.matches}", so there is no header'
    raise BadSourceError(name, message, hint="correct `source.header.matches`, or ask the partner for the former layout")


def _rows(header: Header, name: str, next_row: NextRow) -> Iterator[Sequence[str]]:
    for passed in range(FARTHEST if header.matches is not None else header.row):
        cells = next_row()
        if cells is None and not passed:
            raise EmptySourceError(name, "the file is empty", hint=_WHOLE_FILE)
        if cells is None and header.matches is not None:
            return
        if cells is None:
            raise BadSourceError(name, f"the file ends before row {header.row}, where its header should be", hint=_WHOLE_FILE)
        yield cells


def _next(next_row: NextRow, name: str, passed: int) -> Sequence[str]:
    cells = next_row()
    if cells is None:
        raise BadSourceError(name, f"the file ends within its header, after row {passed}", hint=_WHOLE_FILE)
    return cells


def _joined(rows: Sequence[Sequence[str]], name: str, row: int) -> list[str]:
    width = max(map(len, rows))
    columns = zip(*([*cells, *[""] * (width - len(cells))] for cells in rows), strict=True)
    names = [" ".join(filter(None, map(str.strip, parts))) for parts in columns]
    if not any(names):
        raise BadSourceError(name, f"row {row} should hold the names of the columns and is blank")
    return names


def _overwritten(present: Sequence[str], taken: Sequence[str]) -> str:
    """Say so if a name looks like something that belongs into a row: somebody has written over the header."""
    for position, name in enumerate(present, start=1):
        if name not in taken and _LIKE_CONTENT.search(name):
            shown = name if len(name) <= 40 else f"{name[:39]}…"
            asked = f'if it stays so, ask for it as "#{position}"'
            return f'the header\'s column {position} reads "{shown}": has somebody written over its name? {asked}'
    return ""
