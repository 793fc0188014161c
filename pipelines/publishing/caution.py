"""Care where the service's own page says that rows will be refused: one row goes first, and its refusal holds the rest back.

What the page says is read by `preflight`; a refusal that no page announced is `systemic_failure`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from mappings.delivery import Answer, Blocked, Intent, Receipt, Refusal, Superseded, Verdict
from mappings.errors import SyncError
from pipelines.outcomes import BrakeError
from pipelines.publishing.payload_paths import is_same_place, last_name, words_of

PATIENT_ANSWERS = 10
"""So many rows that neither pass nor are refused as announced say that the page's word decides nothing here."""


@dataclass(frozen=True, slots=True)
class Doubt:
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
class Caution:
    """One drain's care: while it `is_on`, one row is under way at a time. Without doubts it is never on.

    `owed`: rows that the drain would send. A row that passes ends the care: the page's word alone stops nothing.
    """

    doubts: tuple[Doubt, ...] = ()
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
