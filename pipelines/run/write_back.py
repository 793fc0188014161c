"""Write back into a sheet what became of each row: only what differs, only into the columns that its owner gave us.

A sheet has no "write if unchanged": rows that an editor moves in the instant of a write get each other's texts. So rows are
found by their key, read again after each write, and corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import urlsplit

from connectors.addresses import is_loopback
from connectors.sources.catalogue import open_status_sheet
from connectors.sources.contract import StatusCell, StatusRow, StatusSheet
from mappings.compiler.expand import ReadKey, compile_key
from mappings.delivery import Answer
from mappings.errors import SyncError
from mappings.outcome import REASON_TEXTS, Reason
from mappings.row_key import RowKey, names_of
from mappings.spec.feed import FeedMapping
from mappings.spec.source import GoogleSheetsSource
from mappings.spec.source_words import WriteBack
from pipelines.run.signals import is_stop_asked, signals_raised
from pipelines.settings import Settings
from state.enums import DriftKind, EntryState, ProblemKind
from state.ledger.standing import FeedScope, RowRecord
from state.queries import LedgerQueries, ProblemRecord, RowFilter

REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE = "rejected", "waits", "draft", "published", "sent", "set aside"
_GRAVEST_FIRST = (REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE)
STALE = (REJECTED, WAITS)
"""Beginnings of a status that is deleted once nothing is known of the row."""
_LONGEST = 500
"""Characters of a problem: a cell is no page."""
AT_ONCE = 2 * 1024 * 1024
"""Characters of one request, as Google advises."""
_BESIDE_A_TEXT = 10
"""Characters that a cell takes in a request beside its text."""
MOVES = 4
"""How often rows may have moved between two reads before we leave the sheet to its editor."""

_REHEARSING = "nothing was written back into the sheet: the service is one of this machine, and the sheet is Google's own"
_STOPPED = "the run was asked to stop: what is missing will be written by the next run"
_MOVING = "somebody is moving its rows at this moment: what is missing will be written by the next run"
_STUBBORN = "some cells do not keep what is written: is there a formula, or a rule for what may stand there?"
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


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """Cells written, and why some that differ were not, "" if all were."""

    cells: int = 0
    problem: str = ""

    @property
    def notice(self) -> str:
        """The problem as the run's page shows it."""
        if not self.problem or self.problem == _REHEARSING:
            return self.problem
        return f"the sheet does not say all that became of its rows: {self.problem}"


@dataclass(frozen=True, slots=True)
class RowStatus:
    """What a row's cells say: a word, the ids of its events, and what is wrong, "" if nothing is."""

    status: str
    event_ids: tuple[int, ...] = ()
    problem: str = ""

    def beside(self, other: RowStatus) -> RowStatus:
        """Return the status of a row with two events: the graver word, all ids, all problems."""
        status = min(self.status, other.status, key=_GRAVEST_FIRST.index)
        problems = dict.fromkeys(filter(None, (*self.problem.split("\n"), other.problem)))
        return RowStatus(status, (*self.event_ids, *other.event_ids), "\n".join(problems)[:_LONGEST])


def write_back_rows(mapping: FeedMapping, settings: Settings, books: LedgerQueries) -> WrittenBack | None:
    """Write into the feed's sheet what became of each of its rows; None where its mapping file does not ask for it.

    Never fails the run. A signal leaves the sheet alone: a busy service may keep us waiting for minutes.
    """
    match mapping.source:
        case GoogleSheetsSource(write_back=WriteBack() as columns) as source:
            pass
        case _:
            return None
    if is_loopback(urlsplit(settings.base_url).hostname or "") and not settings.access.google.api_url:
        return WrittenBack(problem=_REHEARSING)
    if is_stop_asked():
        return WrittenBack(problem=_STOPPED)
    keys = mapping.key_columns
    try:
        with signals_raised(), open_status_sheet(source, frozenset(column.column for column in keys), settings.access) as sheet:
            statuses = statuses_of(books, FeedScope(settings.destination, mapping.feed), len(keys))
            return write_back(sheet, columns, compile_key(keys), statuses)
    except SyncError as error:
        return WrittenBack(problem=_with_hint(error))
    except KeyboardInterrupt:
        return WrittenBack(problem=_STOPPED)


def write_back(sheet: StatusSheet, columns: WriteBack, read_key: ReadKey, statuses: Mapping[RowKey, RowStatus]) -> WrittenBack:
    """Read the sheet, write what differs and read again, until nothing differs; a sheet that refuses it is a `problem`."""
    cells, moved = 0, 0
    own: set[str] = set()  # texts written by us, which may be deleted from rows that they are not of
    tried: set[StatusCell] = set()
    try:
        rows = sheet.read()
        while moved < MOVES:
            wanted = list(_differing(rows, columns, read_key, statuses, own))
            plan = list(_portion(mark for mark in wanted if mark not in tried))
            if not plan:
                return WrittenBack(cells, _STUBBORN if wanted else "")
            if is_written := sheet.write(plan):
                cells += len(plan)
                tried.update(plan)
                own.update(mark.text for mark in plan if mark.text)
            before, rows = rows, sheet.read()
            if not is_written or _keys(rows, read_key) != _keys(before, read_key):
                moved += 1
                tried.clear()
    except SyncError as error:
        return WrittenBack(cells, _with_hint(error))
    return WrittenBack(cells, _MOVING)


