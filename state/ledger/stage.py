"""Commit point 1: compares the rows of a source with the ledger, and records what to send, one transaction per chunk.

A retry must be the same request. So a body that may have reached the service stays under its key, and what the source asks for
now is an observation beside it. Another body may replace it only if certainly nothing was created: before the first attempt (an
attempt stopped by the rate limiter does not count), and after a definitive refusal. A blocked channel is such a refusal: usually
the mapping is then corrected to name the right channel. The corrected body is sent under the same key first, with the refusal's
request id recorded, because the service may repeat a stored refusal, which is not an answer to the new body.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from mappings.outcome import Absorbed, Absorption, Gone, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, shown_place
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import RowKey
from state.enums import Observed, Outcome, ProblemKind
from state.facts import Plan, Reading
from state.ledger.accounts import DEFAULT_POLICY, Candidate, ReadKind, StagePolicy, StageReport, dump
from state.ledger.close import close_stage
from state.ledger.copies import lock_service
from state.ledger.entries import Batch, Known, drafted, find_ids, find_known, find_takers, next_ids
from state.ledger.gate import Bookmark, is_last_read, shut
from state.ledger.lease import FencedTransaction
from state.ledger.problems import Problem, claimed_twice, held, rejected, strike, warned, write_problems
from state.ledger.reads import Mark, SourceRead, name_rule
from state.tables import storable

_LONGEST_KEY = 2_000
_SHOWN_OF_KEY = 80
_UNCHANGED = Mark.PRESENT | Mark.MAPPED | Mark.UNCHANGED


class Stage:
    """One read of a source that is being recorded in the ledger. The gate is closed while it is open, and stays closed if it is
    cut short.

    Memory: a byte per ledger entry, 16 per stored row digest, and the rows whose events are left open. After an error the stage
    is over: open another one, which finds what this one wrote and continues.
    """

    def __init__(self, read: SourceRead) -> None:
        self._read = read

    def unchanged(self, digests: Sequence[bytes]) -> list[int]:
        """Return, for the digest of each row of the next chunk, the entry that it leaves unchanged, 0 if the row must be
        mapped.

        b"" stands for a row that must be mapped in any case.
        """
        return self._read.digests.unchanged(digests)

    def write(
        self, outcomes: Sequence[RowOutcome], unchanged: Collection[int] = (), map_all: Callable[[], Sequence[RowOutcome]] = list
    ) -> None:
        """Record one chunk of about 2,000 rows in one transaction, with the counts so far.

        `unchanged`: the entries of the chunk's other rows, from `Stage.unchanged`. If an outcome claims one of them as well,
        the result depends on the order of the rows: `map_all` then returns the outcomes of all. Raises `LeaseLostError` if
        another run has taken over the feed.
        """
        read, run = self._read, self._read.run
        if unchanged and not outcomes:  # nothing to record (budget 2); `close` checks the lease
            self._count((), unchanged)
            return
        with run.transaction() as connection:
            if unchanged:
                keys = {storable(outcome.row_key) for outcome in outcomes if outcome.row_key}
                if not set(unchanged).isdisjoint(find_ids(connection, run.scope_id, keys)):
                    outcomes, unchanged = map_all(), ()
            self._count(outcomes, unchanged)
            read.listed.strike(connection, outcomes)
            if not all(outcome.row_key.isprintable() for outcome in outcomes):
                # Every database takes these keys: the ledger knows rows by them, and their idempotency keys are made of them.
                outcomes = [replace(outcome, row_key=RowKey(storable(outcome.row_key))) for outcome in outcomes]
            for batch in _without_repeats(outcomes):
                _Comparison(connection, read, batch).write()
            read.duplicates.keep_up(connection)
            run.note(connection, read_account=dump(read.tally.account()))

    def _count(self, outcomes: Sequence[RowOutcome], unchanged: Collection[int]) -> None:
        self._read.tally.begin(outcomes, len(unchanged))
        flags = self._read.marks.known
        for entry_id in unchanged:
            flags[entry_id] |= _UNCHANGED

    def close(
        self, brake: Callable[[StageReport], Sequence[str]], bookmark: Bookmark | None = None, *, is_short: bool = False
    ) -> StageReport:
        """End the read in one transaction: mark vanished rows, withdraw what is no longer asked for, set the gate.

        `brake` gets the report and returns the names of the brakes that trip; those accepted for this run are separate in the
        report, and the gate stays closed for other runs. `bookmark`: where the next read may continue, None if nowhere; it is
        stored in this transaction if the gate opens. `is_short`: rows are missing at the end, so that absence means nothing.
        Raises `ImbalanceError` if the rows do not add up; the gate then stays closed.
        """
        self._read.is_whole = self._read.is_whole and not is_short
        with self._read.run.transaction(lock_service) as connection:
            return close_stage(connection, self._read, brake, bookmark)


def open_stage(
    run: FencedTransaction,
    *,
    is_whole: bool,
    stamp: str = "",
    policy: StagePolicy = DEFAULT_POLICY,
    digests_of: str | None = None,
) -> Stage:
    """Close the gate and start to record a read.

    `is_whole`: the source is read completely, so that an absent row has vanished; `policy.kind` is the scope of other reads.
    `stamp`: evidence of the content's version, stored once this read passes its brakes. `digests_of`: the stamp of the read
    whose row digests to use, if it is still the feed's last one; the digests of this read are stored then, and also if it is
    "". None: row digests are not used. Raises `LeaseLostError` if another run has taken over the feed.
    """
    with run.transaction() as connection:
        is_known = bool(digests_of) and is_last_read(connection, run.scope_id, digests_of or "")
        is_anew = policy.kind is ReadKind.FULL or is_whole
        before = shut(connection, run, is_whole=is_whole, is_anew=is_anew)
        read = SourceRead(connection, run, policy, before, is_whole=is_whole, stamp=stamp)
        read.digests.is_kept = digests_of is not None
        if not is_anew:
            read.listed.carry(connection, run)
        if is_known:
            read.digests.load(connection, run.scope_id)
    return Stage(read)


def _without_repeats(outcomes: Sequence[RowOutcome]) -> Iterable[Sequence[RowOutcome]]:
    """Split a chunk so that no row key occurs twice in a part: the second row of a key must find the first in the ledger."""
    keys = ["" if isinstance(outcome, Absorbed) else outcome.row_key for outcome in outcomes]
    named = [key for key in keys if key]
    if len(set(named)) == len(named):
        return (outcomes,)
    parts: defaultdict[int, list[RowOutcome]] = defaultdict(list)
    times: defaultdict[str, int] = defaultdict(int)
    for key, outcome in zip(keys, outcomes, strict=True):
        times[key] += bool(key)
        parts[times[key]].append(outcome)
    return parts.values()


def too_long_key(row: MappedRow) -> Rejection | None:
    """Return the rejection of an unknown row whose key is too long for the ledger, None if it fits."""
    length = len(row.row_key.encode("utf-8", "backslashreplace"))
    if length <= _LONGEST_KEY:
        return None
    hint = f"an identifier has at most {_LONGEST_KEY:,} bytes, and this one has {length:,}: shorten it"
    reason = Reason(ReasonCode.BAD_KEY, "", "", f"{row.row_key[:_SHOWN_OF_KEY]}…", hint)
    return Rejection(row.location, row.row_key, (reason,), row.cells, row.part)


class _Comparison:
    """Compares a batch of rows, no two with the same key, with the ledger: decides about each row, counts and adds it.

    `_changed`: rows whose warnings are removed from the list, and listed again if they still apply.
    """

    def __init__(self, connection: Connection, read: SourceRead, outcomes: Sequence[RowOutcome]) -> None:
        read.note(outcomes)
        keys = [storable(outcome.row_key) for outcome in outcomes if outcome.row_key]
        self._known = known = find_known(connection, read.run.scope_id, keys)
        self._read, self._run, self._policy, self._marks, self._tally = read, read.run, read.policy, read.marks, read.tally
        self._connection, self._outcomes = connection, outcomes
        unknown = [row for row in outcomes if isinstance(row, MappedRow) and row.row_key not in known]
        self._candidates = read.duplicates.find(connection, [row.duplicate_digest for row in unknown])
        moved = [entry.entry_id for entry in known.values() if entry.outcome == Outcome.MOVED]
        self._takers = find_takers(connection, moved)
        held_for = {entry.candidate_id for entry in known.values() if entry.candidate_id} | {*self._takers.values()}
        self._resembled = read.duplicates.by_id(connection, held_for)
        self._batch = Batch(read.run, next_ids(connection, len(unknown)))
        self._problems: list[Problem] = []
        self._changed: list[RowKey] = []

    def write(self) -> None:
        """Compare the rows, and write the resulting changes in the caller's transaction."""
        connection, scope_id = self._connection, self._run.scope_id
        for outcome in self._outcomes:
            # Decide on one row, count it in exactly one place, and gather what is to be written.
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
                case Absorbed(into=Absorption.GROUPED):
                    self._tally.grouped += 1
                case Absorbed():
                    self._tally.duplicate += 1
                case Gone():
                    self._tally.gone += 1
                    if known := self._entry_of(outcome.row_key):
                        self._marks.mark(known.entry_id, Mark.DELETED)
        self._batch.write(connection)
        strike(connection, scope_id, ProblemKind.WARNING, self._changed)
        write_problems(connection, self._run, self._problems)

    def _entry_of(self, row_key: RowKey) -> Known | None:
        return self._known.get(storable(row_key)) if row_key else None

    def _take_cancelled(self, row: Skipped) -> None:
        """Leave out a cancelled row; if its event may be at the service, that is drift, since only a person can withdraw it."""
        self._mark_present(row.row_key)
        known = self._entry_of(row.row_key)
        if known is not None and self._marks.has(known.entry_id, Mark.MAPPED):
            self._tally.restless += 1  # another row of this read has the event
        plan = Plan.LEAVE_OUT if known is None else known.plan(Reading.CANCELLED)
        if known is None or plan is Plan.LEAVE_OUT:
            self._tally.called_off += 1
            self._tally.skip(row.because)
        elif plan is Plan.SETTLE:
            self._tally.differ(is_settled=True)
            if known.observed is not None:
                self._batch.settle(known.entry_id)
        elif known.observed == Observed.CANCELLED:
            self._tally.differ(is_settled=self._is_ignored(known))
        else:
            self._tally.differ(is_settled=False)
            self._batch.cancel(known.entry_id, row.location.place)

    def _is_ignored(self, known: Known) -> bool:
        """Return whether a person has ignored what the source says of a row."""
        return self._read.ignored.get(known.entry_id) == known.wish

    def _leave_out(self, row: Skipped) -> None:
        """Count a row that is left out. A known entry that a rule leaves out counts as gone from its source."""
        self._tally.skip(row.because)
        known = self._entry_of(row.row_key)
        if not row.rule or known is None or self._policy.kind is ReadKind.CHOSEN:
            self._mark_present(row.row_key)
            return
        self._marks.mark(known.entry_id, Mark.DELETED)
        if not known.is_gone:
            self._read.left_out[known.entry_id] = name_rule(row)

    def _take_row(self, row: MappedRow) -> None:
        known = self._known.get(row.row_key)
        if row.outside and (known is None or known.may_be_pinned):
            self._mark_present(row.row_key)
            self._tally.skip(row.outside)
            return
        self._tally.warnings += len(row.warnings)
        if known is None:
            self._take_new(drafted(row) if self._policy.drafts_only else row)
            return
        if self._policy.drafts_only:
            row = _as_pinned(known, row)
        if known.observed == Observed.CANCELLED:
            self._tally.restless += 1  # another row of this read may have called the event off
        if self._marks.has(known.entry_id, Mark.MAPPED):
            self._take_second_claim(known, row)
        else:
            self._take_known(known, row)

    def _take_new(self, row: MappedRow) -> None:
        if rejection := too_long_key(row):
            self._reject(rejection)
            return
        candidate = self._candidates.get(row.duplicate_digest) if self._policy.holds_copies else None
        entry_id = self._batch.create(row, candidate and candidate.entry_id)
        if candidate is not None:
            self._hold(row, candidate)
            return
        self._candidates[row.duplicate_digest] = own = Candidate(entry_id, row.row_key)
        self._read.duplicates.create(row.duplicate_digest, own)
        self._tally.new += 1
        self._read.digests.add(_digest_of(row), entry_id)
        self._list_warnings(row)

    def _hold(self, row: MappedRow, candidate: Candidate | None) -> None:
        self._tally.hold(row.location.place, row.row_key, candidate)
        self._problems.append(held(row.location.place, row.row_key, candidate, row.cells))

    def _take_known(self, known: Known, row: MappedRow) -> None:
        entry_id = known.entry_id
        plan = known.plan(Reading.SAME if row.fingerprint == known.fingerprint else Reading.OTHER)
        self._marks.mark(entry_id, Mark.PRESENT | Mark.MAPPED)
        match plan:
            case Plan.UNCHANGED:
                self._tally.unchanged += 1
                self._read.digests.add(_digest_of(row), entry_id)
                self._refresh(known, row)
            case Plan.STILL_REFUSED:
                self._tally.still_refused += 1
                self._refresh(known, row)
            case Plan.HOLD:
                is_held = known.outcome == Outcome.HELD
                candidate_id = known.candidate_id if is_held else self._takers.get(entry_id)
                if not is_held or (known.fingerprint, known.origin) != (row.fingerprint, row.location.place):
                    self._batch.hold(entry_id, row, candidate_id)
                if self._is_ignored(known):
                    self._tally.held += 1
                    self._tally.ignored += 1
                else:
                    self._hold(row, self._resembled.get(candidate_id or 0))
            case Plan.PIN:
                self._batch.pin(entry_id, row)
                self._marks.mark(entry_id, Mark.STAGED)
                self._tally.new += 1
                self._tally.restaged += 1
                self._list_warnings_anew(row)
            case _:
                self._take_drift(known, row, is_back=plan is Plan.RETURN)

    def _refresh(self, known: Known, row: MappedRow) -> None:
        """Record that the row asks for what is shown, if it did not before, and its place, by which people find it."""
        has_changed = known.observed is not None or row.row_digest != known.row_digest
        if known.observed is not None:
            self._batch.settle(known.entry_id)
        if has_changed:
            self._list_warnings_anew(row)
        # Delivered rows may move.
        if has_changed or (known.origin != row.location.place and known.outcome != Outcome.CREATED):
            self._batch.refresh(known.entry_id, row)

    def _take_drift(self, known: Known, row: MappedRow, *, is_back: bool) -> None:
        is_counted = self._policy.on_change == "ignore" and not is_back
        if known.asked == row.fingerprint and (known.observed == Observed.COUNTED) is is_counted:
            self._tally.differ(is_settled=self._is_ignored(known))
            return
        self._tally.differ(is_settled=False)
        if is_counted:
            self._batch.count(known.entry_id, row)
            return
        record = self._batch.bring_back if is_back else self._batch.drift
        record(known.entry_id, row)
        self._list_warnings_anew(row)

    def _take_second_claim(self, known: Known, row: MappedRow) -> None:
        """Count a second row of an entry: as a duplicate if it has the same payload, else both rows are rejected.

        If the entry was never sent, the first row is withdrawn too, until a person corrects one of them.
        """
        is_conflicting = self._marks.has(known.entry_id, Mark.CONFLICTING)
        if row.fingerprint == (known.asked or known.fingerprint) and not is_conflicting:
            self._tally.duplicate += 1
            return
        self._reject(claimed_twice(row.row_key, row.location, f"the first one is at {shown_place(known.origin)}", row.cells))
        if known.outcome == Outcome.HELD:
            self._marks.mark(known.entry_id, Mark.CONFLICTING)
        elif known.is_never_sent and not is_conflicting:
            is_staged = self._marks.has(known.entry_id, Mark.STAGED)
            self._tally.new -= is_staged
            self._tally.unchanged -= not is_staged
            self._tally.restaged -= is_staged and known.entry_id <= self._marks.boundary
            self._marks.mark(known.entry_id, Mark.CONFLICTING)
            self._reject(claimed_twice(row.row_key, RowLocation(known.origin), f"another one is at {row.location}", {}))

    def _mark_present(self, row_key: RowKey) -> None:
        if known := self._entry_of(row_key):
            self._marks.mark(known.entry_id, Mark.PRESENT)
            if known.is_gone:
                self._batch.settle(known.entry_id)

    def _reject(self, rejection: Rejection) -> None:
        self._tally.reject(rejection)
        self._problems.append(rejected(rejection))

    def _list_warnings(self, row: MappedRow) -> None:
        """List the warnings of a row that is staged or has changed; they stay listed while row and mapping are unchanged."""
        if row.warnings:
            self._problems.append(warned(row))

    def _list_warnings_anew(self, row: MappedRow) -> None:
        self._changed.append(row.row_key)
        self._list_warnings(row)


def _as_pinned(known: Known, row: MappedRow) -> MappedRow:
    """Return the row as a read would pin it that sends drafts only.

    A body that may be at the service is compared with the row itself: a run's option is not a change of the source.
    """
    draft = drafted(row)
    return draft if known.may_be_pinned or draft.fingerprint == known.fingerprint else row


def _digest_of(row: MappedRow) -> bytes:
    """Return the digest by which the next read recognises the row, b"" if its warnings must be counted again."""
    return b"" if row.warnings else row.row_digest
