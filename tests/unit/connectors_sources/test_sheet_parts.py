"""Which part of a Google spreadsheet is read, where its header is, and what its rows are called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lookalikes.sheets_book import Cell, Content, Sheet, day
from unit.connectors_sources.sheets_at_hand import ID, Desk, sheet_of

from connectors.sources.contract import BadSourceError, EmptySourceError, SourceRefusedError
from mappings.outcome import RowLocation

GRID: list[list[Content]] = [["id", "title"], ["1", "Jazz"]]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with sheet_of(tmp_path, GRID, gid=11) as found:
        found.book.sheets.append(Sheet("Spring 2026", [["id", "title"], ["2", "Rock"]], gid=22))
        found.book.sheets.append(Sheet("O'Neill/Late", [["id", "title"], ["3", "Folk"]], gid=33))
        yield found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({}, "Jazz"),
        ({"tab": "Programme"}, "Jazz"),
        ({"tab": "programme "}, "Jazz"),
        ({"tab": "#2"}, "Rock"),
        ({"tab": "Spring 2026"}, "Rock"),
        ({"tab": "O'Neill/Late"}, "Folk"),
        ({"gid": "33"}, "Folk"),
        ({"spreadsheet": f"https://docs.google.com/spreadsheets/d/{ID}/edit?gid=22#gid=22"}, "Rock"),
        ({"spreadsheet": f"https://docs.google.com/spreadsheets/u/0/d/{ID}/edit", "tab": "#3"}, "Folk"),
        ({"spreadsheet": f"https://docs.google.com/spreadsheets/d/{ID}/edit#gid=22", "tab": "Programme"}, "Jazz"),
    ],
)
def test_a_tab_is_found_by_name_number_or_position(desk: Desk, words: dict[str, str], found: str) -> None:
    assert [row.cells["title"] for row in desk.rows(**words)] == [found]


@pytest.mark.parametrize(("words", "near"), [({"tab": "Programm"}, '"Programme"'), ({"tab": "#9"}, ""), ({"gid": "5"}, "")])
def test_an_unknown_tab_is_refused_with_those_that_there_are(desk: Desk, words: dict[str, str], near: str) -> None:
    with pytest.raises(SourceRefusedError) as caught:
        desk.rows(**words)
    assert '"Spring 2026" (gid 22)' in caught.value.hint
    assert near in caught.value.hint


def test_rows_are_called_as_the_spreadsheet_itself_calls_them(desk: Desk) -> None:
    places = [desk.rows(tab=f"#{number}")[0].location.place for number in (1, 2, 3)]
    assert desk.rows(tab="#2", range="B1:B2")[0].location.place == "'Spring 2026'!B2"
    assert places == ["Programme!A2", "'Spring 2026'!A2", "'O''Neill/Late'!A2"]
    tabs = ["Programme", "Spring 2026", "O'Neill/Late"]
    assert [RowLocation(place).file_and_tab for place in places] == [("", tab) for tab in tabs]


NOTES: list[list[Content]] = [["a", "Programme", "of May"], ["id", "title", "note"]]
NOTES += [["1", "Jazz", "x"], ["2", "Rock", "y"], [None, "total", "2"]]
HEADERS: list[list[Content]] = [["Please do not sort"], [], ["Event", "Event", None, "Event "], ["id", "title", None, "title"]]
HEADERS += [["1", "Jazz", "?", "x"], [], ["2", "Rock", None, "y"]]
EVENT = {"header": {"matches": "^Event$", "rows": 2}}
BLANK: list[list[Content]] = [*GRID, [], [None, None], ["3", None], [Cell(None, "DATE", "yyyy-mm-dd")], []]
MERGED: list[list[Content]] = [["day", "title"], [day(46145), "Jazz"], [None, "Rock"], [None, "Folk"]]


@pytest.mark.parametrize(
    ("grid", "words", "rows"),
    [
        (NOTES, {"range": "B2:C3"}, "title|note / 3 Jazz|x"),
        (NOTES, {"range": "$B$2:$C$3"}, "title|note / 3 Jazz|x"),
        (NOTES, {"range": "B2"}, "title|note / 3 Jazz|x / 4 Rock|y / 5 total|2"),
        (NOTES, {"range": "B:C"}, "Programme|of May / 2 title|note / 3 Jazz|x / 4 Rock|y / 5 total|2"),
        (HEADERS, EVENT, "Event id|Event title#1|#3|Event title#2 / 5 1|Jazz|?|x / 6 ||| / 7 2|Rock||y"),
        (BLANK, {}, "id|title / 2 1|Jazz / 3 | / 4 | / 5 3|"),
        (MERGED, {}, "day|title / 2 2026-05-03|Jazz / 3 |Rock / 4 |Folk"),
        (MERGED, {"merged": "spread"}, "day|title / 2 2026-05-03|Jazz / 3 2026-05-03|Rock / 4 |Folk"),
    ],
)
def test_the_table_is_found_by_its_range_or_header_with_blank_hidden_and_merged_cells(
    tmp_path: Path, grid: list[list[Content]], words: dict[str, Any], rows: str
) -> None:
    tab = sheet_of(tmp_path, grid, hidden={2}, merged=[(2, 1, 3, 1)] if grid is MERGED else [])
    with tab as desk, desk.source(**words).read() as reading:
        found = [f"{row.location.number} {'|'.join(row.cells.values())}" for row in reading.rows]
        assert " / ".join(["|".join(reading.columns), *found]) == rows


def test_a_range_outside_of_the_tab_is_told(desk: Desk) -> None:
    with pytest.raises(BadSourceError, match="lies outside of the tab, which has 1000 rows and 26 columns"):
        desk.rows(range="AC1:AD9")


def test_rules_for_rows_cells_and_joined_tabs_hold_for_sheets_too(tmp_path: Path) -> None:
    grid: list[list[Content]] = [["id", "venue"], ["1", "K"], ["# draft"], ["2", "n/a", "aside"], ["sum", 2], ["below", "x"]]
    with sheet_of(tmp_path, grid) as desk:
        fine, ragged = desk.rows(comment="#", until="^sum$")
        assert (fine.problems, ragged.problems[0].found) == ((), "aside")
        desk.book.sheets.append(Sheet("Venues", [["code", "city"], ["K", "Lisboa"]], gid=22))
        join = {"source": {"kind": "google_sheets", "spreadsheet": ID, "tab": "Venues"}, "by": {"venue": "code"}, "prefix": "v."}
        rules = {"comment": "#", "until": "^sum$", "long_rows": "cut", "empty_if": "n/a", "join": join}
        rows = desk.rows("id", "venue", "v.city", **rules)
    assert [(row.cells["venue"], row.cells["v.city"], row.problems) for row in rows] == [("K", "Lisboa", ()), ("", "", ())]


@pytest.mark.parametrize("grid", [[], [[]], [[], [None, None]]])
def test_an_empty_tab_is_an_error_and_not_zero_rows(tmp_path: Path, grid: list[list[Content]]) -> None:
    with sheet_of(tmp_path, grid) as desk, pytest.raises(EmptySourceError, match="no cell is filled in there"):
        desk.rows()
