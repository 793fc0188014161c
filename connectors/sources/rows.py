"""Checks of a row's cells and width; limits of a record; rows that do not count (comments, footers); matching of columns.

The limits are far beyond real files, and keep a small hostile file from using up the memory or time of a run. Blank rows are
rows, and left to the mapping.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest

from connectors.sources.contract import BadSourceError, EmptySourceError, MissingColumnsError
from mappings.outcome import RowLocation, SourceRow
from mappings.patterns import compile_pattern
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source import AnySource, GridSource
from mappings.spec.source_words import LINK, Header

LARGEST_RECORD = 64 * 1024 * 1024
"""The most characters of one record or line, or of anything beside the records."""
LARGEST_CELL = 10 * 1024 * 1024
"""The most characters of a cell; a larger one is far more often an unclosed quote than text."""
MOST_VALUES = 200_000
"""The most values of one record, cells or lines of one row, properties of one event, or elements of one kind in a sheet."""
MOST_COLUMNS = 16_384
"""The most columns of a source, as many as a sheet may have."""
LONGEST_NAME = 1_000
"""The most characters of a column's name, including the names of its path."""
LONGEST_MARKUP = 1024 * 1024
"""The most bytes of one tag, comment or document type of XML."""
DELIMITERS = ",;\t|"
BESIDE = " | "
"""The separator shown between the cells of a source without a delimiter."""
_MOST_SHOWN = 200
_NUL_HINT = "remove the NUL byte, or export the file again"
_UNDECODED = re.compile("[\ud800-\udfff]")


def short(text: str) -> str:
    r"""Return a text for display: undecodable bytes as `\xe9`, NUL as `\x00`, at most 200 characters."""
    shown = _UNDECODED.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text[: _MOST_SHOWN + 1]).replace("\0", "\\x00")
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"


def replaced_bytes(text: str) -> str:
    """Return a text with each undecodable byte replaced by U+FFFD, so that every program can store it."""
    return _UNDECODED.sub("\N{REPLACEMENT CHARACTER}", text)


