"""What became of each row, written into a Google sheet as editors know it; a server on this machine answers as Google does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from lookalikes.sheets import ACCOUNT, Fault, Google, google_on
from lookalikes.sheets_book import Book, Cell, Sheet

from connectors.sources.catalogue import open_source, open_status_sheet
from connectors.sources.contract import Access, Clock, GoogleAccess, StatusCell
from connectors.sources.google_sheets.source import open_google_status_sheet
from mappings.reasons import Reason
from mappings.row_key import RowKey, row_key
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack
from pipelines.run.outcome import WrittenBack
from pipelines.run.write_back import RowStatus, write_back

BOOK = "1TownHallProgramme0000000000000000000000"
COLUMNS = WriteBack(status="Status", event_id="Event", problem="Problem")
MARKS = {
    RowKey("0101"): RowStatus("published", (71,)),
    RowKey("0102"): RowStatus("rejected", problem="Day: This is not a date."),
    RowKey("0103"): RowStatus("draft", (73,)),
}
SAID = {"0101": ("published", "71", ""), "0102": ("rejected", "", "Day: This is not a date."), "0103": ("draft", "73", "")}


@pytest.fixture
def google() -> Iterator[Google]:
    with google_on(Google()) as served:
        yield served


@pytest.fixture
def sheet(google: Google) -> Sheet:
    """Notes, a header in row 3, three rows whose ids are numbers shown with a zero, a column between ours."""
    header = ["ID", "Title", "Status", "Notes", "Event", "Problem"]
    rows = [[Cell(101.0 + number, "NUMBER", "0000"), f"Evening {number}", None, f"note {number}"] for number in range(3)]
    made = Sheet("Town's programme", [["Please do not sort"], [], list(header), *rows], gid=7)
    google.add(Book(BOOK, "Town hall", [made], writers={ACCOUNT}))
    return made


def access_to(google: Google, folder: Path) -> Access:
    return Access(google=GoogleAccess(google.credentials(folder / "account.json"), google.base_url))


def spec(**more: object) -> GoogleSheetsSource:
    told = {"kind": "google_sheets", "spreadsheet": BOOK, "header": {"row": "3"}, "write_back": COLUMNS.model_dump(), **more}
    return GoogleSheetsSource.model_validate(told)


def key_of_id(cells: Mapping[str, str]) -> tuple[RowKey, tuple[Reason, ...]]:
    return row_key((cells["ID"],)), ()


def told(google: Google, folder: Path, marks: Mapping[RowKey, RowStatus] = MARKS, **more: object) -> WrittenBack:
    clock = Clock(clock_s=lambda: 0.0, sleep=lambda _s: None, chance=lambda: 0.5)
    with open_google_status_sheet(spec(**more), frozenset({"ID"}), access_to(google, folder), clock) as board:
        return write_back(board, COLUMNS, key_of_id, marks)


def said(sheet: Sheet, header: int = 3) -> dict[str, tuple[str, str, str]]:
    """What the three columns say by id, wherever rows and columns are now."""
    names = [str(name) for name in sheet.grid[header - 1]]
    places = [names.index(name) for name in ("ID", "Status", "Event", "Problem")]
    rows = [[*row, *[None] * 12] for row in sheet.grid[header:]]
    return {_text(row[places[0]]): (_text(row[places[1]]), _text(row[places[2]]), _text(row[places[3]])) for row in rows}


def _text(content: object) -> str:
    return f"{content.value:04.0f}" if isinstance(content, Cell) and isinstance(content.value, float) else str(content or "")


def posts(google: Google) -> int:
    return sum(one.startswith("POST /v4") for one in google.asked)


def test_each_row_says_what_became_of_it_and_nothing_else_is_touched(google: Google, sheet: Sheet, tmp_path: Path) -> None:
    assert told(google, tmp_path) == WrittenBack(cells=6)
    assert said(sheet) == SAID
    assert [row[3] for row in sheet.grid[3:]] == ["note 0", "note 1", "note 2"]
    assert sheet.grid[0] == ["Please do not sort"]
    assert posts(google) == 1
    assert not [one for one in google.asked if "/drive/" in one]


def test_a_second_time_no_request_writes(google: Google, sheet: Sheet, tmp_path: Path) -> None:
    told(google, tmp_path)
    assert (told(google, tmp_path), posts(google), said(sheet)) == (WrittenBack(), 1, SAID)


def test_a_heading_takes_no_outcome_and_the_rows_below_it_take_theirs(google: Google, sheet: Sheet, tmp_path: Path) -> None:
    sheet.grid.insert(4, ["MAY 2027"])
    headings = {"MONTH": {"column": "A", "matches": "^MAY"}}
    assert told(google, tmp_path, headings=headings, fill_down=["Notes"]) == WrittenBack(cells=6)
    assert said(sheet) == SAID | {"MAY 2027": ("", "", "")}


@pytest.mark.usefixtures("sheet")
def test_our_own_words_cost_one_whole_reading_more_and_none_after_that(google: Google, tmp_path: Path) -> None:
    def read(since: str) -> tuple[bool, str]:
        source = open_source(spec(), tmp_path, frozenset({"ID"}), access=access_to(google, tmp_path), since=since)
        with source.read() as reading:
            list(reading.rows)
            return reading.is_whole, reading.ending().cursor

    _, first = read("")
    told(google, tmp_path)
    is_whole, second = read(first)
    assert (is_whole, told(google, tmp_path).cells) == (True, 0)
    assert read(second) == (False, second)


def test_texts_are_written_as_texts_never_as_formulas(google: Google, sheet: Sheet, tmp_path: Path) -> None:
    told(google, tmp_path, {RowKey("0101"): RowStatus("rejected", problem='=HYPERLINK("https://x.example")')})
    assert said(sheet)["0101"][2] == '=HYPERLINK("https://x.example")'
    assert {one["valueInputOption"] for one in google.written} == {"RAW"}


@pytest.mark.parametrize(
    ("before", "what", "writes"),
    [(2, "row", 1), (3, "row", 2), (2, "column", 1)],
    ids=["a row before we look again", "a row in the very instant of the write", "a column before we look again"],
)
def test_what_is_inserted_meanwhile_is_minded_or_mended(
    google: Google, sheet: Sheet, tmp_path: Path, before: int, what: str, writes: int
) -> None:
    def insert() -> None:
        if what == "row":
            sheet.insert(4, [Cell(99.0, "NUMBER", "0000"), "New"])
        for row in sheet.grid[2:] if what == "column" else ():
            row.insert(1, "Theirs")

    google.edits[before] = insert
    found = told(google, tmp_path)
    assert (found.problem, posts(google)) == ("", writes)
    assert writes == 2 or found == WrittenBack(cells=6)
    assert said(sheet) == SAID | ({"0099": ("", "", "")} if what == "row" else {})
    assert what == "row" or [row[1] for row in sheet.grid[2:]] == ["Theirs"] * 4


def test_a_part_of_a_tab_is_written_where_it_is(google: Google, tmp_path: Path) -> None:
    rows = [[None, None, f"010{number}", None, None, None] for number in (1, 2, 3)]
    sheet = Sheet("P", [[], [None, None, "ID", "Status", "Event", "Problem"], *rows])
    google.add(Book(BOOK, "Town hall", [sheet], writers={ACCOUNT}))
    told(google, tmp_path, range="C2:F", header={"row": "1"})
    assert said(sheet, header=2) == SAID


MESSAGE = "You are trying to edit a protected cell or object. Please contact the spreadsheet owner to remove protection."
PROTECTED = Fault("batchUpdate", status=400, body={"error": {"code": 400, "message": MESSAGE}})


@pytest.mark.parametrize(
    ("happens", "problem"),
    [
        (lambda google: google.books[BOOK].sheets[0].put(3, 3, "Stattus"), '"Status" (closest: "Stattus")'),
        (lambda google: google.books[BOOK].sheets[0].put(3, 4, "STATUS"), '"Status" (#3, column C), "STATUS" (#4, column D)'),
        (lambda google: google.books[BOOK].writers.clear(), f"share the spreadsheet with {ACCOUNT} as an editor"),
        (lambda google: google.faults.append(PROTECTED), f"let {ACCOUNT} edit the columns that we write"),
        (lambda google: google.faults.append(Fault("batchUpdate", times=9)), "writing"),
    ],
    ids=["a missing column", "two columns of one name", "we may only see it", "protected columns", "trouble for nine tries"],
)
def test_what_keeps_us_from_writing_is_told_and_no_word_is_written(
    google: Google, sheet: Sheet, tmp_path: Path, happens: Callable[[Google], None], problem: str
) -> None:
    happens(google)
    found = told(google, tmp_path)
    assert (problem in found.problem, found.cells, google.written) == (True, 0, [])
    assert [row[2] for row in sheet.grid[3:]] == [None] * 3
    assert not any(fault.times for fault in google.faults)


def test_no_more_than_reading_is_asked_for_unless_we_write(google: Google, sheet: Sheet, tmp_path: Path) -> None:
    with open_status_sheet(spec(), frozenset({"ID"}), access_to(google, tmp_path)) as board:
        assert [row.cells["ID"] for row in board.read()] == ["0101", "0102", "0103"]
        granted = [scope for _, scopes in google.tokens.values() for scope in scopes if scope.endswith("/spreadsheets")]
        assert granted == []
        assert board.write([StatusCell(4, "Status", "published")])
    assert said(sheet)["0101"] == ("published", "", "")
