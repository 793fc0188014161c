"""The end of a read: withdraws and marks rows that the source no longer has, judges held rows, balances the account, sets the
gate.

A held row is released if nothing resembles it any more, and the row that it resembled is known to be in its source or has no
event. If that row is gone, the held one may be the same row under another key, with changed content. For the same reason new rows
are held here that are like a vanished one, or like rows of another feed that has most rows of this one.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from mappings.row_key import RowKey
from state.database import in_pages
from state.enums import GateState, Observed, Outcome, Phase, ProblemKind
from state.facts import Plan, Reading, Tried, plan
from state.ledger.accounts import READS_COMPARED, Alongside, Candidate, ReadKind, StageReport, dump
from state.ledger.copies import Neighbour, read_neighbours
from state.ledger.entries import (
    ASKED,
    CANDIDATE,
    EDITED,
    IS_GONE,
    IS_IGNORED,
    IS_NEVER_SENT,
    IS_OPEN,
    IS_UNDECIDED,
    MAY_GET_EVENT,
    MAY_HAVE_EVENT,
    OBSERVED,
    PAYLOAD,
    SOME,
    TRIED,
    count_entries,
    count_in_source,
    count_to_come,
    delete_entries,
    differing_fields,
    end_at,
    ends_at_of,
    find_takers,
    forget_observations,
    is_to_come,
    mark_anew,
    observe,
    release,
)
from state.ledger.gate import Bookmark, brakes_of, drop_bookmark, has_new_keys, judge
from state.ledger.likeness import AT_LEAST, MOST_COMPARED, Candidates, find_elsewhere, pairs, pairs_elsewhere
from state.ledger.problems import held, stem_of, strike, write_problems
from state.ledger.reads import Mark, SourceRead
from state.tables import ATTEMPT, BODY, ENTRY, OBSERVATION, RUN

_PAGE = 2_000
_MANY_CHANGES = 20
"""Fewer rows than this that change in the same field trip no brake."""
_Row = Row[*tuple[Any, ...]]
_ABSENT = select(ENTRY.c.id, ENTRY.c.row_key, EDITED, ENTRY.c.ends_at, ENTRY.c.outcome, TRIED.label("tried"))
_ABSENT = _ABSENT.where(SOME, ~IS_GONE)
_LIKE = update(OBSERVATION).where(OBSERVATION.c.entry_id == bindparam("entry")).values(candidate_id=bindparam("like"))
_UNSENT = (IS_NEVER_SENT, IS_OPEN, ENTRY.c.revision == 0, IS_UNDECIDED)
_PAYLOAD = ("body", "cover_url", "cover_on_error")


def close_stage(
    connection: Connection, read: SourceRead, brake: Callable[[StageReport], Sequence[str]], bookmark: Bookmark | None
) -> StageReport:
    """End a read in the caller's transaction, and return its report with the brakes that tripped."""
    return _Closing(connection, read).close(brake, bookmark)