def has_undecodable(text: str) -> bool:
    """Return whether the text has bytes that its encoding could not decode."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def checked_row(
    location: RowLocation,
    cells: Mapping[str, str],
    wanted: frozenset[str],
    encodings: Sequence[str],
    problems: Sequence[Reason] = (),
) -> SourceRow:
    """Return a row with the problems in its cells' texts; undecodable bytes become U+FFFD.

    A faulty cell is a problem in a wanted column, a warning in any other. `encodings`: those that the mapping file allows.
    """
    faults, warnings = list(problems), list[Reason]()
    for column, cell in cells.items():
        found = faults if column in wanted else warnings
        if has_undecodable(cell):
            hint = f"save the file as {' or '.join(encodings)}"
            found.append(Reason(ReasonCode.UNDECODABLE, "", column, short(cell), hint))
        if "\0" in cell:
            found.append(Reason(ReasonCode.BAD_TEXT, "", column, short(cell), _NUL_HINT))
    clean = {column: replaced_bytes(cell).replace("\0", "\N{REPLACEMENT CHARACTER}") for column, cell in cells.items()}
    return SourceRow(location, clean, tuple(faults), tuple(warnings))


@dataclass(frozen=True, slots=True)
class RowChecks:
    """Makes rows of records that do not fit the header. `columns` are the source's, `delimiter` its own.

    `wanted`: the columns that the mapping uses; `encodings`: those that the mapping file allows.
    """

    spec: GridSource
    columns: tuple[str, ...]
    wanted: frozenset[str]
    encodings: tuple[str, ...] = ()
    delimiter: str = BESIDE
    rejects_short: bool = False

    def row(self, location: RowLocation, cells: Sequence[str], problems: Sequence[Reason] = ()) -> SourceRow:
        """Return a row with exactly the header's columns, and problems for its width and the texts of its cells.

        Short records are filled with "", and are a problem if `rejects_short`, unless they are blank. Extra cells are no
        problem if they are blank (trailing delimiters), or if `long_rows` is `cut`.
        """
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        named = dict(zip(self.columns, filled, strict=False))
        return checked_row(location, named, self.wanted, self.encodings, (*problems, *self._width(cells)))

    def _width(self, cells: Sequence[str]) -> Iterator[Reason]:
        counts = f"the header has {len(self.columns)} columns, this row has {len(cells)} cells"
        surplus = cells[len(self.columns) :]
        if self.spec.long_rows == "reject" and any(map(str.strip, surplus)):
            remedy = f"a cell that contains {self.delimiter!r} must be in quotes"
            if self.delimiter == BESIDE:
                remedy = "name their columns in the header, leave them out by `source.range`, or write `long_rows: cut`"
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(surplus)), f"{counts}; {remedy}")
        # Delimiters after the last column with a name are decoration.
        named = (place for place, column in enumerate(self.columns, start=1) if column != f"#{place}")
        if self.rejects_short and len(cells) < max(named, default=0) and any(map(str.strip, cells)):
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(cells)), f"{counts}; is a line break in a cell?")


def within_limits(rows: Iterator[SourceRow], spec: GridSource) -> Iterator[SourceRow]:
    """Remove comment rows, the rows from `until` on, and the `footer`; row numbers are unchanged.

    Memory grows with `footer` and the blank rows within it, not with the file.
    """
    if mark := spec.comment:
        rows = (row for row in rows if not next(iter(row.cells.values()), "").lstrip().startswith(mark))
    if spec.until is not None:
        rows = _until(rows, compile_pattern(spec.until).finds)
    return _without_footer(rows, spec.footer) if spec.footer else rows


def _until(rows: Iterator[SourceRow], finds: Callable[[str], object]) -> Iterator[SourceRow]:
    for row in rows:
        if any(map(finds, row.cells.values())):
            # The rest is read all the same: a file that ends early or changes meanwhile must be noticed.
            deque(rows, maxlen=0)
            return
        yield row


def _without_footer(rows: Iterator[SourceRow], length: int) -> Iterator[SourceRow]:
    held: deque[tuple[SourceRow, bool]] = deque()
    filled = 0
    for row in rows:
        is_filled = any(map(str.strip, row.cells.values()))
        held.append((row, is_filled))
        filled += is_filled
        while filled > length or (filled == length and not held[0][1]):
            first, was_filled = held.popleft()
            filled -= was_filled
            yield first


_FARTHEST = 1000
"""The rows among which a header is searched."""
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_DROP_INVISIBLE = str.maketrans(dict.fromkeys(_INVISIBLE))
_POSITION = re.compile(r"#(?:(\d{1,6})|([A-Z]{1,3}))", re.ASCII)
_WHOLE_FILE = "ask the partner for the whole file"
NextRow = Callable[[], Sequence[str] | None]
"""Returns the next row's cells, None at the end."""


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """The columns that a feed needs from its source: all must exist except the `optional`; `aliases` are their other names."""

    columns: frozenset[str]
    optional: frozenset[str] = frozenset()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: AnySource, columns: Iterable[str]) -> ColumnRequest:
        """Return the request for a mapping's `columns` with the source's settings."""
        return cls(frozenset(columns).union(spec.required), frozenset(spec.optional), spec.columns)

    @property
    def has_links(self) -> bool:
        """Whether a name may stand for the links behind a column's texts."""
        return any(name.endswith(LINK) for name in (*self.columns, *chain.from_iterable(self.aliases.values())))

    def without(self, columns: Collection[str], *, also: Iterable[str] = ()) -> ColumnRequest:
        """Return the request without some columns, which come from elsewhere, and with additional ones."""
        return ColumnRequest(self.columns.difference(columns).union(also), self.optional, self.aliases)


@dataclass(frozen=True, slots=True)
class MatchedColumns:
    """The source's columns in the mapping's spelling, the wanted ones that are `missing`, and the `absent` optional ones."""

    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def read_header(header: Header, name: str, next_row: NextRow, *, hint: str = "") -> tuple[str, ...]:
    """Read rows up to the header and return the columns' names; row 0 reads nothing.

    `name`: the source's name for people; `hint`: what to do about far too many columns.

    Raises:
        EmptySourceError: there are no rows at all.
        BadSourceError: the source ends before the header, or the header is blank or far too wide.
    """
    in_file = _find_header(header, name, next_row) if header.row else []
    if len(in_file) > MOST_COLUMNS:
        raise BadSourceError(name, f"the header has {len(in_file)} columns; at most {MOST_COLUMNS} are possible", hint=hint)
    return column_names(header.names or in_file)


def _find_header(header: Header, name: str, next_row: NextRow) -> list[str]:
    finds = compile_pattern(header.matches).finds if header.matches is not None else None
    rows, number = iter(next_row, None), 0
    for number, cells in enumerate(islice(rows, _FARTHEST if finds else header.row), start=1):
        if number == header.row if finds is None else any(map(finds, cells)):
            found = [cells, *islice(rows, header.rows - 1)]
            if len(found) < header.rows:
                raise BadSourceError(name, f"the file ends within its header, after row {number}", hint=_WHOLE_FILE)
            columns = zip_longest(*found, fillvalue="")
            names = [" ".join(filter(None, map(str.strip, parts))) for parts in columns]
            if not any(names):
                raise BadSourceError(name, f"row {number} should hold the names of the columns and is blank")
            return names
    if not number:
        raise EmptySourceError(name, "the file is empty", hint=_WHOLE_FILE)
    if finds is None:
        raise BadSourceError(name, f"the file ends before row {header.row}, where its header should be", hint=_WHOLE_FILE)
    message = f'no cell of the first {number} rows matches "{header.matches}", so there is no header'
    raise BadSourceError(name, message, hint="correct `source.header.matches`, or ask the partner for the former layout")


