"""Held rows when a read ends: which go out after all, which stay held, and which new rows another feed has staged meanwhile.

A held row goes out where nothing looks like it any more, and the row that it resembled is known to be in its source, or has no
event. Where that row is gone, the held one may be the same row under another key, whatever it says by now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, or_, select, update

from mappings.row_key import RowKey
from state.enums import Decision, EntryState, ProblemKind
from state.ledger.absent_rows import TakenBack
from state.ledger.compare import Progress
from state.ledger.duplicates import WITHOUT_EVENT, Candidate, Neighbour, mark_anew, read_neighbours
from state.ledger.gate import Opening
from state.ledger.lease import FencedTransaction
from state.ledger.problems import held, strike, write_problems
from state.tables import ENTRY

_PAGE = 500
_LIKE = update(ENTRY).where(ENTRY.c.id == bindparam("entry")).values(candidate_id=bindparam("like"))

_HeldRow = Row[*tuple[Any, ...]]


def settle_held(connection: Connection, turn: FencedTransaction, opening: Opening, progress: Progress) -> int:
    """Judge the held rows that this read has mapped, and forget those that it has not and that nobody has decided on.

    Return how many entries of before this read are held, or were, that the source has. All marks must be written.
    """
    marks, present = progress.marks, 0
    judge = _Judge(connection, turn, opening, progress)
    taken = TakenBack(connection, turn.now())
    for page in _pages(connection, turn.scope_id):
        present += sum(row.id <= marks.boundary and marks.is_present(row.id) for row in page)
        unasked = [row for row in page if not marks.is_mapped(row.id)]
        judge.take([row for row in page if marks.is_mapped(row.id) and not marks.is_conflicting(row.id) and not _is_ignored(row)])
        over = [
            row
            for row in unasked
            if row.decision is None and (opening.is_whole or marks.is_present(row.id) or marks.is_deleted(row.id))
        ]
        taken.delete(row.id for row in over if not row.revision)
        # The keys of an entry that had an event were used: it stays, so that the row never goes out under one of them again.
        used = ENTRY.c.id.in_([row.id for row in over if row.revision])
        connection.execute(update(ENTRY).where(used).values(state=EntryState.SUPERSEDED.value))
        strike(connection, turn.scope_id, ProblemKind.HELD, [row.row_key for row in over])
    return present


def hold_staged_beside(connection: Connection, turn: FencedTransaction, progress: Progress) -> None:
    """Hold new rows of this read that look like entries which other feeds have staged since it began."""
    turned: dict[int, tuple[RowKey, str, Candidate]] = {}
    for entry_id, row_key, place, candidate in progress.duplicates.find_staged_beside(connection, progress.marks.boundary):
        turned.setdefault(entry_id, (row_key, place, candidate))
    if not turned:
        return
    connection.execute(
        _LIKE.values(state=EntryState.HELD.value),
        [{"entry": entry_id, "like": candidate.entry_id} for entry_id, (_, _, candidate) in turned.items()],
    )
    for row_key, place, candidate in turned.values():
        progress.tally.hold_after_all(place, row_key, candidate)
    problems = (held(place, row_key, candidate, {}) for row_key, place, candidate in turned.values())
    write_problems(connection, turn.scope_id, turn.run_id, turn.now(), problems)


class _Judge:
    """Judges held rows by the rows that they resemble, a page at a time, oldest first."""

    def __init__(self, connection: Connection, turn: FencedTransaction, opening: Opening, progress: Progress) -> None:
        self._connection = connection
        self._turn = turn
        self._opening = opening
        self._progress = progress
        apart = progress.duplicates.apart
        self._neighbours: Mapping[int, Neighbour] = {
            scope_id: each for scope_id, each in read_neighbours(connection, turn.scope_id).items() if scope_id not in apart
        }

    def take(self, page: Collection[_HeldRow]) -> None:
        """Free the rows that nothing resembles any more; the others stay held, by the right candidate."""
        if not page:
            return
        candidates = _resolved(self._connection, {row.candidate_id for row in page if row.candidate_id})
        doubtful = [row for row in page if not self._still_holds(row, candidates.get(row.candidate_id or 0))]
        others = self._progress.duplicates.find(self._connection, {row.twin_digest for row in doubtful})
        freed: dict[bytes, _HeldRow] = {}
        like = {row.id: found.id for row in page if (found := candidates.get(row.candidate_id or 0)) is not None}
        moved = {row.id: like[row.id] for row in page if row.id in like and like[row.id] != row.candidate_id}
        for row in doubtful:
            other = others.get(row.twin_digest)
            entry_id = other.entry_id if other is not None else freed[row.twin_digest].id if row.twin_digest in freed else 0
            if entry_id:
                moved[row.id] = entry_id
            else:
                freed[row.twin_digest] = row
        self._free(list(freed.values()))
        moved = {entry_id: candidate for entry_id, candidate in moved.items() if candidate}
        if moved:
            self._connection.execute(_LIKE, [{"entry": entry_id, "like": like_id} for entry_id, like_id in moved.items()])

    def _free(self, rows: Collection[_HeldRow]) -> None:
        connection, turn = self._connection, self._turn
        pending = {"state": EntryState.PENDING.value, "attempts": 0, "candidate_id": None, "undo": None}
        freed = update(ENTRY).where(ENTRY.c.id.in_([row.id for row in rows]))
        connection.execute(freed.values(**pending, staged_run=turn.run_id, updated_at=turn.now()))
        mark_anew(connection, ((row.id, row.twin_digest) for row in rows))
        strike(connection, turn.scope_id, ProblemKind.HELD, [RowKey(row.row_key) for row in rows])
        for row in rows:
            self._progress.tally.free(RowKey(row.row_key))

    def _still_holds(self, row: _HeldRow, candidate: _HeldRow | None) -> bool:
        if candidate is None or candidate.state in WITHOUT_EVENT or candidate.removed_at is not None:
            return False
        if candidate.scope_id not in self._neighbours:
            return False
        return candidate.twin_digest == row.twin_digest or not self._is_in_source(candidate, row)

    def _is_in_source(self, candidate: _HeldRow, row: _HeldRow) -> bool:
        """Whether the row that is resembled is known to be in its source."""
        if candidate.scope_id == self._turn.scope_id:
            marks = self._progress.marks
            return marks.is_present(candidate.id) or not (
                self._opening.is_whole or candidate.is_gone or marks.is_deleted(candidate.id)
            )
        read_at = self._neighbours[candidate.scope_id].whole_read_at
        return not candidate.is_gone and read_at is not None and bool(read_at > row.created_at)


def _is_ignored(row: _HeldRow) -> bool:
    return bool(row.decision == Decision.IGNORE.value)


def _resolved(connection: Connection, entries: Collection[int]) -> dict[int, _HeldRow]:
    """Return entries by their ids; in place of a superseded one that which has its event now."""
    is_gone = or_(ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)).label("is_gone")
    names = ("id", "scope_id", "state", "twin_digest", "candidate_id", "removed_at")
    candidates = select(*(ENTRY.c[name] for name in names), is_gone)
    rows: dict[int, _HeldRow] = {}
    asked = set(entries)
    while asked:
        found = {row.id: row for row in connection.execute(candidates.where(ENTRY.c.id.in_(asked)))}
        rows |= found
        asked = {
            row.candidate_id for row in found.values() if row.state == EntryState.SUPERSEDED and row.candidate_id
        } - rows.keys()
    return {entry_id: _adopter(rows, rows[entry_id]) for entry_id in entries if entry_id in rows}


def _adopter(rows: Mapping[int, _HeldRow], row: _HeldRow) -> _HeldRow:
    passed = {row.id}
    while row.state == EntryState.SUPERSEDED and row.candidate_id in rows and row.candidate_id not in passed:
        row = rows[row.candidate_id]
        passed.add(row.id)
    return row


def _pages(connection: Connection, scope_id: int) -> Iterator[list[_HeldRow]]:
    names = ("id", "row_key", "twin_digest", "candidate_id", "revision", "decision", "created_at")
    held_rows = select(*(ENTRY.c[name] for name in names)).order_by(ENTRY.c.id).limit(_PAGE)
    held_rows = held_rows.where(ENTRY.c.scope_id == scope_id, ENTRY.c.state == EntryState.HELD.value)
    after = 0
    while page := connection.execute(held_rows.where(ENTRY.c.id > after)).all():
        yield list(page)
        after = page[-1].id
