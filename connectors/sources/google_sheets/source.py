"""A part of a tab copied as it was at one moment, although it takes several requests and an editor may be at work.

Each request sees one moment. Where one is not enough, the used columns are read again afterwards, plainly and in few requests:
what was the same in both readings was so at the moment between them, and so the copy is of that moment. Else all is read anew.
What the copy is for is `google_sheet`'s.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby, islice, zip_longest
from typing import IO, Any

import orjson
from rapidfuzz import fuzz, process

from connectors.sources.contract import Ending, Reading, unchanged
from connectors.sources.environment import REAL_CLOCK, Access, Clock
from connectors.sources.errors import BadSourceError, EmptySourceError, SourceRefusedError, SourceUnavailableError
from connectors.sources.formats.sheet_grid import (
    LAST_ROW,
    Area,
    CellFault,
    SheetRow,
    cells_of,
    source_rows,
    spread,
    to_last_filled,
    with_gaps,
)
from connectors.sources.google_sheets.cells import LOADING, GoogleCells, plain_value
from connectors.sources.google_sheets.client import GridMovedError
from connectors.sources.google_sheets.spreadsheet import (
    GoogleSpreadsheet,
    NamedRange,
    Piece,
    SpreadsheetParts,
    Tab,
    open_spreadsheet,
    quoted,
)
from connectors.sources.header import ColumnRequest, column_letters, folded, read_header, wanted_columns
from connectors.sources.row_checks import CellChecks, RowChecks, within_limits
from connectors.sources.service_answers import as_odd_answer, in_known_shape
from mappings.outcome import SourceRow
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import CELL_RANGE

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
                faults = {str(place): (text.found, text.hint) for place, text in enumerate(texts) if isinstance(text, CellFault)}
                plain = [text.found if isinstance(text, CellFault) else text for text in texts]
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
    return SheetRow(number, cells, {int(place): CellFault(*fault) for place, fault in faults.items()})


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


def part_of(spec: GoogleSheetsSource, looked: SpreadsheetParts) -> Part:
    """Return the part of the spreadsheet that `spec` describes.

    Raises:
        SourceRefusedError: there is no such tab or range.
        BadSourceError: the range lies outside of the tab.
    """
    named = next((found for found in looked.ranges if found.name == spec.range), None)
    tab = _tab_of_range(spec, looked, named) if named else _tab(spec, looked)
    area = named.area if named else _cells(spec, looked)
    if not tab.rows or not tab.columns:
        raise EmptySourceError(f"{looked.title} ({tab.title})", "the tab is empty")
    clipped = Area(area.left, area.top, min(area.right, tab.columns), min(area.bottom, tab.rows))
    if clipped.left > clipped.right or clipped.top > clipped.bottom:
        message = f"the range {spec.range} lies outside of the tab, which has {tab.rows} rows and {tab.columns} columns"
        raise BadSourceError(f"{looked.title} ({tab.title})", message, hint="correct `source.range`")
    return Part(tab.title, clipped, has_end=area.bottom < LAST_ROW)


def _tab(spec: GoogleSheetsSource, looked: SpreadsheetParts) -> Tab:
    if spec.tab_number is not None:
        return _only([tab for tab in looked.tabs if tab.number == spec.tab_number], f"gid {spec.tab_number}", looked)
    wanted = spec.tab or "#1"
    exact = [tab for tab in looked.tabs if tab.title == wanted]
    place = wanted.removeprefix("#")
    if not exact and wanted != place and place.isascii() and place.isdecimal() and len(place) < 6:
        exact = list(looked.tabs[int(place) - 1 : int(place)]) if int(place) else []
    return _only(exact or [tab for tab in looked.tabs if folded(tab.title) == folded(wanted)], f'"{wanted}"', looked)


def _only(found: Sequence[Tab], wanted: str, looked: SpreadsheetParts) -> Tab:
    if len(found) == 1:
        return found[0]
    titles = [tab.title for tab in looked.tabs]
    near = process.extractOne(wanted, titles, scorer=fuzz.WRatio, processor=folded, score_cutoff=50.0)
    meant = f'did you mean "{near[0]}"? ' if near else ""
    shown = ", ".join(f'"{tab.title}" (gid {tab.number})' for tab in looked.tabs)
    raise SourceRefusedError(f"{looked.title} has no tab {wanted}", hint=f"{meant}Its tabs are: {shown}")


def _tab_of_range(spec: GoogleSheetsSource, looked: SpreadsheetParts, named: NamedRange) -> Tab:
    tab = _only([tab for tab in looked.tabs if tab.number == named.tab], f"gid {named.tab}", looked)
    if (spec.tab or spec.tab_number is not None) and tab != _tab(spec, looked):
        message = f'the range "{named.name}" of {looked.title} is on the tab "{tab.title}"'
        raise SourceRefusedError(message, hint="leave `source.tab` out: the range says where it is")
    return tab


def _cells(spec: GoogleSheetsSource, looked: SpreadsheetParts) -> Area:
    plain = (spec.range or "").replace("$", "").upper()
    if CELL_RANGE.fullmatch(plain):
        return Area.of(plain)
    names = [found.name for found in looked.ranges]
    shown = f"its named ranges are: {', '.join(names)}" if names else "it has no named ranges"
    raise SourceRefusedError(f'{looked.title} has no range "{spec.range}"', hint=shown)


_IN_MEMORY = 4 * 1024 * 1024
_TRIES = 4
_RESTLESS = "run again when nobody is editing it; a formula that never rests (NOW, RAND) in a used column has this effect too"
_Header = tuple[tuple[str, ...], int]
"""The columns' names, and how many rows were read to find them."""


