"""A sheet of an Excel workbook as a source: the package of parts (ECMA-376, part 1, 12.3 and 18), with rows streamed.

python-calamine aborts the process on a hostile cell address, and loses error cells, uncalculated formulas and number formats;
openpyxl loses uncalculated formulas and day 60, and takes twice the time.
"""

from __future__ import annotations

import posixpath
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import BinaryIO

from rapidfuzz import process

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError, Reading
from connectors.sources.files.opened_file import (
    HEAD_BYTES,
    OpenStored,
    is_text,
    opened,
    opened_archive,
    opened_member,
    refuse_other_archives,
    refuse_other_kinds,
)
from connectors.sources.formats import sheet_grid as grid
from connectors.sources.formats.sheet_grid import Area, CellFault, NumberFormat, SheetRow, number_text
from connectors.sources.formats.xml import XmlParser
from connectors.sources.rows import (
    LARGEST_CELL,
    MOST_VALUES,
    read_header,
    short,
    table_columns,
    within_limits,
)
from mappings.columns import ColumnRequest, column_letters, column_number, folded
from mappings.spec.source import WorkbookSource

_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_LINKED = re.compile(r'=?\s*HYPERLINK\(\s*"((?:[^"]|"")*)"\s*[,;)].*', re.IGNORECASE | re.DOTALL)
_WORKED_OUT = "a formula computes this link: enter the address itself"
_UNCALCULATED = "the formula was never calculated: open the workbook in a spreadsheet program and save it"
_DATE, _TIME, _BOTH = NumberFormat(has_date=True), NumberFormat(has_time=True), NumberFormat(has_date=True, has_time=True)
BUILT_IN_FORMATS = {
    **dict.fromkeys((14, 15, 16, 17, 27, 28, 29, 30, 31, 36, 50, 51, 52, 53, 54, 57, 58), _DATE),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47, 55, 56), _TIME),
    22: _BOTH,
    46: NumberFormat(has_time=True, is_elapsed=True),
}


@dataclass(frozen=True, slots=True)
class CellTexts:
    """Converts the cells of one workbook to text."""

    strings: Sequence[str]
    formats: Sequence[NumberFormat]
    calendar: grid.Calendar

    def text(self, kind: str, style: int, raw: str, *, is_formula: bool = False) -> str | CellFault:
        """Return the text of a cell of type `kind` (`n`, `s`, `str`, `inlineStr`, `b`, `e`, `d`), or why there is none."""
        if not raw:
            return CellFault("", _UNCALCULATED) if is_formula and kind == "n" else ""
        match kind:
            case "s":
                place = as_number(raw)
                return (
                    self.strings[place] if place < len(self.strings) else CellFault("", "the workbook is damaged: save it again")
                )
            case "n":
                known = self.formats[style] if style < len(self.formats) else NumberFormat()
                return number_text(raw, known, self.calendar)
            case "b":
                return "TRUE" if raw == "1" else "FALSE"
            case "e":
                return CellFault(raw, "correct the formula, or enter its value")
            case _:
                return unescaped(raw)


def as_number(text: str | None) -> int:
    """Parse a small number in an attribute, 0 if there is none."""
    return int(text) if text and len(text) < 10 and text.isascii() and text.isdecimal() else 0


