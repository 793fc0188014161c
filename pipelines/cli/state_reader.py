"""Open the state DB for a command, at the configured service, or at all services that it knows where none is configured.

Where there is no state DB, none is created.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from mappings.delivery import split_destination
from mappings.errors import ConfigError, SyncError
from mappings.outcome import RowLocation
from mappings.reasons import did_you_mean
from mappings.row_key import FeedName, RowKey
from mappings.spec.feed import Language, PublishPolicy
from mappings.yaml.loader import load_folder
from pipelines.cli.feed_files import one_feed
from pipelines.clock import now
from pipelines.settings import Settings, current_settings
from state.database import StateDb
from state.enums import EntryState
from state.errors import HeldByAnotherError
from state.ledger.reads import find_orphaned_feeds
from state.ledger.standing import FeedScope, RowRecord
from state.opening import existing_database
from state.queries import FeedStatus, LedgerQueries, RowFilter, RunRecord

if TYPE_CHECKING:
    from state.ledger.decisions import Decisions
    from state.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class StateReader:
    """What a command may read. `engine` is None where nothing was ever run; `destination` None: all."""

    settings: Settings
    engine: StateDb | None
    destination: str | None

    @property
    def queries(self) -> LedgerQueries:
        """What the ledger shows of feeds; only to be asked about one that was run."""
        return LedgerQueries(cast("StateDb", self.engine), now)

    def statuses(self, feed: FeedName | None = None) -> tuple[FeedStatus, ...]:
        """Return where each feed stands, or one feed, at every destination in question."""
        return self.queries.status(destination=self.destination, feed=feed) if self.engine else ()

    def runs(self, feed: FeedName | None = None, limit: int = 20) -> tuple[RunRecord, ...]:
        """Return the latest runs, youngest first."""
        return self.queries.runs(destination=self.destination, feed=feed, limit=limit) if self.engine else ()

    def elsewhere(self) -> tuple[str, ...]:
        """Return the destinations that the state DB knows beside the one in question."""
        known = self.queries.known() if self.engine and self.destination else ()
        return tuple(sorted({scope.destination for scope in known} - {self.destination}))

    def elsewhere_sentence(self) -> str:
        """Say where else there is something to see, "" if nowhere."""
        known = ", ".join(destination.partition("#")[0] for destination in self.elsewhere())
        return f"the state DB knows runs at {known}: set EVENT_API_BASE_URL to that service to see them" if known else ""

    def estranged(self, feed: FeedName | None = None) -> tuple[str, ...]:
        """Say which rows are delivered under a feed's name or a namespace that is not used any more, and how to go on there.

        Nothing is said to a `feed` that has delivered rows here itself.
        """
        if self.engine is None or self.destination is None or not self.settings.feeds.is_dir():
            return ()
        if feed and any(status.counts.get(EntryState.DELIVERED) for status in self.statuses(feed)):
            return ()
        folder = load_folder(self.settings.feeds)
        if folder.broken:
            return ()  # a file that cannot be read may be the one
        feeds = {str(mapping.feed) for mapping in folder.feeds}
        return tuple(
            f"{one.feed} never delivered in this namespace, and {one.rows:,} of its rows are at the service from namespace"
            f" {one.namespace}: set EVENTSYNC_NAMESPACE={one.namespace}"
            if one.namespace
            else f"{one.rows:,} events to come are of feed {one.feed}, which has no mapping file: put `feed: {one.feed}` back"
            for one in find_orphaned_feeds(self.engine, self.destination, feeds, now())
        )

    def find_feed(self, word: str) -> tuple[FeedName, FeedScope | None]:
        """Return the feed that a word means, one that was run or one of the configured folder, and its ledger if it ever ran.

        Raises:
            ConfigError: there is no such feed; or it ran at several destinations, and none is configured.
        """
        name = self.feed_name(word)
        scopes = self.scopes_of(name)
        if len(scopes) > 1:
            known = ", ".join(scope.destination.partition("#")[0] for scope in scopes)
            raise ConfigError(f"{name} was sent to several services", hint=f"set EVENT_API_BASE_URL to one of: {known}")
        return name, scopes[0] if scopes else None

    def feed_name(self, word: str) -> FeedName:
        """Return the feed that a word means. Raises `ConfigError` where there is none."""
        return FeedName(word) if self.scopes_of(word) else one_feed(self.settings, word).feed

    def language(self, feed: FeedName) -> Language:
        """Return the language of a feed's pages and files: English where no mapping file that can be read says another."""
        with suppress(SyncError):
            return one_feed(self.settings, feed).language
        return "en"

    def scopes_of(self, feed: str) -> tuple[FeedScope, ...]:
        """Return the ledgers of one feed, at every destination in question."""
        return self.queries.known(destination=self.destination, feed=FeedName(feed)) if self.engine else ()


