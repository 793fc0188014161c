"""What every kind of source promises, asked of each in the same words. To add a kind: one more `Kind` in `KINDS`."""

from __future__ import annotations

import bz2
import csv
import gc
import gzip
import io
import json
import lzma
import textwrap
import tracemalloc
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workbooks import write_xlsx

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Source
from connectors.sources.errors import BadSourceError, MissingColumnsError, SourceRefusedError
from mappings.source_specs import (
    CsvSource,
    IcsSource,
    JsonSource,
    NdjsonSource,
    SourceSpec,
    TsvSource,
    WorkbookSource,
    XmlSource,
)
from mappings.vocabulary import SourceRow

Grid = Sequence[Sequence[str]]

HOSTILE = [
    " padded ", "\u00a0", "line one\nline two", "a\r\nb", "a\rb", 'say "hi"', "a,b;c\td|e", "02134", "1e5", "12,50", "NA",
    "nan", "TRUE", "no", "=1+1", "-5", "\ufeffmark", "Łódź", "上海", "💃🏽", "\u2028", "\x0b\x85", "\\", "'", "#3", "null",
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of source: how a grid of text (its first line the header) is put where the source finds it.

    `first` is the number of the first row, None where numbers count something else (lines of records of any length).
    `has_names`: columns have names of their own, which may stand twice, be padded or be wanted by their position.
    """

    name: str
    put: Callable[[Path, Grid], SourceSpec]
    accepts: Callable[[str], bool] = lambda _: True
    first: int | None = 2
    is_grid: bool = True

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


def _packed_kind(name: str, pack: Callable[[bytes], bytes]) -> Kind:
    plain = _csv_kind(name)

    def put(base: Path, grid: Grid) -> SourceSpec:
        spec = plain.put(base, grid)
        path = base / spec.path
        path.write_bytes(pack(path.read_bytes()))
        return spec

    return Kind(name, put)


def _zipped(content: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("export/events.csv", content)
    return archive.getvalue()


def _put_many(base: Path, grid: Grid) -> SourceSpec:
    spec = CsvSource(kind="csv", path="events*.csv")
    with (base / "events.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(grid)
    return spec


def _put_tsv(base: Path, grid: Grid) -> SourceSpec:
    with (base / "events.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL).writerows(grid)
    return TsvSource(kind="tsv", path="events.csv")


def _put_joined(base: Path, grid: Grid) -> SourceSpec:
    """The file itself, beside a second table in which no row is found."""
    (base / "second.csv").write_text("key\n", "utf-8")
    with (base / "events.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(grid)
    return CsvSource(kind="csv", path="events.csv", null=("~~~",))


def _put_xlsx(base: Path, grid: Grid) -> SourceSpec:
    if grid:
        write_xlsx(base / "events.csv", grid)
    else:
        (base / "events.csv").write_bytes(b"")
    return WorkbookSource(kind="xlsx", path="events.csv")


def _records(grid: Grid) -> list[dict[str, str]]:
    return [dict(zip(grid[0], cells, strict=True)) for cells in grid[1:]] if grid else []


def _put_json(base: Path, grid: Grid) -> SourceSpec:
    text = json.dumps({"data": {"events": _records(grid)}, "n": 1}) if grid else ""
    (base / "events.csv").write_text(text, "utf-8")
    return JsonSource(kind="json", path="events.csv", records="data.events")


def _put_ndjson(base: Path, grid: Grid) -> SourceSpec:
    text = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in _records(grid))
    (base / "events.csv").write_text(text or "\n" * bool(grid), "utf-8")
    return NdjsonSource(kind="ndjson", path="events.csv")


def _put_xml(base: Path, grid: Grid) -> SourceSpec:
    def element(record: dict[str, str]) -> str:
        cells = (f"<{name}>{escape(cell, {chr(13): '&#13;'})}</{name}>" for name, cell in record.items())
        return f"<event>{''.join(cells)}</event>"

    text = f"<agenda><events>{''.join(map(element, _records(grid)))}</events></agenda>" if grid else ""
    (base / "events.csv").write_text(text, "utf-8")
    return XmlSource(kind="xml", path="events.csv", records="agenda/events/event")


def _put_ics(base: Path, grid: Grid) -> SourceSpec:
    def line(name: str, cell: str) -> str:
        escaped = cell.replace("\\", "\\\\").replace(",", "\\,").replace(";", "\\;").replace("\n", "\\n")
        return "\r\n ".join(textwrap.wrap(f"{name}:", 60) + [escaped[place : place + 60] for place in range(0, len(escaped), 60)])

    def event(record: dict[str, str]) -> list[str]:
        return ["BEGIN:VEVENT", *(line(name, cell) for name, cell in record.items()), "END:VEVENT"]

    lines = ["BEGIN:VCALENDAR", *(one for record in _records(grid) for one in event(record)), "END:VCALENDAR", ""]
    (base / "events.csv").write_bytes("\r\n".join(lines).encode() if grid else b"")
    return IcsSource(kind="ics", path="events.csv")


def _is_xml(text: str) -> bool:
    return all(char in "\t\n\r" or " " <= char <= "\ud7ff" or "\ue000" <= char <= "\ufffd" or char > "\uffff" for char in text)


def _is_sheet(text: str) -> bool:
    """Workbooks escape what XML cannot say, and keep CR LF as LF."""
    return _is_xml(text) and "\r" not in text and "_x" not in text and len(text) < 32_000


KINDS = [
    _csv_kind("csv"),
    _csv_kind("csv as Excel writes it", encoding="utf-8-sig", delimiter=";", line_end="\r\n"),
    _csv_kind("csv of an old program", encoding="windows-1252", delimiter=";", quote="'", line_end="\r"),
    _csv_kind("csv with tabs in UTF-16", encoding="utf-16", delimiter="\t", line_end="\r\n"),
    _csv_kind("csv in UTF-32", encoding="utf-32"),
    _csv_kind("csv with escapes", escape="\\"),
    _csv_kind("csv in Korean", encoding="cp949", delimiter="|"),
    _csv_kind("csv in Japanese", encoding="shift_jis"),
    Kind("tsv", _put_tsv),
    _packed_kind("csv.gz", gzip.compress),
    _packed_kind("csv.bz2", bz2.compress),
    _packed_kind("csv.xz", lzma.compress),
    _packed_kind("csv in a zip", _zipped),
    Kind("many files", _put_many),
    Kind("a feed's rules for cells", _put_joined),
    Kind("xlsx", _put_xlsx, _is_sheet),
    Kind("json", _put_json, first=1, is_grid=False),
    Kind("ndjson", _put_ndjson, first=1, is_grid=False),
    Kind("xml", _put_xml, _is_xml, first=1, is_grid=False),
    Kind("ics", _put_ics, lambda text: "\r" not in text and "\0" not in text, first=None, is_grid=False),
]


@pytest.fixture(params=[kind for kind in KINDS if kind.is_grid], ids=lambda kind: kind.name)
def grid_kind(request: pytest.FixtureRequest) -> Kind:
    found = request.param
    assert isinstance(found, Kind)
    return found


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found = request.param
    assert isinstance(found, Kind)
    return found


def _rows(source: Source) -> list[SourceRow]:
    with source.read() as reading:
        return list(reading.rows)


def _to_the_last_filled(grid: list[list[str]]) -> list[list[str]]:
    """A sheet has no rows below the last that holds something."""
    filled = [number for number, cells in enumerate(grid, start=1) if any(cells)]
    return grid[: max(filled, default=0)]


def _open_below(folder: Path) -> list[str]:
    return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(folder))]


def test_cells_are_the_text_that_stands_there(kind: Kind, tmp_path: Path) -> None:
    cells = [cell for cell in HOSTILE if kind.accepts(cell)]
    grid = [["id", "text"], *[[str(number), cell] for number, cell in enumerate(cells)]]
    rows = _rows(kind.source(tmp_path, grid, frozenset({"text"})))
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
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
)
def test_any_grid_of_text_survives_the_way(kind: Kind, tmp_path: Path, grid: list[list[str]]) -> None:
    kept = [["".join(char for char in cell if kind.accepts(char)) for cell in row] for row in grid]
    width = len(kept[0]) if kept else 1
    names = [f"c{place}" for place in range(width)]
    rows = _rows(kind.source(tmp_path, [names, *kept], frozenset(names)))
    assert [[row.cells[name] for name in names] for row in rows] == (_to_the_last_filled(kept) if kind.name == "xlsx" else kept)


def test_columns_stand_in_the_order_of_the_source(grid_kind: Kind, tmp_path: Path) -> None:
    with grid_kind.source(tmp_path, [["b", " a ", "c"], ["1", "2", "3"]]).read() as reading:
        assert reading.columns == ("b", "a", "c")
        assert [dict(row.cells) for row in reading.rows] == [{"b": "1", "a": "2", "c": "3"}]


def test_columns_are_spelt_as_the_mapping_spells_them(grid_kind: Kind, tmp_path: Path) -> None:
    source = grid_kind.source(tmp_path, [["START  date", "Title", "title"], ["1", "2", "3"]], frozenset({"Start Date", "title"}))
    with source.read() as reading:
        assert reading.columns == ("Start Date", "Title", "title")
        assert next(reading.rows).cells["Start Date"] == "1"


def test_a_source_with_a_header_only_has_no_rows(kind: Kind, tmp_path: Path) -> None:
    assert _rows(kind.source(tmp_path, [["id"]])) == []


def test_blank_rows_are_rows(kind: Kind, tmp_path: Path) -> None:
    rows = _rows(kind.source(tmp_path, [["id", "text"], ["1", "x"], ["", ""], ["2", "y"]], frozenset({"id"})))
    assert [row.cells["id"] for row in rows] == ["1", "", "2"]
    if kind.first is not None:
        assert [row.origin.number for row in rows] == list(range(kind.first, kind.first + 3))


def test_every_row_has_a_place_of_its_own(kind: Kind, tmp_path: Path) -> None:
    rows = _rows(kind.source(tmp_path, [["id"], *[[str(number)] for number in range(50)]]))
    assert len({row.origin.place for row in rows}) == 50
    assert all(str(row.origin.number) in row.origin.place for row in rows)


def test_missing_columns_are_told_all_at_once_before_any_row(kind: Kind, tmp_path: Path) -> None:
    source = kind.source(tmp_path, [["id", "titel", "ort"], ["1", "x", "y"]], frozenset({"id", "title", "start"}))
    with pytest.raises(MissingColumnsError) as caught, source.read():
        pytest.fail("the block was entered")
    assert caught.value.missing == ("start", "title")
    assert caught.value.nearest["title"].casefold() == "titel"
    assert '"titel"' in str(caught.value).casefold()
    assert '"ort"' in caught.value.hint.casefold()


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
    assert str(tmp_path / "elsewhere" / spec.path) in str(caught.value)


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

    small = peak(2_500)
    assert peak(4_000) < small + 100_000
