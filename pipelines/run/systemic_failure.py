"""Systemic failure of a drain: its verdicts say together that the mapping or the key is wrong, and not a row."""

from __future__ import annotations

import re
from dataclasses import dataclass

from connectors.errors import ScopeMissingError
from mappings.delivery import Answer, Blocked, Intent, Postponed, Receipt, Refusal, Superseded, Uncertain, Unconfirmed, Verdict
from mappings.errors import SyncError
from pipelines.run.brakes import BrakeError

SAME_REFUSALS = 25
"""So many first answers, all the same refusal (field and issue), say that the mapping is wrong and not the rows."""
MOST_IN_A_ROW = 1000
"""So many refusals in a row that are all the same stop any run, however long it is and whatever went out before."""
OUT_OF_SCOPE_IN_A_ROW = 1000
"""So many rows in a row for whose channels the key lacks the scope say that it lacks it for all."""
_ROUNDING = 1e-9
"""Shares are binary fractions: 29 % of 100 must not be a little less than 29."""


class SameRefusalError(BrakeError):
    """So many rows were refused for one reason that it is no row's own. `reason` stays the same for the same refusal."""

    def __init__(self, which: str, reason: str) -> None:
        super().__init__(
            f"{which} refused for the same reason: {reason}",
            brakes=("same refusal",),
            hint="mend the mapping, then run again: refused rows are sent anew when their payload changes; "
            "if it was the service that was wrong, `eventsync retry FEED` lets them go out as they are; "
            "the next run sends one row first, and the others once it has passed",
        )
        self.reason = reason


@dataclass(slots=True)
class SystemicFailure:
    """Stops a drain in which the same refusal comes again and again, or in which the key lacks the scope for every channel.

    `patience`: so many refusals in a row that are all the same stop a run in which other rows have passed before.
    `stopped_by`: the reason for which an earlier run was stopped so; then rows go one by one until one has passed, and the
    same refusal of the first one stops this run, too.
    """

    patience: int = MOST_IN_A_ROW
    stopped_by: str = ""
    refusals: int = 0
    in_a_row: int = 0
    issue: str | None = None
    is_telling: bool = True
    has_passed: bool = False
    out_of_scope: int = 0
    scope_cause: SyncError | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether rows are sent one by one, as an earlier run was stopped and none has passed since."""
        return bool(self.stopped_by) and not self.has_passed

    def cause(self, verdict: Verdict) -> SyncError | None:
        """Take one more verdict into account; return why the run must stop, if it must."""
        match verdict:
            case Postponed(cause=ScopeMissingError() as cause):
                self.out_of_scope, self.scope_cause = self.out_of_scope + 1, cause
                return cause if self.out_of_scope >= OUT_OF_SCOPE_IN_A_ROW else None
            case Postponed(cause=cause):
                return cause
            case Uncertain():
                return None
            case _:
                self.out_of_scope = 0
                # A refusal of long ago, told again, is no row's last word: the row goes out once more under its next key.
                return None if isinstance(verdict, Superseded) else self._after_answer(verdict)

    def cause_at_end(self) -> SyncError | None:
        """Return why a drain that went to its end has left rows for later: their channels are out of the key's scope."""
        return self.scope_cause

    def _after_answer(self, verdict: Verdict) -> SyncError | None:
        if isinstance(verdict, Refusal):
            # A refusal of our own (a broken image in many rows) was never sent: it says nothing about the mapping.
            return self._after_refusal(verdict) if verdict.attempts else None
        self.has_passed = self.has_passed or isinstance(verdict, Receipt | Unconfirmed)
        self.is_telling = self.is_telling and not isinstance(verdict, Receipt | Unconfirmed)
        self.in_a_row = 0
        return None

    def _after_refusal(self, verdict: Refusal) -> SyncError | None:
        answer = verdict.answer
        issue = " ".join(filter(None, (answer.code, answer.field, answer.issue)))
        if self.is_doubtful and issue == self.stopped_by:
            return SameRefusalError("the row that was sent first after a stop was", issue)
        self.is_telling = self.is_telling and self.issue in {None, issue}
        self.refusals, self.in_a_row = self.refusals + 1, self.in_a_row + 1 if issue == self.issue else 1
        self.issue = issue
        if self.is_telling and self.refusals >= SAME_REFUSALS:
            return SameRefusalError(f"the first {self.refusals} rows were all", issue)
        if not self.is_telling and self.in_a_row >= self.patience:
            return SameRefusalError(f"{self.in_a_row} rows in a row were all", issue)
        return None