class _Closing:
    """Ends one read. `_past`: entries whose rows are gone after their event; `_dropped`: missing ones that cannot have an
    event; `_settled`: removed ones whose rows are gone again; `_ends`: when the events of edited rows that are gone are over.
    """

    def __init__(self, connection: Connection, read: SourceRead) -> None:
        self._connection = connection
        self._read, self._run, self._marks, self._tally = read, read.run, read.marks, read.tally
        self._past, self._dropped, self._settled = array("q"), array("q"), array("q")
        self._freed = set[int]()
        self._ends: dict[int, datetime | None] = {}
        self._neighbours: Mapping[int, Neighbour] = {}

    def close(self, brake: Callable[[StageReport], Sequence[str]], bookmark: Bookmark | None) -> StageReport:
        connection, run, read = self._connection, self._run, self._read
        report = self._report()
        tripped, accepted = brake(report), read.policy.accepted
        report = replace(
            report,
            brakes=tuple(name for name in tripped if name not in accepted),
            accepted=tuple(name for name in tripped if name in accepted),
        )
        stamp = read.stamp if self._is_repeatable() else ""
        if report.is_blind and read.policy.kind is ReadKind.INCREMENTAL:  # it never meets them: the next one is a full one
            drop_bookmark(connection, run.scope_id)
        if judge(connection, run, read.scope, report, stamp=stamp, bookmark=bookmark):
            read.digests.keep(connection, run.scope_id)
        if not report.brakes:  # otherwise the read may be wrong: nothing has vanished
            self._mark_gone()
        accounts = {"read_account": dump(report.account), "stage_report": dump(report), "brakes": json.dumps(report.brakes)}
        run.note(connection, phase=Phase.STAGED.value, is_whole=read.is_whole, **accounts)
        return report

    def _report(self) -> StageReport:
        """Settle all open questions of the read, and return its report without brakes."""
        connection, run, read, marks, tally = self._connection, self._run, self._read, self._marks, self._tally
        policy, scope = read.policy, read.scope
        self._mark_rows_of_stems()
        unread, withdrawn_present = self._withdraw()
        read.duplicates.write(connection)
        held_before = self._settle_held() + self._hold_restaged()
        self._hold_staged_beside()
        alongside = self._find_alongside()
        before = marks.count(Mark.PRESENT) - held_before
        if policy.on_vanish == "report":
            self._sort_out(self._find_absent(before - withdrawn_present))
        alike = self._match_missing()
        account = tally.account()
        account.check()
        report = tally.report(
            run.run_id,
            vanished=marks.count(Mark.VANISHED),
            standing=read.listed.standing,
            is_whole=read.is_whole,
            known_before=read.known_before,
            last_whole_read=scope.last_whole_read,
            is_marking=policy.on_vanish == "report",
            past=len(self._past),
            past_rows=len(self._past) if policy.row_parts is None else 0,
            met=before - tally.unreleased,
            present=before - withdrawn_present + account.new - tally.restaged,
            alike=alike,
            alongside=alongside,
            stood=brakes_of(scope.gate_reason),
            key_definition=policy.key_definition,
            has_new_keys=has_new_keys(scope, policy.key_definition),
            is_blind=bool(unread) and not read.is_whole and (scope.gate != GateState.OPEN or bool(scope.gate_reason)),
            **self._among_to_come(),
        )
        return self._with_history(report)

    def _is_repeatable(self) -> bool:
        """Return whether reading the same rows again would have the same outcome, before and after publishing.

        A cancelled row is left out until its event is delivered after all. If two rows claim a key, both are new in every read,
        with their warnings; whether they count as copies depends on what was staged after them.
        """
        tally, is_conflicting = self._tally, any(self._marks.find(Mark.CONFLICTING))
        if tally.restless or (is_conflicting and tally.warnings):
            return False
        is_owed = (ENTRY.c.scope_id == self._run.scope_id, ENTRY.c.outcome.in_((Outcome.OWED, Outcome.DENIED)), IS_OPEN)
        return not ((tally.called_off or is_conflicting) and count_entries(self._connection, *is_owed))

    def _mark_rows_of_stems(self) -> None:
        """Mark as deleted the earlier events of rows in this read that the row does not have any more."""
        read = self._read
        stems = read.stems | read.left_out_stems.keys()
        rows = select(ENTRY.c.id, ENTRY.c.row_key).where(*self._of_feed_before()).execution_options(yield_per=_PAGE)
        for row in self._connection.execute(rows) if stems else ():
            stem = stem_of(row.row_key, read.policy.row_parts)
            if stem in stems and not self._marks.has(row.id, Mark.PRESENT):
                self._marks.mark(row.id, Mark.DELETED)
                if stem in read.left_out_stems:
                    read.left_out[row.id] = read.left_out_stems[stem]

    def _withdraw(self) -> tuple[int, int]:
        """Withdraw owed entries that were never sent, if two rows claim them, or the source no longer asks for them (missing in
        a full read, deleted, or now rejected or skipped).

        An entry whose key was used, though nothing was created, becomes idle: any later payload reopens it. Return how many
        entries were not read, and how many known ones that the source has were removed from the ledger.
        """
        unread = known = 0
        marks, tally = self._marks, self._tally
        deleted, idle = array("q", (one for one in marks.find(Mark.CONFLICTING) if one > marks.boundary)), array("q")
        has_used_key = or_(ENTRY.c.revision > 0, exists().where(ATTEMPT.c.entry_id == ENTRY.c.id)).label("has_used_key")
        owed = select(ENTRY.c.id, has_used_key).where(*self._of_feed_before(), IS_NEVER_SENT, IS_OPEN)
        for row in self._in_pages(owed):
            is_present, is_unasked = marks.has(row.id, Mark.PRESENT), not marks.has(row.id, Mark.MAPPED)
            is_unreleased = row.id > self._read.scope.released_id
            is_conflicting = marks.has(row.id, Mark.CONFLICTING)
            tally.unreleased += is_unreleased and is_present
            if is_conflicting or (is_unasked and (self._read.is_whole or is_present or marks.is_deleted(row.id))):
                tally.withdrawn += not is_conflicting
                if row.has_used_key:
                    idle.append(row.id)
                else:
                    deleted.append(row.id)
                    known += is_present
            else:
                unread += is_unasked
                tally.waiting += not is_unasked and is_unreleased
        delete_entries(self._connection, deleted)
        self._become(Outcome.IDLE, idle)
        return unread, known

    def _become(self, outcome: Outcome, entries: Iterable[int]) -> None:
        """Give entries another outcome, without what their source said."""
        for page in in_pages(entries):
            changed = update(ENTRY).where(ENTRY.c.id.in_(page)).values(outcome=outcome.value, changed_at=self._run.now())
            self._connection.execute(changed)
            forget_observations(self._connection, page)

    def _find_alongside(self) -> Alongside | None:
        """Return another scope that delivers the rows of a feed of which nothing was released yet, None if there is none.

        Its new rows that are like events there are held. If a person accepts that for this run, all of them are released.
        """
        connection, scope, duplicates = self._connection, self._read.scope, self._read.duplicates
        known = None if scope.released_id else find_elsewhere(connection, scope.id)
        if known is None:
            return None
        found, is_namesake = known.found, not known.found.feed
        if "scope" in self._read.policy.accepted:
            duplicates.apart.add(found.scope_id)
            self._settle_held()
            return found
        self._hold_alike(lambda row: known.candidates.give(pairs_elsewhere(row.row_key, row.body, is_namesake=is_namesake)))
        is_held = (ENTRY.c.scope_id == scope.id, ENTRY.c.outcome == Outcome.HELD, IS_OPEN, ~IS_IGNORED)
        held_for = connection.execute(select(CANDIDATE).where(*is_held)).scalars().all()
        of_other = select(ENTRY.c.id).where(SOME, ENTRY.c.scope_id == found.scope_id)
        pages = in_pages({entry_id for entry_id in held_for if entry_id})
        known_there = {entry_id for page in pages for entry_id in connection.execute(of_other, {"entries": page}).scalars()}
        return replace(found, held=sum(entry_id in known_there for entry_id in held_for))

    def _find_absent(self, present: int) -> Iterable[int]:
        """Return the entries that a full read has not met, and those that were deleted or are left out by a rule.

        `present`: how many entries from before this read, neither held nor marked as gone, it has met.
        """
        marks = self._marks
        if self._read.policy.kind is ReadKind.CHOSEN:
            return ()
        if self._read.is_whole and count_in_source(self._connection, self._run.scope_id, marks.boundary) != present:
            ids = select(ENTRY.c.id).where(*self._of_feed_before()).execution_options(yield_per=_PAGE)
            every = self._connection.execute(ids).scalars()
            return array("q", (entry_id for entry_id in every if not marks.has(entry_id, Mark.PRESENT)))
        return marks.find(Mark.DELETED)

    def _sort_out(self, absent: Iterable[int]) -> None:
        """Mark missing entries as vanished, past or without an event at the service."""
        now = self._now()
        for page in in_pages(absent):
            for row in self._connection.execute(_ABSENT, {"entries": page}):
                if self._marks.has(row.id, Mark.PRESENT) or self._read.unread.covers(row.row_key):
                    continue
                ends_at = row.ends_at if row.edited is None else ends_at_of(row.edited)
                if ends_at != row.ends_at:
                    self._ends[row.id] = ends_at
                is_over = ends_at is not None and ends_at <= now
                facts = Outcome(row.outcome), Tried(row.tried)
                match plan(*facts, Reading.OVER if is_over else Reading.ABSENT):
                    case Plan.VANISH:
                        self._marks.mark(row.id, Mark.VANISHED)
                    case Plan.END if plan(*facts, Reading.ABSENT) is Plan.VANISH:
                        self._past.append(row.id)
                    case Plan.END:
                        self._dropped.append(row.id)
                    case Plan.SETTLE:
                        self._settled.append(row.id)
                    case _:
                        pass

    def _mark_gone(self) -> None:
        """Record rows as vanished, with the rule that leaves them out, or as gone after their event; later reads do not count
        them again.
        """
        connection, seen = self._connection, {"scope_id": self._run.scope_id, "seen_at": self._run.now()}
        for page in in_pages(self._marks.find(Mark.VANISHED)):
            said = {**seen, "kind": Observed.VANISHED.value}
            observe(connection, [{**said, "entry_id": one, "rule": self._read.left_out.get(one) or None} for one in page])
        for page in in_pages(chain(self._past, self._dropped)):
            observe(connection, [{**seen, "kind": Observed.GONE.value, "entry_id": entry_id} for entry_id in page])
        forget_observations(connection, self._settled)
        end_at(connection, self._ends)

    def _among_to_come(self) -> dict[str, Any]:
        """Return how many entries each rule newly leaves out, and how many changed in each field, out of how many with future
        events.
        """
        left_out = self._read.left_out.items()
        rules = Counter(rule for entry_id, rule in left_out if self._marks.has(entry_id, Mark.VANISHED))
        changed = self._count_changes()
        if rules.total() < AT_LEAST and not changed:
            return {}
        to_come = count_to_come(self._connection, self._run.scope_id, self._now())
        return {"left_out": dict(rules.most_common()), "changed": dict(changed.most_common()), "to_come": to_come}

    def _now(self) -> datetime:
        """Return the time by which events are over."""
        return self._read.policy.as_of or self._run.now()

    def _count_changes(self) -> Counter[str]:
        """Count by field the rows that changed since the last read that was let out, without fields in which few did.

        A draft that is to be published differs on purpose.
        """
        connection, marks, fields = self._connection, self._marks, Counter[str]()
        is_change = OBSERVATION.c.kind.in_((Observed.EDITED, Observed.TO_PUBLISH))
        changed = select(OBSERVATION.c.entry_id).where(OBSERVATION.c.scope_id == self._run.scope_id, is_change)
        ids = connection.execute(changed).scalars().all()
        if len(ids) >= _MANY_CHANGES and (since := self._end_of_let_out_reads()) is not None:
            ids = connection.execute(changed.where(OBSERVATION.c.seen_at >= since)).scalars().all()
        is_listed = (SOME, MAY_HAVE_EVENT, ~IS_IGNORED, is_to_come(self._now()))
        for page in in_pages(ids) if len(ids) >= _MANY_CHANGES else ():
            for row in connection.execute(select(ENTRY.c.id, PAYLOAD, ASKED).where(*is_listed), {"entries": page}):
                if not self._read.is_whole or marks.has(row.id, Mark.PRESENT):
                    fields.update(differing_fields(row.body, row.asked) - {"status"})
        return Counter({name: count for name, count in fields.items() if count >= _MANY_CHANGES})

    def _end_of_let_out_reads(self) -> datetime | None:
        """Return when the first run began after the last read whose gate opened, None if none ever did."""
        scope, of_feed = self._read.scope, RUN.c.scope_id == self._run.scope_id
        reads = select(RUN.c.id, RUN.c.started_at, RUN.c.brakes, RUN.c.stage_report).order_by(RUN.c.started_at.desc())
        reads = reads.where(of_feed, RUN.c.id != self._run.run_id, RUN.c.stage_report.is_not(None)).limit(READS_COMPARED)
        for row in self._connection.execute(reads):
            is_accepted = scope.gate == GateState.OPEN and row.id == scope.gate_run
            if is_accepted or (row.brakes == "[]" and not json.loads(row.stage_report)["is_blind"]):
                first = select(func.min(RUN.c.started_at)).where(of_feed, RUN.c.started_at > row.started_at)
                return self._connection.execute(first).scalar()
        return None

    def _with_history(self, report: StageReport) -> StageReport:
        """Return the report with the numbers of similar earlier reads.

        Similar are released full reads that lost and gained at least half as many rows, or of whose new rows half as many
        agreed with missing ones. A read that gains many rows and loses few replaces nothing.
        """
        new = report.account.new - report.restaged + report.waiting
        lost = report.vanished + report.past
        is_replacing = bool(new) and lost * 2 > new
        if not (is_replacing or report.alike):
            return report
        latest = (
            select(RUN.c.stage_report)
            .where(RUN.c.scope_id == self._run.scope_id, RUN.c.id != self._run.run_id, RUN.c.is_whole, RUN.c.brakes == "[]")
            .where(RUN.c.stage_report.is_not(None))
            .order_by(RUN.c.started_at.desc())
            .limit(READS_COMPARED)
        )
        replaced = alike = 0
        for stored in map(json.loads, self._connection.execute(latest).scalars()):
            gained = stored["account"]["new"] - stored["restaged"] + stored.get("waiting", 0)
            has_lost = (stored["vanished"] + stored.get("past", 0)) * 2 >= lost
            replaced += is_replacing and gained * 2 >= new and has_lost
            alike += bool(report.alike) and stored.get("alike", 0) * 2 >= report.alike
        return replace(report, replaced_before=replaced, alike_before=alike)

    def _match_missing(self) -> int:
        """Hold the new rows that are like a vanished entry; return how many others are like a missing one, over or not.

        An entry of which a held row is a duplicate is no candidate for another row, nor is one that a person has ignored, or an
        event of a row that has others now.
        """
        connection, marks, new, policy = self._connection, self._marks, self._tally.unknown, self._read.policy
        if not new:
            return 0
        of_feed, now = ENTRY.c.scope_id == self._run.scope_id, self._now()
        known = select(ENTRY.c.id).where(of_feed, MAY_HAVE_EVENT)
        is_judged = new >= AT_LEAST and policy.kind is not ReadKind.CHOSEN
        if is_judged and self._read.is_whole:
            youngest = connection.execute(known.order_by(ENTRY.c.id.desc()).limit(MOST_COMPARED)).scalars()
            absent = [entry_id for entry_id in youngest if not marks.has(entry_id, Mark.PRESENT)]
        else:
            kinds = (Observed.VANISHED, Observed.GONE) if is_judged else (Observed.VANISHED,)
            seen = select(OBSERVATION.c.entry_id).where(OBSERVATION.c.scope_id == self._run.scope_id)
            seen = seen.where(OBSERVATION.c.kind.in_(kinds)).order_by(OBSERVATION.c.entry_id).limit(MOST_COMPARED)
            missing_ones = known.where(SOME, *(() if is_judged else (is_to_come(now),))).order_by(ENTRY.c.id)
            pages = (connection.execute(missing_ones, {"entries": page}) for page in in_pages(connection.execute(seen).scalars()))
            newly = filter(marks.is_deleted, marks.find(Mark.DELETED)) if is_judged else marks.find(Mark.VANISHED)
            absent = list(islice(chain((row.id for rows in pages for row in rows), newly), MOST_COMPARED))
        if not absent:
            return 0
        held = select(CANDIDATE, ENTRY.c.twin_digest).where(of_feed, ENTRY.c.outcome == Outcome.HELD, IS_OPEN)
        pairs_held = {tuple(row) for row in connection.execute(held)}
        digests = select(ENTRY.c.id, ENTRY.c.twin_digest).where(SOME)
        pages = (connection.execute(digests, {"entries": page}) for page in in_pages(one for one, _ in pairs_held if one))
        used = {row.id for rows in pages for row in rows if tuple(row) in pairs_held}
        vanished, missing = Candidates(), set[int]()
        facts = (OBSERVED.label("kind"), IS_IGNORED.label("is_ignored"), PAYLOAD, ASKED)
        columns = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.ends_at, *facts).where(SOME).order_by(ENTRY.c.id)
        for page in in_pages(entry_id for entry_id in absent if entry_id not in used):
            for row in connection.execute(columns, {"entries": page}):
                was_vanished = row.kind == Observed.VANISHED and not row.is_ignored
                is_vanished = policy.on_vanish == "report" and (was_vanished or marks.has(row.id, Mark.VANISHED))
                has_future = row.ends_at is None or row.ends_at > now
                if is_vanished and has_future:
                    vanished.add(row.id, pairs(row.body, row.asked), self._stem(row.row_key))
                else:
                    missing.update(pairs(row.body, row.asked))
        alike = 0

        def candidate_of(row: _Row) -> int:
            nonlocal alike
            found = vanished.give(pairs(row.body), self._stem(row.row_key))
            alike += not found and (vanished.has(pairs(row.body)) or not missing.isdisjoint(pairs(row.body)))
            return found

        if vanished or missing:
            self._hold_alike(candidate_of)
        return alike if is_judged else 0

    def _stem(self, row_key: RowKey) -> str:
        """Return the row of an event whose row gives several; "" in a feed whose rows give one each."""
        parts = self._read.policy.row_parts
        return "" if parts is None else stem_of(row_key, parts)

    def _hold_alike(self, candidate_of: Callable[[_Row], int]) -> None:
        """Hold the rows of this read, never released or sent, that have a candidate (not 0) and no person's decision."""
        found: dict[int, tuple[RowKey, str, int]] = {}
        for row in self._new_rows():
            if candidate := candidate_of(row):
                found[row.id] = (row.row_key, row.origin, candidate)
        others = self._read.duplicates.by_id(self._connection, {candidate for _, _, candidate in found.values()})
        self._hold({entry_id: (row_key, place, others[candidate]) for entry_id, (row_key, place, candidate) in found.items()})

    def _new_rows(self) -> Iterator[_Row]:
        """Yield the rows of this read that were never released or sent, and about which no person has decided."""
        new = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.origin, PAYLOAD).where(ENTRY.c.scope_id == self._run.scope_id, *_UNSENT)
        rows = islice(self._in_pages(new, after=self._read.scope.released_id), MOST_COMPARED)
        yield from (row for row in rows if self._marks.has(row.id, Mark.MAPPED))

    def _hold(self, found: Mapping[int, tuple[RowKey, str, Candidate]]) -> None:
        """Hold staged rows, by entry, with key, place and candidate."""
        tally, marks = self._tally, self._marks
        if not found:
            return
        names = ("entry_id", "scope_id", "kind", "fingerprint", "seen_at", *_PAYLOAD)
        shown = select(ENTRY.c.fingerprint).where(ENTRY.c.id == BODY.c.entry_id).scalar_subquery()
        said = (literal(self._run.scope_id), literal(Observed.HELD.value), shown)
        seen_at = literal(self._run.now(), OBSERVATION.c.seen_at.type)
        bodies = select(BODY.c.entry_id, *said, seen_at, *(BODY.c[name] for name in _PAYLOAD))
        for page in in_pages(found):
            held_ones = update(ENTRY).where(ENTRY.c.id.in_(page)).values(outcome=Outcome.HELD.value)
            self._connection.execute(held_ones)
            self._connection.execute(insert(OBSERVATION).from_select(names, bodies.where(BODY.c.entry_id.in_(page))))
            self._connection.execute(delete(BODY).where(BODY.c.entry_id.in_(page)))
        likes = [{"entry": entry_id, "like": candidate.entry_id} for entry_id, (_, _, candidate) in found.items()]
        self._connection.execute(_LIKE, likes)
        for entry_id, (row_key, place, candidate) in found.items():
            is_waiting = entry_id <= marks.boundary and entry_id not in self._freed  # staged by an earlier read
            is_restaged = is_waiting and marks.has(entry_id, Mark.STAGED)
            tally.unchanged -= is_waiting and not is_restaged
            tally.new -= is_restaged or not is_waiting
            tally.waiting -= is_waiting and entry_id > self._read.scope.released_id
            tally.restaged -= is_restaged
            tally.hold(place, row_key, candidate)
        rows = (held(place, row_key, candidate, {}) for row_key, place, candidate in found.values())
        write_problems(self._connection, self._run, rows)

    def _of_feed_before(self) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        """Return the conditions for the feed's entries from before this read."""
        return ENTRY.c.scope_id == self._run.scope_id, ENTRY.c.id <= self._marks.boundary

    def _in_pages(self, rows: Select[Any], after: int = 0) -> Iterator[_Row]:
        """Yield these entries by age; they may change while the caller has a page."""
        rows = rows.order_by(ENTRY.c.id).limit(_PAGE)
        while page := self._connection.execute(rows.where(ENTRY.c.id > after)).all():
            yield from page
            after = page[-1].id

    def _hold_staged_beside(self) -> None:
        """Hold new rows of this read that resemble entries which other feeds have staged since it began."""
        found: dict[int, tuple[RowKey, str, Candidate]] = {}
        beside = self._read.duplicates.find_staged_beside(self._connection, self._marks.boundary)
        for entry_id, row_key, place, candidate in beside:
            found.setdefault(entry_id, (row_key, place, candidate))
        self._hold(found)

    def _hold_restaged(self) -> int:
        """Hold rows of earlier reads, never sent, that now look like an older entry, as a new row is held; return how many."""
        if not (self._tally.restaged and self._read.policy.holds_copies):
            return 0
        held = dict[int, tuple[RowKey, str, Candidate]]()
        unsent = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.origin, ENTRY.c.twin_digest).where(*self._of_feed_before(), *_UNSENT)
        for page in in_pages(self._in_pages(unsent)):
            rows = [row for row in page if self._marks.has(row.id, Mark.STAGED)]
            alike = self._read.duplicates.find(self._connection, {row.twin_digest for row in rows})
            pairs = ((row, alike.get(row.twin_digest)) for row in rows)
            held |= {row.id: (row.row_key, row.origin, like) for row, like in pairs if like and like.entry_id != row.id}
        self._hold(held)
        self._tally.unreleased -= sum(entry_id > self._read.scope.released_id for entry_id in held)
        return len(held)

    def _settle_held(self) -> int:
        """Judge the held rows that this read has mapped, and delete unmapped ones without a decision.

        Return how many entries from before this read are or were held and are in the source. All marks must be written.
        """
        connection, scope_id, marks, present = self._connection, self._run.scope_id, self._marks, 0
        names = ("id", "row_key", "twin_digest", "revision", "created_at")
        held_rows = select(*(ENTRY.c[name] for name in names), CANDIDATE, IS_IGNORED.label("is_ignored"))
        is_held = (ENTRY.c.scope_id == scope_id, ENTRY.c.outcome == Outcome.HELD, IS_OPEN)
        self._neighbours = read_neighbours(connection, scope_id)
        for page in in_pages(self._in_pages(held_rows.where(*is_held))):
            mapped, over = [], []
            for row in page:
                present += row.id <= marks.boundary and marks.has(row.id, Mark.PRESENT)
                if row.is_ignored:
                    continue
                if marks.has(row.id, Mark.MAPPED):
                    if not marks.has(row.id, Mark.CONFLICTING):
                        mapped.append(row)
                elif self._read.is_whole or marks.has(row.id, Mark.PRESENT | Mark.DELETED):
                    over.append(row)
            self._judge_held(mapped)
            delete_entries(self._connection, [row.id for row in over if not row.revision])
            # The keys of an entry that had an event were used: it stays, so that the row never goes out under one of them again.
            self._become(Outcome.MOVED, [row.id for row in over if row.revision])
            strike(connection, scope_id, ProblemKind.HELD, [row.row_key for row in over])
        return present

    def _judge_held(self, page: Collection[_Row]) -> None:
        """Release the held rows of a page that nothing resembles any more; the others stay held, with the right candidate."""
        if not page:
            return
        connection = self._connection
        candidates = self._resolve({row.candidate_id for row in page if row.candidate_id})
        others = self._read.duplicates.find(connection, {row.twin_digest for row in page})
        doubtful = [row for row in page if not self._still_holds(row, candidates.get(row.candidate_id or 0), others)]
        freed: dict[bytes, _Row] = {}
        likes = {row.id: candidates[row.candidate_id].id for row in page if row.candidate_id in candidates}
        likes = {row.id: likes[row.id] for row in page if likes.get(row.id, row.candidate_id) != row.candidate_id}
        for row in doubtful:
            other = others.get(row.twin_digest)
            entry_id = other.entry_id if other is not None else freed[row.twin_digest].id if row.twin_digest in freed else 0
            if entry_id:
                likes[row.id] = entry_id
            else:
                freed[row.twin_digest] = row
        rows, ids = freed.values(), [row.id for row in freed.values()]
        release(connection, ids, staged_run=self._run.number, changed_at=self._run.now())
        mark_anew(connection, ((row.id, row.twin_digest) for row in rows))
        strike(connection, self._run.scope_id, ProblemKind.HELD, [row.row_key for row in rows])
        for row in rows:
            self._freed.add(row.id)
            self._tally.free(row.row_key)
        if likes:
            connection.execute(_LIKE, [{"entry": entry_id, "like": like_id} for entry_id, like_id in likes.items()])

    def _still_holds(self, row: _Row, candidate: _Row | None, others: Collection[bytes]) -> bool:
        """Return whether a held row is like its candidate, or like none of `others` and that one's row may be gone."""
        if candidate is None or not candidate.may_get_event:
            return False
        scope_id = candidate.scope_id
        if scope_id not in self._neighbours or scope_id in self._read.duplicates.apart:
            return False
        if candidate.twin_digest == row.twin_digest or row.twin_digest in others:
            return bool(candidate.twin_digest == row.twin_digest)
        if scope_id != self._run.scope_id:
            read_at = self._neighbours[scope_id].whole_read_at
            return candidate.is_gone or read_at is None or bool(read_at <= row.created_at)
        is_gone = self._read.is_whole or candidate.is_gone or self._marks.is_deleted(candidate.id)
        return is_gone and not self._marks.has(candidate.id, Mark.PRESENT)

    def _resolve(self, entries: Collection[int]) -> dict[int, _Row]:
        """Return entries by id; one whose event was moved is replaced by the entry that has it."""
        columns = (*(ENTRY.c[name] for name in ("id", "scope_id", "outcome", "twin_digest")), IS_GONE.label("is_gone"))
        candidates = select(*columns, MAY_GET_EVENT.label("may_get_event"))
        takers, wanted = dict[int, int](), set(entries)
        while new := find_takers(self._connection, wanted - takers.keys()):
            takers |= new
            wanted |= set(new.values())
        rows = {row.id: row for row in self._connection.execute(candidates.where(ENTRY.c.id.in_(wanted)))}
        return {entry_id: _taker_of(rows, takers, rows[entry_id]) for entry_id in entries if entry_id in rows}


def _taker_of(rows: Mapping[int, _Row], takers: Mapping[int, int], row: _Row) -> _Row:
    passed = {row.id}
    while row.outcome == Outcome.MOVED and (taker := rows.get(takers.get(row.id, 0))) is not None and taker.id not in passed:
        row = taker
        passed.add(row.id)
    return row
