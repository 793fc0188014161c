"""One Google spreadsheet as its API gives it: what it consists of, cells, plain values, its version; and values written.

The only module that knows the API's addresses and fields. What cells say is `google_cells`'s, how one asks `google_wire`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from gspread.urls import (
    DRIVE_FILES_API_V3_URL,
    SPREADSHEET_URL,
    SPREADSHEET_VALUES_BATCH_UPDATE_URL,
    SPREADSHEET_VALUES_BATCH_URL,
)

from connectors.sources.environment import REAL_CLOCK, Access, Clock
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from connectors.sources.formats.sheet_grid import LAST_COLUMN, LAST_ROW, Area
from connectors.sources.google_sheets.cells import CELL_FIELDS
from connectors.sources.google_sheets.client import GoogleWire, Question, google_login
from mappings.spec.source import GoogleSheetsSource

_PARTS = (
    "properties(title,locale,timeZone),namedRanges(name,range),"
    "sheets.properties(sheetId,title,index,sheetType,gridProperties(rowCount,columnCount))"
)
_WORKED_OUT = "userEnteredValue.formulaValue,pivotTable(source,dataSourceId),dataSourceTable.dataSourceId"
_WORKED_OUT_NAMES = (b"formulaValue", b"pivotTable", b"dataSourceTable")
_FORMULAS = f"sheets.data.rowData.values({_WORKED_OUT})"
_VERSION = "version,modifiedTime"
_MIME = "application/vnd.google-apps.spreadsheet"
_EVERYWHERE = {"supportsAllDrives": "true"}


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab with cells: its number (gid) for life, and how many rows and columns its grid has now."""

    number: int
    title: str
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class NamedRange:
    """A range that the spreadsheet's owner has given a name; `tab` is the number of its tab."""

    name: str
    tab: int
    area: Area


