"""The CSV source with files as partners really write them."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.connectors_sources.reading import cells, read, rows_of

from connectors.sources.catalogue import open_source
from connectors.sources.contract import BadSourceError, MissingColumnsError, SourceRefusedError, SourceUnavailableError
from connectors.sources.rows import LARGEST_RECORD
from mappings.reasons import ReasonCode
from mappings.spec.source import CsvSource


@given(
    records=st.lists(st.lists(st.sampled_from(["", "x", "a\nb", "\r\n\r\n", "q\rq"]), min_size=2, max_size=2), max_size=8),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=9, max_size=9),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_line_numbers_are_those_of_any_text_editor(tmp_path: Path, records: list[list[str]], ends: list[str]) -> None:
    content, expected = "id,text" + ends[0], []
    for record, end in zip(records, ends[1:], strict=False):
        expected.append(len(io.StringIO(content, newline=None).readlines()) + 1)
        content += ",".join(f'"{cell}"' for cell in record) + end
    assert [row.location.number for row in read(tmp_path, content)] == expected


@given(
    grid=st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=2, max_size=2)),
    delimiter=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be", "gb18030"]),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_the_csv_module_writes_is_what_we_read(tmp_path: Path, grid: list[list[str]], delimiter: str, encoding: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows([["id", "text"], *grid])
    content = text.getvalue().encode(encoding, "surrogatepass")
    assert cells(read(tmp_path, content, delimiter=delimiter, encoding=[encoding])) == grid


@pytest.mark.parametrize(("marks", "encoding"), [(1, "utf-8"), (3, "utf-8"), (2, "utf-8-sig"), (1, "windows-1252"), (1, "ascii")])
def test_byte_order_marks_at_the_start_vanish_and_decide(tmp_path: Path, marks: int, encoding: str) -> None:
    content = b"\xef\xbb\xbf" * marks + '"id",text\n1,Łódź\n'.encode()
    assert dict(read(tmp_path, content, encoding=[encoding])[0].cells) == {"id": "1", "text": "Łódź"}


def test_the_first_encoding_that_decodes_the_whole_file_wins(tmp_path: Path) -> None:
    late = b"id,text\n" + b"1,plain\n" * 200_000 + "2,café\n".encode("windows-1252")
    assert cells(read(tmp_path, late, encoding=["utf-8", "windows-1252"]))[-1] == ["2", "café"]
    assert cells(read(tmp_path, "id,text\n2,café\n", encoding=["utf-8", "windows-1252"])) == [["2", "café"]]


def test_undecodable_bytes_are_a_problem_of_the_row_whose_mapped_column_holds_them(tmp_path: Path) -> None:
    content = b"id,text,note\n1,caf\xe9,x\n2,x,caf\xe9\n3,caf\xc3\xa9,x\n"
    bad, unmapped, good = read(tmp_path, content, "id", "text")
    (problem,) = bad.problems
    assert (problem.code, problem.column, problem.found) == (ReasonCode.UNDECODABLE, "text", "caf\\xe9")
    assert "utf-8" in problem.hint
    assert bad.cells["text"] == unmapped.cells["note"] == "caf\ufffd"
    assert (unmapped.problems, good.problems, good.cells["text"]) == ((), (), "café")


def test_an_undecodable_header_can_still_be_told(tmp_path: Path) -> None:
    with pytest.raises(MissingColumnsError) as caught:
        read(tmp_path, b"id,pr\xe9nom\n", "prénom")
    assert str(caught.value).encode()


def test_header_names_are_trimmed_numbered_and_found_by_any_spelling(tmp_path: Path) -> None:
    content = "\u200bREF\u00a0,, Nome do  Evento ,REF,,INI\u0301CIO\n1,2,3,4,5,6\n"
    (row,) = read(tmp_path, content, "ref", "NOME DO EVENTO", "INÍCIO", "#5")
    assert dict(row.cells) == {"ref": "1", "#2": "2", "NOME DO EVENTO": "3", "REF#2": "4", "#5": "5", "INÍCIO": "6"}


def test_two_columns_that_differ_in_case_only_are_not_guessed_between(tmp_path: Path) -> None:
    with pytest.raises(MissingColumnsError):
        read(tmp_path, "NAME,Name\nx,y\n", "name")
    assert read(tmp_path, "NAME,Name\nx,y\n", "Name")[0].cells["Name"] == "y"


def test_the_header_may_stand_further_down(tmp_path: Path) -> None:
    content = 'Programme 2025\n\n"printed\non Monday",,\nid,text\n1,x\n'
    (row,) = read(tmp_path, content, header={"row": 4})
    assert (dict(row.cells), row.location.number) == ({"id": "1", "text": "x"}, 6)


def test_names_may_be_given_where_the_file_has_none_or_wrong_ones(tmp_path: Path) -> None:
    assert dict(read(tmp_path, "1,x\n", header={"row": 0, "names": ["id", "text"]})[0].cells) == {"id": "1", "text": "x"}
    (row,) = read(tmp_path, "Girl Scouts,Start\n1,x\n", header={"row": 1, "names": ["id", "text"]})
    assert (row.cells["id"], row.location.number) == ("1", 2)


def test_required_columns_are_asked_for_like_mapped_ones(tmp_path: Path) -> None:
    with pytest.raises(MissingColumnsError, match='"LINK"'):
        read(tmp_path, "id\n1\n", required=["LINK"])


@pytest.mark.parametrize(
    ("line", "cell", "how", "surplus"),
    [
        ("1", "", {}, []),
        ("1,2,, \u00a0,", "2", {}, []),
        ("1,2,3", "2", {}, [(ReasonCode.RAGGED, "3")]),
        ("1,2,3", "2", {"long_rows": "cut"}, []),
    ],
    ids=["a short row is filled up", "trailing delimiters are no surplus", "a surplus rejects its row", "a surplus is cut"],
)
def test_a_row_of_another_length(tmp_path: Path, line: str, cell: str, how: Any, surplus: list[tuple[ReasonCode, str]]) -> None:
    (row,) = read(tmp_path, f"a,b\n{line}\n", **how)
    assert list(row.cells.values()) == ["1", cell]
    assert [(problem.code, problem.found) for problem in row.problems] == surplus


def test_broken_quotes_within_a_line_reject_that_row_only(tmp_path: Path) -> None:
    before, bad, after = read(tmp_path, 'id,text,end\n1,x,y\n2,"The "Big" Show",y\n3,x,y\n')
    assert [problem.code for problem in bad.problems] == [ReasonCode.BAD_TEXT]
    assert bad.problems[0].found == '2,"The "Big" Show",y'
    assert (bad.location.number, bad.cells["id"], bad.cells["end"]) == (3, "2", "y")
    assert (before.problems, after.problems, after.location.number) == ((), (), 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('id,text,end\n1,x,y\n2,"open,y\n3,x,y\n', r"events\.file:3: .*column 2 is never closed"),
        ('id,text,end\n1,"open,y\n2,x,y\n3,"closed",y\n', r"events\.file:2: .*breaks on line 4"),
        ('id,text,end\n1,"a "b" c\nd",y\n2,x,y\n', r"events\.file:2: .*breaks on line 2"),
        ('id,"text\n1,x\n', r"events\.file:1: .*column 2 is never closed"),
        ("\ufeff", "events.file.*empty"),
        ("\n\n", r"row 1 should hold the names"),
        ("\0\0", "NUL"),
        ("id,text\n1,x\n".encode("utf-16-le"), r"events\.file:1: character 2 is a NUL"),
        ("  <!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04\x14\x00\x06\x00", "the zip archive is damaged or cut off"),
        (b"%PDF-1.7\n", "this is a PDF, not rows of text"),
        ("id\n1\n".encode("utf-16") + b"a", r"events\.file:\d+: .*not utf-16"),
        pytest.param("id,text\n1," + "x" * (10 * 2**20 + 1), r"events\.file:2: the cell in column 2 is larger", id="giant"),
        pytest.param("id\n" + "x" * LARGEST_RECORD, r"events\.file:2: the line is longer", id="endless line"),
        pytest.param('id,"' + ("x" * 99 + "\n") * 120_000, r"events\.file:1: the cell in column 2 is larger", id="giant header"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_as_csv_is_refused_as_a_whole(tmp_path: Path, content: bytes | str, said: str) -> None:
    with pytest.raises(BadSourceError, match=said):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "header", "said"), [("", {"row": 0, "names": ["id"]}, "empty"), ("id\n1\n", {"row": 5}, "before row 5")]
)
def test_a_file_without_the_row_of_its_header_is_bad(tmp_path: Path, content: str, header: Any, said: str) -> None:
    with pytest.raises(BadSourceError, match=said):
        read(tmp_path, content, header=header)


def test_quotes_mean_nothing_where_the_mapping_says_so(tmp_path: Path) -> None:
    assert cells(read(tmp_path, 'id\ttext\n1\t"Big" Show\n', delimiter="\t", quote=None)) == [["1", '"Big" Show']]


def test_large_cells_are_read_whatever_limit_stood_before(tmp_path: Path) -> None:
    csv.field_size_limit(131_072)
    (row,) = read(tmp_path, f"id,text\n1,{'x' * 1_000_000}\n")
    assert (len(row.cells["text"]), row.problems) == (1_000_000, ())


@pytest.mark.parametrize("what", ["a pipe", "a file we may not read", "a path through a file"])
def test_what_cannot_be_opened_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "events.csv"
    os.mkfifo(path) if what == "a pipe" else path.touch(mode=0o000)
    if what == "a file we may not read" and os.access(path, os.R_OK):
        return  # root may read everything
    with pytest.raises(SourceRefusedError, match="regular" if what == "a pipe" else "may not"):
        rows_of(tmp_path, kind="csv", path="events.csv/inner.csv" if "through" in what else "events.csv")


@pytest.mark.parametrize("added", ["3\n", '3\n"half a r'])
def test_a_file_that_grows_while_we_read_is_read_again_later(tmp_path: Path, added: str) -> None:
    path = tmp_path / "events.csv"
    path.write_text("id\n1\n2\n")
    source = open_source(CsvSource(kind="csv", path="events.csv"), tmp_path, frozenset())
    with source.read() as reading:
        next(reading.rows)
        with path.open("a") as partner:
            partner.write(added)
        with pytest.raises(SourceUnavailableError, match="changed"):
            list(reading.rows)


def test_a_file_replaced_as_a_whole_while_we_read_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("id\n1\n2\n")
    with open_source(CsvSource(kind="csv", path="events.csv"), tmp_path, frozenset()).read() as reading:
        next(reading.rows)
        (tmp_path / "new").write_text("id\n8\n9\n10\n")
        (tmp_path / "new").rename(path)
        assert cells(list(reading.rows)) == [["2"]]


def test_errors_of_whoever_reads_the_rows_pass_unchanged(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("id\n1\n")
    source = open_source(CsvSource(kind="csv", path="events.csv"), tmp_path, frozenset())
    with pytest.raises(csv.Error, match="theirs"), source.read():
        raise csv.Error("theirs")


@pytest.mark.parametrize("encoding", ["cp932", "ms932", "shift_jis"])
@pytest.mark.parametrize("byte", [0x80, 0xA0, 0xFD, 0xFE, 0xFF])
def test_bytes_that_are_no_japanese_cost_their_row_and_become_no_letters(tmp_path: Path, encoding: str, byte: int) -> None:
    lines = ("ID,NAME\n1,春の".encode("cp932"), bytes([byte]), "祭り\n2,髙橋①～\n".encode("cp932"))
    broken, sound = read(tmp_path, b"".join(lines), "ID", "NAME", encoding=(encoding,))
    assert broken.problems
    if encoding != "shift_jis":
        assert (broken.problems[0].found, sound.cells["NAME"], sound.problems) == (f"春の\\x{byte:02x}祭り", "髙橋①～", ())
