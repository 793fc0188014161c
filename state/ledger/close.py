"""The end of a read: withdraw and mark what its source no longer asks for, balance the account, set the gate."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, bindparam, case, delete, func, or_, select, update

from mappings.row_key import RowKey
from state.enums import Decision, DriftKind, EntryState, Phase, ProblemKind
from state.ledger.accounts import READS_THAT_TELL, Alongside, StageReport, dump, held, stem_of, strike, write_problems
from state.ledger.duplicates import Neighbour, find_alongside, forget_marks, lock_service, read_neighbours
from state.ledger.entries import (
    _IS_UNMARKED,
    MAY_BE_OUT,
    WITHOUT_EVENT,
    Candidate,
    count_to_come,
    count_unmarked,
    is_of_change,
    mark_anew,
    put_back,
    waiting,
)
from state.ledger.gate import Opening, is_repeatable, judge, read_report
from state.ledger.lease import FencedTransaction
from state.ledger.reads import Progress, ReadKind, ReadMarks, UnreadEvents
from state.tables import ENTRY, NO_DRIFT, RUN

_FEW = 500
_UNMARKABLE = (EntryState.PENDING.value, EntryState.HELD.value, EntryState.SUPERSEDED.value)
"""Nothing is marked before its last answer; held rows are judged apart, and a superseded one has no event."""


"""The service has the event of the entry, or may have it, as SQL."""
_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_ABSENT = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.ends_at, MAY_BE_OUT.label("may_be_out")).where(
    _SOME, ENTRY.c.state.not_in(_UNMARKABLE), *_IS_UNMARKED
)
_PASS = update(ENTRY).where(_SOME).values(past_at=bindparam("now"))


# A removed event whose row came back, and is gone again, is as it was.
_SETTLE = update(ENTRY).where(_SOME, ENTRY.c.drift_kind == DriftKind.RETURNED.value).values(**NO_DRIFT)


def sort_out(connection: Connection, absent: Iterable[int], marks: ReadMarks, unread: UnreadEvents, now: datetime) -> None:
    """Mark which absent entries have vanished, which are over, and which have no event at the service."""
    for few in in_fews(absent):
        for row in connection.execute(_ABSENT, {"entries": few}):
            if marks.is_present(row.id) or (unread.is_any and unread.covers(row.row_key)):
                continue
            if not row.may_be_out:
                marks.dropped.append(row.id)
            elif row.ends_at is not None and row.ends_at <= now:
                marks.past.append(row.id)
            else:
                marks.mark_vanished(row.id)


def mark_past(connection: Connection, past: Iterable[int], now: datetime) -> None:
    """Mark entries as gone, their events being over: no later read counts them again."""
    for few in in_fews(past):
        connection.execute(_PASS, {"entries": few, "now": now})
        connection.execute(_SETTLE, {"entries": few})


def in_fews(ids: Iterable[int]) -> Iterator[list[int]]:
    """Yield the ids by so many as one statement takes."""
    rest = iter(ids)
    while few := list(islice(rest, _FEW)):
        yield few


_DELETE = delete(ENTRY).where(_SOME)
_REFUSE = update(ENTRY).where(_SOME).values(state=EntryState.REFUSED.value, fingerprint="", updated_at=bindparam("now"))


class TakenBack:
    """What one read takes back, in its transaction; `write` at the end writes what is left. `drafts` counts those of changes.

    What was refused before goes back to refused, without a fingerprint: any next payload of the source reopens it. A draft of
    a change makes room for the event that was delivered before it.
    """

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._deleted: list[int] = []
        self._refused: list[int] = []
        self._drafts: list[int] = []
        self.drafts = 0

    def delete(self, entries: Iterable[int]) -> None:
        """Delete entries of which the service knows nothing."""
        for few in in_fews(entries):
            forget_marks(self._connection, few)
            self._connection.execute(_DELETE, {"entries": few})

    def take(self, row: Row[*tuple[Any, ...]]) -> bool:
        """Take back one entry, of which the id, the revision and the refusal's id are known; return whether it is deleted."""
        place = self._place_of(row)
        place.append(row.id)
        is_out = place is self._deleted
        if len(place) == _FEW:
            self.write()
        return is_out

    def write(self) -> None:
        """Write what was taken back so far."""
        self.delete(self._deleted)
        if self._refused:
            self._connection.execute(_REFUSE, {"entries": self._refused, "now": self._now})
        put_back(self._connection, self._drafts, self._now)
        self.drafts += len(self._drafts)
        self._deleted, self._refused, self._drafts = [], [], []

    def _place_of(self, row: Row[*tuple[Any, ...]]) -> list[int]:
        if is_of_change(row.revision):
            return self._drafts
        return self._refused if row.revision or row.refused_request_id else self._deleted


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


