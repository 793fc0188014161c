"""COMMIT POINT 1: what a source says, compared with the ledger and recorded to be sent, one transaction per chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from sqlalchemy import Connection

from mappings.outcome import (
    Absorbed,
    Gone,
    MappedRow,
    Reason,
    ReasonCode,
    Rejection,
    RowLocation,
    RowOutcome,
    Skipped,
    too_long_key,
)
from mappings.row_key import RowKey
from state.enums import Decision, EntryState
from state.ledger.accounts import (
    Problem,
    StageReport,
    Tally,
    carry_list,
    dump,
    held,
    no_list,
    rejected,
    strike_warnings,
    warned,
    write_problems,
)
from state.ledger.close import close_stage
from state.ledger.duplicates import DuplicateIndex
from state.ledger.entries import (
    CANCELLED,
    Batch,
    Candidate,
    Known,
    content_of,
    drafted,
    entry_ids,
    find_known,
    is_of_change,
    said_before,
    shown_bodies,
    status_of,
)
from state.ledger.gate import AT_THE_END, Opening, ReadEnd, is_last_read, shut
from state.ledger.lease import FencedTransaction
from state.ledger.reads import OnChange, Progress, ReadKind, ReadMarks, RowDigests, StagePolicy, UnreadEvents, _name_rule
from state.tables import storable


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a changed row beside its entry. `is_said`: an earlier event of the row says what it says now;
    `is_status_only`: it differs from the pinned payload in nothing but its status.
    """

    is_said: bool = False
    is_status_only: bool = False


NO_PAST = Past()


@dataclass(frozen=True, slots=True)
class New:
    """A row never seen before: pin its body and stage it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A new row that looks like a known event under another key: recorded as held, not sent, shown to a person."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class StillHeld:
    """A row that is held: what it asks for is recorded, nothing is sent. Whether it is freed is decided when the read ends."""


@dataclass(frozen=True, slots=True)
class Returned:
    """A row whose event another key adopted is back in its source: held."""


@dataclass(frozen=True, slots=True)
class StillRefused:
    """The source asks for the very payload that was refused. `is_stale`: the row's digest moved."""

    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Repin:
    """Staged and never sent: the new body takes the old one's place, under the same key."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The source says what is pinned. `is_drift_over`: it said something else before; `is_stale`: the row's digest moved."""

    is_drift_over: bool = False
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Drifted:
    """The source says something else than what is pinned and may be out. `is_recorded`: that very difference is known."""

    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class Reopen:
    """Refused as it was, and changed: pending again with the new body, under the same key first."""


@dataclass(frozen=True, slots=True)
class Redraft:
    """Delivered, and changed since: the changed payload becomes a new draft, and the event before it stays on record."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A draft of a change was staged and nothing was created from it; the row says again what an earlier event says."""


PlanOfKnown = Repin | Unchanged | StillRefused | StillHeld | Returned | Drifted | Reopen | Redraft | Withdrawn
_NEW = New()
_REPIN = Repin()
_REOPEN = Reopen()
_REDRAFT = Redraft()
_WITHDRAWN = Withdrawn()
_SAME = Unchanged()
_STALE = Unchanged(is_stale=True)
_BACK = Unchanged(is_drift_over=True, is_stale=True)


def plan_new(candidate: Candidate | None) -> New | Held:
    """Decide on a row that the ledger does not know; `candidate` is the entry that it looks like, if any."""
    return _NEW if candidate is None else Held(candidate)


def plan_known(  # noqa: C901, PLR0911  # one arm for each row of the table
    known: Known, row: MappedRow, on_change: OnChange = "report", past: Past = NO_PAST
) -> PlanOfKnown:
    """Decide on a row that the ledger knows. `past` matters only where the payload has changed."""
    if known.state == EntryState.HELD:
        return _REPIN if known.decision == Decision.RELEASE else StillHeld()
    if known.state == EntryState.SUPERSEDED:
        return Returned()
    if known.is_removed:
        return Drifted(is_recorded=row.fingerprint == known.drift_fingerprint)
    if row.fingerprint == known.shown:
        if known.state == EntryState.REFUSED:
            return StillRefused(is_stale=row.row_digest != known.row_digest)
        if known.drift_fingerprint is not None:
            return _BACK
        return _SAME if row.row_digest == known.row_digest else _STALE
    if known.may_be_pinned_anew:
        if past.is_said:
            return _WITHDRAWN
        return _REPIN if known.state == EntryState.PENDING else _REOPEN
    if known.state == EntryState.DELIVERED and on_change == "create_draft_again" and past == NO_PAST:
        return _REDRAFT
    is_listed = on_change != "ignore"
    return Drifted(is_recorded=row.fingerprint == known.drift_fingerprint and (known.drift_kind is not None) is is_listed)


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


def find_pasts(
    connection: Connection, known: Mapping[str, Known], outcomes: Sequence[RowOutcome], policy: StagePolicy
) -> dict[int, Past]:
    """Return the pasts of those rows whose change could be drafted, or was, by entry."""
    if policy.on_change != "create_draft_again" and not any(entry.revision for entry in known.values()):
        return {}
    rows = [row for row in outcomes if isinstance(row, MappedRow)]
    changed = {entry.entry_id: (entry, row) for entry, row in _changed(known, rows, policy)}
    if not changed:
        return {}
    said, shown = said_before(connection, changed), shown_bodies(connection, changed)
    return {
        entry_id: Past(
            is_said=bool({row.fingerprint, drafted(row).fingerprint} & said.get(entry_id, frozenset())),
            is_status_only=_is_status_only(shown[entry_id], drafted(row) if is_of_change(entry.revision) else row),
        )
        for entry_id, (entry, row) in changed.items()
    }


