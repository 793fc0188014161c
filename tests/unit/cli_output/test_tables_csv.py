"""The file that a partner's editor opens in a spreadsheet program."""

from __future__ import annotations

import csv
import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cli.rows import CsvRow, safe_cell, write_csv
from pipelines.control_characters import replaced


def rejected(number: int, **cells: str) -> CsvRow:
    return CsvRow(f"events.csv:{number}", "INICIO: This is not a date.", "INICIO: like 24.12.2025", cells)


def test_the_partners_own_columns_come_first_keep_their_names_and_ours_are_added(tmp_path: Path) -> None:
    path = tmp_path / "rejected.csv"
    assert write_csv(path, [rejected(2, REF="1", NOME="Łódź"), rejected(3, REF="2\r\nlines\tand", place="caf\udce9")]) == 2
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    header, first, second = csv.reader(path.read_text("utf-8-sig").splitlines())
    assert header == ["REF", "NOME", "place", "eventsync place", "problem", "hint"]
    assert first == ["1", "Łódź", "", "events.csv:2", "INICIO: This is not a date.", "INICIO: like 24.12.2025"]
    assert (second[2][:3], second[3]) == ("caf", "events.csv:3")
    assert '"2\nlines\tand"' in path.read_text("utf-8-sig")


@pytest.mark.parametrize(
    "formula", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-2+3", "+48 123-456", "=", "-", "＝1+1", "-1=2"]
)
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(formula: str, tmp_path: Path) -> None:
    assert safe_cell(formula) == f"'{replaced(formula)}"
    write_csv(tmp_path / "x.csv", [rejected(2, **{formula: formula})])
    with (tmp_path / "x.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == [f"'{replaced(formula)}"] * 2


@pytest.mark.parametrize(
    "text", ["-5", "+48 123", "-12,50", "+1.000,00", "5", "", "a=b", " =x", "'quoted", "02134", "2025-01-01"]
)
def test_plain_numbers_and_ordinary_text_stay_as_they_are(text: str) -> None:
    assert safe_cell(text) == text


@given(st.text())
def test_no_cell_ever_begins_a_formula(text: str) -> None:
    safe = safe_cell(text)
    assert safe in {replaced(text), f"'{replaced(text)}"}
    assert not safe.startswith(("=", "@", "\t", "\r"))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_of_a_file(tmp_path: Path) -> None:
    row = rejected(2, REF="1", NOME="An evening of songs, tales & slow dances " * 8)

    def peak_of(count: int) -> int:
        tracemalloc.start()
        assert write_csv(tmp_path / "rows.csv", itertools.repeat(row, count)) == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_of(24_000) < peak_of(12_000) * 1.1
