"""One Google spreadsheet by its API: its tabs, cells, plain values and version; and values written into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from babel.core import Locale, UnknownLocaleError
from babel.numbers import get_decimal_symbol
from gspread.urls import DRIVE_FILES_API_V3_URL, SPREADSHEET_URL

from connectors.sources.contract import REAL_CLOCK, Access, Clock, SourceRefusedError, SourceUnavailableError
from connectors.sources.formats.sheet_grid import LAST_COLUMN, LAST_ROW, Area, CellFault, NumberFormat, number_format, number_text
from connectors.sources.google_sheets.client import BRIEF_TIMEOUT_S, TIMEOUT_S, GoogleClient, google_login
from connectors.sources.service_answers import as_odd_answer
from mappings.spec.source import GoogleSheetsSource

CELL_FIELDS = "effectiveValue,formattedValue,effectiveFormat.numberFormat"
"""The parts of a cell that its text depends on: its typed value, its displayed text, and its number format."""
LINK_FIELDS = "hyperlink,textFormatRuns(startIndex,format.link.uri),chipRuns(startIndex,chip.richLinkProperties.uri)"
"""The parts of a cell with its links: one behind the whole cell, or several behind parts of its text and its chips."""
LOADING = "Loading..."
_ERRORS = {
    "DIVIDE_BY_ZERO": "#DIV/0!",
    "LOADING": LOADING,
    "N_A": "#N/A",
    "NAME": "#NAME?",
    "NULL_VALUE": "#NULL!",
    "NUM": "#NUM!",
    "REF": "#REF!",
    "VALUE": "#VALUE!",
}
_FORMULA_HINT = "correct the formula, or enter its value"
_LOADING_HINT = "the sheet was still calculating this: the row is read again in the next run"
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}'\N{RIGHT SINGLE QUOTATION MARK}"
_MOMENTS = {
    "DATE": NumberFormat(has_date=True),
    "TIME": NumberFormat(has_time=True),
    "DATE_TIME": NumberFormat(has_date=True, has_time=True),
}
_PLAIN = NumberFormat()


class GoogleCells:
    """Converts cells to text for a spreadsheet's `locale` (`pt_PT`)."""

    def __init__(self, locale: str = "") -> None:
        self._mark = _decimal_mark(locale)
        self._grouping = str.maketrans("", "", _SPACES + ("." if self._mark == "," else ","))

    def text(self, cell: Mapping[str, Any]) -> str | CellFault:
        """Return the text of a cell, or why it has none."""
        value = cell.get("effectiveValue")
        if not value:
            return ""
        if "stringValue" in value:
            text: str = value["stringValue"]
            return CellFault(text, _LOADING_HINT) if text == LOADING else text
        if "numberValue" in value:
            shown = cell["effectiveFormat"]["numberFormat"] if cell.get("effectiveFormat") else None
            described = _PLAIN if shown is None else _parse_format(shown.get("type", ""), shown.get("pattern", ""))
            number = number_text(str(value["numberValue"]), described, "sheets")
            return number if isinstance(number, CellFault) or "." not in number else self._fraction(number, cell)
        if "boolValue" in value:
            return "TRUE" if value["boolValue"] else "FALSE"
        kind = str(value.get("errorValue", {}).get("type", ""))
        return CellFault(_ERRORS.get(kind, "#ERROR!"), _LOADING_HINT if kind == "LOADING" else _FORMULA_HINT)

    def _fraction(self, number: str, cell: Mapping[str, Any]) -> str:
        """Return a number as the sheet displays it: all its digits, its decimal mark, and the zeros that its format adds."""
        plain = number.replace(".", self._mark)
        shown = str(cell.get("formattedValue", "")).translate(self._grouping)
        return shown if shown.startswith(plain) and not shown[len(plain) :].strip("0") else plain


def _decimal_mark(locale: str) -> str:
    """Return the decimal mark of a locale: a comma in `pt_PT`, a point where the locale is unknown."""
    for name in (locale, locale.partition("_")[0]):
        try:
            return get_decimal_symbol(Locale.parse(name))
        except (UnknownLocaleError, ValueError):
            continue
    return "."


