"""The index of duplicate digests: which known entries of a service look like an event, in all its feeds and namespaces.

A database index of the digests would be written all over, entry by entry, and cost more than the entries themselves (budget 4).
So the digests are kept apart, as marks that are written many at a time in sorted order. Besides: whether another scope of the
service delivers a feed's rows already, as a feed that was renamed or a namespace that was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, bindparam, func, select, update

from mappings.delivery import split_destination
from mappings.row_key import FeedName, RowKey
from state.database import insert_if_new, reading, rounded
from state.enums import EntryState
from state.ledger.accounts import Alongside
from state.ledger.entries import (
    IS_NEVER_SENT,
    MARK,
    MARK_BYTES,
    MAY_BE_OUT,
    SOME,
    WITHOUT_EVENT,
    Candidate,
    count_entries,
    count_to_come,
)
from state.tables import DUPLICATE_MARK, ENTRY, SCOPE, SIDE_BY_SIDE

_AT_A_TIME = 16_384
_AT_LEAST = 3
_SERVICE_LOCK = 0x6576_7365
"""Any number of our own: PostgreSQL's advisory locks are named by numbers."""
_OTHER = ENTRY.alias()
_MAY_HAVE_EVENT = [state.value for state in EntryState if state.value not in WITHOUT_EVENT]
_BY_ID = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.scope_id, ENTRY.c.twin_digest)
_FIND = _BY_ID.join(DUPLICATE_MARK, DUPLICATE_MARK.c.entry_id == ENTRY.c.id).order_by(ENTRY.c.id)
_FIND = _FIND.where(DUPLICATE_MARK.c.mark.in_(bindparam("marks", expanding=True)))
_FIND = _FIND.where(ENTRY.c.state.not_in(WITHOUT_EVENT), ENTRY.c.removed_at.is_(None))
# All states there are: by the index of states, that leads to the youngest entries of a feed and to no other ones.
_IN_ANY_STATE = ENTRY.c.state.in_([state.value for state in EntryState])
_UNMARKED = (ENTRY.c.scope_id == bindparam("scope"), _IN_ANY_STATE, ENTRY.c.id > bindparam("after"))
_MISSING = select(MARK, ENTRY.c.id).where(*_UNMARKED, ENTRY.c.state != EntryState.HELD.value).order_by(MARK, ENTRY.c.id)
_BESIDE = (
    select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.origin, _OTHER.c.id.label("other_id"), _OTHER.c.row_key.label("other_key"))
    .select_from(_OTHER)
    .join(DUPLICATE_MARK, DUPLICATE_MARK.c.mark == func.substr(_OTHER.c.twin_digest, 1, MARK_BYTES))
    .join(ENTRY, ENTRY.c.id == DUPLICATE_MARK.c.entry_id)
    .where(_OTHER.c.scope_id == bindparam("other"), _OTHER.c.id > bindparam("after"))
    .where(_OTHER.c.state.in_(_MAY_HAVE_EVENT), _OTHER.c.removed_at.is_(None))
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.id > bindparam("boundary"), IS_NEVER_SENT)
    .where(ENTRY.c.twin_digest == _OTHER.c.twin_digest)
    .order_by(ENTRY.c.id, _OTHER.c.id)
)


class Neighbour(NamedTuple):
    """A scope of the service whose events a row may duplicate, the feed's own among them. `marked_id`: of what it has marks."""

    feed: FeedName
    namespace: str
    marked_id: int
    whole_read_at: datetime | None


@dataclass(frozen=True, slots=True)
class OrphanedFeed:
    """Rows that are delivered under a name that is not used any more: those of `feed`, in another `namespace` unless it is "".

    `rows`: of a feed without a mapping file the events to come, else all that may be at the service.
    """

    feed: str
    namespace: str
    rows: int


class DuplicateIndex:
    """The duplicate digests of a service while a feed is read: marks of committed entries, the read's own youngest in memory.

    `apart`: scopes whose entries no row is held for, though they are of the service.
    """

    def __init__(self, connection: Connection, scope_id: int) -> None:
        """Begin with all marks that are missing written."""
        self._scope_id = scope_id
        self._recent: dict[bytes, RowKey] = {}
        self.apart: set[int] = set()
        self.write(connection)
        self._at_first = read_neighbours(connection, scope_id)
        self._is_blank = not any(each.marked_id for each in self._at_first.values())

    def find(self, connection: Connection, digests: Collection[bytes]) -> dict[bytes, Candidate]:
        """Return, by duplicate digest, the oldest entry that is or may still be created and looks the same."""
        wanted = frozenset(digests)
        found: dict[bytes, Candidate] = {}
        if wanted and not self._is_blank:
            marks = rounded([digest[:MARK_BYTES] for digest in wanted])
            for row in connection.execute(_FIND, {"marks": marks}):
                if row.twin_digest in wanted and row.scope_id in self._at_first and row.scope_id not in self.apart:
                    found.setdefault(row.twin_digest, self._candidate(row))
        for digest in wanted & self._recent.keys():
            found.setdefault(digest, Candidate(0, self._recent[digest]))
        return found

    def by_id(self, connection: Connection, entries: Collection[int]) -> dict[int, Candidate]:
        """Return these entries by their ids."""
        rows = connection.execute(_BY_ID.where(SOME), {"entries": rounded(entries)}) if entries else ()
        return {row.id: self._candidate(row) for row in rows}

    def create(self, digest: bytes, row_key: RowKey) -> None:
        """Note a new row, whose mark is to follow."""
        self._recent[digest] = row_key

    def keep_up(self, connection: Connection) -> None:
        """Write the marks of new rows if there are many by now: each time, nearly every page of the marks is written."""
        if len(self._recent) >= _AT_A_TIME:
            self.write(connection)

    def write(self, connection: Connection) -> None:
        """Write all marks that are missing, those of a read that was cut short among them."""
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
        """Yield the read's new entries, after `boundary`, that look like entries which other feeds have staged meanwhile.

        Of each its id, key and place. All marks of the read must be written, and no other feed of the service may close a stage.
        """
        for other_id, other in read_neighbours(connection, self._scope_id).items():
            if other_id == self._scope_id:
                continue
            after = self._at_first[other_id].marked_id if other_id in self._at_first else 0
            which = {"scope": self._scope_id, "boundary": boundary, "other": other_id, "after": after}
            for row in connection.execute(_BESIDE, which):
                yield row.id, row.row_key, row.origin, Candidate(row.other_id, row.other_key, other.feed, other.namespace)

    def _candidate(self, row: Row[*tuple[Any, ...]]) -> Candidate:
        place = self._at_first.get(row.scope_id) if row.scope_id != self._scope_id else None
        return Candidate(row.id, row.row_key, place.feed, place.namespace) if place else Candidate(row.id, row.row_key)


