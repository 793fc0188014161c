"""Sheets of Excel workbooks: what stands in a cell, as a person sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
from hypothesis import given
from hypothesis import strategies as st
from unit.connectors_sources.reading import cells, column, rows_of
from workbooks import write_xlsx

from connectors.sources.contract import BadSourceError, MissingColumnsError, RepeatedColumnsError
from connectors.sources.formats.sheet_grid import CellFault, number_format, plain_number
from connectors.sources.formats.xlsx import CellTexts
from mappings.outcome import SourceRow
from mappings.reasons import ReasonCode


def sheet(folder: Path, fill: Callable[[Any, Any], None], *wanted: str, is_1904: bool = False, **spec: Any) -> list[SourceRow]:
    """Write a workbook (`fill` is given it and its page) and read it."""
    with xlsxwriter.Workbook(folder / "a.xlsx", {"date_1904": is_1904}) as workbook:
        fill(workbook, workbook.add_worksheet("Programme"))
    return rows_of(folder, *wanted, **{"kind": "xlsx", "path": "a.xlsx", **spec})


@pytest.mark.parametrize("is_1904", [False, True])
@pytest.mark.parametrize(
    ("value", "shown", "text"),
    [
        *((typed, None, typed) for typed in ("02134", "1e5")),
        *((number, None, text) for number, text in ((5, "5"), (5.0, "5"), (12.5, "12.5"), (-0.25, "-0.25"), (0.1 + 0.2, "0.3"))),
        (1 / 3, None, "0.333333333333333"),
        (918000000000001, None, "918000000000001"),
        (2134, "00000", "02134"),
        (0.05, "0%", "0.05"),
        (12.5, '#,##0.00 "days"', "12.5"),
        (True, None, "TRUE"),
        (False, None, "FALSE"),
        (date(2026, 5, 3), "dd/mm/yyyy", "2026-05-03"),
        (date(2026, 5, 3), "mmm yy", "2026-05-03"),
        (date(2026, 5, 3), "[$-816]d. mmmm yyyy;@", "2026-05-03"),
        (time(19, 30), "hh:mm", "19:30"),
        (time(19, 30, 15), "h:mm:ss AM/PM", "19:30:15"),
        (time(0, 0), "hh:mm", "00:00"),
        (datetime(2026, 5, 3, 19, 30), "yyyy-mm-dd hh:mm", "2026-05-03T19:30:00"),  # noqa: DTZ001  # sheets know no zones
        (datetime(2026, 5, 3, 0, 0), "m/d/yy h:mm", "2026-05-03T00:00:00"),  # noqa: DTZ001  # as above
        (datetime(2026, 5, 3, 19, 30), "dd/mm/yyyy", "2026-05-03"),  # noqa: DTZ001  # as above
        (1.5, "[h]:mm", "36:00"),
        (1.5, "[mm]:ss", "36:00"),
        (time(0, 5, 7), "mm:ss", "00:05:07"),
        (date(2026, 5, 1), "mm/yyyy", "2026-05-01"),
        (12.5, "[Red]0.00", "12.5"),
        (12.5, "0.00E+00", "12.5"),
    ],
)  # fmt: skip
def test_a_cell_is_the_text_that_a_person_sees(tmp_path: Path, value: Any, shown: str | None, text: str, is_1904: bool) -> None:
    def fill(workbook: Any, page: Any) -> None:
        page.write(0, 0, "value")
        page.write(1, 0, value, workbook.add_format({"num_format": shown}) if shown else None)

    (row,) = sheet(tmp_path, fill, "value", is_1904=is_1904)
    assert (row.cells["value"], row.problems) == (text, ())


@pytest.mark.parametrize(
    ("formula", "found", "hint"),
    [
        *(
            ("=1/0", "#DIV/0!", "correct the formula"),
            ("=NOPE!A1", "#REF!", "correct the formula"),
            ("=A9", "", "never calculated"),
        ),
        ("", "918000000000000000", "15 digits"),
    ],
)
def test_a_value_that_cannot_be_trusted_rejects_its_row_where_the_column_is_used(
    tmp_path: Path, formula: str, found: str, hint: str
) -> None:
    def fill(_: Any, page: Any) -> None:
        page.write_row(0, 0, ["id", "text"])
        page.write_string(1, 1, "x")
        if formula:
            page.write_formula(1, 0, formula, None, found)
        else:
            page.write_number(1, 0, 918000000000000123)

    (row,) = sheet(tmp_path, fill, "id", "text")
    (problem,) = row.problems
    assert (problem.code, problem.column, problem.found) == (ReasonCode.BAD_TEXT, "id", found)
    assert hint in problem.hint
    (unused,) = sheet(tmp_path, fill, "text")
    assert unused.problems == ()
    (empty,) = sheet(tmp_path, fill, "id", "text", empty_if=["#DIV/0!", "-"], empty_in={"ID": ["#REF!"]})
    assert (empty.cells["id"], empty.problems) == (("", ()) if found.startswith("#") else (found, (problem,)))


def places(rows: list[SourceRow]) -> list[str]:
    return [f"{row.location} {'|'.join(row.cells.values())}" for row in rows]


def test_rows_keep_the_numbers_that_the_sheet_shows_and_hidden_ones_are_rows(tmp_path: Path) -> None:
    def fill(_: Any, page: Any) -> None:
        for number, row in ((2, ["id", "text"]), (3, ["1", "x"]), (6, ["2", "y"])):
            page.write_row(number, 0, row)
        page.set_row(6, None, None, {"hidden": True})

    rows = sheet(tmp_path, fill, header={"row": 3})
    assert places(rows) == ["Programme!A4 1|x", "Programme!A5 |", "Programme!A6 |", "Programme!A7 2|y"]


def test_a_range_is_a_table_of_its_own(tmp_path: Path) -> None:
    grid = [["title of all"], ["", "id", "text", "note"], ["", "1", "x", "n"], ["", "2", "y"], ["", "3", "z"]]
    write_xlsx(tmp_path / "a.xlsx", grid)
    rows = rows_of(tmp_path, "id", kind="xlsx", path="a.xlsx", range="B2:C4")
    assert places(rows) == ["Programme!B3 1|x", "Programme!B4 2|y"]


def test_merged_cells_hold_their_value_in_the_first_or_in_each(tmp_path: Path) -> None:
    def fill(_: Any, page: Any) -> None:
        page.write_row(0, 0, ["day", "text", "hall"])
        page.merge_range(1, 0, 3, 0, "Monday")
        page.write_column(1, 1, ["x", "y", "z"])
        page.merge_range(2, 1, 2, 2, "everywhere")

    assert column(sheet(tmp_path, fill), "day") == ["Monday", "", ""]
    spread = sheet(tmp_path, fill, merged="spread")
    assert cells(spread) == [["Monday", "x", ""], ["Monday", "everywhere", "everywhere"], ["Monday", "z", ""]]


def test_a_sheet_is_found_by_name_or_position_and_a_wrong_one_told(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as workbook:
        for name in ("Programme", "Venues"):
            workbook.add_worksheet(name).write_column(0, 0, ["id", name])
    for name, found in {"Venues": "Venues", " venues": "Venues", "#2": "Venues", "#1": "Programme"}.items():
        assert column(rows_of(tmp_path, kind="xlsx", path="a.xlsx", sheet=name), "id") == [found]
    with pytest.raises(BadSourceError, match='no sheet "Venue"') as caught:
        rows_of(tmp_path, kind="xlsx", path="a.xlsx", sheet="Venue")
    assert [part in caught.value.hint for part in ('"Programme", "Venues"', 'did you mean "Venues"')] == [True, True]


def test_notes_beside_the_table_reject_their_row_unless_the_mapping_says_cut(tmp_path: Path) -> None:
    write_xlsx(tmp_path / "a.xlsx", [["id"], ["1", "", "a note"]])
    (row,) = rows_of(tmp_path, kind="xlsx", path="a.xlsx")
    assert "long_rows: cut" in row.problems[0].hint
    assert rows_of(tmp_path, kind="xlsx", path="a.xlsx", long_rows="cut")[0].problems == ()


def test_the_day_that_only_spreadsheets_know_is_no_date() -> None:
    texts = CellTexts((), (number_format("yyyy-mm-dd"),), calendar="1900")
    assert [texts.text("n", 0, raw) for raw in ("59", "61")] == ["1900-02-28", "1900-03-01"]
    assert all(isinstance(texts.text("n", 0, raw), CellFault) for raw in ("60", "-1", "9999999"))


@given(st.floats(-1e300, 1e300) | st.integers(-(10**30), 10**30))
def test_a_number_is_never_written_with_an_exponent(number: float) -> None:
    shown = plain_number(repr(number))
    text = shown.found if isinstance(shown, CellFault) else shown
    assert "e" not in text.lower()
    assert float(text) == pytest.approx(float(number), rel=1e-14)


def linked(_: Any, page: Any) -> None:
    """Links of cells, by formulas, over several cells, to places in the workbook, and none."""
    page.write_row(0, 0, ["id", "title", "note"])
    page.write_column(1, 0, list("abcdefghi"))
    page.write_url(1, 1, "https://example.org/jazz?a=1&b=2#tickets", string="Jazz")
    page.write_formula(2, 1, '=HYPERLINK("https://example.org/""fado"""; "Fado")', None, "Fado")
    page.write_formula(3, 1, '=HYPERLINK("https://example.org/"&A4,"Rap")', None, "Rap")
    page.write_url(4, 1, "internal:'Programme'!A1", string="Inside")
    page.write_formula(5, 1, '=HYPERLINK("#Programme!A1","Inside")', None, "Inside")
    page.write(6, 1, "plain")
    page.merge_range(7, 1, 8, 1, "")
    page.write_url(7, 1, "https://example.org/both", string="Both")
    page.write_url(9, 1, "https://example.org/blank", string="")


