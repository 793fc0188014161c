"""Compare one batch of rows with the ledger: each row is looked up, decided on, counted, and gathered for writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from sqlalchemy import Connection

from mappings.outcome import Absorbed, Gone, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, too_long_key
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
    """The state of one read: its policy, what it has met, counted and gathered so far."""

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
    """The rows that this read has met, where each stands for all of its events, and the others of its source are not read."""
    left_out_stems: dict[str, str] = field(default_factory=dict)
    """The rows of several events that a rule of the mapping now leaves out, with the rule."""

    def note(self, outcomes: Sequence[RowOutcome]) -> None:
        """Note which events these rows stand for, and of which they say nothing."""
        policy = self.policy
        for outcome in outcomes:
            rule = "" if policy.kind is ReadKind.CHOSEN else _rule_of_all(outcome)
            if not rule:
                self.unread.note(outcome)
            if policy.row_parts is None or not (outcome.row_key or rule):
                continue
            stem = stem_of(outcome.row_key, policy.row_parts)
            if rule:
                self.left_out_stems[stem] = rule
            if outcome.row_key and (policy.kind is ReadKind.INCREMENTAL or (isinstance(outcome, Gone) and outcome.is_stem)):
                self.stems.add(stem)


def compare(connection: Connection, turn: FencedTransaction, progress: Progress, outcomes: Sequence[RowOutcome]) -> None:
    """Compare rows of different keys with the ledger and write what follows, in the caller's transaction."""
    progress.note(outcomes)
    comparison = _Comparison(connection, turn, progress, outcomes)
    for outcome in outcomes:
        comparison.take(outcome)
    comparison.batch.write(connection)
    progress.digests.settle(connection, turn.scope_id)
    strike_warnings(connection, turn.scope_id, comparison.changed)
    write_problems(connection, turn.scope_id, turn.run_id, turn.now(), comparison.problems)


