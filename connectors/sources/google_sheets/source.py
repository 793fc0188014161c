"""A tab of a Google spreadsheet as a source, copied as it was at one moment although an editor may be at work.

Each request sees one moment. Where one is not enough, the used columns are read again afterwards, plainly and in few requests:
what was the same in both reads was so at the moment between them, and so the copy is of that moment. Else all is read anew.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby, islice, repeat, zip_longest
from typing import IO, Any

import orjson
from rapidfuzz import process

from connectors.sources.contract import (
    REAL_CLOCK,
    Access,
    BadSourceError,
    Clock,
    EmptySourceError,
    Ending,
    OpenReading,
    Reading,
    SourceRefusedError,
    SourceUnavailableError,
    StatusCell,
    StatusRow,
    unchanged,
)
from connectors.sources.feed_source import masked_errors
from connectors.sources.formats.sheet_grid import LAST_ROW, Area, CellFault, SheetRow, SheetTop, cells_of, source_rows, whole_rows
from connectors.sources.google_sheets.client import GridMovedError
from connectors.sources.google_sheets.spreadsheet import (
    LOADING,
    GoogleCells,
    GoogleSpreadsheet,
    Piece,
    SpreadsheetParts,
    Tab,
    first_link,
    open_spreadsheet,
    plain_value,
    quoted,
)
from connectors.sources.rows import read_header, table_columns, within_limits
from connectors.sources.service_answers import as_odd_answer, in_known_shape
from connectors.sources.shapes import read_shaped
from mappings.columns import ColumnRequest, column_letters, folded
from mappings.outcome import SourceRow
from mappings.spec.source import GoogleSheetsSource

_CELLS = 40_000
"""Cells of one request: some 4 MB of JSON, and half a second of Google's time."""
_VALUES = 200_000
"""Plain values of one request when the used columns are read again: about as much JSON."""
_FEWEST_ROWS = 1_100
"""Rows of the first request at least: a header is searched for among 1,000."""
_ERROR = re.compile(r"#(?:[A-Z0-9/]+[!?]|N/A)")
"""How errors look; the word for one of them need not be the same in both forms."""
_POSITION = re.compile(r"#(\d{1,5})", re.ASCII)
_IN_MEMORY = 4 * 1024 * 1024
_TRIES = 4
_RESTLESS = (
    "run again when the sheet is not being edited; a formula that always changes (NOW, RAND) in a used column has the same effect"
)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a tab that is read. `area` lies within the present grid; `has_end`: rows added below do not belong to it."""

    tab: Tab
    area: Area
    has_end: bool = False

    def place(self, top: int, height: int, first: int = 0, last: int | None = None) -> str:
        """Return rows of the columns from `first` to `last`, counted from 0, in A1 notation.

        The last rows have no end, as an editor may be adding more.
        """
        left, right = self.area.left + first, self.area.right if last is None else self.area.left + last
        bottom = "" if self.is_last(top, height) and not self.has_end else min(top + height - 1, self.area.bottom)
        return f"{quoted(self.tab.title)}!{column_letters(left)}{top}:{column_letters(right)}{bottom}"

    def is_last(self, top: int, height: int) -> bool:
        """Return whether no row follows these."""
        return top + height > self.area.bottom

    @property
    def first_height(self) -> int:
        """The number of rows of the first request."""
        return max(_FEWEST_ROWS, _CELLS // (self.area.right - self.area.left + 1))

    @property
    def fits_one_request(self) -> bool:
        """Whether the first request reads all of it."""
        return self.is_last(self.area.top, self.first_height)

    @property
    def is_whole_tab(self) -> bool:
        """Whether the first request reads all of the tab."""
        return self.area == Area(1, 1, self.tab.columns, self.tab.rows) and self.fits_one_request

    @property
    def label(self) -> str:
        """The text before a row's number, as a spreadsheet writes it: `Programme!A`, `'Spring 2026'!A`."""
        is_plain = self.tab.title.isidentifier() and not self.tab.title[-1].isdecimal()
        return f"{self.tab.title if is_plain else quoted(self.tab.title)}!{column_letters(self.area.left)}"


