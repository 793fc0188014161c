"""Open the state DB for reading, at the configured service, or at all services that it knows where none is configured.

Where there is no state DB, none is created.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mappings.errors import ConfigError
from mappings.row_key import FeedName
from mappings.yaml.loader import load_folder
from pipelines.cli.feed_files import chosen_feeds, folder_of
from pipelines.clock import now
from pipelines.settings import Settings
from state.database import existing_database
from state.enums import EntryState
from state.ledger.duplicates import OrphanedFeed, find_orphaned_feeds
from state.ledger.standing import FeedScope
from state.queries import FeedStatus, LedgerQueries, RunRecord


@dataclass(frozen=True, slots=True)
class StateReader:
    """The books that a command may look into. `books` is None where nothing was ever run; `destination` None: all."""

    settings: Settings
    books: LedgerQueries | None
    destination: str | None

    def statuses(self, feed: str | None = None) -> tuple[FeedStatus, ...]:
        """Return where each feed stands, or one feed, at every destination in question."""
        name = None if feed is None else FeedName(feed)
        return self.books.status(destination=self.destination, feed=name) if self.books else ()

    def runs(self, feed: str | None = None, limit: int = 20) -> tuple[RunRecord, ...]:
        """Return the latest runs, youngest first."""
        name = None if feed is None else FeedName(feed)
        return self.books.runs(destination=self.destination, feed=name, limit=limit) if self.books else ()

    def latest(self, feed: str) -> FeedStatus | None:
        """Return where a feed stands; of several destinations, at the one with the youngest run."""
        return max(self.statuses(feed), key=_age, default=None)

    def elsewhere(self) -> tuple[str, ...]:
        """Return the destinations that the state DB knows beside the one in question."""
        known = self.books.known() if self.books and self.destination else ()
        return tuple(sorted({book.destination for book in known} - {self.destination or ""}))

    def elsewhere_sentence(self) -> str:
        """Say where else there is something to see, "" if nowhere."""
        known = ", ".join(destination.partition("#")[0] for destination in self.elsewhere())
        return f"the state DB knows runs at {known}: set EVENT_API_BASE_URL to that service to see them" if known else ""

    def estranged(self) -> tuple[str, ...]:
        """Say which rows are delivered under a feed's name or a namespace that is not used any more."""
        if self.books is None or self.destination is None or not self.settings.feeds.is_dir():
            return ()
        folder = load_folder(self.settings.feeds)
        if folder.broken:
            return ()  # a file that cannot be read may be the one
        feeds = {str(feed.mapping.feed) for feed in folder.feeds}
        found = find_orphaned_feeds(self.books.engine, self.destination, feeds, now())
        return tuple(map(estranged_told, found))

    def has_delivered(self, feed: str) -> bool:
        """Whether rows of a feed have ever been let out here."""
        return any(status.counts.get(EntryState.DELIVERED) for status in self.statuses(feed))

    def feed_name(self, word: str) -> str:
        """Return the feed that a word means: one that was run, or one of the configured folder.

        Raises:
            ConfigError: there is no such feed.
        """
        if self.books_of(word):
            return word
        return str(chosen_feeds(folder_of(self.settings, [word]), [word])[0].mapping.feed)

    def books_of(self, feed: str) -> tuple[FeedScope, ...]:
        """Return the books of one feed, at every destination in question."""
        return self.books.known(destination=self.destination, feed=FeedName(feed)) if self.books else ()

    def book(self, feed: str) -> FeedScope | None:
        """Return the book of one feed, None if it never ran.

        Raises:
            ConfigError: it ran at several destinations, and none is configured.
        """
        books = self.books_of(feed)
        if len(books) > 1:
            known = ", ".join(book.destination.partition("#")[0] for book in books)
            raise ConfigError(f"{feed} was sent to several services", hint=f"set EVENT_API_BASE_URL to one of: {known}")
        return books[0] if books else None


def estranged_told(one: OrphanedFeed) -> str:
    """Say under which name rows are delivered already, and how to go on under it."""
    if one.namespace:
        return (
            f"{one.feed} never delivered in this namespace, and {one.rows:,} of its rows are at the service from namespace"
            f" {one.namespace}: set EVENTSYNC_NAMESPACE={one.namespace}"
        )
    return f"{one.rows:,} events to come are of feed {one.feed}, which has no mapping file: put `feed: {one.feed}` back"


@contextmanager
def open_state(settings: Settings, *, upgrades: bool = True) -> Iterator[StateReader]:
    """Open what there is for the length of the block; `upgrades` False leaves the schema of the state DB as it is.

    Raises:
        SyncError: there is a state DB, and it cannot be opened.
    """
    destination = settings.destination if settings.base_url else None
    with existing_database(settings.state_url, upgrades=upgrades) as engine:
        yield StateReader(settings, None if engine is None else LedgerQueries(engine, now), destination)


def _age(status: FeedStatus) -> float:
    return status.last_run.started_at.timestamp() if status.last_run else 0.0