class _Comparison:
    """A batch in which every row key occurs once, and what is gathered about it.

    `changed`: rows whose warnings are taken from the list, and listed anew if they still hold.
    """

    def __init__(
        self, connection: Connection, turn: FencedTransaction, progress: Progress, outcomes: Sequence[RowOutcome]
    ) -> None:
        keys = [storable(outcome.row_key) for outcome in outcomes if outcome.row_key]
        known = find_known(connection, turn.scope_id, keys)
        unknown = [row.duplicate_digest for row in outcomes if isinstance(row, MappedRow) and row.row_key not in known]
        held_for = {entry.candidate_id for entry in known.values() if entry.candidate_id}
        self._progress = progress
        self._policy, self._marks, self._tally = progress.policy, progress.marks, progress.tally
        self._known = known
        self._candidates = progress.duplicates.find(connection, unknown)
        self._resembled = progress.duplicates.by_id(connection, held_for)
        self._pasts = find_pasts(connection, known, outcomes, progress.policy)
        self.batch = Batch(turn)
        self.problems: list[Problem] = []
        self.changed: list[RowKey] = []

    def take(self, outcome: RowOutcome) -> None:
        """Decide on one row, count it in exactly one place, and gather what is to be written."""
        match outcome:
            case MappedRow():
                self._take_row(outcome)
            case Rejection():
                self._mark_present(outcome.row_key)
                self._reject(outcome)
            case Skipped(is_cancelled=True):
                self._take_cancelled(outcome)
            case Skipped():
                self._leave_out(outcome)
            case Absorbed():
                self._tally.absorb(outcome)
            case Gone():
                self._take_deleted(outcome.row_key)
            case _:
                assert_never(outcome)

    def _entry_of(self, row_key: RowKey) -> Known | None:
        return self._known.get(storable(row_key)) if row_key else None

    def _take_cancelled(self, row: Skipped) -> None:
        """Leave out a cancelled row; an event that may be out already is drift, as only a person can withdraw it."""
        self._mark_present(row.row_key)
        known = self._entry_of(row.row_key)
        if known is not None and self._marks.is_mapped(known.entry_id):
            self._tally.restless += 1  # another row of this read speaks for the event
        if known is None or known.may_be_pinned_anew:
            self._tally.called_off += 1
            self._tally.skip(row.because)
            return
        if known.is_removed:
            self._tally.differ(is_settled=True)
            if known.drift_fingerprint is not None:
                self.batch.settle(known.entry_id)
            return
        is_recorded = known.drift_fingerprint == CANCELLED
        self._tally.differ(is_settled=is_recorded and known.is_set_aside)
        if not is_recorded:
            self.batch.cancel(known.entry_id, row.location)

    def _leave_out(self, row: Skipped) -> None:
        """Count a row that is left out. A known entry that a rule leaves out is as good as gone from its source."""
        self._tally.skip(row.because)
        known = self._entry_of(row.row_key)
        if not row.rule or known is None or self._policy.kind is ReadKind.CHOSEN:
            self._mark_present(row.row_key)
            return
        self._marks.mark_deleted(known.entry_id)
        if not known.is_vanished:
            self._progress.left_out[known.entry_id] = _name_rule(row)

    def _take_deleted(self, row_key: RowKey) -> None:
        """Count a row that its source has deleted; only a person can take back what was sent of it."""
        self._tally.gone += 1
        known = self._entry_of(row_key)
        if known is not None:
            self._marks.mark_deleted(known.entry_id)

    def _take_row(self, row: MappedRow) -> None:
        known = self._known.get(row.row_key)
        if row.outside and (known is None or known.may_be_pinned_anew):
            self._mark_present(row.row_key)
            self._tally.skip(row.outside)
            return
        if row.warnings:
            self._tally.warnings += len(row.warnings)
        if known is None:
            self._take_new(drafted(row) if self._policy.drafts_only else row)
            return
        if known.revision or self._policy.drafts_only:
            row = _as_asked(known, row, self._policy)
        if known.is_vanished:
            self.batch.unmark_vanished(known.entry_id)
        if known.drift_fingerprint == CANCELLED:
            self._tally.restless += 1  # another row of this read may have called the event off
        if self._marks.is_mapped(known.entry_id):
            self._take_second_claim(known, row)
        else:
            self._take_known(known, row)

    def _take_new(self, row: MappedRow) -> None:
        if rejection := too_long_key(row):
            self._reject(rejection)
            return
        match plan_new(self._candidates.get(row.duplicate_digest) if self._policy.holds_copies else None):
            case New():
                self._candidates[row.duplicate_digest] = Candidate(0, row.row_key)
                self._progress.duplicates.create(row.duplicate_digest, row.row_key)
                self._tally.new += 1
                self.batch.create(row)
                self._progress.digests.add_created(_digest_of(row))
                self._list_warnings(row)
            case Held(candidate):
                self.batch.hold(row, candidate)
                self._hold(row, candidate)

    def _hold(self, row: MappedRow, candidate: Candidate | None) -> None:
        self._tally.hold(row.location.place, row.row_key, candidate)
        self.problems.append(held(row.location.place, row.row_key, candidate, row.cells))

    def _hold_known(self, known: Known, row: MappedRow) -> None:
        self._marks.mark_mapped(known.entry_id)
        if known.state != EntryState.HELD or row.fingerprint != known.fingerprint or known.origin != row.location.place:
            self.batch.hold_again(known.entry_id, row)
        if known.is_set_aside:
            self._tally.hold_silently()
        else:
            self._hold(row, self._resembled.get(known.candidate_id or 0))

    def _take_known(self, known: Known, row: MappedRow) -> None:  # noqa: C901 # one arm for each member of the union
        entry_id = known.entry_id
        on_change = _without_drafts(self._policy.on_change) if row.outside else self._policy.on_change
        match plan_known(known, row, on_change, self._pasts.get(entry_id, NO_PAST)):
            case Unchanged() as same:
                self._marks.mark_mapped(entry_id)
                self._tally.unchanged += 1
                if not known.revision:
                    self._progress.digests.add(_digest_of(row), entry_id)
                self._refresh(known, row, has_changed=same.is_drift_over or same.is_stale)
            case StillRefused(is_stale):
                self._marks.mark_mapped(entry_id)
                self._tally.still_refused += 1
                self._refresh(known, row, has_changed=is_stale)
            case StillHeld() | Returned():
                self._hold_known(known, row)
            case Drifted(is_recorded):
                self._marks.mark_mapped(entry_id)
                self._tally.differ(is_settled=is_recorded and known.is_set_aside)
                if is_recorded:
                    return
                if on_change == "ignore" and not known.is_removed:
                    self.batch.ignore(entry_id, row)
                else:
                    self.batch.drift(entry_id, row, is_removed=known.is_removed)
                    self._list_warnings_anew(row)
            case Withdrawn():
                self._marks.mark_mapped(entry_id)
                self._tally.unchanged += 1
                self._tally.restless += 1  # the event that is put back need not be the one that says this
                self.batch.withdraw(entry_id)
            case Repin() | Reopen():
                self.batch.pin(entry_id, row)
                self._stage_anew(entry_id, row)
            case Redraft():
                self.batch.redraft(entry_id, drafted(row))
                self._stage_anew(entry_id, row)

    def _refresh(self, known: Known, row: MappedRow, *, has_changed: bool) -> None:
        if has_changed:
            self._list_warnings_anew(row)
        if has_changed or _is_misplaced(known, row):
            self.batch.refresh(known.entry_id, row)

    def _stage_anew(self, entry_id: int, row: MappedRow) -> None:
        self._marks.mark_staged(entry_id)
        self._tally.new += 1
        self._tally.restaged += 1
        self._list_warnings_anew(row)

    def _take_second_claim(self, known: Known, row: MappedRow) -> None:
        """Count a second row of an entry: as a duplicate if it says the same, else both rows are in doubt."""
        if row.fingerprint == known.said and not self._marks.is_conflicting(known.entry_id):
            self._tally.duplicate += 1
            return
        self._reject(_claimed_twice(row.row_key, row.location, f"the first one is at {known.origin}", row.cells))
        if known.state == EntryState.HELD:
            self._marks.mark_conflicting(known.entry_id)
        elif known.is_never_sent and not self._marks.is_conflicting(known.entry_id):
            self._take_back_first_claim(known, row)

    def _take_back_first_claim(self, known: Known, row: MappedRow) -> None:
        """Take the first claim back as well: until a person says which row is right, both are wrong."""
        if self._marks.is_staged(known.entry_id):
            self._tally.new -= 1
            self._tally.restaged -= known.entry_id <= self._marks.boundary
        else:
            self._tally.unchanged -= 1
        self._marks.mark_conflicting(known.entry_id)
        self._reject(_claimed_twice(row.row_key, RowLocation(known.origin), f"another one is at {row.location}", {}))

    def _mark_present(self, row_key: RowKey) -> None:
        known = self._entry_of(row_key)
        if known is None:
            return
        self._marks.mark_present(known.entry_id)
        if known.is_vanished:
            self.batch.unmark_vanished(known.entry_id)

    def _reject(self, rejection: Rejection) -> None:
        self._tally.reject(rejection)
        self.problems.append(rejected(rejection))

    def _list_warnings(self, row: MappedRow) -> None:
        """List a warning when its row is staged or has changed; it stays listed while the row and the mapping are the same."""
        if row.warnings:
            self.problems.append(warned(row))

    def _list_warnings_anew(self, row: MappedRow) -> None:
        self.changed.append(row.row_key)
        self._list_warnings(row)


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
    return known.origin != row.location.place and known.state != EntryState.DELIVERED


def _claimed_twice(row_key: RowKey, origin: RowLocation, hint: str, cells: Mapping[str, str]) -> Rejection:
    reason = Reason(ReasonCode.DUPLICATE_KEY, "", "", row_key, hint)
    return Rejection(origin, row_key, (reason,), cells)
