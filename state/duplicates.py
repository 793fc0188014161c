"""The index of duplicate digests: which known entries of a service look like an event, whatever their feed and namespace.

A database index of the digests would be written all over, entry by entry, and cost more than the entries themselves (budget 4).
So the digests are kept apart, as marks that are written many at a time in sorted order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select, tuple_, update

from mappings.vocabulary import FeedName, RowKey
from state.asking import rounded
from state.conflicts import insert_if_new
from state.tables import DUPLICATE_MARK, ENTRY, SCOPE, SIDE_BY_SIDE
from state.words import EntryState

_MARK_BYTES = 8
"""Of a digest's sixteen: a mark only leads to the entries, which have the whole digest."""
_AT_A_TIME = 16_384

MARK = func.substr(ENTRY.c.twin_digest, 1, _MARK_BYTES)
"""An entry's mark, as SQL."""
_WITHOUT_EVENT = (EntryState.REFUSED.value, EntryState.SUPERSEDED.value, EntryState.HELD.value)
_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_SCOPES = select(SCOPE.c.id, SCOPE.c.feed, SCOPE.c.destination).where(
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
        ENTRY.c.state.not_in(_WITHOUT_EVENT),
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
_FORGET = delete(DUPLICATE_MARK).where(
    tuple_(DUPLICATE_MARK.c.mark, DUPLICATE_MARK.c.entry_id).in_(select(MARK, ENTRY.c.id).where(_SOME))
)


class Candidate(NamedTuple):
    """A known entry that a row looks like: its id (0 for one that is written with the same batch), its key, and where it is.

    `destination` and `feed` are "" for an entry of the row's own feed.
    """

    entry_id: int
    row_key: RowKey
    feed: FeedName
    destination: str

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.row_key} of {self.feed} at {self.destination}" if self.destination else str(self.row_key)


class DuplicateIndex:
    """The duplicate digests of a service while a feed is read: marks of committed entries, the read's own youngest in memory.

    `at_a_time`: how many of these there are at most between two chunks. Each time, nearly every page of the marks is written.
    """

    def __init__(self, scope_id: int, at_a_time: int = _AT_A_TIME) -> None:
        self._scope_id = scope_id
        self._at_a_time = at_a_time
        self._recent: dict[bytes, RowKey] = {}
        self._scopes: Mapping[int, tuple[FeedName, str]] | None = None

    def find(self, connection: Connection, digests: Collection[bytes]) -> dict[bytes, Candidate]:
        """Return, by duplicate digest, the oldest entry that is or may still be created and looks the same."""
        if not digests:
            return {}
        wanted = frozenset(digests)
        scopes = self._known_scopes(connection)
        found: dict[bytes, Candidate] = {}
        for row in connection.execute(_FIND, {"marks": rounded([digest[:_MARK_BYTES] for digest in digests])}):
            if row.twin_digest in wanted and row.scope_id in scopes:
                found.setdefault(row.twin_digest, Candidate(row.id, RowKey(row.row_key), *scopes[row.scope_id]))
        recent = self._recent
        for digest in wanted:
            if digest in recent:
                found.setdefault(digest, Candidate(0, recent[digest], FeedName(""), ""))
        return found

    def by_id(self, connection: Connection, entries: Collection[int]) -> dict[int, Candidate]:
        """Return these entries by their ids."""
        if not entries:
            return {}
        scopes = self._known_scopes(connection)
        rows = connection.execute(_BY_ID, {"entries": rounded(entries)})
        return {row.id: Candidate(row.id, RowKey(row.row_key), *scopes.get(row.scope_id, (FeedName(""), ""))) for row in rows}

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
        self._recent.clear()

    def _known_scopes(self, connection: Connection) -> Mapping[int, tuple[FeedName, str]]:
        if self._scopes is None:
            rows = connection.execute(_SCOPES, {"scope": self._scope_id})
            self._scopes = {
                row.id: (FeedName(""), "") if row.id == self._scope_id else (FeedName(row.feed), row.destination) for row in rows
            }
        return self._scopes


def mark_anew(connection: Connection, entries: Iterable[tuple[int, bytes]]) -> None:
    """Add the marks of entries whose digests have changed. Their old marks stay, and are ignored."""
    marks = [{"mark": digest[:_MARK_BYTES], "entry_id": entry_id} for entry_id, digest in entries]
    if marks:
        connection.execute(insert_if_new(connection, DUPLICATE_MARK), marks)


def forget_marks(connection: Connection, entries: Collection[int]) -> None:
    """Delete the marks of entries that are about to be deleted."""
    connection.execute(_FORGET, {"entries": entries})