LINKS = ["https://example.org/jazz?a=1&b=2#tickets", 'https://example.org/"fado"', 'HYPERLINK("https://example.org/"&A4,"Rap")']
LINKS += ["", "", "", "https://example.org/both", "", ""]


def test_the_link_behind_a_text_is_a_column_of_its_own(tmp_path: Path) -> None:
    rows = sheet(tmp_path, linked, "title.link", "id")
    assert (column(rows, "title.link"), list(rows[0].cells)) == (LINKS, ["id", "title", "note", "title.link"])
    (problem,) = (problem for row in rows for problem in row.problems)
    assert (problem.column, rows[2].problems) == ("title.link", (problem,))
    assert "enter the address itself" in problem.hint
    assert column(sheet(tmp_path, linked, "TITLE.link", merged="spread"), "TITLE.link")[6:] == [LINKS[6], LINKS[6], ""]
    assert column(sheet(tmp_path, linked, "web", columns={"web": ["title.link"]}), "web") == LINKS
    assert column(sheet(tmp_path, linked, "#1.link", range="B1:B8"), "#1.link") == LINKS[:7]
    plain = sheet(tmp_path, linked, "title")
    assert (list(plain[0].cells), [row.problems for row in plain]) == (["id", "title", "note"], [()] * 9)


