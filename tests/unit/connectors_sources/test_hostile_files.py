"""Files that are broken, of another kind, or made to exhaust whoever reads them: a clear error, soon, in little memory."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from unit.connectors_sources.reading import count_rows, read, rows_of
from workbooks import write_xlsx

from connectors.sources.contract import BadSourceError, EmptySourceError, SourceRefusedError, SourceUnavailableError
from mappings.reasons import ReasonCode

MEGABYTE = 2**20
RECORDS: dict[str, dict[str, Any]] = {"json": {}, "ndjson": {}, "xml": {"records": "event"}, "ics": {}}
KINDS: dict[str, dict[str, Any]] = {"csv": {}, "tsv": {}, "xlsx": {}, **RECORDS}


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """So much memory, in bytes, is what reading may take."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


def zipped(members: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return archive.getvalue()


def workbook(tmp_path: Path, sheet: Callable[[bytes], bytes]) -> bytes:
    """Return a workbook whose sheet's XML was tampered with."""
    write_xlsx(tmp_path / "plain.xlsx", [["id", "text"], ["1", "x"]])
    with zipfile.ZipFile(tmp_path / "plain.xlsx") as file:
        members = {name: file.read(name) for name in file.namelist()}
    return zipped({**members, "xl/worksheets/sheet1.xml": sheet(members["xl/worksheets/sheet1.xml"])})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("content", "error", "said", "hint"),
    [
        pytest.param(b"", EmptySourceError, "empty", "", id="no bytes are not a list without rows"),
        pytest.param(b"<!DOCTYPE html><html><body>Please log in", BadSourceError, "web page", "login", id="a login page"),
        pytest.param(bytes(range(256)) * 50, BadSourceError, None, "", id="any binary"),
    ],
)
def test_what_is_no_file_of_rows_is_refused(
    tmp_path: Path, kind: str, content: bytes, error: type[BadSourceError], said: str | None, hint: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        read(tmp_path, content, *(["id"] if content else []), kind=kind, **KINDS[kind])
    assert hint in caught.value.hint


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_no_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "events").mkdir()
    with pytest.raises(SourceRefusedError, match="folder"):
        rows_of(tmp_path, kind=kind, path="events", **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_fails_is_worth_another_attempt(tmp_path: Path, kind: str) -> None:
    """The memory of this process is a file whose first byte Linux cannot read; elsewhere there is no such file."""
    with pytest.raises((SourceUnavailableError, SourceRefusedError), match="mem"):
        rows_of(tmp_path, kind=kind, path="/proc/self/mem", **KINDS[kind])


@pytest.mark.parametrize("count", [16_385, 150_000])
def test_a_million_columns_are_never_meant(tmp_path: Path, count: int) -> None:
    with pytest.raises(BadSourceError, match=f"{count} columns"):
        read(tmp_path, ",".join(["x"] * count))
    (row,) = read(tmp_path, "id\n1" + ",x" * count)
    assert [problem.code for problem in row.problems] == [ReasonCode.RAGGED]


def test_a_single_cell_at_the_far_end_of_a_sheet_costs_no_memory(tmp_path: Path) -> None:
    far = b'<row r="50000"><c r="XFD50000" t="inlineStr"><is><t>far</t></is></c></row></sheetData>'
    content = workbook(tmp_path, lambda xml: xml.replace(b"</sheetData>", far))
    with at_most(10 * MEGABYTE):
        assert count_rows(tmp_path, content, kind="xlsx") == 49_999


@pytest.mark.parametrize(
    "row",
    [
        b'<row r="99999999999999999999"><c r="A99999999999999999999"><v>1</v></c></row>',
        b'<row r="x"><c r="?!"><v>1</v></c></row>',
        b'<row r="3"><c r="A3" t="s"><v>' + b"9" * 5000 + b"</v></c></row>",
        b'<row r="3"><c r="A3" s="99"><v>1e999</v></c></row>',
        b'<row r="3"><c r="ZZZZ3"><v>1</v></c></row>',
        b'<row r="3"><c r="A3" t="unheard-of"><v>1</v></c></row>',
        b'</sheetData><mergeCells><mergeCell ref="A1:XFD1048576"/></mergeCells><sheetData>',
    ],
)
def test_nonsense_in_a_sheet_is_a_row_or_a_problem_and_never_a_crash(tmp_path: Path, row: bytes) -> None:
    content = workbook(tmp_path, lambda xml: xml.replace(b"</sheetData>", row + b"</sheetData>"))
    assert count_rows(tmp_path, content, kind="xlsx", merged="spread") <= 2
