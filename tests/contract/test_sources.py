"""What every kind of source promises, asked of each in the same words. To add a kind: one more `Kind` in `KINDS`."""

from __future__ import annotations

import csv
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from connectors.sources.errors import BadSourceError, MissingColumnsError, SourceRefusedError
from mappings.source_specs import CsvSource, SourceSpec
from mappings.vocabulary import SourceRow

Grid = Sequence[Sequence[str]]

HOSTILE = [
    " padded ", "\u00a0", "line one\nline two", "a\r\nb", "a\rb", 'say "hi"', "a,b;c\td|e", "02134", "1e5", "12,50", "NA",
    "nan", "TRUE", "no", "=1+1", "-5", "\ufeffmark", "Łódź", "上海", "💃🏽", "\u2028", "\x0b\x85", "\\", "'", "#3", "null",
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of source: how a grid of text (its first line the header) is put where the source finds it."""

    name: str
    put: Callable[[Path, Grid], SourceSpec]
    accepts: Callable[[str], bool] = lambda _: True

    def source(self, base: Path, grid: Grid, columns: frozenset[str] = frozenset()) -> Source:
        return open_source(self.put(base, grid), base, columns)


def _csv_kind(name: str, *, encoding: str = "utf-8", line_end: str = "\n", **dialect: Any) -> Kind:
    def put(base: Path, grid: Grid) -> SourceSpec:
        spec = CsvSource(kind="csv", path="events.csv", encoding=(encoding,), **dialect)
        with (base / spec.path).open("w", encoding=encoding, newline="") as file:
            csv.writer(
                file,
                delimiter=spec.delimiter,
                quotechar=spec.quote,
                escapechar=spec.escape,
                doublequote=spec.escape is None,
                lineterminator=line_end,
                quoting=csv.QUOTE_ALL,
            ).writerows(grid)
        return spec

    def accepts(cell: str) -> bool:
        try:
            return cell.encode(encoding).decode(encoding) == cell
        except UnicodeError:
            return False

    return Kind(name, put, accepts)


KINDS = [
    _csv_kind("csv"),
    _csv_kind("csv as Excel writes it", encoding="utf-8-sig", delimiter=";", line_end="\r\n"),
    _csv_kind("csv of an old program", encoding="windows-1252", delimiter=";", quote="'", line_end="\r"),
    _csv_kind("csv with tabs in UTF-16", encoding="utf-16", delimiter="\t", line_end="\r\n"),
    _csv_kind("csv with escapes", escape="\\"),
    _csv_kind("csv in Korean", encoding="cp949", delimiter="|"),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found = request.param
    assert isinstance(found, Kind)
    return found


def _rows(source: Source) -> list[SourceRow]:
    with source.read() as reading:
        return list(reading.rows)


def _open_below(folder: Path) -> list[str]:
    return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(folder))]


def test_cells_are_the_text_that_stands_there(kind: Kind, tmp_path: Path) -> None:
    cells = [cell for cell in HOSTILE if kind.accepts(cell)]
    rows = _rows(kind.source(tmp_path, [["id", "text"], *[[str(number), cell] for number, cell in enumerate(cells)]]))
    assert [row.cells["text"] for row in rows] == cells
    assert not any(row.problems for row in rows)


@given(
    grid=st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(
                st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
                min_size=width,
                max_size=width,
            ),
            max_size=6,
        )
    )
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
)
def test_any_grid_of_text_survives_the_way(kind: Kind, tmp_path: Path, grid: list[list[str]]) -> None:
    kept = [["".join(char for char in cell if kind.accepts(char)) for cell in row] for row in grid]
    width = len(kept[0]) if kept else 1
    rows = _rows(kind.source(tmp_path, [[f"c{place}" for place in range(width)], *kept]))
    assert [list(row.cells.values()) for row in rows] == kept


def test_columns_stand_in_the_order_of_the_source(kind: Kind, tmp_path: Path) -> None:
    with kind.source(tmp_path, [["b", " a ", "c"], ["1", "2", "3"]]).read() as reading:
        assert reading.columns == ("b", "a", "c")
        assert [dict(row.cells) for row in reading.rows] == [{"b": "1", "a": "2", "c": "3"}]


def test_columns_are_spelt_as_the_mapping_spells_them(kind: Kind, tmp_path: Path) -> None:
    source = kind.source(tmp_path, [["START  date", "Title", "title"], ["1", "2", "3"]], frozenset({"Start Date", "title"}))
    with source.read() as reading:
        assert reading.columns == ("Start Date", "Title", "title")
        assert next(reading.rows).cells["Start Date"] == "1"


def test_a_source_with_a_header_only_has_no_rows(kind: Kind, tmp_path: Path) -> None:
    assert _rows(kind.source(tmp_path, [["id"]])) == []


def test_blank_rows_are_rows(kind: Kind, tmp_path: Path) -> None:
    rows = _rows(kind.source(tmp_path, [["id", "text"], ["1", "x"], ["", ""], ["2", "y"]]))
    assert [row.cells["id"] for row in rows] == ["1", "", "2"]
    assert [row.origin.number for row in rows] == [2, 3, 4]


def test_every_row_has_a_place_of_its_own(kind: Kind, tmp_path: Path) -> None:
    rows = _rows(kind.source(tmp_path, [["id"], *[[str(number)] for number in range(50)]]))
    assert len({row.origin.place for row in rows}) == 50
    assert all(str(row.origin.number) in row.origin.place for row in rows)


def test_missing_columns_are_told_all_at_once_before_any_row(kind: Kind, tmp_path: Path) -> None:
    source = kind.source(tmp_path, [["id", "titel", "ort"], ["1", "x", "y"]], frozenset({"id", "title", "start"}))
    with pytest.raises(MissingColumnsError) as caught, source.read():
        pytest.fail("the block was entered")
    assert caught.value.missing == ("start", "title")
    assert caught.value.nearest["title"] == "titel"
    assert '"titel"' in str(caught.value)
    assert '"ort"' in caught.value.hint


def test_a_source_can_be_read_again(kind: Kind, tmp_path: Path) -> None:
    source = kind.source(tmp_path, [["id"], ["1"], ["2"]])
    assert _rows(source) == _rows(source)


def test_equal_content_gives_an_equal_stamp_and_an_edit_another(kind: Kind, tmp_path: Path) -> None:
    source = kind.source(tmp_path, [["id"], ["1"]])
    with source.read() as first, source.read() as second:
        assert first.stamp == second.stamp
    kind.put(tmp_path, [["id"], ["1"], ["2"]])
    with source.read() as third:
        assert third.stamp != first.stamp


def test_a_reading_left_early_closes_what_it_opened(kind: Kind, tmp_path: Path) -> None:
    source = kind.source(tmp_path, [["id"], *[["x"]] * 20_000])
    with source.read() as reading:
        next(reading.rows)
        assert _open_below(tmp_path)
    assert not _open_below(tmp_path)


def test_an_absent_source_is_refused_and_not_empty(kind: Kind, tmp_path: Path) -> None:
    spec = kind.put(tmp_path, [["id"]])
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(SourceRefusedError) as caught, open_source(spec, tmp_path / "elsewhere", frozenset()).read():
        pytest.fail("the block was entered")
    assert str(tmp_path / "elsewhere" / "events.csv") in str(caught.value)


def test_a_source_without_a_header_is_bad_and_not_empty(kind: Kind, tmp_path: Path) -> None:
    with pytest.raises(BadSourceError), kind.source(tmp_path, []).read():
        pytest.fail("the block was entered")


def test_memory_does_not_grow_with_the_number_of_rows(kind: Kind, tmp_path: Path) -> None:
    def peak(count: int) -> int:
        source = kind.source(tmp_path, [["id", "text"], *[["1", "x" * 50]] * count])
        gc.collect()
        tracemalloc.start()
        with source.read() as reading:
            assert sum(1 for _ in reading.rows) == count
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    small = peak(2_000)
    assert peak(20_000) < small + 200_000
