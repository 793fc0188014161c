"""What one read of the source has come to so far: counts, a few examples, and problems counted once per raw value.

All of it stays small however long the source is. What becomes of the rows is `stage`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import assert_never

from mappings.outcome import Absorbed, Absorption, Gone, Rejection, RowOutcome, Skipped
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import RowKey
from state.ledger.accounts import HeldRow, ReadAccount, ReasonCount, RejectedRow, RowShares, StageReport
from state.ledger.duplicates import Candidate

_EXAMPLES = 20
_DISTINCT_VALUES = 500  # beyond, problems are counted per field without their value

_Problem = tuple[ReasonCode, str, str, str]


class Tally:
    """The running counts of one read; `report()` freezes them.

    `called_off`: rows left out as the source calls their events off, none of which can be out yet; `restless`: rows that the
    same source would come to something else for in its very next read.
    """

    def __init__(self) -> None:
        self.read = self.duplicate = self.rejected = self.held = self.unchanged = self.drifted = self.new = 0
        self.still_refused = 0
        self.expanded = self.grouped = self.gone = self.standing = 0
        self.restaged = self.warnings = self.vanished = self.withdrawn = 0
        self.ignored = self.waiting = self.redrafted = self.unreleased = 0
        self.called_off = self.restless = 0
        self._wanted = self._spoilt = 0.0
        self._skipped: Counter[str] = Counter()
        self._reasons: Counter[_Problem] = Counter()
        self._hints: dict[_Problem, str] = {}
        self._rejections: list[RejectedRow] = []
        self._held: list[HeldRow] = []

    def begin(self, outcomes: Sequence[RowOutcome]) -> None:
        """Count what was read: rows, and the events that some of them give beyond one."""
        further = sum(outcome.part.is_further for outcome in outcomes)
        self.expanded += further
        self.read += len(outcomes) - further
        self._wanted += sum(1 / outcome.part.of for outcome in outcomes if not isinstance(outcome, Skipped | Absorbed | Gone))

    def pass_over(self, rows: int) -> None:
        """Count rows that are known to be unchanged without having been mapped, one event each."""
        self.read += rows
        self.unchanged += rows
        self._wanted += rows

    def absorb(self, row: Absorbed) -> None:
        """Count a row that another row of its key speaks for."""
        match row.into:
            case Absorption.DUPLICATE:
                self.duplicate += 1
            case Absorption.GROUPED:
                self.grouped += 1
            case _:
                assert_never(row.into)

    def skip(self, because: str) -> None:
        """Count a row that a rule of the mapping leaves out."""
        self._skipped[because] += 1

    def reject(self, rejection: Rejection) -> None:
        """Count a row that cannot be used, and each of its reasons."""
        self.rejected += 1
        self._spoilt += 1 / rejection.part.of
        self._count(rejection.reasons)
        if len(self._rejections) < _EXAMPLES:
            self._rejections.append(RejectedRow(rejection.origin.place, rejection.row_key, rejection.reasons))

    def differ(self, *, is_settled: bool) -> None:
        """Count a row that differs from what was delivered; as unchanged once a person has settled that very difference."""
        self.drifted += not is_settled
        self.unchanged += is_settled

    def hold(self, place: str, row_key: RowKey, candidate: Candidate | None) -> None:
        """Count a row that looks like a known event."""
        self.held += 1
        if len(self._held) < _EXAMPLES:
            like = candidate or Candidate(0, RowKey(""))
            self._held.append(HeldRow(place, row_key, like.row_key, like.feed, like.namespace))

    def hold_after_all(self, place: str, row_key: RowKey, candidate: Candidate) -> None:
        """Count a new row as held: another feed has staged the same event meanwhile."""
        self.new -= 1
        self.hold(place, row_key, candidate)

    def free(self, row_key: RowKey) -> None:
        """Count a held row as new: nothing known looks like it any more."""
        self.held -= 1
        self.new += 1
        self._held = [row for row in self._held if row.row_key != row_key]

    def hold_silently(self) -> None:
        """Count a row that is held and ignored."""
        self.held += 1
        self.ignored += 1

    def account(self) -> ReadAccount:
        """Freeze the counts that must balance."""
        return ReadAccount(
            read=self.read,
            expanded=self.expanded,
            filtered=self._skipped.total(),
            duplicate=self.duplicate,
            grouped=self.grouped,
            rejected=self.rejected,
            held=self.held,
            still_refused=self.still_refused,
            unchanged=self.unchanged,
            drifted=self.drifted,
            new=self.new,
            gone=self.gone,
        )

    def report(self, run_id: str, *, is_whole: bool, known_before: int, last_whole_read: int | None) -> StageReport:
        """Freeze everything, for the brakes and for people."""
        return StageReport(
            run_id=run_id,
            is_whole=is_whole,
            account=self.account(),
            warnings=self.warnings,
            vanished=self.vanished,
            withdrawn=self.withdrawn,
            restaged=self.restaged,
            ignored=self.ignored,
            waiting=self.waiting,
            redrafted=self.redrafted,
            standing=self.standing,
            known_before=known_before,
            last_whole_read=last_whole_read,
            rows=RowShares(self._wanted, self._spoilt) if self.expanded else None,
            skipped=dict(self._skipped),
            reasons=tuple(
                ReasonCount(*problem, self._hints.get(problem, ""), count) for problem, count in self._reasons.most_common()
            ),
            rejections=tuple(self._rejections),
            held=tuple(self._held),
        )

    def _count(self, reasons: Iterable[Reason]) -> None:
        for reason in reasons:
            problem = (reason.code, reason.field, reason.column, reason.found)
            if problem not in self._reasons and len(self._reasons) >= _DISTINCT_VALUES:
                problem = (reason.code, reason.field, reason.column, "")
            self._reasons[problem] += 1
            self._hints.setdefault(problem, reason.hint)
