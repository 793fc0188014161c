"""How a feed replaces its rows: whether new rows resemble rows that are gone, and whether earlier reads replaced as many."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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
from state.ledger.unchanged_source import is_lasting
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


_PAGE = 2_000
_ALIKE_AT_LEAST = 3
_LEFT_OUT_AT_LEAST = 3
"""Fewer rows than these trip no brake, and are not counted."""

_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
# A row that a person has ignored is listed again: that it is gone is a change.
_VANISH = (
    update(ENTRY)
    .where(_SOME, ENTRY.c.vanished_at.is_(None))
    .values(
        vanished_at=bindparam("now", type_=ENTRY.c.vanished_at.type),
        vanished_by=bindparam("rule"),
        decision=case((ENTRY.c.decision == Decision.IGNORE.value, None), else_=ENTRY.c.decision),
    )
)
_PAGE_OF_STATE = (
    ENTRY.c.scope_id == bindparam("scope"),
    ENTRY.c.state == bindparam("in_state"),
    ENTRY.c.id > bindparam("after"),
    ENTRY.c.id <= bindparam("boundary"),
)
_ENTRIES = (
    select(ENTRY.c.id, ENTRY.c.attempts, ENTRY.c.revision, ENTRY.c.refused_request_id)
    .where(*_PAGE_OF_STATE)
    .order_by(ENTRY.c.id)
    .limit(_PAGE)
)
_IDS = select(ENTRY.c.id).where(*_PAGE_OF_STATE).order_by(ENTRY.c.id).limit(_PAGE)
_KEYS = select(ENTRY.c.id, ENTRY.c.row_key).where(*_PAGE_OF_STATE).order_by(ENTRY.c.id).limit(_PAGE)


def finish(
    connection: Connection,
    turn: FencedTransaction,
    opening: Opening,
    progress: Progress,
    brake: Callable[[StageReport], Sequence[str]],
) -> StageReport:
    """End a read in the caller's transaction, and return its report with the brakes that it tripped."""
    tally = progress.tally
    _hear_of_rows(connection, turn, progress)
    unheard, taken_back = _withdraw(connection, turn, opening, progress)
    progress.duplicates.write(connection)
    lock_service(connection, turn.scope_id)
    held = settle_held(connection, turn, opening, progress)
    hold_staged_beside(connection, turn, progress)
    alongside = _alongside(connection, turn, opening, progress)
    before = progress.marks.count_present() - held
    is_marking = progress.terms.on_vanish == "report"
    if is_marking:
        absent = _absent(connection, turn, opening, progress, present=before - taken_back)
        sort_out(connection, absent, progress.marks, progress.unspoken, turn.now())
    tally.vanished = progress.marks.count_vanished()
    tally.standing = progress.listed.standing
    tally.redrafted = sum(map(progress.marks.is_mapped, waiting(connection, turn.scope_id)))
    report = tally.report(
        turn.run_id, is_whole=opening.is_whole, known_before=opening.known_before, last_whole_read=opening.last_whole_read
    )
    report.account.check()
    present = before - taken_back + tally.new - tally.restaged
    report = replace(report, is_marking=is_marking, past=len(progress.marks.past))
    report = replace(report, met=before - tally.unreleased, present=present)
    report = replace(report, past_rows=report.past if progress.terms.row_parts is None else 0)
    report = replace(report, alongside=alongside, stood=opening.brakes, **_left_out(connection, turn, progress))
    report = replace(report, key_definition=progress.terms.key_definition, has_new_keys=_has_new_keys(opening, progress))
    if report.account.new - report.restaged + report.waiting >= _ALIKE_AT_LEAST and progress.terms.reach is not ReadKind.PICKED:
        alike = count_alike(connection, turn, progress.marks, is_whole=opening.is_whole, released_id=opening.released_id)
        report = replace(report, alike=alike)
    report = with_history(connection, turn, report)
    report = _braked(report, brake(report), progress.terms.accepted)
    report = replace(report, is_blind=bool(unheard) and not opening.is_whole and not opening.was_free)
    lasting = opening if is_lasting(connection, turn.scope_id, progress) else replace(opening, stamp="")
    if judge(connection, turn, lasting, report):
        progress.digests.keep(connection, turn.scope_id, progress.marks)
    if not report.brakes:
        _mark_vanished(connection, turn, progress)
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


def _alongside(connection: Connection, turn: FencedTransaction, opening: Opening, progress: Progress) -> Alongside | None:
    """Return who else delivers the rows of a feed of which nothing was ever let out.

    Where a person accepts that for this run, the rows that were held for its sake are freed.
    """
    if opening.released_id:
        return None
    found = find_alongside(connection, turn.scope_id)
    if found is None and "scope" in opening.brakes:
        found = _found_before(connection, turn, opening)
    if found is None or "scope" not in progress.terms.accepted:
        return found
    progress.duplicates.apart.add(found.scope_id)
    settle_held(connection, turn, opening, progress)
    return replace(found, held=0)


def _found_before(connection: Connection, turn: FencedTransaction, opening: Opening) -> Alongside | None:
    """Return what the last read found, which freed the rows and was let out for nobody."""
    stored = read_report(connection, turn.scope_id, opening.before_run)
    found = stored.alongside if stored is not None else None
    return found if found is not None and found.scope_id in read_neighbours(connection, turn.scope_id) else None


