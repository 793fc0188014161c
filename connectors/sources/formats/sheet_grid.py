"""Rows of a sheet of any program: areas, merged cells, number formats, and conversion to source rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Literal

from connectors.sources.rows import RowChecks, read_header
from mappings.columns import LINK, column_names, column_number
from mappings.outcome import RowLocation, SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source_base import GridSource

LAST_COLUMN, LAST_ROW = 16_384, 1_048_576
_LARGEST_MERGED = 100_000
"""The most cells of a merged area; larger ones are decoration or an attack."""

_LONGEST_CODE = 255
"""The most characters of a format code that are read; Excel allows no more, and each cell could get as many leading zeros."""

_CORNER = re.compile(r"([A-Z]{0,3})([0-9]{0,7})")
_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_NO_FORMAT = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]')
_LONG = "a spreadsheet keeps 15 digits of a number: format the column as text, and put the original numbers back"


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """What a cell's format makes of its number: a date, a time, both, a duration, or digits with leading zeros."""

    has_date: bool = False
    has_time: bool = False
    is_elapsed: bool = False
    digits: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether the number stays a number."""
        return not (self.has_date or self.has_time or self.digits)


@dataclass(frozen=True, slots=True)
class CellFault:
    """Why a cell's value cannot be used: the text that a person sees there, and what to do."""

    found: str
    hint: str


Calendar = Literal["sheets", "1900", "1904"]
"""The day count: Google's, or one of a workbook's two."""


def number_format(code: str) -> NumberFormat:
    """Parse a format code such as `dd/mm/yyyy hh:mm`, `[h]:mm` or `00000`."""
    first = code[:_LONGEST_CODE].split(";", 1)[0]
    is_elapsed = _ELAPSED.search(first) is not None
    plain = _NO_FORMAT.sub("", first).lower()
    if plain == "general":
        return NumberFormat()
    has_time = is_elapsed or "h" in plain or "s" in plain
    has_date = "y" in plain or "d" in plain or ("m" in plain and not has_time)
    return NumberFormat(has_date, has_time, is_elapsed, len(plain) if plain and not plain.strip("0") else 0)


def number_text(raw: str, known: NumberFormat, calendar: Calendar) -> str | CellFault:
    """Return the text of a cell with the number `raw` in its format, or why it has none."""
    if known.is_plain or known.digits:
        number = plain_number(raw)
        return number.zfill(known.digits) if isinstance(number, str) and number.isdecimal() else number
    try:
        seconds = round(float(raw) * 86_400)
    except (ValueError, OverflowError):
        return raw
    if seconds < 0:
        return CellFault(raw, "a date or time before the beginning of the calendar")
    days, of_day = divmod(seconds, 86_400)
    if known.is_elapsed or not known.has_date:
        return _clock(seconds if known.is_elapsed else of_day)
    start = date(1904, 1, 1) if calendar == "1904" else date(1899, 12, 31 if calendar == "1900" and days < 60 else 30)
    if (calendar == "1900" and days == 60) or days > (date.max - start).days:
        return CellFault(raw, "29 February 1900, which only spreadsheets know, or a date after the year 9999")
    day = (start + timedelta(days=days)).isoformat()
    return f"{day}T{_clock(of_day, is_full=True)}" if known.has_time else day


def _clock(seconds: int, *, is_full: bool = False) -> str:
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{clock}:{seconds % 60:02}" if is_full or seconds % 60 else clock


def plain_number(raw: str) -> str | CellFault:
    """Return a number as people see it: `5`, `12.5`, never `5.0` or `1E+20`; whole numbers of 16 digits are a fault."""
    if len(raw) <= 15 and raw.isascii() and raw.isdecimal() and (raw[0] != "0" or raw == "0"):
        return raw
    try:
        shown = format(float(raw), ".15g")
    except ValueError:
        return raw
    plain = format(Decimal(shown), "f") if "e" in shown else shown
    return CellFault(plain, _LONG) if len(plain.lstrip("-")) > 15 and "." not in plain else plain


@dataclass(frozen=True, slots=True)
class SheetRow:
    """The cells of a row from the first column to the last filled one; `faults` by their index in `cells`.

    `links`: the links behind the cells by index, if requested.
    """

    number: int
    cells: list[str]
    faults: dict[int, CellFault] = field(default_factory=dict)
    links: dict[int, str | CellFault] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Area:
    """A range of columns and rows, counted from 1, both ends included."""

    left: int = 1
    top: int = 1
    right: int = LAST_COLUMN
    bottom: int = LAST_ROW

    @property
    def size(self) -> int:
        """The number of cells."""
        return (self.right - self.left + 1) * (self.bottom - self.top + 1)

    @classmethod
    def of(cls, text: str) -> Area:
        """Parse `B3:H200`, `A:F`, `A5` (from there on); "" is the whole sheet."""
        first, _, last = text.partition(":")
        (left, top), (right, bottom) = _corner(first), _corner(last)
        return cls(left or 1, top or 1, right or LAST_COLUMN, bottom or LAST_ROW)


def _corner(text: str) -> tuple[int, int]:
    match = _CORNER.fullmatch(text)
    return (column_number(match[1]), int(match[2] or 0)) if match else (0, 0)


def cells_of(row: SheetRow | None) -> list[str] | None:
    """Return a row's cells, None at the sheet's end."""
    return None if row is None else row.cells