def patience_with(owed: int, bad_share: float | None) -> int:
    """Return how many refusals in a row that are all the same stop a run that owes so many rows, once rows have passed.

    A partner may well have listed bad rows side by side: as many as the feed lets be bad (`rejected`; None: any) are no
    sign of more, one beyond them is. Never fewer than would tell at the beginning of a run.
    """
    beyond = MOST_IN_A_ROW if bad_share is None else int(owed * bad_share + _ROUNDING) + 1
    return min(max(SAME_REFUSALS, beyond), MOST_IN_A_ROW)


_PLACES = re.compile(r"\[\d*\]|/\d+(?=/|$)")


def is_same_place(told: str, ours: str) -> bool:
    """Compare two paths whatever the service's spelling."""
    one, other = _plain(told), _plain(ours)
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def last_name(path: str) -> str:
    """Return the last name of a path of ours."""
    return _PLACES.sub("", path).rpartition(".")[2]


def words_of(*texts: str) -> set[str]:
    """Return the words of a service's sentences, without regard to case."""
    return set(re.findall(r"\w+", " ".join(texts).casefold()))


def _plain(path: str) -> str:
    return ".".join(filter(None, re.split(r"[./]", _PLACES.sub("", path)))).casefold()


PATIENT_ANSWERS = 10
"""So many rows that neither pass nor are refused as announced say that the page's word decides nothing here."""


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """One difference by which the page says every row will be refused.

    `fields`: paths in the payload that a refusal may name for it; none where the request as a whole is meant.
    """

    told: str
    fields: frozenset[str] = frozenset()

    def explains(self, answer: Answer) -> bool:
        """Whether a refusal is the announced one: it names such a field, in its place for fields or else in its words.

        Where the request as a whole is meant, it names no field. What a key may not do (403) is never announced.
        """
        if not self.fields:
            return not answer.field and answer.status != 403
        if answer.status in {403, 404}:
            return False
        if answer.field:
            return any(is_same_place(answer.field, field) for field in self.fields)
        words = words_of(answer.issue, answer.message)
        return any(last_name(field).casefold() in words for field in self.fields)


@dataclass(slots=True)
class CautiousStart:
    """One drain's care: while it `is_on`, one row is under way at a time. Without doubts it is never on.

    `owed`: rows that the drain would send. A row that passes ends the care: the page's word alone stops nothing.
    """

    doubts: tuple[ExpectedRefusal, ...] = ()
    owed: int = 0
    answers: int = 0
    telling: int = 0
    has_passed: bool = False

    @property
    def is_on(self) -> bool:
        """Whether rows are sent one by one."""
        return bool(self.doubts) and not self.has_passed and self.telling < PATIENT_ANSWERS

    def cause(self, intent: Intent, verdict: Verdict) -> SyncError | None:
        """Take one more verdict into account; return why the drain must stop, if it must.

        An intent that an earlier run may have sent tells nothing: its answer may be that of the earlier attempt, under
        an earlier contract.
        """
        if not self.is_on or isinstance(verdict, Superseded):
            return None
        self.answers += 1
        self.telling += not intent.is_unanswered
        match verdict:
            case Receipt():
                self.has_passed = not intent.is_unanswered
                return None
            case Refusal(answer) | Blocked(answer):
                return self._after_refusal(answer)
            case _:
                return None

    def _after_refusal(self, answer: Answer) -> SyncError | None:
        announced = next((doubt for doubt in self.doubts if doubt.explains(answer)), None)
        if announced is None:
            return None
        said = ": ".join(filter(None, (answer.field, answer.issue or answer.message)))
        unsent = max(self.owed - self.answers, 0)
        return BrakeError(
            f"{announced.told}; a row was refused for it ({answer.status} {said}), {unsent} rows were not sent",
            brakes=("contract",),
            hint="see `eventsync check --live`, mend the mapping and run again: nothing is lost, every row keeps its key",
        )
