"""What is wrong with a row's cells or its width; limits of a record; which rows of a file are none (comments, footers).

The limits are far beyond real files, and keep a small hostile file from taking the memory or the time of a run. Blank rows are
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
"""Characters of one record, one line, or anything that stands beside the records."""
LARGEST_CELL = 10 * 1024 * 1024
"""Characters. A larger cell is a quote that was never closed, far more often than it is text."""
MOST_VALUES = 200_000
"""Values of one record, however nested; cells or lines of one row; properties of one event; elements of one kind in a sheet."""
MOST_COLUMNS = 16_384
"""Columns of a source; as many as a sheet may have."""
LONGEST_NAME = 1_000
"""Characters of a column's name, made of the names that lead to it."""
LONGEST_MARKUP = 1024 * 1024
"""Bytes of one tag, comment or document type of XML."""
DELIMITERS = ",;\t|"
BESIDE = " | "
"""What people are shown between the cells of a source that has no delimiter."""
_MOST_SHOWN = 200
_NUL_HINT = "a NUL byte is no text: take it out, or export the file anew"
_UNDECODED = re.compile("[\ud800-\udfff]")


def short(text: str) -> str:
    r"""Return a text as people are shown it: undecodable bytes as `\xe9`, NUL as `\x00`, no more than 200 characters."""
    shown = _UNDECODED.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text[: _MOST_SHOWN + 1]).replace("\0", "\\x00")
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"


def replaced_bytes(text: str) -> str:
    """Return text that every program can store, each undecodable byte as U+FFFD."""
    return _UNDECODED.sub("\N{REPLACEMENT CHARACTER}", text)


def has_undecodable(text: str) -> bool:
    """Whether the text holds bytes that its encoding could not decode."""
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
    """Return a row with what is wrong with the text of its cells; U+FFFD replaces bad bytes.

    A faulty cell is a problem in a wanted column, a warning in any other. `encodings` are those agreed.
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
    """Makes rows of records that are not as the header announced. `columns` are the source's, `delimiter` its own.

    `wanted` are the columns that the mapping uses, `encodings` those agreed.
    """

    spec: GridSource
    columns: tuple[str, ...]
    wanted: frozenset[str]
    encodings: tuple[str, ...] = ()
    delimiter: str = BESIDE
    rejects_short: bool = False

    def row(self, location: RowLocation, cells: Sequence[str], problems: Sequence[Reason] = ()) -> SourceRow:
        """Return a row of exactly the header's columns, with problems for its width and for the text of its cells.

        Short records are filled with "", and are a problem if `rejects_short`, unless they are blank. A surplus
        that is blank (trailing delimiters) is no problem, nor is any other where `long_rows` says to cut it.
        """
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        named = dict(zip(self.columns, filled, strict=False))
        return checked_row(location, named, self.wanted, self.encodings, (*problems, *self._width(cells)))

    def _width(self, cells: Sequence[str]) -> Iterator[Reason]:
        counts = f"the header has {len(self.columns)} columns, this row has {len(cells)} cells"
        surplus = cells[len(self.columns) :]
        if self.spec.long_rows == "reject" and any(map(str.strip, surplus)):
            remedy = f"a cell that contains {self.delimiter!r} must stand in quotes"
            if self.delimiter == BESIDE:
                remedy = "name their columns in the header, leave them out by `source.range`, or say `long_rows: cut`"
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(surplus)), f"{counts}; {remedy}")
        # Delimiters after the last column with a name are decoration.
        named = (place for place, column in enumerate(self.columns, start=1) if column != f"#{place}")
        if self.rejects_short and len(cells) < max(named, default=0) and any(map(str.strip, cells)):
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(cells)), f"{counts}; is a line break in a cell?")


def within_limits(rows: Iterator[SourceRow], spec: GridSource) -> Iterator[SourceRow]:
    """Leave out comment rows, what follows the row that `until` describes, and the `footer`; numbers stay as they are.

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
"""Rows among which a header is looked for."""
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_DROP_INVISIBLE = str.maketrans(dict.fromkeys(_INVISIBLE))
_POSITION = re.compile(r"#(?:(\d{1,6})|([A-Z]{1,3}))", re.ASCII)
_WHOLE_FILE = "ask the partner for the whole file"
NextRow = Callable[[], Sequence[str] | None]
"""Gives the next row's cells, None at the end."""


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """The columns that a feed asks of its source: all must be there but the `optional`; `aliases` are their other names."""

    columns: frozenset[str]
    optional: frozenset[str] = frozenset()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: AnySource, columns: Iterable[str]) -> ColumnRequest:
        """Return what the mapping's `columns` and the source's own settings ask for together."""
        return cls(frozenset(columns).union(spec.required), frozenset(spec.optional), spec.columns)

    @property
    def has_links(self) -> bool:
        """Whether a name may mean the links behind a column's texts."""
        return any(name.endswith(LINK) for name in (*self.columns, *chain.from_iterable(self.aliases.values())))

    def without(self, columns: Collection[str], *, also: Iterable[str] = ()) -> ColumnRequest:
        """Return the same without some columns, which come from elsewhere, and with others."""
        return ColumnRequest(self.columns.difference(columns).union(also), self.optional, self.aliases)


