"""The rows of a sheet, wherever it is kept: which part is read, merged cells spread, and source rows made of them.

Where the rows come from is `xlsx_sheet`'s and `google_copy`'s; what a cell says `sheet_cells`'s.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from connectors.sources.names import column_number
from connectors.sources.odd_rows import OddRows
from connectors.sources.sheet_cells import Fault
from mappings.outcome import RowLocation, SourceRow
from mappings.refusals import Reason, ReasonCode

_CORNER = re.compile(r"([A-Z]{0,3})([0-9]{0,7})")
LAST_COLUMN, LAST_ROW = 16_384, 1_048_576
_LARGEST_MERGED = 100_000
"""Cells; what is merged over more is decoration, or an attempt to exhaust us."""


@dataclass(frozen=True, slots=True)
class SheetRow:
    """A row's cells from the first column on, as far as there are any; `faults` by their place in `cells`."""

    number: int
    cells: list[str]
    faults: dict[int, Fault] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Area:
    """A part of a sheet: columns and rows from 1, both ends included."""

    left: int = 1
    top: int = 1
    right: int = LAST_COLUMN
    bottom: int = LAST_ROW

    @property
    def size(self) -> int:
        """How many cells it has."""
        return (self.right - self.left + 1) * (self.bottom - self.top + 1)

    @classmethod
    def of(cls, text: str) -> Area:
        """Read `B3:H200`, `A:F`, `A5` (from there on); "" is the whole sheet."""
        first, colon, last = text.partition(":")
        (left, top), (right, bottom) = _corner(first), _corner(last if colon else "")
        return cls(left or 1, top or 1, right or LAST_COLUMN, bottom or LAST_ROW)


def cells_of(row: SheetRow | None) -> list[str] | None:
    """Return a row's cells, None at the sheet's end."""
    return None if row is None else row.cells


def with_gaps(rows: Iterator[SheetRow], top: int) -> Iterator[SheetRow]:
    """Put blank rows where numbers are passed over, from `top` on."""
    due = top
    for row in rows:
        for number in range(due, row.number):
            yield SheetRow(number, [])
        yield row
        due = max(due, row.number + 1)


def to_last_filled(rows: Iterator[SheetRow]) -> Iterator[SheetRow]:
    """Give the rows down to the last that is not blank."""
    # Numbers only: a sheet may have a million blank rows before its last one.
    blank = array("L")
    for row in rows:
        if not any(row.cells) and not row.faults:
            blank.append(row.number)
            continue
        yield from (SheetRow(number, []) for number in blank)
        del blank[:]
        yield row


def spread(rows: Iterator[SheetRow], merged: Sequence[Area], area: Area) -> Iterator[SheetRow]:
    """Put the value of merged cells into each of them, as far as they lie in `area`, which the rows' cells begin with."""
    by_top: defaultdict[int, list[Area]] = defaultdict(list)
    for one in merged:
        if one.size <= _LARGEST_MERGED:
            by_top[one.top].append(one)
    active: list[tuple[Area, str]] = []
    for row in rows:
        active = [(one, value) for one, value in active if one.bottom >= row.number]
        width = sum(one.right - one.left + 1 for one, _ in active)
        for one in by_top.pop(row.number, ()):
            width += one.right - one.left + 1
            if width <= LAST_COLUMN:  # else they lie over one another, as no program writes them
                active.append((one, _cell(row, one.left - area.left)))
        for one, value in active:
            first, last = max(one.left - area.left, 0), min(one.right, area.right) - area.left
            row.cells.extend([""] * (last + 1 - len(row.cells)))
            row.cells[first : last + 1] = [value] * (last + 1 - first)
        yield row


def _cell(row: SheetRow, place: int) -> str:
    return row.cells[place] if 0 <= place < len(row.cells) else ""


def _corner(text: str) -> tuple[int, int]:
    match = _CORNER.fullmatch(text)
    return (column_number(match[1]), int(match[2] or 0)) if match else (0, 0)


def source_rows(rows: Iterator[SheetRow], place: str, odd: OddRows) -> Iterator[SourceRow]:
    """Make source rows of a sheet's rows; `place` is what a row's number is put behind, such as `Programme!A`."""
    columns = odd.columns
    width, blanks = len(columns), [""] * len(columns)
    for row in rows:
        origin = RowLocation(f"{place}{row.number}", row.number)
        if row.faults or len(row.cells) > width:
            yield odd.row(origin, row.cells, tuple(_problems(row, odd)))
        else:
            yield SourceRow(origin, dict(zip(columns, row.cells + blanks[len(row.cells) :], strict=True)))


def _problems(row: SheetRow, odd: OddRows) -> Iterator[Reason]:
    for place, fault in row.faults.items():
        column = odd.columns[place] if place < len(odd.columns) else ""
        if column in odd.faults.wanted:
            yield Reason(ReasonCode.BAD_TEXT, "", column, fault.found, fault.hint)
