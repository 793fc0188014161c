from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from connectors.sources.catalogue import open_source
from connectors.sources.errors import BadSourceError
from mappings.outcome import SourceRow
from mappings.spec.source import CsvSource


def rows_of(tmp_path: Path, content: bytes, encoding: str = "utf-8") -> list[SourceRow]:
    (tmp_path / "a.csv").write_bytes(content)
    spec = CsvSource(kind="csv", path="a.csv", encoding=(encoding,))
    with open_source(spec, tmp_path, frozenset({"ID", "NAME"})).read() as reading:
        return list(reading.rows)


def test_bytes_undecodable_in_the_agreed_encoding_are_shown_as_bytes_even_where_they_are_utf8(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, "ID,NAME,NOTE\n1,It’s,’\n".encode(), "ascii")
    (problem,) = row.problems
    assert (problem.column, problem.found) == ("NAME", r"It\xe2\x80\x99s")
    assert row.cells["NOTE"] == "\ufffd" * 3


@pytest.mark.parametrize("encoding", ["cp932", "ms932", "shift_jis"])
@pytest.mark.parametrize("byte", [0x80, 0xA0, 0xFD, 0xFE, 0xFF])
def test_bytes_that_are_no_japanese_cost_their_row_and_become_no_letters(tmp_path: Path, encoding: str, byte: int) -> None:
    lines = ("ID,NAME\n1,春の".encode("cp932"), bytes([byte]), "祭り\n2,髙橋①～\n".encode("cp932"))
    broken, sound = rows_of(tmp_path, b"".join(lines), encoding)
    assert broken.problems
    if encoding != "shift_jis":
        assert (broken.problems[0].found, sound.cells["NAME"], sound.problems) == (f"春の\\x{byte:02x}祭り", "髙橋①～", ())


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04\x14\x00\x06\x00", "the zip archive is damaged or cut off"),
        (gzip.compress(gzip.compress(b"ID,NAME\n1,a\n")), "this is compressed with gzip, not rows of text"),
        (b"%PDF-1.7\n", "this is a PDF, not rows of text"),
    ],
    ids=["xlsx", "gz", "pdf"],
)
def test_a_file_of_another_kind_is_called_by_its_kind(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(BadSourceError, match=what):
        rows_of(tmp_path, content)