@dataclass(frozen=True, slots=True)
class MatchedColumns:
    """The source's columns spelt as the mapping spells them; the wanted ones that are `missing`, or `absent` by leave."""

    names: tuple[str, ...]
    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def read_header(header: Header, name: str, next_row: NextRow, *, hint: str = "") -> tuple[str, ...]:
    """Read rows up to and with the header and return the columns' names; row 0 reads nothing.

    `name` is what people call the source; `hint` what may help if there are far too many columns.

    Raises:
        EmptySourceError: there are no rows at all.
        BadSourceError: the source ends before the header, or nothing or far too much stands in it.
    """
    in_file = _find_header(header, name, next_row) if header.row else []
    if len(in_file) > MOST_COLUMNS:
        raise BadSourceError(name, f"the header has {len(in_file)} columns; more than {MOST_COLUMNS} are never meant", hint=hint)
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
    """Name every column, each name once.

    Names are trimmed of all Unicode spaces and invisible characters. A nameless column is called after its position,
    `#3`; of several with one name the first keeps it and the later ones become `Name#2`, `Name#3`.
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
    """Match a source's columns with those asked for; `delimiter` parts the cells of a delimited file.

    Raises:
        MissingColumnsError: columns are missing that may not be.
    """
    found = matched(present, asked)
    if found.missing:
        taken = [name for name, spelt in zip(present, found.names, strict=True) if spelt in asked.columns]
        better = _better_delimiter(present, asked, delimiter, len(found.missing)) if delimiter else ""
        raise MissingColumnsError(name, found.missing, present, taken=taken, delimiter=better)
    return found


def _better_delimiter(present: Sequence[str], asked: ColumnRequest, delimiter: str, missing: int) -> str:
    """Return the delimiter that parts the header into the most columns asked for, "" if none beats the present one."""
    header = delimiter.join(present)
    others = [mark for mark in DELIMITERS if mark != delimiter and mark in header]
    lacking = {mark: len(matched(column_names(header.split(mark)), asked).missing) for mark in others}
    best = min(others, key=lacking.__getitem__, default="")
    return best if best and (len(present) == 1 or lacking[best] < missing) else ""


def matched(names: Sequence[str], asked: ColumnRequest) -> MatchedColumns:
    """Find the wanted columns among a source's names.

    A wanted name means the column of exactly that name; else the one column that differs only in case, spaces or
    Unicode form; else, in the same two ways, the first of its aliases that is there; else, spelt `#3` or `#C`, the third
    column. Two columns that differ only in spelling are not guessed between.
    """
    by_fold: defaultdict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        by_fold[folded(name)].append(position)
    claimed: dict[int, str] = {}

    def claim(wanted: str, positions: Sequence[int | None]) -> None:
        """Let a wanted name mean the one column that is free; each of both once."""
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
    """Find the wanted names that no column has and that mean the links behind one, `Title.link`; return its place from 0."""
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
    """Return the column, from 0, that `#3` or `#C` names."""
    match = _POSITION.fullmatch(name)
    if match is None:
        return None
    number = int(match[1]) if match[1] else column_number(match[2])
    return number - 1 if 0 < number <= count else None


def folded(name: str) -> str:
    """Return what two spellings of one column name share: neither case nor spaces nor Unicode form count."""
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
