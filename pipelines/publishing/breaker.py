"""The breaker of a drain: from verdict to verdict it notices that it is the service or the mapping that fails, and not a row.

What the service's own page announced is `caution`'s; how a drain stops is `drain`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from connectors.errors import ScopeMissingError
from connectors.event_api.complaints import in_short
from mappings.delivery import Answer, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError, TransientError
from pipelines.outcomes import BrakeError

SAME_REFUSALS = 25
"""So many first answers, all the same refusal (field and issue), say that the mapping is wrong and not the rows."""
MOST_IN_A_ROW = 1000
"""So many refusals in a row that are all the same stop any run, however long it is and whatever went out before."""
UNCERTAIN_IN_A_ROW = 20
"""So many rows in a row without a usable answer, each after its own retries, say that the service is down."""
ALL_UNCERTAIN = 3
"""The same of a drain's only rows; fewer may be rows that the service cannot digest."""
OUT_OF_SCOPE_IN_A_ROW = 1000
"""So many rows in a row for whose channels the key lacks the scope say that it lacks it for all."""
_ROUNDING = 1e-9
"""Shares are binary fractions: 29 % of 100 must not be a little less than 29."""


@dataclass(slots=True)
class Breaker:
    """Notices that it is the service or the mapping that fails, and not a row.

    `patience`: so many refusals in a row that are all the same stop a run in which other rows have passed before.
    """

    patience: int = MOST_IN_A_ROW
    refusals: int = 0
    in_a_row: int = 0
    uncertain: int = 0
    issue: tuple[str, str, str] | None = None
    is_telling: bool = True
    is_answered: bool = False
    last: Answer | None = None
    out_of_scope: int = 0
    scope_cause: SyncError | None = None

    def cause(self, verdict: Verdict) -> SyncError | None:
        """Take one more verdict into account; return why the run must stop, if it must."""
        match verdict:
            case Postponed(cause=ScopeMissingError() as cause):
                self.out_of_scope, self.scope_cause = self.out_of_scope + 1, cause
                return cause if self.out_of_scope >= OUT_OF_SCOPE_IN_A_ROW else None
            case Postponed(cause=cause):
                return cause
            case Uncertain(answer):
                self.uncertain, self.last = self.uncertain + 1, answer
                return self._down() if self.uncertain >= UNCERTAIN_IN_A_ROW else None
            case _:
                self.uncertain, self.out_of_scope, self.is_answered = 0, 0, True
                # A refusal of long ago, told again, is no row's last word: the row goes out once more under its next key.
                return None if isinstance(verdict, Superseded) else self._after_answer(verdict)

    def cause_at_end(self) -> SyncError | None:
        """Return what a drain that went to its end has left for later, and why.

        Rows of channels that are out of the key's scope; or all of its rows: the service is down, however few they were.
        """
        if self.scope_cause is not None:
            return self.scope_cause
        return None if self.is_answered or self.uncertain < ALL_UNCERTAIN else self._down()

    def _down(self) -> SyncError:
        last = in_short(self.last) if self.last else "none at all"
        return TransientError(
            f"{self.uncertain} rows in a row got no usable answer (the last one: {last})",
            hint="the service seems to be down; run again later: nothing is lost, every row keeps its key",
        )

    def _after_answer(self, verdict: Verdict) -> SyncError | None:
        if isinstance(verdict, Refusal):
            # A refusal of our own (a broken image in many rows) was never sent: it says nothing about the mapping.
            return self._after_refusal(verdict) if verdict.attempts else None
        self.is_telling = self.is_telling and not isinstance(verdict, Receipt | Unconfirmed)
        self.in_a_row = 0
        return None

    def _after_refusal(self, verdict: Refusal) -> SyncError | None:
        issue = (verdict.answer.code, verdict.answer.field, verdict.answer.issue)
        self.is_telling = self.is_telling and self.issue in {None, issue}
        self.refusals, self.in_a_row = self.refusals + 1, self.in_a_row + 1 if issue == self.issue else 1
        self.issue = issue
        if self.is_telling and self.refusals >= SAME_REFUSALS:
            return _same_refusal(f"the first {self.refusals} rows", issue)
        if not self.is_telling and self.in_a_row >= self.patience:
            return _same_refusal(f"{self.in_a_row} rows in a row", issue)
        return None


def patience_with(owed: int, bad_share: float | None) -> int:
    """Return how many refusals in a row that are all the same stop a run that owes so many rows, once rows have passed.

    A partner may well have listed bad rows side by side: as many as the feed lets be bad (`rejected`; None: any) are no
    sign of more, one beyond them is. Never fewer than would tell at the beginning of a run.
    """
    beyond = MOST_IN_A_ROW if bad_share is None else int(owed * bad_share + _ROUNDING) + 1
    return min(max(SAME_REFUSALS, beyond), MOST_IN_A_ROW)


def _same_refusal(which: str, issue: tuple[str, str, str]) -> BrakeError:
    return BrakeError(
        f"{which} were all refused for the same reason: {' '.join(filter(None, issue))}",
        brakes=("same refusal",),
        hint="mend the mapping, then run again: refused rows are sent anew when their payload changes; "
        "if it was the service that was wrong, `eventsync retry FEED` lets them go out as they are",
    )