def _keys(rows: Sequence[StatusRow], read_key: ReadKey) -> dict[int, object]:
    return {row.number: read_key(row.cells) for row in rows}


def _differing(
    rows: Sequence[StatusRow], columns: WriteBack, read_key: ReadKey, statuses: Mapping[RowKey, RowStatus], own: set[str]
) -> Iterator[StatusCell]:
    for row in rows:
        key = read_key(row.cells)
        status = statuses.get(key) if isinstance(key, str) else None
        texts = _cell_texts(columns, status) if status else _to_delete(row, columns, own)
        for column, text in texts.items():
            if row.cells.get(column, "") != text:
                yield StatusCell(row.number, column, text)


def _to_delete(row: StatusRow, columns: WriteBack, own: set[str]) -> Mapping[str, str]:
    """Return the cells to empty in a row of which nothing is known: our stale texts, never what its owner wrote."""
    status = row.cells.get(columns.status, "")
    if status.startswith(STALE) and status.partition(":")[0] in STALE:
        return dict.fromkeys(columns.names, "")
    return {name: "" for name in columns.names if row.cells.get(name) in own}


def _portion(marks: Iterable[StatusCell]) -> Iterator[StatusCell]:
    """Yield as many marks as fit into one request."""
    size = 0
    for mark in marks:
        size += len(mark.text) + _BESIDE_A_TEXT
        yield mark
        if size > AT_ONCE:
            return


def _cell_texts(columns: WriteBack, row: RowStatus) -> Mapping[str, str]:
    """Return the texts of the owner's columns; without a column for problems, the status column has them too."""
    status = row.status if columns.problem or not row.problem else f"{row.status}: {row.problem}"
    texts = {columns.status: status, columns.event_id: ", ".join(map(str, row.event_ids)), columns.problem: row.problem}
    return {column: text for column, text in texts.items() if column}


def statuses_of(books: LedgerQueries, book: FeedScope, row_parts: int) -> Mapping[RowKey, RowStatus]:
    """Return the status of every row that the ledger, or the last read, knows by its key; a key has `row_parts` columns."""
    statuses: dict[RowKey, RowStatus] = {}
    for record in books.every_row(book, RowFilter()):
        add_status(statuses, record.row_key, of_entry(record), row_parts)
    for problem in books.every_problem(book, ProblemKind.REJECTED):
        if problem.row_key:
            add_status(statuses, problem.row_key, of_problem(problem), row_parts)
    return statuses


def add_status(statuses: dict[RowKey, RowStatus], key: RowKey, status: RowStatus, row_parts: int) -> None:
    """Add the status of one event, or of a row without one, to that of its row."""
    row = next(names_of(key, row_parts))
    known = statuses.get(row)
    statuses[row] = status if known is None else known.beside(status)


def of_problem(record: ProblemRecord) -> RowStatus:
    """Return the status of a row that the last read could not use."""
    return RowStatus(REJECTED, problem=_short("\n".join(map(_sentence, record.reasons))))


def of_entry(record: RowRecord) -> RowStatus:
    """Return the status of a row by its ledger entry."""
    is_gone = record.event_id is None or record.removed_at is not None
    ids = (*record.earlier_event_ids, *(() if is_gone or record.event_id is None else (record.event_id,)))
    if record.is_set_aside:
        return RowStatus(ASIDE, ids)
    if record.removed_at is not None:
        return RowStatus(WAITS, ids, _DRIFTS[DriftKind.RETURNED]) if record.drift_kind else RowStatus(ASIDE, ids)
    status, problem = _status_and_problem(record)
    return RowStatus(status, ids, _short(problem))


def _status_and_problem(record: RowRecord) -> tuple[str, str]:
    shown = record.event.get("status")
    event = str(shown) if shown in {PUBLISHED, DRAFT} else SENT
    match record.state:
        case EntryState.DELIVERED:
            return event, _DRIFTS[record.drift_kind] if record.drift_kind else ""
        case EntryState.DELIVERED_UNCONFIRMED:
            return event, "The event is there; its number is not known yet."
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


def _refusal(answer: Answer | None) -> str:
    about = "" if answer is None else f"{answer.field}: {answer.issue}" if answer.issue else answer.message
    return f"The service did not accept it: {about}" if about else "The service did not accept it."


def _sentence(reason: Reason) -> str:
    cell = reason.column or reason.field
    return f"{f'{cell}: ' if cell else ''}{REASON_TEXTS[reason.code]}{f' ({reason.hint})' if reason.hint else ''}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _with_hint(error: SyncError) -> str:
    return f"{error}; {error.hint}" if error.hint else str(error)
