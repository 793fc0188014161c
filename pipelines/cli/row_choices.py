"""Which rows somebody may ask for, by one word; and which ones wait for a person. How a row is told is `listed_row`'s."""

from __future__ import annotations

from collections.abc import Iterator

from mappings.errors import ConfigError
from mappings.refusals import did_you_mean
from pipelines.cli.listed_row import ListedRow, of_drift, of_entry, of_problem, of_resent, of_vanished
from pipelines.row_words import ALL, DRIFT, RESENT, VANISHED, WAITING
from state.books import Books
from state.views import Book, RowFilter
from state.words import EntryState, ProblemKind


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
    """Yield the rows asked for, choice by choice, oldest first; of what waits for a person, nothing that was set aside."""
    for choice in choices:
        yield from _chosen(books, book, choice, is_waiting=choices == WAITING)


def _chosen(books: Books, book: Book, choice: str, *, is_waiting: bool) -> Iterator[ListedRow]:  # one arm per choice
    if choice == DRIFT:
        drifted = books.every_row(book, RowFilter(is_drifted=True, is_waiting=is_waiting))
        return (of_drift(record, book.feed) for record in drifted)
    if choice == VANISHED:
        return (of_vanished(row, book.feed) for row in books.every_row(book, RowFilter(is_vanished=True, is_waiting=is_waiting)))
    if choice == RESENT:
        return map(of_resent, books.every_row(book, RowFilter(is_resent=True)))
    if choice in tuple(ProblemKind):
        return (of_problem(record, book.feed) for record in books.every_problem(book, ProblemKind(choice)))
    entries = books.every_row(book, RowFilter(states=frozenset({EntryState(choice)}), is_waiting=is_waiting))
    return (of_entry(record, book.feed) for record in entries)
