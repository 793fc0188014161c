"""Where a table begins and ends in its file, and by which names its columns are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.connectors_sources.reading import cells, column, read

from connectors.sources.contract import BadSourceError, EmptySourceError, MissingColumnsError
from connectors.sources.rows import ColumnRequest, column_names, matched
from mappings.reasons import ReasonCode
from pipelines.run.outcome import outcome_of


def test_the_header_is_the_first_row_with_a_cell_that_matches(tmp_path: Path) -> None:
    content = "Programme 2026\n,,\nNr,Datum,Titel\n1,2026-05-03,Jazz\n"
    (row,) = read(tmp_path, content, "Titel", header={"matches": "^Datum$"})
    assert (dict(row.cells), row.location.number) == ({"Nr": "1", "Datum": "2026-05-03", "Titel": "Jazz"}, 4)


def test_a_header_that_matches_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadSourceError, match='no cell of the first 2 rows matches "Datum"'):
        read(tmp_path, "a,b\n1,2\n", header={"matches": "Datum"})


def test_a_header_in_one_piece_is_told_once_and_its_mark_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingColumnsError) as caught:
        read(tmp_path, "id;title;date\n1;Jazz;2031-05-14\n", "id", "title", "date")
    assert str(caught.value).endswith('lacks the columns "date", "id", "title"')
    assert "set `source.delimiter` to ';'" in caught.value.hint


def test_a_header_of_several_rows_is_joined(tmp_path: Path) -> None:
    (row,) = read(tmp_path, "Start,,End,\nday,hour,day,hour\n1,2,3,4\n", "Start day", "End day", header={"rows": 2})
    assert list(row.cells) == ["Start day", "hour", "End day", "hour#2"]
    with pytest.raises(BadSourceError, match="ends within its header"):
        read(tmp_path, "Start\n", header={"rows": 2})


def test_a_column_answers_to_the_first_alias_that_is_there(tmp_path: Path) -> None:
    aliases = {"TITLE": ["Titel", "Name"], "DAY": "Datum"}
    (row,) = read(tmp_path, "name, TITEL ,datum\nx,y,z\n", "TITLE", "DAY", columns=aliases)
    assert dict(row.cells) == {"name": "x", "TITLE": "y", "DAY": "z"}
    (own,) = read(tmp_path, "Title,Name\nx,y\n", "TITLE", columns=aliases)
    assert own.cells["TITLE"] == "x"
    with pytest.raises(MissingColumnsError, match='"DAY"'):
        read(tmp_path, "Titel\n", "TITLE", "DAY", columns=aliases)


def test_a_column_can_be_asked_for_by_its_letter_or_position(tmp_path: Path) -> None:
    (row,) = read(tmp_path, "a,b,c\n1,2,3\n", "#C", "#2")
    assert dict(row.cells) == {"a": "1", "#2": "2", "#C": "3"}


@given(st.lists(st.sampled_from(["a", "a#2", "b", "", "#2", " a "]), max_size=8))
def test_every_column_has_a_name_of_its_own(header: list[str]) -> None:
    names = column_names(header)
    assert len(set(names)) == len(header)
    assert matched(names, ColumnRequest(frozenset(names))).names == names


def test_an_optional_column_may_be_absent_and_is_then_empty(tmp_path: Path) -> None:
    (row,) = read(tmp_path, "id\n1\n", "id", "end", optional="end")
    assert dict(row.cells) == {"id": "1", "end": ""}
    with pytest.raises(MissingColumnsError):
        read(tmp_path, "id\n1\n", "id", "end", optional="end", required="end2")


def test_comments_a_footer_and_what_follows_the_end_are_no_rows(tmp_path: Path) -> None:
    content = "id,text\n# draft,\n1,x\n,\n2,y\n\nsum,2\nprinted,today\n\n"
    rows = read(tmp_path, content, comment="#", footer=2)
    assert [(row.cells["id"], row.location.number) for row in rows] == [("1", 3), ("", 4), ("2", 5), ("", 6)]
    assert column(read(tmp_path, content, until="^sum$"), "id") == ["# draft", "1", "", "2", ""]


def test_a_footer_longer_than_the_file_leaves_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "id\n1\n2\n", footer=5) == []


def test_what_follows_the_end_is_read_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(BadSourceError, match="never closed"):
        read(tmp_path, 'id,text\n1,x\nend,\n2,"open\n', until="end")


def test_short_rows_are_rejected_where_the_mapping_says_so(tmp_path: Path) -> None:
    whole, short, blank, trailing = read(tmp_path, "a,b,\n1,2,\n1\n\n1,2\n", short_rows="reject")
    assert [problem.code for problem in short.problems] == [ReasonCode.RAGGED]
    assert (whole.problems, blank.problems, trailing.problems) == ((), (), ())


def test_texts_that_mean_nothing_are_empty_cells(tmp_path: Path) -> None:
    rows = read(tmp_path, "id,price,note\n1,NULL,-\n2, n/a ,NULLS\n3,-,null\n", empty_if=["NULL", "n/a"], empty_in={"NOTE": "-"})
    assert cells(rows) == [["1", "", ""], ["2", "", "NULLS"], ["3", "-", "null"]]


def test_the_mark_of_each_of_several_files_put_together_is_gone(tmp_path: Path) -> None:
    part = b'\xef\xbb\xbf"id",text\n1,x\n'
    assert column(read(tmp_path, part + part), "id") == ["1", "id", "1"]


def test_a_file_of_no_bytes_stops_like_a_source_without_rows(tmp_path: Path) -> None:
    with pytest.raises(EmptySourceError, match="empty") as caught:
        read(tmp_path, "")
    assert outcome_of(caught.value).exit_code == 5


@pytest.mark.parametrize(
    ("header", "nearest"),
    [
        ("ID,TITLE,DATE,HOUR", {"DAY": "DATE"}),
        ("ID,TITEL,DAY,HOUR", {"TITLE": "TITEL"}),
        ("ID,EVENT_TITLE,DAY,HOUR,NOTE", {"TITLE": "EVENT_TITLE"}),
        ("Id ,Title,day,START HOUR", {"HOUR": "START HOUR"}),
        ("ID,TITLE,HOUR", {}),
    ],
)
def test_a_renamed_column_is_sought_among_those_that_are_not_needed(tmp_path: Path, header: str, nearest: dict[str, str]) -> None:
    with pytest.raises(MissingColumnsError) as caught:
        read(tmp_path, f"{header}\n", "ID", "TITLE", "DAY", "HOUR")
    assert caught.value.nearest == nearest