def column_names(header: Sequence[str]) -> tuple[str, ...]:
    """Return a unique name for each column.

    Names are trimmed of all Unicode spaces and invisible characters. A nameless column is named after its position, `#3`; of
    several columns with the same name the first keeps it and the later ones become `Name#2`, `Name#3`.
    """
    trimmed = (unicodedata.normalize("NFC", cell).strip(_INVISIBLE).strip().strip(_INVISIBLE).strip() for cell in header)
    wished = [name or f"#{position}" for position, name in enumerate(trimmed, start=1)]
    reserved, taken = set(wished), dict[str, None]()
    counts: defaultdict[str, int] = defaultdict(lambda: 1)
    for name in wished:
        free = name
        while free in taken or (free != name and free in reserved):
            counts[name] += 1
            free = f"{name}#{counts[name]}"
        taken[free] = None
    return tuple(taken)


def wanted_columns(present: Sequence[str], asked: ColumnRequest, name: str, delimiter: str = "") -> MatchedColumns:
    """Match a source's columns with the requested ones; `delimiter` is that of a delimited file.

    Raises:
        MissingColumnsError: required columns are missing.
    """
    found = matched(present, asked)
    if found.missing:
        taken = [name for name, spelt in zip(present, found.names, strict=True) if spelt in asked.columns]
        better = _better_delimiter(present, asked, delimiter, len(found.missing)) if delimiter else ""
        raise MissingColumnsError(name, found.missing, present, taken=taken, delimiter=better)
    return found


def _better_delimiter(present: Sequence[str], asked: ColumnRequest, delimiter: str, missing: int) -> str:
    """Return the delimiter that splits the header into the most requested columns, "" if none is better than the present one."""
    header = delimiter.join(present)
    others = [mark for mark in DELIMITERS if mark != delimiter and mark in header]
    lacking = {mark: len(matched(column_names(header.split(mark)), asked).missing) for mark in others}
    best = min(others, key=lacking.__getitem__, default="")
    return best if best and (len(present) == 1 or lacking[best] < missing) else ""


def matched(names: Sequence[str], asked: ColumnRequest) -> MatchedColumns:
    """Match the wanted columns with a source's names.

    A wanted name is the column of exactly that name; else the only column that differs in case, spaces or Unicode form; else,
    by the same rules, the first existing alias; else, for `#3` or `#C`, the third column. It is not guessed between two columns
    that differ only in spelling.
    """
    by_fold: defaultdict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        by_fold[folded(name)].append(position)
    claimed: dict[int, str] = {}

    def claim(wanted: str, positions: Sequence[int | None]) -> None:
        """Assign a wanted name to the only free column; each of both is used once."""
        free = [position for position in positions if position is not None and position not in claimed]
        if len(free) == 1 and wanted not in claimed.values():
            claimed[free[0]] = wanted

    ordered, by_name = sorted(asked.columns), {name: position for position, name in enumerate(names)}
    for name in ordered:
        claim(name, [by_name.get(name)])
    for name in ordered:
        claim(name, by_fold[folded(name)])
    for name in ordered:
        for alias in asked.aliases.get(name, ()):
            claim(name, [by_name.get(alias)])
            claim(name, by_fold[folded(alias)])
        claim(name, [_position(name, len(names))])
    missing = asked.columns.difference(claimed.values())
    spelt = tuple(claimed.get(position, name) for position, name in enumerate(names))
    return MatchedColumns(spelt, tuple(sorted(missing - asked.optional)), tuple(sorted(missing & asked.optional)))


def link_columns(names: Sequence[str], asked: ColumnRequest) -> dict[str, int]:
    """Return the position, from 0, of the column whose links each missing name such as `Title.link` stands for."""
    found = matched(names, asked)
    places: dict[str, int] = {}
    for wanted in (*found.missing, *found.absent):
        for name in (wanted, *asked.aliases.get(wanted, ())):
            column = name.removesuffix(LINK)
            spelt = matched(names, ColumnRequest(frozenset({column}), aliases=asked.aliases)).names
            if column != name and column in spelt:
                places.setdefault(wanted, spelt.index(column))
    return places


def _position(name: str, count: int) -> int | None:
    """Return the index of the column, from 0, for `#3` or `#C`."""
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
