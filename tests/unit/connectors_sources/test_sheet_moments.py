"""A Google sheet is read as it is at one moment, even while somebody edits it; one that is as it was costs one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lookalikes.sheets import Fault
from lookalikes.sheets_book import Cell, Content, Sheet
from unit.connectors_sources.sheets_at_hand import Desk, sheet_of

from connectors.sources.contract import Ending, SourceRefusedError, SourceUnavailableError

COUNT = 1_200


@pytest.fixture
def tall(tmp_path: Path) -> Iterator[Desk]:
    """Two requests' worth of rows: of a tab with 40 columns the first asks for 1,100 rows."""
    rows = [[f"A{number}", f"Concert {number}", number] for number in range(1, COUNT + 1)]
    with sheet_of(tmp_path, [["id", "title", "note"], *rows], rows=COUNT + 1, columns=40) as found:
        yield found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with sheet_of(tmp_path, [["id", "title"], ["1", "Jazz"], ["2", "Fado"]]) as found:
        yield found


def told(desk: Desk) -> list[tuple[int, str, str]]:
    return [(row.location.number, row.cells["id"], row.cells["title"]) for row in desk.rows("id", "title")]


def standing(desk: Desk) -> list[tuple[int, Content, Content]]:
    return [(number, row[0], row[1]) for number, row in enumerate(desk.sheet.grid, start=1) if number > 1 and row]


def test_a_small_sheet_takes_two_requests(desk: Desk) -> None:
    desk.rows("id")
    assert (len(desk.requests("/v4/")), len(desk.requests("/drive/"))) == (2, 1)


def test_a_tall_sheet_takes_a_request_for_each_piece_and_one_to_compare(tall: Desk) -> None:
    assert told(tall) == standing(tall)
    asked = tall.requests("/v4/")
    assert len(asked) == 1 + 2 + 1 + 1  # the tabs; the pieces; formulas, for the stamp; the comparison
    assert sum("batchGet" in one for one in asked) == 1


EDITS: dict[str, Callable[[Desk], object]] = {
    "a row put in above": lambda desk: desk.sheet.insert(2, ["new", "Late", 0]),
    "a row put in below": lambda desk: desk.sheet.insert(1_150, ["new", "Late", 0]),
    "a row put in at the end": lambda desk: desk.sheet.insert(COUNT + 2, ["new", "Late", 0]),
    "a row taken out above": lambda desk: desk.sheet.delete(5),
    "many rows taken out": lambda desk: desk.sheet.delete(100, 600),
    "a cell changed above": lambda desk: desk.sheet.put(3, 2, "Changed"),
    "two rows swapped": lambda desk: desk.sheet.grid.__setitem__(slice(1, 3), desk.sheet.grid[2:0:-1]),
}


@pytest.mark.parametrize("before", [(1,), (3,), (4, 5)])
@pytest.mark.parametrize("edit", EDITS)
def test_nothing_is_lost_or_read_twice_when_rows_move_during_a_reading(tall: Desk, edit: str, before: tuple[int, ...]) -> None:
    """The edits come before the first piece, the second, and the comparison and while all is read again."""
    tall.google.edits = {when: lambda: EDITS[edit](tall) for when in before}
    assert told(tall) == standing(tall)
    assert not tall.google.edits


def test_errors_that_stay_are_no_change_and_texts_that_look_like_marks_are(tall: Desk) -> None:
    errors = [Cell(error=error) for error in ("N_A", "NEVER_HEARD_OF", "LOADING")]
    for number, content in enumerate(("#1A", *errors, True, 1e300), 2):
        tall.sheet.put(number, 2, content)
    tall.rows("id", "title")
    assert len(tall.requests("batchGet")) == 1
    tall.google.edits[tall.google.reads + 3] = lambda: tall.sheet.put(2, 2, "#2A")
    assert tall.rows("id", "title")[0].cells["title"] == "#2A"


def test_a_reading_that_was_begun_anew_says_so(tall: Desk) -> None:
    tall.google.edits[3] = lambda: tall.sheet.delete(5)
    for said in (("Programme was edited while we read it, so it was read 2 times",), ()):
        with tall.source("id").read() as reading:
            assert len(list(reading.rows)) == COUNT - 1
            assert reading.ending().notices == said


def test_an_edit_of_a_column_that_nobody_uses_is_no_reason_to_read_again(tall: Desk) -> None:
    tall.google.edits[4] = lambda: tall.sheet.put(9, 3, "otherwise")
    assert told(tall) == standing(tall)
    assert len(tall.requests("/v4/")) == 5


def test_an_editor_who_never_rests_ends_the_reading_within_bounds(tall: Desk) -> None:
    for number in range(1, 100):
        tall.google.edits[number] = lambda: tall.sheet.insert(2, ["new", "Late", 0])
    with pytest.raises(SourceUnavailableError, match="was changed each of 4 times") as caught:
        told(tall)
    assert "NOW" in caught.value.hint
    assert len(tall.requests("/v4/")) < 30


def test_a_tab_renamed_during_a_reading_is_called_by_its_new_name_or_is_there_no_more(tall: Desk) -> None:
    tall.google.edits[3] = lambda: setattr(tall.sheet, "title", "Renamed")
    assert {row.location.place.partition("!")[0] for row in tall.rows("id", tab="#1")} == {"Renamed"}
    assert not tall.waits
    tall.google.edits[tall.google.reads + 3] = lambda: setattr(tall.sheet, "title", "Again")
    with pytest.raises(SourceRefusedError, match='has no tab "Renamed"'):
        tall.rows("id", tab="Renamed")


