"""The end of a read: withdraw and mark what its source no longer asks for, balance the account, set the gate."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, bindparam, case, func, or_, select, update

from state.enums import Decision, EntryState, Phase
from state.ledger.absent_rows import MAY_BE_OUT, TakenBack, count_to_come, count_unmarked, in_fews, mark_past, sort_out
from state.ledger.accounts import READS_THAT_TELL, Alongside, StageReport, dump
from state.ledger.alongside import find_alongside
from state.ledger.compare import Progress
from state.ledger.duplicates import lock_service, read_neighbours
from state.ledger.entries import waiting
from state.ledger.gate import Opening, judge, read_report
from state.ledger.held import hold_staged_beside, settle_held
from state.ledger.lease import FencedTransaction
from state.ledger.problems import stem_of
from state.ledger.read_marks import ReadMarks
from state.ledger.stage_policy import ReadKind
from state.ledger.unchanged_source import is_repeatable
from state.tables import ENTRY, RUN

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
