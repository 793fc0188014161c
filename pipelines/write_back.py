"""What became of each row, written back into the sheet that it came from: only what differs, only into the owner's columns.

What is said of a row is `row_marks`'; how a sheet is read and written, `connectors.sources`'. Rows are found by their key each
time, never by a number that was remembered: an editor may have moved them meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.sources.marks import Mark, MarkBoard, MarkedRow
from mappings.errors import SyncError
from mappings.keys import ReadKey
from mappings.spec.source_words import WriteBack
from mappings.vocabulary import RowKey
from pipelines.row_marks import STALE, RowMark

AT_ONCE = 2 * 1024 * 1024
"""Characters that are written between two looks at where the rows are: as much as Google advises for one request."""
_BESIDE_A_TEXT = 10
"""Characters that a cell takes in a request beside its text."""
MOVES = 4
"""So often may rows have moved between a look and the next before we leave the sheet to its editor."""


@dataclass(frozen=True, slots=True)
class WriteBackJob:
    """One writing back: the sheet, the columns that its owner gave, how a row's key is read, what is to be said."""

    board: MarkBoard
    columns: WriteBack
    read_key: ReadKey
    marks: Mapping[RowKey, RowMark]


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """How it went: cells written, and why some were not, "" if all that differed were."""

    cells: int = 0
    problem: str = ""


def write_back(job: WriteBackJob) -> WrittenBack:
    """Make the sheet say what became of each row; nothing is written where it says so already.

    Never raises for the sheet's sake: a sheet that does not take it is told in `problem`, and the next run tries again.
    """
    work = _Work(job)
    try:
        return WrittenBack(problem=work.problem_of_writing(), cells=work.cells)
    except SyncError as error:
        return WrittenBack(work.cells, f"{error}; {error.hint}" if error.hint else str(error))


_MOVING = "somebody is moving its rows at this moment: what is missing will be written by the next run"
_STUBBORN = "some cells do not keep what is written: is there a formula, or a rule for what may stand there?"


@dataclass(slots=True)
class _Work:
    """One attempt. `cells` were written so far; `own` texts are ours, and so may be taken away from rows they are not of.

    No sheet has a "write if unchanged": rows that move in the instant of a write get each other's words. The look after each
    write sees it, and the next plan mends it.
    """

    job: WriteBackJob
    cells: int = 0
    own: set[str] = field(default_factory=set)
    tried: set[Mark] = field(default_factory=set)

    def problem_of_writing(self) -> str:
        """Look, plan, write, and look again, until nothing is left to write; return why something is, "" if nothing is."""
        seen, moved = self.job.board.look(), 0
        while moved < MOVES:
            wanted = list(self._plan(seen))
            plan = list(_portion(mark for mark in wanted if mark not in self.tried))
            if not plan:
                return _STUBBORN if wanted else ""
            is_written = self._written(plan)
            now = self.job.board.look()
            if not is_written or self._places(now) != self._places(seen):
                moved += 1
                self.tried.clear()
            seen = now
        return _MOVING

    def _written(self, plan: Sequence[Mark]) -> bool:
        if not self.job.board.write(plan):
            return False
        self.cells += len(plan)
        self.tried.update(plan)
        self.own.update(mark.text for mark in plan if mark.text)
        return True

    def _places(self, rows: Sequence[MarkedRow]) -> dict[int, object]:
        return {row.number: self.job.read_key(row.cells) for row in rows}

    def _plan(self, rows: Sequence[MarkedRow]) -> Iterator[Mark]:
        """Yield the cells that say something else than they should."""
        for row in rows:
            key = self.job.read_key(row.cells)
            mark = self.job.marks.get(key) if isinstance(key, str) else None
            texts = self._unsaid(row) if mark is None else cell_texts(self.job.columns, mark)
            for column, text in texts.items():
                if row.cells.get(column, "") != text:
                    yield Mark(row.number, column, text)

    def _unsaid(self, row: MarkedRow) -> Mapping[str, str]:
        """Return what a row should say of which nothing is known: what its owner wrote, but no stale word of ours."""
        status = row.cells.get(self.job.columns.status, "")
        if status.startswith(STALE) and status.partition(":")[0] in STALE:
            return dict.fromkeys(self.job.columns.names, "")
        return {name: "" for name in self.job.columns.names if row.cells.get(name) in self.own}


def _portion(marks: Iterable[Mark]) -> Iterator[Mark]:
    """Yield as many marks as fit into one request."""
    size = 0
    for mark in marks:
        size += len(mark.text) + _BESIDE_A_TEXT
        yield mark
        if size > AT_ONCE:
            return


def cell_texts(columns: WriteBack, mark: RowMark) -> Mapping[str, str]:
    """Return what the owner's columns say of a row; without a column for problems, the status says them as well."""
    is_told_apart = bool(columns.problem) or not mark.problem
    status = mark.status if is_told_apart else f"{mark.status}: {mark.problem}"
    texts = {columns.status: status, columns.event_id: mark.event_id, columns.problem: mark.problem}
    return {column: text for column, text in texts.items() if column}
