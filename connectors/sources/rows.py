"""Checks of a row's cells and width; limits of a record; rows that do not count; matching of columns.

The limits are far beyond real files, and keep a small hostile file from using up the memory or time of a run. Blank rows are
rows, and left to the mapping.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, zip_longest

from connectors.sources.contract import BadSourceError, EmptySourceError, MissingColumnsError, RepeatedColumnsError
from mappings.columns import LINK, MOST_COLUMNS, ColumnRequest, column_letters, column_names, header_texts, matched
from mappings.outcome import RowLocation, SourceRow
from mappings.patterns import compile_pattern
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source_base import GridSource
from mappings.spec.source_words import ChangedSpan, Header, MarkedChanges

LARGEST_RECORD = 64 * 1024 * 1024
"""The most characters of one record or line, or of anything beside the records."""
LARGEST_CELL = 10 * 1024 * 1024
"""The most characters of a cell; a larger one is far more often an unclosed quote than text."""
MOST_VALUES = 200_000
"""The most values of one record, cells or lines of one row, properties of one event, or elements of one kind in a sheet."""
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
_AFTER_BLANK = re.compile(r'\s+"').match
"""Finds a quote that does not open its cell, because a blank stands before it."""


class NumberText(str):
    """A number, with its text from the file."""

    __slots__ = ()


def short(text: str) -> str:
    r"""Return a text for display: undecodable bytes as `\xe9`, NUL as `\x00`, at most 200 characters."""
    shown = _UNDECODED.sub(_shown_code, text[: _MOST_SHOWN + 1]).replace("\0", "\\x00")
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"


def _shown_code(found: re.Match[str]) -> str:
    r"""Return an undecodable byte as `\xe9`, half of a pair that JSON has as an escape as `\ud83c`."""
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def replaced_bytes(text: str) -> str:
    """Return a text with each undecodable byte replaced by U+FFFD, so that every program can store it."""
    return _UNDECODED.sub("\N{REPLACEMENT CHARACTER}", text)


_NO = frozenset({"", "0.", "false", "no"})
"""False values without the zeros at their end: `0.0` is one, too."""


def is_marked(text: str) -> bool:
    """Return whether the cell of a column such as `deleted` says yes: it is filled with anything but a false value."""
    return text.strip().casefold().rstrip("0") not in _NO


def change_columns(changes: MarkedChanges | None, asked: ColumnRequest) -> tuple[str, str]:
    """Return the columns with a row's time of change and its mark of deletion, as the mapping spells them; "" for none."""
    spell = asked.speller()
    return (spell(changes.by), spell(changes.deleted)) if changes else ("", "")


def moment_of(text: str) -> datetime | None:
    """Return an ISO day or moment, in UTC if it has no zone; None if it is none."""
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    return None


def is_within(span: ChangedSpan, stamp: str, place: str) -> bool:
    """Return whether a row with this time of change is meant, False without one.

    Raises:
        BadSourceError: it is not a day or moment.
    """
    moment = moment_of(stamp)
    if stamp and moment is None:
        message = f'"{short(stamp)}" in {span.by} is not a day or moment, so that rows cannot be chosen by it'
        raise BadSourceError(place, message, hint="use --by event, or another column as incremental.by")
    return moment is not None and span.begin <= moment < span.end


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
    faults = [one for one in problems if not one.column or one.column in wanted]
    warnings = [one for one in problems if one.column and one.column not in wanted]
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
        return checked_row(location, named, self.wanted, self.encodings, problems or tuple(self._width(cells)))

    def is_short(self, cells: Sequence[str]) -> bool:
        """Return whether a record lacks cells, and is not blank."""
        # Delimiters after the last column with a name are decoration.
        named = (place for place, column in enumerate(self.columns, start=1) if column != f"#{place}")
        return len(cells) < max(named, default=0) and any(map(str.strip, cells))

    def _width(self, cells: Sequence[str]) -> Iterator[Reason]:
        counts = f"the header has {len(self.columns)} columns, this row has {len(cells)} cells"
        surplus = cells[len(self.columns) :]
        if self.spec.long_rows == "reject" and any(map(str.strip, surplus)):
            remedy = f"a cell that contains {self.delimiter!r} must be in quotes"
            if any(map(_AFTER_BLANK, cells)):
                remedy = f"{remedy}, without a blank before the quote; write `skip_blanks: true` to ignore such blanks"
            if self.delimiter == BESIDE:
                remedy = "name their columns in the header, leave them out by `source.range`, or write `long_rows: cut`"
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(surplus)), f"{counts}; {remedy}")
        if self.rejects_short and self.is_short(cells):
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(cells)), f"{counts}; is a line break in a cell?")


def within_limits(rows: Iterator[SourceRow], spec: GridSource) -> Iterator[SourceRow]:
    """Remove comment rows and the rows from `until` on; row numbers are unchanged."""
    if mark := spec.comment:
        rows = (row for row in rows if not next(iter(row.cells.values()), "").lstrip().startswith(mark))
    return rows if spec.until is None else _until(rows, compile_pattern(spec.until).finds)