@contextmanager
def open_state(*, upgrades: bool = True) -> Iterator[StateReader]:
    """Open what there is for the length of the block; `upgrades` False leaves the schema of the state DB as it is.

    Raises:
        SyncError: there is a state DB, and it cannot be opened.
    """
    settings = current_settings()
    destination = settings.destination if settings.base_url else None
    with existing_database(settings.state_url, upgrades=upgrades) as engine:
        yield StateReader(settings, engine, destination)


@dataclass(frozen=True, slots=True)
class FeedSession:
    """A feed at one destination, to be read and decided about."""

    settings: Settings
    queries: LedgerQueries
    scope: FeedScope

    @property
    def engine(self) -> StateDb:
        """The state DB."""
        return self.queries.engine

    @contextmanager
    def deciding(self, verb: str, others: Collection[FeedScope] = ()) -> Iterator[Decisions]:
        """Hold the feed for the length of the block, and other feeds with it.

        Raises:
            HeldByAnotherError: a run holds one of them.
        """
        import socket

        import psutil

        from state.ledger.decisions import Decisions

        who = f"{psutil.Process().username()}@{socket.gethostname()}"
        with ExitStack() as leases:
            taken = []
            for scope in (self.scope, *others):
                try:
                    lease = leases.enter_context(self._ledger(scope).acquire_lease(f"eventsync {verb} by {who}"))
                except HeldByAnotherError as held:
                    raise HeldByAnotherError(
                        holder=held.holder, since=held.since, host=held.host, pid=held.pid, what=f"{scope.feed} is held by"
                    ) from held
                taken.append(lease)
            yield Decisions(self._ledger(self.scope).fence("", taken[0].token), who, taken[1:])

    def _ledger(self, scope: FeedScope) -> Ledger:
        from state.ledger.ledger import Ledger

        # The ledger's own namespace: a person may decide where no service is configured.
        return Ledger(self.engine, scope.destination, scope.feed, namespace=split_destination(scope.destination)[1], now=now)

    def policy(self) -> PublishPolicy:
        """Return how the feed is published; the defaults where its mapping file cannot be read now."""
        try:
            return one_feed(self.settings, self.scope.feed).publish
        except ConfigError:
            return PublishPolicy()

    def find(self, row_keys: Iterable[RowKey]) -> list[RowRecord]:
        """Return the rows that have these keys, or were ever met under them, each once.

        Raises:
            ConfigError: there is no such row, or a key may mean several.
        """
        found = {key: self.queries.rows(self.scope, RowFilter(row_key=key)) for key in row_keys}
        if unknown := [key for key, rows in found.items() if not rows]:
            raise self._unknown(unknown)
        for key, rows in found.items():
            if len(rows) > 1:
                several = " or ".join(row.row_key for row in rows)
                raise ConfigError(f"{self.scope.feed}: {key} may be {several}", hint="name the row by one of these keys")
        return list({rows[0].entry_id: rows[0] for rows in found.values()}.values())

    def _unknown(self, row_keys: Iterable[str]) -> ConfigError:
        """Return the error that there are no such rows, with those that are spelt alike, or whose place was given instead."""
        feed, missing, known = self.scope.feed, list(row_keys), dict(self.queries.places(self.scope))
        there = {name: key for key, place in known.items() for name in RowLocation(place).names.intersection(missing)}
        hints = {key: f"that row has the key {there[key]}" if key in there else did_you_mean(key, known) for key in missing}
        near = " ".join(f"{key}: {hint}" for key, hint in hints.items() if hint)
        hint = near or f"`eventsync rows {feed}` shows the keys; a rejected row is mended in its source"
        return ConfigError(f"{feed} has no row {', '.join(missing)} in the ledger, nor held", hint=hint)


@contextmanager
def open_feed_session(word: str) -> Iterator[FeedSession]:
    """Open a feed by a person's word for the length of the block.

    Raises:
        ConfigError: there is no such feed, or nothing of it was ever staged here.
        SyncError: the state DB cannot be opened.
    """
    with open_state() as reader:
        name, scope = reader.find_feed(word)
        if scope is None:
            hint = reader.elsewhere_sentence() or f"`eventsync run {name}` stages and sends its rows"
            raise ConfigError(f"{name}: nothing was run yet, so there is nothing to decide", hint=hint)
        yield FeedSession(reader.settings, reader.queries, scope)


def typed_key(word: str) -> RowKey:
    """Return a row key as a person has typed or pasted it: a keyboard may compose characters in another way."""
    readable = word.encode("utf-8", "replace").decode()  # bytes that are no text have no row
    return RowKey(unicodedata.normalize("NFC", readable).strip())
