"""Duplicates: the index of what events look like, over all feeds of a service, and the rows that are held because of it.

A database index of the duplicate digests would be rewritten entry by entry, and cost more than the entries themselves (budget
4). So they are stored separately, as marks that are written in sorted order, many at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, Select, bindparam, cast, func, null, select, union_all, update

from mappings.delivery import split_destination
from mappings.row_key import FeedName, RowKey
from state.database import in_pages, insert_if_new, reading, rounded
from state.enums import GateState, Outcome
from state.ledger.accounts import Candidate
from state.ledger.entries import (
    IS_OPEN,
    MARK,
    MARK_BYTES,
    MAY_GET_EVENT,
    MAY_HAVE_EVENT,
    SOME,
    count_entries,
    count_to_come,
)
from state.tables import DUPLICATE_MARK, ENTRY, SCOPE, SIDE_BY_SIDE

_AT_A_TIME = 16_384
_SCOPES_AT_A_TIME = 100  # SQLite allows 500 SELECTs in a UNION
_SERVICE_LOCK = 0x6576_7365
"""An arbitrary number of our own, which names PostgreSQL's advisory lock."""
_BY_ID = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.scope_id, ENTRY.c.twin_digest)
_MARKED = select(DUPLICATE_MARK.c.entry_id).where(DUPLICATE_MARK.c.mark.in_(bindparam("marks", expanding=True)))
_WITH_EVENT = _BY_ID.where(SOME, MAY_GET_EVENT).order_by(ENTRY.c.id)
# The youngest entries, by their ids alone: with a plain comparison the databases would rather look at all entries of the feed.
_UNMARKED = (ENTRY.c.scope_id + 0 == bindparam("scope"), ENTRY.c.id > bindparam("after"))
_MISSING = select(MARK, ENTRY.c.id).where(*_UNMARKED, ENTRY.c.outcome != Outcome.HELD.value).order_by(MARK, ENTRY.c.id)
_NO_ENTRY = cast(null(), ENTRY.c.id.type)
_STAGED = select(ENTRY.c.twin_digest, ENTRY.c.id.label("entry_id"), _NO_ENTRY.label("other_id")).where(
    *(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.id > bindparam("boundary")),
    *(ENTRY.c.outcome == Outcome.OWED.value, IS_OPEN),
)
_SHOWN = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.origin, ENTRY.c.scope_id).where(SOME)
_BESIDE = select(ENTRY.c.twin_digest, _NO_ENTRY, ENTRY.c.id).where(MAY_GET_EVENT)


class Neighbour(NamedTuple):
    """A scope of the service whose events a row may duplicate, including the feed's own. `marked_id`: the highest entry with
    marks; `is_staging`: a read is being recorded, or was cut short.
    """

    feed: FeedName
    namespace: str
    marked_id: int
    is_staging: bool
    whole_read_at: datetime | None


@dataclass(frozen=True, slots=True)
class OrphanedFeed:
    """Rows delivered under a name that is no longer used: those of `feed`, in another `namespace` unless it is "".

    `rows`: for a feed without a mapping file its future events, otherwise all that may be at the service.
    """

    feed: str
    namespace: str
    rows: int