def _changed(known: Mapping[str, Known], rows: Sequence[MappedRow], policy: StagePolicy) -> Iterator[tuple[Known, MappedRow]]:
    asks_for_drafts = policy.on_change == "create_draft_again"
    for row in rows:
        entry = known.get(row.row_key)
        if entry is None or entry.shown == row.fingerprint:
            continue
        if is_of_change(entry.revision) or (asks_for_drafts and entry.state == EntryState.DELIVERED):
            yield entry, row


def _is_status_only(shown: bytes, asked: MappedRow) -> bool:
    return status_of(shown) != status_of(asked.body) and content_of(shown) == content_of(asked.body)


class Stage:
    """One read of a source on its way into the ledger. While it is open, and if it is cut short, the gate is closed.

    Memory: a byte for each ledger entry, 16 for each row of which the digest is kept, and the rows whose events are left unsaid.
    After an error the stage is over: open another one, which finds what this one wrote and goes on from there.
    """

    def __init__(self, turn: FencedTransaction, opening: Opening, progress: Progress) -> None:
        self._turn = turn
        self._opening = opening
        self._progress = progress

    def unchanged(self, digests: Sequence[bytes]) -> list[int]:
        """Return, for each row of the next chunk by its digest, the entry that it leaves as it is; 0: the row has to be mapped.

        b"" stands for a row that has to be mapped in any case.
        """
        return self._progress.digests.unchanged(digests, self._progress.marks)

    def write(
        self,
        outcomes: Sequence[RowOutcome],
        unchanged: Collection[int] = (),
        map_all: Callable[[], Sequence[RowOutcome]] = list,
    ) -> None:
        """Write one chunk of rows, about 2,000, in one transaction with the counts so far.

        `unchanged`: the entries of the chunk's other rows, as `Stage.unchanged` returned them. Where one of them is claimed by an
        outcome as well, it depends on the order of the rows what becomes of both: `map_all` then returns the outcomes of all.
        Raises `LeaseLostError` if another run has taken the feed over.
        """
        progress = self._progress
        with self._turn.transaction() as connection:
            if unchanged and not entry_ids(connection, self._turn.scope_id, _keys(outcomes)).isdisjoint(unchanged):
                outcomes, unchanged = map_all(), ()
            progress.tally.begin(outcomes)
            progress.tally.pass_over(len(unchanged))
            progress.marks.mark_unchanged(unchanged)
            progress.listed.strike(connection, outcomes)
            for batch in _without_repeats(_storable_rows(outcomes)):
                compare(connection, self._turn, progress, batch)
            progress.duplicates.keep_up(connection)
            self._turn.note(connection, read_account=dump(progress.tally.account()))

    def close(self, brake: Callable[[StageReport], Sequence[str]], end: ReadEnd = AT_THE_END) -> StageReport:
        """End the read in one transaction: mark what vanished, withdraw what is no longer asked for, set the gate.

        `brake` is shown the report and returns the names of the brakes that it trips; those that a person accepted for
        this run are set apart in the report, and the gate then stays closed for other runs. `end`: how the source says that
        the read ended; its bookmark is kept in this very transaction, if the gate opens.
        Raises `ImbalanceError` if the rows do not add up; the gate then stays closed.
        """
        with self._turn.transaction() as connection:
            return close_stage(connection, self._turn, self._opening.ended(end), self._progress, brake)


def start_stage(turn: FencedTransaction, *, is_whole: bool, stamp: str, policy: StagePolicy, digests_of: str | None) -> Stage:
    """Close the gate and begin a read. Raises `LeaseLostError` if another run has taken the feed over."""
    with turn.transaction() as connection:
        is_known = bool(digests_of) and is_last_read(connection, turn.scope_id, digests_of or "")
        opening = shut(connection, turn, is_whole=is_whole, stamp=stamp, kind=policy.kind)
        is_anew = policy.kind is ReadKind.FULL or is_whole
        listed = no_list() if is_anew else carry_list(connection, turn, policy.row_parts)
        duplicates = DuplicateIndex(connection, turn.scope_id)
        marks, digests = ReadMarks(opening.boundary), RowDigests(opening.boundary, is_kept=digests_of is not None)
        if is_known:
            digests.load(connection, turn.scope_id, marks)
    return Stage(turn, opening, Progress(marks, Tally(), policy, UnreadEvents(policy.days), listed, digests, duplicates))


def _keys(outcomes: Sequence[RowOutcome]) -> list[str]:
    return [storable(outcome.row_key) for outcome in outcomes if outcome.row_key]


def _storable_rows(outcomes: Sequence[RowOutcome]) -> Sequence[RowOutcome]:
    """Return the rows under keys that every database takes: the ledger knows them by these, their idempotency keys included."""
    if all(outcome.row_key.isprintable() for outcome in outcomes):
        return outcomes
    return [replace(outcome, row_key=RowKey(storable(outcome.row_key))) for outcome in outcomes]


def _without_repeats(outcomes: Sequence[RowOutcome]) -> Iterable[Sequence[RowOutcome]]:
    """Split a chunk so that no row key occurs twice in a part: the second row of a key must find what the first did."""
    keys = [outcome.row_key for outcome in outcomes if outcome.row_key and not isinstance(outcome, Absorbed)]
    if len(set(keys)) == len(keys):
        return (outcomes,)
    parts: defaultdict[int, list[RowOutcome]] = defaultdict(list)
    times: defaultdict[str, int] = defaultdict(int)
    for outcome in outcomes:
        if outcome.row_key and not isinstance(outcome, Absorbed):
            times[outcome.row_key] += 1
        parts[times[outcome.row_key]].append(outcome)
    return parts.values()
