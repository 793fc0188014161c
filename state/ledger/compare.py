"""One batch of rows against the ledger: each row is looked up, decided on, counted, and gathered for writing.

What the decision is stands in `plan`; which batches there are is `stage`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from sqlalchemy import Connection

from mappings.compiler.key import too_long_key
from mappings.outcome import Absorbed, Gone, MappedRow, Rejection, RowLocation, RowOutcome, Skipped
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import RowKey
from state.enums import EntryState
from state.ledger.accounts import Tally
from state.ledger.duplicates import Candidate, DuplicateIndex
from state.ledger.entries import CANCELLED, Batch, find_known, find_pasts
from state.ledger.lease import FencedTransaction
from state.ledger.plan import (
    NO_PAST,
    Drifted,
    Held,
    Known,
    New,
    Past,
    Redraft,
    Reopen,
    Repin,
    Returned,
    StillHeld,
    StillRefused,
    Unchanged,
    Withdrawn,
    drafted,
    is_of_change,
    plan_known,
    plan_new,
)
from state.ledger.problems import ListedProblems, Problem, held, rejected, stem_of, strike_warnings, warned, write_problems
from state.ledger.read_marks import ReadMarks, UnreadEvents
from state.ledger.row_digests import RowDigests
from state.ledger.stage_policy import OnChange, ReadKind, StagePolicy
from state.tables import storable


@dataclass(frozen=True, slots=True)
class Progress:
    """What one read has come to so far, the policy that it is made on, and what people decided about held rows."""

    marks: ReadMarks
    tally: Tally
    policy: StagePolicy
    unread: UnreadEvents
    listed: ListedProblems
    digests: RowDigests
    duplicates: DuplicateIndex
    left_out: dict[int, str] = field(default_factory=dict)
    """The known entries that a rule of the mapping now leaves out, with the rule."""
    stems: set[str] = field(default_factory=set)
    """The rows that this read has come to, where each speaks for all of its events, and the others of its source are not read."""
    left_out_stems: dict[str, str] = field(default_factory=dict)
    """The rows of several events that a rule of the mapping now leaves out, with the rule."""

    def hear(self, outcomes: Sequence[RowOutcome]) -> None:
        """Note what these rows leave unsaid, and what they speak for."""
        rules = {} if self.policy.kind is ReadKind.CHOSEN else {id(row): name for row in outcomes if (name := _rule_of_all(row))}
        self.unread.hear(outcome for outcome in outcomes if id(outcome) not in rules)
        if self.policy.row_parts is None:
            return
        for outcome in outcomes:
            if rule := rules.get(id(outcome)):
                self.left_out_stems[stem_of(outcome.row_key, self.policy.row_parts)] = rule
            is_stem = isinstance(outcome, Gone) and outcome.is_stem
            if outcome.row_key and (is_stem or self.policy.kind is ReadKind.INCREMENTAL):
                self.stems.add(stem_of(outcome.row_key, self.policy.row_parts))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A batch in which every row key occurs once, and what is gathered about it."""

    progress: Progress
    known: dict[str, Known]
    candidates: dict[bytes, Candidate]
    resembled: Mapping[int, Candidate]
    pasts: Mapping[int, Past]
    batch: Batch
    problems: list[Problem]
    changed: list[RowKey]
    """Rows whose warnings are taken from the list, and listed anew if they still hold."""

    def take(self, outcome: RowOutcome) -> None:
        """Decide on one row, count it in exactly one place, and gather what is to be written."""
        match outcome:
            case MappedRow():
                self._take_row(outcome)
            case Rejection():
                self._meet(outcome.row_key)
                self._reject(outcome)
            case Skipped(is_cancelled=True):
                self._take_cancelled(outcome)
            case Skipped():
                self._leave_out(outcome)
            case Absorbed():
                self.progress.tally.absorb(outcome)
            case Gone():
                self._lose(outcome.row_key)
            case _:
                assert_never(outcome)

    def _take_cancelled(self, row: Skipped) -> None:
        """A cancelled row is left out; an event that may be out already is drift: nobody but a person can withdraw it."""
        self._meet(row.row_key)
        known = self.known.get(storable(row.row_key)) if row.row_key else None
        if known is not None and self.progress.marks.is_mapped(known.entry_id):
            self.progress.tally.restless += 1  # another row of this read speaks for the event
        if known is None or known.may_be_pinned_anew:
            self.progress.tally.called_off += 1
            self.progress.tally.skip(row.because)
            return
        if known.is_removed:
            self.progress.tally.differ(is_settled=True)
            if known.drift_fingerprint is not None:
                self.batch.settle(known.entry_id)
            return
        is_recorded = known.drift_fingerprint == CANCELLED
        self.progress.tally.differ(is_settled=is_recorded and known.is_set_aside)
        if not is_recorded:
            self.batch.cancel(known.entry_id, row.origin)

    def _leave_out(self, row: Skipped) -> None:
        """Count a row that is left out. A known entry that a rule leaves out is as good as gone from its source."""
        self.progress.tally.skip(row.because)
        known = self.known.get(storable(row.row_key)) if row.row_key else None
        if not row.rule or known is None or self.progress.policy.kind is ReadKind.CHOSEN:
            self._meet(row.row_key)
            return
        self.progress.marks.mark_deleted(known.entry_id)
        if not known.is_vanished:
            self.progress.left_out[known.entry_id] = _name_rule(row)

    def _lose(self, row_key: RowKey) -> None:
        """The source says that the row was deleted; of what it has sent nobody but a person can take anything back."""
        self.progress.tally.gone += 1
        known = self.known.get(storable(row_key)) if row_key else None
        if known is not None:
            self.progress.marks.mark_deleted(known.entry_id)

    def _take_row(self, row: MappedRow) -> None:
        known = self.known.get(row.row_key)
        if row.outside and (known is None or known.may_be_pinned_anew):
            self._meet(row.row_key)
            self.progress.tally.skip(row.outside)
            return
        if row.warnings:
            self.progress.tally.warnings += len(row.warnings)
        if known is None:
            self._take_new(drafted(row) if self.progress.policy.drafts_only else row)
            return
        if known.revision or self.progress.policy.drafts_only:
            row = _as_asked(known, row, self.progress.policy)
        if known.is_vanished:
            self.batch.welcome_back(known.entry_id)
        if known.drift_fingerprint == CANCELLED:
            self.progress.tally.restless += 1  # another row of this read may have called the event off
        if self.progress.marks.is_mapped(known.entry_id):
            self._take_again(known, row)
        else:
            self._take_known(known, row)

    def _take_new(self, row: MappedRow) -> None:
        if rejection := too_long_key(row):
            self._reject(rejection)
            return
        match plan_new(self.candidates.get(row.twin_digest) if self.progress.policy.holds_copies else None):
            case New():
                self.candidates[row.twin_digest] = Candidate(0, row.row_key)
                self.progress.duplicates.create(row.twin_digest, row.row_key)
                self.progress.tally.new += 1
                self.batch.create(row)
                self.progress.digests.add_created(_digest_of(row))
                self._warn(row)
            case Held(candidate):
                self.batch.hold(row, candidate)
                self._hold(row, candidate)

    def _hold(self, row: MappedRow, candidate: Candidate | None) -> None:
        self.progress.tally.hold(row.origin.place, row.row_key, candidate)
        self.problems.append(held(row.origin.place, row.row_key, candidate, row.cells))

    def _hold_known(self, known: Known, row: MappedRow) -> None:
        self.progress.marks.mark_mapped(known.entry_id)
        if known.state != EntryState.HELD or row.fingerprint != known.fingerprint or known.origin != row.origin.place:
            self.batch.hold_again(known.entry_id, row)
        if known.is_set_aside:
            self.progress.tally.hold_silently()
        else:
            self._hold(row, self.resembled.get(known.candidate_id or 0))

    def _take_known(self, known: Known, row: MappedRow) -> None:  # noqa: C901 # one arm for each member of the union
        entry_id = known.entry_id
        on_change = _without_drafts(self.progress.policy.on_change) if row.outside else self.progress.policy.on_change
        match plan_known(known, row, on_change, self.pasts.get(entry_id, NO_PAST)):
            case Unchanged() as same:
                self.progress.marks.mark_mapped(entry_id)
                self.progress.tally.unchanged += 1
                if not known.revision:
                    self.progress.digests.add(_digest_of(row), entry_id)
                self._refresh(known, row, has_changed=same.is_drift_over or same.is_stale)
            case StillRefused(is_stale):
                self.progress.marks.mark_mapped(entry_id)
                self.progress.tally.still_refused += 1
                self._refresh(known, row, has_changed=is_stale)
            case StillHeld() | Returned():
                self._hold_known(known, row)
            case Drifted(is_recorded):
                self.progress.marks.mark_mapped(entry_id)
                self.progress.tally.differ(is_settled=is_recorded and known.is_set_aside)
                if is_recorded:
                    return
                if on_change == "ignore" and not known.is_removed:
                    self.batch.ignore(entry_id, row)
                else:
                    self.batch.drift(entry_id, row, is_removed=known.is_removed)
                    self._warn_anew(row)
            case Withdrawn():
                self.progress.marks.mark_mapped(entry_id)
                self.progress.tally.unchanged += 1
                self.progress.tally.restless += 1  # the event that is put back need not be the one that says this
                self.batch.withdraw(entry_id)
            case Repin() | Reopen():
                self.batch.pin(entry_id, row)
                self._staged_anew(entry_id, row)
            case Redraft():
                self.batch.redraft(entry_id, drafted(row))
                self._staged_anew(entry_id, row)

    def _refresh(self, known: Known, row: MappedRow, *, has_changed: bool) -> None:
        if has_changed:
            self._warn_anew(row)
        if has_changed or _is_misplaced(known, row):
            self.batch.refresh(known.entry_id, row)

    def _staged_anew(self, entry_id: int, row: MappedRow) -> None:
        self.progress.marks.mark_staged(entry_id)
        self.progress.tally.new += 1
        self.progress.tally.restaged += 1
        self._warn_anew(row)

    def _take_again(self, known: Known, row: MappedRow) -> None:
        """A second row of this read claims an entry: the same words are a duplicate, others leave both in doubt."""
        if row.fingerprint == known.said and not self.progress.marks.is_conflicting(known.entry_id):
            self.progress.tally.duplicate += 1
            return
        self._reject(_claimed_twice(row.row_key, row.origin, f"the first one is at {known.origin}", row.cells))
        if known.state == EntryState.HELD:
            self.progress.marks.mark_conflicting(known.entry_id)
        elif known.is_never_sent and not self.progress.marks.is_conflicting(known.entry_id):
            self._dispute(known, row)

    def _dispute(self, known: Known, row: MappedRow) -> None:
        """Take the first claim back as well: until a person says which row is right, both are wrong."""
        if self.progress.marks.is_staged(known.entry_id):
            self.progress.tally.new -= 1
            self.progress.tally.restaged -= known.entry_id <= self.progress.marks.boundary
        else:
            self.progress.tally.unchanged -= 1
        self.progress.marks.mark_conflicting(known.entry_id)
        self._reject(_claimed_twice(row.row_key, RowLocation(known.origin), f"another one is at {row.origin}", {}))

    def _meet(self, row_key: RowKey) -> None:
        known = self.known.get(storable(row_key)) if row_key else None
        if known is None:
            return
        self.progress.marks.mark_present(known.entry_id)
        if known.is_vanished:
            self.batch.welcome_back(known.entry_id)

    def _reject(self, rejection: Rejection) -> None:
        self.progress.tally.reject(rejection)
        self.problems.append(rejected(rejection))

    def _warn(self, row: MappedRow) -> None:
        """List a warning when its row is staged or has changed; it stays listed while the row and the mapping are the same."""
        if row.warnings:
            self.problems.append(warned(row))

    def _warn_anew(self, row: MappedRow) -> None:
        self.changed.append(row.row_key)
        self._warn(row)