def read_neighbours(connection: Connection, scope_id: int) -> Mapping[int, Neighbour]:
    """Return the scopes of the feed's service, but for those that a person lets deliver side by side with it."""
    own = connection.execute(select(SCOPE.c.service, SCOPE.c.namespace).where(SCOPE.c.id == scope_id)).one()
    apart = select(SIDE_BY_SIDE.c.other_id).where(SIDE_BY_SIDE.c.scope_id == scope_id)
    rows = connection.execute(select(SCOPE).where(SCOPE.c.service == own.service, SCOPE.c.id.not_in(apart)))
    return {
        row.id: Neighbour(row.feed, "" if row.namespace == own.namespace else row.namespace, row.marked_id, row.whole_read_at)
        for row in rows
    }


def lock_service(connection: Connection, scope_id: int) -> None:
    """Let no other feed of the service close a stage before the transaction ends: two would not see each other's rows.

    SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == "postgresql":
        service = select(func.hashtext(SCOPE.c.service)).where(SCOPE.c.id == scope_id).scalar_subquery()
        connection.execute(select(func.pg_advisory_xact_lock(_SERVICE_LOCK, service)))


def find_alongside(connection: Connection, scope_id: int) -> Alongside | None:
    """Return the scope that knows at least 3, and more than half, of a feed's rows: the one that knows most of them.

    A feed of the same name knows a row by its key; any feed knows one that is held as a duplicate of its own.
    """
    others = dict(read_neighbours(connection, scope_id))
    feed, of_feed = others.pop(scope_id).feed, ENTRY.c.scope_id == scope_id
    rows = count_entries(connection, of_feed, ENTRY.c.state != EntryState.SUPERSEDED.value) if others else 0
    if rows < _AT_LEAST:
        return None
    held_for = select(_OTHER.c.scope_id, func.count()).select_from(ENTRY).join(_OTHER, _OTHER.c.id == ENTRY.c.candidate_id)
    is_held = (of_feed, ENTRY.c.state == EntryState.HELD.value)
    held = {row[0]: row[1] for row in connection.execute(held_for.where(*is_held).group_by(_OTHER.c.scope_id))}
    by_key = select(func.count()).select_from(ENTRY).join(_OTHER, _OTHER.c.row_key == ENTRY.c.row_key)
    by_key = by_key.where(of_feed, _OTHER.c.state.not_in(WITHOUT_EVENT), _OTHER.c.removed_at.is_(None))
    found = []
    for other_id, other in others.items():
        known, is_namesake = held.get(other_id, 0), other.feed == feed
        if not other.marked_id:
            continue
        if is_namesake:
            known = max(known, connection.execute(by_key.where(_OTHER.c.scope_id == other_id)).scalar_one())
        if known >= _AT_LEAST and known * 2 > rows:
            renamed_from = "" if is_namesake else other.feed
            found.append(Alongside(other_id, renamed_from, other.namespace, known, rows, held.get(other_id, 0)))
    return max(found, key=lambda each: each.known, default=None)


def put_side_by_side(connection: Connection, scope_id: int, other_id: int) -> None:
    """Record that two feeds deliver side by side on purpose: neither holds the other's rows from now on."""
    pairs = [{"scope_id": scope_id, "other_id": other_id}, {"scope_id": other_id, "other_id": scope_id}]
    connection.execute(insert_if_new(connection, SIDE_BY_SIDE), pairs)


def find_orphaned_feeds(engine: Engine, destination: str, feeds: Collection[str], now: datetime) -> tuple[OrphanedFeed, ...]:
    """Return the feeds, of those that have a mapping file, that never delivered here and did so in another namespace; and those
    that have events to come and no mapping file.
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
                rows = count_entries(connection, ENTRY.c.scope_id == scope.id, MAY_BE_OUT)
                found.append(OrphanedFeed(scope.feed, scope.namespace, rows))
    return tuple(one for one in found if one.rows)