def whole_rows(rows: Iterator[SheetRow], area: Area, merged: Sequence[Area] = ()) -> Iterator[SheetRow]:
    """Yield the rows of an area down to the last filled one, including blank rows; merged cells get their value."""
    rows = spread(_with_gaps(rows, area.top), merged, area) if merged else rows
    return _with_gaps((row for row in rows if any(row.cells) or row.faults), area.top)


def _with_gaps(rows: Iterator[SheetRow], top: int) -> Iterator[SheetRow]:
    """Insert blank rows for missing numbers, from `top` on."""
    due = top
    for row in rows:
        for number in range(due, row.number):
            yield SheetRow(number, [])
        yield row
        due = max(due, row.number + 1)


def spread(rows: Iterator[SheetRow], merged: Sequence[Area], area: Area) -> Iterator[SheetRow]:
    """Copy the value of merged cells to each of them within `area`, in which the rows' cells begin."""
    by_top: defaultdict[int, list[Area]] = defaultdict(list)
    for one in merged:
        if one.size <= _LARGEST_MERGED:
            by_top[one.top].append(one)
    active: list[tuple[Area, str, str | CellFault]] = []
    for row in rows:
        active = [merge for merge in active if merge[0].bottom >= row.number]
        width = sum(one.right - one.left + 1 for one, *_ in active)
        for one in by_top.pop(row.number, ()):
            width += one.right - one.left + 1
            if width <= LAST_COLUMN:  # overlapping areas, which no program writes
                place = one.left - area.left
                active.append((one, row.cells[place] if 0 <= place < len(row.cells) else "", row.links.get(place, "")))
        for one, value, link in active:
            first, last = max(one.left - area.left, 0), min(one.right, area.right) - area.left
            row.cells.extend([""] * (last + 1 - len(row.cells)))
            row.cells[first : last + 1] = [value] * (last + 1 - first)
            if link:
                row.links.update(dict.fromkeys(range(first, last + 1), link))
        yield row


@dataclass(frozen=True, slots=True)
class SheetTop:
    """The first rows of a sheet as stored. `is_whole`: there are no more. `name`: for people. `others`: the workbook's other
    sheets.
    """

    name: str
    rows: Sequence[SheetRow]
    merged: Sequence[Area]
    is_whole: bool
    others: tuple[str, ...] = ()

    def table(self, spec: GridSource, *, is_spread: bool) -> tuple[tuple[str, ...], list[Mapping[str, str]]]:
        """Return the columns and the faultless rows below the header of `spec`; `is_spread`: merged cells all get the value.

        Columns with links get an additional column of addresses.

        Raises:
            SyncError: there is no such header.
        """
        copied = (SheetRow(row.number, [*row.cells], row.faults, {**row.links}) for row in self.rows)
        rows = whole_rows(copied, Area(), self.merged if is_spread else ())
        columns = column_names(read_header(spec.header, self.name, lambda: cells_of(next(rows, None))))
        below = list(rows)
        links = {f"{name}{LINK}": at for at, name in enumerate(columns) if any(_leads_elsewhere(row, at) for row in below)}
        made = source_rows(iter(below), "", spec, columns, frozenset(), links)
        return (*columns, *links), [row.cells for row in made if not row.problems]


def _leads_elsewhere(row: SheetRow, at: int) -> bool:
    """Return whether a cell has a web address behind it that its text does not show."""
    link = row.links.get(at, "")
    return isinstance(link, str) and link.startswith("http") and link.rstrip("/") != row.cells[at].strip().rstrip("/")


def source_rows(
    rows: Iterator[SheetRow],
    place: str,
    spec: GridSource,
    columns: tuple[str, ...],
    wanted: frozenset[str],
    links: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[SourceRow]:
    """Convert sheet rows to source rows; `place` is the text before a row's number, such as `Programme!A`.

    `links`: additional columns with the links behind the cells at these indexes.
    """
    checks = RowChecks(spec, columns, wanted)
    width, blanks = len(columns), [""] * len(columns)
    for row in rows:
        origin = RowLocation(f"{place}{row.number}", row.number)
        if row.faults or len(row.cells) > width:
            faults = ((columns[at], fault) for at, fault in row.faults.items() if at < width)
            problems = (
                Reason(ReasonCode.BAD_TEXT, "", column, fault.found, fault.hint) for column, fault in faults if column in wanted
            )
            made = checks.row(origin, row.cells, tuple(problems))
        else:
            made = SourceRow(origin, dict(zip(columns, row.cells + blanks[len(row.cells) :], strict=True)))
        yield _with_links(made, row, links) if links else made


def _with_links(made: SourceRow, row: SheetRow, links: Mapping[str, int]) -> SourceRow:
    """Add the columns of links; a cell without text has no link, so that a blank row stays blank."""
    filled = {at for at, text in enumerate(row.cells) if text}.union(row.faults)
    found = {name: row.links.get(at, "") if at in filled else "" for name, at in links.items()}
    faults = {name: link for name, link in found.items() if isinstance(link, CellFault)}
    problems = (Reason(ReasonCode.BAD_TEXT, "", name, fault.found, fault.hint) for name, fault in faults.items())
    texts = {name: link.found if isinstance(link, CellFault) else link for name, link in found.items()}
    return replace(made, cells={**made.cells, **texts}, problems=(*made.problems, *problems))