def compare(connection: Connection, turn: FencedTransaction, progress: Progress, outcomes: Sequence[RowOutcome]) -> None:
    """Compare rows of different keys with the ledger and write what follows, in the caller's transaction."""
    progress.hear(outcomes)
    keys = [storable(outcome.row_key) for outcome in outcomes if outcome.row_key]
    known = find_known(connection, turn.scope_id, keys)
    unknown = [row.twin_digest for row in outcomes if isinstance(row, MappedRow) and row.row_key not in known]
    candidates = progress.duplicates.find(connection, unknown)
    resembled = progress.duplicates.by_id(connection, {entry.candidate_id for entry in known.values() if entry.candidate_id})
    pasts = find_pasts(connection, known, outcomes, progress.policy)
    comparison = Comparison(progress, known, candidates, resembled, pasts, Batch(turn), [], [])
    for outcome in outcomes:
        comparison.take(outcome)
    comparison.batch.write(connection)
    progress.digests.settle(connection, turn.scope_id)
    strike_warnings(connection, turn.scope_id, comparison.changed)
    write_problems(connection, turn.scope_id, turn.run_id, turn.now(), comparison.problems)


def _as_asked(known: Known, row: MappedRow, policy: StagePolicy) -> MappedRow:
    """Return the row as this read would pin it: as a draft where only drafts are sent, or where a change was drafted.

    What is pinned and may be out is compared with the row itself: the wish of one run is no change of the source.
    """
    if is_of_change(known.revision):
        return drafted(row)
    if not policy.drafts_only:
        return row
    draft = drafted(row)
    return draft if known.may_be_pinned_anew or draft.fingerprint == known.fingerprint else row


