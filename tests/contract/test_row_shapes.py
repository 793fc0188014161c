"""Rows in the shapes that people type, of every kind of table alike: headings, values from above, days as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from contract.every_kind import KINDS
from contract.source_kinds import Grid, Kind, Stand, in_no_time
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sources.catalogue import open_source
from connectors.sources.contract import MissingColumnsError, RepeatedColumnsError
from mappings.outcome import SourceRow
from mappings.spec.source import SOURCES

NAMES = {"csv", "tsv", "csv in a zip", "many files", "xlsx", "google_sheets", "google_sheets in several requests"}
GRIDS = [kind for kind in KINDS if kind.name in NAMES]
CSV = next(kind for kind in GRIDS if kind.name == "csv")
SEASON = {
    "headings": {"YEAR": {"column": "A", "matches": r"^Saison \d{4}"}, "MONTH": {"column": "Réf", "matches": r"^\p{Lu}+ \d{4}$"}},
    "fill_down": ["Salle"],
}
WEEK = {"unpivot": {"columns": ["Montag", "Dienstag"], "into": "DAY", "cell": "CLASS"}}


@pytest.fixture(params=GRIDS, ids=lambda kind: kind.name)
def stand(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stand]:
    with request.param.stand(tmp_path) as found:
        yield found


@pytest.fixture
def csv_stand(tmp_path: Path) -> Iterator[Stand]:
    with CSV.stand(tmp_path) as found:
        yield found


def read(
    stand: Stand, grid: Grid, shape: Mapping[str, Any], *columns: str
) -> tuple[tuple[str, ...], list[SourceRow], Sequence[str]]:
    """Return the columns, rows and notices of a grid that is read in a shape."""
    plain = stand.put(grid)
    spec = SOURCES[plain.kind].model_validate({**plain.model_dump(exclude_unset=True, by_alias=True), **shape})
    source = open_source(spec, stand.base, frozenset(columns), access=stand.access, clock=in_no_time())  # type: ignore[arg-type]
    with source.read() as reading:
        rows = list(reading.rows)
        return reading.columns, rows, reading.ending().notices


def texts(rows: Sequence[SourceRow], *columns: str) -> list[tuple[str, ...]]:
    return [tuple(row.cells[column] for column in columns) for row in rows]


def test_headings_and_values_from_above_stand_in_the_rows_below(stand: Stand) -> None:
    grid = [
        ["Réf", "Salle", "Spectacle"],
        ["Saison 2026/27", "", ""],
        ["JANVIER 2027", "", ""],
        ["1", "Foyer", "Macbeth"],
        ["2", "", "MARS 2027"],
        ["FÉVRIER 2027", "", ""],
        ["3", "", "Danse"],
        ["4", "Studio", "Slam"],
        ["", "", ""],
        ["5", "", "Chorale"],
        ["Saison 2027/28", "", ""],
        ["6", "Foyer", "Gala"],
    ]
    columns, rows, notices = read(stand, grid, SEASON, "Réf", "Salle", "Spectacle", "MONTH", "YEAR")
    assert columns == ("Réf", "Salle", "Spectacle", "YEAR", "MONTH")
    assert texts(rows, "Réf", "Salle", "MONTH", "YEAR") == [
        ("1", "Foyer", "JANVIER 2027", "Saison 2026/27"),
        ("2", "Foyer", "JANVIER 2027", "Saison 2026/27"),
        ("3", "", "FÉVRIER 2027", "Saison 2026/27"),
        ("4", "Studio", "FÉVRIER 2027", "Saison 2026/27"),
        ("", "", "", ""),
        ("5", "", "FÉVRIER 2027", "Saison 2026/27"),
        ("6", "Foyer", "", "Saison 2027/28"),
    ]
    assert [row.location.number for row in rows] == [4, 5, 7, 8, 9, 10, 12]
    assert not [notice for notice in notices if "heading" in notice]


def test_each_filled_cell_of_a_timetable_is_a_row_at_its_own_place(stand: Stand) -> None:
    grid = [
        ["Zeit", "Montag", "#", "Dienstag"],
        ["7", "Flow", "x", ""],
        ["", "", "", ""],
        ["9", "Yin", "", "Hatha"],
        ["11", "", "y", ""],
    ]
    columns, rows, _ = read(stand, grid, WEEK, "Zeit", "DAY", "CLASS")
    assert columns == ("Zeit", "#", "DAY", "CLASS")
    expected = [("7", "Montag", "Flow"), ("", "", ""), ("9", "Montag", "Yin"), ("9", "Dienstag", "Hatha")]
    assert texts(rows, "Zeit", "DAY", "CLASS") == expected
    assert [row.location.number for row in rows] == [2, 3, 4, 4]
    is_sheet = "!" in rows[0].location.place
    ends = ["!B2", "!A3", "!B4", "!D4"] if is_sheet else [":2 (column B)", ":3", ":4 (column B)", ":4 (column D)"]
    assert [row.location.place.endswith(end) for row, end in zip(rows, ends, strict=True)] == [True] * 4
    assert {row.location.file_and_tab for row in rows} == {rows[1].location.file_and_tab} != {("", "")}


def test_places_are_named_as_the_header_calls_them_and_may_be_read_by_name_too(stand: Stand) -> None:
    grid = [["Zeit", "4.1.", "5.1."], ["Sala Ana", "", ""], ["9", "Yin", ""], ["", "Flow", "Yin"]]
    shape = {
        "headings": {"ROOM": {"column": "A", "matches": "^Sala"}},
        "fill_down": ["#A"],
        "unpivot": {"columns": ["#2", "#C"], "into": "DAY", "cell": "CLASS", "skip_empty": False},
    }
    _, rows, _ = read(stand, grid, shape, "Zeit", "DAY", "CLASS")
    assert texts(rows, "ROOM", "Zeit", "DAY", "CLASS") == [
        ("Sala Ana", "9", "4.1.", "Yin"),
        ("Sala Ana", "9", "5.1.", ""),
        ("Sala Ana", "9", "4.1.", "Flow"),
        ("Sala Ana", "9", "5.1.", "Yin"),
    ]


def test_headings_and_blocks_in_merged_cells_are_read_when_these_are_spread(tmp_path: Path) -> None:
    import xlsxwriter  # noqa: PLC0415  # only here

    with xlsxwriter.Workbook(tmp_path / "club.xlsx") as workbook:
        page = workbook.add_worksheet("Nights")
        page.write_row(0, 0, ["Night", "Room", "Act"])
        page.merge_range("A2:C2", "MAY 2027")
        page.merge_range("B3:B4", "Cellar")
        page.write_row(2, 0, ["1"])
        page.write_row(2, 2, ["Ana"])
        page.write_row(3, 0, ["2"])
        page.write_row(3, 2, ["Jo"])
    shape = {"merged": "spread", "headings": {"MONTH": {"column": "A", "matches": r"^[A-Z]+ \d{4}$"}}}
    spec = SOURCES["xlsx"].model_validate({"kind": "xlsx", "path": "club.xlsx", **shape})
    with open_source(spec, tmp_path, frozenset({"MONTH", "Room"})).read() as reading:  # type: ignore[arg-type]
        assert texts(list(reading.rows), "Night", "Room", "MONTH") == [("1", "Cellar", "MAY 2027"), ("2", "Cellar", "MAY 2027")]


def test_what_is_wrong_in_a_cell_stays_with_the_rows_that_take_it(csv_stand: Stand) -> None:
    csv_stand.put([])
    (csv_stand.base / "events.csv").write_bytes(
        b"Zeit,Montag,Dienstag,Ort\nMai \xff,,,\n9,Yin,F\xffow,\n8,Yin,,H\xffs\n7,,Yin,,zu viel\n6,Yin,,\n"
    )
    shape = {"headings": {"MONTH": {"column": "Zeit", "matches": "^Mai"}}, "fill_down": ["Ort"], **WEEK}
    spec = SOURCES["csv"].model_validate({"kind": "csv", "path": "events.csv", "short_rows": "reject", **shape})
    with open_source(spec, csv_stand.base, frozenset({"DAY", "CLASS", "Ort"})).read() as reading:  # type: ignore[arg-type]
        rows = list(reading.rows)
    assert [(row.cells["Zeit"], row.cells["DAY"], sorted(one.column for one in row.problems)) for row in rows] == [
        ("9", "Montag", ["MONTH"]),
        ("9", "Dienstag", ["CLASS", "MONTH"]),
        ("8", "Montag", ["MONTH", "Ort"]),
        ("7", "Dienstag", ["", "MONTH", "Ort"]),
        ("6", "Montag", ["MONTH", "Ort"]),
    ]


@pytest.mark.parametrize(
    ("shape", "columns", "error", "said"),
    [
        ({"fill_down": ["Sale"]}, ["Réf"], MissingColumnsError, '"Sale" (closest: "Salle")'),
        ({"headings": {"MONTH": {"column": "Mois", "matches": "x"}}}, ["MONTH"], MissingColumnsError, '"Mois"'),
        ({"headings": {"MONTH": {"column": "D", "matches": "x"}}}, ["MONTH"], MissingColumnsError, '"D"'),
        ({"unpivot": {"columns": ["Salle", "Mardi"], "into": "DAY", "cell": "CLASS"}}, [], MissingColumnsError, '"Mardi"'),
        ({"unpivot": {"columns": ["Salle"], "into": "DAY", "cell": "CLASS"}}, ["Salle"], MissingColumnsError, 'read "CLASS"'),
        (
            {"headings": {"salle": {"column": "A", "matches": "x"}}},
            ["salle"],
            RepeatedColumnsError,
            '2 columns answer to "salle"',
        ),
    ],
)
def test_a_shape_that_the_columns_do_not_fit_is_an_error_before_any_row(
    stand: Stand, shape: Mapping[str, Any], columns: Sequence[str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        read(stand, [["Réf", "Salle", "Spectacle"], ["1", "Foyer", "Macbeth"]], shape, *columns)
    assert said in f"{raised.value} {raised.value.hint}"  # type: ignore[attr-defined]


def test_an_optional_day_may_be_missing_and_a_heading_that_never_comes_is_a_notice(csv_stand: Stand) -> None:
    shape = {**WEEK, "optional": ["Dienstag"], "headings": {"MONTH": {"column": "A", "matches": "^Mai"}}}
    _, rows, notices = read(csv_stand, [["Zeit", "Montag"], ["9", "Yin"]], shape, "MONTH", "CLASS")
    assert texts(rows, "Zeit", "MONTH", "DAY", "CLASS") == [("9", "", "Montag", "Yin")]
    assert [notice for notice in notices if "is a heading MONTH" in notice]


WORDS = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=6)
ROW = st.tuples(WORDS, st.one_of(st.just(""), WORDS), st.one_of(st.just(""), WORDS))


@pytest.mark.parametrize("kind", [CSV, next(kind for kind in GRIDS if kind.name == "xlsx")], ids=lambda kind: kind.name)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_a_table_written_as_a_timetable_comes_back(kind: Kind, tmp_path: Path, data: st.DataObject) -> None:
    times = data.draw(st.lists(WORDS, min_size=1, max_size=5, unique_by=str.strip))
    days = ["Montag", "Dienstag", "Mittwoch"]
    table = [(time, day, data.draw(st.one_of(st.just(""), WORDS))) for time in times for day in days]
    filled = [row for row in table if row[2]]
    pivoted = [[time, *(text for at, _, text in table if at == time)] for time in times]
    with kind.stand(tmp_path) as stand:
        shape = {"unpivot": {"columns": days, "into": "DAY", "cell": "CLASS"}}
        _, rows, _ = read(stand, [["Zeit", *days], *pivoted], shape)
    assert texts(rows, "Zeit", "DAY", "CLASS") == filled


@pytest.mark.parametrize("kind", [CSV, next(kind for kind in GRIDS if kind.name == "xlsx")], ids=lambda kind: kind.name)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    blocks=st.lists(
        st.tuples(st.sampled_from(["MAI 2027", "JUNI 2027"]), st.lists(st.tuples(WORDS, WORDS), min_size=1)), min_size=1
    )
)
def test_a_table_written_in_blocks_comes_back(
    kind: Kind, tmp_path: Path, blocks: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    grid, expected, number = [["Nr", "Ort", "Titel"]], [], 0
    for month, rows in blocks:
        grid.append([month, "", ""])
        before = ""
        for place, title in rows:
            number += 1
            grid.append([str(number), "" if place == before else place, title])
            expected.append((month, str(number), place, title))
            before = place
    shape = {"headings": {"MONTH": {"column": "Nr", "matches": r"^\p{Lu}+ \d{4}$"}}, "fill_down": ["Ort"]}
    with kind.stand(tmp_path) as stand:
        _, read_rows, _ = read(stand, grid, shape)
    assert texts(read_rows, "MONTH", "Nr", "Ort", "Titel") == expected
