"""What the editor of a sheet is told of each row, in a word and a sentence: published, draft, rejected, waits.

Where the words are written is `write_back`'s; what `eventsync rows` tells a colleague is the command line's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never
from urllib.parse import urlsplit

import structlog

from connectors.addresses import is_loopback
from connectors.sources.catalogue import open_board
from connectors.sources.write_back import Mark, MarkBoard, MarkedRow
from mappings.compiler.key import ReadKey, compile_key
from mappings.delivery import Answer
from mappings.errors import SyncError
from mappings.refusals import REASON_TEXTS, Reason
from mappings.row_key import RowKey, names_of
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack
from pipelines.run.context import RunContext
from pipelines.run.signals import is_stop_asked, signals_raised
from pipelines.settings import Settings
from state.enums import DriftKind, EntryState, ProblemKind
from state.ledger.row_record import Book, RowRecord
from state.views.books import Books
from state.views.views import ProblemRecord, RowFilter

REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE = "rejected", "waits", "draft", "published", "sent", "set aside"
_GRAVEST_FIRST = (REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE)
STALE = (REJECTED, WAITS)
"""How a status begins that says nothing any more once nothing is known of the row."""
_LONGEST = 500
"""Characters of a problem: a cell is no page."""


@dataclass(frozen=True, slots=True)
class RowStatus:
    """What is said of one row: the word, the ids of its events, and what is wrong, "" if nothing is."""

    status: str
    event_ids: tuple[int, ...] = ()
    problem: str = ""

    @property
    def event_id(self) -> str:
        """The ids as a cell shows them."""
        return ", ".join(map(str, self.event_ids))

    def beside(self, other: RowStatus) -> RowStatus:
        """Return what is said of a row that both are said of: the graver word, all ids, all problems."""
        status = min(self.status, other.status, key=_GRAVEST_FIRST.index)
        problems = dict.fromkeys(filter(None, (*self.problem.split("\n"), other.problem)))
        return RowStatus(status, (*self.event_ids, *other.event_ids), "\n".join(problems)[:_LONGEST])


@dataclass(slots=True)
class RowMarks:
    """The marks of a feed's rows, by the key of the row; events of one row are told together."""

    row_parts: int
    """So many columns make a row's key."""
    by_key: dict[RowKey, RowStatus] = field(default_factory=dict)

    def add(self, key: RowKey, mark: RowStatus) -> None:
        """Add what is said of one event, or of a row that gave none."""
        row = next(names_of(key, self.row_parts))
        known = self.by_key.get(row)
        self.by_key[row] = mark if known is None else known.beside(mark)


def marks_of(books: Books, book: Book, row_parts: int) -> Mapping[RowKey, RowStatus]:
    """Return what is to be said of every row of a feed that the ledger, or its last read, knows by its key."""
    marks = RowMarks(row_parts)
    for record in books.every_row(book, RowFilter()):
        marks.add(record.row_key, of_entry(record))
    for problem in books.every_problem(book, ProblemKind.REJECTED):
        if problem.row_key:
            marks.add(problem.row_key, of_problem(problem))
    return marks.by_key


def of_problem(record: ProblemRecord) -> RowStatus:
    """Return the mark of a row that the last read could not use."""
    return RowStatus(REJECTED, problem=_short(_told(record.reasons)))


def of_entry(record: RowRecord) -> RowStatus:
    """Tell of a row by where it stands with the service."""
    is_gone = record.event_id is None or record.removed_at is not None
    ids = (*record.earlier_event_ids, *(() if is_gone or record.event_id is None else (record.event_id,)))
    if record.is_set_aside:
        return RowStatus(ASIDE, ids)
    if record.removed_at is not None:
        return RowStatus(WAITS, ids, _DRIFTS[DriftKind.RETURNED]) if record.drift_kind else RowStatus(ASIDE, ids)
    status, problem = _standing(record)
    return RowStatus(status, ids, _short(problem))


def _standing(record: RowRecord) -> tuple[str, str]:
    match record.state:
        case EntryState.DELIVERED:
            return _kind_of_event(record), _DRIFTS[record.drift_kind] if record.drift_kind else ""
        case EntryState.DELIVERED_UNCONFIRMED:
            return _kind_of_event(record), "The event is there; its number is not known yet."
        case EntryState.REFUSED:
            return REJECTED, _refusal(record.answer)
        case EntryState.PENDING | EntryState.BLOCKED | EntryState.UNCERTAIN | EntryState.CONFLICT:
            return WAITS, _WAITING[record.state]
        case EntryState.HELD:
            other = f" (identifier {record.candidate})" if record.candidate else ""
            return WAITS, f"It looks like an event that we know already{other}; one of us has to look at it."
        case EntryState.SUPERSEDED:
            return ASIDE, ""
        case _:
            assert_never(record.state)


