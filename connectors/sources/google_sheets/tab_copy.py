"""A part of a tab copied as it was at one moment, although it takes several requests and an editor may be at work.

Each request sees one moment. Where one is not enough, the used columns are read again afterwards, plainly and in few requests:
what was the same in both readings was so at the moment between them, and so the copy is of that moment. Else all is read anew.
What the copy is for is `google_sheet`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby, zip_longest
from typing import IO, Any

import orjson

from connectors.sources.formats.sheet_grid import Area, Fault, SheetRow, with_gaps
from connectors.sources.google_sheets.cells import LOADING, GoogleCells, plain_value
from connectors.sources.google_sheets.spreadsheet import GoogleSpreadsheet, Piece, quoted
from connectors.sources.header import column_letters

_CELLS = 40_000
"""Cells of one request: some 4 MB of JSON, and half a second of Google's time."""

_VALUES = 200_000
"""Plain values of one request when the used columns are read again: about as much JSON."""

_FEWEST_ROWS = 1_100
"""Rows of the first request at least: a header is looked for among 1,000."""

_ERROR = re.compile(r"#(?:[A-Z0-9/]+[!?]|N/A)")
"""How errors look; which word stands for which of them need not be the same in both forms."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a tab that is read. `area` lies within the grid as it was when we looked; `has_end`: no row is added to it."""

    tab: str
    area: Area
    has_end: bool = False

    def place(self, top: int, height: int) -> str:
        """Return some of its rows in A1 notation; the last ones without an end, as an editor may be adding rows."""
        bottom = "" if self.is_last(top, height) and not self.has_end else min(top + height - 1, self.area.bottom)
        return f"{quoted(self.tab)}!{column_letters(self.area.left)}{top}:{column_letters(self.area.right)}{bottom}"

    def column_places(self, used: Sequence[int], top: int, height: int) -> list[str]:
        """Return the same rows of some columns only, counted from 0: a range for each run of neighbours."""
        return [
            Part(
                self.tab, Area(self.area.left + first, self.area.top, self.area.left + last, self.area.bottom), self.has_end
            ).place(top, height)
            for first, last in runs(used)
        ]

    def is_last(self, top: int, height: int) -> bool:
        """Whether no row follows upon these."""
        return top + height > self.area.bottom

    @property
    def first_height(self) -> int:
        """How many rows the first request asks for."""
        return max(_FEWEST_ROWS, _CELLS // (self.area.right - self.area.left + 1))


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of neighbours: 0, 1, 2, 5 gives (0, 2), (5, 5)."""
    grouped = (list(run) for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]))
    return [(run[0][1], run[-1][1]) for run in grouped]


@dataclass(slots=True)
class Copy:
    """The rows copied so far, in a file: a line for each that is not blank."""

    file: IO[bytes]
    cells: GoogleCells
    merged: tuple[Area, ...] = ()

    def begin(self) -> None:
        """Forget what was copied."""
        self.file.seek(0)
        self.file.truncate()

    def add(self, piece: Piece, top: int) -> None:
        """Add the rows of a piece; its first one is row `top`."""
        self.merged = piece.merged
        for number, row in enumerate(piece.rows, start=top):
            texts = [self.cells.text(cell) for cell in row]
            if any(texts):
                faults = {str(place): (text.found, text.hint) for place, text in enumerate(texts) if isinstance(text, Fault)}
                plain = [text.found if isinstance(text, Fault) else text for text in texts]
                self.file.write(orjson.dumps((number, plain, faults)) + b"\n")

    def rows(self, top: int) -> Iterator[SheetRow]:
        """Give the rows from row `top` on, blank ones between them too."""
        self.file.seek(0)
        return with_gaps(map(_row, self.file), top)

    def digest(self) -> str:
        """Return a digest of all that was copied."""
        self.file.seek(0)
        digest = blake2b(repr(self.merged).encode(), digest_size=16)
        for line in self.file:
            digest.update(line)
        return digest.hexdigest()


def _row(line: bytes) -> SheetRow:
    number, cells, faults = orjson.loads(line)
    return SheetRow(number, cells, {int(place): Fault(*fault) for place, fault in faults.items()})


def copy_whole(sheet: GoogleSpreadsheet, part: Part, first: Piece, used: Sequence[int], copy: Copy) -> bool:
    """Copy all of a part, whose first piece is at hand already; tell whether the copy is of one moment in its `used` columns.

    Raises:
        SyncError: Google does not give it.
    """
    copy.begin()
    seen, again = _Likeness(used), _Likeness(range(len(used)))
    merged = first.merged
    for top, piece in _pieces(sheet, part, first):
        if piece.merged != merged:
            return False
        copy.add(piece, top)
        for number, row in enumerate(piece.rows, start=top):
            seen.add(number, list(map(plain_value, row)))
        del piece  # it is large, and the next one comes before this name is given to it
    height = max(1, _VALUES // max(1, len(used)))
    for top in range(part.area.top, part.area.bottom + 1, height):
        blocks = sheet.values(part.column_places(used, top, height))
        for number, row in _side_by_side(blocks, used, top):
            again.add(number, row)
    return seen.told() == again.told()


def _pieces(sheet: GoogleSpreadsheet, part: Part, first: Piece) -> Iterator[tuple[int, Piece]]:
    top, height, piece = part.area.top, part.first_height, first
    while True:
        # The grid may be far wider than what is filled of it.
        width = max(map(len, piece.rows), default=1)
        yield top, piece
        del piece
        if part.is_last(top, height):
            return
        top += height
        height = max(_FEWEST_ROWS, _CELLS // max(width, 1))
        piece = sheet.piece(part.place(top, height))


def _side_by_side(blocks: Sequence[Sequence[Sequence[Any]]], used: Sequence[int], top: int) -> Iterator[tuple[int, list[Any]]]:
    widths = [last - first + 1 for first, last in runs(used)]
    for number, parts in enumerate(zip_longest(*blocks, fillvalue=()), start=top):
        yield (
            number,
            [value for part, width in zip(parts, widths, strict=True) for value in (*part, *[None] * (width - len(part)))],
        )


class _Likeness:
    """A digest of the values in some columns, row by row; what the API gives in two forms counts as one."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places
        self._digest = blake2b(digest_size=16)

    def add(self, number: int, values: Sequence[Any]) -> None:
        found = [_alike(values[place]) if place < len(values) else None for place in self._places]
        if any(value is not None for value in found):
            self._digest.update(orjson.dumps((number, found)))

    def told(self) -> bytes:
        return self._digest.digest()


def _alike(value: Any) -> object:
    if isinstance(value, str):
        is_error = value == LOADING or (value.startswith("#") and _ERROR.fullmatch(value) is not None)
        return "#" if is_error else value or None
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