MOST_COMPARED = 100_000
"""So many of the youngest absent entries, and of the new rows, are compared: some 25 MB, and a second at most."""
_OF_FEED = ENTRY.c.scope_id == bindparam("scope")
_KNOWN = select(ENTRY.c.id).where(_OF_FEED, MAY_BE_OUT).order_by(ENTRY.c.id.desc()).limit(MOST_COMPARED)
_MARKED = select(ENTRY.c.id).where(_OF_FEED, or_(ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)), MAY_BE_OUT)
_NEW = (
    select(ENTRY.c.id)
    .where(_OF_FEED, ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.attempts == 0, ENTRY.c.id > bindparam("after"))
    .order_by(ENTRY.c.id)
    .limit(MOST_COMPARED)
)
_BODIES = select(func.coalesce(ENTRY.c.baseline_body, ENTRY.c.body).label("body")).where(
    ENTRY.c.id.in_(bindparam("entries", expanding=True))
)


def count_alike(connection: Connection, turn: FencedTransaction, marks: ReadMarks, *, is_whole: bool, released_id: int) -> int:
    """Count the new rows that agree with an entry that is not in the source any more in two of title, start and place.

    Both within one channel; the entry's event may be over. `released_id`: the highest entry that an earlier read has let out.
    """
    known = connection.execute(_KNOWN if is_whole else _MARKED, {"scope": turn.scope_id}).scalars()
    absent = [entry_id for entry_id in known if not is_whole or not marks.is_present(entry_id)]
    if not is_whole:
        absent = [*absent, *islice(filter(marks.is_deleted, marks.deleted), MOST_COMPARED)][:MOST_COMPARED]
    if not absent:
        return 0
    pairs = set[int]()
    for body in _bodies(connection, absent):
        pairs.update(_pairs(body))
    new = connection.execute(_NEW, {"scope": turn.scope_id, "after": released_id}).scalars().all()
    return sum(not pairs.isdisjoint(_pairs(body)) for body in _bodies(connection, new))


def with_history(connection: Connection, turn: FencedTransaction, report: StageReport) -> StageReport:
    """Return the report with the earlier whole reads that went out and were like it.

    Those that lost and gained at least half as many rows, and those of whose new rows half as many agreed with absent ones. A
    read that gains many and loses few replaces nothing.
    """
    new = report.account.new - report.restaged + report.waiting
    lost = report.vanished + report.past
    is_replacing = bool(new) and lost * 2 > new
    if not (is_replacing or report.alike):
        return report
    latest = (
        select(RUN.c.stage_report)
        .where(RUN.c.scope_id == turn.scope_id, RUN.c.id != turn.run_id, RUN.c.is_whole, RUN.c.brakes == "[]")
        .where(RUN.c.stage_report.is_not(None))
        .order_by(RUN.c.started_at.desc())
        .limit(READS_THAT_TELL)
    )
    stored = [json.loads(each) for each in connection.execute(latest).scalars()]
    replaced = sum(
        _gained(each) * 2 >= new and (each["vanished"] + each.get("past", 0)) * 2 >= lost for each in stored if is_replacing
    )
    alike = sum(each.get("alike", 0) * 2 >= report.alike for each in stored if report.alike)
    return replace(report, replaced_before=replaced, alike_before=alike)


def _gained(stored: dict[str, Any]) -> int:
    return int(stored["account"]["new"] - stored["restaged"] + stored.get("waiting", 0))


def _bodies(connection: Connection, entries: Iterable[int]) -> Iterator[bytes]:
    for few in in_fews(entries):
        yield from connection.execute(_BODIES, {"entries": few}).scalars()


def _pairs(body: bytes) -> Iterator[int]:
    """Yield a number for each two of title, start and place that a payload has."""
    event = orjson.loads(body)
    channel, title, start = event.get("channelId"), event.get("title"), event.get("startAt")
    city = (event.get("approxLocation") or {}).get("city") or {}
    place = (city.get("placeId"), event.get("locationName", "")) if city.get("placeId") else None
    for first, second in ((title, start), (title, place), (start, place)):
        if first and second:
            yield hash((channel, first is title, second is place, first, second))


_ALIKE_AT_LEAST = 3
_LEFT_OUT_AT_LEAST = 3
"""Fewer rows than these trip no brake, and are not counted."""


