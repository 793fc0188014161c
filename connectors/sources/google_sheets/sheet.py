"""A tab of a Google spreadsheet as a source: the tab found, its header found, its rows given as they were at one moment.

How the rows are copied is `google_copy`'s; what a spreadsheet can be asked `google_spreadsheet`'s.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import IO

from connectors.sources.access import Access
from connectors.sources.clockwork import REAL, Clockwork
from connectors.sources.contract import Ending, Reading, unchanged
from connectors.sources.errors import EmptySourceError, SourceUnavailableError, as_odd_answer, in_known_shape
from connectors.sources.formats.sheet_grid import Area, SheetRow, cells_of, source_rows, spread, to_last_filled
from connectors.sources.google_sheets.cells import GoogleCells
from connectors.sources.google_sheets.client import opened_spreadsheet
from connectors.sources.google_sheets.parts import part_of
from connectors.sources.google_sheets.refusals import GridMovedError
from connectors.sources.google_sheets.spreadsheet import GoogleSpreadsheet, Piece, Spreadsheet, Tab
from connectors.sources.google_sheets.tab_copy import Copy, Part, copy_whole
from connectors.sources.header import Asked, column_letters, folded, read_header, wanted_columns
from connectors.sources.row_checks import CellFaults, OddRows, within_limits
from mappings.outcome import SourceRow
from mappings.spec.source import GoogleSheetsSource

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
    asked: Asked
    access: Access
    clockwork: Clockwork = REAL
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
            opened_spreadsheet(self.spec, self.access, clockwork=self.clockwork) as sheet,
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
        looked = sheet.look()
        part = part_of(self.spec, looked)
        first = sheet.piece(part.place(part.area.top, part.first_height), formulas=bool(version) and _is_tab(part, looked))
        return self._opened(_Copying(self.spec, sheet, Copy(file, GoogleCells(looked.locale)), part, first, version), looked)

    def _opened(self, copying: _Copying, looked: Spreadsheet) -> Reading:
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
        odd = OddRows(self.spec, names, CellFaults(self.asked.columns, ()))
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
                    self.part = part_of(self.spec, self.sheet.look())
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

    def settle_version(self, looked: Spreadsheet) -> None:
        """Forget the version where cells may change without another one: the tab has formulas."""
        if self.version and self._has_formulas(looked):
            self.version = ""

    def _has_formulas(self, looked: Spreadsheet) -> bool:
        """Look at the whole tab: what a formula works out may spill into the part from beside it."""
        return self.first.has_formulas if _is_tab(self.part, looked) else self.sheet.has_formulas(_tab(self.part, looked))

    def stamp(self, looked: Spreadsheet) -> str:
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


def _tab(part: Part, looked: Spreadsheet) -> Tab:
    return next(tab for tab in looked.tabs if tab.title == part.tab)


def _is_tab(part: Part, looked: Spreadsheet) -> bool:
    """Whether the first piece of the part is all of its tab."""
    tab = _tab(part, looked)
    return part.area == Area(1, 1, tab.columns, tab.rows) and part.is_last(1, part.first_height)


def _cursor(spec: GoogleSheetsSource, spreadsheet: str, version: str) -> str:
    """Return what tells a version from any other, and what is read of it from what another mapping reads; "" without one."""
    if not version.startswith("version="):
        return ""
    return f"sheet={blake2b(f'{spreadsheet} {version} {spec.model_dump_json()}'.encode(), digest_size=16).hexdigest()}"


def _used(spec: GoogleSheetsSource, names: Sequence[str], asked: Asked) -> Sequence[int]:
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
