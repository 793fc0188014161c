"""Google spreadsheets as a model for tests: typed cells with formats and merges; read by range, written, edited."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_CORNER = re.compile(r"([A-Z]*)([0-9]*)")
_WORDS = {
    "DIVIDE_BY_ZERO": "#DIV/0!",
    "LOADING": "Loading...",
    "N_A": "#N/A",
    "NAME": "#NAME?",
    "NULL_VALUE": "#NULL!",
    "NUM": "#NUM!",
    "REF": "#REF!",
    "VALUE": "#VALUE!",
}


@dataclass(frozen=True)
class Cell:
    """A cell that is more than a plain value: with a format (`type`, `pattern`), an error, what people see, or worked out.

    `links`: what its links add to the API's answer.
    """

    value: str | float | bool | None = None
    kind: str = ""
    pattern: str = ""
    error: str = ""
    formula: str = ""
    shown: str = ""
    is_pivot: bool = False
    links: Mapping[str, Any] = field(default_factory=dict)


def day(serial: float, pattern: str = "yyyy-mm-dd") -> Cell:
    return Cell(serial, "DATE", pattern)


Content = str | float | bool | None | Cell


@dataclass
class Sheet:
    """One tab. `grid` is as large as `rows` and `columns` at least; what lies beyond its lists is blank."""

    title: str
    grid: list[list[Content]]
    gid: int = 0
    rows: int = 1000
    columns: int = 26
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Top, left, bottom, right, from 1, ends included."""
    hidden: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rows = max(self.rows, len(self.grid))
        self.columns = max(self.columns, *map(len, self.grid), 0) if self.grid else self.columns

    def insert(self, number: int, *rows: list[Content]) -> None:
        self.grid[number - 1 : number - 1] = [list(row) for row in rows]
        self.rows += len(rows)

    def delete(self, number: int, count: int = 1) -> None:
        del self.grid[number - 1 : number - 1 + count]
        self.rows -= count

    def put(self, number: int, column: int, content: Content) -> None:
        while len(self.grid) < number:
            self.grid.append([])
        row = self.grid[number - 1]
        row.extend([None] * (column - len(row)))
        row[column - 1] = content

    def part(self, place: Place) -> list[list[Content]]:
        """The rows of a range without blank ones at the end, each without blank cells at its end."""
        bottom, right = min(place.bottom, len(self.grid)), place.right
        found = [_trimmed(row[place.left - 1 : right]) for row in self.grid[place.top - 1 : bottom]]
        while found and not found[-1]:
            found.pop()
        return found

    @property
    def properties(self) -> dict[str, Any]:
        grid = {"rowCount": self.rows, "columnCount": self.columns}
        return {"sheetId": self.gid, "title": self.title, "index": 0, "sheetType": "GRID", "gridProperties": grid}


@dataclass(frozen=True)
class Place:
    top: int = 1
    left: int = 1
    bottom: int = 10**7
    right: int = 10**5


@dataclass
class Book:
    """A spreadsheet. `version` counts the edits, as the Drive API tells it, whoever made them, and all that came between two
    looks as one; `readers` may see it, None: everybody.
    """

    id: str
    title: str
    sheets: list[Sheet]
    zone: str = "Europe/Lisbon"
    locale: str = "pt_PT"
    version: int = 1
    readers: set[str] | None = None
    writers: set[str] = field(default_factory=set)
    is_office_file: bool = False
    _seen: str = ""

    def filed(self) -> dict[str, str]:
        """What the Drive API knows of it."""
        now = hashlib.sha256(repr((self.described(), self.sheets)).encode()).hexdigest()
        self.version += bool(self._seen) and self._seen != now
        self._seen = now
        minutes, seconds = divmod(self.version, 60)
        told = {"version": str(self.version), "modifiedTime": f"2026-05-01T00:{minutes:02}:{seconds:02}.000Z"}
        return {"id": self.id, "name": self.title, **told}

    def find(self, text: str) -> tuple[Sheet, Place] | str:
        """Return the tab and range that A1 notation means, or what Google says if it means none."""
        title, place = _split(text)
        sheet = self.sheets[0] if not title else next((one for one in self.sheets if one.title == title), None)
        if sheet is None:
            return f"Unable to parse range: {text}"
        if place.top > sheet.rows or place.left > sheet.columns:
            return f"Range ({text}) exceeds grid limits. Max rows: {sheet.rows}, max columns: {sheet.columns}"
        return sheet, place

    def described(self) -> dict[str, Any]:
        sheets = [{"properties": {**sheet.properties, "index": index}} for index, sheet in enumerate(self.sheets)]
        properties = {"title": self.title, "locale": self.locale, "timeZone": self.zone, "autoRecalc": "ON_CHANGE"}
        return {"spreadsheetId": self.id, "properties": properties, "sheets": sheets}