class DuplicateIndex:
    """The duplicate digests of a service during a read: marks of committed entries, and the read's latest ones in memory.

    `apart`: scopes of the service whose entries do not cause rows to be held.
    """

    def __init__(self, connection: Connection, scope_id: int) -> None:
        """Open the index, and write all missing marks."""
        self._scope_id = scope_id
        self._recent: dict[bytes, Candidate] = {}
        self.apart: set[int] = set()
        self.write(connection)
        self._at_first = read_neighbours(connection, scope_id)
        self._is_blank = not any(each.marked_id for each in self._at_first.values())

    def find(self, connection: Connection, digests: Collection[bytes]) -> dict[bytes, Candidate]:
        """Return, by duplicate digest, the oldest entry with it that has an event or may still get one.

        Two look-ups: while these tables are filled, PostgreSQL's statistics may say that they are empty, and of a join it would
        make a nested loop over all pairs of entries and marks.
        """
        wanted = frozenset(digests)
        found: dict[bytes, Candidate] = {}
        if wanted and not self._is_blank:
            marks = rounded([digest[:MARK_BYTES] for digest in wanted])
            marked = sorted(set(connection.execute(_MARKED, {"marks": marks}).scalars()))
            pages = (connection.execute(_WITH_EVENT, {"entries": rounded(page)}) for page in in_pages(marked))
            for row in chain.from_iterable(pages):
                if row.twin_digest in wanted and row.scope_id in self._at_first and row.scope_id not in self.apart:
                    found.setdefault(row.twin_digest, self._candidate(row))
        for digest in wanted & self._recent.keys():
            found.setdefault(digest, self._recent[digest])
        return found

    def by_id(self, connection: Connection, entries: Collection[int]) -> dict[int, Candidate]:
        """Return entries as candidates, by id."""
        rows = connection.execute(_BY_ID.where(SOME), {"entries": rounded(entries)}) if entries else ()
        return {row.id: self._candidate(row) for row in rows}

    def create(self, digest: bytes, like: Candidate) -> None:
        """Record a new entry, whose mark is written later."""
        self._recent[digest] = like

    def keep_up(self, connection: Connection) -> None:
        """Write the marks of new rows if there are many; each write changes nearly every page of the marks."""
        if len(self._recent) >= _AT_A_TIME:
            self.write(connection)

    def write(self, connection: Connection) -> None:
        """Write all missing marks, including those of a read that was cut short."""
        after = connection.execute(select(SCOPE.c.marked_id).where(SCOPE.c.id == self._scope_id)).scalar_one()
        unmarked = {"scope": self._scope_id, "after": after}
        newest = connection.execute(select(func.max(ENTRY.c.id)).where(*_UNMARKED), unmarked).scalar()
        if newest is not None:
            fill = insert_if_new(connection, DUPLICATE_MARK).from_select(("mark", "entry_id"), _MISSING)
            connection.execute(fill, unmarked)
            connection.execute(update(SCOPE).where(SCOPE.c.id == self._scope_id).values(marked_id=newest))
            self._is_blank = False
        self._recent.clear()

    def find_staged_beside(self, connection: Connection, boundary: int) -> Iterator[tuple[int, RowKey, str, Candidate]]:
        """Yield the read's new entries, after `boundary`, that resemble entries staged by other feeds meanwhile, with id, key
        and place.

        No other feed of the service may end a stage. The window function sorts, and the entries are looked up by their ids: of
        a join of tables that were just filled PostgreSQL makes a nested loop over all pairs of rows.
        """
        neighbours, beside = read_neighbours(connection, self._scope_id), list[Select[Any]]()
        for other_id, other in neighbours.items():
            after = self._at_first[other_id].marked_id if other_id in self._at_first else 0
            if other_id != self._scope_id and (other.is_staging or other.marked_id != after or not after):
                beside.append(_BESIDE.where(ENTRY.c.scope_id + 0 == other_id, ENTRY.c.id > after))
        for page in (beside[start : start + _SCOPES_AT_A_TIME] for start in range(0, len(beside), _SCOPES_AT_A_TIME)):
            staged = union_all(_STAGED, *page).subquery()
            oldest = func.min(staged.c.other_id).over(partition_by=staged.c.twin_digest).label("other_id")
            alike = select(staged.c.entry_id, oldest).subquery()
            found = select(alike).where(alike.c.entry_id.is_not(None), alike.c.other_id.is_not(None)).order_by(alike.c.entry_id)
            pairs = connection.execute(found, {"scope": self._scope_id, "boundary": boundary}).all()
            for some in in_pages(pairs):
                ids = {entry_id for pair in some for entry_id in pair}
                entries = {row.id: row for row in connection.execute(_SHOWN, {"entries": rounded(ids)})}
                for entry, like in ((entries[entry_id], entries[other_id]) for entry_id, other_id in some):
                    of = neighbours[like.scope_id]
                    yield entry.id, entry.row_key, entry.origin, Candidate(like.id, like.row_key, of.feed, of.namespace)

    def _candidate(self, row: Row[*tuple[Any, ...]]) -> Candidate:
        place = self._at_first.get(row.scope_id) if row.scope_id != self._scope_id else None
        return Candidate(row.id, row.row_key, place.feed, place.namespace) if place else Candidate(row.id, row.row_key)


def read_neighbours(connection: Connection, scope_id: int) -> Mapping[int, Neighbour]:
    """Return the scopes of the feed's service, except those that a person lets deliver side by side with it."""
    own = connection.execute(select(SCOPE.c.service, SCOPE.c.namespace).where(SCOPE.c.id == scope_id)).one()
    apart = select(SIDE_BY_SIDE.c.other_id).where(SIDE_BY_SIDE.c.scope_id == scope_id)
    columns = (SCOPE.c.id, SCOPE.c.feed, SCOPE.c.namespace, SCOPE.c.marked_id, SCOPE.c.gate, SCOPE.c.whole_read_at)
    rows = connection.execute(select(*columns).where(SCOPE.c.service == own.service, SCOPE.c.id.not_in(apart)))
    return {row.id: as_neighbour(row, own.namespace) for row in rows}


def as_neighbour(scope: Row[*tuple[Any, ...]], namespace: str) -> Neighbour:
    """Return a scope as a feed of this namespace sees it."""
    place = "" if scope.namespace == namespace else scope.namespace
    return Neighbour(scope.feed, place, scope.marked_id, scope.gate == GateState.STAGING.value, scope.whole_read_at)


def lock_service(connection: Connection, scope_id: int) -> None:
    """Lock the service until the transaction ends, so that no other feed ends a stage: two would not see each other's rows.

    Call it first in a transaction: it waits as long as it takes, and heartbeats would wait for a lease that is locked already.
    SQLite allows only one writer anyway.
    """
    if connection.dialect.name == "postgresql":
        service = select(func.hashtext(SCOPE.c.service)).where(SCOPE.c.id == scope_id).scalar_subquery()
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.execute(select(func.pg_advisory_xact_lock(_SERVICE_LOCK, service)))
        connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")


def find_orphaned_feeds(engine: Engine, destination: str, feeds: Collection[str], now: datetime) -> tuple[OrphanedFeed, ...]:
    """Return the feeds with a mapping file that never delivered here but in another namespace, and those with future events and
    no mapping file.
    """
    service, namespace = split_destination(destination)
    found = []
    with reading(engine) as connection:
        listed = select(SCOPE).where(SCOPE.c.service == service).order_by(SCOPE.c.feed, SCOPE.c.namespace)
        scopes = connection.execute(listed).all()
        let_out = {scope.feed for scope in scopes if scope.namespace == namespace and scope.released_id}
        apart = set(connection.execute(select(SIDE_BY_SIDE.c.scope_id)).scalars())
        for scope in scopes:
            is_here, is_known = scope.namespace == namespace, scope.feed in feeds
            if is_here and not is_known:
                found.append(OrphanedFeed(scope.feed, "", count_to_come(connection, scope.id, now)))
            elif not is_here and is_known and scope.feed not in let_out and scope.id not in apart:
                rows = count_entries(connection, ENTRY.c.scope_id == scope.id, MAY_HAVE_EVENT)
                found.append(OrphanedFeed(scope.feed, scope.namespace, rows))
    return tuple(one for one in found if one.rows)