def part_of(spec: GoogleSheetsSource, parts: SpreadsheetParts) -> Part:
    """Return the part of the spreadsheet that `spec` describes.

    Raises:
        SourceRefusedError: there is no such tab.
        BadSourceError: the range lies outside of the tab.
    """
    area, tab = Area.of(spec.range or ""), _tab(spec, parts)
    name = f"{parts.title} ({tab.title})"
    if not tab.rows or not tab.columns:
        raise EmptySourceError(name, "the tab is empty")
    clipped = Area(area.left, area.top, min(area.right, tab.columns), min(area.bottom, tab.rows))
    if clipped.left > clipped.right or clipped.top > clipped.bottom:
        message = f"the range {spec.range} lies outside of the tab, which has {tab.rows} rows and {tab.columns} columns"
        raise BadSourceError(name, message, hint="correct `source.range`")
    return Part(tab, clipped, has_end=area.bottom < LAST_ROW)


def _tab(spec: GoogleSheetsSource, parts: SpreadsheetParts) -> Tab:
    """Return the tab that is named by its number, its title, or its position (`#2`)."""
    if (number := spec.tab_number) is not None:
        return _only([tab for tab in parts.tabs if tab.number == number], f"gid {number}", parts)
    wanted = spec.tab or "#1"
    position = _POSITION.fullmatch(wanted)
    found = [tab for tab in parts.tabs if tab.title == wanted]
    found = found or [tab for place, tab in enumerate(parts.tabs, start=1) if position and int(position[1]) == place]
    return _only(found or [tab for tab in parts.tabs if folded(tab.title) == folded(wanted)], f'"{wanted}"', parts)


def _only(found: Sequence[Tab], wanted: str, parts: SpreadsheetParts) -> Tab:
    if len(found) == 1:
        return found[0]
    near = process.extractOne(wanted, [tab.title for tab in parts.tabs], processor=folded, score_cutoff=50.0)
    meant = f'did you mean "{near[0]}"? ' if near else ""
    shown = ", ".join(f'"{tab.title}" (gid {tab.number})' for tab in parts.tabs)
    raise SourceRefusedError(f"{parts.title} has no tab {wanted}", hint=f"{meant}Its tabs are: {shown}")