_WAITING = {
    EntryState.PENDING: "Not sent yet.",
    EntryState.BLOCKED: "We have no access to its channel yet.",
    EntryState.UNCERTAIN: "The service has not answered clearly; it will be asked again.",
    EntryState.CONFLICT: "The service knows this row as something else; one of us has to look at it.",
}
_DRIFTS = {
    DriftKind.TO_PUBLISH: "The event is still a draft; it is published by hand.",
    DriftKind.CANCELLED: "Cancelled here since the event was sent; it is withdrawn by hand.",
    DriftKind.RETURNED: "The event was removed by hand; one of us decides whether it is put online again.",
    DriftKind.EDITED: "Changed here since the event was sent; the event is changed by hand.",
}


def _kind_of_event(record: RowRecord) -> str:
    status = record.event.get("status")
    return status if status in {PUBLISHED, DRAFT} else SENT


def _refusal(answer: Answer | None) -> str:
    if answer is None:
        return "The service did not accept it."
    about = f"{answer.field}: {answer.issue}" if answer.issue else answer.message
    return f"The service did not accept it: {about}" if about else "The service did not accept it."


def _told(reasons: Iterable[Reason]) -> str:
    return "\n".join(_sentences(reasons))


def _sentences(reasons: Iterable[Reason]) -> Iterator[str]:
    for reason in reasons:
        cell = reason.column or reason.field
        begin = f"{cell}: " if cell else ""
        yield f"{begin}{REASON_TEXTS[reason.code]}{f' ({reason.hint})' if reason.hint else ''}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


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
    marks: Mapping[RowKey, RowStatus]


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


def cell_texts(columns: WriteBack, mark: RowStatus) -> Mapping[str, str]:
    """Return what the owner's columns say of a row; without a column for problems, the status says them as well."""
    is_told_apart = bool(columns.problem) or not mark.problem
    status = mark.status if is_told_apart else f"{mark.status}: {mark.problem}"
    texts = {columns.status: status, columns.event_id: mark.event_id, columns.problem: mark.problem}
    return {column: text for column, text in texts.items() if column}


NOTHING = WrittenBack()
_REHEARSING = "nothing was written back into the sheet: the service is one of this machine, and the sheet is Google's own"
_STOPPED = "somebody asked to stop: what is missing will be written by the next run"


def write_back_rows(workshop: RunContext, mapping: FeedMapping, run_id: str) -> WrittenBack:
    """Write back into the feed's source what became of each of its rows, where its mapping file asks for it.

    Never fails the run: what goes wrong is told in the log, and as a notice on the run's page. Whoever asks to stop does not
    wait for the sheet; one who has asked already has it left alone.
    """
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as columns) if workshop.leaves_traces:
            told = _unless_stopped(workshop, mapping, mapping.source, columns)
        case _:
            return NOTHING
    log = structlog.get_logger().bind(feed=mapping.feed, run_id=run_id)
    log.info("written back", cells=told.cells, problem=told.problem)
    if told.problem:
        workshop.put_down(mapping, run_id, [_notice(told)])
    return told


def _unless_stopped(workshop: RunContext, mapping: FeedMapping, sheet: GoogleSheetsSource, columns: WriteBack) -> WrittenBack:
    """Write back where signals are heard: a busy service may keep us waiting for minutes."""
    if is_stop_asked():
        return WrittenBack(problem=_STOPPED)
    try:
        with signals_raised():
            return _marked(workshop, mapping, sheet, columns)
    except KeyboardInterrupt:
        return WrittenBack(problem=_STOPPED)


def _marked(workshop: RunContext, mapping: FeedMapping, sheet: GoogleSheetsSource, columns: WriteBack) -> WrittenBack:
    settings, keys = workshop.settings, mapping.key_columns
    if _is_rehearsed(settings):
        return WrittenBack(problem=_REHEARSING)
    try:
        with open_board(sheet, frozenset(column.column for column in keys), settings.access) as board:
            marks = marks_of(Books(workshop.engine, workshop.now), Book(settings.destination, mapping.feed), len(keys))
            return write_back(WriteBackJob(board, columns, compile_key(keys), marks))
    except SyncError as error:
        return WrittenBack(problem=f"{error}; {error.hint}" if error.hint else str(error))


def _is_rehearsed(settings: Settings) -> bool:
    """Whether events go to a service of this machine, and the sheet is not: a partner would read of events that are nowhere."""
    return is_loopback(urlsplit(settings.base_url).hostname or "") and not settings.access.google.api_url


def _notice(told: WrittenBack) -> str:
    return told.problem if told.problem == _REHEARSING else f"the sheet does not say all that became of its rows: {told.problem}"
