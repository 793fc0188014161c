"""Open the state DB for a command: at the configured service, or at all recorded services if none is configured.

A missing state DB is not created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from mappings.delivery import split_destination
from mappings.errors import ConfigError, SyncError
from mappings.outcome import RowLocation
from mappings.reasons import did_you_mean
from mappings.row_key import FeedName, RowKey
from mappings.spec.feed import Language, PublishPolicy
from mappings.yaml.loader import FeedFolder, load_folder
from pipelines.cli.feed_files import one_feed
from pipelines.clock import now
from pipelines.run.brakes import describe_alongside
from pipelines.run.outcome import IGNORED, RESENT
from pipelines.settings import Settings, current_settings
from state.database import StateDb
from state.enums import EntryState, ProblemKind, Waiting
from state.errors import HeldByAnotherError
from state.ledger.accounts import Alongside
from state.ledger.copies import find_orphaned_feeds
from state.ledger.lease import LOST
from state.ledger.likeness import Event, foresee_elsewhere
from state.ledger.standing import FeedScope, RowRecord
from state.opening import existing_database
from state.queries import FeedStatus, LedgerQueries, ProblemRecord, RowFilter, RunRecord

if TYPE_CHECKING:
    from state.ledger.decisions import Decisions
    from state.ledger.ledger import Ledger


@dataclass(frozen=True)  # without slots, for the cached property
class StateReader:
    """The state DB and settings of a command. `engine` is None if nothing was ever run; `destination` None means all."""

    settings: Settings
    engine: StateDb | None
    destination: str | None

    @property
    def queries(self) -> LedgerQueries:
        """Queries on the ledger; only for a feed that was run."""
        return LedgerQueries(cast("StateDb", self.engine), now)

    def statuses(self, feed: FeedName | None = None) -> tuple[FeedStatus, ...]:
        """Return the status of each feed, or of one feed, at every destination in scope."""
        return tuple(map(_with_lost_run, self.queries.status(destination=self.destination, feed=feed) if self.engine else ()))

    def runs(self, feed: FeedName | None = None, limit: int = 20, destination: str | None = None) -> tuple[RunRecord, ...]:
        """Return the latest runs, newest first; `destination`: of one of those in scope."""
        destination = destination or self.destination
        found = self.queries.runs(destination=destination, feed=feed, limit=limit) if self.engine else ()
        feeds = {run.book.feed for run in found if run.finished_at is None}
        last = {(one.book, run.run_id): run for name in feeds for one in self.statuses(name) if (run := one.last_run)}
        return tuple(last.get((run.book, run.run_id), run) for run in found)

    def elsewhere(self) -> tuple[str, ...]:
        """Return the recorded destinations outside the configured one."""
        known = self.queries.known() if self.engine and self.destination else ()
        return tuple(sorted({scope.destination for scope in known} - {self.destination}))

    def elsewhere_sentence(self) -> str:
        """Return a sentence that names the other services with runs, "" if there are none."""
        known = ", ".join(destination.partition("#")[0] for destination in self.elsewhere())
        return f"the state DB has runs at {known}: set EVENT_API_BASE_URL to that service to see them" if known else ""

    def estranged(self, feed: FeedName | None = None, events: Sequence[Event] = ()) -> tuple[str, ...]:
        """Return sentences about rows delivered under a feed name or namespace that is no longer used, or by another feed, with
        the way to reconnect them.

        `events`: those of the `feed`, if they are known; otherwise the last read decides that was stopped for this reason. Empty
        for a `feed` that has delivered rows itself.
        """
        if self.engine is None or self.destination is None:
            return ()
        statuses = self.statuses(feed)
        alongside = [(one.book.feed, _alongside(one)) for one in statuses]
        if events and feed:
            alongside = [(feed, foresee_elsewhere(self.engine, self.destination, feed, events))]
        known = tuple(f"{name}: {describe_alongside(found)}" for name, found in alongside if found)
        return known + self._orphaned(feed, statuses)

    def has_no_file(self, feed: FeedName) -> bool:
        """Return whether no mapping file of the folder has this feed; False where that is not known."""
        return self._feeds is not None and feed not in self._feeds

    @cached_property
    def folder(self) -> FeedFolder | None:
        """The mapping files, None if there is no folder."""
        is_there = self.settings.feeds.is_dir()
        return load_folder(self.settings.feeds, folders=self.settings.files) if is_there else None

    @cached_property
    def _feeds(self) -> AbstractSet[str] | None:
        """The feeds of the folder, None if they are not known: there is no folder, or a broken file may be any feed."""
        folder = self.folder
        return None if folder is None or folder.broken else {str(mapping.feed) for mapping in folder.feeds}

    def _orphaned(self, feed: FeedName | None, statuses: Sequence[FeedStatus]) -> tuple[str, ...]:
        if self.engine is None or self.destination is None:
            return ()
        if feed and any(status.counts.get(EntryState.DELIVERED) for status in statuses):
            return ()
        if (feeds := self._feeds) is None:
            return ()
        return tuple(
            f"{one.feed} has delivered nothing in this namespace, but {one.rows:,} of its rows in namespace {one.namespace}:"
            f" set EVENTSYNC_NAMESPACE={one.namespace}"
            if one.namespace
            else f"feed {one.feed} has {one.rows:,} upcoming events and no mapping file: restore a file with `feed: {one.feed}`"
            for one in find_orphaned_feeds(self.engine, self.destination, feeds, now())
        )

    def find_feed(self, word: str) -> tuple[FeedName, FeedScope | None]:
        """Return the name of a feed that was run or is in the folder, and its ledger, None if it never ran.

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
        """Return the name of a feed that was run or is in the folder. Raises `ConfigError` if there is none."""
        return FeedName(word) if self.scopes_of(word) else one_feed(self.settings, word).feed

    def language(self, feed: FeedName) -> Language:
        """Return the language of a feed's pages and files; English if its mapping file cannot be read."""
        with suppress(SyncError):
            return one_feed(self.settings, feed).language
        return "en"

    def scopes_of(self, feed: str) -> tuple[FeedScope, ...]:
        """Return the ledgers of one feed, at every destination in scope."""
        return self.queries.known(destination=self.destination, feed=FeedName(feed)) if self.engine else ()


