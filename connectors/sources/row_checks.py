"""What is wrong with a row's cells or its width; limits of a record; which rows of a file are none (comments, footers).

The limits are far beyond real files, and keep a small hostile file from taking the memory or the time of a run. Blank rows are
rows, and left to the mapping.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mappings.outcome import RowLocation, SourceRow
from mappings.patterns import CompiledPattern, compile_pattern
from mappings.refusals import Reason, ReasonCode
from mappings.spec.source import GridSource

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


@dataclass(frozen=True, slots=True)
class CellChecks:
    """Checks the text of cells. `wanted` are the columns that the mapping uses, `encodings` those agreed."""

    wanted: frozenset[str]
    encodings: tuple[str, ...]

    def row(self, origin: RowLocation, cells: Mapping[str, str], problems: tuple[Reason, ...] = ()) -> SourceRow:
        """Return the row; a faulty cell is a problem in a wanted column, a warning in any other. U+FFFD replaces bad bytes."""
        faults, warnings = list(problems), list[Reason]()
        for column, cell in cells.items():
            found = faults if column in self.wanted else warnings
            if has_undecodable(cell):
                hint = f"save the file as {' or '.join(self.encodings)}"
                found.append(Reason(ReasonCode.UNDECODABLE, "", column, short(cell), hint))
            if "\0" in cell:
                found.append(Reason(ReasonCode.BAD_TEXT, "", column, short(cell), _NUL_HINT))
        clean = {column: replaced_bytes(cell).replace("\0", "\N{REPLACEMENT CHARACTER}") for column, cell in cells.items()}
        return SourceRow(origin, clean, tuple(faults), tuple(warnings))


@dataclass(frozen=True, slots=True)
class RowChecks:
    """Makes rows of records that are not as the header announced. `columns` are the source's, `delimiter` its own."""

    spec: GridSource
    columns: tuple[str, ...]
    cells: CellChecks
    delimiter: str = BESIDE
    rejects_short: bool = False

    def row(self, origin: RowLocation, cells: Sequence[str], problems: tuple[Reason, ...] = ()) -> SourceRow:
        """Return a row of exactly the header's columns, with problems for its width and for the text of its cells.

        Short records are filled with "", and are a problem if `rejects_short`, unless they are blank. A surplus
        that is blank (trailing delimiters) is no problem, nor is any other where `long_rows` says to cut it.
        """
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        named = dict(zip(self.columns, filled, strict=False))
        return self.cells.row(origin, named, (*problems, *self._width(cells)))

    def misquoted(self, origin: RowLocation, cells: Sequence[str], text: str, quote: str | None) -> SourceRow:
        """Return the row of a record with broken quotes: its cells as far as they can be read, and the problem."""
        hint = f"inside a quoted cell write each {quote} twice"
        problem = Reason(ReasonCode.BAD_TEXT, "", "", short(text.rstrip("\r\n")), hint)
        return self.row(origin, cells[: len(self.columns)], (problem,))

    def _width(self, cells: Sequence[str]) -> Iterator[Reason]:
        counts = f"the header has {len(self.columns)} columns, this row has {len(cells)} cells"
        surplus = cells[len(self.columns) :]
        if self.spec.long_rows == "reject" and any(map(str.strip, surplus)):
            remedy = (
                "name their columns in the header, leave them out by `source.range`, or say `long_rows: cut`"
                if self.delimiter == BESIDE
                else f"a cell that contains {self.delimiter!r} must stand in quotes"
            )
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
        rows = _until(rows, compile_pattern(spec.until))
    if spec.footer:
        rows = _without_footer(rows, spec.footer)
    return rows


def _until(rows: Iterator[SourceRow], pattern: CompiledPattern) -> Iterator[SourceRow]:
    for row in rows:
        if any(map(pattern.finds, row.cells.values())):
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
