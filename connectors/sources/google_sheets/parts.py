"""Which part of a Google spreadsheet a mapping file means: the tab by name, number or position, the range by cells or name.

How it is read is `google_copy`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz import fuzz, process

from connectors.sources.errors import BadSourceError, EmptySourceError, SourceRefusedError
from connectors.sources.formats.sheet_grid import LAST_ROW, Area
from connectors.sources.google_sheets.spreadsheet import NamedRange, Spreadsheet, Tab
from connectors.sources.google_sheets.tab_copy import Part
from connectors.sources.header import folded
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import CELL_RANGE


def part_of(spec: GoogleSheetsSource, looked: Spreadsheet) -> Part:
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


def _tab(spec: GoogleSheetsSource, looked: Spreadsheet) -> Tab:
    if spec.tab_number is not None:
        return _only([tab for tab in looked.tabs if tab.number == spec.tab_number], f"gid {spec.tab_number}", looked)
    wanted = spec.tab or "#1"
    exact = [tab for tab in looked.tabs if tab.title == wanted]
    place = wanted.removeprefix("#")
    if not exact and wanted != place and place.isascii() and place.isdecimal() and len(place) < 6:
        exact = list(looked.tabs[int(place) - 1 : int(place)]) if int(place) else []
    return _only(exact or [tab for tab in looked.tabs if folded(tab.title) == folded(wanted)], f'"{wanted}"', looked)


def _only(found: Sequence[Tab], wanted: str, looked: Spreadsheet) -> Tab:
    if len(found) == 1:
        return found[0]
    titles = [tab.title for tab in looked.tabs]
    near = process.extractOne(wanted, titles, scorer=fuzz.WRatio, processor=folded, score_cutoff=50.0)
    meant = f'did you mean "{near[0]}"? ' if near else ""
    shown = ", ".join(f'"{tab.title}" (gid {tab.number})' for tab in looked.tabs)
    raise SourceRefusedError(f"{looked.title} has no tab {wanted}", hint=f"{meant}Its tabs are: {shown}")


def _tab_of_range(spec: GoogleSheetsSource, looked: Spreadsheet, named: NamedRange) -> Tab:
    tab = _only([tab for tab in looked.tabs if tab.number == named.tab], f"gid {named.tab}", looked)
    if (spec.tab or spec.tab_number is not None) and tab != _tab(spec, looked):
        message = f'the range "{named.name}" of {looked.title} is on the tab "{tab.title}"'
        raise SourceRefusedError(message, hint="leave `source.tab` out: the range says where it is")
    return tab


def _cells(spec: GoogleSheetsSource, looked: Spreadsheet) -> Area:
    plain = (spec.range or "").replace("$", "").upper()
    if CELL_RANGE.fullmatch(plain):
        return Area.of(plain)
    names = [found.name for found in looked.ranges]
    shown = f"its named ranges are: {', '.join(names)}" if names else "it has no named ranges"
    raise SourceRefusedError(f'{looked.title} has no range "{spec.range}"', hint=shown)