@dataclass(slots=True)
class SheetCopy:
    """The copied rows of a part, in a file: a line for each that is not blank. `tries`: how often all was read anew.

    `has_links`: the links behind the cells are copied too.
    """

    spec: GoogleSheetsSource
    spreadsheet: GoogleSpreadsheet
    file: IO[bytes]
    cells: GoogleCells
    part: Part
    first: Piece
    has_links: bool = False
    merged: tuple[Area, ...] = ()
    tries: int = 0

    def add(self, piece: Piece, top: int) -> None:
        """Add the rows of a piece; its first one is row `top`."""
        self.merged = piece.merged
        for number, row in enumerate(piece.rows, start=top):
            texts = [self.cells.text(cell) for cell in row]
            if any(texts):
                faults = {str(place): (text.found, text.hint) for place, text in enumerate(texts) if isinstance(text, CellFault)}
                plain = [text.found if isinstance(text, CellFault) else text for text in texts]
                found = [first_link(cell) for cell in row] if self.has_links else []
                links = {str(place): link for place, link in enumerate(found) if link}
                self.file.write(orjson.dumps((number, plain, faults, *([links] if links else ()))) + b"\n")

    def rows(self) -> Iterator[SheetRow]:
        """Yield the copied rows from the part's first one on, and the blank ones between them."""
        self.file.seek(0)
        merged = self.merged if self.spec.merged == "spread" else ()
        stored = map(orjson.loads, self.file)
        rows = (
            SheetRow(
                number,
                cells,
                {int(at): CellFault(*one) for at, one in faults.items()},
                {int(at): link for links in more for at, link in links.items()},
            )
            for number, cells, faults, *more in stored
        )
        return whole_rows(rows, self.part.area, merged)

    def header(self, name: str) -> tuple[tuple[str, ...], int]:
        """Return the texts of the header, and how many rows were read to find them."""
        rows, count = self.rows(), 0

        def next_row() -> list[str] | None:
            nonlocal count
            count += 1
            return cells_of(next(rows, None))

        try:
            return read_header(self.spec.header, name, next_row, hint="check `source.range`"), count
        except EmptySourceError as error:
            hint = "check `source.tab` and `source.range`, or ask the sheet's owner"
            raise EmptySourceError(name, "no cell is filled in there", hint=hint) from error

    def fill(self, used: Sequence[int], name: str) -> None:
        """Copy all of the part as it is at one moment in its `used` columns, counted from 0.

        Raises:
            SourceUnavailableError: it was changed during each of several tries.
        """
        for self.tries in range(_TRIES):
            try:
                if self.tries:
                    self.part = part_of(self.spec, self.spreadsheet.parts())
                    self.first = self._read(self.part.area.top, self.part.first_height)
                if self._try_to_fill(used):
                    return
            except GridMovedError:
                continue
        raise SourceUnavailableError(f"{name} was changed each of {_TRIES} times while we read it", hint=_RESTLESS)

    def _try_to_fill(self, used: Sequence[int]) -> bool:
        """Copy all of the part; return whether the copy is of one moment in its `used` columns."""
        self.file.seek(0)
        self.file.truncate()
        copied, again = blake2b(digest_size=16), blake2b(digest_size=16)
        merged = self.first.merged
        for top, piece in self._pieces():
            if piece.merged != merged:
                return False
            self.add(piece, top)
            for number, row in enumerate(piece.rows, start=top):
                _add_values(copied, number, [plain_value(row[place]) if place < len(row) else None for place in used])
            del piece  # it is large, and the next one arrives before this name is bound to it
        area, height = self.part.area, max(1, _VALUES // max(1, len(used)))
        runs = column_runs(used)
        for top in range(area.top, area.bottom + 1, height):
            blocks = self.spreadsheet.values([self.part.place(top, height, first, last) for first, last in runs])
            for number, parts in enumerate(zip_longest(*blocks, fillvalue=()), start=top):
                widths = [last - first + 1 for first, last in runs]
                padded = (chain(part, repeat(None, width - len(part))) for part, width in zip(parts, widths, strict=True))
                _add_values(again, number, list(chain.from_iterable(padded)))
        return copied.digest() == again.digest()

    def _pieces(self) -> Iterator[tuple[int, Piece]]:
        top, height, piece = self.part.area.top, self.part.first_height, self.first
        while True:
            # The grid may be far wider than its filled columns.
            width = max(map(len, piece.rows), default=1)
            yield top, piece
            del piece
            if self.part.is_last(top, height):
                return
            top += height
            height = max(_FEWEST_ROWS, _CELLS // max(width, 1))
            piece = self._read(top, height)

    def _read(self, top: int, height: int) -> Piece:
        return self.spreadsheet.piece(self.part.place(top, height), links=self.has_links)

    def digest(self, locale: str) -> str:
        """Return a digest of all that was copied, and of what its reading depends on."""
        self.file.seek(0)
        digest = blake2b(f"{self.merged} {self.part} {locale}".encode(), digest_size=16)
        for line in self.file:
            digest.update(line)
        return digest.hexdigest()


def column_runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of neighbours: 0, 1, 2, 5 gives (0, 2), (5, 5)."""
    grouped = (list(run) for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]))
    return [(run[0][1], run[-1][1]) for run in grouped]


def _add_values(digest: blake2b, number: int, values: Sequence[Any]) -> None:
    """Add a row's values to a digest, in one form for both in which the API gives them."""
    found = list(map(_normal, values))
    if any(value is not None for value in found):
        digest.update(orjson.dumps((number, found)))


def _normal(value: Any) -> object:
    if isinstance(value, str):
        is_error = value == LOADING or (value.startswith("#") and _ERROR.fullmatch(value) is not None)
        return "#" if is_error else value or None
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@contextmanager
def read_google_sheet(
    spec: GoogleSheetsSource,
    asked: ColumnRequest,
    access: Access,
    clock: Clock = REAL_CLOCK,
    since: str = "",
    *,
    asks_version: bool = True,
) -> Iterator[Reading]:
    """Read a tab under the contract of `Source.read`. A row's number is the tab's own; its place is `Programme!A17`.

    A small tab is read at once, in two requests, and the stamp is a digest of all that was read. A larger one is copied when
    its first row is requested; its stamp is the version by the Drive API, "" if we may not see that or if the tab has formulas,
    which change without an edit. The version is also the cursor: an unchanged spreadsheet costs this one request. `since`: the
    cursor of an earlier reading. `asks_version`: request the version from Drive, which only a reader that keeps cursors needs.
    """
    with (
        open_spreadsheet(spec, access, clock=clock) as spreadsheet,
        tempfile.SpooledTemporaryFile(_IN_MEMORY) as file,
    ):
        with as_odd_answer(spec.place, "Google"):
            # Before anything is read: an edit during the reading makes a later version, which is for the next reading.
            version = spreadsheet.version() if asks_version else ""
            cursor = _cursor(spec, spreadsheet, version)
            is_unchanged = bool(cursor) and cursor == since
            if is_unchanged:
                reading = unchanged(tuple(sorted(asked.columns)), cursor, spec.place)
            else:
                reading = _read(spec, asked, spreadsheet, version, file)
        yield replace(reading, rows=in_known_shape(reading.rows, spec.place, "Google"))


def _read(
    spec: GoogleSheetsSource, asked: ColumnRequest, spreadsheet: GoogleSpreadsheet, version: str, file: IO[bytes]
) -> Reading:
    parts = spreadsheet.parts()
    part = part_of(spec, parts)
    place = part.place(part.area.top, part.first_height)
    first = spreadsheet.piece(place, formulas=bool(version) and part.is_whole_tab, links=asked.has_links)
    copy = SheetCopy(spec, spreadsheet, file, GoogleCells(parts.locale), part, first, asked.has_links)
    copy.add(first, part.area.top)

    name = f"{parts.title} ({part.tab.title})"
    header = copy.header(name)
    columns = table_columns(header[0], asked, name, left=part.area.left, has_links=True)
    # What a formula computes may spill into the part from beside it: so the whole tab is searched.
    if version and (first.has_formulas if part.is_whole_tab else spreadsheet.has_formulas(part.tab)):
        version = ""
    read = {*columns.links.values(), *([0] if spec.comment else ())}
    used = [place for place, column in enumerate(columns.names) if column in asked.columns or place in read]

    def rows() -> Iterator[SourceRow]:
        if not part.fits_one_request:
            needs_all = not used or spec.until is not None or spec.shaped_columns  # each cell decides which rows there are
            copy.fill(range(len(columns.names)) if needs_all else used, name)
            if copy.header(name) != header:
                raise SourceUnavailableError(f"{name}: its columns were changed while we read it", hint="run again")
        stored = islice(copy.rows(), header[1], None)
        yield from source_rows(stored, copy.part.label, spec, columns.names, asked.columns, columns.links)

    def ending() -> Ending:
        again = f"{copy.part.tab.title} was edited while we read it, so it was read {copy.tries + 1} times"
        return Ending(_cursor(spec, spreadsheet, version), (again,) if copy.tries else ())

    stamp = f"digest={copy.digest(parts.locale)}" if part.fits_one_request else version
    names = (*columns.names, *columns.links)
    reading = Reading(names, within_limits(rows(), spec), stamp, ending=ending, headers=columns.headers)
    return reading.with_empty(columns.absent)


def read_top(spec: GoogleSheetsSource, access: Access, most: int, clock: Clock = REAL_CLOCK) -> SheetTop:
    """Read the rows of a tab that one request gives, so many at most, with the links behind their cells: two requests.

    Raises:
        SyncError: as reading the source does.
    """
    with (
        open_spreadsheet(spec, access, clock=clock) as spreadsheet,
        tempfile.SpooledTemporaryFile(_IN_MEMORY) as file,
        as_odd_answer(spec.place, "Google"),
    ):
        parts = spreadsheet.parts()
        part = part_of(spec, parts)
        first = spreadsheet.piece(part.place(part.area.top, part.first_height), links=True)
        copy = SheetCopy(spec, spreadsheet, file, GoogleCells(parts.locale), part, first, has_links=True)
        copy.add(first, part.area.top)
        rows = list(islice(copy.rows(), most + 1))
        is_whole = part.fits_one_request and len(rows) <= most
        return SheetTop(f"{parts.title} ({part.tab.title})", rows[:most], first.merged, is_whole)


def _cursor(spec: GoogleSheetsSource, spreadsheet: GoogleSpreadsheet, version: str) -> str:
    """Return a digest of the version and of what is read of it; "" without a version."""
    if not version.startswith("version="):
        return ""
    content = f"{spreadsheet.id} {version} {spec.model_dump_json()}"
    return f"sheet={blake2b(content.encode(), digest_size=16).hexdigest()}"


@dataclass(slots=True)
class GoogleStatusSheet:
    """The tab that `spec` describes, written through `spreadsheet`; `keys` are the columns that identify a row.

    `open_reading` reads the `columns`: those of the key and those that are written.
    """

    spec: GoogleSheetsSource
    open_reading: OpenReading
    columns: frozenset[str]
    spreadsheet: GoogleSpreadsheet
    keys: frozenset[str]
    _last: tuple[tuple[str, ...], Sequence[StatusRow]] = ((), ())

    def read(self) -> Sequence[StatusRow]:
        """Return all rows as they are now: two requests if the tab is small."""
        self._last = self._read()
        return self._last[1]

    def write(self, cells: Sequence[StatusCell]) -> bool:
        """Write the cells in one request, if reading the tab again finds its rows and columns where they were."""
        columns, rows = self._read()
        if columns != self._last[0] or self._places(rows) != self._places(self._last[1]):
            return False
        part = part_of(self.spec, self.spreadsheet.parts())
        letters = {name: column_letters(part.area.left + place) for place, name in enumerate(columns)}
        texts = {}
        for run in _column_runs(cells):
            letter = letters[run[0].column]
            place = f"{quoted(part.tab.title)}!{letter}{run[0].number}:{letter}{run[-1].number}"
            texts[place] = [[cell.text] for cell in run]
        self.spreadsheet.write(texts)
        return True

    def _read(self) -> tuple[tuple[str, ...], Sequence[StatusRow]]:
        with self.open_reading() as reading:
            return reading.columns, [
                StatusRow(row.location.number, {column: row.cells.get(column, "") for column in self.columns})
                for row in reading.rows
            ]

    def _places(self, rows: Sequence[StatusRow]) -> object:
        return [(row.number, [row.cells[column] for column in sorted(self.keys)]) for row in rows]


@contextmanager
def open_google_status_sheet(
    spec: GoogleSheetsSource, keys: frozenset[str], access: Access, clock: Clock = REAL_CLOCK
) -> Iterator[GoogleStatusSheet]:
    """Open a sheet with `write_back`; its connections are closed at the end.

    Raises:
        ConfigError: there are no credentials.
    """
    columns = keys.union(spec.write_back.names if spec.write_back else ())
    asked = ColumnRequest(columns, aliases=spec.columns)

    def open_rows(own: ColumnRequest) -> AbstractContextManager[Reading]:
        return read_google_sheet(spec, own, access, clock, asks_version=False)

    open_reading = partial(read_shaped, spec, asked, open_rows)
    with masked_errors(access.mask), open_spreadsheet(spec, access, writes=True, clock=clock) as spreadsheet:
        yield GoogleStatusSheet(spec, open_reading, columns, spreadsheet, keys)


def _column_runs(cells: Sequence[StatusCell]) -> Iterator[list[StatusCell]]:
    """Group the cells into runs of one column without gaps: each is one range of the request."""
    ordered = sorted(cells, key=lambda cell: (cell.column, cell.number))
    for _, run in groupby(enumerate(ordered), key=lambda pair: (pair[1].column, pair[1].number - pair[0])):
        yield [cell for _, cell in run]
