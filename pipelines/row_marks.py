"""What the editor of a sheet is told of each row, in a word and a sentence: published, draft, rejected, waits.

Where the words are written is `write_back`'s; what `eventsync rows` tells a colleague is the command line's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from mappings.delivery import Answer
from mappings.refusals import REASON_TEXTS, Reason
from mappings.row_key import RowKey, names_of
from state.books import Books
from state.views import Book, ProblemRecord, RowFilter, RowRecord
from state.words import DriftKind, EntryState, ProblemKind

REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE = "rejected", "waits", "draft", "published", "sent", "set aside"
_GRAVEST_FIRST = (REJECTED, WAITS, DRAFT, PUBLISHED, SENT, ASIDE)
STALE = (REJECTED, WAITS)
"""How a status begins that says nothing any more once nothing is known of the row."""
_LONGEST = 500
"""Characters of a problem: a cell is no page."""


@dataclass(frozen=True, slots=True)
class RowMark:
    """What is said of one row: the word, the ids of its events, and what is wrong, "" if nothing is."""

    status: str
    event_ids: tuple[int, ...] = ()
    problem: str = ""

    @property
    def event_id(self) -> str:
        """The ids as a cell shows them."""
        return ", ".join(map(str, self.event_ids))

    def beside(self, other: RowMark) -> RowMark:
        """Return what is said of a row that both are said of: the graver word, all ids, all problems."""
        status = min(self.status, other.status, key=_GRAVEST_FIRST.index)
        problems = dict.fromkeys(filter(None, (*self.problem.split("\n"), other.problem)))
        return RowMark(status, (*self.event_ids, *other.event_ids), "\n".join(problems)[:_LONGEST])


@dataclass(slots=True)
class RowMarks:
    """The marks of a feed's rows, by the key of the row; events of one row are told together."""

    row_parts: int
    """So many columns make a row's key."""
    by_key: dict[RowKey, RowMark] = field(default_factory=dict)

    def add(self, key: RowKey, mark: RowMark) -> None:
        """Add what is said of one event, or of a row that gave none."""
        row = next(names_of(key, self.row_parts))
        known = self.by_key.get(row)
        self.by_key[row] = mark if known is None else known.beside(mark)


def marks_of(books: Books, book: Book, row_parts: int) -> Mapping[RowKey, RowMark]:
    """Return what is to be said of every row of a feed that the ledger, or its last read, knows by its key."""
    marks = RowMarks(row_parts)
    for record in books.every_row(book, RowFilter()):
        marks.add(record.row_key, of_entry(record))
    for problem in books.every_problem(book, ProblemKind.REJECTED):
        if problem.row_key:
            marks.add(problem.row_key, of_problem(problem))
    return marks.by_key


def of_problem(record: ProblemRecord) -> RowMark:
    """Return the mark of a row that the last read could not use."""
    return RowMark(REJECTED, problem=_short(_told(record.reasons)))


def of_entry(record: RowRecord) -> RowMark:
    """Tell of a row by where it stands with the service."""
    is_gone = record.event_id is None or record.removed_at is not None
    ids = (*record.earlier_event_ids, *(() if is_gone or record.event_id is None else (record.event_id,)))
    if record.is_set_aside:
        return RowMark(ASIDE, ids)
    if record.removed_at is not None:
        return RowMark(WAITS, ids, _DRIFTS[DriftKind.RETURNED]) if record.drift_kind else RowMark(ASIDE, ids)
    status, problem = _standing(record)
    return RowMark(status, ids, _short(problem))


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