# A row that a person has ignored is listed again: that it is gone is a change.
_VANISH = (
    update(ENTRY)
    .where(ENTRY.c.id.in_(bindparam("entries", expanding=True)), ENTRY.c.vanished_at.is_(None))
    .values(
        vanished_at=bindparam("now", type_=ENTRY.c.vanished_at.type),
        vanished_by=bindparam("rule"),
        decision=case((ENTRY.c.decision == Decision.IGNORE.value, None), else_=ENTRY.c.decision),
    )
)
_IDS = (
    select(ENTRY.c.id)
    .where(
        ENTRY.c.scope_id == bindparam("scope"),
        ENTRY.c.state == bindparam("in_state"),
        ENTRY.c.id > bindparam("after"),
        ENTRY.c.id <= bindparam("boundary"),
    )
    .order_by(ENTRY.c.id)
    .limit(2_000)
)


# Apart from the ids, which an index holds: the entries themselves are large.
_ROWS = _IDS.add_columns(ENTRY.c.row_key, ENTRY.c.attempts, ENTRY.c.revision, ENTRY.c.refused_request_id)


def close_stage(
    connection: Connection,
    turn: FencedTransaction,
    opening: Opening,
    progress: Progress,
    brake: Callable[[StageReport], Sequence[str]],
) -> StageReport:
    """End a read in the caller's transaction, and return its report with the brakes that it tripped."""
    return _Closing(connection, turn, opening, progress).close(brake)