def _left_out(connection: Connection, turn: FencedTransaction, progress: Progress) -> dict[str, Any]:
    """Return how many entries, of how many, each rule newly leaves out though their events are to come."""
    rules = Counter(rule for entry_id, rule in progress.left_out.items() if progress.marks.is_vanished(entry_id))
    if rules.total() < _LEFT_OUT_AT_LEAST:
        return {}
    return {"left_out": dict(rules.most_common()), "to_come": count_to_come(connection, turn.scope_id, turn.now())}


def _has_new_keys(opening: Opening, progress: Progress) -> bool:
    asked = progress.terms.key_definition
    return bool(asked and opening.key_definition and asked != opening.key_definition)


def _withdraw(connection: Connection, turn: FencedTransaction, opening: Opening, progress: Progress) -> tuple[int, int]:
    """Take back pending entries of which nothing was ever sent: those that two rows claim, and those that the source no
    longer asks for (gone from a whole read, gone by its word, or met in this one as rejected or skipped). Return how many
    were not heard of, and how many known ones that the source has were taken out of the ledger.
    """
    unheard, waiting_rows, marks = 0, 0, progress.marks
    taken = TakenBack(connection, turn.now())
    taken.delete(entry_id for entry_id in marks.conflicting if entry_id > marks.boundary)
    known = 0
    for row in _never_sent(connection, turn, marks.boundary):
        is_unasked, is_unreleased = not marks.is_mapped(row.id), row.id > opening.released_id
        progress.tally.unreleased += is_unreleased and marks.is_present(row.id)
        if marks.is_conflicting(row.id) or (
            is_unasked and (opening.is_whole or marks.is_present(row.id) or marks.is_deleted(row.id))
        ):
            known += taken.take(row) and marks.is_present(row.id)
            progress.tally.withdrawn += not marks.is_conflicting(row.id)
        else:
            unheard += is_unasked
            waiting_rows += not is_unasked and is_unreleased
    progress.tally.waiting = waiting_rows
    taken.write()
    progress.tally.restless += taken.drafts
    return unheard, known


def _braked(report: StageReport, tripped: Sequence[str], accepted: Sequence[str]) -> StageReport:
    return replace(
        report,
        brakes=tuple(name for name in tripped if name not in accepted),
        accepted=tuple(name for name in tripped if name in accepted),
    )


def _hear_of_rows(connection: Connection, turn: FencedTransaction, progress: Progress) -> None:
    """Lose the events that came of a row before, and that the row, which this read has come to, does not stand for any more."""
    stems = progress.stems | progress.left_out_stems.keys()
    if not stems:
        return
    for state in EntryState:
        for row in _pages(connection, _KEYS, turn, state, progress.marks.boundary):
            stem = stem_of(row.row_key, progress.terms.row_parts)
            if stem in stems and not progress.marks.is_present(row.id):
                progress.marks.mark_deleted(row.id)
                if stem in progress.left_out_stems:
                    progress.left_out[row.id] = progress.left_out_stems[stem]


def _absent(
    connection: Connection, turn: FencedTransaction, opening: Opening, progress: Progress, *, present: int
) -> Iterable[int]:
    """Return the entries that a whole read has not met, and those that are gone by the source's word or by a rule.

    `present`: how many of those before this read that are not held it has met, which are none of them marked as gone.
    """
    marks = progress.marks
    if progress.terms.reach is ReadKind.PICKED:
        return ()
    if opening.is_whole and count_unmarked(connection, turn.scope_id, marks.boundary) != present:
        return _unmet(connection, turn, progress)
    return marks.deleted


def _unmet(connection: Connection, turn: FencedTransaction, progress: Progress) -> Iterator[int]:
    marks = progress.marks
    rows = (row for state in EntryState for row in _pages(connection, _IDS, turn, state, marks.boundary))
    return (row.id for row in rows if not marks.is_present(row.id))


def _mark_vanished(connection: Connection, turn: FencedTransaction, progress: Progress) -> None:
    """Mark the entries that a read has not met. A read that a brake stops is not believed so far: it marks none."""
    for few in in_fews(progress.marks.vanished()):
        by_rule = defaultdict(list)
        for entry_id in few:
            by_rule[progress.left_out.get(entry_id, "")].append(entry_id)
        for rule, entries in by_rule.items():
            connection.execute(_VANISH, {"entries": entries, "now": turn.now(), "rule": rule})


def _never_sent(connection: Connection, turn: FencedTransaction, boundary: int) -> Iterator[Row[*tuple[Any, ...]]]:
    pages = _pages(connection, _ENTRIES, turn, EntryState.PENDING, boundary)
    return (row for row in pages if row.attempts == 0)


def _pages(
    connection: Connection, page: Select[Any], turn: FencedTransaction, state: EntryState, boundary: int
) -> Iterator[Row[*tuple[Any, ...]]]:
    """Yield the entries of one state by age, up to the boundary, a page at a time."""
    after = 0
    while rows := connection.execute(
        page, {"scope": turn.scope_id, "in_state": state.value, "after": after, "boundary": boundary}
    ).all():
        yield from rows
        after = rows[-1].id