def test_columns_moved_during_a_reading_end_it(tall: Desk) -> None:
    tall.google.edits[3] = lambda: [row.insert(0, "first") for row in tall.sheet.grid]
    with pytest.raises(SourceUnavailableError, match="its columns were changed while we read it"):
        tall.rows("id")


def test_the_stamp_of_a_small_sheet_is_of_its_content(tmp_path: Path) -> None:
    with sheet_of(tmp_path, [["id", "day"], ["1", Cell(46145, "DATE", "yyyy-mm-dd")]]) as desk:
        first = desk.stamp()
        desk.book.version += 1  # somebody only looked, or shared it with somebody
        assert desk.stamp() == first
        desk.sheet.put(2, 2, Cell(46145, "NUMBER", "0"))
        assert desk.stamp() != first


def test_the_stamp_of_a_tall_sheet_is_the_version_that_drive_tells(tall: Desk) -> None:
    first = tall.stamp()
    assert first.startswith("version=1 modifiedTime=")
    asked = len(tall.requests("/v4/"))
    assert tall.stamp() == first
    assert len(tall.requests("/v4/")) - asked == 3  # of the rows nothing but the first piece, for the header
    tall.book.version += 1
    assert tall.stamp() != first


class Said(NamedTuple):
    """How many rows a reading gave and whether they are all, its ending, and which requests it took, tokens apart."""

    found: tuple[int, bool]
    ending: Ending
    asked: list[str]
    cursor: str


WHOLE, UNREAD = (2, True), (0, False)


def read(desk: Desk, since: str = "", **words: Any) -> Said:
    before = len(desk.google.asked)
    with desk.source("id", since=since, **words).read() as reading:
        found, ending = (len(list(reading.rows)), reading.is_whole), reading.ending()
        return Said(found, ending, [one for one in desk.google.asked[before:] if "/token" not in one], ending.cursor)


def test_an_unchanged_sheet_costs_exactly_one_request(desk: Desk) -> None:
    first = read(desk)
    again = read(desk, first.cursor)
    assert (first.found, again.found) == (WHOLE, UNREAD)
    (asked,) = again.asked
    assert asked.startswith("GET /drive/v3/files/")
    assert again.ending == Ending(first.cursor, (f"{desk.book.id} has not changed since it was last read",))


def test_a_change_between_the_question_and_the_cells_is_found_by_the_next_reading(desk: Desk) -> None:
    desk.google.edits[1] = lambda: desk.sheet.put(4, 1, "3")
    first = read(desk)
    assert first.found == read(desk, first.cursor).found == (3, True)


def test_a_change_while_a_tall_sheet_is_copied_is_found_by_the_next_reading(tall: Desk) -> None:
    first = read(tall)
    tall.google.edits[tall.google.reads + 4] = lambda: tall.sheet.put(9, 1, "changed")
    tall.sheet.put(3, 1, "changed")
    second = read(tall, first.cursor)
    assert second.found[1]
    assert read(tall, second.cursor).found[1]


@pytest.mark.parametrize("formula", [Cell(5, formula="=NOW()"), Cell(5, is_pivot=True)], ids=["a formula", "a pivot table"])
@pytest.mark.parametrize("words", [{}, {"range": "A1:B3"}], ids=["the whole tab", "a range beside it"])
def test_a_tab_with_formulas_has_no_cursor_and_is_read_each_time(desk: Desk, formula: Cell, words: dict[str, str]) -> None:
    cursor = read(desk, **words).cursor
    assert cursor
    desk.sheet.put(3, 4, formula)
    again = read(desk, cursor, **words)
    assert (again.found, again.cursor) == (WHOLE, "")
    assert read(desk, again.cursor, **words).found == WHOLE


def test_a_formula_in_another_tab_is_no_matter(desk: Desk) -> None:
    desk.book.sheets.append(Sheet("Other", [[Cell(5, formula="=NOW()")]], gid=9))
    assert read(desk, read(desk).cursor).found == UNREAD


@pytest.mark.parametrize("kind", ["off", 500, 429, "cut", "drop"])
def test_where_drive_does_not_answer_it_is_asked_once_and_the_sheet_is_read(desk: Desk, kind: str | int) -> None:
    cursor = read(desk).cursor
    desk.google.is_drive_on = kind != "off"
    if kind != "off":
        how = {"kind": kind} if isinstance(kind, str) else {"status": kind}
        desk.google.faults.append(Fault("/drive/", times=10**9, **how))  # type: ignore[arg-type]  # by their names
    again = read(desk, cursor)
    assert (again.found, again.ending) == (WHOLE, Ending())
    assert sum("/drive/" in one for one in again.asked) == 1
    assert not desk.waits


def test_a_person_who_lent_us_no_right_to_ask_drive_is_read_without_a_word(desk: Desk, tmp_path: Path) -> None:
    desk.book.readers = None
    desk.credentials = desk.google.person(tmp_path / "person.json")
    said = read(desk)
    assert (said.found, said.ending) == (WHOLE, Ending())


def test_drive_must_tell_the_version_itself(desk: Desk) -> None:
    """A time of change is as coarse as its clock."""
    desk.google.faults.append(Fault("/drive/", status=200, body={"modifiedTime": "2026-05-01T00:00:01.000Z"}, times=10**9))
    assert read(desk).cursor == ""


def test_a_cursor_is_of_one_mapping_and_short(desk: Desk) -> None:
    cursor = read(desk).cursor
    assert read(desk, cursor, range="A1:A3").found == WHOLE
    assert read(desk, "what another program wrote").found == WHOLE
    assert len(cursor) < 50