@dataclass(frozen=True, slots=True)
class _Closing:
    connection: Connection
    turn: FencedTransaction
    opening: Opening
    progress: Progress

    def close(self, brake: Callable[[StageReport], Sequence[str]]) -> StageReport:
        connection, turn, opening, progress = self.connection, self.turn, self.opening, self.progress
        report = self._report()
        tripped, accepted = brake(report), progress.policy.accepted
        report = replace(
            report,
            brakes=tuple(name for name in tripped if name not in accepted),
            accepted=tuple(name for name in tripped if name in accepted),
        )
        lasting = opening if is_repeatable(connection, turn.scope_id, progress) else replace(opening, stamp="")
        if judge(connection, turn, lasting, report):
            progress.digests.keep(connection, turn.scope_id, progress.marks)
        if not report.brakes:  # else the read is not believed so far: nothing has vanished
            self._mark_vanished()
            mark_past(connection, chain(progress.marks.past, progress.marks.dropped), turn.now())
        turn.note(
            connection,
            phase=Phase.STAGED.value,
            is_whole=opening.is_whole,
            read_account=dump(report.account),
            stage_report=dump(report),
            brakes=json.dumps(report.brakes),
        )
        return report

    def _report(self) -> StageReport:
        """Settle all that the read leaves open, and return its report before the brakes are asked."""
        connection, turn, opening, progress = self.connection, self.turn, self.opening, self.progress
        marks, tally, policy = progress.marks, progress.tally, progress.policy
        self._mark_rows_of_stems()
        unread, withdrawn_present = self._withdraw()
        progress.duplicates.write(connection)
        lock_service(connection, turn.scope_id)
        held = settle_held(connection, turn, opening, progress)
        hold_staged_beside(connection, turn, progress)
        alongside = self._alongside()
        before = marks.count_present() - held
        if policy.on_vanish == "report":
            sort_out(connection, self._absent(before - withdrawn_present), marks, progress.unread, turn.now())
        tally.vanished = marks.count_vanished()
        tally.standing = progress.listed.standing
        tally.redrafted = sum(map(marks.is_mapped, waiting(connection, turn.scope_id)))
        report = tally.report(
            turn.run_id, is_whole=opening.is_whole, known_before=opening.known_before, last_whole_read=opening.last_whole_read
        )
        report.account.check()
        report = replace(
            report,
            is_marking=policy.on_vanish == "report",
            past=len(marks.past),
            past_rows=len(marks.past) if policy.row_parts is None else 0,
            met=before - tally.unreleased,
            present=before - withdrawn_present + tally.new - tally.restaged,
            alongside=alongside,
            stood=opening.brakes,
            key_definition=policy.key_definition,
            has_new_keys=opening.has_other_keys(policy.key_definition),
            is_blind=bool(unread) and not opening.is_whole and not opening.was_free,
            **self._left_out(),
        )
        if report.account.new - report.restaged + report.waiting >= _ALIKE_AT_LEAST and policy.kind is not ReadKind.CHOSEN:
            alike = count_alike(connection, turn, marks, is_whole=opening.is_whole, released_id=opening.released_id)
            report = replace(report, alike=alike)
        return with_history(connection, turn, report)

    def _alongside(self) -> Alongside | None:
        """Return who else delivers the rows of a feed of which nothing was ever let out.

        Where a person accepts that for this run, the rows that were held for its sake are freed.
        """
        opening, progress = self.opening, self.progress
        if opening.released_id:
            return None
        found = find_alongside(self.connection, self.turn.scope_id)
        if found is None and "scope" in opening.brakes:
            found = self._found_before()
        if found is None or "scope" not in progress.policy.accepted:
            return found
        progress.duplicates.apart.add(found.scope_id)
        settle_held(self.connection, self.turn, opening, progress)
        return replace(found, held=0)

    def _found_before(self) -> Alongside | None:
        """Return what the last read found, which freed the rows and did not open the gate."""
        stored = read_report(self.connection, self.turn.scope_id, self.opening.before_run)
        found = stored.alongside if stored is not None else None
        return found if found is not None and found.scope_id in read_neighbours(self.connection, self.turn.scope_id) else None

    def _left_out(self) -> dict[str, Any]:
        """Return how many entries, of how many, each rule newly leaves out though their events are to come."""
        marks = self.progress.marks
        rules = Counter(rule for entry_id, rule in self.progress.left_out.items() if marks.is_vanished(entry_id))
        if rules.total() < _LEFT_OUT_AT_LEAST:
            return {}
        to_come = count_to_come(self.connection, self.turn.scope_id, self.turn.now())
        return {"left_out": dict(rules.most_common()), "to_come": to_come}

    def _withdraw(self) -> tuple[int, int]:
        """Take back pending entries of which nothing was ever sent: those that two rows claim, and those that the source no
        longer asks for (gone from a whole read, deleted, or present in this one as rejected or skipped).

        Return how many were not read, and how many known ones that the source has were taken out of the ledger.
        """
        unread, known, waiting_rows = 0, 0, 0
        marks, tally = self.progress.marks, self.progress.tally
        taken = TakenBack(self.connection, self.turn.now())
        taken.delete(entry_id for entry_id in marks.conflicting if entry_id > marks.boundary)
        for row in self._entries(_ROWS, EntryState.PENDING):
            if row.attempts:
                continue
            is_unasked, is_present = not marks.is_mapped(row.id), marks.is_present(row.id)
            is_unreleased = row.id > self.opening.released_id
            tally.unreleased += is_unreleased and is_present
            if marks.is_conflicting(row.id):
                known += taken.take(row) and is_present
            elif is_unasked and (self.opening.is_whole or is_present or marks.is_deleted(row.id)):
                known += taken.take(row) and is_present
                tally.withdrawn += 1
            else:
                unread += is_unasked
                waiting_rows += not is_unasked and is_unreleased
        tally.waiting = waiting_rows
        taken.write()
        tally.restless += taken.drafts
        return unread, known

    def _mark_rows_of_stems(self) -> None:
        """Mark as deleted the earlier events of each row that this read has met, where it does not stand for them any more."""
        progress, marks = self.progress, self.progress.marks
        stems = progress.stems | progress.left_out_stems.keys()
        for row in self._entries(_ROWS, *EntryState) if stems else ():
            stem = stem_of(row.row_key, progress.policy.row_parts)
            if stem in stems and not marks.is_present(row.id):
                marks.mark_deleted(row.id)
                if stem in progress.left_out_stems:
                    progress.left_out[row.id] = progress.left_out_stems[stem]

    def _absent(self, present: int) -> Iterable[int]:
        """Return the entries that a whole read has not met, and those that are gone by the source's word or by a rule.

        `present`: how many of those before this read that are not held it has met, which are none of them marked as gone.
        """
        marks = self.progress.marks
        if self.progress.policy.kind is ReadKind.CHOSEN:
            return ()
        if self.opening.is_whole and count_unmarked(self.connection, self.turn.scope_id, marks.boundary) != present:
            return (row.id for row in self._entries(_IDS, *EntryState) if not marks.is_present(row.id))
        return marks.deleted

    def _mark_vanished(self) -> None:
        for few in in_fews(self.progress.marks.vanished()):
            by_rule = defaultdict(list)
            for entry_id in few:
                by_rule[self.progress.left_out.get(entry_id, "")].append(entry_id)
            for rule, entries in by_rule.items():
                self.connection.execute(_VANISH, {"entries": entries, "now": self.turn.now(), "rule": rule})

    def _entries(self, page: Select[Any], *states: EntryState) -> Iterator[Row[*tuple[Any, ...]]]:
        """Yield the entries of before this read by state and by age, a page at a time."""
        asked = {"scope": self.turn.scope_id, "boundary": self.progress.marks.boundary}
        for state in states:
            after = 0
            while rows := self.connection.execute(page, {**asked, "in_state": state.value, "after": after}).all():
                yield from rows
                after = rows[-1].id