def unescaped(text: str) -> str:
    """Return a text with the escapes decoded by which workbooks write characters that XML cannot contain (`_x000D_`)."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


class SharedStrings(Sequence[str]):
    """The shared strings, read as a listener of their part, without phonetic hints (`rPh`).

    They are stored as UTF-8 in one buffer: a string object for each would take another 50 bytes (budget 8). `held`: characters
    of the string being read; `size`: bytes of all.
    """

    def __init__(self) -> None:
        self.held = 0
        self._bytes = bytearray()
        self._ends = array("I", [0])
        self._parts: list[str] = []
        self._is_text = self._is_reading = False

    @property
    def size(self) -> int:
        return len(self._bytes) + len(self._ends) * self._ends.itemsize

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> str:  # type: ignore[override] # slices are not needed
        return self._bytes[self._ends[place] : self._ends[place + 1]].decode("utf-8", "surrogatepass")

    def start(self, name: str, attributes: dict[str, str]) -> None:  # noqa: ARG002  # the protocol's
        name = name.rpartition(":")[2]
        if name == "si":
            self._parts, self.held = [], 0
        elif name == "rPh":
            self._is_reading = True
        self._is_text = name == "t" and not self._is_reading

    def end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        self._is_text = False
        if name == "si":
            self._bytes += unescaped("".join(self._parts)).encode("utf-8", "surrogatepass")
            self._ends.append(len(self._bytes))
            self._parts, self.held = [], 0
        elif name == "rPh":
            self._is_reading = False

    def text(self, text: str) -> None:
        if self._is_text:
            self._parts.append(text)
            self.held += len(text)


_CHUNK_BYTES = 64 * 1024
_MOST_TEXT = 256 * 1024 * 1024
_MILLION = 2**20
_SAVE_AGAIN = "open it in a spreadsheet program and save it again"
_SAVE_AS_CSV = "save the sheet as CSV, which is read row by row"
_NEVER_WRITTEN = "no spreadsheet program writes this: is it the right file?"
Links = dict[tuple[int, int], str]
"""The links behind cells, by row and column."""
_BEYOND = "ZZZ"
"""A column to the right of every possible one."""


@contextmanager
def read_workbook(spec: WorkbookSource, open_stored: OpenStored, asked: ColumnRequest) -> Iterator[Reading]:
    """Read a sheet under the contract of `Source.read`. A row's number is the sheet's own; its place is `Programme!A17`."""
    with opened(open_stored, spec.member, unpacks=False) as file:
        with file.detect_change():
            package = XlsxPackage(file.stream, file.name, file.stored_bytes)
            sheet, part = package.sheet(spec.sheet)
            name, area = f"{file.name} ({sheet})", Area.of(spec.range or "")
            refs = (found.get("ref", "").upper() for _, found in package.elements(part, "mergeCell"))
            merged = [Area.of(ref) for ref in refs if ":" in ref] if spec.merged == "spread" else []
            linked = package.links(part) if asked.has_links else None
            stored = grid.whole_rows(_stored_rows(package, part, area, linked), area, merged)
            texts = read_header(spec.header, name, lambda: grid.cells_of(next(stored, None)), hint="check `source.range`")
            columns = table_columns(texts, asked, name, left=area.left, has_links=True)
        place = f"{sheet}!{column_letters(area.left)}"
        rows = grid.source_rows(stored, place, spec, columns.names, asked.columns, columns.links)
        read = file.whole(within_limits(rows, spec))
        reading = Reading((*columns.names, *columns.links), read, file.stamp, headers=columns.headers)
        yield reading.with_empty(columns.absent)


def read_top(spec: WorkbookSource, open_stored: OpenStored, most: int) -> grid.SheetTop:
    """Read at most `most` rows from the top of a sheet, with the links behind their cells.

    Raises:
        SyncError: as on reading the source.
    """
    with opened(open_stored, spec.member, unpacks=False) as file:
        package = XlsxPackage(file.stream, file.name, file.stored_bytes)
        sheet, part = package.sheet(spec.sheet)
        refs = (found.get("ref", "").upper() for _, found in package.elements(part, "mergeCell"))
        stored = _stored_rows(package, part, Area(), package.links(part))
        rows = list(islice(grid.whole_rows(stored, Area()), most + 1))
        merged, others = [Area.of(ref) for ref in refs if ":" in ref], tuple(name for name in package.sheets() if name != sheet)
        return grid.SheetTop(f"{file.name} ({sheet})", rows[:most], merged, len(rows) <= most, others)


class XlsxPackage:
    """An open workbook: a zip archive of XML parts. `name`: the file's name for people."""

    def __init__(self, stream: BinaryIO, name: str, stored_bytes: int) -> None:
        """Open the package. `stored_bytes`: the size of the received file, which may be an archive around it.

        Raises:
            BadSourceError: it is not a workbook.
        """
        self.name = name
        self._stored_bytes = stored_bytes
        head = stream.read(HEAD_BYTES)
        stream.seek(0)
        if not head:
            raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")
        try:
            self._zip = opened_archive(stream, name)
        except BadSourceError as error:
            if not head.startswith(b"PK\x03\x04"):
                refuse_other_kinds(head, name, "an .xlsx workbook")
            if is_text(head):
                hint = "read it with `kind: csv`, or `kind: tsv` for tabs; `eventsync init` finds the settings"
                raise BadSourceError(name, "this is text, not an .xlsx workbook", hint=hint) from error
            message = "this is an incomplete file, or one of another kind, not an .xlsx workbook"
            raise CutOffError(name, message, hint="ask the partner for the whole file as .xlsx") from error
        refuse_other_archives(self._zip.NameToInfo, name)
        roots = (part for part in self._relations("").values() if "workbook" in posixpath.basename(part))
        self._workbook = next(roots, "xl/workbook.xml")
        if self._workbook not in self._zip.NameToInfo:
            hint = "ask for the table as .xlsx; a workbook within an archive is read by `member`"
            raise BadSourceError(name, "this is a zip archive, but no Excel workbook", hint=hint)
        self._targets = self._relations(self._workbook)

    def parsed(self, part: str, *listeners: Callable[..., None]) -> Iterator[None]:
        """Parse a part, and yield after each chunk; `listeners` are those of the parser.

        Raises:
            BadSourceError: it is missing, damaged, or unpacks to too much.
        """
        info = self._zip.NameToInfo.get(part)
        if info is None:
            message = f"the workbook is damaged: its part {part or 'for the sheet'} is missing"
            raise BadSourceError(self.name, message, hint=_SAVE_AGAIN)
        place = self.place_of(part)
        with opened_member(self._zip, info, place, self._stored_bytes) as stream:
            yield from XmlParser(place, *listeners).feed(iter(partial(stream.read, _CHUNK_BYTES), b""))

    def place_of(self, part: str) -> str:
        """Return the name of a part for messages."""
        return f"{self.name} ({part})"

    def elements(self, part: str, *names: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the elements with these names in a part, in order: name and attributes, without prefixes.

        Raises:
            BadSourceError: there are too many.
        """
        found: list[tuple[str, dict[str, str]]] = []
        count = 0

        def start(name: str, attributes: dict[str, str]) -> None:
            name = name.rpartition(":")[2]
            if name in names:
                found.append((name, {key.rpartition(":")[2]: value for key, value in attributes.items()}))

        for _ in self.parsed(part, start):
            count += len(found)
            if count > MOST_VALUES:
                message = f"more than {MOST_VALUES} elements {' or '.join(names)}"
                raise BadSourceError(self.place_of(part), message, hint=_SAVE_AS_CSV)
            yield from found
            found.clear()

    def sheets(self) -> dict[str, str]:
        """Return the names of all sheets in their order, each with its part."""
        found = self.elements(self._workbook, "sheet")
        return {sheet.get("name", ""): self._targets.get(sheet.get("id", ""), "") for _, sheet in found}

    def sheet(self, wanted: str) -> tuple[str, str]:
        """Return a sheet's own name and its part; `wanted` is a name, or a position like `#2`.

        Raises:
            BadSourceError: there is no such sheet.
        """
        sheets = self.sheets()
        names = list(sheets)
        position = as_number(wanted[1:]) if wanted[:1] == "#" else 0
        alike = [name for name in names if folded(name) == folded(wanted)]
        if wanted in sheets or len(alike) == 1:
            return (name := wanted if wanted in sheets else alike[0]), sheets[name]
        if 0 < position <= len(names):
            return names[position - 1], sheets[names[position - 1]]
        near = process.extractOne(wanted, names, score_cutoff=60)
        closest = f'; did you mean "{near[0]}"?' if near else ""
        there = ", ".join(f'"{name}"' for name in names)
        raise BadSourceError(self.name, f'there is no sheet "{wanted}"', hint=f"its sheets are {there}{closest}")

    def cell_texts(self) -> CellTexts:
        """Read the tables that all sheets of a workbook share.

        Raises:
            BadSourceError: they are damaged, or have more text than fits into memory.
        """
        strings, part = SharedStrings(), self._part_of_kind("sharedStrings")
        for _ in self.parsed(part, strings.start, strings.end, strings.text) if part else ():
            if strings.held > LARGEST_CELL:
                message = f"text {len(strings) + 1} of the workbook is larger than {LARGEST_CELL // _MILLION} million characters"
                raise BadSourceError(self.name, message, hint=_NEVER_WRITTEN)
            if strings.size > _MOST_TEXT:
                message = f"the workbook's texts take more than {_MOST_TEXT // _MILLION} million bytes"
                raise BadSourceError(self.name, message, hint=_SAVE_AS_CSV)
        settings = self.elements(self._workbook, "workbookPr")
        is_1904 = any(attributes.get("date1904", "0") in {"1", "true"} for _, attributes in settings)
        codes: dict[int, NumberFormat] = dict(BUILT_IN_FORMATS)
        formats: list[NumberFormat] = []
        group, part = "", self._part_of_kind("styles")
        for name, attributes in self.elements(part, "cellStyleXfs", "cellXfs", "dxfs", "numFmt", "xf") if part else ():
            number = as_number(attributes.get("numFmtId"))
            if name not in {"numFmt", "xf"}:
                group = name
            elif name == "numFmt" and group != "dxfs":
                codes[number] = grid.number_format(attributes.get("formatCode", ""))
            elif name == "xf" and group == "cellXfs":
                formats.append(codes.get(number, NumberFormat()))
        return CellTexts(strings, formats, "1904" if is_1904 else "1900")

    def _part_of_kind(self, kind: str) -> str:
        """Return the part with the workbook's `sharedStrings` or `styles`, "" if it has none."""
        usual = f"{posixpath.dirname(self._workbook)}/{kind}.xml".lstrip("/")
        named = (part for part in self._targets.values() if posixpath.basename(part).lower() == f"{kind.lower()}.xml")
        found = next(named, usual)
        return found if found in self._zip.NameToInfo else ""

    def links(self, part: str) -> Links:
        """Return the web addresses behind the cells of a sheet, without links into the workbook.

        Raises:
            BadSourceError: they are damaged, or too many.
        """
        targets, found = self._targets_of(part), Links()
        for _, link in self.elements(part, "hyperlink"):
            if address := targets.get(link.get("id", "")):
                ref, anchor = link.get("ref", "").upper(), link.get("location", "")
                area = Area.of(ref if ":" in ref else f"{ref}:{ref}")
                if area.size + len(found) > MOST_VALUES:
                    message = f"more than {MOST_VALUES} cells have links"
                    raise BadSourceError(self.place_of(part), message, hint="link the cells with a text only")
                for cell in product(range(area.top, area.bottom + 1), range(area.left, area.right + 1)):
                    found.setdefault(cell, f"{address}#{anchor}" if anchor else address)
        return found

    def _relations(self, part: str) -> dict[str, str]:
        folder = posixpath.dirname(part)
        return {
            name: posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            for name, target in self._targets_of(part).items()
        }

    def _targets_of(self, part: str) -> dict[str, str]:
        """Return the targets of a part's relations by id, as written there."""
        folder, base = posixpath.split(part)
        relations = posixpath.join(folder, "_rels", f"{base}.rels")
        if relations not in self._zip.NameToInfo:
            return {}
        return {found.get("Id", ""): found.get("Target", "") for _, found in self.elements(relations, "Relationship")}


def _formula_link(formula: str) -> str | CellFault:
    """Return the address in a formula HYPERLINK, "" for a link into the workbook and for other formulas."""
    if "HYPERLINK(" not in formula.upper():
        return ""
    literal = _LINKED.fullmatch(formula)
    if literal is None:
        return CellFault(short(formula), _WORKED_OUT)
    return "" if literal[1].startswith("#") else literal[1].replace('""', '"')


def _stored_rows(package: XlsxPackage, part: str, area: Area, links: Links | None = None) -> Iterator[SheetRow]:
    """Yield the stored rows of the area with their true numbers, and the links behind their cells unless `links` is None.

    Raises:
        BadSourceError: the sheet is damaged, or unpacks to too much.
    """
    rows = _Rows(package.cell_texts(), area, links)
    for _ in package.parsed(part, rows.start, rows.end, rows.text):
        if rows.repeated > MOST_VALUES:
            message = f"more than {MOST_VALUES} rows have the number of an earlier one, or a lower one"
            raise BadSourceError(package.place_of(part), message, hint=_SAVE_AGAIN)
        if rows.size > LARGEST_CELL:
            message = f"a cell is larger than {LARGEST_CELL // _MILLION} million characters"
            raise BadSourceError(f"{package.place_of(part)}, row {rows.row.number}", message, hint=_NEVER_WRITTEN)
        yield from rows.ready
        rows.ready.clear()


class _Rows:
    """Builds rows from a sheet's XML. `size`: characters of the cell being read; `repeated`: rows out of order."""

    def __init__(self, texts: CellTexts, area: Area, links: Links | None) -> None:
        self.ready: list[SheetRow] = []
        self.row = SheetRow(0, [])
        self.repeated = self.size = 0
        self._texts = texts
        self._area = area
        self._columns: dict[str, int] = {}
        self._column = self._style = self._last = 0
        self._kind = "n"
        self._parts: list[str] = []
        self._is_value = self._is_formula = self._is_reading = self._is_link = False
        self._links = links
        self._link: str | CellFault = ""
        self._shared_by = ""
        self._shared: dict[str, str | CellFault] = {}

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if name == "c":
            place = attributes.get("r", "").rstrip("0123456789")
            if place not in self._columns:
                if len(place) > 3:
                    place = _BEYOND
                self._columns[place] = column_number(place.upper()) if place.isascii() and place.isalpha() else 0
            self._column = self._columns[place] or self._column + 1
            self._kind = attributes.get("t", "n")
            self._style = as_number(attributes.get("s"))
            self._parts = []
            self.size = 0
            self._is_formula = False
            self._link = ""
        elif name == "row":
            number = attributes.get("r", "")
            is_number = number.isascii() and number.isdecimal() and len(number) < 8
            self.row = SheetRow(int(number) if is_number else self.row.number + 1, [])
            self._column = 0
        else:
            self._is_formula = self._is_formula or name == "f"
            self._is_reading = self._is_reading or name == "rPh"
            self._is_value = name in {"v", "t"} and not self._is_reading
            self._is_link = name == "f" and self._links is not None
            if self._is_link:
                self._shared_by = attributes.get("si", "")

    def end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        self._is_value = False
        if name == "c":
            self._end_cell()
        elif name == "rPh":
            self._is_reading = False
        elif name == "f" and self._is_link:
            self._end_formula()
        elif name == "row":
            self.repeated += self.row.number <= self._last
            self._last = max(self._last, self.row.number)
            if self._area.top <= self.row.number <= self._area.bottom:
                self.ready.append(self.row)

    def text(self, text: str) -> None:
        if self._is_value or self._is_link:
            self._parts.append(text)
            self.size += len(text)

    def _end_formula(self) -> None:
        """Keep the link of a formula; cells that share a formula refer to it by number, and the first of them has its text."""
        formula = "".join(self._parts)
        self._link = _formula_link(formula) if formula else self._shared.get(self._shared_by, "")
        if self._shared_by and self._link:
            self._shared[self._shared_by] = self._link
        self._parts, self._is_link = [], False

    def _end_cell(self) -> None:
        if not self._area.left <= self._column <= min(self._area.right, grid.LAST_COLUMN) or self.row.number > grid.LAST_ROW:
            return
        text = self._texts.text(self._kind, self._style, "".join(self._parts), is_formula=self._is_formula)
        place, cells = self._column - self._area.left, self.row.cells
        if self._links is not None and (link := self._links.get((self.row.number, self._column), self._link)):
            self.row.links[place] = link
        if isinstance(text, CellFault):
            self.row.faults[place] = text
            text = text.found
        if text:
            if place >= len(cells):
                cells.extend([""] * (place + 1 - len(cells)))
            cells[place] = text
