"""A Google sheet that is as it was costs one request; whatever leaves a doubt about that, and it is read whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lookalikes.sheets import Fault
from lookalikes.sheets_book import Book, Cell, Content, Sheet
from unit.connectors_sources.sheets_at_hand import Desk, sheet_of

from connectors.sources.contract import Ending


class Said(NamedTuple):
    """How many rows a reading gave and whether they are all, its ending, and which requests it took, tokens apart."""

    found: tuple[int, bool]
    ending: Ending
    asked: list[str]

    @property
    def cursor(self) -> str:
        return self.ending.cursor


WHOLE = (2, True)
UNREAD = (0, False)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with sheet_of(tmp_path, [["id", "title"], ["1", "Jazz"], ["2", "Fado"]]) as found:
        yield found


def read(desk: Desk, since: str = "", **words: Any) -> Said:
    before = len(desk.google.asked)
    with desk.source("id", since=since, **words).read() as reading:
        rows = len(list(reading.rows))
        asked = [one for one in desk.google.asked[before:] if "/token" not in one]
        return Said((rows, reading.is_whole), reading.ending(), asked)


def test_an_unchanged_sheet_costs_exactly_one_request(desk: Desk) -> None:
    first = read(desk)
    again = read(desk, first.cursor)
    assert (first.found, again.found) == (WHOLE, UNREAD)
    (asked,) = again.asked
    assert asked.startswith("GET /drive/v3/files/")
    assert again.ending == Ending(first.cursor, (f"{desk.book.id} has not changed since it was last read",))


def test_a_sheet_that_is_known_by_its_title_costs_the_look_for_the_title_only(desk: Desk) -> None:
    first = read(desk, spreadsheet="Town programme")
    again = read(desk, first.cursor, spreadsheet="Town programme")
    assert (first.found, again.found) == (WHOLE, UNREAD)
    assert [sum("/drive/" in one for one in said.asked) for said in (first, again)] == [1, 1]
    assert len(again.asked) == 1


def test_another_spreadsheet_of_the_same_title_is_another(desk: Desk) -> None:
    first = read(desk, spreadsheet="Town programme")
    desk.google.books.clear()
    desk.google.add(Book("1another-spreadsheet-of-that-title", desk.book.title, desk.book.sheets))
    assert read(desk, first.cursor, spreadsheet="Town programme").found == WHOLE


def test_a_change_between_the_question_and_the_cells_is_found_by_the_next_reading(desk: Desk) -> None:
    desk.google.edits[1] = lambda: desk.sheet.put(4, 1, "3")
    first = read(desk)
    assert first.found == (3, True)
    assert read(desk, first.cursor).found == (3, True)


def test_a_change_while_a_tall_sheet_is_copied_is_found_by_the_next_reading(tmp_path: Path) -> None:
    with sheet_of(tmp_path, [["id"], *[[f"A{number}"] for number in range(1_700)]], rows=1_701) as desk:
        first = read(desk)
        desk.google.edits[desk.google.reads + 4] = lambda: desk.sheet.put(9, 1, "changed")
        desk.sheet.put(3, 1, "changed")
        second = read(desk, first.cursor)
        assert second.found[1]
        assert read(desk, second.cursor).found[1]


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
    other: list[list[Content]] = [[Cell(5, formula="=NOW()")]]
    desk.book.sheets.append(Sheet("Other", other, gid=9))
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
