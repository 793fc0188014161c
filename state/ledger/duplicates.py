"""The index of duplicate digests: which known entries of a service look like an event, whatever their feed and namespace.

A database index of the digests would be written all over, entry by entry, and cost more than the entries themselves (budget 4).
So the digests are kept apart, as marks that are written many at a time in sorted order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, delete, func, select, tuple_, update

from mappings.row_key import FeedName, RowKey
from state.database import insert_if_new, rounded
from state.enums import EntryState
from state.tables import DUPLICATE_MARK, ENTRY, SCOPE, SIDE_BY_SIDE

_MARK_BYTES = 8
"""Of a digest's sixteen: a mark only leads to the entries, which have the whole digest."""
_AT_A_TIME = 16_384
_SERVICE_LOCK = 0x6576_7365
"""Any number of our own: PostgreSQL's advisory locks are named by numbers."""

MARK = func.substr(ENTRY.c.twin_digest, 1, _MARK_BYTES)
"""An entry's mark, as SQL."""
WITHOUT_EVENT = (EntryState.REFUSED.value, EntryState.SUPERSEDED.value, EntryState.HELD.value)
_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_SCOPES = select(SCOPE.c.id, SCOPE.c.feed, SCOPE.c.namespace, SCOPE.c.marked_id, SCOPE.c.whole_read_at).where(
    SCOPE.c.service == select(SCOPE.c.service).where(SCOPE.c.id == bindparam("scope")).scalar_subquery(),
    SCOPE.c.id.not_in(
        select(SIDE_BY_SIDE.c.other_id).where(SIDE_BY_SIDE.c.scope_id == bindparam("scope"))
    ),
)  # fmt: skip
_FIND = (
    select(ENTRY.c.twin_digest, ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.scope_id)
    .join(DUPLICATE_MARK, DUPLICATE_MARK.c.entry_id == ENTRY.c.id)
    .where(
        DUPLICATE_MARK.c.mark.in_(bindparam("marks", expanding=True)),
        ENTRY.c.state.not_in(WITHOUT_EVENT),
        ENTRY.c.removed_at.is_(None),
    )
    .order_by(ENTRY.c.id)
)
_BY_ID = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.scope_id).where(_SOME)
# All states there are: by the index of states, that leads to the youngest entries of a feed and to no other ones.
_UNMARKED = (
    ENTRY.c.scope_id == bindparam("scope"),
    ENTRY.c.state.in_([state.value for state in EntryState]),
    ENTRY.c.id > bindparam("after"),
)
_NEWEST = select(func.max(ENTRY.c.id)).where(*_UNMARKED)
_MISSING = (
    select(MARK, ENTRY.c.id).where(*_UNMARKED, ENTRY.c.state != EntryState.HELD.value).order_by(MARK, ENTRY.c.id)
)  # fmt: skip
_OTHER = ENTRY.alias()
_BESIDE = (
    select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.origin, _OTHER.c.id.label("other_id"), _OTHER.c.row_key.label("other_key"))
    .select_from(_OTHER)
    .join(DUPLICATE_MARK, DUPLICATE_MARK.c.mark == func.substr(_OTHER.c.twin_digest, 1, _MARK_BYTES))
    .join(ENTRY, ENTRY.c.id == DUPLICATE_MARK.c.entry_id)
    .where(
        _OTHER.c.scope_id == bindparam("other"),
        _OTHER.c.id > bindparam("after"),
        _OTHER.c.state.in_([state.value for state in EntryState if state.value not in WITHOUT_EVENT]),
        _OTHER.c.removed_at.is_(None),
        ENTRY.c.scope_id == bindparam("scope"),
        ENTRY.c.id > bindparam("boundary"),
        ENTRY.c.state == EntryState.PENDING.value,
        ENTRY.c.attempts == 0,
        ENTRY.c.twin_digest == _OTHER.c.twin_digest,
    )
    .order_by(ENTRY.c.id, _OTHER.c.id)
)
_FORGET = delete(DUPLICATE_MARK).where(
    tuple_(DUPLICATE_MARK.c.mark, DUPLICATE_MARK.c.entry_id).in_(select(MARK, ENTRY.c.id).where(_SOME))
)


class Candidate(NamedTuple):
    """A known entry that a row looks like: its id (0 for one that is written with the same batch), its key, and where it is.

    `feed` is "" for an entry of the row's own feed, `namespace` for one of the row's own namespace.
    """

    entry_id: int
    row_key: RowKey
    feed: FeedName = FeedName("")
    namespace: str = ""

    def __str__(self) -> str:
        """Name it for people."""
        return " ".join(filter(None, (self.row_key, place_of(self.feed, self.namespace))))


def place_of(feed: str, namespace: str) -> str:
    """Say where an entry of another feed is; "" for one of the row's own feed."""
    return " in ".join(filter(None, (f"of feed {feed}" if feed else "", f"namespace {namespace}" if namespace else "")))