@dataclass(frozen=True, slots=True)
class GoogleSheet:
    """The tab that `spec` describes, as one feed reads it. `since`: the cursor of an earlier reading.

    `asks_version`: Drive is asked which version the spreadsheet has; who keeps no cursor need not know.
    """

    spec: GoogleSheetsSource
    asked: ColumnRequest
    access: Access
    clock: Clock = REAL_CLOCK
    since: str = ""
    asks_version: bool = True

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A row's number is the tab's own; its place is `Programme!A17`.

        A small tab is read at once, in two requests, and the stamp is a digest of all that was read. A larger one is copied when
        its first row is asked for; its stamp is the version that the Drive API tells, "" where we may not ask for it or where
        the tab has formulas, which change without an edit. Where there is a version it is the cursor too: a spreadsheet that
        still has it costs this one request.
        """
        with (
            open_spreadsheet(self.spec, self.access, clock=self.clock) as sheet,
            tempfile.SpooledTemporaryFile(_IN_MEMORY) as file,
        ):
            with as_odd_answer(self.spec.place, "Google"):
                reading = self._read(sheet, file)
            yield replace(reading, rows=in_known_shape(reading.rows, self.spec.place, "Google"))

    def _read(self, sheet: GoogleSpreadsheet, file: IO[bytes]) -> Reading:
        # Before anything is read: what somebody edits meanwhile has a later version, and is the next reading's.
        version = sheet.version() if self.asks_version else ""
        cursor = _cursor(self.spec, sheet.id, version)
        if cursor and cursor == self.since:
            return unchanged(tuple(sorted(self.asked.columns)), cursor, self.spec.place)
        looked = sheet.parts()
        part = part_of(self.spec, looked)
        first = sheet.piece(part.place(part.area.top, part.first_height), formulas=bool(version) and _is_tab(part, looked))
        return self._opened(_Copying(self.spec, sheet, Copy(file, GoogleCells(looked.locale)), part, first, version), looked)

    def _opened(self, copying: _Copying, looked: SpreadsheetParts) -> Reading:
        part, name = copying.part, f"{looked.title} ({copying.part.tab})"
        settings = {"sheet_zone": looked.zone, "sheet_locale": looked.locale}
        copying.copy.add(copying.first, part.area.top)
        present, passed = copying.header(name)
        given = {asked: settings[asked] for asked in sorted(self.asked.columns & settings.keys() - set(map(folded, present)))}
        columns = wanted_columns(present, self.asked.without(given), name)
        rows = within_limits(self._rows(copying, columns.names, name, (present, passed)), self.spec)
        copying.settle_version(looked)
        reading = Reading(columns.names, rows, copying.stamp(looked), ending=copying.ending).with_empty(columns.absent)
        return _with_given(reading, given)

    def _rows(self, copying: _Copying, names: tuple[str, ...], name: str, header: _Header) -> Iterator[SourceRow]:
        """Give the rows below the header; what is not copied yet is copied when the first is asked for."""
        if not copying.is_all:
            copying.copy_whole(_used(self.spec, names, self.asked), name)
            if copying.header(name) != header:
                raise SourceUnavailableError(f"{name}: its columns were changed while we read it", hint="run again")
        odd = RowChecks(self.spec, names, CellChecks(self.asked.columns, ()))
        yield from source_rows(islice(copying.rows(), header[1], None), place_of(copying.part), odd)


@dataclass(slots=True)
class _Copying:
    """A reading under way: the part, its first piece, and the copy. All is read anew where an editor came between.

    `version`: what Drive said of the spreadsheet before, "" if nothing, or nothing that holds for its cells.
    """

    spec: GoogleSheetsSource
    sheet: GoogleSpreadsheet
    copy: Copy
    part: Part
    first: Piece
    version: str
    tried: int = 0

    @property
    def is_all(self) -> bool:
        """Whether the first piece is all there is."""
        return self.part.is_last(self.part.area.top, self.part.first_height)

    def rows(self) -> Iterator[SheetRow]:
        """Give what is copied, from the part's first row on."""
        rows = self.copy.rows(self.part.area.top)
        if self.spec.merged == "spread":
            rows = spread(rows, self.copy.merged, self.part.area)
        return to_last_filled(rows)

    def header(self, name: str) -> _Header:
        """Return the columns' names, and how many rows were read to find them."""
        rows, passed = self.rows(), 0

        def next_row() -> list[str] | None:
            nonlocal passed
            passed += 1
            return cells_of(next(rows, None))

        try:
            return read_header(self.spec.header, name, next_row, hint="check `source.range`"), passed
        except EmptySourceError as error:
            hint = "check `source.tab` and `source.range`, or ask whoever keeps the sheet"
            raise EmptySourceError(name, "no cell is filled in there", hint=hint) from error

    def copy_whole(self, used: Sequence[int], name: str) -> None:
        """Copy all of the part as it is at one moment.

        Raises:
            SourceUnavailableError: it was changed each time.
        """
        for self.tried in range(_TRIES):
            try:
                if self.tried:
                    self.part = part_of(self.spec, self.sheet.parts())
                    self.first = self.sheet.piece(self.part.place(self.part.area.top, self.part.first_height))
                if copy_whole(self.sheet, self.part, self.first, used, self.copy):
                    return
            except GridMovedError:
                continue
        raise SourceUnavailableError(f"{name} was changed each of {_TRIES} times while we read it", hint=_RESTLESS)

    def ending(self) -> Ending:
        """Say of which version the rows are, and how often all was read anew."""
        again = f"somebody edited {self.part.tab} while we read it, so it was read {self.tried + 1} times"
        return Ending(_cursor(self.spec, self.sheet.id, self.version), (again,) if self.tried else ())

    def settle_version(self, looked: SpreadsheetParts) -> None:
        """Forget the version where cells may change without another one: the tab has formulas."""
        if self.version and self._has_formulas(looked):
            self.version = ""

    def _has_formulas(self, looked: SpreadsheetParts) -> bool:
        """Look at the whole tab: what a formula works out may spill into the part from beside it."""
        return self.first.has_formulas if _is_tab(self.part, looked) else self.sheet.has_formulas(_tab_of_part(self.part, looked))

    def stamp(self, looked: SpreadsheetParts) -> str:
        """Return evidence of the content's version, "" where there is none that can be trusted."""
        if self.is_all:
            around = f"{self.part} {looked.zone} {looked.locale}".encode()
            return f"digest={blake2b(self.copy.digest().encode() + around, digest_size=16).hexdigest()}"
        return self.version


