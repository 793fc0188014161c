"""One feed's ledger opened for a decision: found by the feed's name, leased meanwhile, under the name of the user."""

from __future__ import annotations

import socket
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psutil
from rapidfuzz import fuzz, process

from mappings.delivery import split_destination
from mappings.errors import ConfigError
from mappings.row_key import RowKey
from mappings.spec.feed import PublishPolicy
from pipelines.cli.feed_files import chosen_feeds, folder_of
from pipelines.cli.state_reader import StateReader
from pipelines.clock import now
from pipelines.settings import Settings
from state.database import StateDb, existing_database
from state.holders import HeldByAnotherError
from state.ledger.decisions import Decisions
from state.ledger.lease import Lease
from state.ledger.ledger import Ledger
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries

_ALIKE = 60.0


@dataclass(frozen=True, slots=True)
class FeedSession:
    """A feed at one destination, to look into and to decide about."""

    settings: Settings
    engine: StateDb
    book: FeedScope

    @property
    def books(self) -> LedgerQueries:
        """What was written down so far."""
        return LedgerQueries(self.engine, now)

    @contextmanager
    def deciding(self, verb: str, others: Collection[FeedScope] = ()) -> Iterator[Decisions]:
        """Hold the feed for the length of the block, and other feeds with it.

        Raises:
            HeldByAnotherError: a run holds one of them.
        """
        who = decider()
        holder = f"eventsync {verb} by {who}"
        with ExitStack() as leases:
            lease, *more = [leases.enter_context(self._lease(book, holder)) for book in (self.book, *others)]
            yield self._ledger(self.book).open_decisions(who, lease.token, more)

    def _lease(self, book: FeedScope, holder: str) -> Lease:
        try:
            return self._ledger(book).acquire_lease(holder)
        except HeldByAnotherError as held:
            raise HeldByAnotherError(
                holder=held.holder, since=held.since, host=held.host, pid=held.pid, what=f"{book.feed} is held by"
            ) from held

    def _ledger(self, book: FeedScope) -> Ledger:
        # The ledger's own namespace: a person may decide where no service is configured.
        return Ledger(self.engine, book.destination, book.feed, namespace=split_destination(book.destination)[1], now=now)

    def policy(self) -> PublishPolicy:
        """Return how the feed is published; the defaults where its mapping file cannot be read now."""
        try:
            return chosen_feeds(folder_of(self.settings, [self.book.feed]), [self.book.feed])[0].mapping.publish
        except ConfigError:
            return PublishPolicy()

    def unknown(self, row_keys: Iterable[str]) -> ConfigError:
        """Say that there are no such rows, and which ones are spelt alike."""
        missing = list(row_keys)
        known = list(self.books.row_keys(self.book))
        alike = {
            word: [found[0] for found in process.extract(word, known, scorer=fuzz.ratio, limit=3, score_cutoff=_ALIKE)]
            for word in missing
        }
        hints = [f"{word}: did you mean {', '.join(near)}?" for word, near in alike.items() if near]
        return ConfigError(
            f"{self.book.feed} has no row {', '.join(missing)} in the ledger, nor held",
            hint=" ".join(hints) or f"`eventsync rows {self.book.feed}` shows the keys; a rejected row is mended in its source",
        )


@contextmanager
def open_feed_session(settings: Settings, word: str) -> Iterator[FeedSession]:
    """Open a feed by a person's word for the length of the block.

    Raises:
        ConfigError: there is no such feed, or nothing of it was ever staged here.
        SyncError: the state DB cannot be opened.
    """
    destination = settings.destination if settings.base_url else None
    with existing_database(settings.state_url) as engine:
        reader = StateReader(settings, None if engine is None else LedgerQueries(engine, now), destination)
        name = reader.feed_name(word)
        book = reader.book(name)
        if engine is None or book is None:
            hint = reader.elsewhere_sentence() or f"`eventsync run {name}` stages and sends its rows"
            raise ConfigError(f"{name}: nothing was run yet, so there is nothing to decide", hint=hint)
        yield FeedSession(settings, engine, book)


def decider() -> str:
    """Return who decides, as `user@host`."""
    return f"{psutil.Process().username()}@{socket.gethostname()}"


def typed_key(word: str) -> RowKey:
    """Return a row key as a person has typed or pasted it: a keyboard may compose characters in another way."""
    readable = word.encode("utf-8", "replace").decode()  # bytes that are no text have no row
    return RowKey(unicodedata.normalize("NFC", readable).strip())


def split_keys(words: str) -> tuple[RowKey, ...]:
    """Return the row keys of a list with commas, each once."""
    return tuple(dict.fromkeys(key for key in map(typed_key, words.split(",")) if key))
