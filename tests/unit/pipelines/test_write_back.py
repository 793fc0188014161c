"""What became of each row is written into its sheet: only what differs, at the right row, whatever editors do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from connectors.sources.contract import StatusCell, StatusRow
from mappings.reasons import Reason
from mappings.row_key import RowKey, row_key
from mappings.spec.source_words import WriteBack
from pipelines.run.outcome import WrittenBack
from pipelines.run.write_back import RowStatus, add_status, write_back

COLUMNS = WriteBack(status="Status", event_id="Event", problem="Problem")
PUBLISHED = RowStatus("published", (71,))
REJECTED = RowStatus("rejected", problem="Day: This is not a date.")


@dataclass
class Board:
    """A sheet with a header in row 1. `before_write` is what an editor does just before our next write arrives."""

    rows: list[dict[str, str]]
    before_write: Callable[[], None] = lambda: None
    written: list[StatusCell] = field(default_factory=list)
    writes: int = 0
    keeps: Callable[[str], str] = str

    def read(self) -> Sequence[StatusRow]:
        return [StatusRow(number, dict(cells)) for number, cells in enumerate(self.rows, start=2)]

    def write(self, marks: Sequence[StatusCell]) -> bool:
        self.before_write()
        self.writes += 1
        self.written.extend(marks)
        for mark in marks:
            while mark.number - 2 >= len(self.rows):
                self.rows.append({})
            self.rows[mark.number - 2][mark.column] = self.keeps(mark.text)
        return True

    def said(self) -> dict[str, tuple[str, ...]]:
        return {row.get("ID", ""): tuple(row.get(name, "") for name in COLUMNS.names) for row in self.rows}


def sheet(*ids: str) -> Board:
    return Board([{"ID": one, "Status": "", "Event": "", "Problem": ""} for one in ids])


def key_of_id(cells: Mapping[str, str]) -> tuple[RowKey, tuple[Reason, ...]]:
    return row_key((cells["ID"],)), ()


def marked(board: Board, marks: Mapping[str, RowStatus], columns: WriteBack = COLUMNS) -> WrittenBack:
    return write_back(board, columns, key_of_id, {RowKey(key): mark for key, mark in marks.items()})


def test_an_editor_who_never_stops_is_left_alone_and_the_next_run_mends_it() -> None:
    board, marks = sheet("1", "2"), {"1": PUBLISHED, "2": REJECTED}
    board.before_write = lambda: board.rows.insert(0, {"ID": f"new {len(board.rows)}"})
    assert "rows are being moved" in marked(board, marks).problem
    board.before_write = lambda: None
    assert marked(board, marks).problem == ""
    said = board.said()
    assert [said["1"], said["2"]] == [("published", "71", ""), ("rejected", "", "Day: This is not a date.")]


def test_cells_that_do_not_keep_what_is_written_are_told_and_not_fought_over() -> None:
    board = sheet("1")
    board.keeps = str.upper
    assert "do not keep" in marked(board, {"1": PUBLISHED}).problem
    assert board.writes == 1


def test_a_stale_word_of_ours_goes_when_the_row_is_left_out_by_rule_and_the_owners_words_stay() -> None:
    board = sheet("1", "2")
    marked(board, {"1": REJECTED, "2": RowStatus("waits", problem="Not sent yet.")})
    theirs = "rejected by the board of trustees"
    board.rows += [{"ID": "3", "Status": theirs, "Problem": "ask Ana"}, {"ID": "#REF!", "Status": "mine"}]
    marked(board, {})
    nothing = ("", "", "")
    assert board.said() == {"1": nothing, "2": nothing, "3": (theirs, "", "ask Ana"), "#REF!": ("mine", "", "")}


def test_without_a_column_for_problems_the_status_says_them() -> None:
    board = sheet("1")
    for marks, status in (({"1": REJECTED}, "rejected: Day: This is not a date."), ({}, "")):
        marked(board, marks, WriteBack(status="Status"))
        assert board.said() == {"1": (status, "", "")}


@given(st.lists(st.sampled_from("abcdef"), max_size=8), st.lists(st.integers(0, 8), max_size=3), st.booleans())
def test_wherever_rows_go_every_known_key_says_its_own_in_the_end(ids: list[str], inserts: list[int], moves_first: bool) -> None:
    board = sheet(*ids)

    def edit() -> None:
        if inserts:
            place = inserts.pop()
            board.rows.insert(place, {"ID": f"n{place}"})
            if moves_first:
                board.rows.append(board.rows.pop(0))

    board.before_write = edit
    marks = {one: RowStatus("published", (ord(one),)) for one in "abcd"}
    assert marked(board, marks).problem == ""
    for row in board.rows:
        known = ("published", str(ord(row["ID"])), "") if row["ID"] in marks else ("", "", "")
        assert tuple(row.get(name, "") for name in COLUMNS.names) == known


def test_events_of_one_row_are_told_together_by_the_graver_word() -> None:
    statuses: dict[RowKey, RowStatus] = {}
    for key, status in (("7|05-01", PUBLISHED), ("7|05-08", REJECTED), ("8", RowStatus("draft", (3,)))):
        add_status(statuses, RowKey(key), status, row_parts=1)
    assert statuses == {RowKey("7"): RowStatus("rejected", (71,), REJECTED.problem), RowKey("8"): RowStatus("draft", (3,))}


def test_very_many_words_go_in_several_writes() -> None:
    board = sheet(*map(str, range(9_000)))
    marks = {str(number): RowStatus("rejected", problem=f"{number} {'x' * 480}") for number in range(9_000)}
    assert marked(board, marks) == WrittenBack(cells=18_000)
    assert board.writes == 3
    assert board.said()["8999"][2].startswith("8999 x")