def _rule_of_all(outcome: RowOutcome) -> str:
    """Return the rule that leaves out all events of a row that stands for several, "" if none does."""
    if isinstance(outcome, Skipped) and outcome.rule and not outcome.is_cancelled and outcome.part.silence is not None:
        return _name_rule(outcome)
    return ""


def _name_rule(row: Skipped) -> str:
    return f"rule {row.rule}: {row.because}"


def _without_drafts(on_change: OnChange) -> OnChange:
    """Return what to do about a change of a row outside the window: a draft of it would be sent for the first time."""
    return "report" if on_change == "create_draft_again" else on_change


def _digest_of(row: MappedRow) -> bytes:
    """Return the digest that the next read may know the row by, b"" where its warnings have to be counted again."""
    return b"" if row.warnings else row.row_digest


def _is_misplaced(known: Known, row: MappedRow) -> bool:
    """Whether a person who looks for the row would be sent to the wrong place; delivered rows may move about freely."""
    return known.origin != row.origin.place and known.state != EntryState.DELIVERED


def _claimed_twice(row_key: RowKey, origin: RowLocation, hint: str, cells: Mapping[str, str]) -> Rejection:
    reason = Reason(ReasonCode.DUPLICATE_KEY, "", "", row_key, hint)
    return Rejection(origin, row_key, (reason,), cells)