def place_of(part: Part) -> str:
    """Return what a row's number is put behind, as a spreadsheet writes it: `Programme!A`, `'Spring 2026'!A`."""
    is_plain = part.tab.isidentifier() and not part.tab[-1].isdecimal()
    title = part.tab if is_plain else "'" + part.tab.replace("'", "''") + "'"
    return f"{title}!{column_letters(part.area.left)}"


def _tab_of_part(part: Part, looked: SpreadsheetParts) -> Tab:
    return next(tab for tab in looked.tabs if tab.title == part.tab)


def _is_tab(part: Part, looked: SpreadsheetParts) -> bool:
    """Whether the first piece of the part is all of its tab."""
    tab = _tab_of_part(part, looked)
    return part.area == Area(1, 1, tab.columns, tab.rows) and part.is_last(1, part.first_height)


def _cursor(spec: GoogleSheetsSource, spreadsheet: str, version: str) -> str:
    """Return what tells a version from any other, and what is read of it from what another mapping reads; "" without one."""
    if not version.startswith("version="):
        return ""
    return f"sheet={blake2b(f'{spreadsheet} {version} {spec.model_dump_json()}'.encode(), digest_size=16).hexdigest()}"


def _used(spec: GoogleSheetsSource, names: Sequence[str], asked: ColumnRequest) -> Sequence[int]:
    """Return the places of the columns whose cells matter to anybody."""
    used = [place for place, column in enumerate(names) if column in asked.columns or (spec.comment and not place)]
    return used if used and spec.until is None else range(len(names))


def _with_given(reading: Reading, given: Mapping[str, str]) -> Reading:
    """Put the spreadsheet's own settings beside the cells of each row; a blank row stays one."""
    if not given:
        return reading
    nothing = dict.fromkeys(given, "")
    rows: Iterator[SourceRow] = (
        replace(row, cells={**row.cells, **(given if any(map(str.strip, row.cells.values())) else nothing)})
        for row in reading.rows
    )
    return replace(reading, columns=(*reading.columns, *given), rows=rows)