def plain_value(cell: Mapping[str, Any]) -> object:
    """Return a cell's value as the API gives it in a request for values only; an error as its displayed text."""
    value = cell.get("effectiveValue") or {}
    if "errorValue" in value:
        return _ERRORS.get(str(value["errorValue"].get("type", "")), "#ERROR!")
    return next(iter(value.values()), None)


def first_link(cell: Mapping[str, Any]) -> str:
    """Return the first link of a cell, "" if it has none; links into the spreadsheet do not count."""
    runs = [(run.get("startIndex", 0), run.get("format", {}).get("link", {})) for run in cell.get("textFormatRuns", ())]
    runs += [(run.get("startIndex", 0), run.get("chip", {}).get("richLinkProperties", {})) for run in cell.get("chipRuns", ())]
    found = [(0, cell.get("hyperlink", "")), *((start, link.get("uri", "")) for start, link in runs)]
    return min(((start, link) for start, link in found if link and not link.startswith("#")), default=(0, ""))[1]


@lru_cache(1_000)
def _parse_format(kind: str, pattern: str) -> NumberFormat:
    """Parse a number format: its `kind` decides whether it is a date or time, its pattern which parts of one it has."""
    found = number_format(pattern)
    if kind in _MOMENTS:
        return found if found.has_date or found.has_time else _MOMENTS[kind]
    return NumberFormat(digits=found.digits)


_PARTS = "properties(title,locale),sheets.properties(sheetId,title,index,sheetType,gridProperties(rowCount,columnCount))"
_COMPUTED = "userEnteredValue.formulaValue,pivotTable(source,dataSourceId),dataSourceTable.dataSourceId"
_COMPUTED_NAMES = (b"formulaValue", b"pivotTable", b"dataSourceTable")
_VERSION = "version,modifiedTime"
_Params = MutableMapping[str, str | int | bool | float | list[str] | None]