def grid_range(gid: int, place: Place) -> dict[str, int]:
    found = {"sheetId": gid, "startRowIndex": place.top - 1, "startColumnIndex": place.left - 1}
    found |= {"endRowIndex": place.bottom} if place.bottom < 10**7 else {}
    return found | ({"endColumnIndex": place.right} if place.right < 10**5 else {})


def grid_data(sheet: Sheet, place: Place) -> dict[str, Any]:
    rows = [{"values": [cell_data(content) for content in row]} if row else {} for row in sheet.part(place)]
    return {"startRow": place.top - 1, "startColumn": place.left - 1, "rowData": rows}


def cell_data(content: Content) -> dict[str, Any]:
    """A CellData as the API gives it, as far as anybody asks for it."""
    cell = content if isinstance(content, Cell) else None
    value = cell.value if cell else content
    found: dict[str, Any] = dict(cell.links) if cell else {}
    if cell and cell.error:
        found["effectiveValue"] = {"errorValue": {"type": cell.error, "message": "Function stumbled."}}
    elif value is not None:
        found["effectiveValue"] = {_kind_of(value): value}
    if cell and cell.kind:
        found["effectiveFormat"] = {"numberFormat": {"type": cell.kind, **({"pattern": cell.pattern} if cell.pattern else {})}}
    if cell and cell.shown:
        found["formattedValue"] = cell.shown
    if cell and cell.formula:
        found["userEnteredValue"] = {"formulaValue": cell.formula}
    elif cell and cell.is_pivot:
        found["pivotTable"] = {"source": grid_range(0, Place(1, 1, 5, 5)), "valueLayout": "HORIZONTAL"}
    elif "effectiveValue" in found:
        found["userEnteredValue"] = found["effectiveValue"]
    return found


def plain(content: Content) -> Any:
    """What `UNFORMATTED_VALUE` with `SERIAL_NUMBER` gives."""
    cell = content if isinstance(content, Cell) else Cell(content)
    value = _WORDS.get(cell.error, "#ERROR!") if cell.error else cell.value
    return "" if value is None else value


def merges(sheet: Sheet) -> list[dict[str, int]]:
    return [grid_range(sheet.gid, Place(top, left, bottom, right)) for top, left, bottom, right in sheet.merged]


def masked(content: Any, fields: str) -> Any:
    """Return the parts of a JSON document that a field mask names: `a,b(c,d.e)`."""
    return _pruned(content, _tree(fields)) if fields and fields != "*" else content


def _pruned(content: Any, tree: Mapping[str, Any]) -> Any:
    if isinstance(content, list):
        return [_pruned(one, tree) for one in content]
    if not tree or not isinstance(content, dict):
        return content
    kept = {name: _pruned(content[name], inner) for name, inner in tree.items() if name in content}
    return {name: value for name, value in kept.items() if value != {} or name == "effectiveValue"}


def _tree(fields: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for part in _parts(fields):
        way, _, inner = part.partition("(")
        node = tree
        for name in way.strip().split("."):
            node = node.setdefault(name, {})
        if inner:
            node |= _tree(inner.removesuffix(")"))
    return tree


def _parts(fields: str) -> Iterator[str]:
    depth, start = 0, 0
    for position, char in enumerate(fields):
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            yield fields[start:position]
            start = position + 1
    yield fields[start:]


def _kind_of(value: str | float | bool) -> str:
    return "boolValue" if isinstance(value, bool) else "stringValue" if isinstance(value, str) else "numberValue"


def _trimmed(row: Sequence[Content]) -> list[Content]:
    filled = [place for place, content in enumerate(row, start=1) if content is not None]
    return list(row[: filled[-1]]) if filled else []


def _split(text: str) -> tuple[str, Place]:
    if text.startswith("'"):
        title, _, cells = text[1:].rpartition("'")
        return title.replace("''", "'"), _place(cells.removeprefix("!"))
    return "", _place(text)


def _place(cells: str) -> Place:
    if not cells:
        return Place()
    first, colon, last = cells.partition(":")
    (left, top), (right, bottom) = _corner(first), _corner(last if colon else first)
    return Place(top or 1, left or 1, bottom or 10**7, right or 10**5)


def _corner(text: str) -> tuple[int, int]:
    match = _CORNER.fullmatch(text)
    assert match, text
    number = 0
    for letter in match[1]:
        number = number * 26 + ord(letter) - 64
    return number, int(match[2] or 0)
