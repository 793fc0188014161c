"""The rows that a person may ask for by one word, and those that wait for a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from mappings.errors import ConfigError
from mappings.refusals import did_you_mean
from pipelines.cli.listed_row import ListedRow, of_drift, of_earlier, of_entry, of_problem, of_resent, of_vanished
from pipelines.run.standing import ALL, IGNORED, RESENT, WAITING
from state.enums import EntryState, ProblemKind, Waiting
from state.ledger.row_record import Book, RowRecord
from state.views.books import Books
from state.views.views import RowFilter

_TELLERS: Mapping[str, Callable[[RowRecord, str], ListedRow]] = {
    Waiting.DRIFT: of_drift,
    Waiting.VANISHED: of_vanished,
    Waiting.EARLIER: of_earlier,
    RESENT: of_resent,
}
_FILTERS = {RESENT: RowFilter(is_resent=True), IGNORED: RowFilter(is_ignored=True)}


def parse_choice(word: str | None) -> tuple[str, ...]:
    """Return what a person asked for; without a word, all that waits for a person.

    Raises:
        ConfigError: there is no such choice.
    """
    if word is None:
        return WAITING
    if word not in ALL:
        raise ConfigError(
            f"--state {word}: there is no such state", hint=did_you_mean(word, ALL) or f"there are {', '.join(ALL)}"
        )
    return (word,)


def chosen_rows(books: Books, book: Book, choices: tuple[str, ...]) -> Iterator[ListedRow]:
    """Yield the rows asked for, choice by choice, oldest first; an ignored row is on no list but that of ignored ones."""
    for choice in choices:
        yield from _chosen(books, book, choice)


def _chosen(books: Books, book: Book, choice: str) -> Iterator[ListedRow]:
    if choice in tuple(ProblemKind):
        return _problems(books, book, ProblemKind(choice))
    tell = _TELLERS.get(choice, of_entry)
    return (tell(record, book.feed) for record in books.every_row(book, _filter(choice)))


def _filter(choice: str) -> RowFilter:
    if choice in tuple(Waiting):
        return RowFilter(waiting=Waiting(choice))
    return _FILTERS[choice] if choice in _FILTERS else RowFilter(states=frozenset({EntryState(choice)}))


def _problems(books: Books, book: Book, kind: ProblemKind) -> Iterator[ListedRow]:
    after = 0
    while page := books.problems(book, kind, after=after):
        keys = {record.row_key for record in page if record.row_key}
        events = books.event_ids(book, keys)
        candidates = books.candidates(book, keys) if kind is ProblemKind.HELD else {}
        for record in page:
            yield of_problem(record, book.feed, events.get(record.row_key), candidates.get(record.row_key))
        after = page[-1].problem_id