@dataclass(frozen=True, slots=True)
class Tab:
    """One tab with cells: its permanent number (gid), and how many rows and columns its grid has now."""

    number: int
    title: str
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class SpreadsheetParts:
    """The tabs of a spreadsheet. `locale` is its own setting: `pt_PT`."""

    title: str
    locale: str
    tabs: tuple[Tab, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a tab, each as far as it has cells, and the merged areas of the whole tab. `has_formulas`, if requested."""

    rows: Sequence[Sequence[Mapping[str, Any]]]
    merged: tuple[Area, ...]
    has_formulas: bool = False


@dataclass(frozen=True, slots=True)
class GoogleSpreadsheet:
    """The spreadsheet with one id. `name`: for messages."""

    client: GoogleClient
    id: str
    name: str

    def parts(self) -> SpreadsheetParts:
        """Read what the spreadsheet consists of: one request."""
        return self.client.retry(lambda: _parts(self.client.fetch_sheet_metadata(self.id, {"fields": _PARTS})))

    def piece(self, place: str, *, formulas: bool = False, links: bool = False) -> Piece:
        """Read the cells of a range in A1 notation, as they are at one moment: one request.

        `formulas`: look for them too; `links`: read those behind the cells too.
        """
        cells = ",".join([CELL_FIELDS, *[_COMPUTED] * formulas, *[LINK_FIELDS] * links])
        fields = f"sheets(properties.sheetId,merges,data(startRow,startColumn,rowData.values({cells})))"
        params: _Params = {"ranges": place, "fields": fields}
        return self.client.retry(lambda: _piece(self.client.fetch_sheet_metadata(self.id, params)))

    def values(self, places: Sequence[str]) -> list[list[list[Any]]]:
        """Read the plain values of several ranges, as they are at one moment: one request; numbers and dates as numbers."""
        params: _Params = {"valueRenderOption": "UNFORMATTED_VALUE", "dateTimeRenderOption": "SERIAL_NUMBER"}

        def read() -> list[list[list[Any]]]:
            blocks = self.client.values_batch_get(self.id, list(places), params)["valueRanges"]
            return [block.get("values", []) for _, block in zip(places, blocks, strict=True)]

        return self.client.retry(read)

    def write(self, texts: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Write rows of texts into ranges, all or none: one request. A text is never read as a formula, a number or a date.

        The client must have been made for writing.
        """
        parts = [{"range": place, "values": [list(row) for row in rows]} for place, rows in texts.items()]
        body = {"valueInputOption": "RAW", "data": parts}
        self.client.retry(lambda: self.client.values_batch_update(self.id, body))

    def has_formulas(self, tab: Tab) -> bool:
        """Return whether a formula or a pivot table computes a cell of the tab: it may change unedited. One request."""
        params = {"ranges": quoted(tab.title), "fields": f"sheets.data.rowData.values({_COMPUTED})"}

        def read() -> bool:
            # Not parsed: the empty objects of all the other cells would fill the memory.
            content = self.client.request("get", SPREADSHEET_URL % self.id, params).content
            if not content.rstrip().endswith(b"}"):
                raise ValueError("the answer was cut off")
            return any(name in content for name in _COMPUTED_NAMES)

        return self.client.retry(read)

    def version(self) -> str:
        """Return the file's version by the Drive API, which has a separate quota; "" if we may not see it or get no answer."""
        self.client.set_timeout(BRIEF_TIMEOUT_S)
        try:
            with as_odd_answer(self.name, "Google"):
                # gspread's own request for a file's metadata leaves the version out.
                params = {"supportsAllDrives": "true", "fields": _VERSION}
                file = self.client.request("get", f"{DRIVE_FILES_API_V3_URL}/{self.id}", params).json()
                return " ".join(f"{name}={file[name]}" for name in _VERSION.split(",") if name in file)
        except (SourceRefusedError, SourceUnavailableError):
            return ""
        finally:
            self.client.set_timeout(TIMEOUT_S)


def quoted(title: str) -> str:
    """Return a tab's title as A1 notation takes any: in quotes."""
    return "'" + title.replace("'", "''") + "'"


def _parts(answer: Mapping[str, Any]) -> SpreadsheetParts:
    properties = answer["properties"]
    return SpreadsheetParts(
        properties.get("title", ""),
        properties.get("locale", ""),
        tuple(_tab(sheet["properties"]) for sheet in answer["sheets"] if "gridProperties" in sheet["properties"]),
    )


def _piece(answer: Mapping[str, Any]) -> Piece:
    (sheet,) = answer["sheets"]
    # Of blank rows the answer has the tab alone; an answer without it is no empty tab.
    if not sheet.keys() & {"properties", "data"}:
        raise LookupError("the answer holds no tab")
    grid = (sheet.get("data") or [{}])[0]
    rows = [row.get("values", ()) for row in grid.get("rowData", ())]
    has_formulas = any(
        "formulaValue" in (cell.get("userEnteredValue") or ()) or "pivotTable" in cell or "dataSourceTable" in cell
        for row in rows
        for cell in row
    )
    return Piece(rows, tuple(map(_area, sheet.get("merges", ()))), has_formulas)


def _tab(properties: Mapping[str, Any]) -> Tab:
    grid = properties["gridProperties"]
    return Tab(properties.get("sheetId", 0), properties["title"], grid.get("rowCount", 0), grid.get("columnCount", 0))


def _area(grid_range: Mapping[str, int]) -> Area:
    """Convert a GridRange, which counts from 0, excludes its ends, and is unbounded without an index."""
    left, top = grid_range.get("startColumnIndex", 0) + 1, grid_range.get("startRowIndex", 0) + 1
    return Area(left, top, grid_range.get("endColumnIndex", LAST_COLUMN), grid_range.get("endRowIndex", LAST_ROW))


@contextmanager
def open_spreadsheet(
    spec: GoogleSheetsSource, access: Access, *, writes: bool = False, clock: Clock = REAL_CLOCK
) -> Iterator[GoogleSpreadsheet]:
    """Open the spreadsheet that `spec` names, for reading or for writing too; its connections are closed at the end.

    Raises:
        ConfigError: there are no credentials, or they cannot be read.
    """
    client = GoogleClient(google_login(access.google, writes=writes), access.google.api_url, access.mask, clock, spec.place)
    with client.session:
        yield GoogleSpreadsheet(client, spec.spreadsheet_id, spec.place)
