"""What is wrong with the text of a row's cells: a problem in a column that the mapping uses, a warning in any other.

What is wrong with a row's shape is `odd_rows`'s.
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

_MOST_SHOWN = 200
_NUL_HINT = "a NUL byte is no text: take it out, or export the file anew"


@dataclass(frozen=True, slots=True)
class CellFaults:
    """Judges the cells of one source. `wanted` are the columns that the mapping uses, `encodings` those agreed."""

    wanted: frozenset[str]
    encodings: tuple[str, ...]

    def row(self, origin: RowLocation, cells: Mapping[str, str], problems: tuple[Reason, ...] = ()) -> SourceRow:
        """Return the row with its faults told; in its cells U+FFFD stands for each byte that is no text."""
        spoilt, told = list(problems), list[Reason]()
        for column, cell in cells.items():
            for fault in self._faults(column, cell):
                (spoilt if column in self.wanted else told).append(fault)
        clean = {column: replaced_bytes(cell).replace("\0", "\N{REPLACEMENT CHARACTER}") for column, cell in cells.items()}
        return SourceRow(origin, clean, tuple(spoilt), tuple(told))

    def _faults(self, column: str, cell: str) -> Iterator[Reason]:
        if has_undecodable(cell):
            hint = f"save the file as {' or '.join(self.encodings)}"
            yield Reason(ReasonCode.UNDECODABLE, "", column, short(cell), hint)
        if "\0" in cell:
            yield Reason(ReasonCode.BAD_TEXT, "", column, short(cell), _NUL_HINT)


def short(text: str) -> str:
    r"""Return a text as people are shown it: undecodable bytes as `\xe9`, NUL as `\x00`, no more than 200 characters."""
    shown = shown_bytes(text[: _MOST_SHOWN + 1]).replace("\0", "\\x00")
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 1] + "…"


_UNDECODED = re.compile("[\ud800-\udfff]")


def shown_bytes(text: str) -> str:
    r"""Return text for people in which each undecodable byte stands as `\xe9`."""
    return _UNDECODED.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)


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


BESIDE = " | "
"""What people are shown between the cells of a source that has no delimiter."""


@dataclass(frozen=True, slots=True)
class OddRows:
    """Makes rows of one source's odd records. `columns` are the source's; `delimiter` parts the cells where people see them."""

    spec: GridSource
    columns: tuple[str, ...]
    faults: CellFaults
    delimiter: str = BESIDE
    rejects_short: bool = False

    def row(self, origin: RowLocation, cells: Sequence[str], problems: tuple[Reason, ...] = ()) -> SourceRow:
        """Return a row of exactly the header's columns, with problems for its width and for the text of its cells.

        Short records are filled with "", and are a problem if `rejects_short`, unless they are blank. A surplus
        that is blank (trailing delimiters) is no problem, nor is any other where `long_rows` says to cut it.
        """
        filled = [*cells, *[""] * (len(self.columns) - len(cells))]
        named = dict(zip(self.columns, filled, strict=False))
        return self.faults.row(origin, named, (*problems, *self._width(cells)))

    def misquoted(self, origin: RowLocation, cells: Sequence[str], text: str, quote: str | None) -> SourceRow:
        """Return the row of a record with broken quotes: its cells as far as they can be told, and why it cannot be used."""
        hint = f"inside a quoted cell write each {quote} twice"
        problem = Reason(ReasonCode.BAD_TEXT, "", "", short(text.rstrip("\r\n")), hint)
        return self.row(origin, cells[: len(self.columns)], (problem,))

    def _width(self, cells: Sequence[str]) -> Iterator[Reason]:
        counts = f"the header has {len(self.columns)} columns, this row has {len(cells)} cells"
        surplus = cells[len(self.columns) :]
        if self.spec.long_rows == "reject" and any(map(str.strip, surplus)):
            hint = f"{counts}; {self._remedy()}"
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(surplus)), hint)
        if self.rejects_short and len(cells) < self._named() and any(map(str.strip, cells)):
            yield Reason(ReasonCode.RAGGED, "", "", short(self.delimiter.join(cells)), f"{counts}; is a line break in a cell?")

    def _remedy(self) -> str:
        if self.delimiter == BESIDE:
            return "name their columns in the header, leave them out by `source.range`, or say `long_rows: cut`"
        return f"a cell that contains {self.delimiter!r} must stand in quotes"

    def _named(self) -> int:
        """Return how many columns there are up to the last one with a name: delimiters after it are decoration."""
        places = enumerate(self.columns, start=1)
        return max((place for place, column in places if column != f"#{place}"), default=0)


LARGEST_RECORD = 64 * 1024 * 1024
"""Characters of one record, one line, or anything that stands beside the records."""
LARGEST_CELL = 10 * 1024 * 1024
"""Characters. A larger cell is a quote that nobody closed, far more often than it is text."""
MOST_VALUES = 200_000
"""Values of one record, however nested; cells or lines of one row; properties of one event; elements of one kind in a sheet."""
MOST_COLUMNS = 16_384
"""Columns of a source; as many as a sheet may have."""
LONGEST_NAME = 1_000
"""Characters of a column's name, made of the names that lead to it."""
LONGEST_MARKUP = 1024 * 1024
"""Bytes of one tag, comment or document type of XML."""


def within_limits(rows: Iterator[SourceRow], spec: GridSource) -> Iterator[SourceRow]:
    """Leave out comment rows, what follows the row that `until` describes, and the `footer`; numbers stay as they are.

    Memory grows with `footer` and the blank rows within it, not with the file.
    """
    if spec.comment:
        rows = _without_comments(rows, spec.comment)
    if spec.until is not None:
        rows = _until(rows, compile_pattern(spec.until))
    if spec.footer:
        rows = _without_footer(rows, spec.footer)
    return rows


def _without_comments(rows: Iterator[SourceRow], mark: str) -> Iterator[SourceRow]:
    return (row for row in rows if not next(iter(row.cells.values()), "").lstrip().startswith(mark))


def _until(rows: Iterator[SourceRow], pattern: CompiledPattern) -> Iterator[SourceRow]:
    for row in rows:
        if any(map(pattern.finds, row.cells.values())):
            # The rest is read all the same: a file that ends early or changes meanwhile must be noticed.
            deque(rows, maxlen=0)
            return
        yield row


def _without_footer(rows: Iterator[SourceRow], length: int) -> Iterator[SourceRow]:
    held: deque[SourceRow] = deque()
    filled = 0
    for row in rows:
        held.append(row)
        filled += not _is_blank(row)
        while filled > length or (filled == length and _is_blank(held[0])):
            first = held.popleft()
            filled -= not _is_blank(first)
            yield first


def _is_blank(row: SourceRow) -> bool:
    return not any(map(str.strip, row.cells.values()))