def _with_lost_run(status: FeedStatus) -> FeedStatus:
    """Return the status with the outcome of a last run that was killed, which the next run will record."""
    if status.last_run is None or status.last_run.finished_at is not None:
        return status
    from pipelines.notices import was_lost

    return replace(status, last_run=replace(status.last_run, outcome=LOST)) if was_lost(status, now()) else status


def _alongside(status: FeedStatus) -> Alongside | None:
    """Return the scope that knows the rows of a feed whose last read was stopped for that, None if there is none."""
    report = status.last_read.stage_report if status.last_read else None
    return report.alongside if report and "scope" in status.gate.brakes and not status.gate.is_open else None


@contextmanager
def open_state(*, upgrades: bool = True) -> Iterator[StateReader]:
    """Open the state DB during the block, if there is one; `upgrades` False leaves its schema unchanged.

    Raises:
        SyncError: the state DB exists and cannot be opened.
    """
    settings = current_settings()
    destination = settings.destination if settings.base_url else None
    with existing_database(settings.state_url, upgrades=upgrades) as engine:
        yield StateReader(settings, engine, destination)


@dataclass(frozen=True, slots=True)
class FeedSession:
    """One feed at one destination, for reading and for decisions."""

    settings: Settings
    queries: LedgerQueries
    scope: FeedScope

    @property
    def engine(self) -> StateDb:
        """The state DB."""
        return self.queries.engine

    @contextmanager
    def deciding(self, verb: str, others: Collection[FeedScope] = ()) -> Iterator[Decisions]:
        """Hold the leases of the feed and of `others` during the block; yield the decisions on the feed.

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

        # The ledger's namespace, not the configured one: decisions need no configured service.
        return Ledger(self.engine, scope.destination, scope.feed, namespace=split_destination(scope.destination)[1], now=now)

    def policy(self) -> PublishPolicy:
        """Return the publishing policy of the feed; the default one if its mapping file cannot be read."""
        try:
            return one_feed(self.settings, self.scope.feed).publish
        except ConfigError:
            return PublishPolicy()

    def find(self, row_keys: Iterable[RowKey]) -> list[RowRecord]:
        """Return the rows that have these keys, each once. Raises `ConfigError` if there is no such row."""
        found = {key: self.queries.rows(self.scope, RowFilter(row_key=key)) for key in row_keys}
        if unknown := [key for key, rows in found.items() if not rows]:
            raise self._unknown(unknown)
        return [row for rows in found.values() for row in rows]

    def _unknown(self, row_keys: Iterable[str]) -> ConfigError:
        """Return the error for row keys that do not exist; its hint has similar keys, and the key of a row named by its place."""
        feed, missing, known = self.scope.feed, list(row_keys), dict(self.queries.places(self.scope))
        there = {name: key for key, place in known.items() for name in RowLocation(place).names.intersection(missing)}
        hints = {key: f"that row has the key {there[key]}" if key in there else did_you_mean(key, known) for key in missing}
        near = " ".join(f"{key}: {hint}" for key, hint in hints.items() if hint)
        hint = near or f"`eventsync rows {feed}` shows the keys; correct a rejected row in its source"
        return ConfigError(f"{feed} has no row {', '.join(missing)} in the ledger", hint=hint)


@contextmanager
def open_feed_session(word: str) -> Iterator[FeedSession]:
    """Open a feed for decisions during the block.

    Raises:
        ConfigError: there is no such feed, or nothing of it was ever staged.
        SyncError: the state DB cannot be opened.
    """
    with open_state() as reader:
        name, scope = reader.find_feed(word)
        if scope is None:
            hint = reader.elsewhere_sentence() or f"`eventsync run {name}` stages and sends its rows"
            raise ConfigError(f"{name} has not run yet, so there is nothing to decide", hint=hint)
        yield FeedSession(reader.settings, reader.queries, scope)


def filter_of(choice: str) -> RowFilter:
    """Return the filter for the entries of a value of `rows --state`."""
    if choice in tuple(Waiting):
        return RowFilter(waiting=Waiting(choice))
    if choice in {RESENT, IGNORED}:
        return RowFilter(is_resent=choice == RESENT, is_ignored=choice == IGNORED)
    return RowFilter(states=frozenset({EntryState(choice)}))


def listed(queries: LedgerQueries, scope: FeedScope, choices: Iterable[str]) -> Iterator[tuple[str, ProblemRecord | RowRecord]]:
    """Yield the rows on each list of `rows --state`, with its name, oldest first; ignored rows are only on the list `ignored`."""
    for choice in choices:
        is_problem = choice in tuple(ProblemKind)
        found: Iterator[ProblemRecord] | Iterator[RowRecord] = (
            queries.every_problem(scope, ProblemKind(choice)) if is_problem else queries.every_row(scope, filter_of(choice))
        )
        yield from ((choice, record) for record in found)