class Neighbour(NamedTuple):
    """A scope of the service whose events a row may duplicate, the feed's own among them. `marked_id`: of what it has marks."""

    feed: FeedName
    namespace: str
    marked_id: int
    whole_read_at: datetime | None


class DuplicateIndex:
    """The duplicate digests of a service while a feed is read: marks of committed entries, the read's own youngest in memory.

    `at_a_time`: how many of these there are at most between two chunks. Each time, nearly every page of the marks is written.
    """

    def __init__(self, connection: Connection, scope_id: int, at_a_time: int = _AT_A_TIME) -> None:
        """Begin with all marks that are missing written."""
        self._scope_id = scope_id
        self._at_a_time = at_a_time
        self._recent: dict[bytes, RowKey] = {}
        self.apart: set[int] = set()
        """Scopes whose entries no row is held for, though they are of the service."""
        self.write(connection)
        self._at_first = read_neighbours(connection, scope_id)
        self._is_blank = not any(each.marked_id for each in self._at_first.values())

    def find(self, connection: Connection, digests: Collection[bytes]) -> dict[bytes, Candidate]:
        """Return, by duplicate digest, the oldest entry that is or may still be created and looks the same."""
        if not digests:
            return {}
        wanted = frozenset(digests)
        found: dict[bytes, Candidate] = {}
        marks = () if self._is_blank else rounded([digest[:_MARK_BYTES] for digest in wanted])
        for row in connection.execute(_FIND, {"marks": marks}) if marks else ():
            if row.twin_digest in wanted and row.scope_id in self._at_first and row.scope_id not in self.apart:
                found.setdefault(row.twin_digest, self._candidate(row))
        recent = self._recent
        for digest in wanted:
            if digest in recent:
                found.setdefault(digest, Candidate(0, recent[digest]))
        return found

    def by_id(self, connection: Connection, entries: Collection[int]) -> dict[int, Candidate]:
        """Return these entries by their ids."""
        if not entries:
            return {}
        return {row.id: self._candidate(row) for row in connection.execute(_BY_ID, {"entries": rounded(entries)})}

    def create(self, digest: bytes, row_key: RowKey) -> None:
        """Note a new row, whose mark is to follow."""
        self._recent[digest] = row_key

    def keep_up(self, connection: Connection) -> None:
        """Write the marks of new rows if there are many by now, in the transaction that writes the last of the rows."""
        if len(self._recent) >= self._at_a_time:
            self.write(connection)

    def write(self, connection: Connection) -> None:
        """Write all marks that are missing, those of a read that was cut short among them."""
        after = connection.execute(select(SCOPE.c.marked_id).where(SCOPE.c.id == self._scope_id)).scalar_one()
        unmarked = {"scope": self._scope_id, "after": after}
        newest = connection.execute(_NEWEST, unmarked).scalar()
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
            known = self._at_first.get(other_id)
            ours = {"scope": self._scope_id, "boundary": boundary, "other": other_id, "after": known.marked_id if known else 0}
            for row in connection.execute(_BESIDE, ours) if other_id != self._scope_id else ():
                candidate = Candidate(row.other_id, RowKey(row.other_key), other.feed, other.namespace)
                yield row.id, RowKey(row.row_key), row.origin, candidate

    def _candidate(self, row: Row[*tuple[Any, ...]]) -> Candidate:
        place = self._at_first.get(row.scope_id) if row.scope_id != self._scope_id else None
        return Candidate(row.id, RowKey(row.row_key), *((place.feed, place.namespace) if place else ()))


def read_neighbours(connection: Connection, scope_id: int) -> Mapping[int, Neighbour]:
    """Return the scopes of the feed's service, but for those that a person lets deliver side by side with it."""
    rows = connection.execute(_SCOPES, {"scope": scope_id}).all()
    own = next(row.namespace for row in rows if row.id == scope_id)
    return {
        row.id: Neighbour(
            FeedName(row.feed), row.namespace if row.namespace != own else "", row.marked_id, row.whole_read_at
        )
        for row in rows
    }  # fmt: skip


def lock_service(connection: Connection, scope_id: int) -> None:
    """Let no other feed of the service close a stage before the transaction ends: two would not see each other's rows.

    SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == "postgresql":
        service = select(func.hashtext(SCOPE.c.service)).where(SCOPE.c.id == scope_id).scalar_subquery()
        connection.execute(select(func.pg_advisory_xact_lock(_SERVICE_LOCK, service)))


def mark_anew(connection: Connection, entries: Iterable[tuple[int, bytes]]) -> None:
    """Add the marks of entries whose digests have changed. Their old marks stay, and are ignored."""
    marks = [{"mark": digest[:_MARK_BYTES], "entry_id": entry_id} for entry_id, digest in entries]
    if marks:
        connection.execute(insert_if_new(connection, DUPLICATE_MARK), marks)


def forget_marks(connection: Connection, entries: Collection[int]) -> None:
    """Delete the marks of entries that are about to be deleted."""
    connection.execute(_FORGET, {"entries": entries})