@dataclass(frozen=True, slots=True)
class Spreadsheet:
    """What a spreadsheet consists of. `zone` and `locale` are its own settings: `Europe/Lisbon`, `pt_PT`."""

    title: str
    zone: str
    locale: str
    tabs: tuple[Tab, ...]
    ranges: tuple[NamedRange, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a tab, each as far as it has cells, and what is merged in the whole tab. `has_formulas`, if that was asked."""

    rows: Sequence[Sequence[Mapping[str, Any]]]
    merged: tuple[Area, ...]
    has_formulas: bool = False


@dataclass(frozen=True, slots=True)
class GoogleSpreadsheet:
    """The spreadsheet with one id. `name` is what people call it in messages; `told` its version, if finding it has told it."""

    wire: GoogleWire
    id: str
    name: str
    told: str = ""

    def look(self) -> Spreadsheet:
        """Ask what it consists of: one request."""
        what = f"{self.name}: looking at its tabs"
        looked: Spreadsheet = self.wire.ask(
            Question(SPREADSHEET_URL % self.id, what, {"fields": _PARTS}, read=_whole(_spreadsheet))
        )
        return looked

    def piece(self, place: str, *, formulas: bool = False) -> Piece:
        """Read the cells of a range in A1 notation, as they are at one moment: one request. `formulas`: ask for them as well."""
        cells = f"{CELL_FIELDS},{_WORKED_OUT}" if formulas else CELL_FIELDS
        fields = f"sheets(properties.sheetId,merges,data(startRow,startColumn,rowData.values({cells})))"
        what, params = f"{self.name}: reading {place}", {"ranges": place, "fields": fields}
        piece: Piece = self.wire.ask(Question(SPREADSHEET_URL % self.id, what, params, read=_whole(_piece)))
        return piece

    def values(self, places: Sequence[str]) -> list[list[list[Any]]]:
        """Read the plain values of several ranges, as they are at one moment: one request; numbers and dates as numbers."""
        params = {"ranges": list(places), "valueRenderOption": "UNFORMATTED_VALUE", "dateTimeRenderOption": "SERIAL_NUMBER"}

        def blocks(told: Any) -> list[list[list[Any]]]:
            return [found.get("values", []) for _, found in zip(places, told["valueRanges"], strict=True)]

        what = f"{self.name}: reading {', '.join(places)}"
        read: list[list[list[Any]]] = self.wire.ask(
            Question(SPREADSHEET_VALUES_BATCH_URL % self.id, what, params, read=_whole(blocks))
        )
        return read

    def write(self, texts: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Write rows of texts into ranges, all or none: one request. A text is never read as a formula, a number or a date.

        The wire must have been made for writing.
        """
        parts = [{"range": place, "values": [list(row) for row in rows]} for place, rows in texts.items()]
        address = SPREADSHEET_VALUES_BATCH_UPDATE_URL % self.id
        self.wire.ask(Question(address, f"{self.name}: writing", body={"valueInputOption": "RAW", "data": parts}))

    def has_formulas(self, tab: Tab) -> bool:
        """Whether a cell of the tab is worked out, by a formula or a pivot table: it may change unedited. One request."""
        params = {"ranges": quoted(tab.title), "fields": _FORMULAS}
        question = Question(SPREADSHEET_URL % self.id, f"{self.name}: looking for formulas", params, read=_has_formula)
        return bool(self.wire.ask(question))

    def version(self) -> str:
        """Return the file's version by the Drive API (a quota of its own), "" where we may not ask it or get no answer."""
        if self.told:
            return self.told
        address, what = f"{DRIVE_FILES_API_V3_URL}/{self.id}", f"{self.name}: asking for its version"
        try:
            asked = Question(address, what, {**_EVERYWHERE, "fields": _VERSION}, read=_whole(_version), insists=False)
            return str(self.wire.ask(asked))
        except (SourceRefusedError, SourceUnavailableError):
            return ""


def find_spreadsheet(wire: GoogleWire, title: str) -> tuple[str, str]:
    """Return the id and the version of the one spreadsheet of that title among those that we may see.

    Raises:
        SourceRefusedError: there is none, or more than one.
    """
    escaped = title.replace("\\", "\\\\").replace("'", "\\'")
    query = f"mimeType = '{_MIME}' and name = '{escaped}' and trashed = false"
    params = {
        **_EVERYWHERE,
        "includeItemsFromAllDrives": "true",
        "q": query,
        "pageSize": 10,
        "fields": f"files(id,name,{_VERSION})",
    }
    found: list[tuple[str, str]] = wire.ask(
        Question(DRIVE_FILES_API_V3_URL, f'looking for "{title}"', params, read=_whole(_files))
    )
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(file for file, _ in found)
        hint = f"give the id or the address of the right one in `source.spreadsheet`: {ids}"
        raise SourceRefusedError(f'{len(found)} spreadsheets are called "{title}"', hint=hint)
    hint = "is it shared with us, and its title spelt exactly so? The address from the browser is surer than a title"
    raise SourceRefusedError(f'no spreadsheet that we may see is called "{title}"', hint=hint)


def quoted(title: str) -> str:
    """Return a tab's title as A1 notation takes any: in quotes."""
    return "'" + title.replace("'", "''") + "'"


def _whole(made: Callable[[Any], object]) -> Callable[[bytes], object]:
    """Return what reads an answer by `made`; an answer of another shape is none, and never an empty one."""

    def read(content: bytes) -> object:
        try:
            return made(orjson.loads(content))
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError("the answer has another shape") from error

    return read


def _spreadsheet(told: Any) -> Spreadsheet:
    properties = told["properties"]
    tabs = [_tab(sheet["properties"]) for sheet in told["sheets"] if "gridProperties" in sheet["properties"]]
    ranges = [NamedRange(one["name"], one["range"].get("sheetId", 0), _area(one["range"])) for one in told.get("namedRanges", ())]
    return Spreadsheet(
        properties.get("title", ""), properties.get("timeZone", ""), properties.get("locale", ""), tuple(tabs), tuple(ranges)
    )


def _piece(told: Any) -> Piece:
    """Read some rows; their tab is told in any case, and of blank ones nothing else."""
    (sheet,) = told["sheets"]
    if not sheet.keys() & {"properties", "data"}:
        raise LookupError("no tab is told")
    grid = (sheet.get("data") or [{}])[0]
    rows = [row.get("values", ()) for row in grid.get("rowData", ())]
    has_formulas = any(_is_worked_out(cell) for row in rows for cell in row)
    return Piece(rows, tuple(map(_area, sheet.get("merges", ()))), has_formulas)


def _has_formula(content: bytes) -> bool:
    """Look for the fields' names only: parsed, the empty objects of all the other cells would fill the memory."""
    if not content.rstrip().endswith(b"}"):
        raise ValueError("the answer was cut off")
    return any(name in content for name in _WORKED_OUT_NAMES)


def _is_worked_out(cell: Mapping[str, Any]) -> bool:
    return "formulaValue" in (cell.get("userEnteredValue") or ()) or "pivotTable" in cell or "dataSourceTable" in cell


def _files(told: Any) -> list[tuple[str, str]]:
    return [(str(file["id"]), _version(file)) for file in told.get("files", ())]


def _version(told: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={told[name]}" for name in _VERSION.split(",") if name in told)


def _tab(properties: Mapping[str, Any]) -> Tab:
    grid = properties["gridProperties"]
    return Tab(properties.get("sheetId", 0), properties["title"], grid.get("rowCount", 0), grid.get("columnCount", 0))


def _area(told: Mapping[str, int]) -> Area:
    """Read a GridRange: counted from 0, its ends excluded, unbounded where nothing is said."""
    left, top = told.get("startColumnIndex", 0) + 1, told.get("startRowIndex", 0) + 1
    return Area(left, top, told.get("endColumnIndex", LAST_COLUMN), told.get("endRowIndex", LAST_ROW))


@contextmanager
def opened_spreadsheet(
    spec: GoogleSheetsSource, access: Access, *, writes: bool = False, clockwork: Clock = REAL_CLOCK
) -> Iterator[GoogleSpreadsheet]:
    """Give the spreadsheet that `spec` names, for reading or for writing too; its connections are closed at the end.

    Raises:
        ConfigError: there are no credentials, or they cannot be read.
        SourceRefusedError: only its title is known, and no spreadsheet that we may see has it, or several have.
        SourceUnavailableError: only its title is known, and Google did not answer.
    """
    wire = GoogleWire(google_login(access.google, writes=writes), access.google.api_url, access.mask, clockwork)
    with wire.session:
        found, version = (spec.spreadsheet_id, "") if spec.spreadsheet_id else find_spreadsheet(wire, spec.spreadsheet)
        yield GoogleSpreadsheet(wire, found, spec.place, version)