def _until(rows: Iterator[SourceRow], finds: Callable[[str], object]) -> Iterator[SourceRow]:
    for row in rows:
        if any(map(finds, row.cells.values())):
            # The rest is read all the same: a file that ends early or changes meanwhile must be noticed.
            deque(rows, maxlen=0)
            return
        yield row


_FARTHEST = 1000
"""The rows among which a header is searched."""
_WHOLE_FILE = "ask the partner for the whole file"
NextRow = Callable[[], Sequence[str] | None]
"""Returns the next row's cells, None at the end."""


def read_header(header: Header, name: str, next_row: NextRow, *, hint: str = "") -> tuple[str, ...]:
    """Read rows up to the header and return its texts, one for each column; row 0 reads nothing.

    `name`: the source's name for people; `hint`: what to do about far too many columns.

    Raises:
        EmptySourceError: there are no rows at all.
        BadSourceError: the source ends before the header, or the header is blank or far too wide.
    """
    in_file = _find_header(header, name, next_row) if header.row else []
    if len(in_file) > MOST_COLUMNS:
        raise BadSourceError(name, f"the header has {len(in_file)} columns; at most {MOST_COLUMNS} are possible", hint=hint)
    return header_texts(header.names or in_file)


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


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table by unique names, in the mapping's spelling where it uses them.

    `headers`: the text of each column's header by its name. `absent`: the optional names without a column. `links`: the
    position, from 0, of the column whose links a name such as `Title.link` stands for.
    """

    names: tuple[str, ...]
    headers: Mapping[str, str]
    absent: tuple[str, ...] = ()
    links: Mapping[str, int] = field(default_factory=dict)


_BLANKS = "a blank stands before a quote: set `source.skip_blanks` to true"


def table_columns(
    texts: Sequence[str], asked: ColumnRequest, name: str, *, delimiter: str = "", left: int = 1, has_links: bool = False
) -> TableColumns:
    """Match the texts of a table's header with the requested columns.

    `name`: the source's name for people. `delimiter`: that of a delimited file. `left`: the number of the sheet's column where
    the table begins. `has_links`: the source can read the links behind a column's texts.

    Raises:
        RepeatedColumnsError: several columns answer to a requested name.
        MissingColumnsError: required columns are missing.
    """
    links, repeated = _link_columns(texts, asked) if has_links else ({}, {})
    found = matched(texts, asked.without(links))
    repeated.update(found.repeated)
    if repeated:
        shown = {
            wanted: [f'"{short(texts[place])}" (#{place + 1}, column {column_letters(place + left)})' for place in places]
            for wanted, places in repeated.items()
        }
        raise RepeatedColumnsError(name, shown)
    if found.missing:
        present = column_names(texts)
        taken = [column for column, spelt in zip(present, found.names, strict=True) if spelt in asked.columns]
        better = _better_delimiter(texts, asked, delimiter, len(found.missing)) if delimiter else ""
        advice = _BLANKS if delimiter and any(text.startswith('"') for text in texts) else ""
        raise MissingColumnsError(name, found.missing, present, taken=taken, delimiter=better, advice=advice)
    headers = dict(zip(found.names, texts, strict=True)) | {name: texts[place] for name, place in links.items()}
    return TableColumns(found.names, headers, found.absent, links)


def _better_delimiter(texts: Sequence[str], asked: ColumnRequest, delimiter: str, missing: int) -> str:
    """Return the delimiter that splits the header into the most requested columns, "" if none is better than the present one."""
    header = delimiter.join(texts)
    others = [mark for mark in DELIMITERS if mark != delimiter and mark in header]
    lacking = {mark: len(matched(header_texts(header.split(mark)), asked).missing) for mark in others}
    best = min(others, key=lacking.__getitem__, default="")
    return best if best and (len(texts) == 1 or lacking[best] < missing) else ""


def _link_columns(texts: Sequence[str], asked: ColumnRequest) -> tuple[dict[str, int], dict[str, Sequence[int]]]:
    """Return the column whose links each missing name such as `Title.link` stands for; and all columns of a name with several."""
    found = matched(texts, asked)
    links, repeated = dict[str, int](), dict[str, Sequence[int]]()
    for wanted in (*found.missing, *found.absent):
        places = set[int]()
        for name in (wanted, *asked.aliases.get(wanted, ())):
            column = name.removesuffix(LINK)
            own = matched(texts, ColumnRequest(frozenset({column}), aliases=asked.aliases))
            if column != name and column not in own.missing:
                places.update(own.repeated.get(column) or (own.names.index(column),))
        if len(places) == 1:
            links[wanted] = places.pop()
        elif places:
            repeated[wanted] = sorted(places)
    return links, repeated
