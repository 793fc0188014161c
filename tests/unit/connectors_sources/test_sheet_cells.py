"""What the cells of a Google sheet say: what the same cell of a workbook would give, decimals as the sheet writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lookalikes.sheets_book import Cell, Content, cell_data, day
from unit.connectors_sources.sheets_at_hand import sheet_of

from connectors.sources.formats.sheet_grid import CellFault
from connectors.sources.google_sheets.spreadsheet import GoogleCells
from mappings.reasons import ReasonCode


def text(content: Content) -> str | CellFault:
    return GoogleCells().text(cell_data(content))


TYPED = ["02134", "12,50", "5.10", "1e5", "NA", "nan", "TRUE", "no", "=1+1", "'quoted", " padded ", "9.18E+17"]
ERRORS = {"REF": "#REF!", "N_A": "#N/A", "VALUE": "#VALUE!", "DIVIDE_BY_ZERO": "#DIV/0!", "NAME": "#NAME?", "NUM": "#NUM!"}


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        *((typed, typed) for typed in TYPED),
        *((5, "5"), (5.0, "5"), (12.5, "12.5"), (0.1 + 0.2, "0.3"), (-1.5, "-1.5")),
        *((1e14, "100000000000000"), (1e-7, "0.0000001")),
        *((True, "TRUE"), (False, "FALSE"), (None, ""), (Cell("", formula='=""'), ""), (Cell(None, "DATE", "yyyy-mm-dd"), "")),
        (Cell(2134.0, "NUMBER", "00000"), "02134"),
        (Cell(2134, "NUMBER", "#,##0.00"), "2134"),
        (Cell(12.5, "CURRENCY", '#,##0.00" €"'), "12.5"),
        (Cell(0.25, "PERCENT", "0%"), "0.25"),
        (Cell(45.0, "NUMBER", 'd"ays"'), "45"),
        (Cell("02134", "TEXT", "@"), "02134"),
        *((one, "2026-05-03") for one in (day(46145), day(46145, "d. mmmm yyyy"), day(46145, "mmm yy"), Cell(46145, "DATE"))),
        (day(46145.8125, "dd/mm/yyyy hh:mm"), "2026-05-03T19:30:00"),
        (Cell(46145.8125, "DATE_TIME"), "2026-05-03T19:30:00"),
        (Cell(0.8125, "TIME", "h:mm am/pm"), "19:30"),
        (Cell(0.8125, "TIME"), "19:30"),
        (Cell(46145.8125, "TIME", "hh:mm"), "19:30"),
        (Cell(1.5, "TIME", "[h]:mm"), "36:00"),
        (Cell(19 / 24 + 30 / 1440 + 15 / 86_400, "TIME", "hh:mm:ss"), "19:30:15"),
        *((day(1), "1899-12-31"), (day(60), "1900-02-28"), (day(61), "1900-03-01")),
    ],
)
def test_texts_stay_numbers_are_plain_and_days_iso_whatever_the_locale_shows(cell: Content, shown: str) -> None:
    assert text(cell) == shown


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        *((Cell(error=error), shown) for error, shown in ERRORS.items()),
        *((cell, None) for cell in ("Loading...", Cell(error="LOADING"), Cell(error="NEVER_HEARD_OF"))),
        *((cell, None) for cell in (day(-3), day(3_000_000), 1e16 + 2)),
    ],
)
def test_an_error_or_what_cannot_be_trusted_is_no_text(cell: Content, shown: str | None) -> None:
    found = text(cell)
    assert isinstance(found, CellFault)
    assert shown in {None, found.found}


@pytest.mark.parametrize(
    ("locale", "cell", "expected"),
    [
        ("de_DE", 12.5, "12,5"),
        ("de_DE", Cell(12.5, "NUMBER", "0.00", shown="12,50"), "12,50"),
        ("de_DE", Cell(1234.5, "NUMBER", "#,##0.00", shown="1.234,50"), "1234,50"),
        ("fr_FR", Cell(1234.5, "NUMBER", "#,##0.00", shown="1\u202f234,50"), "1234,50"),
        ("de_CH", Cell(1234.5, "NUMBER", "#,##0.00", shown="1’234.50"), "1234.50"),
        ("de_DE", Cell(-12.5, "NUMBER", "0.00", shown="-12,50"), "-12,50"),
        ("de_DE", Cell(12.456, "NUMBER", "0.00", shown="12,46"), "12,456"),
        ("de_DE", Cell(12.5, "NUMBER", "0", shown="13"), "12,5"),
        ("de_DE", Cell(12.5, "CURRENCY", '#,##0.00" €"', shown="12,50 €"), "12,5"),
        ("de_DE", Cell(0.255, "PERCENT", "0.0%", shown="25,5%"), "0,255"),
        ("de_DE", Cell(12.5, "NUMBER", "00000", shown="00013"), "12,5"),
        ("de_DE", Cell(12, "NUMBER", "0.00", shown="12,00"), "12"),
        ("de_DE", Cell(46145.8125, "DATE_TIME", shown="03.05.2026 19:30"), "2026-05-03T19:30:00"),
        ("de_DE", "12.5", "12.5"),
        ("en_US", Cell(5.1, "NUMBER", "0.00", shown="5.10"), "5.10"),
        ("en_GB", 12.5, "12.5"),
        ("no_NO", 12.5, "12,5"),
        ("", 12.5, "12.5"),
        ("xx_YY", 12.5, "12.5"),
    ],
)
def test_a_fraction_has_all_its_digits_and_the_mark_of_the_spreadsheets_locale(locale: str, cell: Content, expected: str) -> None:
    assert GoogleCells(locale).text(cell_data(cell)) == expected


def test_a_column_reads_alike_whether_its_prices_were_typed_as_numbers_or_as_texts(tmp_path: Path) -> None:
    with sheet_of(tmp_path, [["price"], ["12,50"], [Cell(12.5, "NUMBER", "0.00", shown="12,50")], [12.456]]) as desk:
        desk.book.locale = "de_DE"
        assert desk.cells("price") == [("12,50",), ("12,50",), ("12,456",)]


def test_a_row_with_an_error_in_a_used_column_is_rejected_and_in_another_is_not(tmp_path: Path) -> None:
    with sheet_of(tmp_path, [["id", "day", "note"], [1, Cell(error="REF"), "x"], [2, "y", Cell(error="N_A")]]) as desk:
        used, unused = desk.rows("id", "day")
        empty, _ = desk.rows("id", "day", empty_if=["#REF!"])
    assert (empty.cells["day"], empty.problems) == ("", ())
    (problem,) = used.problems
    assert (problem.code, problem.column, problem.found) == (ReasonCode.BAD_TEXT, "day", "#REF!")
    assert "correct the formula" in problem.hint
    assert not unused.problems
    assert unused.cells["note"] == "#N/A"


def run(start: int, link: str) -> dict[str, Any]:
    return {"startIndex": start, "format": {"bold": True, "link": {"uri": link}}}


LINKED = {
    "": {},
    "of the cell": {"hyperlink": "https://e.org/whole"},
    "first part": {"textFormatRuns": [{"format": {}}, run(3, "https://e.org/1"), {"startIndex": 5}, run(7, "https://e.org/2")]},
    "a chip first": {
        "chipRuns": [{}, {"startIndex": 1, "chip": {"richLinkProperties": {"uri": "https://e.org/chip"}}}],
        "textFormatRuns": [run(9, "https://e.org/late")],
    },
    "a person": {"chipRuns": [{"chip": {"personProperties": {"email": "ana@e.org"}}}]},
    "inside": {"hyperlink": "#gid=0&range=A1"},
}


@pytest.mark.parametrize("tall", [False, True])
def test_the_first_link_behind_a_text_is_a_column_of_its_own_and_asked_for_only_if_it_is_read(tmp_path: Path, tall: bool) -> None:
    grid = [["title"], *([Cell(text or None, links=links)] for text, links in LINKED.items())]
    with sheet_of(tmp_path, grid, rows=6_000 if tall else 1_000) as desk:
        expected = ["", "https://e.org/whole", "https://e.org/1", "https://e.org/chip", "", ""]
        assert [row.cells["Title.link"] for row in desk.rows("Title.link")] == expected
        assert any("hyperlink" in asked for asked in desk.requests())
        desk.google.asked.clear()
        assert [list(row.cells) for row in desk.rows("title")] == [["title"]] * 6
        assert not any("hyperlink" in asked for asked in desk.requests())
        with desk.source("title.link").read() as reading:
            before = reading.stamp
        desk.sheet.put(3, 1, Cell("of the cell", links={"hyperlink": "https://e.org/moved"}))
        with desk.source("title.link").read() as reading:
            assert (reading.columns, reading.stamp != before) == (("title", "title.link"), True)
            assert [row.cells["title.link"] for row in reading.rows][1] == "https://e.org/moved"
