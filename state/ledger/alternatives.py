"""Rows with several possible keys: finds the entry of a row by all keys that the entry ever had.

For each entry of such a feed every key of its row is stored as a digest, with the names of its columns. A row belongs to an
entry if both have a key of the same columns with the same value; the most reliable common key decides. So two rows with the
same name and different identifiers stay two, and a row keeps its entry when an identifier is added or removed.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, bindparam, select, union

from mappings.outcome import Absorbed, Alternatives, Gone, MappedRow, Rejection, RowOutcome, Skipped
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import NO_KEY, RowKey
from state.database import in_pages, insert_if_new, rounded
from state.enums import EntryState
from state.ledger.reads import Mark, SourceRead
from state.tables import ENTRY, KNOWN_AS, storable

_NAMED = union(
    select(ENTRY.c.id).where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.row_key.in_(bindparam("row_keys", expanding=True))),
    select(KNOWN_AS.c.entry_id).where(
        KNOWN_AS.c.scope_id == bindparam("scope"), KNOWN_AS.c.digest.in_(bindparam("digests", expanding=True))
    ),
)
_KNOWN = (
    select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.state, KNOWN_AS.c.columns, KNOWN_AS.c.digest)
    .join(KNOWN_AS, KNOWN_AS.c.entry_id == ENTRY.c.id, isouter=True)
    .where(ENTRY.c.scope_id == bindparam("scope"))
    .order_by(ENTRY.c.id)
)
_KNOWN_AND_NAMED = _KNOWN.where(ENTRY.c.id.in_(_NAMED))
_OWN = select(
    ENTRY.c.scope_id,
    bindparam("new_digest", type_=KNOWN_AS.c.digest.type),
    ENTRY.c.id,
    bindparam("new_columns", type_=KNOWN_AS.c.columns.type),
).where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.row_key == bindparam("of_row"))


def digest_of(key: str) -> bytes:
    """Return the 16-byte digest of a possible key of a row."""
    return hashlib.blake2b(storable(key).encode(), digest_size=16).digest()


@dataclass(slots=True)
class KnownRow:
    """An entry with the digests of its row's keys, by the columns of each key."""

    entry_id: int
    row_key: RowKey
    is_superseded: bool
    known_as: defaultdict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))

    def is_row(self, known_as: Alternatives) -> bool:
        """Return whether a row that shares a key with the entry belongs to it: the most reliable key that both have decides."""
        for columns, key in known_as:
            if columns in self.known_as:
                return digest_of(key) in self.known_as[columns]
        return True

    def was_met_under(self, key: RowKey) -> bool:
        """Return whether a key is the entry's own, or one that its row ever had."""
        return digest_of(key) in {digest_of(self.row_key)}.union(*self.known_as.values())


class KnownRows:
    """Entries, found by all keys of their rows."""

    def __init__(self) -> None:
        self._by_key: dict[str, KnownRow] = {}
        self._by_digest: defaultdict[bytes, dict[str, KnownRow]] = defaultdict(dict)

    def add(self, row_key: str, entry_id: int = 0, *, is_superseded: bool = False) -> KnownRow:
        """Add an entry (0: not in the ledger); return the existing one if it is there already."""
        row = self._by_key.get(row_key)
        if row is None:
            row = self._by_key[row_key] = KnownRow(entry_id, RowKey(row_key), is_superseded)
            self._by_digest[digest_of(row_key)][row_key] = row
        return row

    def note(self, row: KnownRow, columns: str, digest: bytes) -> None:
        """Record a key of the row of an entry."""
        row.known_as[columns].add(digest)
        self._by_digest[digest][row.row_key] = row

    def find(self, known_as: Alternatives) -> list[KnownRow]:
        """Return the entries of a row with these keys, at most one unless the keys contradict each other. A superseded entry is
        returned only if there is no other.
        """
        candidates = {one.row_key: one for _, key in known_as for one in self._by_digest.get(digest_of(key), {}).values()}
        found = [one for one in candidates.values() if one.is_row(known_as)]
        return [one for one in found if not one.is_superseded] or found

    def resolve(self, outcome: RowOutcome) -> tuple[RowOutcome, KnownRow | None, list[KnownRow]]:
        """Return a row under the key of its entry; the entry, None if it is new or in doubt; and the entries it may belong to.
        A row whose keys lead to several entries, or whose own key belongs to another row, is rejected.
        """
        if not outcome.known_as or not outcome.row_key:
            return outcome, None, []
        found, owner = self.find(outcome.known_as), self._by_key.get(storable(outcome.row_key))
        if len(found) == 1:
            (entry,) = found
            return (outcome if entry.row_key == outcome.row_key else replace(outcome, row_key=entry.row_key)), entry, found
        claimed = found or [one for one in (owner,) if one is not None]
        if not claimed:
            return outcome, None, []
        if isinstance(outcome, Gone | Absorbed) or (isinstance(outcome, Skipped) and not outcome.is_cancelled):
            return replace(outcome, row_key=NO_KEY), None, claimed
        return _rejected(outcome, claimed, is_foreign=not found), None, claimed


