"""What of a feed waits for a person once a run has ended, as the state DB counts it: for the run's page in the Dagster UI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from mappings.spec.feed import FeedMapping
from pipelines.run.context import RunContext
from state.enums import Waiting
from state.ledger.row_record import Book, RowRecord
from state.views.books import Books
from state.views.views import RowFilter

FIRST = 20


@dataclass(frozen=True, slots=True)
class Differing:
    """One row whose source does not say any more what was delivered. `fields`: the payload's that differ."""

    place: str
    row_key: str
    event_id: int | None
    what: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """How many rows wait, by the word that `eventsync rows --state` takes, and the first of those that differ."""

    counts: Mapping[str, int] = field(default_factory=dict)
    differing: tuple[Differing, ...] = ()


def left_open(workshop: RunContext, mapping: FeedMapping) -> LeftOpen:
    """Ask the state DB what waits, of one feed.

    Raises:
        SyncError: the state DB does not answer.
    """
    books, book = Books(workshop.engine, workshop.now), Book(workshop.settings.destination, mapping.feed)
    counts = next((one.waiting for one in books.status(destination=book.destination, feed=book.feed)), {})
    if not counts.get(Waiting.DRIFT) and not counts.get(Waiting.VANISHED):
        return LeftOpen(counts)
    return LeftOpen(counts, tuple(islice(_differing(books, book), FIRST)))


def _differing(books: Books, book: Book) -> Iterator[Differing]:
    for record in books.rows(book, RowFilter(waiting=Waiting.DRIFT), limit=FIRST):
        yield _told(record, record.drift_kind.value if record.drift_kind else "edited")
    for record in books.rows(book, RowFilter(waiting=Waiting.VANISHED), limit=FIRST):
        if record.drift_kind is None:
            yield _told(record, "vanished")


def _told(record: RowRecord, what: str) -> Differing:
    fields = tuple(_changed(record.shown, record.drift_body or record.shown))
    return Differing(record.origin, record.row_key, record.event_id, what.replace("_", " "), fields)


def _changed(delivered: bytes, now: bytes) -> Iterator[str]:
    """Yield the fields of two payloads that differ, in the order of the alphabet."""
    before: dict[str, Any] = orjson.loads(delivered)
    after: dict[str, Any] = orjson.loads(now)
    yield from (name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name))
