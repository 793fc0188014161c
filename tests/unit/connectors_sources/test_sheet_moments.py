"""A Google sheet is read as it is at one moment, in few requests, even while somebody edits it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lookalikes.sheets_book import Cell, Content
from unit.connectors_sources.sheets_at_hand import Desk, sheet_of

from connectors.sources.contract import SourceRefusedError, SourceUnavailableError

COUNT = 1_700


def _tall() -> list[list[Content]]:
    """Two requests' worth of rows: of a tab with 26 columns the first asks for 1,538 rows."""
    return [["id", "title", "note"], *[[f"A{number}", f"Concert {number}", number] for number in range(1, COUNT + 1)]]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with sheet_of(tmp_path, _tall(), rows=COUNT + 1) as found:
        yield found


def told(desk: Desk, *columns: str) -> list[tuple[int, str, str]]:
    return [(row.location.number, row.cells["id"], row.cells["title"]) for row in desk.rows(*columns or ("id", "title"))]


def standing(desk: Desk) -> list[tuple[int, Content, Content]]:
    return [(number, row[0], row[1]) for number, row in enumerate(desk.sheet.grid, start=1) if number > 1 and row]


def test_a_small_sheet_takes_two_requests(tmp_path: Path) -> None:
    with sheet_of(tmp_path, [["id"], ["1"]]) as desk:
        desk.rows("id")
        assert (len(desk.requests("/v4/")), len(desk.requests("/drive/"))) == (2, 1)


def test_a_tall_sheet_takes_a_request_for_each_piece_and_one_to_compare(desk: Desk) -> None:
    assert told(desk) == standing(desk)
    asked = desk.requests("/v4/")
    assert len(asked) == 1 + 2 + 1 + 1  # the tabs; the pieces; formulas, for the stamp; the comparison
    assert sum("batchGet" in one for one in asked) == 1


EDITS: dict[str, Callable[[Desk], object]] = {
    "a row put in above": lambda desk: desk.sheet.insert(2, ["new", "Late", 0]),
    "a row put in below": lambda desk: desk.sheet.insert(1_650, ["new", "Late", 0]),
    "a row put in at the end": lambda desk: desk.sheet.insert(COUNT + 2, ["new", "Late", 0]),
    "a row taken out above": lambda desk: desk.sheet.delete(5),
    "many rows taken out": lambda desk: desk.sheet.delete(100, 600),
    "a cell changed above": lambda desk: desk.sheet.put(3, 2, "Changed"),
    "two rows swapped": lambda desk: desk.sheet.grid.__setitem__(slice(1, 3), desk.sheet.grid[2:0:-1]),
}


@pytest.mark.parametrize("before", [(1,), (3,), (4,), (4, 5)])
@pytest.mark.parametrize("edit", EDITS)
def test_nothing_is_lost_or_read_twice_when_rows_move_during_a_reading(desk: Desk, edit: str, before: tuple[int, ...]) -> None:
    """The edits come before the first piece, the second, the comparison, and while all is read again."""
    desk.google.edits = {when: lambda: EDITS[edit](desk) for when in before}
    assert told(desk) == standing(desk)
    assert not desk.google.edits


def test_errors_that_stay_are_no_change_and_texts_that_look_like_marks_are(desk: Desk) -> None:
    for number, content in enumerate(
        ("#1A", Cell(error="N_A"), Cell(error="NEVER_HEARD_OF"), Cell(error="LOADING"), True, 1e300), 2
    ):
        desk.sheet.put(number, 2, content)
    desk.rows("id", "title")
    assert len(desk.requests("batchGet")) == 1
    desk.google.edits[desk.google.reads + 3] = lambda: desk.sheet.put(2, 2, "#2A")
    assert desk.rows("id", "title")[0].cells["title"] == "#2A"


def test_a_reading_that_was_begun_anew_says_so(desk: Desk) -> None:
    desk.google.edits[3] = lambda: desk.sheet.delete(5)
    with desk.source("id").read() as reading:
        assert len(list(reading.rows)) == COUNT - 1
        (notice,) = reading.ending().notices
    assert notice == "somebody edited Programme while we read it, so it was read 2 times"
    with desk.source("id").read() as reading:
        assert list(reading.rows)
        assert reading.ending().notices == ()


def test_an_edit_of_a_column_that_nobody_uses_is_no_reason_to_read_again(desk: Desk) -> None:
    desk.google.edits[4] = lambda: desk.sheet.put(9, 3, "otherwise")
    assert told(desk, "id", "title") == standing(desk)
    assert len(desk.requests("/v4/")) == 5


def test_an_editor_who_never_rests_ends_the_reading_within_bounds(desk: Desk) -> None:
    for number in range(1, 100):
        desk.google.edits[number] = lambda: desk.sheet.insert(2, ["new", "Late", 0])
    with pytest.raises(SourceUnavailableError, match="was changed each of 4 times") as caught:
        told(desk)
    assert "NOW" in caught.value.hint
    assert len(desk.requests("/v4/")) < 30


@pytest.mark.parametrize(
    ("edit", "error", "said"),
    [
        (lambda desk: setattr(desk.sheet, "title", "Renamed"), SourceRefusedError, 'has no tab "Programme"'),
        (
            lambda desk: [row.insert(0, "first") for row in desk.sheet.grid],
            *(SourceUnavailableError, "its columns were changed while we read it"),
        ),
    ],
)
def test_a_tab_taken_away_or_columns_moved_during_a_reading_end_it(
    desk: Desk, edit: Callable[[Desk], object], error: type[Exception], said: str
) -> None:
    desk.google.edits[3] = lambda: edit(desk)
    with pytest.raises(error, match=said):
        desk.rows("id", tab="Programme")


def test_a_tab_renamed_during_a_reading_is_called_by_its_new_name(desk: Desk) -> None:
    desk.google.edits[3] = lambda: setattr(desk.sheet, "title", "Renamed")
    places = {row.location.place.partition("!")[0] for row in desk.rows("id", tab="#1")}
    assert places == {"Renamed"}
    assert not desk.waits


def test_the_stamp_of_a_small_sheet_is_of_its_content(tmp_path: Path) -> None:
    with sheet_of(tmp_path, [["id", "day"], ["1", Cell(46145, "DATE", "yyyy-mm-dd")]]) as desk:
        first = desk.stamp()
        desk.book.version += 1  # somebody only looked, or shared it with somebody
        assert desk.stamp() == first
        desk.sheet.put(2, 2, Cell(46145, "NUMBER", "0"))
        assert desk.stamp() != first


def test_the_stamp_of_a_tall_sheet_is_the_version_that_drive_tells(desk: Desk) -> None:
    first = desk.stamp()
    assert first.startswith("version=1 modifiedTime=")
    asked = len(desk.requests("/v4/"))
    assert desk.stamp() == first
    assert len(desk.requests("/v4/")) - asked == 3  # of the rows nothing but the first piece, for the header
    desk.book.version += 1
    assert desk.stamp() != first