def known_rows(connection: Connection, scope_id: int, keys: Collection[RowKey] | None = None) -> KnownRows:
    """Return the entries of a feed, or those alone that one of these keys may mean."""
    rows = KnownRows()
    found = connection.execute(_KNOWN_AND_NAMED, _which(scope_id, keys)) if keys else ()
    for entry_id, row_key, state, columns, digest in connection.execute(_KNOWN, {"scope": scope_id}) if keys is None else found:
        row = rows.add(row_key, entry_id, is_superseded=state == EntryState.SUPERSEDED)
        if columns is not None:
            rows.note(row, columns, digest)
    return rows


def find_named(connection: Connection, scope_id: int, keys: Collection[RowKey]) -> list[int]:
    """Return the ids of the entries that have, or ever had, one of these keys, oldest first."""
    pages = in_pages(sorted(keys))
    return sorted({found for page in pages for found in connection.execute(_NAMED, _which(scope_id, page)).scalars()})


def _which(scope_id: int, keys: Collection[RowKey]) -> dict[str, object]:
    return {"scope": scope_id, "row_keys": rounded([*map(storable, keys)]), "digests": rounded([*map(digest_of, keys)])}


def by_alternatives(connection: Connection, read: SourceRead, outcomes: Sequence[RowOutcome]) -> Iterator[Sequence[RowOutcome]]:
    """Yield a chunk in batches, each row under the key of its entry; the caller must write a batch before taking the next.

    A batch never has two rows of the same entry, or that may be the same row, because the second must find the first in the
    ledger. New keys of entries are recorded after their batch. A row whose keys lead to two entries is rejected.
    """
    scope_id, rest = read.run.scope_id, list(outcomes)
    while rest:
        names = {key for outcome in rest for _, key in outcome.known_as}
        rows = known_rows(connection, scope_id, names)
        batch, later, new = list[RowOutcome](), list[RowOutcome](), list[dict[str, object]]()
        taken: dict[str, tuple[str, ...]] = {}
        for outcome in rest:
            resolved, entry, claimed = rows.resolve(outcome)
            filled = tuple(columns for columns, _ in outcome.known_as)
            keys = {"" if isinstance(outcome, Absorbed) else resolved.row_key} - {""}
            others = {key for _, key in outcome.known_as}
            if keys & taken.keys() or any(taken.get(key, filled) != filled for key in others):
                later.append(outcome)
                continue
            batch.append(resolved)
            for one in claimed if entry is None else ():  # a row in doubt gives no information about any of them
                read.marks.mark(one.entry_id, Mark.PRESENT)
            taken |= dict.fromkeys(others, filled) | dict.fromkeys(keys, filled)
            if entry is not None or isinstance(resolved, MappedRow):
                known = {} if entry is None else entry.known_as
                new += _to_record(scope_id, resolved, known)
        read.listed.strike(connection, batch)
        yield batch
        if new:
            connection.execute(insert_if_new(connection, KNOWN_AS).from_select(list(KNOWN_AS.columns.keys()), _OWN), new)
        rest = later


def _to_record(scope_id: int, row: RowOutcome, known: Mapping[str, set[bytes]]) -> Iterator[dict[str, object]]:
    """Yield a record to insert for each key of the row that `known` lacks; a deleted row yields none."""
    for columns, key in () if isinstance(row, Gone) else row.known_as:
        if (digest := digest_of(key)) not in known.get(columns, ()):
            yield {"scope": scope_id, "of_row": row.row_key, "new_digest": digest, "new_columns": columns}


def _rejected(outcome: RowOutcome, claimed: Sequence[KnownRow], *, is_foreign: bool) -> Rejection:
    said = outcome if isinstance(outcome, MappedRow | Rejection) else None
    hint = f"the row could be {' or '.join(one.row_key for one in claimed)}: fill in the identifier that says which"
    if is_foreign:
        hint = "this is the identifier of another row: give each of them its own"
    reason = Reason(ReasonCode.BAD_KEY, "", "", outcome.row_key, hint)
    reasons = (*said.reasons, reason) if isinstance(said, Rejection) else (reason,)
    return Rejection(outcome.location, outcome.row_key, reasons, {} if said is None else said.cells)
