"""Sources made of more than one file: patterns of names, second tables, JSON inside cells."""

from __future__ import annotations

from pathlib import Path

import pytest
import xlsxwriter
from unit.connectors_sources.reading import column, read, rows_of

from connectors.sources.catalogue import open_source
from connectors.sources.contract import BadSourceError, MissingColumnsError, SourceUnavailableError
from mappings.reasons import ReasonCode
from mappings.spec.source import CsvSource

JOIN = {"source": {"kind": "csv", "path": "venues.csv"}, "by": {"VENUE": "id"}, "prefix": "venue."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 9, 10):
        (tmp_path / f"events-{number}.csv").write_text(f"id,c{number}\n{number},x\n", "utf-8")
    (tmp_path / "venues.csv").write_text("id,city\nv1,Bonn\nv2,Köln\n", "utf-8")
    return tmp_path


def test_files_follow_one_another_in_the_order_of_their_numbers(folder: Path) -> None:
    rows = rows_of(folder, "id", kind="csv", path="events-*.csv")
    assert [str(row.location) for row in rows] == ["events-1.csv:2", "events-9.csv:2", "events-10.csv:2"]
    assert dict(rows[0].cells) == {"id": "1", "c1": "x", "c9": "", "c10": ""}
    assert column(rows_of(folder, "id", kind="csv", path="events-*.csv", files="newest"), "id") == ["10"]


def test_a_column_that_one_of_the_files_lacks_is_told_before_any_row(folder: Path) -> None:
    source = open_source(CsvSource(kind="csv", path="events-*.csv"), folder, frozenset({"c1"}))
    with pytest.raises(MissingColumnsError, match=r"events-9\.csv lacks"), source.read():
        pytest.fail("the block was entered")


def test_files_of_one_name_are_told_apart_by_their_folder(folder: Path) -> None:
    for name in ("lisbon", "porto"):
        (folder / name).mkdir()
        (folder / name / "events.csv").write_text(f"id\n{name}\n", "utf-8")
    rows = rows_of(folder, kind="csv", path="*/events.csv")
    assert [str(row.location) for row in rows] == ["lisbon/events.csv:2", "porto/events.csv:2"]


def test_a_file_that_is_replaced_while_the_others_are_read_is_read_again_later(folder: Path) -> None:
    with open_source(CsvSource(kind="csv", path="events-*.csv"), folder, frozenset({"id"})).read() as reading:
        next(reading.rows)
        (folder / "events-10.csv").write_text("id,c10\n11,x\n12,y\n", "utf-8")
        with pytest.raises(SourceUnavailableError, match="changed"):
            list(reading.rows)


def test_the_cells_of_a_second_table_stand_beside_a_row(folder: Path) -> None:
    hit, miss = read(folder, "id,VENUE\n1, v2 \n2,v9\n", "id", "venue.city", join=JOIN)
    assert dict(hit.cells) == {"id": "1", "VENUE": " v2 ", "venue.id": "v2", "venue.city": "Köln"}
    assert (miss.cells["venue.city"], miss.problems) == ("", ())


def test_a_row_without_its_other_half_is_rejected_where_the_mapping_says_so(folder: Path) -> None:
    (row,) = read(folder, "id,VENUE\n2,v9\n", "id", "venue.city", join={**JOIN, "on_miss": "reject"})
    (problem,) = row.problems
    assert (problem.code, problem.column, problem.found) == (ReasonCode.NOT_IN_LOOKUP, "VENUE", "v9")
    assert "v1, v2" in problem.hint


def test_a_second_tab_is_a_second_table(tmp_path: Path) -> None:
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as workbook:
        workbook.add_worksheet("Programme").write_column(0, 0, ["VENUE", "v1"])
        workbook.add_worksheet("Venues").write_row(0, 0, ["id", "city"])
        workbook.get_worksheet_by_name("Venues").write_row(1, 0, ["v1", "Bonn"])
    join = {**JOIN, "source": {"kind": "xlsx", "path": "a.xlsx", "sheet": "Venues"}}
    (row,) = rows_of(tmp_path, "venue.city", kind="xlsx", path="a.xlsx", join=join)
    assert row.cells["venue.city"] == "Bonn"


def test_two_rows_of_a_second_table_with_one_key_are_an_error_that_names_both(folder: Path) -> None:
    (folder / "venues.csv").write_text("id,city\nv1,Bonn\nv2,Ulm\n v1,Köln\n", "utf-8")
    with pytest.raises(BadSourceError, match=r"venues\.csv:2 and again at venues\.csv:4"):
        read(folder, "id,VENUE\n", "id", "venue.city", join=JOIN)


def test_a_column_that_the_second_table_lacks_is_missing_there(folder: Path) -> None:
    with pytest.raises(MissingColumnsError, match=r'venues\.csv lacks the column "zip"'):
        read(folder, "id,VENUE\n", "id", "venue.zip", join=JOIN)


def test_json_in_a_cell_is_opened(folder: Path) -> None:
    content = 'id,details\n1,"{""price"": {""from"": 1.50}, ""tags"": [""x"", ""y""]}"\n2,oops\n3,\n'
    good, bad, blank = read(folder, content, "id", "details.price.from", "details.tags[1]", json_columns="details")
    assert (good.cells["details.price.from"], good.cells["details.tags[1]"]) == ("1.50", "y")
    assert [(problem.code, problem.column, problem.found) for problem in bad.problems] == [
        (ReasonCode.BAD_TEXT, "details", "oops")
    ]
    assert (blank.cells["details.price.from"], blank.problems) == ("", ())