def test_a_column_that_is_called_so_is_no_link_and_one_without_a_text_is_missing(tmp_path: Path) -> None:
    grid = [["title", "title.link"], ["Jazz", "mine"]]
    write_xlsx(tmp_path / "a.xlsx", grid)
    assert column(rows_of(tmp_path, "title.link", kind="xlsx", path="a.xlsx"), "title.link") == ["mine"]
    with pytest.raises(MissingColumnsError, match=r'lacks the column "titel.link" \(closest: "title'):
        rows_of(tmp_path, "titel.link", kind="xlsx", path="a.xlsx")
    write_xlsx(tmp_path / "b.xlsx", [["", "note", "title", "Title"], ["", "x", "Jazz", "mine"]])
    with pytest.raises(RepeatedColumnsError) as repeated:
        rows_of(tmp_path, "title.link", "title", kind="xlsx", path="b.xlsx", range="B1:D2")
    both = ['"title" (#2, column C)', '"Title" (#3, column D)']
    assert repeated.value.columns == {"title.link": both, "title": both}
    for source in ({"kind": "csv", "path": "a.csv"}, {"kind": "json", "path": "a.json"}):
        (tmp_path / "a.csv").write_text("title\nJazz\n", "utf-8")
        (tmp_path / "a.json").write_text('[{"title": "Jazz"}]', "utf-8")
        with pytest.raises(MissingColumnsError) as caught:
            rows_of(tmp_path, "title", "title.link", **source)
        assert "only Google Sheets and .xlsx have links behind a text" in caught.value.hint
